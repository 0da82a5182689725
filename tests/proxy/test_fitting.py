"""Pictures of every role made to fit: forms of base64, media types, fields, batches."""

from __future__ import annotations

import base64
import copy
import io
import json
import random
import time
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from arr_coc.pixels.limits import LIMITS, Limits
from arr_coc.proxy.bodies import parse, rewritten
from arr_coc.proxy.fitting import BLANK, Fitter, decoded, held_pictures, retired
from arr_coc.proxy.messages import api_of
from image_files import encoded
from strict_upstream import PATHS, body_of, letters, pool

NONE = Limits("none", "", "")
CLAUDE = LIMITS["claude"]
PNG = encoded(Image.new("RGB", (60, 40), "red"), "PNG")
WIDE = encoded(Image.new("RGB", (2560, 1440), "navy"), "PNG")
JPEG = encoded(Image.new("RGB", (60, 40), "red"), "JPEG")


def api(path: str) -> Any:
    found = api_of(path)
    assert found is not None
    return found


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def fitted(path: str, body: Any, limits: Limits = NONE) -> Any:
    before = copy.deepcopy(body)
    made, _ = Fitter().fitted(api(path), body, limits)
    assert body == before
    return made


def image(content: bytes, media: str = "image/png", **more: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": text(content)}} | more


def size(data: str) -> tuple[int, int]:
    return Image.open(io.BytesIO(base64.b64decode(data, validate=True))).size


class TestForms:
    def test_nothing_to_do_is_the_same_object(self) -> None:
        body = {"messages": [{"role": "user", "content": [image(PNG), {"type": "text", "text": "What?"}]}]}
        made, changes = Fitter().fitted(api("/v1/messages"), body, CLAUDE)
        assert made is body
        assert not changes

    def test_any_base64_becomes_plain(self) -> None:
        rng = random.Random(1)
        for _ in range(200):
            content = rng.randbytes(rng.randrange(1, 90))
            form = letters(rng, content, calm=False)
            back, plain = decoded(form)
            assert back is None or plain == (form != "" and text(back) == form)
        assert decoded("") == (b"", False)
        for form in ("%%%%", "日本", "A", "AA=A", "AAAA!"):
            assert decoded(form) == (None, False)
        for content in (b"a", b"ab", b"abc", bytes(range(256))):
            for form in (
                text(content), text(content).rstrip("="), base64.urlsafe_b64encode(content).decode(),
                " " + text(content) + "\n", text(content).replace("/", "%2F").replace("+", "%2B"),
                text(content).replace("=", "%3D"),
            ):  # fmt: skip
                assert decoded(form)[0] == content

    def test_media_types_that_lie(self) -> None:
        for said, content, own in (
            ("image/png", JPEG, "image/jpeg"), ("image/jpg", JPEG, "image/jpeg"),
            ("application/octet-stream", PNG, "image/png"),
        ):  # fmt: skip
            part = image(content, said, cache_control={"type": "ephemeral"})
            made = fitted("/v1/messages", {"messages": [{"role": "user", "content": [part]}]})
            (one,) = made["messages"][0]["content"]
            assert one == part | {"source": part["source"] | {"media_type": own}}
            held = {"url": f"data:{said};base64,{text(content)}", "detail": "high"}
            part = {"type": "image_url", "uuid": "u", "image_url": held}
            made = fitted("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]})
            url = f"data:{own};base64,{text(content)}"
            assert made["messages"][0]["content"] == [part | {"image_url": {"url": url, "detail": "high"}}]

    def test_data_urls(self) -> None:
        for start in ("DATA:IMAGE/PNG;BASE64,", " data:image/png;base64,", "data:;base64,",
                      "data:image/png;name=a%20b.png;charset=utf-8;base64,"):  # fmt: skip
            part = {"type": "input_image", "image_url": start + text(PNG)}
            made = fitted("/v1/responses", {"input": [{"role": "user", "content": [part]}]})
            assert made["input"][0]["content"][0]["image_url"] == f"data:image/png;base64,{text(PNG)}"
            made = fitted("/api/generate", {"prompt": "What?", "images": [start + text(PNG)]})
            assert made == {"prompt": "What?", "images": [text(PNG)]}
            source = {"type": "base64", "media_type": "image/png", "data": start + text(PNG)}
            part = {"type": "image", "source": source}
            made = fitted("/v1/messages", {"messages": [{"role": "user", "content": [part]}]})
            assert made["messages"][0]["content"] == [image(PNG)]

    def test_addresses_are_left_alone(self) -> None:
        for part in (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "image_url", "image_url": "file:///etc/passwd"},
            {"type": "image_url", "image_url": None},
            {"type": "image_url"},
            {"type": "input_image", "file_id": "file-1"},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image", "source": {"type": "base64"}},
            {"type": "image", "source": 5},
        ):
            body = {"messages": [{"role": "user", "content": [part]}]}
            assert fitted("/v1/chat/completions", body, CLAUDE) is body

    def test_a_part_that_cannot_be_written_stays(self) -> None:
        part = image(PNG, "image/jpeg", note=float("inf"))
        body = {"messages": [{"role": "user", "content": [part]}]}
        assert fitted("/v1/messages", body) is body

    def test_what_describes_the_old_picture_goes_with_it(self) -> None:
        url = f"data:image/png;base64,{text(WIDE)}"
        part = {"type": "image_url", "uuid": "u", "min_pixels": 1, "max_pixels": 9, "format": "png",
                "cache_control": {"type": "e"}, "image_url": {"url": url, "detail": "high"}}  # fmt: skip
        body = {"messages": [{"role": "user", "content": [part]}]}
        made = fitted("/v1/chat/completions", body, CLAUDE)
        one, words = made["messages"][0]["content"]
        assert one.keys() == {"type", "uuid", "cache_control", "image_url"}
        assert one["uuid"].startswith("u-")
        assert one["image_url"].keys() == {"url", "detail"}
        assert size(one["image_url"]["url"].partition(",")[2]) == (2000, 1125)
        assert words["type"] == "text"
        assert "from 2560 x 1440 to 2000 x 1125 px" in words["text"]
        assert "times 1.28 " in words["text"]


class TestEveryRole:
    def test_results_of_tools(self) -> None:
        result = {"type": "tool_result", "tool_use_id": "t", "content": [image(WIDE)]}
        for role in ("user", "assistant", "system"):
            made = fitted(
                "/v1/messages", {"messages": [{"role": role, "content": [result, image(PNG)]}]}, CLAUDE
            )
            held = held_pictures(api("/v1/messages"), made)
            assert [size(one.data or "") for one in held] == [(2000, 1125), (60, 40)]
            made = fitted(
                "/v1/messages/count_tokens", {"messages": [{"role": role, "content": [result]}]}, CLAUDE
            )
            assert [one["type"] for one in made["messages"][0]["content"][0]["content"]] == ["image", "text"]

    def test_outputs_of_calls(self) -> None:
        url = f"data:image/png;base64,{text(WIDE)}"
        screen = {"type": "computer_screenshot", "image_url": url}
        items = [
            {"type": "computer_call_output", "call_id": "a", "output": screen},
            {
                "type": "function_call_output",
                "call_id": "b",
                "output": [{"type": "input_image", "image_url": url}],
            },
            {"type": "function_call_output", "call_id": "c", "output": "words"},
        ]
        made = fitted("/v1/responses", {"input": items}, CLAUDE)["input"]
        assert made[0]["output"].keys() == screen.keys()  # where nothing but one picture is taken
        assert size(made[0]["output"]["image_url"].partition(",")[2]) == (2000, 1125)
        assert [part["type"] for part in made[1]["output"]] == ["input_image", "input_text"]
        assert made[2] is items[2]
        broken = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
        made = fitted("/v1/responses", {"input": [items[0] | {"output": broken}]}, CLAUDE)["input"]
        assert made[0]["output"]["image_url"] == f"data:image/png;base64,{BLANK}"
        assert size(BLANK) == (32, 32)

    def test_ollama(self) -> None:
        turns = [{"role": "tool", "content": "A screen.", "images": [text(PNG), "AAAA", text(PNG)]}]
        made = fitted("/api/chat", {"messages": turns})["messages"]
        words = "[picture 2 was left out: it can't be opened]\nA screen."
        assert made == [{"role": "tool", "content": words, "images": [text(PNG), text(PNG)]}]
        made = fitted("/api/generate", {"prompt": "What?", "images": ["AAAA"]})
        assert made == {"prompt": "[picture 1 was left out: it can't be opened]\nWhat?", "images": []}

    def test_one_picture_a_turn(self) -> None:
        limits = LIMITS["ollama-mllama"]
        turns = [{"role": "user", "content": "x", "images": [text(PNG)] * count} for count in (2, 1)]
        made = fitted("/api/chat", {"messages": turns}, limits)["messages"]
        assert [len(turn["images"]) for turn in made] == [1, 1]
        assert made[1] is turns[1]

    def test_places_in_words(self) -> None:
        turns = [{"role": "user", "content": "See [img], then [img].", "images": ["AAAA", text(PNG)]}]
        made = fitted("/api/chat", {"messages": turns})["messages"]
        assert made[0]["content"] == "See [picture 1 was left out: it can't be opened], then [img]."
        body = {"prompt": "[img-1] beside [img-0]", "images": ["AAAA", text(PNG)]}
        made = fitted("/api/generate", body)
        assert made["prompt"] == "[img-0] beside [picture 1 was left out: it can't be opened]"


class TestRetired:
    def test_pictures_that_cannot_become_words_count(self) -> None:
        """Those of computer calls become white ones, also where they can't be opened."""

        def item(data: str) -> dict[str, Any]:
            screen = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{data}"}
            return {"type": "computer_call_output", "call_id": "c", "output": screen}

        turn = {
            "role": "user",
            "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{text(PNG)}"}],
        }
        items = [*[item("AAAA")] * 3, *[turn] * 6, item(text(PNG)), *[turn] * 20]
        for count in range(1, len(items) + 1):
            made = fitted("/v1/responses", {"input": items[:count]}, replace(CLAUDE, pictures=10))
            assert len(held_pictures(api("/v1/responses"), made)) <= 10

    def test_nothing_within_the_limits(self) -> None:
        assert retired([100] * 50, NONE) == []
        assert retired([100] * 50, replace(NONE, pictures=50, request=6000)) == []

    def test_half_of_them_go_at_a_time(self) -> None:
        limits = replace(NONE, pictures=10)
        counts = [len(retired([1] * count, limits)) for count in range(1, 41)]
        assert counts[9:17] == [0, 6, 6, 6, 6, 6, 6, 12]
        assert len(set(counts)) <= 8

    def test_laws(self) -> None:
        rng = random.Random(3)
        for _ in range(200):
            limits = replace(NONE, pictures=rng.choice([0, 1, 2, 7, 30]), request=rng.choice([0, 800, 5000]))
            taken = [rng.choice([None, 0, 10, 100, 300]) for _ in range(80)]
            stuck = {place for place in range(80) if rng.random() < 0.1}
            before: list[int] = []
            for count in range(1, 81):
                now = retired(taken[:count], limits, stuck)
                assert now[: len(before)] == before  # the oldest, and never fewer
                assert count - 1 not in now  # the newest stays
                left = [n for place, n in enumerate(taken[:count]) if n is not None and place not in now]
                blanks = len(stuck & set(now))
                assert not limits.pictures or len(left) + blanks <= max(limits.pictures, 1 + blanks)
                assert not limits.request or len(left) == 1 or sum(left) <= limits.request * 7 // 8
                before = now

    def test_they_become_words_with_their_number(self) -> None:
        mark = {"cache_control": {"type": "ephemeral"}}
        turns = [{"role": "user", "content": [image(PNG, **mark), {"type": "text", "text": str(number)}]}
                 for number in range(5)]  # fmt: skip
        made = fitted("/v1/messages", {"messages": turns}, replace(CLAUDE, pictures=4))["messages"]
        words = "[picture 1 was left out: the provider takes 4 a request]"
        assert made[0]["content"][0] == {"type": "text", "text": words} | mark
        assert [turn is old for turn, old in zip(made, turns, strict=True)] == [
            False,
            False,
            False,
            True,
            True,
        ]


class TestConversations:
    @pytest.mark.parametrize("name", [*PATHS])
    def test_what_is_sent_of_a_turn_stays(self, name: str) -> None:
        """As long as no batch is left out, whatever comes later and whoever is asked."""
        if name == "generate":
            return
        key = "input" if name == "responses" else "messages"
        limits = replace(LIMITS["messages"], pictures=0, request=0)
        changed = 0
        for seed in range(6):
            body = body_of(random.Random(f"{name} {seed}"), name)
            fitter = Fitter()
            before: list[Any] = []
            for count in range(1, len(body[key]) + 1):
                made, _ = fitter.fitted(api(PATHS[name]), body | {key: body[key][:count]}, limits)
                assert json.dumps(made[key][: count - 1]) == json.dumps(before)
                before = made[key]
            changed += before != body[key]
            other, _ = Fitter().fitted(api(PATHS[name]), body, limits)
            assert json.dumps(other[key]) == json.dumps(before)
            assert (
                fitter.fitted(api(PATHS[name]), other, limits)[0] == other
            )  # a second proxy changes nothing
        assert changed > 2

    def test_what_is_not_of_a_picture_is_written_as_it_came(self) -> None:
        content = (
            b'{ "messages" : [{"role":"user","content":[ {"type":"image","source":{"type":"base64",'
            b'"media_type":"image/jpeg","data":"%b"}} , {"type":"text","text":"\\u0041"}]}],"n":1.50,"n":1 }'
        ) % base64.b64encode(PNG)
        one = api("/v1/messages")
        parsed = parse(one, content, 32)
        assert parsed is not None
        made = rewritten(one, content, parsed, {}, fitted=lambda body: Fitter().fitted(one, body, CLAUDE)[0])
        assert made == content.replace(b"image/jpeg", b"image/png")

    def test_a_picture_that_came_before_costs_next_to_nothing(self) -> None:
        files = [content for content in pool() if len(content) < 2**20]
        turns = [{"role": "user", "content": [image(content)]} for content in files * 3]
        fitter = Fitter()
        first, _ = fitter.fitted(api("/v1/messages"), {"messages": turns}, CLAUDE)
        start = time.thread_time()
        again, _ = fitter.fitted(api("/v1/messages"), {"messages": turns}, CLAUDE)
        assert time.thread_time() - start < 0.005 * len(turns)
        assert again == first
