"""What the stories of a clip share: the plan of the clip, planned stories, and their registry.

A *tick* is half a second (or one frame, where frames are rarer). Everything begins at a tick, so that
answers in seconds are short numbers and most things last long enough to be sampled at two frames a second.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from PIL import Image, ImageDraw

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Canvas, Ink, Rect
from arr_coc_lab.world.fonts import font

Paint = Callable[[Image.Image, int], Image.Image]
"""Draws a story's part of a frame: (frame so far, its number) -> the frame, maybe the same object."""

MIN_TEXT = 20
"""The smallest text in px on a frame whose shorter side has `REFERENCE` px; it grows with the frame."""
REFERENCE = 448


@dataclass(frozen=True)
class Span:
    """Something that can be seen for a while, for questions across stories."""

    kind: str  # "thing", "flash", "slide", "caption", "counter" or "clock"
    name: str  # as a question calls it, such as "red circle"
    evidence: Evidence  # where and when
    colour: str = ""  # of a thing that keeps it, else ""


@dataclass(frozen=True)
class ClipQuestion:
    """A question about a clip and its answer."""

    text: str
    answer: str  # a time is a number of seconds
    # when, what, count, order, colour, direction, reading, caption, slide, while or page
    family: str
    evidence: tuple[Evidence, ...]  # items that are all needed, at least one; see `data.tracks`


@dataclass(frozen=True)
class Act:
    """A story as it was planned for one clip."""

    story: str
    paint: Paint
    questions: tuple[ClipQuestion, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass
class Stage:
    """A clip while it is being planned."""

    rng: random.Random  # the source of all random choices
    size: tuple[int, int]  # width and height of a frame in px
    count: int  # frames of the clip
    fps: float  # frames per second
    split: str  # "train", "validation" or "test"
    fonts: tuple[str, ...]  # names of the fonts to choose from
    dark: bool  # whether text is light on dark
    paper: Ink  # the background colour
    # unused colours by name, each in contrast to the background
    colours: dict[str, Ink] = field(default_factory=dict)
    shapes: list[str] = field(default_factory=list)  # names of unused shapes

    @property
    def new(self) -> bool:
        """Whether words, colours and layouts that are held out from training may be drawn."""
        return self.split == "test"

    @property
    def tick(self) -> int:
        """Frames of a tick."""
        return max(1, round(self.fps / 2))

    @property
    def ticks(self) -> int:
        """Whole ticks of the clip, at least 1; frames behind the last one belong to it."""
        return max(1, self.count // self.tick)

    @property
    def unit(self) -> float:
        """Scale of text and strips: 1 at a shorter side of `REFERENCE` px."""
        return min(self.size) / REFERENCE

    def frame(self, tick: int) -> int:
        """Return the first frame of a tick; `ticks` means the end of the clip."""
        return self.count if tick >= self.ticks else tick * self.tick

    def seconds(self, frame: int) -> str:
        """Return the time of a frame as an answer: "3.5"."""
        return f"{round(frame / self.fps, 2):g}"

    def moment(self, evidence: Evidence, late: bool = False) -> Evidence:
        """Return the first tick of an item, or its last one."""
        low = max(evidence.first, evidence.last - self.tick + 1) if late else evidence.first
        part = evidence.part(low, low + self.tick - 1)
        assert part is not None, "a part of an item that begins inside of it"
        return part

    def cuts(self, parts: int, least: int = 1) -> list[int]:
        """Ticks that divide the clip into so many parts of at least `least` ticks: parts + 1 numbers."""
        spare = self.ticks - parts * least
        inner = sorted(self.rng.randint(0, spare) for _ in range(parts - 1))
        return [0, *(place + least * (i + 1) for i, place in enumerate(inner)), self.ticks]

    def take_colour(self) -> tuple[str, Ink]:
        """Return a colour that nothing else in the clip will have; ValueError if none is left."""
        if not self.colours:
            raise ValueError("the stories need more colours than there are: name fewer of them")
        name = self.rng.choice(list(self.colours))
        return name, self.colours.pop(name)

    def take_shape(self) -> str:
        """Return a shape that nothing else in the clip will have; ValueError if none is left."""
        if not self.shapes:
            raise ValueError("the stories need more shapes than there are: name fewer of them")
        return self.shapes.pop(self.rng.randrange(len(self.shapes)))

    def text_size(self, low: int = MIN_TEXT, high: int = 28) -> int:
        """Return a random size of text in px."""
        return max(round(low * self.unit), round(self.rng.randint(low, high) * self.unit))

    def canvas(self, size: tuple[int, int]) -> Canvas:
        """Return an empty page in the clip's colours."""
        canvas = Canvas(Image.new("RGB", size, self.paper), self.rng, self.fonts, self.dark)
        return canvas


@dataclass(frozen=True)
class Story:
    """One kind of thing that happens in a clip."""

    name: str  # as `draw_clip(stories=...)` takes it
    # "page" (fills the middle alone), "thing" (shares it), "top" or "bottom" (a strip), or "effect" (over
    # everything)
    place: str
    least: int  # the fewest ticks it takes
    plan: Callable[[Stage, Rect], Act]  # (stage, its rectangle in px) -> the act
    often: int = 1  # how many may be in one clip


STORIES: dict[str, Story] = {}
"""The stories by name."""


def register(story: Story) -> Story:
    """Add a story, which `draw_clip` then uses.

    Raises:
        ValueError: the name is taken.
    """
    if story.name in STORIES:
        raise ValueError(f"story {story.name!r} is there already: choose another name")
    STORIES[story.name] = story
    return story


def write_line(image: Image.Image, xy: tuple[int, int], text: str, face: str, size: int, ink: Ink) -> Rect:
    """Write one line; its box in px."""
    draw, f = ImageDraw.Draw(image), font(face, size)
    draw.text(xy, text, font=f, fill=ink)
    x0, y0, x1, y1 = draw.textbbox(xy, text, font=f)
    return int(x0), int(y0), int(x1 + 0.99), int(y1 + 0.99)


def fitting(text: str, face: str, size: int, width: int, least: int) -> int:
    """Return the largest size (px) up to `size`, but not below `least`, at which a line fits into `width`
    px.
    """
    while size > least and font(face, size).getlength(text) > width:
        size -= 1
    return size


def inside(box: Rect, size: tuple[int, int]) -> Rect:
    """Return the part of a box that lies in a picture of a size in px."""
    x0, y0, x1, y1 = box
    return max(0, x0), max(0, y0), min(size[0], x1), min(size[1], y1)
