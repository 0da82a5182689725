"""Screenshots that tools return, in requests of chat APIs: where they are, and what is sent of each.

    slots = screen_slots(api, body)
    outcomes = await Screens("parts").outcomes(slots, "claude")
    body = with_screens(api, body, {slots[1]: outcomes[1].parts})

An agent's request has all screenshots of its session, as long as it keeps them: what is sent of one follows
from those before it in the same request, so that a sentence never speaks of one that was dropped.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from cachetools import LRUCache

from arr_coc.files.paths import shorten
from arr_coc.pixels.frames import SCREENS, FrameHistory, next_file
from arr_coc.pixels.rules import Rule, find_rule
from arr_coc.proxy.messages import Api, Parts, pictures_in, with_list
from arr_coc.proxy.packing import Outcome

MAX_SCREENS = 400  # of a request, the first ones; those behind them go whole
MAX_PARTS_KEPT = 64 * 2**20  # bytes of what is sent, which is kept
MAX_HISTORIES_KEPT = 192 * 2**20  # bytes of screens that the next ones are compared with
THOUGHTS = "clear_thinking"  # how edits of a context begin that drop no results
RESULTS = ("function_call_output", "custom_tool_call_output")  # items of OpenAI's responses

log = logging.getLogger(__name__)


class ScreenSlot(NamedTuple):
    """A picture in a tool's result."""

    turn: int
    block: int  # of the turn that is the result; -1: the turn is it itself
    place: int  # in the result's list
    data: str  # base64 of an image file
    session: int  # of all pictures: one that can't be compared, or is the user's, begins another


def screen_slots(api: Api, body: object) -> list[ScreenSlot]:
    """Return the first MAX_SCREENS pictures that tools returned in a body, in order.

    None are found where the server may drop results by itself, for then nobody here knows which are still
    seen: with `truncation`, or `context_management` of more than thoughts. OpenAI's `computer_call_output`
    takes nothing but a picture, so it is left as it is, as are results in the user's own words.
    """
    if not isinstance(body, dict) or not api.text or _may_drop(body):
        return []
    turns = body.get(api.turns)
    if not isinstance(turns, list):
        return []
    slots: list[ScreenSlot] = []
    session = 0
    for number, turn in enumerate(turns):
        if not isinstance(turn, dict):
            continue
        for block, result in _results(api, turn):
            held = dict(pictures_in(api, {"content": result}))
            for place, part in enumerate(result):
                if place in held:
                    slots.append(ScreenSlot(number, block, place, held[place], session))
                else:
                    session += _is_picture(part)
        session += _shows_more(turn)
    return slots[:MAX_SCREENS]


def _may_drop(body: dict[str, Any]) -> bool:
    """Return whether a server may leave results of tools out of what its model sees."""
    managed = body.get("context_management")
    edits = managed.get("edits") if isinstance(managed, dict) else managed
    edits = edits if isinstance(edits, list) else [] if edits is None else [edits]
    kinds = [str(one.get("type")) if isinstance(one, dict) else "" for one in edits]
    return body.get("truncation") == "auto" or any(not kind.startswith(THOUGHTS) for kind in kinds)


def _results(api: Api, turn: dict[str, Any]) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each block of a turn that is a tool's result, and its list of parts."""
    content: Any = None
    if api.name == "messages" and turn.get("role") == "user" and isinstance(turn.get("content"), list):
        for number, block in enumerate(turn["content"]):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                if isinstance(content := block.get("content"), list):
                    yield number, content
        return
    if api.name == "chat" and turn.get("role") == "tool":
        content = turn.get("content")
    elif api.name == "responses" and turn.get("type") in RESULTS:
        content = turn.get("output")
    if isinstance(content, list):
        yield -1, content


def _is_picture(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in ("image", "image_url", "input_image")


def _shows_more(turn: dict[str, Any]) -> bool:
    """Return whether a turn has a picture that isn't in a result of a tool."""
    content = turn.get("content")
    own = turn.get("role") == "user" and isinstance(content, list) and any(map(_is_picture, content))
    return own or turn.get("type") == "computer_call_output"


def with_screens(api: Api, body: Any, parts: Mapping[ScreenSlot, Parts]) -> Any:
    """Return a copy of a body with sentences and pictures in place of some that tools returned."""
    if not parts:
        return body
    turns = list(body[api.turns])
    held: dict[tuple[int, int], dict[int, Parts]] = {}
    for slot, many in parts.items():
        held.setdefault((slot.turn, slot.block), {})[slot.place] = many
    for (turn, block), places in held.items():
        old = turns[turn]
        if block >= 0:
            content = list(old["content"])
            content[block] = with_list(api, content[block], places)
            turns[turn] = old | {"content": content}
        elif api.name == "responses":
            turns[turn] = old | {"output": with_list(api, {"content": old["output"]}, places)["content"]}
        else:
            turns[turn] = with_list(api, old, places)
    return body | {api.turns: turns}


class Screens:
    """What is sent of screenshots, and what it was worked out from, both kept within bounds.

    Law: what is sent of a screenshot depends on those before it in the request, the rule and the way alone;
    what was forgotten is worked out again, to the same bytes.

    Args:
        way: "unchanged": one that shows nothing new becomes a sentence; "parts": of others what is new is
            sent, too; "off".

    Raises:
        ValueError: another way.
    """

    def __init__(self, way: str = "unchanged") -> None:
        if way not in SCREENS:
            raise ValueError(f"screens {shorten(way)} is not known: use one of {', '.join(SCREENS)}")
        self.way = way
        self._kept: LRUCache[bytes, Outcome] = LRUCache(MAX_PARTS_KEPT, lambda outcome: outcome.nbytes)
        self._histories: LRUCache[bytes, FrameHistory] = LRUCache(MAX_HISTORIES_KEPT, lambda one: one.nbytes)
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "arr-coc-screens")

    def close(self) -> None:
        """Let the worker end; what waits is dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def outcomes(
        self, slots: Sequence[ScreenSlot], rule: str, one_each: bool = False, side: int = 0
    ) -> list[Outcome]:
        """Return the outcomes for the screenshots of a request; none if they are left alone.

        Args:
            slots: of the request.
            rule: by which its model counts, as in `find_rule`.
            one_each: whether no picture may become several: then no parts are sent.
            side: the most px of a side that its server gets, as in `next_file`.
        """
        if self.way == "off" or not slots:
            return []
        way = "unchanged" if one_each else self.way
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._thread, self.decide, slots, find_rule(rule), way, side)

    def decide(self, slots: Sequence[ScreenSlot], rule: Rule, way: str, side: int = 0) -> list[Outcome]:
        """Return the outcomes for screenshots, those of a session in order; see `outcomes`."""
        keys, digest = [], b""
        for number, slot in enumerate(slots):
            if number == 0 or slot.session != slots[number - 1].session:
                digest = repr((rule.name, way, side)).encode()
            content = slot.data.encode("utf-8", "replace")
            digest = hashlib.blake2b(digest + content, digest_size=16).digest()
            keys.append(digest)
        with self._lock:
            remembered = [self._kept.get(key) for key in keys]
        outcomes: list[Outcome] = []
        history: FrameHistory | None = None
        behind = -1  # the last one that the history holds
        for number, outcome in enumerate(remembered):
            if outcome is None:
                first = next(at for at in range(len(slots)) if slots[at].session == slots[number].session)
                if behind != number - 1 or number == first:
                    history, behind = self._history(keys, first, number)
                for at in range(behind + 1, number + 1):
                    outcome, history = _decided(history, slots[at].data, rule, way, side)
                    self._keep(keys[at], outcome, history, keys[at - 1] if at else b"")
                behind = number
            assert outcome is not None
            outcomes.append(outcome)
        return outcomes

    def _history(self, keys: Sequence[bytes], first: int, number: int) -> tuple[FrameHistory | None, int]:
        """Return the last history that is kept of those before a screenshot, and which it is of."""
        with self._lock:
            for at in range(number - 1, first - 1, -1):
                if (history := self._histories.get(keys[at])) is not None:
                    return history, at
        return None, first - 1

    def _keep(self, key: bytes, outcome: Outcome, history: FrameHistory | None, before: bytes) -> None:
        with self._lock:
            self._histories.pop(before, None)  # of a session the newest is needed
            if outcome.nbytes <= self._kept.maxsize:
                self._kept[key] = outcome
            if history is not None and history.nbytes <= self._histories.maxsize:
                self._histories[key] = history


def _decided(
    history: FrameHistory | None, data: str, rule: Rule, way: str, side: int
) -> tuple[Outcome, FrameHistory | None]:
    """Return what is sent of a screenshot; whatever fails goes whole, and the next one is a first one."""
    start = time.perf_counter()
    try:
        content = base64.b64decode("".join(data.split()), validate=True)
        sent, history = next_file(history, content, way, rule, side)
    except ValueError as error:
        log.warning("a tool's picture goes whole: %s", shorten(str(error), 300))
        return Outcome("unreadable"), None
    except Exception:
        log.exception("a tool's picture goes whole")
        return Outcome("failed"), None
    before = rule.tokens(*sent.size)
    ms = 1000 * (time.perf_counter() - start)
    if sent.frame.kind == "whole":
        return Outcome("screen", (), before, before, size=sent.size, ms=ms), history
    files = [base64.b64encode(file).decode() for file in sent.files]
    boxes = [box for _, box in sent.frame.parts if box is not None]
    outcome = Outcome(
        "packed",
        tuple((part.caption, file) for part, file in zip(sent.frame.parts, files, strict=True)),
        before,
        sum(rule.tokens(x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes),
        sent.frame.kind,
        size=sent.size,
        places=tuple((box, 1.0) for box in boxes),
        ms=ms,
    )
    return outcome, history
