"""The base class of family adapters: encoded images, positions and patches, for any family of transformers.

Visual tokens are dropped on an unpatched model: features from the model's own encoder, the same indices kept
in the features and in every tensor over the prompt, positions computed on the *whole* prompt, then the
model's own `forward` / `generate` with `mm_encoder_outputs`, which states that feature row i fills the i-th
placeholder. So one route serves all families, and one says only where its cells are and what their pixels.

Shapes: prompts [B, S]; image i has n_i visual tokens, N_i = T*H*W of them are cells (the rest, such as
newline tokens, always stay). Nothing here scores or chooses cells: keep lists are arguments.
"""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Self

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
)
from arr_coc.seam.loaded import has_recurrence
from arr_coc.seam.pixels import REMEDY, reading, undo_normalisation
from arr_coc.seam.question import TemplateMarkers, outside, question_tokens, template_markers

if TYPE_CHECKING:
    from arr_coc.seam.tower_compressor import TowerCompressor


BESIDE = ("visual_indicator_features",)
"""What models take from their encoders beside tokens: in Ovis2 the embeddings of the words around them."""


Encodes = Literal["cells", "tiles", "crops", "images"]
"""The smallest part of an image that a vision tower can encode alone."""


class FamilyAdapter(PromptAssembly):
    """How one family of models lays an image in the prompt: where its cells are, and which pixels they show.

    A family's class says that in `cell_layout` and `patches`; everything else has a default that is read off
    the model. One whose encoder takes images in other pieces (tiles, or all images of a prompt) overrides
    `token_counts`. One that `encodes` less than an image alone overrides `layout`, `encode_cells` and
    `coarse`; in the others these three raise NotImplementedError.

    Attributes:
        visual_names: processor outputs that belong to the images, not to the prompt; by default what the
            model's `get_image_features` takes.
        needed: of these the ones that must stand beside the pixels; by default those that have no default
            there, and the grids of patches.
        mean: per channel, of the image processor's normalisation, where no processor is at hand.
        std: likewise.
        encodes: "cells": the vision tower can encode some cells alone; "tiles": some tiles, each with all of
            its cells; "crops": it reads a picture in one view, and finer crops of the picture can be encoded
            beside it, from inputs to which `crops` were added; "images": none of these.
        clips: the vision tower attends within frames alone, so that a clip is encoded frame by frame.
        by_cells: in the vision tower the patches of each cell stand together, once, so that what its layers
            compute can be told by cell; `merger` and `tower_order` say where.
        halves: the vision tower can be run in two halves, so that a compressor may work between them
            (`encode_merged`).
        casts: the model turns pixels into its own dtype; else they must come in it.
        prefix: every token of the prompt sees the whole prompt, the question the image and the image the
            question, so that no part of it can be read once for several questions.
        plain_positions: position ids are [B, S], not three-row rotary ones [3, B, S]; by default those of
            models that compute none of these.
        recurrent: some layers have a state that depends on every token read, so that dropping a token has no
            masked equivalent; by default as the model's configuration lists its layers.
        ignores_positions: the model's `generate` numbers the columns that it is given, whatever positions
            come with them.
        keeps_shape: its image processor keeps a picture's shape and takes it at any size, in whole cells.
        middle_square: its image processor cuts a picture to the middle square.
        layer_by_layer: the layers of its language model can be called one by one.
        name_marks: the names under which a tokenizer, or the processor, holds the two tokens between which
            text about an image is written, its size or the name of a tile; None where there is no such text.

    Args:
        model: a loaded transformers model of this family. It is used, never changed.
        processor: its processor, if at hand: gives the exact normalisation and the chat template.
        traits: attributes above, in place of the class's own.

    Raises:
        ImportError: the installed transformers has no `mm_encoder_outputs` (it came with 5.18, in a
            few families later).
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
        """The same adapter on another model of the same shape, such as a twin with LoRAs."""
        if model is self.model:
            return self
        _ = self.markers  # rendered once for both
        other = copy.copy(self)
        other.model = model
        return other

    # ---- overridden by every family -------------------------------------------------------------------

    @abstractmethod
    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Per image its merged grid and which of its tokens are cells (raster order)."""

    @abstractmethod
    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """Per image the preprocessed, still normalised picture [3, h, w] of its cells, without encoding."""

    # ---- read off the model, overridden where that is not all ------------------------------------------

    @cached_property
    def visual_names(self) -> tuple[str, ...]:
        """The arguments of the model's own `get_image_features`."""
        names = inspect.signature(self._model_with("get_image_features").get_image_features).parameters
        return tuple(name for name in names if name not in ("args", "kwargs"))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Of `visual_names` those that must stand beside `pixel_values`."""
        names = inspect.signature(self._model_with("get_image_features").get_image_features).parameters
        required = {name for name, one in names.items() if one.default is one.empty} | {"image_grid_thw"}
        return tuple(name for name in self.visual_names if name in required and name != "pixel_values")

    @cached_property
    def plain_positions(self) -> bool:
        """Whether the model leaves positions to be counted along the prompt."""
        return not hasattr(self._model_with("get_rope_index", self.model), "get_rope_index")

    @cached_property
    def recurrent(self) -> bool:
        """Whether the configuration lists layers that read a prompt with a state."""
        return has_recurrence(self.model.config)

    @property
    def early_layout(self) -> bool:
        """Whether `layout` can be told before anything is encoded."""
        return self.encodes != "images"

    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """The base model's own output of `get_image_features` for these inputs."""
        arguments = {name: inputs[name] for name in self.visual_names if inputs.get(name) is not None}
        if not self.casts:
            arguments["pixel_values"] = arguments["pixel_values"].to(self.model.dtype)
        return self._model_with("get_image_features").get_image_features(**arguments, return_dict=True)

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """The tokens of each image: by default those of each piece that is encoded by itself.

        Args:
            inputs: processor inputs with images.
            lengths: tokens of each piece.
        """
        return lengths

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int] | None:
        """The placeholders of each image, told before anything is encoded; None where they can't be."""
        return self.layout(inputs).in_prompt if self.early_layout else None

    def token_kinds(self, inputs: Mapping[str, Any]) -> Tensor:
        """`IMAGE` where a token of an image stands, `VIDEO` where one of a clip does, else 0: int [B, S]."""
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
        """The model, or the one inside it without a head, whichever has a method of that name."""
        inner = self.model.base_model
        return inner if hasattr(inner, name) else self.model if default is None else default

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

    # ---- overridden by families whose tower can encode some cells, or some tiles, alone ------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """The counts, grids and cells of the images' tokens, before anything is encoded.

        Raises:
            NotImplementedError: always, where the family encodes whole images alone.
        """
        raise self._not_sparse()

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Encode the kept cells of each image and nothing else: no other cell has any influence on them.

        A family that encodes tiles encodes those that hold a kept cell, and what always stays; the cells
        of a tile have influence on each other.

        Args:
            inputs: processor inputs with images.
            keep: per image long [K_i], raster indices of kept cells, rising; K_i may be 0 for some image.

        Returns:
            Tokens and deepstack levels of each image, those of `tokens_to_keep(keep)`: [K_i, D] where all
            tokens are cells; `cells` is empty. With every cell kept they are those of `features` to the last
            bit.

        Raises:
            NotImplementedError: always, where the family encodes whole images alone.
            ValueError: bad indices, or nothing to encode in any image.
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
            NotImplementedError: always, where the family encodes whole images alone.
            ValueError: `cells` is below 1, or a clip among the images.
        """
        raise self._not_sparse()

    def encode_merged(self, inputs: Mapping[str, Any], compressor: TowerCompressor) -> VisualFeatures:
        """Encode every image with a tower that merges patches half-way.

        Args:
            inputs: processor inputs with images.
            compressor: says after how many blocks, on which local windows, and merges.

        Returns:
            The coarse tokens and levels: `grids` are the coarse grids, and every token is a cell.

        Raises:
            NotImplementedError: always, where the family's tower can't be run in two `halves`.
            ValueError: a compressor of a tower of another width or depth.
        """
        raise NotImplementedError(
            f"the vision tower of {self.model.config.model_type} can't be run in two halves; use gestalt "
            "'resize' or 'pool4'"
        )

    def other_tokens(self, inputs: Mapping[str, Any], layout: Layout) -> VisualFeatures | None:
        """The tokens of each image that are no cell, encoded alone; None where every token is one.

        Args:
            inputs: processor inputs with images.
            layout: of these.
        """
        return None

    def views_encoded(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> tuple[int, int] | None:
        """How many tiles, and views of the whole, `encode_cells` encodes, and how many there are.

        Args:
            inputs: processor inputs with images.
            keep: per image long [K_i], raster indices of kept cells.

        Returns:
            (encoded, all); None where the family encodes no tiles.
        """
        return None

    # ---- overridden by families of one view, finer crops of which can be encoded beside it ---------------

    @property
    def view_cells(self) -> int:
        """Cells of the one view of a picture.

        Raises:
            NotImplementedError: always, where the family encodes no crops.
        """
        raise self._not_sparse()

    def lacks_crops(self, inputs: Mapping[str, Any], pictures: Sequence[Image] | None) -> str | None:
        """What hinders crops of a call's images, in a few words; None: nothing does.

        Args:
            inputs: processor inputs with images.
            pictures: the images as the user has them; None: they aren't at hand.
        """
        return f"{self.model.config.model_type} has no use for crops"

    def crops(self, inputs: Mapping[str, Any], pictures: Sequence[Image]) -> dict[str, Tensor]:
        """Crops of pictures, as inputs beside the processor's own.

        Args:
            inputs: processor inputs with images.
            pictures: the images as the user has them, in order of appearance.

        Raises:
            NotImplementedError: always, where the family encodes no crops.
        """
        raise self._not_sparse()

    def _not_sparse(self) -> NotImplementedError:
        return NotImplementedError(
            f"the vision tower of {self.model.config.model_type} can't encode some cells alone; use "
            "mode='prune'"
        )

    # ---- images ---------------------------------------------------------------------------------------

    def features(self, inputs: Mapping[str, Any]) -> VisualFeatures:
        """Encode the images with the model's own encoder, exactly as the stock model does.

        Raises:
            ValueError: images that it can't read, or that don't fit the prompt.
        """
        with reading(self.model.config.model_type):
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
        packed = isinstance(output.pooler_output, Tensor)
        beside = {name: output[name] for name in BESIDE if getattr(output, name, None) is not None}
        grids = [grid for grid, _ in layout]
        return VisualFeatures(tokens, levels, grids, cells, handing_back(output), packed, beside)

    def images(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The exact pictures that the vision tower reads: per image float32 [3, h, w] in [0, 1].

        The patch layout and the normalisation, if there was one, are undone; no original image is needed.

        Raises:
            ValueError: pixels that are no pictures, or that don't fit the prompt.
        """
        processor = getattr(self.processor, "image_processor", None)
        mean = torch.tensor(getattr(processor, "image_mean", None) or self.mean).view(3, 1, 1)
        std = torch.tensor(getattr(processor, "image_std", None) or self.std).view(3, 1, 1)
        usual = getattr(processor, "do_normalize", True) is not False
        with reading(self.model.config.model_type):
            pictures = [picture.float() for picture in self.patches(inputs, features)]
        return undo_normalisation(pictures, mean, std, usual)

    # ---- the question ---------------------------------------------------------------------------------

    @cached_property
    def markers(self) -> TemplateMarkers | None:
        """The text that the chat template writes before and after a user's words; None without a template."""
        return template_markers(self.processor)

    def question_mask(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The user's words of the last turn that has any: bool [B, S].

        Template, special, padding and image tokens are never among them, nor the words of a tool.
        Without a processor, or when the prompt doesn't follow its chat template: all attended text that is
        neither special nor an image.
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
        mask = torch.stack(rows)
        tokenizer = getattr(self.processor, "tokenizer", None)
        if tokenizer is None or self.name_marks is None:
            return mask
        marks = [getattr(tokenizer, n, None) or getattr(self.processor, n) for n in self.name_marks]
        return mask & outside(input_ids, *tokenizer.convert_tokens_to_ids(marks))


def split_by_image(pieces: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
    """The tokens [n_i, D] of each image, from pieces of other lengths.

    Raises:
        ValueError: the images' tokens are more or fewer than those of the pieces.
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
