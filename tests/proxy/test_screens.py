"""Screenshots that tools return, in the three APIs: found, replaced, and append-only."""

from __future__ import annotations

import base64
import copy
import io
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from arr_coc.pixels.frames import UNCHANGED
from arr_coc.pixels.rules import find_rule
from arr_coc.proxy import screens as module
from arr_coc.proxy.bodies import parse, rewritten
from arr_coc.proxy.messages import api_of
from arr_coc.proxy.screens import Screens, screen_slots, with_screens
from chat_servers import CLIENT, URL, Started
from each import each
from hostile import spoilt

Start = Callable[..., Started]
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
RULE = find_rule("32")
SIZE = (640, 416)


def screen(seed: int, *boxes: tuple[int, int, int, int]) -> str:
    """A page of marks with black boxes on it, as the base64 of a PNG."""
    rng = np.random.default_rng(seed)
    pixels = np.full((SIZE[1], SIZE[0], 3), 255, np.uint8)
    for y in range(20, 400, 30):
        marks = rng.integers(0, 2, (12, 200)).astype(np.uint8).repeat(2, 1) * 255
        pixels[y : y + 12, 40:440] = marks[..., None]
    image = Image.fromarray(pixels)
    for box in boxes:
        ImageDraw.Draw(image).rectangle(box, fill="black")
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode()


THOUGHTS = {"type": "clear_thinking_20251015", "keep": "all"}
A, B = screen(1), screen(1, (460, 100, 500, 140))


def picture(api: str, data: str) -> dict[str, Any]:
    return {
        "chat": {"type": "image_url", "image_url": {"url": URL + data}},
        "responses": {"type": "input_image", "image_url": URL + data},
        "messages": {
            "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data},
        },
    }[api]  # fmt: skip


def words(api: str, text: str) -> dict[str, Any]:
    return {"type": "input_text" if api == "responses" else "text", "text": text}


def result(api: str, parts: list[dict[str, Any]], number: int = 0) -> list[dict[str, Any]]:
    """The turns in which a tool is called and answers."""
    name = f"t{number}"
    if api == "messages":
        call = {"type": "tool_use", "id": name, "name": "shot", "input": {}}
        block = {"type": "tool_result", "tool_use_id": name, "content": parts}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}]
    if api == "chat":
        calls = [{"id": name, "type": "function", "function": {"name": "shot", "arguments": "{}"}}]
        return [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": name, "content": parts},
        ]
    return [
        {"type": "function_call", "call_id": name, "name": "shot", "arguments": "{}"},
        {"type": "function_call_output", "call_id": name, "output": parts},
    ]


def body_of(api: str, turns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "m", "input" if api == "responses" else "messages": turns}


def session(api: str, *shots: str) -> dict[str, Any]:
    """A body with a screenshot in each result, behind a sentence."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Order a lamp."}]
    for number, data in enumerate(shots):
        turns += result(api, [words(api, "Done."), picture(api, data)], number)
    return body_of(api, turns)


def api(name: str) -> Any:
    found = api_of(PATHS[name])
    assert found is not None
    return found


def sent(name: str, body: dict[str, Any], screens: Screens, way: str = "parts") -> bytes:
    """What goes on of a body, by the proxy's own functions."""
    content = json.dumps(body).encode()
    parsed = parse(api(name), content, 100)
    if parsed is None:
        return content
    outcomes = screens.decide(parsed.screens, RULE, way)
    parts = {slot: one.parts for slot, one in zip(parsed.screens, outcomes, strict=True) if one.parts}
    made = rewritten(api(name), content, parsed, {}, screens=parts)
    return content if made is None else made


def results_of(name: str, content: bytes) -> list[Any]:
    """The parts of each result in a body."""
    turns = json.loads(content)["input" if name == "responses" else "messages"]
    if name == "messages":
        blocks = [b for t in turns if isinstance(t["content"], list) for b in t["content"]]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]
    if name == "chat":
        return [turn["content"] for turn in turns if turn.get("role") == "tool"]
    return [turn["output"] for turn in turns if turn.get("type") == "function_call_output"]


class TestWhatIsFound:
    @each("name", [*PATHS])
    def test_a_sentence_and_parts_take_the_place(self, name: str) -> None:
        body = session(name, A, A, B)
        first, second, third = results_of(name, sent(name, body, Screens("parts")))
        assert first == [words(name, "Done."), picture(name, A)]
        assert second == [words(name, "Done."), words(name, UNCHANGED)]
        done, caption, part = third
        assert done == words(name, "Done.")
        assert "This is x 400 to 560, y 80 to 160 of the screen of 640 x 416 px" in caption["text"]
        assert part["type"] == picture(name, A)["type"]
        data = json.dumps(part).split("base64,")[-1].split('"data": "')[-1].split('"')[0]
        assert Image.open(io.BytesIO(base64.b64decode(data))).size == (160, 80)
        again = copy.deepcopy(body)
        sent(name, body, Screens("parts"))
        assert body == again

    def test_marks_and_fields_stay(self) -> None:
        body = session("messages", A, A)
        block = body["messages"][-1]["content"][0]
        block |= {"is_error": False, "cache_control": {"type": "ephemeral"}}
        block["content"][1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
        made = json.loads(sent("messages", body, Screens()))["messages"][-1]["content"][0]
        assert made["cache_control"] == {"type": "ephemeral"}
        assert made["is_error"] is False
        assert made["content"][1] == words("messages", UNCHANGED) | {
            "cache_control": {"type": "ephemeral", "ttl": "1h"}
        }

    def test_where_turns_may_be_dropped_nothing_is_done(self) -> None:
        for name, more in (
            ("responses", {"truncation": "auto"}),
            ("messages", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
            ("responses", {"context_management": [{"type": "compaction"}]}),
            ("messages", {"context_management": {"edits": [THOUGHTS, {"type": "of tomorrow"}]}}),
            ("messages", {"context_management": {"edits": [THOUGHTS, 7]}}),
            ("messages", {"context_management": {"edits": "all"}}),
            ("messages", {"context_management": "all"}),
        ):
            body = session(name, A, A)
            assert len(screen_slots(api(name), body)) == 2
            assert screen_slots(api(name), body | more) == []
        for more in ({"edits": [THOUGHTS]}, {"edits": []}, {}, None):  # Claude Code sends the first
            assert (
                len(screen_slots(api("messages"), session("messages", A) | {"context_management": more})) == 1
            )

    @each("name", [*PATHS])
    def test_a_picture_between_begins_anew(self, name: str) -> None:
        """One of the user's, one by address and one that only a picture may stand for."""
        between = [[{"role": "user", "content": [words(name, "Like this?"), picture(name, B)]}]]
        by_address = {
            "chat": {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            "responses": {"type": "input_image", "file_id": "f"},
            "messages": {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        }[name]
        between.append(result(name, [by_address], 9))
        if name == "responses":
            output = {"type": "computer_screenshot", "image_url": URL + B}
            between.append([{"type": "computer_call_output", "call_id": "c", "output": output}])
        for turns in between:
            body = body_of(
                name, [*result(name, [picture(name, A)]), *turns, *result(name, [picture(name, A)], 1)]
            )
            assert sent(name, body, Screens("parts")) == json.dumps(body).encode()

    def test_others_are_left_alone(self) -> None:
        block = {"type": "tool_result", "content": [picture("messages", A)]}
        for name, turns in (
            ("messages", [{"role": "assistant", "content": [block]}] * 2),
            ("chat", [{"role": "assistant", "content": [picture("chat", A)]}] * 2),
            ("chat", [{"role": "tool", "content": "text"}] * 2),
            ("responses", [{"type": "function_call_output", "output": "text"}] * 2),
            ("chat", [{"role": "tool", "content": [picture("chat", A) | {"detail": "low"}]}] * 2),
        ):  # fmt: skip
            assert screen_slots(api(name), body_of(name, turns)) == []

    def test_hostile_bodies(self) -> None:
        """Whatever a body is, it is written or left alone."""
        screens, rng = Screens("parts"), random.Random(1)
        changed = 0
        for _ in range(200):
            name = rng.choice([*PATHS])
            body = spoilt(session(name, A, A, B), rng)
            slots = screen_slots(api(name), body)
            parts = {
                slot: one.parts for slot, one in zip(slots, screens.decide(slots, RULE, "parts"), strict=True)
            }
            made = with_screens(api(name), body, {slot: many for slot, many in parts.items() if many})
            changed += made is not body
        assert changed > 50


def drawn(rng: random.Random) -> str:
    """A screenshot of a session, or what can't be read."""
    if rng.random() < 0.1:
        return rng.choice(("AAAA", "not base64 \ud800", A[:400], base64.b64encode(b"GIF89a").decode()))
    boxes = ((460, 100, 500, 140), (460, 200, 475, 215), (40, 300, 639, 415), (0, 0, 639, 415))
    return screen(rng.randrange(2), *rng.sample(boxes, rng.choice((0, 0, 1, 1, 2))))


class TestLaws:
    @each("name", [*PATHS])
    def test_what_is_sent_of_a_turn_stays(self, name: str) -> None:
        """At each later turn, by another proxy, and by one that has forgotten all of it."""
        sums: dict[str, int] = {}
        for seed in range(3):
            rng = random.Random(f"{name} {seed}")
            shots = [drawn(rng) for _ in range(4)]
            shots = [rng.choice((shots[-1], rng.choice(shots), drawn(rng))) for _ in range(12)]
            screens, before = Screens("parts"), b""
            for count in range(1, len(shots) + 1):
                made = sent(name, session(name, *shots[:count]), screens)
                assert made.startswith(before)
                before = made.removesuffix(b"]}")
                if count == 9:
                    screens._histories.clear()
            screens._kept.clear()
            half = sent(name, session(name, *shots[:9]), screens)
            assert made.startswith(half.removesuffix(b"]}"))
            assert sent(name, session(name, *shots), Screens("parts")) == made
            for parts in results_of(name, made):
                kind = "whole" if len(parts) == 2 and "text" not in parts[1] else str(len(parts) > 2)
                sums[kind] = sums.get(kind, 0) + 1
        assert len(sums) == 3

    @each("name", [*PATHS])
    def test_a_sentence_speaks_of_what_is_in_the_request(self, name: str) -> None:
        """However many of the first screenshots a client drops, the first that is left is whole."""
        shots = [A, A, B, B, A, A, A, A, A, B]
        screens = Screens("parts")
        sent(name, session(name, *shots), screens)
        for dropped in range(len(shots)):
            left = [words(name, "[dropped]")] * dropped
            made = sent(name, session(name, *shots[dropped:]), screens)
            body = session(name, *shots)
            for one in results_of(name, json.dumps(body).encode())[:dropped]:
                assert len(one) == 2
            assert results_of(name, made)[0][1] == picture(name, shots[dropped])
            assert made == sent(name, session(name, *shots[dropped:]), Screens("parts"))
            turns = body["input" if name == "responses" else "messages"]
            for at, text in enumerate(left):
                turn = turns[2 + 2 * at]
                inner = turn["content"][0] if name == "messages" else turn
                inner["output" if name == "responses" else "content"] = [text]
            kept = results_of(name, sent(name, body, screens))
            assert kept[dropped][-1] == picture(name, shots[dropped])

    def test_of_a_session_one_history_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        screens = Screens("parts")
        opened = []
        real = module.next_file
        monkeypatch.setattr(module, "next_file", lambda *given: opened.append(1) or real(*given))
        shots = [screen(1, (460, 20 * n, 500, 20 * n + 10)) for n in range(8)]
        for count in range(1, 9):
            sent("messages", session("messages", *shots[:count]), screens)
            assert len(opened) == count
            assert len(screens._histories) == 1

    def test_another_rule_or_way_is_another_decision(self) -> None:
        screens = Screens("parts")
        slots = screen_slots(api("chat"), session("chat", A, B))
        parts, whole, dear = (
            screens.decide(slots, find_rule(rule), way)[1]
            for rule, way in (("32", "parts"), ("32", "unchanged"), ("gemini", "parts"))
        )
        assert (parts.layout, whole.layout, dear.layout) == ("parts", "whole", "whole")
        assert parts.before == RULE.tokens(*SIZE)
        assert parts.after < parts.before / 4

    def test_what_fails_goes_whole(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        slots = screen_slots(api("chat"), session("chat", A, "AAAA", A, A))
        assert [one.reason for one in Screens().decide(slots, RULE, "parts")] == [
            "screen", "unreadable", "screen", "packed",
        ]  # fmt: skip

        def fails(*given: Any) -> Any:
            raise RuntimeError("the double fails")

        monkeypatch.setattr(module, "next_file", fails)
        assert {one.reason for one in Screens().decide(slots, RULE, "parts")} == {"failed"}
        assert "goes whole" in caplog.text

    def test_ways(self) -> None:
        with pytest.raises(ValueError, match="use one of unchanged, parts, off"):
            Screens("some")


class TestInTheProxy:
    def asked(self, started: Started, name: str, body: dict[str, Any], **headers: str) -> Any:
        address, _, _ = started
        content = json.dumps(body).encode()
        return CLIENT.post(address + PATHS[name], content=content, headers=headers, timeout=60)

    @each("name", [*PATHS])
    def test_the_default_is_unchanged(self, start: Start, name: str) -> None:
        started = start()
        _, stand_in, proxy = started
        body = session(name, A, A, B)
        answer = self.asked(started, name, body | {"max_tokens": 9})
        assert answer.headers["x-arr-coc"] == "packed 1 of 3 pictures, 520 of 780 tokens"
        first, second, third = results_of(name, stand_in.bodies[-1])
        assert (first[1], third[1]) == (picture(name, A), picture(name, B))
        assert second[1] == words(name, UNCHANGED)
        layouts = [one.outcome.layout for one in proxy.journal.records[-1].pictures]
        assert layouts == ["whole", "unchanged", "whole"]
        page = CLIENT.get(started[0] + "/arr_coc/requests").text
        assert UNCHANGED in page
        assert "too much of it is new" in page

    def test_parts_off_and_untouched(self, start: Start) -> None:
        body = session("messages", A, B)
        started = start(screens="parts")
        self.asked(started, "messages", body)
        assert len(results_of("messages", started[1].bodies[-1])[1]) == 3
        for more, headers in (({}, {"x-arr-coc": "off"}), ({"context_management": {"edits": []}}, {})):
            self.asked(started, "messages", body | more, **headers)
            if headers:
                assert started[1].bodies[-1] == json.dumps(body | more).encode()
        off = start(screens="off")
        body = session("messages", A, A)
        answer = self.asked(off, "messages", body)
        assert off[1].bodies[-1] == json.dumps(body).encode()
        assert "x-arr-coc" not in answer.headers
        body = session("messages", A)  # nothing is replaced; its tokens count in the totals all the same
        started = start()
        one = self.asked(started, "messages", body)
        assert started[1].bodies[-1] == json.dumps(body).encode()
        assert one.headers["x-arr-coc"] == "packed 0 of 1 pictures, 260 of 260 tokens"
        assert started[2].journal.totals.before == started[2].journal.totals.after == 260

    def test_one_picture_in_place_of_each(self, start: Start) -> None:
        """A server that takes no more gets no parts."""
        started = start(screens="parts")
        self.asked(started, "chat", session("chat", A, A, B), **{"x-arr-coc-layout": "strip"})
        assert [len(parts) for parts in results_of("chat", started[1].bodies[-1])] == [2, 2, 2]

    def test_beside_pictures_of_the_user(self, start: Start) -> None:
        started = start()
        turn = {"role": "user", "content": [words("chat", "What is red?"), picture("chat", A)]}
        body = body_of(
            "chat", [turn, *result("chat", [picture("chat", B)]), *result("chat", [picture("chat", B)], 1)]
        )
        self.asked(started, "chat", body)
        record = started[2].journal.records[-1]
        assert [one.question for one in record.pictures] == ["What is red?", "", ""]
        assert results_of("chat", started[1].bodies[-1])[1] == [words("chat", UNCHANGED)]
