"""Requests of chat APIs: which pictures they hold, what is asked about each, and what takes its place."""

from __future__ import annotations

import copy
import json
import math
import random
from typing import Any

import pytest

from arr_coc.pixels import RULES, find_rule
from arr_coc.pixels.naming import guess_rule
from arr_coc.proxy.messages import (
    APIS,
    MAX_QUESTION,
    api_of,
    later_questions,
    model_of,
    picture_slots,
    with_parts,
)
from chat_servers import URL
from hostile import spoilt

PARTS = (("An overview.", "AAAA"), ("A detail.", "BBBB"))


def picture_part(name: str, data: str) -> dict[str, Any]:
    return {
        "chat": {"type": "image_url", "image_url": {"url": URL + data, "detail": "high"}},
        "responses": {"type": "input_image", "image_url": URL + data, "detail": "auto"},
        "messages": {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/jpeg", "data": data},
            "cache_control": {"type": "ephemeral"},
        },
    }[name]


def body_of(name: str) -> dict[str, Any]:
    """Two turns of the user with words, pictures "one" and "two" in the first, "three" alone in a third."""
    if name == "generate":
        return {"model": "m", "prompt": "What is red?", "images": ["one", "two"], "stream": False}
    turns: list[dict[str, Any]]
    if name == "ollama":
        turns = [
            {"role": "system", "content": "Be brief.", "images": ["none"]},
            {"role": "user", "content": "What is red?", "images": ["one", "two"]},
            {"role": "assistant", "content": "The door."},
            {"role": "user", "content": "", "images": ["three"]},
            {"role": "user", "content": "And green?"},
        ]
        return {"model": "m", "messages": turns, "options": {"seed": 1}}
    kind = "input_text" if name == "responses" else "text"
    turns = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": kind, "text": "What is red?"}, picture_part(name, "one"), picture_part(name, "two"),
            ],
        },
        {"role": "assistant", "content": "The door."},
        {"role": "user", "content": [picture_part(name, "three")]},
        {"role": "user", "content": "And green?"},
    ]  # fmt: skip
    return {"model": "m", "input" if name == "responses" else "messages": turns, "temperature": 0.1}


def api(name: str) -> Any:
    paths = {"chat": "/v1/chat/completions", "generate": "/api/generate", "ollama": "/api/chat"}
    found = api_of(paths.get(name, f"/v1/{name}"))
    assert found is not None
    return found


NAMES = ("chat", "responses", "messages", "ollama", "generate")


class TestReading:
    @pytest.mark.parametrize("name", NAMES)
    def test_pictures_and_their_questions(self, name: str) -> None:
        slots = picture_slots(api(name), body_of(name))
        questions = {slot.data: slot.question for slot in slots}
        # The third came without words: what was asked before it counts. What is asked later does for none.
        assert questions == dict.fromkeys(["one", "two", *["three"][: name != "generate"]], "What is red?")

    def test_words_of_others_are_no_questions(self) -> None:
        body = {"messages": [
            {"role": "assistant", "content": [{"type": "text", "text": "x"}, picture_part("chat", "a")]},
            {"role": "tool", "content": [picture_part("chat", "b")]},
            {"role": "user", "content": [picture_part("chat", "c")]},
        ]}  # fmt: skip
        assert [(slot.data, slot.question) for slot in picture_slots(api("chat"), body)] == [("c", "")]

    def test_results_of_tools_are_left_alone(self) -> None:
        """An agent answers in the coordinates of the screenshots that its tools return."""
        result = {"type": "tool_result", "tool_use_id": "t", "content": [picture_part("messages", "a")]}
        body = {"messages": [{"role": "user", "content": [result, {"type": "text", "text": "Go on."}]}]}
        assert picture_slots(api("messages"), body) == []

    def test_pictures_by_address_and_of_a_fixed_price_are_left_alone(self) -> None:
        for part in (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
            {"type": "image_url", "image_url": {"url": URL + "AAAA", "detail": "low"}},
            {"type": "image_url", "image_url": "https://example.org/a.png"},
            {"type": "image_url", "image_url": {"url": URL + "AAAA"}, "detail": "low"},
            {"type": "image_url", "image_url": {"url": URL + "AAAA", "detail": "tiny"}},
        ):
            body = {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}]}
            assert picture_slots(api("chat"), body) == []
        source = {"type": "url", "url": "https://example.org/a.png"}
        content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
        assert picture_slots(api("messages"), {"messages": [{"role": "user", "content": content}]}) == []

    def test_forms_of_a_data_url(self) -> None:
        for url in (
            "DATA:IMAGE/PNG;BASE64,AAAA", " data:image/png;base64,AAAA",
            "data:image/svg+xml;charset=utf-8;base64,AAAA",
            "data:image/jpeg;name=a%20b.jpg;base64,AAAA", "data:image/png ; base64 ,AAAA",
            "data:application/octet-stream;base64,AAAA",
        ):  # fmt: skip
            part = {"type": "image_url", "image_url": {"url": url}}
            for body, kind in (
                (
                    {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}]},
                    "chat",
                ),
                ({"prompt": "What?", "images": [url]}, "generate"),
            ):
                assert [slot.data for slot in picture_slots(api(kind), body)] == ["AAAA"], url

    def test_a_long_turn_is_asked_by_its_end(self) -> None:
        content = "x " * MAX_QUESTION + "What is the total?"
        (slot,) = picture_slots(api("generate"), {"prompt": content, "images": ["a"]})
        assert len(slot.question) <= MAX_QUESTION
        assert slot.question.endswith("What is the total?")

    def test_a_question_is_of_its_turn_or_before(self) -> None:
        """Never of a later turn, nor of another role."""
        rng = random.Random(56)
        for most in (1, 3, 40):
            words = [rng.choice(["", *map(str, range(most))]) for _ in range(60)]
            roles = [rng.choice(["user", "user", "assistant"]) for _ in words]
            turns = [
                {"role": role, "content": one, "images": ["a"]}
                for role, one in zip(roles, words, strict=True)
            ]
            slots = picture_slots(api("ollama"), {"messages": turns})
            assert [slot.turn for slot in slots] == [i for i, role in enumerate(roles) if role == "user"]
            for slot in slots:
                before = [
                    one for role, one in zip(roles, words[: slot.turn + 1], strict=False) if role == "user"
                ]
                assert slot.question == next(filter(None, reversed(before)), "")

    def test_a_part_that_cannot_be_written_is_left_alone(self) -> None:
        """It alone: else a picture that comes later would undo what was sent of those before it."""
        for name in ("chat", "responses", "messages"):
            for key, value in (
                ("note", math.inf),
                ("note", {"deep": [math.nan]}),
                ("cache_control", math.inf),
            ):
                body = body_of(name)
                part = body["input" if name == "responses" else "messages"][1]["content"][1]
                (part["image_url"] if name == "chat" and key == "note" else part)[key] = value
                assert [slot.data for slot in picture_slots(api(name), body)] == ["two", "three"]

    def test_other_paths_are_none(self) -> None:
        for path in ("/v1/models", "/v1/embeddings", "/api/tags", "/", "/v1/chat/completions/x"):
            assert api_of(path) is None


class TestWriting:
    @pytest.mark.parametrize("name", ["chat", "responses", "messages"])
    def test_captions_and_pictures_stand_where_the_picture_was(self, name: str) -> None:
        body = body_of(name)
        before = copy.deepcopy(body)
        slots = picture_slots(api(name), body)
        made = with_parts(api(name), body, {slots[1]: PARTS})
        assert body == before
        turns = "input" if name == "responses" else "messages"
        content = made[turns][1]["content"]
        assert content[:2] == before[turns][1]["content"][:2]
        assert [part.get("text") for part in content[2:]] == ["An overview.", None, "A detail.", None]
        assert [slot.data for slot in picture_slots(api(name), made)] == ["one", "AAAA", "BBBB", "three"]
        made[turns][1] = before[turns][1]
        assert made == before

    def test_marks_for_a_cache_stay_behind_the_picture(self) -> None:
        body = body_of("messages")
        slots = picture_slots(api("messages"), body)
        content = with_parts(api("messages"), body, {slots[0]: PARTS})["messages"][1]["content"]
        assert ["cache_control" in part for part in content[1:5]] == [False, False, False, True]
        assert content[2]["source"]["media_type"] == "image/png"

    def test_what_is_said_of_the_old_picture_goes_with_it(self) -> None:
        """Caches would answer for another picture, and sizes and forms be wrong or enlarge each part."""
        facts = {
            "id": "a", "file_id": "f", "image_hash": "0", "sha256": "0", "cache_key": "k",
            "min_pixels": 9, "max_pixels": 99, "resized_height": 9, "width": 9, "imageWidth": 9,
            "size": [9, 9], "format": "image/jpeg", "mime_type": "image/jpeg", "mediaType": "image/jpeg",
            "filename": "a.jpg", "name": "a.jpg", "num_bytes": 9, "orientation": 6,
            "bounding-box": [0, 0, 9, 9],
        }  # fmt: skip
        kept = {"detail": "high", "citations": {"enabled": True}, "note": "x"}
        for name in ("chat", "responses", "messages"):
            body = body_of(name)
            part = body["input" if name == "responses" else "messages"][1]["content"][1]
            part |= (
                facts
                | kept
                | {"uuid": "order-1", "cache_control": {"type": "ephemeral"}, "meta": facts | {"lane": 2}}
            )
            if name == "chat":
                part["image_url"] |= facts
            slots = picture_slots(api(name), body)
            made = with_parts(api(name), body, {slots[0]: PARTS})
            parts = made["input" if name == "responses" else "messages"][1]["content"][1:5]
            for one in parts[1::2]:
                assert not set(one) & set(facts)
                assert not name == "chat" or set(one["image_url"]) == {"url", "detail"}
                assert {key: one[key] for key in kept} == kept
                assert one["meta"] == {"lane": 2}
            assert ["cache_control" in one for one in parts] == [False, False, False, True]
            again = with_parts(api(name), body, {slots[0]: (PARTS[1], ("Another.", "CCCC"))})
            others = again["input" if name == "responses" else "messages"][1]["content"][2:5:2]
            uuids = [one["uuid"] for one in (*parts[1::2], *others)]
            assert uuids[1] == uuids[2]  # the same picture
            assert len({"order-1", *uuids}) == 4

    def test_each_picture_is_named_by_its_own_form(self) -> None:
        for name in ("chat", "responses", "messages"):
            body = body_of(name)
            slots = picture_slots(api(name), body)
            made = with_parts(api(name), body, {slots[0]: (("A photograph.", "/9j/AA"), PARTS[0])})
            written = json.dumps(made)
            assert ("image/jpeg;base64,/9j/AA" in written) != (name == "messages")
            if name == "messages":
                sources = [part["source"] for part in made["messages"][1]["content"] if "source" in part]
                assert [one["media_type"] for one in sources[:2]] == ["image/jpeg", "image/png"]

    @pytest.mark.parametrize("name", ["ollama", "generate"])
    def test_ollama_has_captions_above_the_words(self, name: str) -> None:
        body = body_of(name)
        slots = picture_slots(api(name), body)
        made = with_parts(api(name), body, {slots[1]: PARTS})
        turn = made if name == "generate" else made["messages"][1]
        assert turn["images"] == ["one", "AAAA", "BBBB"]
        assert turn["prompt" if name == "generate" else "content"] == "An overview.\nA detail.\nWhat is red?"

    @pytest.mark.parametrize("name", NAMES[:-1])
    def test_parts_are_added_to_the_end_of_a_turn(self, name: str) -> None:
        body = body_of(name)
        before = copy.deepcopy(body)
        assert later_questions(api(name), body, 1) == {4: "What is red? And green?"}
        assert later_questions(api(name), body, 0) == {1: "What is red?", 4: "What is red? And green?"}
        made = with_parts(api(name), body, {}, {4: PARTS})
        key = "input" if name == "responses" else "messages"
        assert body == before
        assert made[key][:4] == body[key][:4]
        turn = made[key][4]
        if name == "ollama":
            assert turn["content"] == "And green?\nAn overview.\nA detail."
            assert turn["images"] == ["AAAA", "BBBB"]
            return
        texts = [part.get("text") for part in turn["content"]]
        assert texts == ["And green?", "An overview.", None, "A detail.", None]
        # The new parts are read as pictures like any other.
        turn["role"] = "user"
        assert [slot.data for slot in picture_slots(api(name), made)][-2:] == ["AAAA", "BBBB"]

    def test_pictures_are_numbered_as_users_count_them(self) -> None:
        body = body_of("chat")
        by_address = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
        body["messages"][1]["content"].insert(1, by_address)
        assert [slot.number for slot in picture_slots(api("chat"), body)] == [2, 3, 4]
        assert [slot.number for slot in picture_slots(api("ollama"), body_of("ollama"))] == [1, 2, 3]

    def test_nothing_spoilt_is_more_than_passed_over(self) -> None:
        rng = random.Random(48)
        found = 0
        for name in NAMES:
            for _ in range(400):
                body = spoilt(body_of(name), rng)
                for one in APIS:
                    slots = picture_slots(one, body)
                    found += len(slots)
                    questions = later_questions(one, body, 0)
                    with_parts(one, body, dict.fromkeys(slots, PARTS), dict.fromkeys(questions, PARTS))
                model_of(body)
        assert found > 1000


class TestRules:
    @pytest.mark.parametrize(
        ("model", "rule"),
        [
            ("qwen3-vl:8b", "qwen"),
            ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5"),
            ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
            ("gpt-4.1", "gpt-4o"),
            ("gpt-5.1", "gpt-5"),
            ("gpt-5.6", "gpt-5.6"),
            ("claude-3-5-sonnet-latest", "claude-4.6"),
            ("claude-sonnet-4-5-20250929", "claude-4.6"),
            ("claude-opus-4-7", "claude"),
            ("anthropic/claude-opus-5", "claude"),
            ("gemini-2.5-flash", "gemini-2.5"),
            ("models/gemini-3-pro", "gemini"),
            ("gemma3:4b", "gemma-3"),
            ("google/gemma-4-27b-it", "gemma-4"),
            ("mistral-small3.2", "mistral"),
            ("pixtral-12b", "pixtral"),
            ("o1", "o3"),
            ("llava:13b", "32"),
            ("", "32"),
        ],
    )
    def test_of_a_models_name(self, model: str, rule: str) -> None:
        assert guess_rule(model) == rule

    def test_whatever_the_name_it_is_known(self) -> None:
        rng = random.Random(1)
        signs = "abcopqwgemini-claude345.67:/ \n\x00日"
        for _ in range(500):
            find_rule(guess_rule("".join(rng.choices(signs, k=rng.randrange(30)))))
        assert all(guess_rule(name) in RULES for name in RULES)
