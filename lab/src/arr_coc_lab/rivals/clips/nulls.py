"""Null methods for clips, which read nothing: full frames, every frame at fewer pixels, random cells.

    uniform_frames(grid, k)   fewer_pixels(grid, k)   random_cells(grid, k, generator)   random_per_frame(...)

`grid` is (T, H, W), N = H * W. ValueError: the grid has no cells, or the budget is below 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.attending import even_grid
from arr_coc_lab.rivals.clips.coarse_frames import CoarseFrames
from arr_coc_lab.rivals.clips.keeping import (
    best_of_each,
    check_count,
    check_grid,
    equal_counts,
    lowest,
    whole_frames,
)
from arr_coc_lab.rivals.clips.method import ClipMethod, register_clip_method
from arr_coc_lab.rivals.downsample import smaller_grid
from arr_coc_lab.rivals.method import Style


def uniform_frames(grid: tuple[int, int, int], budget: int) -> Tensor:
    """Full frames, evenly spaced, as many as the budget pays, then cells of one more -> Bool [T, N]."""
    t, h, w = check_grid(grid)
    check_count(budget)
    count = min(t, budget // (h * w))
    chosen = even_grid((1, t), max(1, count))
    if count:
        distance = (torch.arange(t)[:, None] - chosen).abs().amin(1)  # (T,), to the nearest chosen frame
        chosen = torch.cat((chosen, distance.argmax()[None]))
    return whole_frames(chosen, grid, budget)


def fewer_pixels(grid: tuple[int, int, int], budget: int) -> CoarseFrames:
    """Return every frame, encoded at a lower resolution, so that all together cost at most the budget.

    Each frame gets the largest grid in the clip's shape that its share pays; the remainder enlarges evenly
    spaced frames by one step. A budget below one token a frame buys that many frames of one token.
    """
    t, h, w = check_grid(grid)
    check_count(budget)
    budget = min(budget, t * h * w)
    count = min(t, budget)
    size = smaller_grid((h, w), budget // count)
    sizes = [(0, 0)] * t
    frames = even_grid((1, t), count).tolist()
    for frame in frames:
        sizes[frame] = size
    larger, step = size, 0
    for tokens in range(budget // count + 1, h * w + 1):
        larger = smaller_grid((h, w), tokens)
        step = larger[0] * larger[1] - size[0] * size[1]
        if step > 0:
            break
    # less than one step of a frame stays unspent
    more = (budget - count * size[0] * size[1]) // step if step > 0 else 0
    if more:
        for i in even_grid((1, count), min(more, count)).tolist():
            sizes[frames[i]] = larger
    return CoarseFrames(grid, tuple(sizes))


def random_cells(grid: tuple[int, int, int], budget: int, generator: torch.Generator) -> Tensor:
    """Any cells of the clip, every subset equally likely -> Bool [T, N]."""
    t, h, w = check_grid(grid)
    check_count(budget)
    return lowest(_drawn((t, h * w), generator), budget)


def random_per_frame(grid: tuple[int, int, int], budget: int, generator: torch.Generator) -> Tensor:
    """Equally many random cells of each frame -> Bool [T, N]; the remainder goes to spread frames."""
    t, h, w = check_grid(grid)
    check_count(budget)
    counts = equal_counts(t, min(budget, t * h * w))
    return best_of_each(_drawn((t, h * w), generator), counts)


def _drawn(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Return a random permutation of the cells, as scores without ties."""
    count = shape[0] * shape[1]
    return torch.randperm(count, generator=generator, device=generator.device).view(shape)


register_clip_method(
    ClipMethod(
        "uniform frames",
        "null",
        lambda view, k: uniform_frames(view.grid, k),
        "before",
        label="whole frames, evenly spaced",
        style=Style(marker="s"),
    )
)
register_clip_method(
    ClipMethod(
        "fewer pixels",
        "null",
        lambda view, k: fewer_pixels(view.grid, k),
        "before",
        label="all frames at fewer pixels",
        style=Style(marker="v"),
    )
)
register_clip_method(
    ClipMethod(
        "random cells",
        "null",
        lambda view, k: random_cells(view.grid, k, view.generator("random cells")),
        "before",
        by_question=True,
        style=Style(marker="o"),
    )
)
register_clip_method(
    ClipMethod(
        "random per frame",
        "null",
        lambda view, k: random_per_frame(view.grid, k, view.generator("random per frame")),
        "before",
        by_question=True,
        label="random cells, as many of each frame",
        style=Style(marker="."),
    )
)
