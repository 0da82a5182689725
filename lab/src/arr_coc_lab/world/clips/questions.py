"""Questions about clips: what they are, and those across the stories of a clip."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.clips.stage import ClipQuestion, Span, Stage
from arr_coc_lab.world.clips.vocabulary import PARAPHRASES


def ask(
    rng: random.Random, wording: str, family: str, answer: str, evidence: Sequence[Evidence], **words: str
) -> ClipQuestion:
    """Return a question in one of the paraphrases of `wording`, filled with `words`."""
    text = rng.choice(PARAPHRASES[wording]).format(**words)
    if words.get("time") == "1":
        text = text.replace("1 seconds", "1 second")
    return ClipQuestion(text, answer, family, tuple(evidence))


def across(stage: Stage, spans: Sequence[Span]) -> Iterator[ClipQuestion]:
    """Questions that combine several stories of a clip."""
    things = [span for span in spans if span.kind in ("thing", "flash")]
    yield from _starts(stage, things)
    yield from _orders(stage, things)
    yield from _counts(stage, things)
    yield from _captions(stage, spans)
    yield from _readings(stage, spans)


def _starts(stage: Stage, things: Sequence[Span]) -> Iterator[ClipQuestion]:
    """Yield what appears at a time at which nothing else does."""
    starts = Counter(thing.evidence.first for thing in things)
    for thing in things:
        first = thing.evidence.first
        if first > 0 and starts[first] == 1:
            moment = (stage.moment(thing.evidence),)
            yield ask(stage.rng, "what", "what", thing.name, moment, time=stage.seconds(first))


def _orders(stage: Stage, things: Sequence[Span]) -> Iterator[ClipQuestion]:
    """Yield which of two things comes first; the evidence is the first one, before the second appears."""
    rng = stage.rng
    single = Counter(thing.name for thing in things)
    order = [thing for thing in things if single[thing.name] == 1]
    rng.shuffle(order)
    for a, b in zip(order[::2], order[1::2], strict=False):
        early, late = sorted((a, b), key=lambda thing: thing.evidence.first)
        if late.evidence.first - early.evidence.first < stage.tick:
            continue
        before = early.evidence.part(0, late.evidence.first - 1)
        assert before is not None, "it begins before the other"
        items = (before, late.evidence)
        yield ask(rng, "order", "order", early.name, items, a=a.name, b=b.name)


def _counts(stage: Stage, things: Sequence[Span]) -> Iterator[ClipQuestion]:
    """Yield how many things the clip shows, in all, of a colour, or at a time."""
    rng = stage.rng
    if not things:
        return
    if len({thing.name for thing in things}) == len(things):
        items = [thing.evidence for thing in things]
        yield ask(rng, "count", "count", str(len(things)), items, what="shapes")
        for colour in sorted({thing.colour for thing in things} - {""}):
            same = [thing.evidence for thing in things if thing.colour == colour]
            if len(same) > 1 or rng.random() < 0.3:
                yield ask(rng, "count", "count", str(len(same)), same, what=f"{colour} shapes")
    if any(thing.kind == "flash" for thing in things):
        return  # a time in seconds does not say on which side of a flash it is meant
    frame = stage.frame(rng.randrange(stage.ticks))
    parts = [thing.evidence.part(frame, frame + stage.tick - 1) for thing in things]
    whole = [part for part in parts if part is not None and len(part) == stage.tick]
    if whole and len(whole) == len([part for part in parts if part is not None]):
        yield ask(rng, "count at", "count", str(len(whole)), whole, time=stage.seconds(frame))


def _captions(stage: Stage, spans: Sequence[Span]) -> Iterator[ClipQuestion]:
    """Yield what the caption says while a thing or slide is there, where it is one caption only."""
    captions = [span for span in spans if span.kind == "caption"]
    for span in spans:
        if span.kind not in ("thing", "slide") or len(span.evidence) == stage.count:
            continue
        shared = [(c, c.evidence.part(span.evidence.first, span.evidence.last)) for c in captions]
        overlaps = [(caption, part) for caption, part in shared if part is not None]
        if len(overlaps) == 1 and len(overlaps[0][1]) >= stage.tick:
            caption, part = overlaps[0]
            own = span.evidence.part(part.first, part.last)
            assert own is not None, "they overlap"
            event = f"the {span.name} is on screen" if span.kind == "thing" else f"{span.name} is on screen"
            yield ask(stage.rng, "caption while", "while", caption.name, (part, own), event=event)


def _readings(stage: Stage, spans: Sequence[Span]) -> Iterator[ClipQuestion]:
    """Yield what a counter or clock shows when a thing appears."""
    for thing in spans:
        if thing.kind != "thing" or thing.evidence.first == 0:
            continue
        moment = stage.moment(thing.evidence)
        for reading in spans:
            if reading.kind not in ("counter", "clock"):
                continue
            part = reading.evidence.part(moment.first, moment.last)
            if part is not None and len(part) == len(moment):
                wording = f"{reading.kind} when"
                yield ask(stage.rng, wording, "reading", reading.name, (part, moment), name=thing.name)
