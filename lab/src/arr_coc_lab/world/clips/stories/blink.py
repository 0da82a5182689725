"""A story: a thing that flashes up for one frame, once or a few times."""

from __future__ import annotations

from PIL import Image

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.shapes import draw_shape, shape_box
from arr_coc_lab.world.clips.stage import Act, Span, Stage, Story, register

MOST = 3


def plan(stage: Stage, rect: Rect) -> Act:
    """One to three flashes of one frame each, at least a tick apart, none in the first frame or the last.

    Only a clip sampled at those frames shows them: the story tests sampling.
    """
    rng = stage.rng
    (colour, ink), shape = stage.take_colour(), stage.take_shape()
    x0, y0, x1, y1 = rect
    diameter = int(min(x1 - x0, y1 - y0) * rng.uniform(0.4, 0.7))
    x, y = (x0 + x1) // 2, (y0 + y1) // 2
    box = shape_box(shape, diameter, x, y)
    count = min(rng.randint(1, MOST), stage.ticks // 2)
    places, last = range(1, stage.ticks, 2), stage.count - 2
    ticks = sorted(rng.sample(places, count))
    if stage.frame(ticks[-1]) > last and ticks[-1] - 2 in ticks:  # on `last` it would touch the one before
        places = places[:-1]
        ticks = sorted(rng.sample(places, min(count, len(places))))
    frames = [min(last, stage.frame(tick) + rng.randrange(stage.tick)) for tick in ticks]
    items = [Evidence(frame, frame, (box,)) for frame in frames]
    name = f"{colour} {shape}"
    questions = [ask(rng, "flashes", "count", str(len(items)), items, name=name)]
    if len(items) == 1:
        questions.append(ask(rng, "flash", "what", name, items))

    def paint(image: Image.Image, frame: int) -> Image.Image:
        if frame in frames:
            draw_shape(image, shape, diameter, x, y, ink)
        return image

    spans = tuple(Span("flash", name, item, colour) for item in items)
    return Act("blink", paint, tuple(questions), spans)


register(Story("blink", "thing", 3, plan))
