"""The prompt with visual tokens dropped: its columns, positions and features, made for the base model.

Three invariants:

1. Text is never dropped.
2. Kept tokens keep their original positions.
3. Decoding continues after the end of the undropped sequence.

Shapes: prompts [B, S]; image i has n_i visual tokens, N_i = T*H*W of them are cells (the rest, such as
newline tokens, always stay).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.compaction import (
    GESTALT,
    PAD,
    Span,
    compact_columns,
    consecutive_positions,
    gather_columns,
    gestalt_columns,
    gestalt_positions,
    image_spans,
    in_order,
    kept_columns,
    moved_columns,
)
from arr_coc.seam.features import Compacted, Layout, VisualFeatures
from arr_coc.seam.loaded import attention_window, warn_of_window


class PromptAssembly(ABC):
    """Base class of what makes compacted prompts; a family's adapter is one.

    Attributes:
        model: the loaded transformers model.
        visual_names: processor outputs that belong to the images, not to the prompt.
        plain_positions: position ids are [B, S], not three-row rotary ones [3, B, S].
        text_row: above three-row positions the model takes a row that numbers the columns.
    """

    model: Any
    visual_names: tuple[str, ...]
    plain_positions: bool
    text_row: bool = True
    _warnings: set[int]

    @abstractmethod
    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Position ids of the whole prompt: [3, B, S] or [B, S]."""

    # ---- the prompt -----------------------------------------------------------------------------------

    @property
    def image_token_id(self) -> int:
        """The id of the placeholder that stands for one visual token."""
        return self.model.config.image_token_id

    def has_images(self, inputs: Mapping[str, Any]) -> bool:
        """Whether these inputs carry images or clips to encode."""
        return any(inputs.get(name) is not None for name in ("pixel_values", "pixel_values_videos"))

    def columns(self, input_ids: Tensor, counts: Sequence[int]) -> list[Span]:
        """Per image, in order of appearance, its row and the columns [n_i] of its visual tokens."""
        return image_spans(input_ids == self.image_token_id, counts)

    def attention_mask(self, inputs: Mapping[str, Any]) -> Tensor:
        """The caller's mask [B, S], or all ones.

        Raises:
            ValueError: a mask that isn't one value per token.
        """
        mask = inputs.get("attention_mask")
        ids = inputs["input_ids"]
        if mask is None:
            return torch.ones_like(ids)
        if mask.shape != ids.shape:
            raise ValueError(
                f"attention_mask has shape {tuple(mask.shape)} but input_ids {tuple(ids.shape)}; pass the "
                "processor's two-dimensional mask, or use mode='full'"
            )
        return mask

    def positions(self, inputs: Mapping[str, Any]) -> Tensor:
        """Position ids of the whole prompt: [3, B, S], or [B, S] in families with plain positions."""
        position_ids = inputs.get("position_ids")
        if position_ids is None:
            return self.prompt_positions(inputs, self.attention_mask(inputs))
        # As the model takes them: one row stands for all, and plain positions for each of three.
        position_ids = position_ids.expand(*position_ids.shape[:-2], *inputs["input_ids"].shape)
        if position_ids.ndim == 2 and not self.plain_positions:
            return position_ids.expand(3, -1, -1)
        numbered = self.text_row and position_ids.ndim == 3 and position_ids.shape[0] == 4
        return position_ids[1:] if numbered else position_ids

    # ---- the compacted prompt -------------------------------------------------------------------------

    @property
    def window(self) -> int | None:
        """The narrowest attention window of the language model in columns, itself included; None: no window.

        Windows count columns, not positions. So dropping tokens equals masking them while the whole prompt
        fits the window; in a longer one a window reaches further back over the dropped tokens.
        """
        return attention_window(self.model.config)

    def needs_spare_column(self, use_cache: bool) -> bool:
        """Whether the compacted prompt must hold at least one padding column.

        transformers takes gaps in plain position ids for packed sequences, and silently cuts the attention
        between them, wherever it has no padding mask: in `generate` without a cache, and always with flash
        attention (both drop a mask of ones). With one masked column on the left the mask is kept.
        """
        implementation = self.model.config.get_text_config()._attn_implementation or ""
        return self.plain_positions and (not use_cache or "flash" in implementation)

    def compact(
        self,
        inputs: Mapping[str, Any],
        features: VisualFeatures,
        keep: Sequence[Tensor],
        *,
        use_cache: bool = True,
        order: Sequence[Tensor] | None = None,
    ) -> Compacted:
        """Drop all cells that aren't kept from the prompt and its features.

        Args:
            inputs: arguments of the base model; those that aren't about the prompt or images are passed on.
            features: the encoded images, all their cells.
            keep: per image long [K_i], raster indices of kept cells, ascending.
            use_cache: whether the call will use a key/value cache.
            order: as in `assemble`.

        Returns:
            The result of `assemble` for the kept tokens of these features.
        """
        indices = features.tokens_to_keep(keep)
        whole = [len(index) for index in indices] == features.counts
        fine = features if whole else features.select(indices)  # no copy where nothing is dropped
        return self.assemble(inputs, features.layout, keep, fine, None, use_cache=use_cache, order=order)

    def assemble(
        self,
        inputs: Mapping[str, Any],
        layout: Layout,
        keep: Sequence[Tensor],
        fine: VisualFeatures | None,
        gestalt: VisualFeatures | None,
        *,
        use_cache: bool = True,
        order: Sequence[Tensor] | None = None,
    ) -> Compacted:
        """Make the prompt in which each image is its gestalt tokens, then its kept tokens.

        Text and kept tokens keep their original positions. A gestalt token gets the position of the middle of
        the cells that it covers (see `gestalt_positions`), a float where that falls between cells.

        Args:
            inputs: arguments of the base model; those that aren't about the prompt or images are passed on.
            layout: counts, grids and cells of the images' tokens in the whole prompt.
            keep: per image long [K_i], raster indices of kept cells, ascending.
            fine: the kept tokens (`layout.tokens_to_keep(keep)`) of each image; None if there are none.
            gestalt: per image a coarse view, all of whose tokens are cells of its `grids`; or None.
            use_cache: whether the call will use a key/value cache.
            order: per image long [K_i], the same cells in the order in which the language model is to read
                them, each at its own position; None: raster order. Attention is causal, so another order is
                another prompt: dropping equals masking in raster order alone.

        Returns:
            Arguments for the base model. If nothing is dropped or added these are the caller's own, with the
            encoded images in place of the pixels, so that the result is the stock model's to the last bit.

        Raises:
            ValueError: `fine` doesn't hold the tokens in `keep`, or there is neither fine nor gestalt.
        """
        ids = inputs["input_ids"]
        attention_mask = self.attention_mask(inputs)
        spans = self.columns(ids, layout.counts)
        indices = layout.tokens_to_keep(keep)
        kept_counts = [len(index) for index in indices]
        whole = gestalt is None and kept_counts == layout.counts
        ordered = None
        if order is not None and fine is not None and not whole:
            ordered = [in_order(*one) for one in zip(indices, layout.cells, order, strict=True)]
            ranks = [torch.searchsorted(*pair) for pair in zip(indices, ordered, strict=True)]
            fine = fine.select(ranks)
        visual = joined_tokens(gestalt, fine, kept_counts)
        passed_on = {name: value for name, value in inputs.items() if name != "pixel_values"}

        if whole:
            columns = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
            return Compacted(passed_on | {"mm_encoder_outputs": visual.as_encoder_outputs()}, columns)

        warn_of_window(self.window, int(attention_mask.sum(1).max()), self._warnings)
        kept = kept_columns(attention_mask, spans, indices)
        ahead = None if gestalt is None else gestalt_columns(kept, spans, gestalt.counts)
        columns = compact_columns(kept, ahead=ahead, spare=int(self.needs_spare_column(use_cache)))
        if ordered is not None:
            for (row, span), tokens in zip(spans, ordered, strict=True):
                columns[row, torch.isin(columns[row], span)] = span[tokens]
        mask = gather_columns(attention_mask, columns, fill=0, gestalt=1)
        every = self.positions(inputs)
        positions = gather_columns(every, columns, fill=0)
        if gestalt is not None:
            middles = gestalt_positions(every, spans, layout, gestalt.grids)
            positions = positions.to(middles.dtype)
            positions[..., columns == GESTALT] = middles
        return self._gathered(passed_on, mask, columns, positions, visual)

    def with_inserted(
        self,
        inputs: Mapping[str, Any],
        every: Tensor,
        spans: Sequence[Span],
        visual: VisualFeatures,
        labels: Tensor,
        places: Tensor,
        use_cache: bool,
    ) -> Compacted:
        """Make the prompt in which other tokens stand in the place of each image's.

        Args:
            inputs: arguments of the base model; those that aren't about the prompt or images are passed on.
            every: position ids of the whole prompt.
            spans: one (row, columns [n_i]) per image.
            visual: the tokens that each image is to have.
            labels: long [G], of all these their original columns, `GESTALT` or `CROP`.
            places: [..., G], their positions.
            use_cache: whether the call will use a key/value cache.
        """
        attention_mask = self.attention_mask(inputs)
        kept = kept_columns(attention_mask, spans, [span[:0] for _, span in spans])
        ahead = gestalt_columns(kept, spans, visual.counts)
        columns = compact_columns(kept, ahead=ahead, spare=int(self.needs_spare_column(use_cache)))
        inserted = columns == GESTALT
        positions = gather_columns(every, columns, fill=0)
        positions[..., inserted] = places.to(positions)
        mask = gather_columns(attention_mask, columns, fill=0, gestalt=1)
        columns[inserted] = labels
        return self._gathered(inputs, mask, columns, positions, visual)

    def _gathered(
        self,
        inputs: Mapping[str, Any],
        mask: Tensor,
        columns: Tensor,
        positions: Tensor,
        visual: VisualFeatures,
    ) -> Compacted:
        """The arguments of the base model for some columns of a prompt, with their mask and positions."""
        if positions.ndim == 3 and self.text_row:  # it only numbers the columns, for building masks
            positions = torch.cat([consecutive_positions(mask)[None].to(positions), positions])  # (4, B, S')

        kwargs = {name: value for name, value in inputs.items() if name not in self.visual_names}
        for name, fill, image in (
            ("mm_token_type_ids", 0, 1),
            ("moe_mm_token_type_ids", 0, 1),
            ("token_type_ids", 0, self._image_kind(inputs)),
            ("labels", -100, -100),
        ):
            if kwargs.get(name) is not None:
                kwargs[name] = gather_columns(kwargs[name], columns, fill, gestalt=image)
        last = kwargs.get("logits_to_keep")
        if last is not None and not isinstance(last, int):
            try:
                kwargs["logits_to_keep"] = moved_columns(
                    last, columns, inputs["input_ids"].shape[1], takes_rows_of_columns(self.model)
                )
            except ValueError as error:
                raise ValueError(f"logits_to_keep: {error}, or use mode='full'") from error
        if kwargs.get("labels") is not None:  # no loss at what follows padding
            kwargs["labels"][:, 1:].masked_fill_(columns[:, :-1] == PAD, -100)
        kwargs |= {
            "input_ids": gather_columns(
                inputs["input_ids"], columns, fill=self.padding_id, gestalt=self.image_token_id
            ),
            "attention_mask": mask,
            "position_ids": positions,
            "mm_encoder_outputs": visual.as_encoder_outputs(),
        }
        return Compacted(kwargs, columns)

    def _image_kind(self, inputs: Mapping[str, Any]) -> int:
        """The kind of visual tokens in `token_type_ids`, if there are any."""
        kinds = inputs.get("token_type_ids")
        return 0 if kinds is None else int(kinds[inputs["input_ids"] == self.image_token_id].max())

    @property
    def padding_id(self) -> int:
        """The token id for padding columns: the model's own, or any that isn't the image placeholder's."""
        generation, text = self.model.generation_config, self.model.config.get_text_config()
        configured = [i for i in (generation.pad_token_id, text.pad_token_id) if i is not None]
        return next(i for i in [*configured, 0, 1] if i != self.image_token_id)


def takes_rows_of_columns(model: Any) -> bool:
    """Whether the installed release lets a model's `logits_to_keep` name other columns for each row."""
    return hasattr(sys.modules[type(model).__module__], "slice_logits_to_keep")


def joined_tokens(
    gestalt: VisualFeatures | None, fine: VisualFeatures | None, kept_counts: list[int]
) -> VisualFeatures:
    """The visual tokens of a prompt: each image's gestalt tokens, then its kept tokens."""
    counts = [0] * len(kept_counts) if fine is None else fine.counts
    if counts != kept_counts:
        raise ValueError(
            f"{counts} encoded tokens per image can't stand for {kept_counts} kept ones; pass the tokens of "
            "`layout.tokens_to_keep(keep)`"
        )
    visual = fine if gestalt is None else gestalt if fine is None else gestalt.ahead_of(fine)
    if visual is None:
        raise ValueError("no visual token is kept and there is no gestalt; keep at least one cell")
    return visual
