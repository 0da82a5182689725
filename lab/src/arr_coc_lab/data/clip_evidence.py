"""Evidence cells of a clip: which cells of a grid [T, H, W] show what answers a question, and recall of them.

    evidence_grid(question.evidence, (T, H, W), (448, 448)) -> bool [T, H, W]
    clip_recall(kept, question.evidence, (448, 448))        -> 0 to 1

A model merges `frames_per_step` frames into one time step (Qwen's temporal patch: 2), so frame f is in step
f // frames_per_step, and a cell of a step shows what any of its frames shows there. Within a frame the rule
is that of `data.evidence`, the same for targets and for measuring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from arr_coc.data.evidence import evidence_cells
from arr_coc.data.record import Box
from arr_coc_lab.data.tracks import Evidence

FRAMES_PER_STEP = 2


def step_count(frames: int, frames_per_step: int = FRAMES_PER_STEP) -> int:
    """Time steps of so many frames; the last one may lack frames, which a processor fills up by repeating."""
    _check(frames_per_step)
    return -(-frames // frames_per_step)


def evidence_grid(
    evidence: Sequence[Evidence],
    grid: tuple[int, int, int],
    size: tuple[int, int],
    frames_per_step: int = FRAMES_PER_STEP,
    numbers: Sequence[int] | None = None,
) -> Tensor:
    """All cells that show evidence in any frame: the target of training.

    Args:
        evidence: the items of a question.
        grid: (T, H, W): time steps and cells.
        size: (width, height) of a frame in px, in which the boxes are.
        frames_per_step: frames that are merged into one step.
        numbers: ascending numbers of the frames that were sampled; None for all.

    Returns:
        Bool [T, H, W].

    Raises:
        ValueError: evidence behind the last step of the grid.
    """
    mask = torch.zeros(grid, dtype=torch.bool)
    for item in evidence:
        for step, cells in _frames(item, grid, size, frames_per_step, numbers):
            mask[step] |= cells
    return mask


def item_shares(
    kept: Tensor,
    evidence: Sequence[Evidence],
    size: tuple[int, int],
    frames_per_step: int = FRAMES_PER_STEP,
    numbers: Sequence[int] | None = None,
) -> list[float]:
    """How well kept cells cover each item: 0 to 1.

    The best covered share over the item's frames; the mean over them where it needs `every` one, frames that
    were not sampled counting 0. An item of which no frame was sampled has 0.

    Arguments and errors are those of `clip_recall`.
    """
    if kept.dim() != 3 or kept.dtype != torch.bool:
        raise ValueError(f"kept is {kept.dtype} {list(kept.shape)}: give a bool mask [T, H, W]")
    steps, height, width = kept.shape
    shares = []
    for item in evidence:
        covered = [
            (kept[step] & cells).sum().item() / max(1, cells.sum().item())
            for step, cells in _frames(item, (steps, height, width), size, frames_per_step, numbers)
        ]
        if item.every:
            shares.append(sum(covered) / len(item))
        else:
            shares.append(max(covered, default=0.0))
    return shares


def clip_recall(
    kept: Tensor,
    evidence: Sequence[Evidence],
    size: tuple[int, int],
    frames_per_step: int = FRAMES_PER_STEP,
    numbers: Sequence[int] | None = None,
) -> float:
    """The mean over a question's items of how well kept cells cover each: 0 to 1.

    Args:
        kept: bool [T, H, W], the cells that are kept. Compare equal pictures: where frames were scaled down
            first, a covered box may be too small to read.
        evidence: the items of the question, at least one.
        size: (width, height) of a frame in px, in which the boxes are.
        frames_per_step: frames that are merged into one step.
        numbers: ascending numbers of the frames that were sampled; None for all.

    Raises:
        ValueError: no items, a mask of another shape or type, or evidence behind the last step.
    """
    shares = item_shares(kept, evidence, size, frames_per_step, numbers)
    if not shares:
        raise ValueError("the question has no evidence: leave it out of the mean")
    return sum(shares) / len(shares)


def _frames(
    item: Evidence,
    grid: tuple[int, int, int],
    size: tuple[int, int],
    frames_per_step: int,
    numbers: Sequence[int] | None,
) -> Iterator[tuple[int, Tensor]]:
    """Step and cells [H, W] of each (sampled) frame of an item."""
    _check(frames_per_step)
    frames = numbers if numbers is not None else range(item.last + 1)
    masks: dict[Box, Tensor] = {}
    for place, number in enumerate(frames):
        if number not in item.frames:
            continue
        step = place // frames_per_step
        if step >= grid[0]:
            raise ValueError(
                f"frame {number} of the evidence is in step {step}, but the grid has {grid[0]}: "
                "give the frames that were sampled"
            )
        box = item.box(number)
        if box not in masks:
            masks[box] = evidence_cells((box,), grid[1:], size)
        yield step, masks[box]


def _check(frames_per_step: int) -> None:
    if frames_per_step < 1:
        raise ValueError(f"frames_per_step {frames_per_step} is out of range: use at least 1")
