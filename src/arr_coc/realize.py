"""Realizing relevance for one call: from pictures, a question and what is known of the cells to kept cells.

    pictures -> texture -+-> layer.relevance -> layer.allocate -> Allocation per image
    question embeddings -+          ^
    `Seen`: encoded cells, or a stem's, or a coupling found elsewhere; a gestalt vector

Each image is decided by the question of its own row, within its own budget. No state is kept between
calls, except what the caller keeps in `EncodedImages`.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from arr_coc.allocation import TENSIONS, Allocation, Reason, grid_positions
from arr_coc.attending import Budget, NonFiniteScores, gate
from arr_coc.layer import ARRCOCLayer, Relevance
from arr_coc.seam import Compacted, FamilyAdapter, Grid, Layout, VisualFeatures
from arr_coc.texture import generate_texture_array

STAGES = ("texture", "score", "gestalt", "encode", "prefill", "decode", "total")


class Stopwatch:
    """Milliseconds per stage, summed; waits for the device where there is one.

    Args:
        device: where the work is done.
    """

    def __init__(self, device: torch.device) -> None:
        self.ms = dict.fromkeys(STAGES, 0.0)
        self._device = device

    def now(self) -> float:
        """Seconds, after all work on the device is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    @contextmanager
    def __call__(self, stage: str) -> Generator[None, None, None]:
        """Add the time of a block to a stage."""
        start = self.now()
        try:
            yield
        finally:
            self.ms[stage] += 1000.0 * (self.now() - start)


@dataclass
class EncodedImages:
    """What a call knows of its images, whatever the question; a session keeps it for its next one.

    Everything is None, or missing, before it is needed.

    Attributes:
        features: the encoded images.
        pictures: per image what the model saw, [3, h, w] in [0, 1].
        textures: per image the texture array [1, C, H, W].
        stems: by the gestalt that lay under them, per image the cells a stem saw, [N, D].
        gestalts: by compressor, the coarse views.
        neutral: by compressor, per image what a neutral question attends to (see `gaze`).
    """

    features: VisualFeatures | None = None
    pictures: list[Tensor] | None = field(default=None, repr=False)
    textures: list[Tensor] | None = field(default=None, repr=False)
    stems: dict[str | None, list[Tensor]] = field(default_factory=dict, repr=False)
    gestalts: dict[str, VisualFeatures] = field(default_factory=dict, repr=False)
    neutral: dict[str, list[Tensor]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Seen:
    """What may be seen of the images of a call beside texture and question, for scoring their cells.

    Attributes:
        counts: visual tokens of each image in the prompt.
        grids: (T, H, W) of each.
        cells: per image [N, D], encoded or by a stem; None: nothing.
        gestalt: per image [D], the mean of a coarse view; None: that of the cells.
        coupling: per image [H, W], logits of the coupling with the question; None: the layer finds it.
    """

    counts: Sequence[int]
    grids: Sequence[Grid]
    cells: Sequence[Tensor] | None = None
    gestalt: Sequence[Tensor] | None = None
    coupling: Sequence[Tensor] | None = None


def seen_whole(features: VisualFeatures) -> Seen:
    """Everything encoded may be seen."""
    cells = [features.cell_tokens(image) for image in range(len(features.grids))]
    return Seen(features.counts, features.grids, cells)


@dataclass(frozen=True)
class Decision:
    """What was decided for the images of one call.

    Attributes:
        allocations: one per image, tensors on the CPU.
        gates: per image the factor [N_i] for each cell, or None: the relevance itself in mode "weight";
            where the relevance carries a gradient, 1 going forward and the way back to the scores of
            kept tokens.
        fallback: deciding failed, all tokens are kept.
    """

    allocations: list[Allocation]
    gates: list[Tensor] | None
    fallback: bool


@dataclass(frozen=True)
class Prepared:
    """A call that is ready for the base model, and what was decided for it.

    Attributes:
        compacted: what the base model gets.
        allocations: one per image.
        fallback: deciding failed, all tokens are kept.
        mode: what really ran.
        read: per image the visual tokens that the language model gets.
        cells: per image how many cells it has.
        note: why another mode ran than was asked for; None where it didn't.
    """

    compacted: Compacted
    allocations: list[Allocation]
    fallback: bool
    mode: str
    read: list[int]
    cells: list[int]
    note: str | None = None


def everything_kept(grid: Grid, relevance: Relevance | None = None) -> Allocation:
    """The record of an image of which every token was kept: its maps are those given, or 1
    everywhere.
    """
    keep = torch.arange(grid[0] * grid[1] * grid[2])
    ones = torch.ones(grid)
    maps = {name: ones for name in ("information", "perspectival", "participatory", "balanced")}
    weights, tensions, order = torch.ones(3), torch.full((3,), 0.5), keep
    if relevance is not None:
        maps = {name: getattr(relevance, name).detach().float().cpu().view(grid) for name in maps}
        weights, tensions = (
            relevance.weights[0].detach().float().cpu(),
            relevance.tensions[0].detach().cpu(),
        )
        order = maps["balanced"].flatten().argsort(descending=True, stable=True)
    return Allocation(
        grid=grid,
        keep=keep,
        order=order,
        positions=grid_positions(keep, grid),
        weights=weights,
        tensions=dict(zip(TENSIONS, tensions.tolist(), strict=True)),
        budget=1.0,
        reasons=torch.full_like(keep, int(Reason.ALL)),
        void=False,
        **maps,
    )


def all_kept(images: VisualFeatures | Layout, fallback: bool = False) -> Decision:
    """Keep everything, undecided."""
    return Decision([everything_kept(grid) for grid in images.grids], None, fallback)


def question_embeddings(adapter: FamilyAdapter, inputs: Mapping[str, Any], like: Tensor) -> list[Tensor]:
    """Per row the word embeddings [L, D] of its question, in the dtype and on the device of `like`."""
    ids, mask = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    question = adapter.question_mask(ids, mask)
    text = mask & (ids != adapter.image_token_id)  # for a prompt without words of its own
    question = torch.where(question.any(dim=1, keepdim=True), question, text)
    embed = adapter.model.get_input_embeddings()
    return [embed(row[words]).to(like) for row, words in zip(ids, question, strict=True)]


def pictures(adapter: FamilyAdapter, inputs: Mapping[str, Any], encoded: EncodedImages) -> list[Tensor]:
    """Per image what the model saw, recovered once: [3, h, w] in [0, 1]."""
    if encoded.pictures is None:
        encoded.pictures = adapter.images(inputs, encoded.features)
    return encoded.pictures


def score(
    adapter: FamilyAdapter,
    layer: ARRCOCLayer,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    watch: Stopwatch,
    seen: Seen | None = None,
) -> list[Relevance]:
    """Score the cells of each image by the question of its row.

    Args:
        adapter: of the model.
        layer: whose scorers and balancer.
        inputs: processor inputs.
        encoded: of these images; textures are filled in.
        watch: where to add the time.
        seen: what else may be seen; None: the encoded features, which are there then.

    Raises:
        NonFiniteScores: a relevance that isn't finite.
    """
    if seen is None:
        assert encoded.features is not None, "images are encoded before they are scored"
        seen = seen_whole(encoded.features)
    like = next(layer.parameters())
    with watch("texture"):
        if encoded.textures is None:
            encoded.textures = [
                generate_texture_array(picture[None].to(like), grid[1:], layer.config.channels)
                for picture, grid in zip(pictures(adapter, inputs, encoded), seen.grids, strict=True)
            ]
    with watch("score"):
        queries = question_embeddings(adapter, inputs, like)

        def one(some: Sequence[Tensor] | None, image: int) -> Tensor | None:
            return None if some is None else some[image][None].to(like)

        maps = []
        for image, (row, _) in enumerate(adapter.columns(inputs["input_ids"], seen.counts)):
            query = queries[row][None]
            words = torch.ones(query.shape[:2], dtype=torch.bool, device=query.device)
            known = (one(some, image) for some in (seen.cells, seen.gestalt, seen.coupling))
            maps.append(layer.relevance(encoded.textures[image], query, words, *known))
        # One question to the device for all images, not one each.
        finite = torch.stack([relevance.balanced.isfinite().all() for relevance in maps]).tolist()
        if not all(finite):
            raise NonFiniteScores(f"the relevance of image {finite.index(False)} is not finite")
    return maps


def fetch(maps: Sequence[Relevance]) -> list[Relevance]:
    """The same relevance on the CPU, without gradient: what is decided from it waits for the device once."""
    named = [{k: v for k, v in relevance._asdict().items() if v is not None} for relevance in maps]
    parts = [part for one in named for part in one.values()]
    flat = torch.cat([part.detach().flatten().float() for part in parts]).cpu()
    fetched = iter(flat.split([part.numel() for part in parts]))
    return [
        Relevance(**{k: next(fetched).view(v.shape).to(v.dtype) for k, v in one.items()}) for one in named
    ]


def decide(
    adapter: FamilyAdapter,
    layer: ARRCOCLayer,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    budgets: Sequence[Budget | None],
    mode: str,
    watch: Stopwatch,
    seen: Seen | None = None,
) -> Decision:
    """Decide which cells of each image stay, or (mode "weight") how strongly each counts.

    Args:
        adapter: of the model.
        layer: whose relevance and allocation.
        inputs: processor inputs.
        encoded: of these images.
        budgets: per image; None: all of its cells.
        mode: as asked.
        watch: where to add the time.
        seen: as in `score`.

    Raises:
        NonFiniteScores: a relevance that isn't finite. Whatever else fails in scoring comes through
        as it is.
    """
    if seen is None:
        assert encoded.features is not None, "images are encoded before they are scored"
        seen = seen_whole(encoded.features)
    maps = score(adapter, layer, inputs, encoded, watch, seen)
    relevances = [relevance.balanced.flatten() for relevance in maps]  # (N,) each
    if mode == "weight":
        whole = [everything_kept(grid, relevance) for grid, relevance in zip(seen.grids, maps, strict=True)]
        return Decision(whole, relevances, False)
    with watch("score"):
        allocations = [
            everything_kept(grid, relevance) if budget is None else layer.allocate(relevance, budget, grid)[0]
            for relevance, budget, grid in zip(fetch(maps), budgets, seen.grids, strict=True)
        ]
    if not any(relevance.requires_grad for relevance in relevances):
        return Decision(allocations, None, False)
    return Decision(allocations, [gate(relevance) for relevance in relevances], False)
