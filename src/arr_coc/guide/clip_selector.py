"""The selector on a clip: from frames and a question to the cells that matter, in memory that doesn't grow.

    choose_in_clip(Selector.from_pretrained(), frames, "When does the light turn red?", budget=0.1)

Frames are read one after another: what is kept of each are its scores. One that repeats the frame before is
not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from arr_coc.choose.attending import Budget, budget_of, parse_budget
from arr_coc.choose.texture import generate_texture_array
from arr_coc.files.images import ImageSource
from arr_coc.files.question import check_question
from arr_coc.guide.coupling import Coupling, couple, view
from arr_coc.guide.guide import Guide
from arr_coc.guide.realizing import Cues, Decision, Stopwatch, decide
from arr_coc.guide.selector import Selector, Sight, checked_grid, image_pixels
from arr_coc.video.moments import event_of
from arr_coc.video.temporal import Change, Changes, Tracker

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
    times: Sequence[float] | None = None,
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
        times: seconds of each picture, for questions that name some; None: those of a `FrameSource`, else not
            known.

    Returns:
        One allocation, on a grid of (steps, H, W), and what the guide said of the step where it is surest.

    Raises:
        ValueError: no picture, one that can't be read or is of another size, a question without words, a bad
            budget or grid, or a selector that has no guide.
    """
    check_question(question)
    allowed = parse_budget(budget)
    guide = _guide_of(selector)
    event = event_of(question)
    cues: list[Cues] = []
    shows: list[Tensor] = []  # the event, in each step
    changes: list[Change] = []
    surest: tuple[int, Coupling] | None = None
    for picture, change in _compared(selector, frames, grid, pictures):
        changes.append(change)
        if change.repeated:
            cues.append(cues[-1])
            shows += shows[-1:]
            continue
        sight = _sight(selector, picture, change)
        coupling = couple(guide, sight.page, question, change.grid)
        if surest is None or coupling.confidence > surest[1].confidence:
            surest = len(cues), coupling
        # Words are told of the surest step alone, and those of a step are most of what is kept of it.
        cues.append(_cues(selector, sight, replace(coupling, matches=())))
        if event is not None:
            shows.append(couple(guide, sight.page, event, change.grid).logits)
    if surest is not None:
        step, coupling = surest
        cues[step] = cues[step]._replace(guided=coupling)
    over_time = Changes.joined(changes).at(
        question, _step_times(frames, times, pictures), torch.stack(shows) if shows else None
    )
    return _decided(selector, cues, over_time, allowed)


class ClipSight:
    """What is known of a clip before any question: for many questions about one clip, in memory that grows.

    Args:
        selector: as of `choose_in_clip`, with the other arguments.
        frames: the clip's pictures.
        grid: (H, W) cells of a picture.
        pictures: in a step.
        times: seconds of each picture.

    Raises:
        ValueError: as `choose_in_clip` of pictures.
    """

    def __init__(
        self,
        selector: Selector,
        frames: Iterable[ImageSource],
        grid: tuple[int, int] | None = None,
        pictures: int = PICTURES,
        times: Sequence[float] | None = None,
    ) -> None:
        _guide_of(selector)
        self.selector = selector
        self.times = _step_times(frames, times, pictures)
        self.changes: list[Change] = []
        self.sights: list[Sight] = []
        self._last: tuple[str, list[Cues], Changes] | None = None
        with torch.no_grad():
            for picture, change in _compared(selector, frames, grid, pictures):
                again = change.repeated
                self.sights.append(self.sights[-1] if again else _sight(selector, picture, change))
                self.changes.append(change)

    @torch.no_grad()
    def decide(self, question: str, budget: Budget = 0.1) -> Decision:
        """As `choose_in_clip`; a second budget for the last question costs the ranking alone."""
        check_question(question)
        allowed = parse_budget(budget)
        if self._last is None or self._last[0] != question:
            event = event_of(question)
            own = self._coupled(question)
            shows = None if event is None else self._coupled(event)
            cues = [_cues(self.selector, sight, own[id(sight)]) for sight in self.sights]
            logits = (
                None if shows is None else torch.stack([shows[id(sight)].logits for sight in self.sights])
            )
            self._last = question, cues, Changes.joined(self.changes).at(question, self.times, logits)
        return _decided(self.selector, *self._last[1:], allowed)

    def _coupled(self, text: str) -> dict[int, Coupling]:
        """What the guide says of a text and each sight, by its identity."""
        guide, grid = self.selector.guide, self.changes[0].grid
        return {
            id(sight): couple(guide, sight.page, text, grid)
            for sight in {id(s): s for s in self.sights}.values()
        }


def _guide_of(selector: Selector) -> Guide:
    """The guide of a selector, or a ValueError where it goes by what one model learned."""
    guide = getattr(selector, "guide", None)
    if guide is None:
        raise ValueError(
            "clips are chosen from by the guide, which this selector has not: use Selector.from_pretrained()"
        )
    return guide


def _compared(
    selector: Selector, frames: Iterable[ImageSource], grid: tuple[int, int] | None, pictures: int
) -> Iterator[tuple[Tensor, Change]]:
    """The picture [1, 3, h, w] of each step, and what is new in it."""
    tracker: Tracker | None = None
    named = None if grid is None else checked_grid(grid)
    for picture in _steps(frames, pictures):
        tracker = tracker or Tracker(named or selector.sizing.grid(*picture.shape[-2:]))
        yield picture, tracker(picture[0])
    if tracker is None:
        raise ValueError("the clip has no pictures: give at least one")


def _sight(selector: Selector, picture: Tensor, change: Change) -> Sight:
    """What is known of a step's picture before any question."""
    height, width = change.grid
    texture = generate_texture_array(picture, (height, width), selector.layer.config.channels)
    return Sight(view(selector.guide, picture[0]), {(height, width): texture}, {})


def _cues(selector: Selector, sight: Sight, coupling: Coupling) -> Cues:
    """What scoring reads of a step."""
    query, words = torch.zeros(1, 1, selector.layer.config.dim), torch.ones(1, 1, dtype=torch.bool)
    (texture,) = sight.textures.values()
    return Cues(texture, query, words, coupling=coupling.logits[None], guided=coupling)


def _decided(selector: Selector, cues: Sequence[Cues], changes: Changes, budget: Budget) -> Decision:
    """The cells of a whole clip, from what is known of its steps."""
    height, width = changes.new.shape[1:]
    allowed = budget_of(budget, None, len(cues) * height * width)
    watch = Stopwatch(cues[0].texture.device)
    grids = [(1, height, width)] * len(cues)
    return decide(selector.layer, cues, grids, [allowed], watch, [changes])


def _step_times(
    frames: Iterable[ImageSource], times: Sequence[float] | None, pictures: int
) -> Sequence[float] | None:
    """The seconds at which each step begins; None where they are not known."""
    times = getattr(frames, "times", None) if times is None else times
    return None if times is None else times[::pictures]


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
