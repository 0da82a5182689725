"""Realizing relevance: from what is known of an image's cells to a map, and from the map to kept cells.

    score(layer, cues, watch)               -> Relevance per image (differentiable)
    decide(layer, cues, grids, budgets, watch) -> Decision: an Allocation per image
    best_kept(grid, scores, budget)         -> Allocation, by any scores

`Cues` is all that scoring reads. Who gathers them (encoded tokens, a stem, a model's own attention) is not
known here, and no model is: torch alone. The frames of a clip are scored one by one and decided together
(`temporal`): `frames` says how many of the images in a row make each clip, 1 for a still.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from arr_coc.choose.allocation import TENSIONS, Allocation, Grid, Reason, grid_positions
from arr_coc.choose.attending import NonFiniteScores, compute_retention_mask, gate
from arr_coc.choose.budget import DEFAULT_BUDGET, Budget, count_cells
from arr_coc.choose.layer import ARRCOCLayer, Relevance, Watch, untimed
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.trust import note, prior
from arr_coc.video.source import frame_counts, groups, kept_of_frames, over_time, stacked, whole_grids
from arr_coc.video.temporal import Changes

STAGES = (
    "prompt",
    "texture",
    "scoring",
    "balancing",
    "allocating",
    "gestalt",
    "encode",
    "prefill",
    "decode",
    "other",
    "total",
)
"""The stages of a call whose time is taken, in order; all add up to the last."""
CHOOSING = ("texture", "scoring", "balancing", "allocating")
"""Those that choosing consists of."""


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

    def choosing(self) -> float:
        """Milliseconds of all stages of choosing together."""
        return sum(self.ms[stage] for stage in CHOOSING)

    def settle(self) -> None:
        """Count the time of "total" that no stage has as "other"."""
        self.ms["other"] = 0.0
        self.ms["other"] = max(0.0, 2 * self.ms["total"] - sum(self.ms.values()))

    @contextmanager
    def __call__(self, stage: str) -> Generator[None, None, None]:
        """Add the time of a block to a stage."""
        start = self.now()
        try:
            yield
        finally:
            self.ms[stage] += 1000.0 * (self.now() - start)


class Cues(NamedTuple):
    """All that scoring reads of one image and its question, a batch of one: the arguments of
    `ARRCOCLayer.relevance`, the guide's coupling in place of the prior that is made of it.

    texture [1, C, H, W]; query [1, L, D], word embeddings of the question; query_mask bool [1, L]; vision
    [1, N, D], the cells as encoded tokens or in their place as a stem sees them, None if neither is at hand;
    gestalt [1, D], the mean token of a coarse view, None: that of `vision`; coupling [1, H, W], logits of a
    coupling with the question found elsewhere, None: the participatory scorer finds it; guided, what the
    guide says of the question, None: it wasn't asked.
    """

    texture: Tensor
    query: Tensor
    query_mask: Tensor
    vision: Tensor | None = None
    gestalt: Tensor | None = None
    coupling: Tensor | None = None
    guided: Coupling | None = None

    def relevance(self, layer: ARRCOCLayer, watch: Watch = untimed) -> Relevance:
        """What a layer makes of it."""
        start = None if self.guided is None else prior(self.guided)
        return layer.relevance(
            self.texture, self.query, self.query_mask, self.vision, self.gestalt, self.coupling, start, watch
        )


@dataclass(frozen=True)
class Decision:
    """What was decided for the images and clips of one call.

    Attributes:
        allocations: one per image or clip, tensors on the CPU.
        gates: per image, frames of clips among them, the factor [N] for each cell, or None: the relevance
            itself where cells are scaled by it; where the relevance carries a gradient, 1 going forward and
            the way back to the scores of kept tokens.
        fallback: deciding failed, all tokens are kept.
        couplings: per image or clip what the guide said of it; empty where it wasn't asked of each.
    """

    allocations: list[Allocation]
    gates: list[Tensor] | None = None
    fallback: bool = False
    couplings: tuple[Coupling, ...] = ()

    @property
    def keep(self) -> list[Tensor]:
        """Kept cells, long [K_i], of each image and of each frame of the clips."""
        return [part for allocation in self.allocations for part in kept_of_frames(allocation)]


def score(layer: ARRCOCLayer, cues: Sequence[Cues], watch: Stopwatch) -> list[Relevance]:
    """Score the cells of each image by its own question.

    Args:
        layer: whose scorers and balancer.
        cues: one per image.
        watch: where to add the time.

    Raises:
        NonFiniteScores: a relevance that isn't finite.
    """
    maps = [one.relevance(layer, watch) for one in cues]
    with watch("balancing"):
        # One question to the device for all images, not one each.
        finite = torch.stack([relevance.balanced.isfinite().all() for relevance in maps]).tolist()
        if not all(finite):
            raise NonFiniteScores(f"the relevance of image {finite.index(False)} is not finite")
    return maps


def decide(
    layer: ARRCOCLayer,
    cues: Sequence[Cues],
    grids: Sequence[Grid],
    budgets: Sequence[Budget | None],
    watch: Stopwatch,
    changes: Sequence[Changes | None] = (),
) -> Decision:
    """Decide which cells of each image or clip stay.

    Args:
        layer: whose relevance and allocation.
        cues: one per image, in clips one per frame.
        grids: (1, H, W) of each of these.
        budgets: of each image or clip; None: all of its cells.
        watch: where to add the time.
        changes: of each image or clip, None for an image; empty: all are images.

    Raises:
        NonFiniteScores: a relevance that isn't finite.
        ValueError: a budget above the number of cells.
    """
    cues, frames = _of_one_mind(cues, changes), frame_counts(changes, len(cues))
    maps = score(layer, cues, watch)
    with watch("allocating"):
        visuals, spaces = over_time(maps, changes), whole_grids(grids, frames)
        allocations = [
            everything_kept(grid, relevance) if budget is None else layer.allocate(relevance, budget, grid)[0]
            for relevance, budget, grid in zip(_on_cpu(visuals), budgets, spaces, strict=True)
        ]
        speakers = _speakers(cues, frames)
        allocations = [_noted(allocation, one) for allocation, one in zip(allocations, speakers, strict=True)]
    couplings = _couplings(speakers)
    relevances = [relevance.balanced.flatten() for relevance in visuals]  # (N,) each
    if not any(relevance.requires_grad for relevance in relevances):
        return Decision(allocations, couplings=couplings)
    gates = [gate(relevance) for relevance in relevances]
    parts = [part for one, count in zip(gates, frames, strict=True) for part in one.view(count, -1).unbind(0)]
    return Decision(allocations, parts, couplings=couplings)


def weigh(
    layer: ARRCOCLayer,
    cues: Sequence[Cues],
    grids: Sequence[Grid],
    watch: Stopwatch,
    changes: Sequence[Changes | None] = (),
) -> Decision:
    """Decide how strongly each cell counts, with all of them kept; arguments as of `decide`."""
    cues, frames = _of_one_mind(cues, changes), frame_counts(changes, len(cues))
    maps = score(layer, cues, watch)
    visuals, spaces = stacked(maps, frames), whole_grids(grids, frames)
    whole = [everything_kept(grid, relevance) for grid, relevance in zip(spaces, visuals, strict=True)]
    gates = [relevance.balanced.flatten() for relevance in maps]
    return Decision(whole, gates, couplings=_couplings(_speakers(cues, frames)))


def _of_one_mind(cues: Sequence[Cues], changes: Sequence[Changes | None]) -> Sequence[Cues]:
    """The cues in which the guide says the same of all frames of a clip: what it says of the one where it is
    surest. Else a frame that shows nothing of what is asked for would be scored by another measure.
    """
    if all(one is None for one in changes):
        return cues
    frames = frame_counts(changes, len(cues))
    together: list[Cues] = []
    for group, speaker in zip(groups(cues, frames), _speakers(cues, frames), strict=True):
        if speaker.guided is None:
            together += group
            continue
        couplings = [one.guided for one in group if one.guided is not None]
        same = [replace(speaker.guided, logits=one.logits, printed=one.printed) for one in couplings]
        together += [one._replace(guided=guided) for one, guided in zip(group, same, strict=True)]
    return together


def _speakers(cues: Sequence[Cues], frames: Sequence[int]) -> list[Cues]:
    """Of each image or clip the frame of which the guide is surest; the first where it wasn't asked."""
    return [
        max(group, key=lambda one: 0.0 if one.guided is None else one.guided.confidence)
        for group in groups(cues, frames)
    ]


def _couplings(cues: Sequence[Cues]) -> tuple[Coupling, ...]:
    """What the guide said of each image, if it was asked of all."""
    couplings = tuple(one.guided for one in cues if one.guided is not None)
    return couplings if len(couplings) == len(cues) else ()


def _noted(allocation: Allocation, cues: Cues) -> Allocation:
    """The allocation with what the guide has to say of it, where something was chosen by its word."""
    if cues.guided is None or allocation.void or allocation.kept == allocation.total:
        return allocation
    return replace(allocation, note=note(cues.guided))


def _on_cpu(maps: Sequence[Relevance]) -> list[Relevance]:
    """The same relevance on the CPU, without gradient: what is decided from it waits for the device once."""
    named = [{k: v for k, v in relevance._asdict().items() if v is not None} for relevance in maps]
    parts = [part for one in named for part in one.values()]
    flat = torch.cat([part.detach().flatten().float() for part in parts]).cpu()
    fetched = iter(flat.split([part.numel() for part in parts]))
    return [
        Relevance(**{k: next(fetched).view(v.shape).to(v.dtype) for k, v in one.items()}) for one in named
    ]


def everything_kept(grid: Grid, relevance: Relevance | None = None) -> Allocation:
    """The record of an image of which every token was kept: its maps are those given, or 1 everywhere."""
    keep = torch.arange(grid[0] * grid[1] * grid[2])
    ones = torch.ones(grid)
    maps = {name: ones for name in ("information", "perspectival", "participatory", "balanced")}
    weights, tensions, order = torch.ones(3), torch.full((3,), 0.5), keep
    if relevance is not None:
        maps = {name: getattr(relevance, name).detach().float().cpu().view(grid) for name in maps}
        weights = relevance.weights[0].detach().float().cpu()
        tensions = relevance.tensions[0].detach().cpu()
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
        information=maps["information"],
        perspectival=maps["perspectival"],
        participatory=maps["participatory"],
        balanced=maps["balanced"],
    )


def best_kept(grid: Grid, scores: Tensor, budget: Budget | None = None) -> Allocation:
    """The record of an image of which the best cells by any scores were kept, with no layer's say in it.

    Args:
        grid: (T, H, W) of the cells.
        scores: one for each cell in raster order, [T, H, W] or [N], in any range; ties go to the earlier one.
        budget: a count, a fraction, or "auto", which counts the cells that hold most of the scores; None: 273
            or all, whichever is less.

    Returns:
        `balanced` is the scores from 0 (lowest) to 1 (highest); the three maps behind it are 0, for none
        was made.

    Raises:
        NonFiniteScores: a score is NaN or infinite.
        ValueError: scores of another number of cells, or a bad budget.
    """
    total = grid[0] * grid[1] * grid[2]
    if scores.numel() != total:
        raise ValueError(f"{scores.numel()} scores don't fit a grid of {grid}: give one for each cell")
    flat = scores.detach().float().cpu().flatten()
    low, high = flat.min(), flat.max()
    balanced = (flat - low) / (high - low).clamp_min(torch.finfo(flat.dtype).tiny)
    count = count_cells(budget, balanced[None])[0]
    keep = compute_retention_mask(flat, count).nonzero().flatten()
    nothing = torch.zeros(grid)
    return Allocation(
        grid=grid,
        keep=keep,
        order=flat.argsort(descending=True, stable=True)[:count],
        positions=grid_positions(keep, grid),
        information=nothing,
        perspectival=nothing,
        participatory=nothing,
        balanced=balanced.view(grid),
        weights=torch.zeros(3),
        tensions=dict.fromkeys(TENSIONS, 0.5),
        budget=DEFAULT_BUDGET if budget is None else budget,
        reasons=torch.full_like(keep, int(Reason.RELEVANT)),
        void=False,
    )
