"""Data classes of the seam: the layout of visual tokens, encoded images, and the compacted prompt.

Shapes: image i has n_i visual tokens, N_i = T*H*W of them are cells (the rest, such as newline tokens, are
always kept). Every list is per image, in order of appearance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from arr_coc.choose.allocation import Grid

KIND_NAMES = ("mm_token_type_ids", "token_type_ids", "moe_mm_token_type_ids")
"""The processor's outputs with the kind of every token of a prompt."""
PROMPT_NAMES = ("input_ids", "attention_mask", *KIND_NAMES)
"""The processor's outputs with a value for every token of a prompt."""

PROCESSOR_NAMES = (
    *PROMPT_NAMES,
    "labels",
    "pixel_values",
    "pixel_values_videos",
    "pixel_values_local",
    "pixel_attention_mask",
    "image_grid_thw",
    "video_grid_thw",
    "second_per_grid_ts",
    "image_sizes",
    "image_position_ids",
    "image_token_pooling",
    "image_grids",
    "image_num_crops",
    "batch_num_images",
    "num_local_patches",
    "spatial_shapes",
    "target_sizes",
)
"""The outputs of the processors of all families, and labels: what a data set for a model may have."""

CROP_VALUES, CROP_GRIDS = "crop_values", "crop_grids"
"""Inputs beside the processor's own: crops of pictures, and per image their rows and columns."""

IMAGE, VIDEO = 1, 2
"""Kinds of tokens in `mm_token_type_ids`; 0 is text."""


@dataclass(frozen=True)
class Layout:
    """The counts, grids and cells of the visual tokens of a call's images, before anything is encoded.

    Attributes:
        counts: visual tokens n_i of each image in the prompt.
        grids: per image the merged grid (T, H, W) of its cells.
        cells: per image long [N_i]: which of its n_i tokens is cell (t, y, x), in raster order.
        placeholders: tokens of each image in the processor's prompt where these are others: cells of crops
            have none there. None: they are the `counts`.
    """

    counts: list[int]
    grids: list[Grid]
    cells: list[Tensor]
    placeholders: list[int] | None = None

    @property
    def in_prompt(self) -> list[int]:
        """Tokens of each image in the processor's prompt."""
        return self.counts if self.placeholders is None else self.placeholders

    @property
    def sizes(self) -> list[int]:
        """Cells of each image."""
        return [len(cells) for cells in self.cells]

    @classmethod
    def of_grids(cls, grids: list[Grid], device: torch.device) -> Layout:
        """The layout of images of which every token is a cell."""
        counts = [frames * height * width for frames, height, width in grids]
        return cls(counts, grids, [torch.arange(count, device=device) for count in counts])

    def repeat(self, times: int) -> Layout:
        """The layout of the same images `times` times."""
        placeholders = None if self.placeholders is None else self.placeholders * times
        return Layout(self.counts * times, self.grids * times, self.cells * times, placeholders)

    def tokens_to_keep(self, keep: Sequence[Tensor]) -> list[Tensor]:
        """Turn kept cells [K_i] (raster indices) into kept tokens, with all tokens that are no cell."""
        chosen = []
        for count, cells, indices in zip(self.counts, self.cells, keep, strict=True):
            kept = torch.ones(count, dtype=torch.bool, device=cells.device)
            kept[cells] = False
            kept[cells[indices.to(cells.device)]] = True
            chosen.append(kept.nonzero().flatten())
        return chosen


@dataclass(frozen=True)
class VisualFeatures:
    """The encoded images of one call, in order of appearance.

    Attributes:
        tokens: per image [n_i, D], in place of its placeholders in the prompt.
        levels: per deepstack level, per image [n_i, D]; empty for families without deepstack.
        grids: per image the merged grid (T, H, W) of its cells.
        cells: per image long [N_i]: which of its n_i tokens is cell (t, y, x), in raster order; empty if
            some of the cells have been dropped.
        kind: the model's own output class, for handing the features back.
        packed: the model takes the tokens of all images as one tensor, not as a list.
        beside: by name what else the model takes from its encoder, the same whichever tokens are kept.
    """

    tokens: list[Tensor]
    levels: list[list[Tensor]]
    grids: list[Grid]
    cells: list[Tensor]
    kind: type
    packed: bool = False
    beside: dict[str, Tensor] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        """Visual tokens of each image."""
        return [len(tokens) for tokens in self.tokens]

    @property
    def layout(self) -> Layout:
        """The layout of these tokens."""
        return Layout(self.counts, self.grids, self.cells)

    def cell_tokens(self, image: int) -> Tensor:
        """The encoded cells of one image, raster order: [N, D]."""
        return self.tokens[image][self.cells[image]]

    def repeat(self, times: int) -> VisualFeatures:
        """The same images `times` times, for a batch of questions about them; nothing is copied."""
        levels = [level * times for level in self.levels]
        grids, cells = self.grids * times, self.cells * times
        return replace(self, tokens=self.tokens * times, levels=levels, grids=grids, cells=cells)

    def tokens_to_keep(self, keep: Sequence[Tensor]) -> list[Tensor]:
        """Turn kept cells [K_i] (raster indices) into kept tokens, see `Layout.tokens_to_keep`."""
        return self.layout.tokens_to_keep(keep)

    def select(self, indices: Sequence[Tensor]) -> VisualFeatures:
        """These token indices of each image, in every level. The result's `cells` are empty."""

        def pick(images: list[Tensor]) -> list[Tensor]:
            return [tokens[index] for tokens, index in zip(images, indices, strict=True)]

        return replace(
            self, tokens=pick(self.tokens), levels=[pick(level) for level in self.levels], cells=[]
        )

    def ahead_of(self, others: VisualFeatures) -> VisualFeatures:
        """Each image's tokens before those of `others`, in every level. The result's `cells` are empty.

        Raises:
            ValueError: the two differ in their number of images or of deepstack levels.
        """
        shapes = [(len(part.tokens), len(part.levels)) for part in (self, others)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"(images, levels) {shapes[0]} can't stand ahead of {shapes[1]}; encode the same images with "
                "the same model"
            )

        def join(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
            return [torch.cat(pair) for pair in zip(first, second, strict=True)]

        levels = [join(*pair) for pair in zip(self.levels, others.levels, strict=True)]
        return replace(others, tokens=join(self.tokens, others.tokens), levels=levels, cells=[])

    def scale(self, gates: Sequence[Tensor]) -> VisualFeatures:
        """Multiply the cells of every level by a gate per cell [N_i]; other tokens are unchanged."""
        factors = []
        for tokens, cells, gate in zip(self.tokens, self.cells, gates, strict=True):
            ones = torch.ones(len(tokens), 1, dtype=tokens.dtype, device=tokens.device)
            factors.append(ones.index_copy(0, cells, gate.to(ones).unsqueeze(1)))

        def times(images: list[Tensor]) -> list[Tensor]:
            return [tokens * factor for tokens, factor in zip(images, factors, strict=True)]

        return replace(self, tokens=times(self.tokens), levels=[times(level) for level in self.levels])

    def as_encoder_outputs(self) -> dict[str, Any]:
        """A new value for `mm_encoder_outputs=`; `generate` expands it in place, so each call needs one."""
        # Packed ones as pieces of one token: whatever splits pieces by prompts then splits these as well.
        tokens = torch.cat(self.tokens)[:, None] if self.packed else self.tokens
        fields: dict[str, Any] = {"pooler_output": tokens} | self.beside
        if self.levels:
            fields["deepstack_features"] = self.levels
        return {"image": self.kind(**fields)}


@dataclass(frozen=True)
class Compacted:
    """A prompt with visual tokens dropped, ready for the base model.

    Attributes:
        kwargs: arguments for the base model's `forward` or `generate`.
        columns: long [B, S'], the original column of each column; `PAD` (-1) for padding, `GESTALT` (-2) for
            a gestalt token, `CROP` (-3) for a cell of a crop, which have none.
    """

    kwargs: dict[str, Any] = field(repr=False)
    columns: Tensor


def without_crops(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Processor inputs without the crops that may stand beside them."""
    return {name: value for name, value in inputs.items() if name not in (CROP_VALUES, CROP_GRIDS)}


def handing_back(output: Any) -> type:
    """The class in which encoded tokens are handed back to the model: that of the encoder's own output.

    A class that can't be made of tokens alone, as that of timm's towers, gives way to the usual one.

    Args:
        output: of the encoder.
    """
    needed = [one.name for one in fields(output) if one.default is MISSING and one.default_factory is MISSING]
    return BaseModelOutputWithPooling if set(needed) - {"pooler_output"} else type(output)
