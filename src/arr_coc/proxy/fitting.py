"""Every picture of a request made to fit the limits of the server that takes it, whoever sent it.

    fitter = Fitter()
    body, changes = fitter.fitted(api, body, LIMITS["claude"])      the same body where nothing breaks a limit

Those of users, models and tools alike, in any form of base64. What can't be opened becomes a line of words,
for a picture that is refused ends the conversation: it stays in the history.

A conversation only grows: what becomes of a picture depends on it alone. Where there are more pictures than
the server takes, the oldest ones become words too, half of what it takes at a time, so that what was sent
before changes once in many turns.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from cachetools import LRUCache

from arr_coc.pixels.limits import MEDIA, Limits, fit, read_header
from arr_coc.proxy.messages import Api, part_with
from arr_coc.proxy.tags import Line, placed

MAX_KEPT = 64 * 2**20  # bytes of pictures that were written anew
MAX_VERDICTS = 50_000  # on pictures, some hundred bytes each
MAX_DEPTH = 4  # of parts in parts, as in a result of a tool
ROOM = 7 / 8  # of a request's bytes, for its pictures
DATA = re.compile(r"\s*data:([^,]{0,300}),", re.IGNORECASE)
URL_SAFE = str.maketrans("-_", "+/")  # the two letters of base64 in addresses
PICTURES = {"image_url": "text", "image": "text", "input_image": "input_text", "computer_screenshot": ""}
"""The types of parts with a picture, and of parts with words beside them; "": none is taken there."""
INSIDE = ("content", "output")  # fields in which a turn, a part or a result holds parts
BLANK = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAGElEQVR42mP8z4AfMDGMKhhVMKpghCoAAKM9AT8q/1PbAAAAAElFTkSu"
    "QmCC"
)
"""A white picture of 32 x 32 px, where nothing but a picture is taken."""

Path = tuple[str | int, ...]


class HeldPicture(NamedTuple):
    """A picture in a body: the path to its part, and its base64 as it came; None if it is an address."""

    path: Path
    data: str | None
    media: str = ""  # what is said of its form, "" if nothing is


class Verdict(NamedTuple):
    """What becomes of a picture: the form that it has, and its base64 if it isn't as it came."""

    kind: str  # "": it can't be opened
    data: str = ""  # "": as it came
    size: tuple[int, int] = (0, 0)  # (width, height) in px, as it came
    sent: tuple[int, int] = (0, 0)  # as it goes on
    anew: bool = False  # whether its file was written anew


class Fitter:
    """Makes pictures fit, and remembers what became of them; it may be called from any thread."""

    def __init__(self) -> None:
        self._written: LRUCache[bytes, Verdict] = LRUCache(MAX_KEPT, lambda verdict: len(verdict.data))
        self._verdicts: LRUCache[bytes, Verdict] = LRUCache(MAX_VERDICTS)
        self._lock = threading.Lock()

    def fitted(self, api: Api, body: Any, limits: Limits, original: Any = None) -> tuple[Any, Counter[str]]:
        """Return a body whose pictures are within limits, and how many became what.

        What isn't changed is the same object. The names of what became of a picture are keys of CHANGES.
        `original` is the body as the client sent it, if pictures of it were packed (None: `body` is that);
        what is written about a picture names it by its number there.
        """
        held = held_pictures(api, body)
        names = _names(body, held, body if original is None else original, api)
        becomes: list[list[Any]] = []  # of each picture: what stands in its place
        letters: list[int | None] = []  # of base64 that each picture takes; None for one that isn't sent
        counts: Counter[str] = Counter()
        turns: Counter[Path] = Counter()
        stuck = {place for place, one in enumerate(held) if _is_stuck(_at(body, one.path))}
        for place, (one, name) in enumerate(zip(held, names, strict=True)):
            made, change = self._in_place(api, body, one, name, limits)
            turn = one.path[:-2]
            turns[turn] += 1
            if 0 < limits.a_turn < turns[turn] and change != "unreadable":
                words = f"[{name} was left out: the model takes {limits.a_turn} a turn]"
                made, change = _words(body, one, words), "left_out"
            becomes.append(made)
            is_words = change in ("unreadable", "left_out") and place not in stuck
            letters.append(None if is_words else _letters(one, made))
            counts[change] += 1
        for place in retired(letters, limits, stuck):
            most = f"{limits.pictures} a request" if limits.pictures else "no more bytes a request"
            words = f"[{names[place]} was left out: the provider takes {most}]"
            becomes[place] = _words(body, held[place], words)
            counts["left_out"] += 1
        del counts["same"]
        tree: dict[Any, Any] = {}
        for one, made in zip(held, becomes, strict=True):
            if made is not _SAME:
                _put(tree, one.path, made)
        if not tree:
            return body, counts
        if not api.text:
            _mark(api, body, held, becomes, tree)
        return _rebuilt(body, tree), counts

    def _in_place(
        self, api: Api, body: Any, one: HeldPicture, name: str, limits: Limits
    ) -> tuple[list[Any], str]:
        """Return what stands in a picture's place, _SAME if it does itself, and a key of CHANGES."""
        if one.data is None:
            return _SAME, "same"
        verdict = self._verdict(one.data, limits)
        part = _at(body, one.path)
        if not verdict.kind:
            return _words(body, one, f"[{name} was left out: it can't be opened]"), "unreadable"
        media = MEDIA[verdict.kind]
        data = verdict.data or one.data
        if not api.text:
            return (_SAME, "same") if data == part else ([data], "scaled" if verdict.anew else "mended")
        if not verdict.data and one.media == (media if part["type"] == "image" else f"data:{media};base64,"):
            return _SAME, "same"
        if verdict.anew:
            made = part_with(part, data)
            made |= {name: value for name, value in part.items() if "cache" in name}
        else:
            made = _mended(part, media, data)
        try:
            json.dumps(made, allow_nan=False)
        except (ValueError, RecursionError):  # a number that JSON has not: it can't be written anew
            return _SAME, "same"
        if not verdict.anew:
            return [made], "mended"
        kind = PICTURES[part["type"]]
        if kind and max(verdict.sent) < max(verdict.size):
            (width, height), (wide, high) = verdict.size, verdict.sent
            words = (
                f"[{name} was scaled from {width} x {height} to {wide} x {high} px, the most that "
                f"is taken: px of it times {width / wide:.4g} are px of the original]"
            )
            return [made, {"type": kind, "text": words}], "scaled"
        return [made], "scaled"

    def _verdict(self, data: str, limits: Limits) -> Verdict:
        digest = hashlib.blake2b(data.encode("utf-8", "replace"), digest_size=16)
        digest.update(limits.name.encode())
        key = digest.digest()
        with self._lock:
            if (verdict := self._written.get(key) or self._verdicts.get(key)) is not None:
                return verdict
        verdict = verdict_on(data, limits)
        with self._lock:
            if not verdict.data:
                self._verdicts[key] = verdict
            elif len(verdict.data) <= MAX_KEPT:
                self._written[key] = verdict
        return verdict


CHANGES = {
    "scaled": "written anew, to be within the limits",
    "mended": "sent with their own media type, in plain base64",
    "unreadable": "left out, since they can't be opened",
    "left_out": "left out, since no more are taken",
}
"""What became of pictures that broke a limit, by the names that counters and records have."""

_SAME: list[Any] = []


def verdict_on(data: str, limits: Limits) -> Verdict:
    """Return what becomes of a picture in any form of base64."""
    content, plain = decoded(data)
    made = None if content is None else fit(content, limits)
    header = None if made is None else read_header(made)
    if content is None or made is None or header is None:
        return Verdict("")
    if made is content:
        letters = "" if plain else base64.b64encode(content).decode()
        return Verdict(header.kind, letters, header.size, header.size)
    before = read_header(content)
    size = header.size if before is None else before.size
    if (size[0] > size[1]) != (header.size[0] > header.size[1]):  # it was turned
        size = size[::-1]
    return Verdict(header.kind, base64.b64encode(made).decode(), size, header.size, anew=True)


def decoded(data: str) -> tuple[bytes | None, bool]:
    """Return the bytes of base64, and whether it is plain: no blanks, the usual alphabet, padded to its end.

    Line breaks, blanks, the alphabet of addresses, escaped signs and a missing end are read; None for others.
    """
    try:
        return binascii.a2b_base64(data, strict_mode=True), bool(data)
    except ValueError:  # binascii's own error is one, as is a letter that isn't of ASCII
        letters = "".join(unquote(data).split()).translate(URL_SAFE).rstrip("=")
    try:
        return binascii.a2b_base64(letters + "=" * (-len(letters) % 4), strict_mode=True), False
    except ValueError:
        return None, False


def held_pictures(api: Api, body: Any) -> list[HeldPicture]:
    """Return all pictures of a body, of every role and of tools, in order."""
    if not isinstance(body, dict):
        return []
    turns = body.get(api.turns) if api.turns else [body]
    held: list[HeldPicture] = []
    for number, turn in enumerate(turns if isinstance(turns, list) else ()):
        path: Path = (api.turns, number) if api.turns else ()
        if not isinstance(turn, dict):
            continue
        if api.text:
            held += _parts(turn, path, MAX_DEPTH)
        else:
            images = turn.get("images")
            for place, data in enumerate(images if isinstance(images, list) else ()):
                if isinstance(data, str):
                    prefix = DATA.match(data)
                    held.append(
                        HeldPicture((*path, "images", place), data[prefix.end() :] if prefix else data)
                    )
    return held


def retired(letters: Sequence[int | None], limits: Limits, stuck: Collection[int] = ()) -> list[int]:
    """Return which pictures are left out for the newer ones, oldest first.

    Args:
        letters: of base64 that each picture takes, in order; None for one that was left out before.
        limits: of the server.
        stuck: pictures in whose place another picture stands if they are left out.

    Law: of a longer conversation no fewer are left out, and their number changes once in at least a quarter
    of the pictures, or of the bytes, that are taken.
    """
    most, room = limits.pictures, int(limits.request * ROOM)
    left_out: list[int] = []
    window: list[int] = []
    total = blanks = 0
    for place, count in enumerate(letters):
        if count is None:
            continue
        window.append(place)
        total += count
        if (most and len(window) + blanks > most) or (room and total > room):
            while len(window) > 1 and (
                (most and len(window) + blanks > max(1, most // 2)) or (room and total > room // 2)
            ):
                total -= letters[window[0]] or 0
                blanks += window[0] in stuck
                left_out.append(window.pop(0))
    return left_out


def _parts(part: dict[str, Any], path: Path, depth: int) -> Iterator[HeldPicture]:
    """Yield the pictures of a turn, a part or a result."""
    kind = part.get("type")
    if isinstance(kind, str) and kind in PICTURES:
        yield _held(part, path)
        return
    inside: list[tuple[Path, Any]] = [((*path, name), part[name]) for name in INSIDE if name in part]
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "content":  # of a document
        inside.append(((*path, "source", "content"), source.get("content")))
    for place, value in inside if depth else ():
        if isinstance(value, dict):
            yield from _parts(value, place, depth - 1)
        for number, one in enumerate(value if isinstance(value, list) else ()):
            if isinstance(one, dict):
                yield from _parts(one, (*place, number), depth - 1)


def _held(part: dict[str, Any], path: Path) -> HeldPicture:
    if part["type"] == "image":  # Anthropic's
        source = part.get("source")
        data = source.get("data") if isinstance(source, dict) and source.get("type") == "base64" else None
        if not isinstance(source, dict) or not isinstance(data, str):
            return HeldPicture(path, None)
        prefix = DATA.match(data)
        media = source.get("media_type") if prefix is None else None
        return HeldPicture(
            path, data[prefix.end() :] if prefix else data, media if isinstance(media, str) else ""
        )
    held = part.get("image_url")
    url = held.get("url") if isinstance(held, dict) else held
    if not isinstance(url, str) or not (prefix := DATA.match(url)):
        return HeldPicture(path, None)
    if "base64" not in prefix[1].lower():  # an SVG in plain text, such as no server takes
        return HeldPicture(path, "!")
    return HeldPicture(path, url[prefix.end() :], prefix[0])


def _mended(part: dict[str, Any], media: str, data: str) -> dict[str, Any]:
    """Return a part with the same picture, its form as it is and its base64 plain."""
    if part["type"] == "image":
        return part | {"source": part["source"] | {"media_type": media, "data": data}}
    held, url = part["image_url"], f"data:{media};base64,{data}"
    return part | {"image_url": held | {"url": url} if isinstance(held, dict) else url}


def _words(body: Any, one: HeldPicture, words: str) -> list[Any]:
    """Return what stands in the place of a picture that is left out; marks for a cache stay."""
    part = _at(body, one.path)
    if isinstance(part, str):
        return [_Words(words)]
    if not (kind := PICTURES[part["type"]]):
        return [part_with(part, BLANK)]
    marks = {name: value for name, value in part.items() if "cache" in name}
    try:
        json.dumps(marks, allow_nan=False)
    except (ValueError, RecursionError):
        marks = {}
    return [{"type": kind, "text": words} | marks]


def _is_stuck(part: Any) -> bool:
    """Return whether nothing but a picture is taken in a picture's place."""
    return isinstance(part, dict) and not PICTURES[part["type"]]


class _Words(str):
    """Words in a list of pictures, which belong into the turn's own words."""

    __slots__ = ()


def _mark(
    api: Api, body: Any, held: Sequence[HeldPicture], becomes: list[list[Any]], tree: dict[Any, Any]
) -> None:
    """Move words out of lists of pictures into the words of their turns."""
    by_turn: dict[Path, list[list[Line]]] = {}
    for one, made in zip(held, becomes, strict=True):
        lines = (
            [("", True)] if made is _SAME else [(x, False) if type(x) is _Words else ("", True) for x in made]
        )
        by_turn.setdefault(one.path[:-2], []).append(lines)
        if made and type(made[0]) is _Words:
            _put(tree, one.path, [])
    name = "content" if api.turns else "prompt"
    for path, lines in by_turn.items():
        if any(not comes for one in lines for _, comes in one):
            words = _at(body, path).get(name)
            text = placed(words if isinstance(words, str) else "", lines, numbered=not api.turns)
            _put(tree, (*path, name), [text])


def _names(body: Any, held: Sequence[HeldPicture], original: Any, api: Api) -> list[str]:
    """Return what lines call the pictures of a body: by their numbers in the body that the client sent."""
    first = held if original is body else held_pictures(api, original)
    numbers = {id(_at(original, one.path)): number for number, one in enumerate(first, 1)}
    parts = (id(_at(body, one.path)) for one in held)
    return [f"picture {numbers[part]}" if part in numbers else "a part of a picture" for part in parts]


def _letters(one: HeldPicture, made: list[Any]) -> int:
    """Return how many letters a picture takes that is sent."""
    if made is _SAME:
        return len(one.data or "")
    return len(made[0]) if isinstance(made[0], str) else letters_in(made[0])


def letters_in(part: Mapping[str, Any]) -> int:
    """Return how many letters the picture of a part takes."""
    return len(_held(dict(part), ()).data or "")


def _at(body: Any, path: Path) -> Any:
    for step in path:
        body = body[step]
    return body


def _put(tree: dict[Any, Any], path: Path, items: list[Any]) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = items


def _rebuilt(value: Any, tree: dict[Any, Any]) -> Any:
    """Return a value with items in the places that a tree of steps names; all else is the same object."""
    if isinstance(value, dict):
        return value | {
            name: one[0] if isinstance(one, list) else _rebuilt(value[name], one)
            for name, one in tree.items()
        }
    made: list[Any] = []
    for number, item in enumerate(value):
        one = tree.get(number)
        if one is None:
            made.append(item)
        else:
            made += one if isinstance(one, list) else [_rebuilt(item, one)]
    return made
