"""A story: things that appear, stay for a while and go."""

from __future__ import annotations

from PIL import Image

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.shapes import draw_shape, shape_box
from arr_coc_lab.world.clips.stage import Act, ClipQuestion, Span, Stage, Story, register

MOST = 4
"""The most things of one act."""
MIN_SIDE = 64
"""The least side of a thing's own place, in px at the reference size."""


def plan(stage: Stage, rect: Rect) -> Act:
    """One to four things side by side, each with its own time; a colour may occur twice, a shape can't."""
    rng = stage.rng
    x0, y0, x1, y1 = rect
    wide = x1 - x0 >= y1 - y0
    room = int((x1 - x0 if wide else y1 - y0) / (MIN_SIDE * stage.unit))
    count = max(1, min(rng.randint(1, MOST), room, len(stage.shapes) - 3))
    colours = [stage.take_colour() for _ in range(min(len(stage.colours), max(1, count - rng.randint(0, 1))))]
    drawn, spans, questions = [], list[Span](), list[ClipQuestion]()
    for i in range(count):
        (colour, ink), shape = colours[min(i, len(colours) - 1)], stage.take_shape()
        cell = _cell(rect, wide, i, count)
        side = min(cell[2] - cell[0], cell[3] - cell[1])
        diameter = int(side * rng.uniform(0.45, 0.72))
        slack = [(cell[2] - cell[0] - 1.2 * diameter) / 2, (cell[3] - cell[1] - 1.2 * diameter) / 2]
        x = (cell[0] + cell[2]) // 2 + int(rng.uniform(-0.9, 0.9) * slack[0])
        y = (cell[1] + cell[3]) // 2 + int(rng.uniform(-0.9, 0.9) * slack[1])
        # It comes after the beginning and goes before the end.
        start = rng.randint(1, stage.ticks - 2)
        first, last = stage.frame(start), stage.frame(rng.randint(start + 1, stage.ticks - 1)) - 1
        evidence = Evidence(first, last, (shape_box(shape, diameter, x, y),))
        name = f"{colour} {shape}"
        drawn.append((evidence, shape, diameter, x, y, ink))
        spans.append(Span("thing", name, evidence, colour))
        early, late = (stage.moment(evidence),), (stage.moment(evidence, late=True),)
        questions.append(ask(rng, "appear", "when", stage.seconds(first), early, name=name))
        questions.append(ask(rng, "vanish", "when", stage.seconds(last + 1), late, name=name))

    def paint(image: Image.Image, frame: int) -> Image.Image:
        for evidence, *what in drawn:
            if frame in evidence.frames:
                draw_shape(image, *what)
        return image

    return Act("appear", paint, tuple(questions), tuple(spans))


def _cell(rect: Rect, wide: bool, i: int, count: int) -> Rect:
    """Return the i-th of `count` equal parts of a rectangle, beside each other or one below the other."""
    x0, y0, x1, y1 = rect
    if wide:
        return x0 + (x1 - x0) * i // count, y0, x0 + (x1 - x0) * (i + 1) // count, y1
    return x0, y0 + (y1 - y0) * i // count, x1, y0 + (y1 - y0) * (i + 1) // count


register(Story("appear", "thing", 3, plan, often=2))
