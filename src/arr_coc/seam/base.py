"""The base class of family adapters: encodes images and finds cells and positions for one family of models.

Visual tokens are dropped on an unpatched model: the same indices are kept in the encoder's features and in
every tensor over the prompt, and go to the model's own `forward` or `generate` as `mm_encoder_outputs`.
Shapes as in `assembly`.
"""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Literal, Self

import torch
import transformers
from PIL.Image import Image
from torch import Tensor
from transformers import PreTrainedModel

from arr_coc.seam.assembly import (
    IMAGE,
    VIDEO,
    Grid,
    Layout,
    PromptAssembly,
    VisualFeatures,
    consecutive_positions,
    handing_back,
    has_recurrence,
)
from arr_coc.seam.clips import Step, StepPixels, StepRows
from arr_coc.seam.pixels import REMEDY, are_normalised, reading_pixels, undo_normalisation
from arr_coc.seam.prompt import TemplateMarkers, outside, question_tokens, template_markers
from arr_coc.seam.tower_compressor import TowerCompressor

EXTRA_OUTPUTS = ("visual_indicator_features",)  # encoder outputs beside tokens: Ovis2's word embeddings


Encodes = Literal["cells", "tiles", "crops", "images"]  # smallest part that a tower encodes alone


class FamilyAdapter(PromptAssembly):
    """How one family of models lays an image in the prompt: where its cells are, and which pixels they show.

    A family defines `cell_layout` and `patches`; the rest has defaults read off the model. An encoder that
    splits images into tiles overrides `token_counts`; one that `encodes` less than an image alone overrides
    `layout`, `encode_cells` and `coarse`. `model` is used, never changed; `processor` gives the normalisation
    and the chat template; `traits` replace attributes of the class, those below or any other. An ImportError
    where transformers lacks `mm_encoder_outputs`.

    A view is one picture that the vision tower reads: a tile, or the overview, the whole picture made small.

    Attributes:
        needed: the `visual_names` that must come with the pixels.
        mean, std: per channel, the image normalisation where the processor gives none.
        encodes: the smallest part of an image that can be encoded alone: "cells", "tiles", "crops" (enlarged
            parts, added to the one view of the whole) or "images".
        clips: the vision tower attends within frames alone, so that a clip is encoded frame by frame.
        by_cells: each cell's patches are adjacent in the tower; see `merger` and `tower_order`.
        halves: the vision tower can be run in two halves around a compressor (`encode_merged`).
        casts: the model casts pixels to its own dtype; else they must come in it.
        prefix: prompt tokens see later ones too (as in PaliGemma), so an image's keys and values can't be
            reused for another question.
        recurrent: some layers have a state, so that dropping a token has no masked equivalent.
        ignores_positions: the model's `generate` numbers the columns and ignores given positions.
        keeps_shape: its image processor keeps a picture's shape and takes it at any size, in whole cells.
        middle_square: its image processor cuts a picture to the middle square.
        layer_by_layer: the layers of its language model can be called one by one.
        name_marks: attributes of tokenizer or processor that hold the opening and closing token of text
            which the processor adds about an image; it doesn't count as the question.
    """

    mean: tuple[float, ...] = (0.48145466, 0.4578275, 0.40821073)  # CLIP's
    std: tuple[float, ...] = (0.26862954, 0.26130258, 0.27577711)
    encodes: Encodes = "images"
    clips: bool = False
    by_cells: bool = False
    halves: bool = False
    casts: bool = True
    prefix: bool = False
    ignores_positions: bool = False
    keeps_shape: bool = False
    middle_square: bool = False
    layer_by_layer: bool = False
    name_marks: tuple[str, str] | None = None

    def __init__(self, model: PreTrainedModel, processor: Any = None, **traits: Any) -> None:
        if "mm_encoder_outputs" not in inspect.signature(model.forward).parameters:
            raise ImportError(
                f"{model.config.model_type!r} takes no encoded images in transformers "
                f"{transformers.__version__} ({type(model).__name__}.forward has no `mm_encoder_outputs`); "
                "install a newer one: most families have it from 5.18 on"
            )
        self.model: Any = model
        self.processor = processor
        self._warnings: set[int] = set()  # shared by all copies that `on` makes
        for name, value in traits.items():
            setattr(self, name, value)

    def on(self, model: PreTrainedModel) -> Self:
        """Return the same adapter on another model of the same shape, such as a copy with LoRAs."""
        if model is self.model:
            return self
        _ = self.markers  # rendered once for both
        other = copy.copy(self)
        other.model = model
        return other

    # ---- every family overrides these two

    @abstractmethod
    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Return each image's grid (T, H, W), and which of its tokens are cells, long [N] in raster order."""

    @abstractmethod
    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """Return each image's preprocessed, still normalised picture [3, h, w], without encoding."""

    # ---- read off the model; overridden where that isn't all

    @cached_property
    def visual_names(self) -> tuple[str, ...]:
        """The arguments of the model's own `get_image_features`."""
        names = inspect.signature(self._model_with("get_image_features").get_image_features).parameters
        return tuple(name for name in names if name not in ("args", "kwargs"))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        names = inspect.signature(self._model_with("get_image_features").get_image_features).parameters
        required = {name for name, one in names.items() if one.default is one.empty} | {"image_grid_thw"}
        return tuple(name for name in self.visual_names if name in required and name != "pixel_values")

    @cached_property
    def plain_positions(self) -> bool:
        """Whether positions are just counted along the prompt, since the model has no rule for them."""
        return not hasattr(self._model_with("get_rope_index", self.model), "get_rope_index")

    @cached_property
    def recurrent(self) -> bool:
        return has_recurrence(self.model.config)

    @property
    def unfit(self) -> str | None:
        """Why no token may be dropped from the model's prompts, by its configuration; None if tokens may."""
        return None

    @property
    def early_layout(self) -> bool:
        """Whether `layout` works before anything is encoded."""
        return self.encodes != "images"

    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """Return the base model's own output of `get_image_features`."""
        arguments = {name: inputs[name] for name in self.visual_names if inputs.get(name) is not None}
        if not self.casts:
            arguments["pixel_values"] = arguments["pixel_values"].to(self.model.dtype)
        return self._model_with("get_image_features").get_image_features(**arguments, return_dict=True)

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """Return each image's number of tokens, by default the `lengths` of the encoder's outputs."""
        return lengths

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int] | None:
        """Return each image's number of placeholders before encoding; None if that isn't known."""
        return self.layout(inputs).in_prompt if self.early_layout else None

    def token_kinds(self, inputs: Mapping[str, Any]) -> Tensor:
        """`IMAGE`, `VIDEO` or 0 for each token: int [B, S]."""
        ids, video = inputs["input_ids"], getattr(self.model.config, "video_token_id", None)
        video = -1 if video is None else video
        return (ids == self.image_token_id).int() * IMAGE + (ids == video).int() * VIDEO

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Position ids of the whole prompt, computed by the model itself: [3, B, S]; or counted, [B, S]."""
        if self.plain_positions:
            return consecutive_positions(attention_mask)
        rope_index = self._model_with("get_rope_index").get_rope_index
        names = inspect.signature(rope_index).parameters.keys() & inputs.keys() - {"attention_mask"}
        return rope_index(**{name: inputs[name] for name in names}, attention_mask=attention_mask)[0]

    def _model_with(self, name: str, default: Any = None) -> Any:
        inner = self.model.base_model
        return inner if hasattr(inner, name) else self.model if default is None else default

    # ---- families whose tower can be read by cell

    @property
    def merger(self) -> Any:
        """The module that makes visual tokens from the vision tower's states, in families `by_cells`."""
        raise NotImplementedError(f"the vision tower of {self.model.config.model_type} can't be read by cell")

    def tower_order(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """Return the tower's order of the cells, long [N]; None for raster order."""
        return None

    # ---- families whose tower can encode some cells, tiles or crops alone

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """Return the layout of the images' tokens before encoding; NotImplementedError if `encodes` is
        "images".
        """
        raise self._not_sparse()

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Encode the kept cells (per image rising raster indices [K_i]) and nothing else.

        A family of tiles encodes those that hold one. Returns the tokens of `tokens_to_keep(keep)`, `cells`
        empty; with every cell kept they are those of `features` to the last bit. Bad indices, or nothing to
        encode in any image, raise ValueError.
        """
        raise self._not_sparse()

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """Inputs with images scaled down to at most `cells` cells; a ValueError below 1, or for a clip."""
        raise self._not_sparse()

    def encode_merged(self, inputs: Mapping[str, Any], compressor: TowerCompressor) -> VisualFeatures:
        """Encode every image with a tower that merges patches half-way; its `grids` are the coarse ones."""
        raise NotImplementedError(
            f"the vision tower of {self.model.config.model_type} can't be run in two halves; use gestalt "
            "'resize' or 'pool4'"
        )

    def other_tokens(self, inputs: Mapping[str, Any], layout: Layout) -> VisualFeatures | None:
        """Encode the visual tokens that are no cells, such as an overview's, per image; None without any."""
        return None

    def views_encoded(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> tuple[int, int] | None:
        """Return how many views `encode_cells` encodes of the images, and how many there are; None without
        tiles.
        """
        return None

    @property
    def cell_px(self) -> int:
        """Px along each side of a cell, in families whose visual tokens are all cells."""
        raise self._not_sparse()

    def lacks_finer(self, inputs: Mapping[str, Any], pictures: Sequence[Image] | None) -> str | None:
        """Return why cells of a call's images can't be read at a finer scale, in a few words, or None."""
        return f"{self.model.config.model_type} reads cells at the one scale of its processor"

    def finer(
        self, inputs: Mapping[str, Any], pictures: Sequence[Image], grids: Sequence[Grid]
    ) -> dict[str, Any]:
        """Return the inputs of the user's pictures at finer grids (1, H', W') than the processor made, one
        each.

        An image whose grid is the processor's keeps its pixels to the last bit.
        """
        raise self._not_sparse()

    @property
    def view_cells(self) -> int:
        raise self._not_sparse()

    def lacks_crops(self, inputs: Mapping[str, Any], pictures: Sequence[Image] | None) -> str | None:
        """Return why crops of a call's images are impossible, in a few words, or None."""
        return f"{self.model.config.model_type} has no use for crops"

    def crops(self, inputs: Mapping[str, Any], pictures: Sequence[Image]) -> dict[str, Tensor]:
        """Return enlarged parts of pictures, in order of appearance, as inputs beside the processor's own."""
        raise self._not_sparse()

    def _not_sparse(self) -> NotImplementedError:
        return NotImplementedError(
            f"the vision tower of {self.model.config.model_type} can't encode some cells alone; use "
            "mode='prune'"
        )

    # ---- images, and the question

    def features(self, inputs: Mapping[str, Any]) -> VisualFeatures:
        """Encode the images with the model's own encoder, exactly as the stock model does.

        A ValueError for images that it can't read, or that don't fit the prompt.
        """
        with reading_pixels(self.model.config.model_type):
            return self._features(inputs)

    def _features(self, inputs: Mapping[str, Any]) -> VisualFeatures:
        output = self.encode(inputs)
        pieces = list(output.pooler_output)
        counts = list(self.token_counts(inputs, [len(piece) for piece in pieces]))
        tokens = split_by_image(pieces, counts)
        deepstack = getattr(output, "deepstack_features", None) or []
        levels = [split_by_image(list(level), counts) for level in deepstack]
        layout = self.cell_layout(inputs, [len(image) for image in tokens])
        for (grid, index), image in zip(layout, tokens, strict=True):
            if prod(grid) != len(index) or (len(index) and int(index.max()) >= len(image)):
                raise ValueError(f"an image of {len(image)} tokens has no grid {grid} of cells; {REMEDY}")
        cells = [index.to(tokens[0].device) for _, index in layout]
        packed = isinstance(output.pooler_output, Tensor)  # such a model takes one tensor back
        extra = {name: output[name] for name in EXTRA_OUTPUTS if getattr(output, name, None) is not None}
        grids = [grid for grid, _ in layout]
        return VisualFeatures(tokens, levels, grids, cells, handing_back(output), packed, extra)

    def images(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """Return the exact pictures that the vision tower reads: per image float32 [3, h, w] in [0, 1].

        Patch layout and normalisation are undone; no original image is needed. A ValueError for pixels that
        are no pictures, or that don't fit the prompt.
        """
        with reading_pixels(self.model.config.model_type):
            pictures = [picture.float() for picture in self.patches(inputs, features)]
        return undo_normalisation(pictures, *self._normalisation)

    @property
    def _normalisation(self) -> tuple[Tensor, Tensor, bool]:
        """The mean and standard deviation [3, 1, 1] of each channel, and whether they are used by default."""
        processor = getattr(self.processor, "image_processor", None)
        mean = torch.tensor(getattr(processor, "image_mean", None) or self.mean).view(3, 1, 1)
        std = torch.tensor(getattr(processor, "image_std", None) or self.std).view(3, 1, 1)
        return mean, std, getattr(processor, "do_normalize", True) is not False

    def normalising(self, pictures: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        """Return the normalisation of these preprocessed pictures, float32 [3, h, w], for one in [0, 1]."""
        mean, std, usual = self._normalisation
        if not are_normalised(pictures, mean, std, usual):
            return lambda picture: picture
        return lambda picture: (picture - mean.to(picture)) / std.to(picture)

    @cached_property
    def markers(self) -> TemplateMarkers | None:
        """The chat template's text around a user's words; None without a template."""
        return template_markers(self.processor)

    def question_mask(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the user's words of the last turn that has any: bool [B, S].

        Excludes template, special, padding and image tokens and replies of tools. Without a processor or its
        template: all attended text that is neither special nor an image.
        """
        attended = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        config = self.model.config
        text = config.get_text_config()
        special = {self.image_token_id, *(getattr(text, f"{name}_token_id", None) for name in ("pad", "bos"))}
        special |= {
            getattr(config, f"{name}_token_id", None) for name in ("video", "vision_start", "vision_end")
        }
        # some models have several
        special |= set(text.eos_token_id) if isinstance(text.eos_token_id, list) else {text.eos_token_id}
        special = {i for i in special if i is not None}
        images = {self.image_token_id, getattr(config, "video_token_id", None)}
        rows = [
            question_tokens(ids, attends, images, special, self.processor, self.markers)
            for ids, attends in zip(input_ids, attended.bool(), strict=True)
        ]
        mask = torch.stack(rows)
        tokenizer = getattr(self.processor, "tokenizer", None)
        if tokenizer is None or self.name_marks is None:
            return mask
        marks = [getattr(tokenizer, n, None) or getattr(self.processor, n) for n in self.name_marks]
        return mask & outside(input_ids, *tokenizer.convert_tokens_to_ids(marks))


def split_by_image(pieces: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
    """Return the tokens [n_i, D] of each image, from outputs of other lengths; a ValueError if the sums
    differ.
    """
    lengths = [len(piece) for piece in pieces]
    if list(counts) == lengths:
        return list(pieces)
    if sum(counts) != sum(lengths):
        raise ValueError(
            f"the encoder made {sum(lengths)} tokens for images of {list(counts)} tokens; pass the "
            "processor's own input_ids with the pixels that it made of the same images"
        )
    return list(torch.cat(list(pieces)).split(list(counts)))


# ---- clips as images

# processor outputs about clips
CLIP_NAMES = ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts", "video_metadata")


def as_frames(family: FamilyAdapter, inputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[int, ...]]:
    """Processor inputs with every frame of a clip as an image, at the positions that it has in the clip.

    A vision tower that attends within frames encodes a frame alone as it does in the clip. Returns the
    inputs, the caller's own if there is no clip, and, in order of appearance, the steps of each clip and 1
    for an image, or (). `StepPixels` become `StepRows` as `pixel_values`. A ValueError where the family
    doesn't encode clips frame by frame, or visual tokens don't match the pixels.
    """
    if inputs.get("pixel_values_videos") is None:
        return inputs, ()
    if not family.clips:
        raise ValueError(
            "pixel_values_videos can't be used while tokens are dropped: clips of "
            f"{family.model.config.model_type} are not encoded frame by frame; use mode='full'"
        )
    config, ids = family.model.config, inputs["input_ids"]
    kinds = family.token_kinds(inputs)
    merge = config.vision_config.spatial_merge_size
    sources = {
        IMAGE: _Visuals(inputs.get("pixel_values"), inputs.get("image_grid_thw"), merge),
        VIDEO: _Visuals(inputs["pixel_values_videos"], inputs["video_grid_thw"], merge),
    }
    pixels: list[Tensor | Step] = []
    grids, frames = [], []
    for row in kinds:
        order = row[row > 0]
        while len(order):
            kind = int(order[0])
            patches, (t, h, w), tokens = sources[kind].take()
            # The placeholders of one clip follow each other with nothing but text between them.
            if not bool((order[:tokens] == kind).all()) or len(order) < tokens:
                raise _mismatch(kinds, sources)
            order = order[tokens:]
            pixels += patches
            grids += [(1, h, w)] * t
            frames.append(t)
    if any(source.left for source in sources.values()):
        raise _mismatch(kinds, sources)
    mask = family.attention_mask(inputs)
    # (4, B, S): the first row numbers the columns, as the model takes given positions
    positions = torch.cat([consecutive_positions(mask)[None], family.positions(inputs).long()])
    like = inputs["video_grid_thw"]
    rows = [part for part in pixels if isinstance(part, Tensor)]  # those of steps are made when read
    kept = {name: value for name, value in inputs.items() if name not in CLIP_NAMES}
    return kept | {
        "input_ids": ids.masked_fill(kinds == VIDEO, config.image_token_id),
        "mm_token_type_ids": (kinds > 0).to(torch.int) * IMAGE,
        "position_ids": positions,
        "pixel_values": torch.cat(rows) if len(rows) == len(pixels) else StepRows(pixels, ids.device),
        "image_grid_thw": torch.tensor(grids, dtype=like.dtype, device=like.device),
    }, tuple(frames)


class _Visuals:
    """Images or clips in order: their patches, taken one visual at a time."""

    def __init__(self, pixels: Tensor | StepPixels | None, grids: Tensor | None, merge: int) -> None:
        self.sizes = [] if grids is None else [tuple(grid) for grid in grids.tolist()]
        self.left = list(self.sizes)
        self.merge = merge
        counts = [t * h * w for t, h, w in self.sizes]
        self.parts: list[list[Tensor] | list[Step]] = []
        if isinstance(pixels, StepPixels):
            self.parts = [[Step(clip, step) for step in range(len(clip))] for clip in pixels.clips]
        elif pixels is not None:
            self.parts = [[part] for part in pixels.split(counts)]

    def take(self) -> tuple[list[Tensor] | list[Step], tuple[int, int, int], int]:
        """Return the next one's patches, grid of patches and number of visual tokens, or a ValueError."""
        if not self.left or not self.parts:
            raise ValueError(
                f"the prompt has more visual tokens than its {len(self.sizes)} images or clips make; pass "
                "the processor's own input_ids with the same images and clips"
            )
        t, h, w = self.left.pop(0)
        return self.parts.pop(0), (t, h, w), t * h * w // self.merge**2


def _mismatch(kinds: Tensor, sources: Mapping[int, _Visuals]) -> ValueError:
    counts = [int((kinds == kind).sum()) for kind in (IMAGE, VIDEO)]
    grids = [source.sizes for source in sources.values()]
    return ValueError(
        f"the prompt has {counts[0]} image tokens and {counts[1]} video tokens, but its images and clips "
        f"have grids {grids[0]} and {grids[1]}; pass the processor's own input_ids, not truncated"
    )
