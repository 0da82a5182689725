"""No session dies of its pictures: whatever they are and whoever sent them, no upstream refuses them."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image

from arr_coc.proxy import packing
from arr_coc.proxy.packing import Packer
from arr_coc.proxy.server import Proxy, ProxySettings, server_config
from chat_servers import CLIENT, URL, Started, encoded, listening, pack_double
from strict_upstream import PATHS, StrictUpstream, body_of, refusal, rest

CONVERSATIONS = 60

Start = Callable[..., Started]


def part(data: str, media: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def ask(address: str, path: str, body: Any) -> Any:
    answer = CLIENT.post(address + path, json=body, timeout=60)
    assert answer.status_code == 200
    return answer


def last_record(address: str) -> dict[str, Any]:
    return CLIENT.get(address + "/arr_coc/requests.json").json()["requests"][0]


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, StrictUpstream]]:
    upstream = StrictUpstream()
    monkeypatch.setattr(packing, "pack_for", pack_double)
    with listening(upstream.config) as address:
        proxy = Proxy(ProxySettings(address, traces=0, screens="off"), Packer(1))
        with listening(server_config(proxy)) as own:
            yield own, upstream


def test_nothing_is_refused_and_nothing_else_changes(strict: tuple[str, StrictUpstream]) -> None:
    address, upstream = strict
    refused_before = 0
    for seed in range(CONVERSATIONS):
        rng = random.Random(seed)
        name = rng.choice([*PATHS])
        body = body_of(rng, name)
        content = json.dumps(body).encode()
        refused_before += bool(refusal(PATHS[name], content))
        answer = CLIENT.post(address + PATHS[name], content=content, timeout=60)
        assert answer.status_code == 200, (seed, name, body["model"], answer.text)
        assert rest(json.loads(upstream.last)) == rest(body), seed
    assert refused_before > 0.6 * CONVERSATIONS  # the server is strict


def test_a_screenshot_that_a_tool_returned(start: Start) -> None:
    """It is never packed, for an agent clicks in its px; too large it would end the session."""
    address, stand_in, _ = start()
    file = io.BytesIO()
    Image.new("RGB", (3000, 1500), "navy").save(file, "PNG")
    large, small = base64.b64encode(file.getvalue()).decode(), encoded(320, 200)
    for data, changes in ((small, {}), (large, {"scaled": 1})):
        result = {"type": "tool_result", "tool_use_id": "t", "content": [part(data)]}
        body = {
            "model": "claude-opus-5",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [result]}],
        }
        content = json.dumps(body).encode()
        answer = CLIENT.post(address + "/v1/messages", content=content)
        if not changes:
            assert stand_in.bodies[-1] == content
            assert answer.headers["x-arr-coc"] == "packed 0 of 1 pictures, 96 of 96 tokens"
            continue
        assert answer.headers["x-arr-coc"] == "packed 0 of 1 pictures, 4232 of 4232 tokens; 1 scaled"
        shown, words = stand_in.last()["messages"][0]["content"][0]["content"]
        with Image.open(io.BytesIO(base64.b64decode(shown["source"]["data"]))) as image:
            assert image.size == (2000, 1000)
        assert words["text"].startswith("[picture 1 was scaled from 3000 x 1500 to 2000 x 1000 px")
        assert last_record(address)["limits"] == changes
        assert "written anew, to be within the limits" in CLIENT.get(address + "/arr_coc/requests").text
        metrics = CLIENT.get(address + "/arr_coc/metrics").text
        assert 'arr_coc_fitted_pictures_total{became="scaled"} 1.0' in metrics
    CLIENT.post(address + "/v1/messages", content=content, headers={"x-arr-coc": "off"})
    assert stand_in.bodies[-1] == content


def test_a_model_that_is_not_known_is_said_so(start: Start, screenshot: str) -> None:
    address, _, _ = start()
    turn = {"role": "user", "content": "What is red?", "images": [screenshot]}
    for model, known in (("qwen3-vl", True), ("llava", False)):
        ask(address, "/api/chat", {"model": model, "messages": [turn]})
        assert last_record(address)["rule_is_guessed"] is known
        assert (
            "isn't known" in CLIENT.get(address + "/arr_coc/requests").text.split("</article>")[0]
        ) != known
    address, _, _ = start(rule="28")
    ask(address, "/api/chat", {"model": "llava", "messages": [turn]})
    assert last_record(address)["rule_is_guessed"]


def test_where_few_pictures_are_taken_each_becomes_one(start: Start, screenshot: str) -> None:
    turn = {"role": "user", "content": "What is red?", "images": [screenshot]}
    address, stand_in, _ = start()
    for model, count in (("qwen3-vl", 2), ("llama3.2-vision", 1)):
        ask(address, "/api/chat", {"model": model, "messages": [turn]})
        assert len(stand_in.last()["messages"][0]["images"]) == count
    address, stand_in, _ = start(pictures=3)
    for count in range(1, 6):
        ask(address, "/api/chat", {"model": "qwen3-vl", "messages": [turn] * count})
        sent = [len(one["images"]) for one in stand_in.last()["messages"]]
        # The fourth is one too many: three go, down to half of what is taken.
        assert sent == ([1] * count if count < 4 else [0, 0, 0, *[1] * (count - 3)])
    content = [{"type": "image_url", "image_url": {"url": URL + screenshot}}] * 4
    ask(address, "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": content}]})
    kinds = [one["type"] for one in stand_in.last()["messages"][0]["content"]]
    assert kinds == ["text"] * 3 + ["image_url"]
