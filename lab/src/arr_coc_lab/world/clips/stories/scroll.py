"""A long page that scrolls through the picture, or pans through it sideways."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from PIL import Image

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.stage import Act, ClipQuestion, Stage, Story, inside, register
from arr_coc_lab.world.clips.stories.pages import drawn_page
from arr_coc_lab.world.page import Page

LONGEST = 4096
"""The most px of a drawn page's side."""
APART = 40
"""Two fields whose places differ by this many px along the way come into view one after the other."""


def plan(stage: Stage, rect: Rect) -> Act:
    """Return a page 1.5 to 2.6 times as long as the picture, from its beginning to its end at an even speed.

    Evidence counts where all of its box is in view. In the test split some pages pan to the right.
    """
    rng = stage.rng
    x0, y0, x1, y1 = rect
    view = (x1 - x0, y1 - y0)
    sideways = stage.new and rng.random() < 0.4
    length = min(LONGEST, int(view[0 if sideways else 1] * rng.uniform(1.5, 2.6)))
    size = (length, view[1]) if sideways else (view[0], length)
    page, questions = drawn_page(stage, size)
    way, steps = length - view[0 if sideways else 1], max(1, stage.count - 1)
    offsets = [round(way * frame / steps) for frame in range(stage.count)]

    def item(box: Rect) -> Evidence | None:
        """Return the frames in which all of a box is in view."""
        a, b, c, d = inside(box, size)
        low, high = (a, c) if sideways else (b, d)
        reach = view[0] if sideways else view[1]
        frames = [i for i, offset in enumerate(offsets) if offset <= low and high <= offset + reach]
        if not frames:
            return None
        moves = [(offsets[i], 0) if sideways else (0, offsets[i]) for i in frames]
        boxes = tuple((a - dx + x0, b - dy + y0, c - dx + x0, d - dy + y0) for dx, dy in moves)
        return Evidence(frames[0], frames[-1], boxes)

    own = []
    for question in questions:
        items = [item(box) for box in question.evidence]
        if all(each is not None for each in items):
            evidence = tuple(each for each in items if each is not None)
            own.append(ClipQuestion(question.text, question.answer, "page", evidence))

    def paint(image: Image.Image, frame: int) -> Image.Image:
        dx, dy = (offsets[frame], 0) if sideways else (0, offsets[frame])
        image.paste(page.image.crop((dx, dy, dx + view[0], dy + view[1])), (x0, y0))
        return image

    return Act("scroll", paint, (*own, *_orders(stage, page, item, sideways)))


def _orders(
    stage: Stage, page: Page, item: Callable[[Rect], Evidence | None], sideways: bool
) -> list[ClipQuestion]:
    """Return which of two fields comes into view first."""
    facts = [fact for fact in page.facts if fact.family in ("value", "table")]
    stage.rng.shuffle(facts)
    for a, b in combinations(facts, 2):
        early, late = sorted((a, b), key=lambda fact: _edge(fact.boxes[0], sideways))
        first, second = item(early.boxes[0]), item(late.boxes[0])
        apart = _edge(late.boxes[0], sideways) - _edge(early.boxes[0], sideways)
        if first is None or second is None or apart < APART or second.first - first.first < stage.tick:
            continue
        before = first.part(0, second.first - 1)
        assert before is not None, "it is in view before the other"
        words = {"a": a.label, "b": b.label}
        return [ask(stage.rng, "view order", "order", early.label, (before, second), **words)]
    return []


def _edge(box: Rect, sideways: bool) -> int:
    """Return the far end of a box in the direction of scrolling, after which all of it is in view."""
    return box[2] if sideways else box[3]


register(Story("scroll", "page", 2, plan))
