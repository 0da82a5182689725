"""A story: a thing that moves from one side to the other."""

from __future__ import annotations

from PIL import Image

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.shapes import draw_shape, shape_box, shape_mask
from arr_coc_lab.world.clips.stage import Act, Span, Stage, Story, register

WAYS: dict[str, tuple[int, int]] = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}


def plan(stage: Stage, rect: Rect) -> Act:
    """Return a thing that is there from the beginning and crosses its rectangle at an even speed.

    Direction needs two places, so "which way" has an item for the first tick and one for the last.
    """
    rng = stage.rng
    (colour, ink), shape, way = stage.take_colour(), stage.take_shape(), rng.choice(list(WAYS))
    x0, y0, x1, y1 = rect
    diameter = int(min(x1 - x0, y1 - y0) * rng.uniform(0.22, 0.36))
    width, height = shape_mask(shape, diameter).size
    left, right = x0 + width // 2 + 2, x1 - width // 2 - 2
    top, bottom = y0 + height // 2 + 2, y1 - height // 2 - 2
    across = (rng.randint(left, right), rng.randint(top, bottom))
    steps = max(1, stage.count - 1)

    def place(frame: int) -> tuple[int, int]:
        dx, dy = WAYS[way]
        share = frame / steps if dx + dy > 0 else 1 - frame / steps
        if dx:
            return round(left + share * (right - left)), across[1]
        return across[0], round(top + share * (bottom - top))

    boxes = tuple(shape_box(shape, diameter, *place(frame)) for frame in range(stage.count))
    evidence, name = Evidence(0, stage.count - 1, boxes), f"{colour} {shape}"
    ends = (stage.moment(evidence), stage.moment(evidence, late=True))
    question = ask(rng, "direction", "direction", way, ends, name=name)

    def paint(image: Image.Image, frame: int) -> Image.Image:
        draw_shape(image, shape, diameter, *place(frame), ink)
        return image

    return Act("move", paint, (question,), (Span("thing", name, evidence, colour),))


register(Story("move", "thing", 3, plan, often=2))
