"""Evidence cells of a clip on a grid [T, H, W], and the share of them that kept cells cover (recall).

    evidence_grid(question.evidence, (T, H, W), (448, 448)) -> bool [T, H, W]
    clip_recall(kept, question.evidence, (448, 448))        -> 0 to 1

Models merge `frames_per_step` frames into a time step (Qwen: 2): frame f is in step f // frames_per_step.
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
    """Time steps of so many frames; processors fill the last one up by repeating a frame."""
    _check(frames_per_step)
    return -(-frames // frames_per_step)


def evidence_grid(
    evidence: Sequence[Evidence],
    grid: tuple[int, int, int],
    size: tuple[int, int],
    frames_per_step: int = FRAMES_PER_STEP,
    numbers: Sequence[int] | None = None,
) -> Tensor:
    """Bool [T, H, W]: all cells of `grid` that show evidence in any frame, the target of training.

    Arguments as of `clip_recall`; ValueError for evidence after the last step of the grid.
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
    """Covered share of each item, in [0, 1]: of its best frame, or the mean if it needs `every` one.

    Frames that were not sampled count 0. Arguments and errors as of `clip_recall`.
    """
    if kept.dim() != 3 or kept.dtype != torch.bool:
        raise ValueError(f"kept is {kept.dtype} {list(kept.shape)}: give a bool mask [T, H, W]")
    steps, height, width = kept.shape
    shares = []
    for item in evidence:
        covered = [
            (kept[step] & cells).sum().item() / max(1, cells.sum().item())  # over H and W
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
    """Mean covered share of a question's items by `kept` cells, bool [T, H, W]: in [0, 1].

    `size` is (width, height) of a frame in px, `numbers` the ascending numbers of sampled frames (None: all).
    ValueError for no items, another mask, or evidence after the last step.
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
        step = place // frames_per_step  # by the place among the sampled frames, not the number
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
