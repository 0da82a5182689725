"""Bodies of requests: held with a bound on all together, read as JSON, and written so that what isn't
changed stays as it came.

    body = Body(receive, held)
    if await body.read():
        parsed = parse(api, body.content, 100)             None if the body has no pictures or can't be read
        body.content = rewritten(api, body.content, parsed, {parsed.slots[0]: parts})
    async for piece in body.pieces(): ...
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from arr_coc.proxy.fitting import held_pictures
from arr_coc.proxy.messages import (
    Api,
    Parts,
    PictureSlot,
    later_questions,
    model_of,
    picture_slots,
    with_parts,
)
from arr_coc.proxy.packing import digest_of
from arr_coc.proxy.screens import ScreenSlot, screen_slots, with_screens

MAX_BODY = 64 * 2**20  # bytes of a body that is looked into; a longer one passes as it is
MAX_BODIES = 256 * 2**20  # bytes of all bodies that are held, with what is made of them
COPIES = 2  # of a body that are made to look into it; one more where its letters are wider than a byte
PIECE = 2**18  # bytes of a body that are sent on at a time
BODY_SECONDS = 120.0  # for a body that is looked into to arrive, and for the next bytes of any other
MAX_SIGNS = 250_000  # of a body's brackets and commas: each may take hundreds of bytes once it is parsed
BLANKS = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


class Held:
    """A count of the bytes that all bodies of a server take."""

    nbytes = 0


class Body:
    """The body of a request: what of it has come and isn't sent on yet, counted with all others'.

    Args:
        receive: that gives what is still to come.
        held: where it is counted; `resize(0)` at the end.
    """

    def __init__(self, receive: Receive, held: Held) -> None:
        self.receive, self.complete = receive, False
        self.content: bytes | bytearray = bytearray()
        self.spare: bytes | bytearray = b""  # as it came, where that may have to be sent in another way
        self._held, self._nbytes = held, 0

    def resize(self, nbytes: int) -> None:
        """Count it as so many bytes."""
        self._held.nbytes += nbytes - self._nbytes
        self._nbytes = nbytes

    async def read(self) -> bool:
        """Let it arrive; False: there is more of it, or of all bodies, than may be held."""
        while not self.complete:
            self.content += await self._next()
            self.resize(len(self.content))
            if len(self.content) > MAX_BODY or self._held.nbytes > MAX_BODIES:
                return False
        return True

    def can_be_parsed(self) -> bool:
        """Count what will be made of it, too; False: that is more than may be held."""
        nbytes = len(self.content) * (1 + COPIES + (not self.content.isascii()))
        if self._held.nbytes + nbytes - self._nbytes > MAX_BODIES:
            return False
        self.resize(nbytes)
        return True

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it, to be sent on once; nothing of it is held afterwards, but for `spare`."""
        content, self.content = self.content, bytearray()
        for at in range(0, len(content), PIECE):
            yield bytes(content[at : at + PIECE])
        del content
        self.resize(len(self.spare))
        while not self.complete:
            async with asyncio.timeout(BODY_SECONDS):
                part = await self._next()
            if part:
                yield part

    async def _next(self) -> bytes:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self.complete = not message.get("more_body", False)
        return message.get("body", b"")


class Parsed(NamedTuple):
    """A body that has pictures: its values, the model that it names, its user's first ones, their digests,
    and what turns of the user behind the first one say.
    """

    body: Any
    model: str
    slots: list[PictureSlot]
    digests: list[bytes]
    others: int = 0  # pictures behind those
    questions: Mapping[int, str] = {}  # by the number of the turn
    screens: Sequence[ScreenSlot] = ()  # pictures that tools returned


def parse(api: Api, content: bytes | bytearray, most: int) -> Parsed | None:
    """A body and its user's first pictures; None if it has no pictures of anybody, can't be read or would
    take too much memory.

    The first, not the last ones: a picture that was looked at once is so in every later turn.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_SIGNS:
        return None
    try:
        body = json.loads(content.decode())
        slots, screens = picture_slots(api, body), screen_slots(api, body)
    except (ValueError, RecursionError):
        return None
    if not slots and not held_pictures(api, body):
        return None
    first = slots[:most]
    digests = [digest_of(slot.data) for slot in first]
    others = len(slots) - len(first)
    questions = later_questions(api, body, slots[0].turn) if slots else {}
    return Parsed(body, model_of(body), first, digests, others, questions, screens)


def rewritten(
    api: Api,
    content: bytes | bytearray,
    parsed: Parsed,
    parts: Mapping[PictureSlot, Parts],
    *,
    added: Mapping[int, Parts] | None = None,
    screens: Mapping[ScreenSlot, Parts] | None = None,
    fitted: Callable[[Any], Any] = lambda body: body,
) -> bytes | None:
    """A body with parts in place of pictures and others at the end of turns, then changed by `fitted`; None
    if it is as it came, or can't be written.

    What isn't in a changed part of a turn stays as it came: numbers, names that stand twice, blanks.
    """
    text = content.decode()
    span = _behind_blanks(text, 0), len(text.rstrip(" \t\n\r"))
    try:
        body = with_parts(api, parsed.body, parts, added) if parts or added else parsed.body
        body = fitted(with_screens(api, body, screens or {}))
        return None if body is parsed.body else _written(text, span, parsed.body, body).encode()
    except (ValueError, RecursionError):
        return None


def _written(text: str, span: tuple[int, int], old: Any, new: Any) -> str:
    """The JSON of `new`; what is in `old`, too, whose JSON is a span of the text, stays as it is there."""
    start, end = span
    if new is old:
        return text[start:end]
    added: list[str] = []
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() <= new.keys():
        added = [f"{_dumped(name)}:{_dumped(value)}" for name, value in new.items() if name not in old]
    elif isinstance(old, list) and isinstance(new, list) and len(old) != len(new):
        spans = (place for _, place in _members(text, start))
        shared = {id(one): slice(*place) for one, place in zip(old, spans, strict=True)}
        items = (text[shared[id(one)]] if id(one) in shared else _dumped(one) for one in new)
        return f"[{','.join(items)}]"
    elif not (isinstance(old, list) and isinstance(new, list)):
        return _dumped(new)
    places = dict(_members(text, start))  # of equal names the last one counts
    pieces, done = [], start
    for name, place in sorted(places.items(), key=lambda one: one[1]):
        pieces += [text[done : place[0]], _written(text, place, old[name], new[name])]
        done = place[1]
    pieces += [text[done : end - 1], "," if places and added else "", ",".join(added), text[end - 1]]
    return "".join(pieces)


def _members(text: str, start: int) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The name, or the number, and the span of each member of the object or list that starts there."""
    at, number = _behind_blanks(text, start + 1), 0
    while text[at] not in "]}":
        name: Any = number
        if text[start] == "{":
            name, at = _decode(text, at)
            at = _behind_blanks(text, _behind_blanks(text, at) + 1)  # behind the colon
        _, end = _decode(text, at)
        yield name, (at, end)
        at, number = _behind_blanks(text, end), number + 1
        if text[at] == ",":
            at = _behind_blanks(text, at + 1)


def _behind_blanks(text: str, at: int) -> int:
    blanks = BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
