"""A thing that changes its colour once or twice."""

from __future__ import annotations

from itertools import pairwise

from PIL import Image

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.shapes import draw_shape, shape_box
from arr_coc_lab.world.clips.stage import Act, ClipQuestion, Span, Stage, Story, register


def plan(stage: Stage, rect: Rect) -> Act:
    """Return a thing in the middle that is always there and has two or three colours of its own."""
    rng = stage.rng
    shape, parts = stage.take_shape(), 3 if stage.ticks >= 6 and len(stage.colours) >= 5 else 2
    colours = [stage.take_colour() for _ in range(rng.randint(2, parts))]
    x0, y0, x1, y1 = rect
    diameter = int(min(x1 - x0, y1 - y0) * rng.uniform(0.35, 0.6))
    x, y = (x0 + x1) // 2, (y0 + y1) // 2
    box = shape_box(shape, diameter, x, y)
    cuts = [stage.frame(tick) for tick in stage.cuts(len(colours))]
    items = [Evidence(first, last - 1, (box,)) for first, last in pairwise(cuts)]
    names = [name for name, _ in colours]
    questions: list[ClipQuestion] = [
        ask(rng, "colour first", "colour", names[0], items[:1], shape=shape),
        ask(rng, "colour last", "colour", names[-1], items[-1:], shape=shape),
        ask(rng, "colours", "count", str(len(names)), items, shape=shape),
    ]
    for i in range(1, len(names)):
        change = (stage.moment(items[i - 1], late=True), stage.moment(items[i]))
        seconds, colour = stage.seconds(items[i].first), names[i]
        questions.append(ask(rng, "turn", "when", seconds, change, shape=shape, colour=colour))
    if len(names) > 2:
        pair = items[:2]
        questions.append(ask(rng, "colour after", "colour", names[1], pair, shape=shape, colour=names[0]))

    def paint(image: Image.Image, frame: int) -> Image.Image:
        part = next(i for i, item in enumerate(items) if frame in item.frames)
        draw_shape(image, shape, diameter, x, y, colours[part][1])
        return image

    whole = Evidence(0, stage.count - 1, (box,))
    return Act("recolour", paint, tuple(questions), (Span("thing", shape, whole),))


register(Story("recolour", "thing", 3, plan))
