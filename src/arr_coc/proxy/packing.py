"""Pictures of requests, chosen and packed off the event loop, with bounds on memory and time.

    packer = Packer(workers=2)
    outcome = await packer.pack(Picture(data, digest_of(data), "What is the total?"), dial)

`outcome.parts` are captions and pictures to send in a picture's place; without any it goes on as it came, for
`outcome.reason`. Nothing raises.

An outcome follows from the picture, its question and the settings alone, so that a conversation is sent alike
at each turn and by any proxy. "slow", "blocked" and "busy" alone are of a clock; they are remembered.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import logging
import re
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from cachetools import LRUCache
from PIL import Image, ImageDraw, ImageEnhance

from arr_coc.files.images import TooManyPixels, identify, open_image
from arr_coc.files.paths import shorten
from arr_coc.guide import GUIDE
from arr_coc.guide.guide import Guide, load_guide
from arr_coc.guide.trust import SURE, is_general, is_transcription
from arr_coc.pixels import Packed, find_rule, pack_for, pack_legibly
from arr_coc.pixels.limits import LOSSY, encode_picture
from arr_coc.pixels.naming import OTHER_RULE
from arr_coc.pixels.packing import READABLE
from arr_coc.pixels.page import find_page
from arr_coc.pixels.planning import reading_scale
from arr_coc.proxy.coordinates import asks_for_coordinates
from arr_coc.proxy.earlier import Shown, belief, is_shown
from arr_coc.proxy.fitting import decoded
from arr_coc.selector import Selector

MAX_PIXELS = 40_000_000  # of a picture that is chosen from, before and after `open_image` lets it grow
MAX_WAITING = 64  # pictures that wait for a worker or are at one
MAX_KEPT = 64 * 2**20  # bytes of outcomes that are kept
MAX_VERDICTS = 50_000  # on pictures, without what is sent of them, some hundred bytes each
PATIENCE = 10  # times as long a picture is waited for that was packed before: by no haste it becomes whole
THUMBNAIL = 320  # px of the longer side of the small picture in a trace
MAX_LETTERS = 5 * 2**20  # of base64 that APIs take of one picture; Anthropic's limit is the lowest

PART = re.compile(r"^Part \d+ of \d+ of")  # how the caption of one of several parts begins

log = logging.getLogger(__name__)


class Picture(NamedTuple):
    """A picture of a request: base64 of an image file, its `digest_of`, and what is asked; "": nothing."""

    data: str
    digest: bytes
    question: str


class Dial(NamedTuple):
    """What a request may set: tokens of each picture, the rule that counts them, and the layout."""

    tokens: int = 400
    rule: str = str(OTHER_RULE)
    layout: str = "auto"


class Outcome(NamedTuple):
    """What the proxy did with one picture.

    Attributes:
        reason: "packed", or why all of the picture goes on: a key of REASONS.
        parts: captions, each with a PNG or a JPEG in base64; none: the picture goes on as it came.
        before: its tokens by the rule; 0: not known.
        after: the tokens of what is sent.
        layout: of what is sent.
        confidence: that the picture holds what is asked for; None: the picture was not judged.
        size: (width, height) in px; (0, 0): not known.
        places: (box in px of the picture, magnification) of each part.
        thumbnail: a small JPEG with what was kept, in base64; "": none.
        ms: milliseconds of choosing and packing.
    """

    reason: str
    parts: tuple[tuple[str, str], ...] = ()
    before: int = 0
    after: int = 0
    layout: str = "whole"
    confidence: float | None = None
    size: tuple[int, int] = (0, 0)
    places: tuple[tuple[tuple[float, float, float, float], float], ...] = ()
    thumbnail: str = ""
    ms: float = 0.0

    @property
    def nbytes(self) -> int:
        return 1024 + len(self.thumbnail) + sum(len(caption) + len(data) for caption, data in self.parts)


REASONS = {
    "packed": "packed",
    "small": "the whole picture costs no more than what was allowed",
    "dear": "any picture costs more than what was allowed",
    "larger": "packed it would be larger, cost no less and show nothing better",
    "unsure": "it may not hold what is asked for",
    "transcription": "all that is printed was asked for",
    "recalled": "a later question needed it",
    "coordinates": "a place in px was asked for",
    "no_question": "no words came with it",
    "many_pictures": "too many pictures in the request",
    "too_large": f"more than {MAX_PIXELS // 1_000_000} megapixels",
    "unreadable": "it is no picture that can be opened",
    "screen": "a tool returned it, and too much of it is new",
    "busy": "too many pictures were waiting",
    "slow": "choosing took too long",
    "blocked": "an earlier choice took too long and has not ended",
    "failed": "choosing failed",
}
"""Why a picture was packed or goes on whole, by the names that counters and traces have."""


class Received(NamedTuple):
    """A picture as it came."""

    picture: Image.Image
    lossy: bool  # whether its file was one of a photograph
    letters: int  # of its base64


Make = Callable[[Selector, Received, str], Outcome]  # what a worker does with a picture and a question


class Packer:
    """Worker threads that choose and pack, each with a selector of its own, and what they have made.

    A picture is always given to the same worker, whose selector keeps the encodings of its last pictures.
    What became of it for its question is kept, so that it costs nothing to send it again, and so that it
    becomes the same again where choosing took too long or too many waited. A worker that is still at a choice
    whose time is over gets no other one.

    Args:
        workers: threads.
        guide: that all of them share; None: the bundled one.
        relevance: of the selectors, as in `Selector`; an OCR takes seconds for each new picture.
        sure: the least confidence, in [0, 1], that a picture holds what is asked for; below, all of it goes
            on, as small as its print stays legible, or as it came if it is a photograph.
        readable: px of a line of print that the models behind the proxy still read half of the time, as in
            `pack_for`.
        seconds: after which a picture goes on whole.
    """

    def __init__(
        self,
        workers: int = 2,
        guide: Guide | None = None,
        relevance: str = GUIDE,
        sure: float = SURE,
        readable: float = READABLE,
        seconds: float = 20.0,
    ) -> None:
        self.sure, self.readable, self.seconds = sure, readable, seconds
        self._guide = load_guide() if guide is None else guide
        self._selectors = [Selector(self._guide, relevance=relevance) for _ in range(workers)]
        self._threads = [ThreadPoolExecutor(1, f"arr-coc-packer-{number}") for number in range(workers)]
        self._kept: LRUCache[bytes, Outcome] = LRUCache(MAX_KEPT, lambda outcome: outcome.nbytes)
        self._verdicts: LRUCache[bytes, Outcome] = LRUCache(MAX_VERDICTS)  # on those, and on many before them
        self._lock = threading.Lock()
        self._running: set[Future[Outcome]] = set()  # until they end, whoever waits for them
        self._late: list[Future[Outcome] | None] = [None] * workers  # the last choice that took too long

    @property
    def nbytes(self) -> int:
        """Bytes of the outcomes that are kept."""
        return int(self._kept.currsize)

    def close(self) -> None:
        """Let the workers end; what waits is dropped."""
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)

    async def pack_all(self, pictures: Sequence[Picture], dial: Dial) -> list[Outcome]:
        """Return the outcomes for the pictures of a request; never an error.

        A worker gets one of them at a time: the clock of each begins when the one before it is done, so that
        a long conversation that has to be packed anew isn't too slow for being long.
        """
        return await self._one_by_one(pictures, partial(self.pack, dial=dial))

    async def judge_all(self, pictures: Sequence[Picture]) -> list[Outcome]:
        """Return outcomes whose `confidence` is the `belief` that a picture's question is about it."""

        def judge(picture: Picture) -> Awaitable[Outcome]:
            return self._made(picture, _key(picture, "judged"), self._judged)

        return await self._one_by_one(pictures, judge)

    async def _one_by_one(
        self, pictures: Sequence[Picture], make: Callable[[Picture], Awaitable[Outcome]]
    ) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        of_worker: dict[int, list[int]] = defaultdict(list)
        for number, picture in enumerate(pictures):
            of_worker[self._worker(picture)].append(number)

        async def work(numbers: list[int]) -> None:
            for number in numbers:
                outcomes[number] = await make(pictures[number])

        await asyncio.gather(*map(work, of_worker.values()))
        return [outcomes[number] for number in range(len(pictures))]

    async def pack(self, picture: Picture, dial: Dial) -> Outcome:
        """Return the outcome for a picture; never an error."""
        return await self._made(picture, _key(picture, dial), partial(self._packed, dial=dial))

    async def cut(self, picture: Picture, dial: Dial, places: tuple[Shown, ...]) -> Outcome:
        """Return the outcome that sends parts of an earlier picture for a later question.

        What is printed at `places` isn't sent again; for half of the dial's tokens.
        """
        key = _key(picture, (dial, places))
        return await self._made(picture, key, partial(self._cut, dial=dial, places=places))

    async def _made(self, picture: Picture, key: bytes, make: Make) -> Outcome:
        """Return what a worker makes of a picture, or has made; never an error."""
        worker = self._worker(picture)
        if (kept := self._look_up(key)) is not None:
            return kept._replace(ms=0.0)
        # What was sent of it before is made anew, as long as that takes, within reason.
        again, late = key in self._verdicts, self._late[worker]
        if late is not None and not late.done() and not again:
            return self._keep(key, Outcome("blocked"))
        if len(self._running) >= MAX_WAITING and not again:
            return self._keep(key, Outcome("busy"))
        seconds = self.seconds * (PATIENCE if again else 1)
        try:
            work = self._threads[worker].submit(self._outcome, worker, key, picture, make)
            self._running.add(work)
            work.add_done_callback(self._running.discard)
            return await asyncio.wait_for(asyncio.wrap_future(work), seconds)
        except TimeoutError:
            if work.running():
                self._late[worker] = work
            return self._keep(key, Outcome("slow", ms=1000 * seconds))
        except ValueError as error:  # such as a question without words
            log.warning("the whole picture goes on: %s", shorten(str(error), 300))
        except Exception:
            log.exception("choosing failed; the whole picture goes on")
        return self._keep(key, Outcome("failed"))

    def _worker(self, picture: Picture) -> int:
        return picture.digest[0] % len(self._threads)

    def _outcome(self, worker: int, key: bytes, picture: Picture, make: Make) -> Outcome:
        if (kept := self._look_up(key)) is not None:  # another request has had it made meanwhile
            return kept._replace(ms=0.0)
        start = time.perf_counter()
        try:
            outcome = make(self._selectors[worker], _open(picture.data), picture.question)
        except _Unfit as reason:
            outcome = Outcome(str(reason))
        return self._keep(key, outcome._replace(ms=1000 * (time.perf_counter() - start)))

    def _packed(self, selector: Selector, received: Received, question: str, dial: Dial) -> Outcome:
        picture = received.picture
        if not question:
            return self._whole("no_question", picture, dial)
        if is_transcription(self._guide, question):
            return self._whole("transcription", picture, dial)
        if asks_for_coordinates(question):
            return self._whole("coordinates", picture, dial)
        if dial.tokens < find_rule(dial.rule).cheapest:
            return self._whole("dear", picture, dial)
        packed = pack_for(
            picture,
            (question,),
            dial.tokens,
            rule=dial.rule,
            layout=dial.layout,
            selector=selector,
            readable=self.readable,
        )
        if packed.layout == "whole":
            return self._whole("small", picture, dial, packed.confidence)
        if not self._is_unsure(packed, question):
            return self._sent("packed", received, packed, dial)
        legible = self._legible(selector, received, question, dial)
        if legible is None:
            return self._whole("unsure", picture, dial, packed.confidence)
        return self._sent("unsure", received, replace(legible, confidence=packed.confidence), dial)

    def _judged(self, selector: Selector, received: Received, question: str) -> Outcome:
        decided = selector.decide(received.picture, question, 1.0)
        return Outcome("judged", confidence=max(map(belief, decided.couplings), default=0.0))

    def _cut(
        self, selector: Selector, received: Received, question: str, dial: Dial, places: tuple[Shown, ...]
    ) -> Outcome:
        picture, rule = received.picture, find_rule(dial.rule)
        if dial.tokens < rule.cheapest:
            return self._whole("dear", picture, dial)
        packed = pack_for(
            picture,
            (question,),
            max(rule.cheapest, dial.tokens // 2),
            rule=dial.rule,
            layout="crops",
            selector=selector,
            readable=self.readable,
        )
        page = selector.beside(selector.known(picture), find_page)
        new = {
            place.picture
            for place in packed.places
            if place.origin != (0, 0, *picture.size)
            and not is_shown(place.origin, page, places, self.readable)
        }
        if not new:
            return Outcome("shown")
        numbers = dict(zip(sorted(new), range(len(new)), strict=True))
        kept = replace(
            packed,
            pictures=tuple(packed.pictures[number] for number in numbers),
            captions=_counted([packed.captions[number] for number in numbers]),
            places=tuple(
                one._replace(picture=numbers[one.picture]) for one in packed.places if one.picture in new
            ),
        )
        tokens = sum(rule.tokens(*one.size) for one in kept.pictures)
        outcome = self._sent("recalled", received, replace(kept, tokens=tokens), dial)
        return outcome._replace(before=0) if outcome.parts else outcome

    def _sent(self, reason: str, received: Received, packed: Packed, dial: Dial) -> Outcome:
        """Return the outcome that sends a packing."""
        picture = received.picture
        files = [_encoded(one, received) for one in packed.pictures]
        letters = [len(one) for one in files]
        if max(letters) > MAX_LETTERS or (sum(letters) > received.letters and not _gains(packed)):
            return self._whole("larger", picture, dial, packed.confidence)
        parts = tuple(zip(packed.captions, files, strict=True))
        places = tuple((place.origin, place.magnification) for place in packed.places)
        return Outcome(
            reason,
            parts,
            packed.whole_tokens,
            packed.tokens,
            packed.layout,
            packed.confidence,
            picture.size,
            places,
            _thumbnail(picture, packed),
        )

    def _is_unsure(self, packed: Packed, question: str) -> bool:
        """Return whether a picture may not hold what is asked for.

        A confidence says nothing for a question about all of a picture.
        """
        if packed.confidence is None or packed.confidence >= self.sure:
            return False
        return not is_general(self._guide, question)

    def _legible(self, selector: Selector, received: Received, question: str, dial: Dial) -> Packed | None:
        """Return a page as small as its print stays legible; None for photographs of something else."""
        opened = selector.known(received.picture)
        if received.lossy and not any(
            one.printed for one in selector.decide(opened, question, 1.0).couplings
        ):
            return None
        page = selector.beside(opened, find_page)
        return pack_legibly(received.picture, page, dial.tokens, dial.rule, self.readable)

    def _whole(
        self, reason: str, picture: Image.Image, dial: Dial, confidence: float | None = None
    ) -> Outcome:
        tokens = find_rule(dial.rule).tokens(*picture.size)
        return Outcome(
            reason, (), tokens, tokens, "whole", confidence, picture.size, (), _thumbnail(picture, None)
        )

    def _look_up(self, key: bytes) -> Outcome | None:
        with self._lock:
            return self._remembered(key)

    def _remembered(self, key: bytes) -> Outcome | None:
        kept, verdict = self._kept.get(key), self._verdicts.get(key)
        if kept is None and verdict is not None and verdict.layout == "whole":
            return verdict
        return kept

    def _keep(self, key: bytes, outcome: Outcome) -> Outcome:
        """Keep an outcome unless there is one already; return the one that is kept."""
        with self._lock:
            if (kept := self._remembered(key)) is not None:
                return kept
            self._verdicts[key] = outcome._replace(parts=(), places=(), thumbnail="")
            if outcome.nbytes <= self._kept.maxsize:
                self._kept[key] = outcome
            return outcome


def _key(picture: Picture, more: object) -> bytes:
    facts = picture.digest, picture.question, more
    return hashlib.blake2b(repr(facts).encode("utf-8", "replace"), digest_size=16).digest()


def digest_of(data: str) -> bytes:
    """Return a 16-byte digest of a picture's base64."""
    return hashlib.blake2b(data.encode("utf-8", "replace"), digest_size=16).digest()


class _Unfit(Exception):
    """A picture that is passed on unopened; its text is a key of REASONS."""


def _open(data: str) -> Received:
    content, _ = decoded(data)
    if content is None:
        raise _Unfit("unreadable")
    letters = -(-4 * len(content) // 3)  # without those that fill up its end
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of what `open_image` refuses or repairs
            with identify(io.BytesIO(content), "the picture") as header:
                lossy = header.format in LOSSY
            return Received(open_image(content, MAX_PIXELS), lossy, letters)
    except TooManyPixels as error:
        raise _Unfit("too_large") from error
    except ValueError as error:
        raise _Unfit("unreadable") from error


def _counted(captions: Sequence[str]) -> tuple[str, ...]:
    """Return captions of some parts of a picture that count these parts alone."""
    if len(captions) == 1:
        return (PART.sub("A part of", captions[0]),)
    return tuple(
        PART.sub(f"Part {number} of {len(captions)} of", caption)
        for number, caption in enumerate(captions, 1)
    )


def _gains(packed: Packed) -> bool:
    """Whether a packing costs less than the whole picture, or shows a part of it larger than that is read."""
    rule = find_rule(packed.rule)
    whole = reading_scale(packed.size, rule)
    scales = [reading_scale(picture.size, rule) for picture in packed.pictures]
    largest = max(place.magnification * scales[place.picture] for place in packed.places)
    return packed.tokens < packed.whole_tokens or largest > whole


def _encoded(picture: Image.Image, received: Received) -> str:
    """Return a picture in base64, as PNG, or as JPEG where it came as one or would be more than APIs take."""
    wish = received.letters if received.lossy else 0
    return base64.b64encode(encode_picture(picture, received.lossy, MAX_LETTERS, wish)).decode()


def _thumbnail(picture: Image.Image, packed: Packed | None) -> str:
    """Return a small JPEG of a picture, darkened outside the crops of a packing (None: nowhere)."""
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    if packed is not None:
        scale = small.width / picture.width, small.height / picture.height
        crops = [place.origin for place in packed.places if place.origin != (0, 0, *picture.size)]
        boxes = [
            (int(x0 * scale[0]), int(y0 * scale[1]), max(int(x1 * scale[0]), int(x0 * scale[0]) + 1),
             max(int(y1 * scale[1]), int(y0 * scale[1]) + 1))
            for x0, y0, x1, y1 in crops
        ]  # fmt: skip
        light, small = small, ImageEnhance.Brightness(small).enhance(0.35)
        for box in boxes:
            small.paste(light.crop(box), box[:2])
            ImageDraw.Draw(small).rectangle((box[0], box[1], box[2] - 1, box[3] - 1), outline="#ff7a00")
        small = small if boxes else light
    file = io.BytesIO()
    small.save(file, "JPEG", quality=70)
    return base64.b64encode(file.getvalue()).decode()


def captioned(outcome: Outcome, source: str) -> Outcome:
    """Return an outcome whose captions begin with words that say which picture its parts are of."""
    return outcome._replace(
        parts=tuple((f"{source}{caption[:1].lower()}{caption[1:]}", data) for caption, data in outcome.parts)
    )


def facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON values, without pictures."""
    return {
        "reason": outcome.reason,
        "tokens_before": outcome.before,
        "tokens_after": outcome.after,
        "layout": outcome.layout,
        "confidence": None if outcome.confidence is None else round(outcome.confidence, 4),
        "size": list(outcome.size),
        "places": [
            {"box": [round(x, 1) for x in box], "magnification": round(k, 3)} for box, k in outcome.places
        ],
        "ms": round(outcome.ms, 1),
    }
