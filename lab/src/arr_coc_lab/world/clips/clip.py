"""Clips drawn from a seed.

    draw_clip(seed, size, seconds, fps, split) -> Clip(frames, times, questions, stories)

The same arguments give the same clip. The three splits never share a seed. `test` also uses a font, words,
colours and layouts that the other two don't.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

from PIL import Image

import arr_coc_lab.world.clips.stories  # noqa: F401  registers them
from arr_coc_lab.world import blocks
from arr_coc_lab.world.canvas import Ink, Rect
from arr_coc_lab.world.clips.questions import across
from arr_coc_lab.world.clips.stage import STORIES, Act, ClipQuestion, Span, Stage, Story
from arr_coc_lab.world.clips.vocabulary import HELD_OUT_COLOURS, TRAIN_COLOURS
from arr_coc_lab.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS
from arr_coc_lab.world.page import check_size, page_seed
from arr_coc_lab.world.vocabulary import SHAPES

__all__ = ["MAX_CLIP_FRAMES", "Clip", "DrawnFrames", "draw_clip"]

MAX_CLIP_FRAMES = 100_000
SMALLEST, LARGEST = 128, 2048
"""Limits of a frame's sides in px."""
CONTRAST = 110
"""Least distance in RGB of a thing's colour from the background."""


class DrawnFrames(Sequence[Image.Image]):
    """The frames of a clip, each drawn when it is asked for: the same number gives an equal, new image."""

    def __init__(self, count: int, paper: Image.Image, acts: Sequence[Act]) -> None:
        self.length, self.paper, self.acts = count, paper, tuple(acts)

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, number: int) -> Image.Image: ...

    @overload
    def __getitem__(self, number: slice) -> list[Image.Image]: ...

    def __getitem__(self, number: int | slice) -> Image.Image | list[Image.Image]:
        if isinstance(number, slice):
            return [self[i] for i in range(self.length)[number]]
        place = range(self.length)[number]
        image = self.paper.copy()
        for act in self.acts:
            image = act.paint(image, place)
        return image


@dataclass(frozen=True)
class Clip:
    """A drawn clip with its questions."""

    frames: DrawnFrames  # RGB images, drawn when they are asked for
    times: tuple[float, ...]  # seconds of each frame, from 0
    fps: float  # frames per second
    size: tuple[int, int]  # width and height of a frame in px
    questions: tuple[ClipQuestion, ...]  # questions with answers and evidence; each text occurs once
    stories: tuple[str, ...]  # names of the stories, in the order in which they are drawn
    spans: tuple[Span, ...]  # what can be seen when, beside pages
    seed: int  # of `draw_clip`
    split: str  # of `draw_clip`


def draw_clip(
    seed: int,
    size: tuple[int, int] = (448, 448),
    seconds: float = 8.0,
    fps: float = 4.0,
    split: str = "train",
    stories: Sequence[str] | None = None,
) -> Clip:
    """Draw one clip.

    Args:
        seed: 0 or more; with the other arguments it fixes the clip.
        size: width and height in px, each 128 to 2048.
        seconds: the clip has `seconds * fps` frames, rounded, 1 to 100,000.
        fps: frames per second, 0.1 to 240.
        split: "train", "validation" or "test".
        stories: names of `STORIES`; None: chosen by the seed.

    Raises:
        ValueError: an argument out of range, an unknown story, stories that don't go together or take longer
            than the clip is.
    """
    check_size(size, SMALLEST, LARGEST)
    if not 0.1 <= fps <= 240:
        raise ValueError(f"fps {fps!r} is out of range; use 0.1 to 240")
    if not 0 <= seconds * fps <= MAX_CLIP_FRAMES:
        raise ValueError(f"{seconds!r} seconds at {fps:g} fps are no 1 to {MAX_CLIP_FRAMES:,} frames")
    count = max(1, round(seconds * fps))
    rng = random.Random(f"clip {page_seed(seed, split)}")
    stage = _stage(rng, size, count, fps, split)
    chosen = _chosen(stage, stories)
    placed = _placed(stage, chosen)
    paper = _paper(stage, [rect for story, rect in placed if story.place == "thing"])
    acts = [story.plan(stage, rect) for story, rect in placed]
    spans = tuple(span for act in acts for span in act.spans)
    own = [question for act in acts for question in act.questions]
    questions = _clear([*own, *across(stage, spans)])
    rng.shuffle(questions)
    return Clip(
        frames=DrawnFrames(count, paper, acts),
        times=tuple(i / fps for i in range(count)),
        fps=fps,
        size=size,
        questions=tuple(questions),
        stories=tuple(act.story for act in acts),
        spans=spans,
        seed=seed,
        split=split,
    )


def _stage(rng: random.Random, size: tuple[int, int], count: int, fps: float, split: str) -> Stage:
    new = split == "test"
    fonts = HELD_OUT_FONTS if new and rng.random() < 0.3 else TRAIN_FONTS
    dark = rng.random() < 0.2
    level = rng.randint(20, 50) if dark else rng.randint(225, 255)
    paper = tuple(min(255, max(0, level + rng.randint(-10, 10))) for _ in range(3))
    colours = {**TRAIN_COLOURS, **(HELD_OUT_COLOURS if new else {})}
    clear = {name: rgb for name, rgb in colours.items() if _distance(rgb, paper) > CONTRAST}
    return Stage(
        rng, size, count, fps, split, fonts, dark, (paper[0], paper[1], paper[2]), clear, list(SHAPES)
    )


def _paper(stage: Stage, rects: Sequence[Rect]) -> Image.Image:
    """Return the background of the stories: often a pattern or running text that no question is about."""
    canvas = stage.canvas(stage.size)
    kind = stage.rng.choice(("plain", "plain", "texture", "text")) if rects else "plain"
    if kind != "plain":
        x0, y0, x1, y1 = zip(*rects, strict=True)
        whole = (min(x0), min(y0), max(x1), max(y1))
        (blocks.texture if kind == "texture" else blocks.paragraph)(canvas, whole)
    return canvas.image


def _distance(a: Ink, b: Iterable[int]) -> float:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5


def _chosen(stage: Stage, names: Sequence[str] | None) -> list[Story]:
    """Return the stories of a clip in drawing order; None: chosen by the seed."""
    rng = stage.rng
    if names is None:
        fit = {place: [s for s in STORIES.values() if s.place == place and s.least <= stage.ticks]
               for place in PLACES}  # fmt: skip
        if fit["thing"] and rng.random() < 0.5:
            count = rng.randint(1, 3)
            pool = [story for story in fit["thing"] for _ in range(min(story.often, 2))]
            middle = rng.sample(pool, min(count, len(pool)))
        else:
            middle = [rng.choice(fit["page"])]
        strips = [
            rng.choice(fit[place])
            for place, share in (("top", 0.4), ("bottom", 0.5))
            if fit[place] and rng.random() < share
        ]
        effects = [rng.choice(fit["effect"])] if fit["effect"] and rng.random() < 0.2 else []
        return [*middle, *strips, *effects]
    unknown = [name for name in names if name not in STORIES]
    if unknown:
        raise ValueError(f"story {unknown[0]!r} is unknown; use {', '.join(sorted(STORIES))}")
    if not names:
        raise ValueError("stories is empty; name at least one, or None for those of the seed")
    chosen = sorted((STORIES[name] for name in names), key=lambda story: PLACES.index(story.place))
    _check(stage, chosen)
    return chosen


PLACES = ("page", "thing", "top", "bottom", "effect")
"""The places of stories in the order in which they are drawn."""
MAX_THINGS = 4


def _check(stage: Stage, chosen: Sequence[Story]) -> None:
    places = Counter(story.place for story in chosen)
    if places["page"] > 1 or (places["page"] and places["thing"]):
        names = ", ".join(story.name for story in chosen if story.place in ("page", "thing"))
        raise ValueError(f"stories {names} don't go together: a page takes the middle alone")
    if places["thing"] > MAX_THINGS or places["top"] > 1 or places["bottom"] > 1:
        raise ValueError("there are too many stories: up to 4 things, and one in either strip")
    for story, count in Counter(chosen).items():
        if count > story.often:
            raise ValueError(f"story {story.name!r} is named {count} times; at most {story.often}")
        if story.least > stage.ticks:
            least = story.least * stage.tick
            raise ValueError(f"story {story.name!r} takes {least} frames; the clip has {stage.count}")


def _placed(stage: Stage, chosen: Sequence[Story]) -> list[tuple[Story, Rect]]:
    """Return each story with its rectangle in px; in the test split top and bottom strips may be
    exchanged.
    """
    width, height = stage.size
    strip = round(0.14 * min(stage.size))
    upside = stage.new and stage.rng.random() < 0.4
    places = {story.place for story in chosen}
    upper, lower = ("bottom", "top") if upside else ("top", "bottom")
    top, bottom = strip if upper in places else 0, height - (strip if lower in places else 0)
    rects: dict[str, Rect] = {
        "page": (0, top, width, bottom),
        upper: (0, 0, width, strip),
        lower: (0, height - strip, width, height),
        "effect": (0, 0, width, height),
    }
    cells = iter(_cells((0, top, width, bottom), sum(story.place == "thing" for story in chosen)))
    return [(s, next(cells) if s.place == "thing" else rects[s.place]) for s in chosen]


def _cells(rect: Rect, count: int) -> list[Rect]:
    """Return a rectangle divided into 1, 2 or 4 parts for so many things."""
    x0, y0, x1, y1 = rect
    if count <= 1:
        return [rect]
    x, y = (x0 + x1) // 2, (y0 + y1) // 2
    if count == 2:
        if x1 - x0 > 1.2 * (y1 - y0):
            return [(x0, y0, x, y1), (x, y0, x1, y1)]
        return [(x0, y0, x1, y), (x0, y, x1, y1)]
    return [(x0, y0, x, y), (x, y0, x1, y), (x0, y, x, y1), (x, y, x1, y1)]


def _clear(questions: Sequence[ClipQuestion]) -> list[ClipQuestion]:
    """Return the questions without those whose text has two answers, each text once."""
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for question in questions:
        answers[question.text].add(question.answer)
    first = {question.text: question for question in reversed(questions)}
    return [q for q in questions if len(answers[q.text]) == 1 and first[q.text] is q]
