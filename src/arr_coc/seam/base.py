"""The base class of family adapters: encoded images, positions, patches, and prompts with tokens dropped.

Visual tokens are dropped on an unpatched model: features from the model's own encoder, the same indices kept
in the features and in every tensor over the prompt, positions computed on the *whole* prompt, then the
model's own `forward` / `generate` with `mm_encoder_outputs`. Three invariants:

1. Text is never dropped.
2. Kept tokens keep their original positions.
3. Decoding continues after the end of the undropped sequence.

Shapes: prompts [B, S]; image i has n_i visual tokens, N_i = T*H*W of them are cells (the rest, such as
newline tokens, always stay). Nothing here scores or chooses cells: keep lists are arguments.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

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
    kept_columns,
)
from arr_coc.seam.features import Compacted, Grid, Layout, VisualFeatures
from arr_coc.seam.loaded import attention_window, warn_of_window
from arr_coc.seam.pixels import undo_normalisation
from arr_coc.seam.question import TemplateMarkers, question_tokens, template_markers


class FamilyAdapter(ABC):
    """Base class of the adapters: what differs between families is in its abstract methods and attributes.

    A family whose vision tower can encode some cells alone (`sparse`) also overrides `layout`, `encode_cells`
    and `coarse`; in the others these three raise NotImplementedError.

    Attributes:
        model_types: `config.model_type` of the models that the adapter is for.
        visual_names: processor outputs that belong to the images, not to the prompt.
        mean: per channel, of the image processor's normalisation, where no processor is at hand.
        std: likewise.
        plain_positions: position ids are [B, S], not three-row rotary ones [3, B, S].
        sparse: the vision tower can encode some cells alone.
        clips: the vision tower attends within frames alone, so that a clip is encoded frame by frame.
        by_cells: in the vision tower the patches of each cell stand together, once, so that what its layers
            compute can be told by cell; `merger` and `tower_order` say where.
        recurrent: some layers have a state that depends on every token read, so that dropping a token has no
            masked equivalent.

    Args:
        model: a loaded transformers model of this family. It is used, never changed.
        processor: its processor, if at hand: gives the exact normalisation and the chat template.

    Raises:
        ImportError: the installed transformers has no `mm_encoder_outputs` (it came with 5.18).
    """

    model_types: ClassVar[tuple[str, ...]]
    visual_names: ClassVar[tuple[str, ...]]
    mean: ClassVar[tuple[float, ...]] = (0.48145466, 0.4578275, 0.40821073)  # CLIP's
    std: ClassVar[tuple[float, ...]] = (0.26862954, 0.26130258, 0.27577711)
    plain_positions: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    clips: ClassVar[bool] = False
    by_cells: ClassVar[bool] = False
    recurrent: ClassVar[bool] = False

    def __init__(self, model: PreTrainedModel, processor: Any = None) -> None:
        if "mm_encoder_outputs" not in inspect.signature(model.forward).parameters:
            raise ImportError(
                f"{type(model).__name__}.forward has no `mm_encoder_outputs` in this transformers; "
                "install transformers >= 5.18, < 6"
            )
        self.model: Any = model
        self.processor = processor
        self._warnings: set[int] = set()  # shared by all copies that `on` makes

    def on(self, model: PreTrainedModel) -> Self:
        """The same adapter on another model of the same shape, such as a twin with LoRAs."""
        if model is self.model:
            return self
        _ = self.markers  # rendered once for both
        other = copy.copy(self)
        other.model = model
        return other

    # ---- overridden by every family -------------------------------------------------------------------

    @abstractmethod
    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """The base model's own output of `get_image_features` for these inputs."""

    @abstractmethod
    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Per image its merged grid and which of its tokens are cells (raster order)."""

    @abstractmethod
    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Position ids of the whole prompt: [3, B, S] or [B, S]."""

    @abstractmethod
    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """Per image the preprocessed, still normalised picture [3, h, w] of its cells, without encoding."""

    @property
    def merger(self) -> Any:
        """The module that makes visual tokens of what the tower computed.

        Raises:
            NotImplementedError: always, where the family is not `by_cells`.
        """
        raise NotImplementedError(f"the vision tower of {self.model.config.model_type} can't be read by cell")

    def tower_order(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """The cells in the order in which they stand in the tower, long [N]; None for raster order."""
        return None

    # ---- overridden by sparse families, whose tower can encode some cells alone --------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """The counts, grids and cells of the images' tokens, before anything is encoded.

        Raises:
            NotImplementedError: always, where the family is not `sparse`.
        """
        raise self._not_sparse()

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Encode the kept cells of each image and nothing else: no other cell has any influence on them.

        Args:
            inputs: processor inputs with images.
            keep: per image long [K_i], raster indices of kept cells, rising; K_i may be 0 for some image.

        Returns:
            Tokens and deepstack levels [K_i, D] of each image; `cells` is empty. With every cell kept they
            are those of `features` to the last bit.

        Raises:
            NotImplementedError: always, where the family is not `sparse`.
            ValueError: bad indices, or no kept cell in any image.
        """
        raise self._not_sparse()

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """A coarse view of every image, as inputs for `features`.

        Each image is scaled down, its shape kept, to the largest grid of at most `cells` cells; an image that
        is no larger stays as it is.

        Args:
            inputs: processor inputs with still images.
            cells: the most cells of a coarse view, or of that of each image, at least 1.

        Returns:
            `pixel_values` in the dtype of those in `inputs`, and `image_grid_thw`.

        Raises:
            NotImplementedError: always, where the family is not `sparse`.
            ValueError: `cells` is below 1, or a clip among the images.
        """
        raise self._not_sparse()

    def _not_sparse(self) -> NotImplementedError:
        return NotImplementedError(
            f"the vision tower of {self.model.config.model_type} can't encode some cells alone; use "
            "mode='prune'"
        )

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
        return position_ids[1:] if position_ids.ndim == 3 and position_ids.shape[0] == 4 else position_ids

    # ---- images ---------------------------------------------------------------------------------------

    def features(self, inputs: Mapping[str, Any]) -> VisualFeatures:
        """Encode the images with the model's own encoder, exactly as the stock model does."""
        output = self.encode(inputs)
        tokens = list(output.pooler_output)
        levels = [list(level) for level in getattr(output, "deepstack_features", None) or []]
        layout = self.cell_layout(inputs, [len(image) for image in tokens])
        cells = [index.to(tokens[0].device) for _, index in layout]
        return VisualFeatures(tokens, levels, [grid for grid, _ in layout], cells, type(output))

    def images(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The exact pictures that the vision tower reads: per image float32 [3, h, w] in [0, 1].

        The patch layout and the normalisation, if there was one, are undone; no original image is needed.
        """
        processor = getattr(self.processor, "image_processor", None)
        mean = torch.tensor(getattr(processor, "image_mean", None) or self.mean).view(3, 1, 1)
        std = torch.tensor(getattr(processor, "image_std", None) or self.std).view(3, 1, 1)
        usual = getattr(processor, "do_normalize", True) is not False
        pictures = [picture.float() for picture in self.patches(inputs, features)]
        return undo_normalisation(pictures, mean, std, usual)

    # ---- the question ---------------------------------------------------------------------------------

    @cached_property
    def markers(self) -> TemplateMarkers | None:
        """The text that the chat template writes before and after a user's words; None without a template."""
        return template_markers(self.processor)

    def question_mask(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The content tokens of the last user turn: bool [B, S].

        Template, special, padding and image tokens are never among them. Without a processor, or when the
        prompt doesn't follow its chat template: all attended text that is neither special nor an image.
        """
        attended = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        config = self.model.config
        text = config.get_text_config()
        special = {self.image_token_id, *(getattr(text, f"{name}_token_id", None) for name in ("pad", "bos"))}
        special |= {
            getattr(config, f"{name}_token_id", None) for name in ("video", "vision_start", "vision_end")
        }
        special |= set(text.eos_token_id) if isinstance(text.eos_token_id, list) else {text.eos_token_id}
        special = {i for i in special if i is not None}
        images = {self.image_token_id, getattr(config, "video_token_id", None)}
        rows = [
            question_tokens(ids, attends, images, special, self.processor, self.markers)
            for ids, attends in zip(input_ids, attended.bool(), strict=True)
        ]
        return torch.stack(rows)

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
    ) -> Compacted:
        """Drop all cells that aren't kept from the prompt and its features.

        Args:
            inputs: arguments of the base model; those that aren't about the prompt or images are passed on.
            features: the encoded images, all their cells.
            keep: per image long [K_i], raster indices of kept cells, ascending.
            use_cache: whether the call will use a key/value cache.

        Returns:
            The result of `assemble` for the kept tokens of these features.
        """
        indices = features.tokens_to_keep(keep)
        whole = [len(index) for index in indices] == features.counts
        fine = features if whole else features.select(indices)  # no copy where nothing is dropped
        return self.assemble(inputs, features.layout, keep, fine, None, use_cache=use_cache)

    def assemble(
        self,
        inputs: Mapping[str, Any],
        layout: Layout,
        keep: Sequence[Tensor],
        fine: VisualFeatures | None,
        gestalt: VisualFeatures | None,
        *,
        use_cache: bool = True,
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
        visual = _joined(gestalt, fine, kept_counts)
        passed_on = {name: value for name, value in inputs.items() if name != "pixel_values"}

        if gestalt is None and kept_counts == layout.counts:
            columns = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
            return Compacted(passed_on | {"mm_encoder_outputs": visual.as_encoder_outputs()}, columns)

        warn_of_window(self.window, int(attention_mask.sum(1).max()), self._warnings)
        kept = kept_columns(attention_mask, spans, indices)
        ahead = None if gestalt is None else gestalt_columns(kept, spans, gestalt.counts)
        columns = compact_columns(kept, ahead=ahead, spare=int(self.needs_spare_column(use_cache)))
        mask = gather_columns(attention_mask, columns, fill=0, gestalt=1)
        whole = self.positions(inputs)
        positions = gather_columns(whole, columns, fill=0)
        if gestalt is not None:
            middles = gestalt_positions(whole, spans, layout, gestalt.grids)
            positions = positions.to(middles.dtype)
            positions[..., columns == GESTALT] = middles
        if positions.ndim == 3:  # the text row on top only numbers the columns, for building masks
            positions = torch.cat([consecutive_positions(mask)[None].to(positions), positions])  # (4, B, S')

        kwargs = {name: value for name, value in passed_on.items() if name not in self.visual_names}
        for name, fill, image in (
            ("mm_token_type_ids", 0, 1),
            ("token_type_ids", 0, 0),
            ("labels", -100, -100),
        ):
            if kwargs.get(name) is not None:
                kwargs[name] = gather_columns(kwargs[name], columns, fill, gestalt=image)
        if kwargs.get("labels") is not None:  # no loss at what follows padding
            kwargs["labels"][:, 1:].masked_fill_(columns[:, :-1] == PAD, -100)
        kwargs |= {
            "input_ids": gather_columns(ids, columns, fill=self.padding_id, gestalt=self.image_token_id),
            "attention_mask": mask,
            "position_ids": positions,
            "mm_encoder_outputs": visual.as_encoder_outputs(),
        }
        return Compacted(kwargs, columns)

    @property
    def padding_id(self) -> int:
        """The token id for padding columns: the model's own, or any that isn't the image placeholder's."""
        generation, text = self.model.generation_config, self.model.config.get_text_config()
        configured = [i for i in (generation.pad_token_id, text.pad_token_id) if i is not None]
        return next(i for i in [*configured, 0, 1] if i != self.image_token_id)


def _joined(
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
