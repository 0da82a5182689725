"""A line of text in a strip that changes in steps: what counters and clocks share."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.questions import ask
from arr_coc_lab.world.clips.stage import Act, ClipQuestion, Span, Stage, write_line
from arr_coc_lab.world.fonts import font


def strip_colours(stage: Stage) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Paper and ink of a strip, which differs from the clip's own."""
    canvas = stage.canvas((1, 1))
    shift = 22 if stage.dark else -22
    r, g, b = (min(255, max(0, c + shift)) for c in stage.paper)
    return (r, g, b), canvas.ink()


def reading_act(stage: Stage, rect: Rect, kind: str, label: str, values: Sequence[str], pace: int) -> Act:
    """Return a line `label value` in a strip, whose value changes every `pace` ticks.

    Args:
        stage: the clip.
        rect: the strip.
        kind: "counter" or "clock".
        label: what stands before the value, "" for nothing.
        values: one for each run of `pace` ticks.
        pace: in ticks.
    """
    rng = stage.rng
    face, size = rng.choice(stage.fonts), stage.text_size(24, 30)
    paper, ink = strip_colours(stage)
    x0, y0, x1, y1 = rect
    lead = font(face, size).getlength(label + " ") if label else 0.0
    widest = lead + max(font(face, size).getlength(value) for value in values)
    x = rng.randint(x0 + 6, max(x0 + 6, int(x1 - widest - 8)))
    y = (y0 + y1 - int(1.25 * size)) // 2
    left = x + int(lead)

    def value_at(frame: int) -> str:
        return values[min(len(values) - 1, frame // stage.tick // pace)]

    def paint(image: Image.Image, frame: int) -> Image.Image:
        ImageDraw.Draw(image).rectangle((x0, y0, x1 - 1, y1 - 1), fill=paper)
        if label:
            write_line(image, (x, y), label, face, size, ink)
        write_line(image, (left, y), value_at(frame), face, size, ink)
        return image

    spare = Image.new("RGB", stage.size)
    spans: list[Span] = []
    for i, value in enumerate(values):
        first = i * pace * stage.tick
        stop = stage.count if i == len(values) - 1 else (i + 1) * pace * stage.tick
        box = write_line(spare, (left, y), value, face, size, ink)
        spans.append(Span(kind, value, Evidence(first, stop - 1, (box,))))
    return Act(kind, paint, tuple(_questions(stage, kind, spans)), tuple(spans))


def _questions(stage: Stage, kind: str, spans: Sequence[Span]) -> list[ClipQuestion]:
    rng = stage.rng
    first, last = spans[0], spans[-1]
    questions = [
        ask(rng, f"{kind} first", "reading", first.name, (first.evidence,)),
        ask(rng, f"{kind} last", "reading", last.name, (last.evidence,)),
    ]
    for tick in rng.sample(range(stage.ticks), min(2, stage.ticks)):
        frame = stage.frame(tick)
        span = next(span for span in spans if frame in span.evidence.frames)
        seconds = stage.seconds(frame)
        questions.append(ask(rng, f"{kind} at", "reading", span.name, (span.evidence,), time=seconds))
    return questions
