"""A conversation through the proxy only grows: what is sent of a turn depends on it and those before it."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from arr_coc.pixels import pack_for
from arr_coc.proxy import packing, server
from arr_coc.proxy.packing import Dial, Packer, Picture, digest_of
from arr_coc.selector import Selector
from arr_coc_lab.world import draw_page
from chat_servers import (
    CLIENT,
    PATHS,
    Started,
    encoded,
    pack_double,
    sent_for,
    users_turn,
    written,
)
from each import each
from image_files import encoded as file_of

Start = Callable[..., Started]
WORDS = ("What is red?", "What is green?", "Is red beside green?", "What is purple?", "Does it fail?",
         "What is red on p801?", "Is p800 purple in red?", "And what is green on p802?", "Thanks!",
         "Read the page aloud.", "", " ")  # fmt: skip


def drawn(rng: random.Random) -> str:
    """A picture: one of a few, of which some are small or none at all."""
    sound = encoded(1280, 800 + rng.randrange(3))
    return rng.choice([sound, sound, sound, encoded(64, 48), "AAAA"])


def conversation(api: str, rng: random.Random) -> list[dict[str, Any]]:
    """Some turns of the user, of a model and of tools."""
    turns: list[dict[str, Any]] = [{"role": "system", "content": "What is green?"}] * rng.randrange(2)
    for _ in range(8):
        pictures = [drawn(rng) for _ in range(rng.choice([0, 0, 1, 1, 2]))]
        turns.append(users_turn(api, rng.choice(WORDS), pictures, rng))
        if rng.random() < 0.2:
            turns.append({**users_turn(api, "What is red?", [encoded(1280, 800)]), "role": "tool"})
        if rng.random() < 0.8:
            turns.append({"role": "assistant", "content": rng.choice(["Yes.", "What is purple?"])})
    if rng.random() < 0.3:  # a picture with a number that JSON has not, which can't be written anew
        turns.append(users_turn(api, "What is red?", [encoded(1280, 801)], rng))
        if api != "ollama":
            turns[-1]["content"][-1]["note"] = float("inf")
    return turns


@pytest.fixture
def calls(start: Start, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, str]]:
    """Pixels and question of each packing."""
    made: list[tuple[bytes, str]] = []

    def counted(picture: Any, questions: Any, *more: Any, **settings: Any) -> Any:
        made.append((picture.tobytes(), *questions))
        return pack_double(picture, questions, *more, **settings)

    monkeypatch.setattr(packing, "pack_for", counted)
    return made


@each("api", [*PATHS])
def test_what_is_sent_of_a_turn_stays(start: Start, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each later turn, by a proxy that is new, and by one that was asked in another order."""
    became: Counter[str] = Counter()
    changed = 0
    one, other = start(), start()
    for seed in range(6):
        monkeypatch.setattr(server, "MAX_PICTURES", (100, 4)[seed % 2])
        turns = conversation(api, random.Random(f"{api} {seed}"))
        before = b""
        for count in range(1, len(turns) + 1):
            sent = sent_for(one, api, turns[:count])
            assert sent.startswith(before)
            before = sent.removesuffix(b"]}")
            assert before != sent
        for record in list(one[2].journal.records)[-len(turns) :]:
            became[record.pictures[-1].outcome.reason] += 1
        changed += sent != written(api, turns)
        assert sent_for(other, api, turns) == sent
        half = sent_for(other, api, turns[: len(turns) // 2])
        assert sent.startswith(half.removesuffix(b"]}"))
    assert changed >= 3
    assert {"packed", "recalled"} < became.keys()
    assert became["packed"] >= 3


@each("api", [*PATHS])
def test_it_stays_under_load(start: Start, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many conversations at once, of which some pictures are too many: those stay whole."""
    monkeypatch.setattr(packing, "MAX_WAITING", 2)
    started = start()

    def grow(seed: int) -> int:
        turns = conversation(api, random.Random(f"{api} {seed}"))
        address, before = started[0], b""
        for count in range(1, len(turns) + 1):
            content = written(api, [{"role": "system", "content": f"talk {seed}"}, *turns[:count]])
            CLIENT.post(address + PATHS[api], content=content, timeout=60).raise_for_status()
            mark = b"talk %d" % seed
            sent = next(body for body in reversed(list(started[1].bodies)) if mark in body)
            assert sent.startswith(before)
            before = sent.removesuffix(b"]}")
        return len(turns)

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(grow, range(6))) > 40
    assert b'reason="busy"' in started[2].journal.metrics()


@each("api", [*PATHS])
def test_a_turn_costs_its_new_pictures(start: Start, calls: list[tuple[bytes, str]], api: str) -> None:
    """And "Thanks!" nothing, whatever the conversation is of."""
    started, turns = start(), []
    calls.clear()
    for number in range(6):
        question = ("What is red?", "What is green?", "What is purple?")[number % 3]
        turns.append(users_turn(api, question, [encoded(1280, 800 + number)]))
        sent_for(started, api, turns)
        assert len(calls) == number + 1
        turns += [{"role": "assistant", "content": "Yes."}, users_turn(api, "Thanks!", [])]
        sent_for(started, api, turns)
        assert len(calls) == number + 1
        turns.append({"role": "assistant", "content": "With pleasure."})
    assert [question for _, question in calls[:3]] == ["What is red?", "What is green?", "What is purple?"]
    seconds = [one.outcome.ms for one in started[2].journal.records[-1].pictures]
    assert seconds == [0.0] * 6


def test_a_picture_is_judged_by_its_own_turn(start: Start, calls: list[tuple[bytes, str]]) -> None:
    """Where that has no words, by the last before it; where none are before it, it is whole for ever."""
    picture, other = encoded(1280, 800), encoded(1280, 801)
    started = start()
    turns = [users_turn("chat", "", [picture]), users_turn("chat", "What is red?", [other])]
    turns += [users_turn("chat", "", [picture]), users_turn("chat", "What is purple?", [picture])]
    turns += [users_turn("chat", "What is green?", [])]
    sent_for(started, "chat", turns)
    assert [question for _, question in calls] == ["What is red?", "What is red?", "What is purple?"]
    record = started[2].journal.records[-1]
    reasons = [one.outcome.reason for one in record.pictures]
    assert reasons == ["no_question", "packed", "packed", "unsure"]
    whole = record.pictures[0].outcome  # it is counted, too
    assert whole.before == whole.after == 1280 * 800 // 1024
    assert [one.question for one in record.pictures] == [
        "",
        "What is red?",
        "What is red?",
        "What is purple?",
    ]


class TestClocks:
    """Where a clock decides, the verdict stays; where it need not, none does."""

    def slowly(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        def slow(*arguments: Any, **settings: Any) -> Any:
            time.sleep(seconds)
            return pack_double(*arguments, **settings)

        monkeypatch.setattr(packing, "pack_for", slow)

    def pictures(self, count: int) -> list[Picture]:
        every = [encoded(1280, 800 + number) for number in range(count)]
        return [Picture(data, digest_of(data), "What is red?") for data in every]

    def test_a_long_conversation_is_not_too_slow_for_being_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A proxy that is new has to pack all of it at once."""
        self.slowly(monkeypatch, 0.15)
        packer = Packer(1, seconds=1.0)
        outcomes = asyncio.run(packer.pack_all(self.pictures(10), Dial()))
        assert [one.reason for one in outcomes] == ["packed"] * 10
        packer.close()

    def test_what_was_packed_is_not_too_slow_when_it_is_forgotten(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(packing, "pack_for", pack_double)
        monkeypatch.setattr(packing, "MAX_KEPT", 30_000)
        packer = Packer(1, seconds=30)
        first, *others = self.pictures(12)
        parts = asyncio.run(packer.pack(first, Dial())).parts
        asyncio.run(packer.pack_all(others, Dial()))
        assert packer.nbytes <= 30_000
        packer.seconds = 0.2
        self.slowly(monkeypatch, 0.6)
        monkeypatch.setattr(packing, "MAX_WAITING", 0)
        (new,) = self.pictures(13)[12:]
        assert asyncio.run(packer.pack(new, Dial())).reason == "busy"
        again = asyncio.run(packer.pack(first, Dial()))
        assert (again.reason, again.parts) == ("packed", parts)
        assert again.ms > 500  # it had been forgotten
        packer.close()


@pytest.mark.slow
def test_with_the_guide(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "pack_for", pack_for)
    monkeypatch.setattr(packing, "Selector", Selector)
    one, other = start(seconds=300), start(seconds=300)
    turns: list[dict[str, Any]] = []
    before = b""
    for seed in range(4):
        page = draw_page(seed, (1024, 768), "test", void=False)
        data = base64.b64encode(file_of(page.image, "PNG")).decode()
        for question in page.questions[:2]:
            turns.append(users_turn("chat", question.text, [data]))
            sent = sent_for(one, "chat", turns)
            assert sent.startswith(before)
            before = sent.removesuffix(b"]}")
            turns.append({"role": "assistant", "content": "Yes."})
    assert sent_for(other, "chat", turns[:-1]) == sent
    assert sum(one.outcome.reason == "packed" for one in other[2].journal.records[-1].pictures) >= 4
