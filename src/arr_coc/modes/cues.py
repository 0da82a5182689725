"""Gathering: what scoring reads of each image of a call, from whatever is at hand.

gather(adapter, layer, call, layout, cells=..., gestalt=..., coupling=...) -> Cues per image
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.deciding import Cues, Stopwatch, groups
from arr_coc.modes.call import Call, EncodedImages
from arr_coc.modes.textures import TextureMaker
from arr_coc.seam import FamilyAdapter, Layout
from arr_coc.seam.clips import StepRows
from arr_coc.video.temporal import Changes


def gather(
    adapter: FamilyAdapter,
    layer: ARRCOCLayer,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    layout: Layout,
    watch: Stopwatch,
    *,
    cells: Sequence[Tensor] | None = None,
    gestalt: Sequence[Tensor] | None = None,
    coupling: Sequence[Tensor | None] | None = None,
    guided: Sequence[Coupling | None] | None = None,
    frames: Sequence[int] = (),
    coarse: Callable[[], Sequence[Tensor]] | None = None,
) -> list[Cues]:
    """Gather what a layer reads of each image: its texture, the question of its row, and what else is known.

    Args:
        adapter: of the model.
        layer: that will score; everything comes in its dtype and on its device.
        inputs: processor inputs.
        encoded: of these images; pictures and textures are filled in.
        layout: where the images' tokens stand.
        watch: where to add the time of the texture.
        cells: per image [N, D], encoded cells or in their place what a stem sees.
        gestalt: per image [D], the mean token of a coarse view.
        coupling: per image [H, W], logits of the coupling with the question; None: the layer's own.
        guided: per image what the guide says of it and its question; None: it isn't asked.
        frames: how many images in a row each image or clip consists of; empty: all are images.
        coarse: as of `TextureMaker`.
    """
    like = next(layer.parameters())
    with watch("texture"):
        views = pictures(adapter, inputs, encoded)
        make = TextureMaker(adapter, layer, inputs, encoded, layout, views, frames, coarse, cells)
    queries = question_embeddings(adapter, inputs, like)

    def one(some: Sequence[Tensor | None] | None, image: int) -> Tensor | None:
        part = None if some is None else some[image]
        return None if part is None else part[None].to(like)

    cues: list[Cues] = []
    relevance: list[Tensor] = []  # of the steps of a clip so far
    for image, (row, _) in enumerate(adapter.columns(inputs["input_ids"], layout.in_prompt)):
        relevance = relevance if make.places[image] else []
        with watch("texture"):
            texture = make(image, relevance)
        query = queries[row][None]
        words = torch.ones(query.shape[:2], dtype=torch.bool, device=query.device)
        what = (one(cells, image), one(gestalt, image), one(coupling, image))
        cues.append(Cues(texture, query, words, *what, None if guided is None else guided[image]))
        if make.remembers and image + 1 < len(layout.grids) and make.places[image + 1]:
            with torch.no_grad():
                relevance.append(cues[-1].relevance(layer, watch).balanced)
    encoded.textures[:] = [cue.texture for cue in cues]
    return cues


def pictures(adapter: FamilyAdapter, inputs: Mapping[str, Any], encoded: EncodedImages) -> Sequence[Tensor]:
    """Per image what the model sees, recovered once: float32 [3, h, w] in [0, 1].

    Of the steps of a clip whose pixels are made when they are read, it is made each time, too.
    """
    if encoded.pictures is None:
        pixels = inputs["pixel_values"] if "pixel_values" in inputs else None
        if isinstance(pixels, StepRows):
            encoded.pictures = pixels.pictures(adapter, inputs["image_grid_thw"])
        else:
            encoded.pictures = adapter.images(inputs, encoded.features)
    return encoded.pictures


def changes_of(adapter: FamilyAdapter, call: Call, layout: Layout) -> list[Changes | None]:
    """Per image or clip what is new in its frames, compared once; None for an image, [] without clips."""
    if not call.frames:
        return []
    if call.encoded.changes is None:
        with call.watch("texture"):
            views = groups(pictures(adapter, call.inputs, call.encoded), call.frames)
            grids = call.spaces(layout.grids)
            call.encoded.changes = [
                None if len(frames) == 1 else Changes.of(frames, grid[1:])
                for frames, grid in zip(views, grids, strict=True)
            ]
    return call.encoded.changes


def question_embeddings(adapter: FamilyAdapter, inputs: Mapping[str, Any], like: Tensor) -> list[Tensor]:
    """Per row the word embeddings [L, D] of its question, in the dtype and on the device of `like`."""
    ids, mask = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    question = adapter.question_mask(ids, mask)
    text = mask & (ids != adapter.image_token_id)  # for a prompt without words of its own
    question = torch.where(question.any(dim=1, keepdim=True), question, text)
    embed = adapter.model.get_input_embeddings()
    return [embed(row[words]).to(like) for row, words in zip(ids, question, strict=True)]


def stretch(coarse: Tensor, grid: tuple[int, int]) -> Tensor:
    """A coarse map [c, h, w] on a fine grid: float [c, H, W], linear between the coarse middles."""
    return F.interpolate(coarse[None].float(), size=grid, mode="bilinear", align_corners=False)[0]
