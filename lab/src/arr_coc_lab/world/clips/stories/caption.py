"""Captions below the picture that follow each other."""

from __future__ import annotations

from itertools import pairwise

from PIL import Image, ImageDraw

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.readings import strip_colours
from arr_coc_lab.world.clips.stage import (
    MIN_TEXT,
    Act,
    ClipQuestion,
    Span,
    Stage,
    Story,
    fitting,
    inside,
    register,
    write_line,
)
from arr_coc_lab.world.clips.vocabulary import CAPTION_WHAT, CAPTION_WHO, HELD_OUT_WHAT, HELD_OUT_WHO
from arr_coc_lab.world.fonts import font

MOST = 8


def plan(stage: Stage, rect: Rect) -> Act:
    """One to eight different captions of at least a tick each, without gaps between them."""
    rng = stage.rng
    who, what = (HELD_OUT_WHO, HELD_OUT_WHAT) if stage.new else (CAPTION_WHO, CAPTION_WHAT)
    count = max(1, min(rng.randint(2, 4), stage.ticks // 2, MOST))
    texts = [f"{a} {b}" for a, b in zip(rng.sample(who, count), rng.sample(what, count), strict=True)]
    face, (paper, ink) = rng.choice(stage.fonts), strip_colours(stage)
    x0, y0, x1, y1 = rect
    least, room = round(MIN_TEXT * stage.unit), x1 - x0 - 12
    # A wide font can make a caption too long at the smallest size: then half of it has to do.
    texts = [t if font(face, least).getlength(t) <= room else " ".join(t.split()[:2]) for t in texts]
    texts = list(dict.fromkeys(texts))
    high = stage.text_size(MIN_TEXT, 26)
    cuts = [stage.frame(tick) for tick in stage.cuts(len(texts))]
    lines: list[tuple[int, int, str, int]] = []
    spans: list[Span] = []
    spare = Image.new("RGB", stage.size)
    for text, (first, stop) in zip(texts, pairwise(cuts), strict=True):
        size = fitting(text, face, high, room, least)
        x = x0 + max(4, (x1 - x0 - int(font(face, size).getlength(text))) // 2)
        y = (y0 + y1 - int(1.25 * size)) // 2
        box = inside(write_line(spare, (x, y), text, face, size, ink), stage.size)
        lines.append((x, y, text, size))
        spans.append(Span("caption", text, Evidence(first, stop - 1, (box,))))

    def paint(image: Image.Image, frame: int) -> Image.Image:
        ImageDraw.Draw(image).rectangle((x0, y0, x1 - 1, y1 - 1), fill=paper)
        part = next(i for i, span in enumerate(spans) if frame in span.evidence.frames)
        x, y, text, size = lines[part]
        write_line(image, (x, y), text, face, size, ink)
        return image

    return Act("caption", paint, tuple(_questions(stage, spans)), tuple(spans))


def _questions(stage: Stage, spans: list[Span]) -> list[ClipQuestion]:
    rng = stage.rng
    questions = [
        ask(rng, "caption first", "caption", spans[0].name, (spans[0].evidence,)),
        ask(rng, "caption last", "caption", spans[-1].name, (spans[-1].evidence,)),
    ]
    frame = stage.frame(rng.randrange(stage.ticks))
    span = next(span for span in spans if frame in span.evidence.frames)
    seconds = stage.seconds(frame)
    questions.append(ask(rng, "caption at", "caption", span.name, (span.evidence,), time=seconds))
    for a, b in pairwise(spans):
        items = (a.evidence, b.evidence)
        questions.append(ask(rng, "caption after", "caption", b.name, items, text=a.name))
    return questions


register(Story("caption", "bottom", 1, plan))
