"""A slide show: different pages with hard cuts between them."""

from __future__ import annotations

from itertools import pairwise

from PIL import Image

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.blocks import code, texture
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.stage import (
    MIN_TEXT,
    Act,
    ClipQuestion,
    Span,
    Stage,
    Story,
    fitting,
    register,
    write_line,
)
from arr_coc_lab.world.clips.vocabulary import (
    HELD_OUT_FIRST,
    HELD_OUT_SECOND,
    ORDINALS,
    SLIDE_FIRST,
    SLIDE_SECOND,
)
from arr_coc_lab.world.vocabulary import LABELS

MOST = 5


def plan(stage: Stage, rect: Rect) -> Act:
    """Two to five slides, each with a title and two fields; a title, label or value occurs once in the clip.

    A question that names a slide by its place in the order needs the slides before it, too: their titles are
    items of its evidence.
    """
    rng = stage.rng
    count = min(rng.randint(2, MOST), stage.ticks)
    first, second = (HELD_OUT_FIRST, HELD_OUT_SECOND) if stage.new else (SLIDE_FIRST, SLIDE_SECOND)
    titles = [f"{a} {b}" for a, b in zip(rng.sample(first, count), rng.sample(second, count), strict=True)]
    labels = rng.sample(LABELS, 2 * count)
    cuts = [stage.frame(tick) for tick in stage.cuts(count)]
    pictures: list[Image.Image] = []
    spans: list[Span] = []
    fields: list[list[tuple[str, str, Evidence]]] = []
    for i, (start, stop) in enumerate(pairwise(cuts)):
        picture, boxes, values = _slide(stage, rect, titles[i], labels[2 * i : 2 * i + 2])
        pictures.append(picture)
        spans.append(Span("slide", f"the slide {titles[i]}", Evidence(start, stop - 1, (boxes[0],))))
        pairs = zip(labels[2 * i : 2 * i + 2], values, boxes[1:], strict=True)
        fields.append([(label, value, Evidence(start, stop - 1, (box,))) for label, value, box in pairs])

    def paint(image: Image.Image, frame: int) -> Image.Image:
        part = next(i for i, span in enumerate(spans) if frame in span.evidence.frames)
        image.paste(pictures[part], rect[:2])
        return image

    return Act("slides", paint, tuple(_questions(stage, titles, spans, fields)), tuple(spans))


def _questions(
    stage: Stage, titles: list[str], spans: list[Span], fields: list[list[tuple[str, str, Evidence]]]
) -> list[ClipQuestion]:
    rng = stage.rng
    items = [span.evidence for span in spans]
    questions = [ask(rng, "slides", "count", str(len(spans)), items)]
    for i, title in enumerate(titles):
        ordinal = ORDINALS[i]
        questions.append(ask(rng, "slide title", "slide", title, items[: i + 1], ordinal=ordinal))
        label, value, evidence = rng.choice(fields[i])
        own = (items[i], evidence)
        questions.append(ask(rng, "slide value", "slide", value, own, label=label, title=title))
        label, value, evidence = rng.choice(fields[i])
        order = (*items[:i], evidence)
        questions.append(ask(rng, "slide value at", "slide", value, order, label=label, ordinal=ordinal))
        if i:
            change = (stage.moment(items[i - 1], late=True), stage.moment(items[i]))
            seconds = stage.seconds(items[i].first)
            questions.append(ask(rng, "slide when", "when", seconds, change, title=title))
    return questions


def _slide(
    stage: Stage, rect: Rect, title: str, labels: list[str]
) -> tuple[Image.Image, list[Rect], list[str]]:
    """Return a slide of the rectangle's size; the boxes (px of the frame) of its title and fields; the
    values.
    """
    rng = stage.rng
    x0, y0, x1, y1 = rect
    width, height = x1 - x0, y1 - y0
    canvas = stage.canvas((width, height))
    canvas.image.paste(canvas.paper(40), (0, 0, width, height))
    face, ink, margin = rng.choice(stage.fonts), canvas.ink(), max(8, width // 20)
    least = round(MIN_TEXT * stage.unit)
    size = fitting(title, face, stage.text_size(32, 44), width - 2 * margin, least)
    boxes = [write_line(canvas.image, (margin, height // 12), title, face, size, ink)]
    canvas.draw.line((margin, boxes[0][3] + 8, width - margin, boxes[0][3] + 8), fill=ink, width=2)
    y, values = boxes[0][3] + height // 10, []
    # In the test split alone the fields may stand on the right.
    left = width // 3 if stage.new and rng.random() < 0.3 else margin
    small = max(least, min(stage.text_size(22, 30), height // 10))
    for label in labels:
        values.append(code(rng))
        line = f"{label.capitalize()}: {values[-1]}"
        size = fitting(line, face, small, width - left - 4, least)
        boxes.append(write_line(canvas.image, (left, y), line, face, size, ink))
        y = boxes[-1][3] + height // 12
    if height - y > max(60 * stage.unit, margin):  # of a wide frame the margin may be more than what is left
        texture(canvas, (margin, y, width - margin, height - margin))
    return canvas.image, [(a + x0, b + y0, c + x0, d + y0) for a, b, c, d in boxes], values


register(Story("slides", "page", 2, plan))
