"""Bodies of requests: what is held of all together, and that a changed one keeps the words that came."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from arr_coc.proxy import bodies
from arr_coc.proxy.bodies import Body, Held, parse, rewritten
from arr_coc.proxy.messages import APIS, Api, api_of, with_parts
from chat_servers import URL

PARTS = (("An overview.", "AAAA"), ("A detail.", "BBBB"))


def api(path: str) -> Api:
    found = api_of(path)
    assert found is not None
    return found


def body_of(held: Held, *messages: bytes, more: bool = False) -> Body:
    """A body that comes in some messages; with `more`, whoever sends it goes behind them."""
    coming = [
        {"type": "http.request", "body": part, "more_body": more or number < len(messages) - 1}
        for number, part in enumerate(messages)
    ]

    async def receive() -> Any:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    return Body(receive, held)


async def all_of(body: Body) -> bytes:
    return b"".join([piece async for piece in body.pieces()])


class TestMemory:
    def test_it_is_held_until_it_is_sent_on(self) -> None:
        async def check() -> None:
            held = Held()
            body = body_of(held, b"a" * bodies.PIECE, b"b")
            assert await body.read()
            assert (body.complete, held.nbytes) == (True, bodies.PIECE + 1)
            pieces = body.pieces()
            assert await anext(pieces) == b"a" * bodies.PIECE
            assert (held.nbytes, body.content) == (bodies.PIECE + 1, b"")
            assert [piece async for piece in pieces] == [b"b"]
            assert held.nbytes == 0
            body.resize(0)
            assert held.nbytes == 0

        asyncio.run(check())

    def test_one_that_is_complete_when_all_are_too_much_has_no_rest(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else it would be waited for ever."""
        monkeypatch.setattr(bodies, "MAX_BODIES", 100)

        async def check() -> None:
            held = Held()
            others = body_of(held, b"x" * 60)
            assert await others.read()
            body = body_of(held, b"a" * 30, b"b" * 30)
            assert not await body.read()
            assert await all_of(body) == b"a" * 30 + b"b" * 30
            assert held.nbytes == 60
            with pytest.raises(ClientDisconnect):
                await body_of(held, b"a", more=True).read()

        asyncio.run(asyncio.wait_for(check(), 10))

    def test_what_is_made_of_it_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bodies, "MAX_BODIES", 100)

        async def check() -> None:
            for content, fits in ((b"a" * 33, True), (b"a" * 34, False), ("é".encode() * 13, False)):
                held = Held()
                body = body_of(held, content)
                assert await body.read()
                assert body.can_be_parsed() == fits
                assert held.nbytes == len(content) * (3 if fits else 1)

        asyncio.run(check())

    def test_one_whose_bytes_stay_out_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bodies, "BODY_SECONDS", 0.01)

        async def check() -> None:
            with pytest.raises(TimeoutError):
                await all_of(Body(asyncio.Event().wait, Held()))  # type: ignore[arg-type]

        asyncio.run(check())

    def test_many_signs_are_not_parsed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = b'{"prompt": "?", "images": ["a", "b"]}'
        assert parse(api("/api/generate"), content, 32) is not None
        first = parse(api("/api/generate"), content, 1)
        assert first is not None
        assert ([slot.data for slot in first.slots], first.others) == (["a"], 1)
        monkeypatch.setattr(bodies, "MAX_SIGNS", 3)
        assert parse(api("/api/generate"), content, 32) is None


CHAT = r"""
 {"model":"m" , "top_p": 1e999, "seed":-0, "x":0.10000000000000000555, "x" :1.0E5,"é":"\u00e9é😀\/",
  "messages": [ {"role":"system", "content" : "Be brief.","n": 1e-999},
   {"role":"user","content": [ {"type":"text","text":"What\u0020is red?", "y": 1.10},
      {"type":"image_url","image_url":{"url":"%s"}} , {"z":1e999, "type":"other"} ], "temperature": 1e400 },
   {"role":"user", "content" :"And \u00fc?" } ]
 , "big": 123456789012345678901234567890 }
"""


class TestWriting:
    def test_what_is_not_changed_stays_as_it_came(self) -> None:
        content = (CHAT % (URL + "AB\\/C")).encode()
        parsed = parse(api("/v1/chat/completions"), content, 32)
        assert parsed is not None
        (slot,) = parsed.slots
        made = rewritten(api("/v1/chat/completions"), content, parsed, {slot: PARTS})
        assert made is not None
        begun, _, end = content.partition(b'[ {"type":"text"')
        assert made.startswith(begun.lstrip())
        assert made.endswith(end[end.index(b', "temperature"') :].rstrip())
        for words in (rb'"text":"What\u0020is red?", "y": 1.10}', b'{"z":1e999, "type":"other"}'):
            assert words in made
        url = {"url": URL + "AAAA"}
        assert json.loads(made)["messages"][1]["content"][2] == {"type": "image_url", "image_url": url}

    def test_a_single_prompt_too(self) -> None:
        content = b'{"options":{"temperature":1e999,"seed":-0},"images":[ "x","y" ],"model" : "m"}'
        parsed = parse(api("/api/generate"), content, 32)
        assert parsed is not None
        made = rewritten(api("/api/generate"), content, parsed, {parsed.slots[1]: PARTS})
        assert made == (
            b'{"options":{"temperature":1e999,"seed":-0},"images":["x","AAAA","BBBB"],"model" : "m"'
            b',"prompt":"An overview.\\nA detail.\\n"}'
        )

    def test_a_number_of_a_changed_part_that_json_has_not(self) -> None:
        part = b'{"type":"image","deep":1e999,"source":{"type":"base64","data":"A"}}'
        content = b'{"messages":[{"content":[' + part + b"]}]}"
        parsed = parse(api("/v1/messages"), content, 32)
        assert parsed is not None
        assert not parsed.slots
        assert rewritten(api("/v1/messages"), content, parsed, {}) is None
        both = content.replace(b"[" + part, b"[" + part.replace(b"1e999", b"1") + b"," + part)
        parsed = parse(api("/v1/messages"), both, 32)
        assert parsed is not None
        (slot,) = parsed.slots
        made = rewritten(api("/v1/messages"), both, parsed, {slot: PARTS})
        assert made is not None
        assert made.endswith(b"," + part + b"]}]}")

    def test_whatever_it_is_it_says_the_same(self) -> None:
        rng = random.Random(56)
        changed = 0
        for _ in range(150):
            one = rng.choice(APIS)
            content = written_by_anybody(rng, body(rng, one)).encode()
            parsed = parse(one, content, 32)
            if parsed is None:
                continue
            parts = {slot: PARTS[: rng.randint(1, 2)] for slot in parsed.slots if rng.random() < 0.7}
            made = rewritten(one, content, parsed, parts)
            assert (made is None) == (not parts)
            if made is not None:
                assert json.loads(made) == with_parts(one, parsed.body, parts)
            changed += bool(parts)
        assert changed > 40


def body(rng: random.Random, one: Api) -> Any:
    """A body with some turns, parts and pictures."""

    def part() -> Any:
        data = rng.choice(["A", "AA/B", "é"])
        source = {"type": "base64", "data": data}
        return rng.choice(
            [
                {"type": one.text, "text": rng.choice(["", "What?", "\u2028\"\\"])},
                {"type": one.picture, "image_url": {"url": URL + data}, "source": source},
                {"type": one.picture, "image_url": URL + data, "more": [1, 2.5, {}, [], None]},
            ]
        )  # fmt: skip

    def turn() -> Any:
        if one.text:
            return {"role": "user", "content": [part() for _ in range(rng.randrange(4))]}
        words = {"content": "Why?", "prompt": "Why?"} if rng.random() < 0.5 else {}
        return words | {"images": [rng.choice(["A", "B"]) for _ in range(rng.randrange(4))]}

    others = {"model": "m", "stream": True, "stop": [], "options": {"a": {}}}
    return others | ({one.turns: [turn() for _ in range(rng.randrange(1, 4))]} if one.turns else turn())


def written_by_anybody(rng: random.Random, value: Any) -> str:
    """JSON with blanks anywhere, and names that stand twice."""
    blank = "".join(rng.choices(" \t\n\r", k=rng.randrange(3)))
    if isinstance(value, dict):
        pairs = [(name, one) for name, one in value.items() for _ in range(rng.choice((1, 1, 1, 2)))]
        items = (f"{json.dumps(name)}{blank}:{written_by_anybody(rng, one)}" for name, one in pairs)
        return f"{blank}{{{blank}{','.join(items)}{blank}}}"
    if isinstance(value, list):
        return f"{blank}[{blank}{','.join(written_by_anybody(rng, one) for one in value)}{blank}]{blank}"
    return blank + json.dumps(value, ensure_ascii=rng.random() < 0.5) + blank
