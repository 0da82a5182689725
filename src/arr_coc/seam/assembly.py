"""Builds the shortened prompt of a call: its columns, positions and visual features, for the unchanged model.

Laws: (1) text is never dropped; (2) kept tokens keep their original positions; (3) decoding continues after
the end of the original sequence. A gestalt is a coarse view of an image, in tokens put before the kept ones.
Shapes: whole prompts [B, S], compacted [B, S']; image i has n_i visual tokens, N_i = T*H*W of them cells.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutputWithPooling

from arr_coc.choose.allocation import Grid

logger = logging.getLogger(__name__)


# processor outputs with the kind of every token
IMAGE_KINDS = ("mm_token_type_ids", "moe_mm_token_type_ids")  # `IMAGE`, `VIDEO`, other media, or 0 for text
KIND_NAMES = (*IMAGE_KINDS, "token_type_ids")
# processor outputs with a value for every token [B, S]
PROMPT_NAMES = ("input_ids", "attention_mask", *KIND_NAMES)

# Outputs of the processors of all families, and labels: what a data set for a model may have.
PROCESSOR_NAMES = (
    *PROMPT_NAMES,
    *("labels", "pixel_values", "pixel_values_videos", "pixel_values_local"),
    *("pixel_attention_mask", "image_grid_thw", "video_grid_thw", "second_per_grid_ts", "image_sizes"),
    *("image_position_ids", "image_token_pooling", "image_grids", "image_num_crops"),
    *("batch_num_images", "num_local_patches", "spatial_shapes", "target_sizes"),
)

# our own inputs: crops of pictures, and per image their rows and columns
CROP_VALUES, CROP_GRIDS = "crop_values", "crop_grids"

IMAGE, VIDEO = 1, 2  # kinds of tokens in `mm_token_type_ids`; 0 is text


@dataclass(frozen=True)
class Layout:
    """Where the visual tokens of a call's images lie, known before encoding. Lists are per image.

    Image i has `counts` n_i visual tokens in the prompt and a grid (T, H, W) of cells; `cells` long [N_i]:
    the token of each cell (t, y, x), in raster order. `placeholders`: tokens in the processor's prompt, where
    crops make them differ from `counts`.
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
        return [len(cells) for cells in self.cells]

    @classmethod
    def of_grids(cls, grids: list[Grid], device: torch.device) -> Layout:
        """Return the layout of images whose tokens are all cells."""
        counts = [frames * height * width for frames, height, width in grids]
        return cls(counts, grids, [torch.arange(count, device=device) for count in counts])

    def repeat(self, times: int) -> Layout:
        placeholders = None if self.placeholders is None else self.placeholders * times
        return Layout(self.counts * times, self.grids * times, self.cells * times, placeholders)

    def tokens_to_keep(self, keep: Sequence[Tensor]) -> list[Tensor]:
        """Per image the tokens of the kept cells [K_i] (raster indices) and all tokens that are no cell."""
        chosen = []
        for count, cells, indices in zip(self.counts, self.cells, keep, strict=True):
            kept = torch.ones(count, dtype=torch.bool, device=cells.device)
            kept[cells] = False
            kept[cells[indices.to(cells.device)]] = True  # cell numbers to token numbers
            chosen.append(kept.nonzero().flatten())
        return chosen


@dataclass(frozen=True)
class VisualFeatures:
    """The encoded images of one call, in order of appearance. Lists are per image.

    Attributes:
        tokens: [n_i, D], in place of the image's placeholders.
        levels: per deepstack level a list of [n_i, D]; empty for families without deepstack.
        grids: (T, H, W) of the cells.
        cells: long [N_i], as in `Layout`; empty once cells have been dropped.
        kind: output class in which the model takes the features.
        packed: the model takes all images' tokens as one tensor.
        extra: other encoder outputs that the model takes, by name.
    """

    tokens: list[Tensor]
    levels: list[list[Tensor]]
    grids: list[Grid]
    cells: list[Tensor]
    kind: type
    packed: bool = False
    extra: dict[str, Tensor] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        return [len(tokens) for tokens in self.tokens]

    @property
    def layout(self) -> Layout:
        return Layout(self.counts, self.grids, self.cells)

    def cell_tokens(self, image: int) -> Tensor:
        """Return the encoded cells of one image, raster order: [N, D]."""
        return self.tokens[image][self.cells[image]]

    def repeat(self, times: int) -> VisualFeatures:
        """Return the same images `times` times, for a batch of questions; tensors are shared."""
        levels = [level * times for level in self.levels]
        grids, cells = self.grids * times, self.cells * times
        return replace(self, tokens=self.tokens * times, levels=levels, grids=grids, cells=cells)

    def tokens_to_keep(self, keep: Sequence[Tensor]) -> list[Tensor]:
        return self.layout.tokens_to_keep(keep)

    def select(self, indices: Sequence[Tensor]) -> VisualFeatures:
        """Return the tokens at these indices of each image, in every level; `cells` of the result are
        empty.
        """

        def pick(images: list[Tensor]) -> list[Tensor]:
            return [tokens[index] for tokens, index in zip(images, indices, strict=True)]

        levels = [pick(level) for level in self.levels]
        return replace(self, tokens=pick(self.tokens), levels=levels, cells=[])

    def ahead_of(self, others: VisualFeatures) -> VisualFeatures:
        """Return each image's tokens before those of `others`, in every level; `cells` of the result are
        empty.
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
        factors = []  # (n_i, 1) each, ones at tokens that are no cell
        for tokens, cells, gate in zip(self.tokens, self.cells, gates, strict=True):
            ones = torch.ones(len(tokens), 1, dtype=tokens.dtype, device=tokens.device)
            factors.append(ones.index_copy(0, cells, gate.to(ones).unsqueeze(1)))

        def times(images: list[Tensor]) -> list[Tensor]:
            return [tokens * factor for tokens, factor in zip(images, factors, strict=True)]

        return replace(self, tokens=times(self.tokens), levels=[times(level) for level in self.levels])

    def as_encoder_outputs(self) -> dict[str, Any]:
        """Return a value for `mm_encoder_outputs=`; `generate` expands it in place, so each call needs its
        own.
        """
        # Packed ones as pieces of one token: whatever splits pieces by prompts then splits these as well.
        tokens = torch.cat(self.tokens)[:, None] if self.packed else self.tokens
        fields: dict[str, Any] = {"pooler_output": tokens} | self.extra
        if self.levels:
            fields["deepstack_features"] = self.levels
        return {"image": self.kind(**fields)}


@dataclass(frozen=True)
class Compacted:
    """A prompt with visual tokens dropped: the base model's arguments, and where its columns come from.

    `columns` long [B, S'] are original columns, or `PAD`, `GESTALT` or `CROP`.
    """

    kwargs: dict[str, Any] = field(repr=False)
    columns: Tensor


def without_crops(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Processor inputs without those that this package adds for crops (enlarged parts of a picture)."""
    return {name: value for name, value in inputs.items() if name not in (CROP_VALUES, CROP_GRIDS)}


def handing_back(output: Any) -> type:
    """Return the output class in which a model takes encoded tokens: its encoder's own, if that can hold
    them.
    """
    needed = [one.name for one in fields(output) if one.default is MISSING and one.default_factory is MISSING]
    return BaseModelOutputWithPooling if set(needed) - {"pooler_output"} else type(output)


# ---- compaction: functions of tensors alone

Span = tuple[int, Tensor]  # one image in a batch of prompts: its row, and the columns [n] of its tokens

PAD, GESTALT, CROP = -1, -2, -3  # values of `Compacted.columns` that are no original column


def image_spans(is_image: Tensor, counts: Sequence[int]) -> list[Span]:
    """Split the image columns of a batch [B, S] among its images of `counts` tokens, in order of appearance.

    Raises a ValueError if the prompt and the images have different numbers of visual tokens.
    """
    spans: list[Span] = []
    pending = list(counts)
    for row, mask in enumerate(is_image):
        columns = mask.nonzero().flatten()
        while len(columns) and pending and pending[0] <= len(columns):
            count = pending.pop(0)
            spans.append((row, columns[:count]))
            columns = columns[count:]
        if len(columns):
            break
    if pending or int(is_image.sum()) != sum(counts):
        raise ValueError(
            f"the prompt has {int(is_image.sum())} image tokens in {len(is_image)} row(s) but its images "
            f"make {list(counts)}; pass the processor's own input_ids, not truncated, with the same images"
        )
    return spans


def kept_columns(attention_mask: Tensor, spans: Sequence[Span], keep: Sequence[Tensor]) -> Tensor:
    """Mask of the kept columns, bool [B, S]: attended text, and visual tokens `keep` [K_i] of each image."""
    kept = attention_mask.bool().clone()  # invariant 1: every text column that is attended
    for (row, columns), indices in zip(spans, keep, strict=True):
        kept[row, columns] = False
        kept[row, columns[indices]] = True
    return kept


def gestalt_columns(kept: Tensor, spans: Sequence[Span], counts: Sequence[int]) -> Tensor:
    """Return how many coarse-view tokens (`counts`, per image) to insert before each column: long [B, S]."""
    ahead = torch.zeros_like(kept, dtype=torch.long)
    for (row, columns), count in zip(spans, counts, strict=True):
        ahead[row, columns[0]] = count  # a gestalt stands before its image's first token
    return ahead


def compact_columns(kept: Tensor, spare: int = 0, ahead: Tensor | None = None) -> Tensor:
    """Return the indices of each row's kept columns (bool [B, S]), left-padded to one width: long [B, S'].

    `spare`: padding columns before even the longest row; `ahead` [B, S]: gestalt tokens before each column.
    """
    ends = (kept if ahead is None else kept + ahead).cumsum(dim=1)  # (B, S), each column's end
    lengths = ends[:, -1:]
    width = int(lengths.max()) + spare
    # Padding stands on the left: decoding continues on the right.
    padding = torch.arange(width, device=kept.device) < width - lengths  # (B, S')
    columns = torch.full_like(padding, GESTALT, dtype=torch.long).masked_fill(padding, PAD)
    row, column = kept.nonzero(as_tuple=True)
    columns[row, (ends + width - lengths)[row, column] - 1] = column
    return columns


def gather_columns(values: Tensor, columns: Tensor, fill: int, gestalt: int | None = None) -> Tensor:
    """Return the values [..., B, S] of whole prompts at `columns` [B, S']: [..., B, S'].

    Padding becomes `fill`; gestalt tokens and cells of crops `gestalt`, by default `fill`.
    """
    # Leading axes (the rows of rotary positions) share one index; negative columns read any value, replaced.
    index = columns.clamp_min(0).expand(*values.shape[:-2], *columns.shape)
    gathered = values.gather(-1, index).masked_fill(columns < 0, fill)
    return gathered if gestalt is None else gathered.masked_fill(columns < PAD, gestalt)


def moved_columns(named: Any, columns: Tensor, length: int, by_row: bool) -> Tensor:
    """Translate `logits_to_keep` from columns of whole prompts (length S) to columns of the compacted ones.

    `named` is numbers, a mask or a slice for all rows, or numbers [B, n] or a mask [B, S]. Returns long [n]
    where all rows agree, long [B, n] if the model takes columns `by_row`; of a mask [B, S] a mask [B, S']. A
    ValueError for a column that is dropped.
    """
    rows = len(columns)
    try:
        if isinstance(named, Tensor) and named.ndim == 2:
            named = named.to(columns.device)
            if named.dtype == torch.bool and named.shape == (rows, length):
                kept = gather_columns(named, columns, fill=0)
                _refuse_lost(kept.sum(1) < named.sum(1), kept)
                return kept
            wanted = torch.arange(length, device=columns.device)[named].expand(rows, -1)
        else:
            index = named if isinstance(named, Tensor | slice) else torch.as_tensor(named)
            wanted = torch.arange(length, device=columns.device)[index].expand(1, -1).expand(rows, -1)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"these are no columns of {rows} prompts of {length} tokens") from error
    matches = columns[:, None] == wanted[..., None]  # (B, n, S')
    _refuse_lost(~matches.any(-1), wanted)
    places = matches.int().argmax(-1)  # over S': the first match
    if bool((places == places[:1]).all()):
        return places[0]
    if not by_row:
        raise ValueError("these columns stand elsewhere in each row once tokens are dropped: pass one row")
    return places


def _refuse_lost(lost: Tensor, wanted: Tensor) -> None:
    if bool(lost.any()):
        which = wanted[lost].unique().tolist() if wanted.dtype != torch.bool else "of the mask"
        raise ValueError(f"columns {which} are dropped or padding: name columns of text")


def gestalt_positions(
    positions: Tensor, spans: Sequence[Span], layout: Layout, grids: Sequence[Grid]
) -> Tensor:
    """Position ids [..., G] of gestalt tokens: bilinear in the cells' positions [..., B, S], at cell centres.

    Row i of h coarse rows has its centre at y = (i + 0.5) * H / h - 0.5, likewise columns. `grids` are the
    gestalts' (T, h, w). Float32, or the dtype of `positions` if all are whole numbers.
    """
    parts = []
    for (row, columns), cells, fine, coarse in zip(spans, layout.cells, layout.grids, grids, strict=True):
        own = positions[..., row, columns[cells]]  # (..., N)
        first = own[..., :1]  # subtracted, for exact fractions far into a prompt
        if 0 in coarse:  # an image without gestalt tokens
            parts.append(first[..., :0].float())
            continue
        lattice = (own - first).float().reshape(1, -1, *fine[1:])  # (1, ... * T, H, W)
        middles = F.interpolate(lattice, size=coarse[1:], mode="bilinear", align_corners=False)
        parts.append(first + middles.reshape(*own.shape[:-1], -1))
    joined = torch.cat(parts, dim=-1)  # (..., G)
    return joined.to(positions.dtype) if bool((joined == joined.round()).all()) else joined


def covering_cells(grid: Grid, fine: Grid, cells: Tensor) -> Tensor:
    """Return the cell of a grid (1, H, W) that holds the centre of each of `cells` [K] of a finer one: long
    [K].
    """
    (_, height, width), (_, rows, columns) = grid, fine
    y, x = (2 * (cells // columns) + 1) * height, (2 * (cells % columns) + 1) * width
    return y // (2 * rows) * width + x // (2 * columns)


def finer_positions(positions: Tensor, grid: Grid, fine: Grid, cells: Tensor) -> Tensor:
    """Return position ids [..., K] of cells of a finer grid, from those [..., N] of a grid (1, H, W).

    `cells` long [K] are of `fine` (1, H', W'). Linear in the cells' positions, at fractions of a cell: row i
    of H' has its centre at y = (i + 0.5) * H / H' - 0.5, likewise columns; centres beyond the outer cells' go
    on in line.
    """
    first = positions[..., :1]  # subtracted, for exact fractions far into a prompt
    lattice = (positions - first).float().unflatten(-1, grid[1:])  # (..., H, W)
    for axis in (-2, -1):
        length, finer = lattice.shape[axis], fine[axis]
        at = (torch.arange(finer, device=positions.device) + 0.5) * length / finer - 0.5
        low = at.floor().clamp(0, max(length - 2, 0)).long()
        ends = [lattice.index_select(axis, end) for end in (low, (low + 1).clamp_max(length - 1))]
        share = (at - low).unsqueeze(-1) if axis == -2 else at - low
        lattice = ends[0] + share * (ends[1] - ends[0])
    return first + lattice.flatten(-2)[..., cells]


def consecutive_positions(attention_mask: Tensor) -> Tensor:
    """Return the number of each attended token in its row, from 0; 0 for padding: [B, S] -> long [B, S]."""
    return (attention_mask.long().cumsum(-1) - 1).clamp_min(0) * attention_mask.long()


# Kinds of layers that read a limited number of columns, and the setting that holds it.
WINDOWED = (
    ("sliding_attention", "sliding_window"),
    ("chunked_attention", "attention_chunk_size"),
    ("indexed_attention", "index_topk"),
    ("indexed_attention", "indexer_budget"),
)


def attention_window(config: Any) -> int | None:
    """Return the narrowest attention window of a language model in columns, itself included; or None."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    widths = [getattr(text, name, None) for kind, name in WINDOWED if kinds is None or kind in kinds]
    return min((width for width in widths if width), default=None)


def has_recurrence(config: Any) -> bool:
    """Return whether some layers of a language model carry a state or a convolution along the prompt."""
    kinds = getattr(config.get_text_config(), "layer_types", None) or ()
    return any(not kind.endswith("attention") or kind.startswith("linear") for kind in kinds)


def warn_of_window(window: int | None, length: int, warned: set[int]) -> None:
    """Warn once that tokens are dropped from a prompt longer than an attention window."""
    if window is None or length <= window or window in warned:
        return
    warned.add(window)
    logger.warning(
        "the prompt has %d tokens and some layers of the language model see %d: they count tokens, so "
        "with some dropped they reach others than in the whole prompt",
        length,
        window,
    )


# ---- the assembly


class PromptAssembly(ABC):
    """Base class of `FamilyAdapter` that builds compacted prompts: those without the dropped tokens.

    `visual_names` are processor outputs that belong to the images. Position ids are rotary [3, B, S], with a
    fourth row above that numbers the columns where the model has a `text_row`; or `plain_positions` [B, S].
    """

    model: Any
    processor: Any
    visual_names: tuple[str, ...]
    plain_positions: bool
    text_row: bool = True
    _warnings: set[int]

    @abstractmethod
    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Return position ids of the whole prompt: [3, B, S] or [B, S]."""

    @cached_property
    def image_token_id(self) -> int:
        return self.model.config.image_token_id

    @property
    def image_words(self) -> Sequence[int]:
        """Ids of words whose embeddings come with an image's features."""
        return ()

    def of_images(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the columns that are read with images, bool [B, S]: visual tokens, and what the processor or
        family counts to them (a token that ends an image may attend to all of it).
        """
        ids = inputs["input_ids"]
        columns = torch.isin(ids, torch.tensor([self.image_token_id, *self.image_words], device=ids.device))
        for name in IMAGE_KINDS:
            if inputs.get(name) is not None:
                columns = columns | (inputs[name] == IMAGE) | (inputs[name] == VIDEO)
        return columns

    def has_images(self, inputs: Mapping[str, Any]) -> bool:
        return any(inputs.get(name) is not None for name in ("pixel_values", "pixel_values_videos"))

    def columns(self, input_ids: Tensor, counts: Sequence[int]) -> list[Span]:
        """Per image its row in the batch and the columns [n_i] of its visual tokens, `counts` of them."""
        return image_spans(input_ids == self.image_token_id, counts)

    def attention_mask(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the caller's mask [B, S], or all ones; ValueError if it isn't one value per token."""
        mask, ids = inputs.get("attention_mask"), inputs["input_ids"]
        if mask is None:
            return torch.ones_like(ids)
        if mask.shape != ids.shape:
            raise ValueError(
                f"attention_mask has shape {tuple(mask.shape)} but input_ids {tuple(ids.shape)}; pass the "
                "processor's two-dimensional mask, or use mode='full'"
            )
        return mask

    def positions(self, inputs: Mapping[str, Any]) -> Tensor:
        """Position ids of the whole prompt, the caller's or the model's: [3, B, S], or [B, S] if plain."""
        position_ids = inputs.get("position_ids")
        if position_ids is None:
            return self.prompt_positions(inputs, self.attention_mask(inputs))
        # As the model takes them: one row stands for all, and plain positions for each of three.
        position_ids = position_ids.expand(*position_ids.shape[:-2], *inputs["input_ids"].shape)
        if position_ids.ndim == 2 and not self.plain_positions:
            return position_ids.expand(3, -1, -1)
        numbered = self.text_row and position_ids.ndim == 3 and position_ids.shape[0] == 4
        return position_ids[1:] if numbered else position_ids

    # ---- the compacted prompt

    @property
    def window(self) -> int | None:
        """The narrowest attention window of the language model in columns; None without one."""
        # counts columns: dropping equals masking while the prompt fits
        return attention_window(self.model.config)

    def _needs_spare_column(self, use_cache: bool) -> bool:
        # Without a padding mask, transformers takes gaps in plain positions for packed sequences and cuts
        # attention there; `generate` without a cache and flash attention drop a mask of ones.
        implementation = self.model.config.get_text_config()._attn_implementation or ""
        return self.plain_positions and (not use_cache or "flash" in implementation)

    def compact(
        self,
        inputs: Mapping[str, Any],
        features: VisualFeatures,
        keep: Sequence[Tensor],
        gestalt: VisualFeatures | None = None,
        *,
        use_cache: bool = True,
    ) -> Compacted:
        """Drop the cells that aren't kept from the prompt and its features; arguments as of `assemble`."""
        indices = features.tokens_to_keep(keep)
        whole = [len(index) for index in indices] == features.counts
        fine = features if whole else features.select(indices)  # no copy where nothing is dropped
        return self.assemble(inputs, features.layout, keep, fine, gestalt, use_cache=use_cache)

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
        """Build the prompt in which each image is its gestalt tokens, then its kept tokens.

        Args:
            inputs: arguments of the base model; those that aren't about the prompt or images are passed on.
            layout: of the images' tokens in the whole prompt.
            keep: per image long [K_i], raster indices of kept cells, ascending.
            fine: the kept tokens (`layout.tokens_to_keep(keep)`) of each image; None if there are none.
            gestalt: per image a coarse view, every token a cell of its `grids`; or None.
            use_cache: whether the call will use a key/value cache.

        If nothing is dropped or added, the result is the stock model's to the last bit.
        """
        ids = inputs["input_ids"]
        attention_mask = self.attention_mask(inputs)
        spans = self.columns(ids, layout.counts)
        indices = layout.tokens_to_keep(keep)
        kept_counts = [len(index) for index in indices]
        whole = gestalt is None and kept_counts == layout.counts
        visual = joined_tokens(gestalt, fine, kept_counts)
        passed_on = {name: value for name, value in inputs.items() if name != "pixel_values"}

        if whole:
            columns = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
            columns = columns.masked_fill(attention_mask == 0, PAD)
            return Compacted(passed_on | {"mm_encoder_outputs": visual.as_encoder_outputs()}, columns)

        warn_of_window(self.window, int(attention_mask.sum(1).max()), self._warnings)
        kept = kept_columns(attention_mask, spans, indices)
        ahead = None if gestalt is None else gestalt_columns(kept, spans, gestalt.counts)
        columns = compact_columns(kept, ahead=ahead, spare=int(self._needs_spare_column(use_cache)))
        mask = gather_columns(attention_mask, columns, fill=0, gestalt=1)
        every = self.positions(inputs)  # of the whole prompt: kept ones (2) and the end (3) are its own
        positions = gather_columns(every, columns, fill=0)
        if gestalt is not None:
            middles = gestalt_positions(every, spans, layout, gestalt.grids)
            positions = positions.to(middles.dtype)
            positions[..., columns == GESTALT] = middles
        return self._gathered(passed_on, mask, columns, positions, visual)

    def assemble_finer(
        self,
        inputs: Mapping[str, Any],
        layout: Layout,
        keep: Sequence[Tensor],
        grids: Sequence[Grid],
        fine: VisualFeatures,
        gestalt: VisualFeatures | None,
        *,
        use_cache: bool = True,
    ) -> Compacted:
        """Build the prompt in which each image is its gestalt tokens, then cells of a finer grid.

        `layout` is of the whole prompt, whose tokens are all cells. `keep` long [K_i] are cells of `grids`
        (1, H', W'), ascending, and `fine` their tokens: at fractions of a cell where positions have rows and
        columns, else at the position of the cell that covers them. Text keeps its positions.
        """
        every = self.positions(inputs)
        spans = self.columns(inputs["input_ids"], layout.counts)
        visual = joined_tokens(gestalt, fine, [len(index) for index in keep])
        coarse = [0] * len(keep) if gestalt is None else gestalt.counts
        # A gestalt's places and the fine cells', image after image.
        middles = None if gestalt is None else gestalt_positions(every, spans, layout, gestalt.grids)
        split = [None] * len(keep) if middles is None else middles.split(coarse, dim=-1)
        labels, places = [], []
        for (row, span), index, own, grid, count, middle in zip(
            spans, keep, layout.grids, grids, coarse, split, strict=True
        ):
            index, positions = index.to(span.device), every[..., row, span]
            labels += [span.new_full((count,), GESTALT)]
            labels += [span[index] if grid == own else span.new_full((len(index),), CROP)]
            places += [] if middle is None else [middle.float()]
            if self.plain_positions:
                places += [positions[..., covering_cells(own, grid, index)].float()]
            else:
                places += [finer_positions(positions, own, grid, index)]
        joined = torch.cat(places, -1)
        joined = joined.to(every.dtype) if bool((joined == joined.round()).all()) else joined
        rest = {name: value for name, value in inputs.items() if name != "pixel_values"}
        return self.with_inserted(rest, every, spans, visual, torch.cat(labels), joined, use_cache)

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
        """As `assemble`, with each image replaced by the G tokens of `visual`.

        `every` are the whole prompt's position ids; `labels` long [G] and `places` [..., G] are the new
        tokens' values of `Compacted.columns` and positions.
        """
        attention_mask = self.attention_mask(inputs)
        kept = kept_columns(attention_mask, spans, [span[:0] for _, span in spans])
        ahead = gestalt_columns(kept, spans, visual.counts)
        columns = compact_columns(kept, ahead=ahead, spare=int(self._needs_spare_column(use_cache)))
        inserted = columns == GESTALT
        positions = gather_columns(every, columns, fill=0).to(places.dtype)
        positions[..., inserted] = places
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
        """Return the base model's arguments for some columns of a prompt, with their mask [B, S'] and
        positions.
        """
        if positions.ndim == 3 and self.text_row:  # it only numbers the columns, for building masks
            positions = torch.cat([consecutive_positions(mask)[None].to(positions), positions])  # (4, B, S')

        kinds = inputs.get("token_type_ids")
        images = inputs["input_ids"] == self.image_token_id
        image_kind = 0 if kinds is None else int(kinds[images].max())
        kwargs = {name: value for name, value in inputs.items() if name not in self.visual_names}
        for name, fill, image in (
            ("mm_token_type_ids", 0, 1),
            ("moe_mm_token_type_ids", 0, 1),
            ("token_type_ids", 0, image_kind),
            ("labels", -100, -100),
        ):
            if kwargs.get(name) is not None:
                kwargs[name] = gather_columns(kwargs[name], columns, fill, gestalt=image)
        last = kwargs.get("logits_to_keep")
        if last is not None and not isinstance(last, int):
            by_row = hasattr(sys.modules[type(self.model).__module__], "slice_logits_to_keep")  # by release
            try:
                kwargs["logits_to_keep"] = moved_columns(last, columns, images.shape[1], by_row)
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

    @property
    def padding_id(self) -> int:
        """The token id for padding columns: the model's own, or any other than the image placeholder's."""
        generation, text = self.model.generation_config, self.model.config.get_text_config()
        configured = [i for i in (generation.pad_token_id, text.pad_token_id) if i is not None]
        return next(i for i in [*configured, 0, 1] if i != self.image_token_id)


def joined_tokens(
    gestalt: VisualFeatures | None, fine: VisualFeatures | None, kept_counts: list[int]
) -> VisualFeatures:
    """Return the visual tokens of a prompt: each image's gestalt tokens, then its kept tokens."""
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
