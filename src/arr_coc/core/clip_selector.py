"""The selector on a clip: from frames and a question to the cells that matter, in memory that doesn't grow.

    choose_in_clip(Selector.from_pretrained(), frames, "When does the light turn red?", budget=0.1)

Frames are read one after another: what is kept of each are its scores. One that repeats the frame before is
not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from arr_coc.core.attending import Budget, budget_of, parse_budget
from arr_coc.core.guide.coupling import couple, view
from arr_coc.core.images import ImageSource
from arr_coc.core.question import check_question
from arr_coc.core.realizing import Cues, Decision, Stopwatch, decide
from arr_coc.core.selector import Selector, image_pixels
from arr_coc.core.temporal import Change, Changes, Tracker
from arr_coc.core.texture import generate_texture_array

PICTURES = 2
"""Pictures of a clip that a model reads as one step, as the Qwen families do."""


@torch.no_grad()
def choose_in_clip(
    selector: Selector,
    frames: Iterable[ImageSource],
    question: str,
    budget: Budget = 0.1,
    grid: tuple[int, int] | None = None,
    pictures: int = PICTURES,
) -> Decision:
    """Choose the cells of a clip that matter to a question.

    Args:
        selector: the guide, and how a picture becomes cells.
        frames: the clip's pictures in order, all of one size; whatever `open_image` takes.
        question: any text.
        budget: cells to keep of the whole clip: a count (at most all are kept), a fraction or "auto".
        grid: (H, W) cells of a picture; None: as the selector's sizing says.
        pictures: pictures in a row that a model reads as one step. Of these the one is looked at that shows
            more that is new; what is left over at the end is a step, too.

    Returns:
        One allocation, on a grid of (steps, H, W), and what the guide said of the step where it is surest.

    Raises:
        ValueError: no picture, one that can't be read or is of another size, a question without words, or a
            bad budget.
    """
    check_question(question)
    allowed = parse_budget(budget)
    layer = selector.layer
    query, words = torch.zeros(1, 1, layer.config.dim), torch.ones(1, 1, dtype=torch.bool)
    cues: list[Cues] = []
    changes: list[Change] = []
    tracker: Tracker | None = None
    for picture in _steps(frames, pictures):
        if tracker is None:
            grid = selector.sizing.grid(*picture.shape[-2:]) if grid is None else grid
            tracker = Tracker(grid)
        changes.append(tracker(picture[0]))
        if changes[-1].repeated:
            cues.append(cues[-1])
            continue
        coupling = couple(selector.guide, view(selector.guide, picture[0]), question, tracker.grid)
        texture = generate_texture_array(picture, tracker.grid, layer.config.channels)
        cues.append(Cues(texture, query, words, coupling=coupling.logits[None], guided=coupling))
    if tracker is None:
        raise ValueError("the clip has no pictures: give at least one")
    grids = [(1, *tracker.grid)] * len(cues)
    allowed = budget_of(allowed, None, len(cues) * tracker.grid[0] * tracker.grid[1])
    watch = Stopwatch(cues[0].texture.device)
    return decide(layer, cues, grids, [allowed], watch, [Changes.joined(changes)])


def _steps(frames: Iterable[ImageSource], pictures: int) -> Iterator[Tensor]:
    """One picture [1, 3, h, w] of each step: the one that differs most from the step's before.

    Raises:
        ValueError: pictures of different sizes.
    """
    before: Tensor | None = None
    rest = iter(frames)
    while group := [image_pixels(frame) for frame in islice(rest, pictures)]:
        first = group[0] if before is None else before
        for picture in group:
            if picture.shape != first.shape:
                sizes = [f"{one.shape[-1]}x{one.shape[-2]}" for one in (first, picture)]
                raise ValueError(
                    f"the clip has pictures of {sizes[0]} and of {sizes[1]} px: scale them to one size"
                )
        before = max(group, key=lambda picture: float((picture - first).abs().mean()))
        yield before
