"""LiteLLM's generic guardrail API at the proxy, and the filter for Open WebUI that asks it."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from arr_coc.proxy.guardrail import PATH
from arr_coc.proxy.server import NOWHERE, Proxy
from chat_servers import CLIENT, URL, Started

Start = Callable[..., Started]
FILTER = Path(__file__).parents[2] / "integrations" / "gateways" / "open_webui_filter.py"


def picture_turn(data: str, question: str = "What is red?") -> dict[str, Any]:
    words = {"type": "text", "text": question}
    return {"role": "user", "content": [words, {"type": "image_url", "image_url": {"url": URL + data}}]}


def guarded(address: str, rows: Any, **more: Any) -> httpx.Response:
    body = {"input_type": "request", "model": "qwen3-vl", "structured_messages": rows, "texts": []} | more
    return CLIENT.post(address + PATH, json=body, timeout=30)


def alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Proxy]:
    """A proxy without an upstream."""
    address, _, proxy = start()
    monkeypatch.setattr(proxy, "upstream", NOWHERE)
    return address, proxy


def test_turns_come_back_as_the_proxy_would_forward_them(start: Start, screenshot: str) -> None:
    address, stand_in, proxy = start()
    rows = [{"role": "system", "content": "Be brief."}, picture_turn(screenshot)]
    answer = guarded(address, rows).json()
    assert answer["action"] == "GUARDRAIL_INTERVENED"
    assert answer["summary"].startswith("packed 1 of 1 pictures")
    assert answer["structured_messages"][0] == rows[0]
    assert not stand_in.bodies
    record = proxy.journal.records[-1]
    assert (record.path, record.status, record.model, record.packed) == (PATH, 200, "qwen3-vl", 1)
    body = {"model": "qwen3-vl", "messages": rows}
    CLIENT.post(address + "/v1/chat/completions", json=body, timeout=30).raise_for_status()
    assert answer["structured_messages"] == stand_in.last()["messages"]


def test_nothing_to_change(start: Start, screenshot: str) -> None:
    address, _, _ = start()
    rows = [picture_turn(screenshot)]
    for answer in (
        guarded(address, rows, input_type="response"),
        guarded(address, None),
        guarded(address, [{"role": "user", "content": "Why?"}]),
    ):
        assert answer.json() == {"action": "NONE"}
        assert answer.status_code == 200


def test_settings_of_the_gateway(start: Start, screenshot: str) -> None:
    address, _, proxy = start()
    rows = [picture_turn(screenshot)]
    params = {"tokens": 100, "layout": "crops"}
    assert guarded(address, rows, additional_provider_specific_params=params).json()["structured_messages"]
    assert proxy.journal.records[-1].after <= 100
    for bad in ({"tokens": "many"}, {"layout": "spiral"}, {"colour": 1}, [1]):
        answer = guarded(address, rows, additional_provider_specific_params=bad)
        message = answer.json()["error"]["message"]
        assert answer.status_code == 400, bad
        assert message.startswith("arr-coc proxy: ")
        assert "\n" not in message


def test_bodies_of_anybody(start: Start) -> None:
    address, _, _ = start()
    for content in (b"", b"{", b"[]", b"3", b'"text"', b"\xff", b"[" * 100_000):
        answer = CLIENT.post(address + PATH, content=content, timeout=30)
        assert answer.status_code == 400, content[:20]
        assert "LiteLLM" in answer.json()["error"]["message"]
    for rows in ([None], [3], {"role": "user"}, [{"content": [[], {"type": "image_url"}]}]):
        assert guarded(address, rows).json() == {"action": "NONE"}, rows


def test_without_an_upstream_nothing_is_forwarded(
    start: Start, monkeypatch: pytest.MonkeyPatch, screenshot: str
) -> None:
    address, _ = alone(start, monkeypatch)
    assert guarded(address, [picture_turn(screenshot)]).json()["action"] == "GUARDRAIL_INTERVENED"
    answer = CLIENT.post(address + "/v1/chat/completions", json={"messages": []})
    assert answer.status_code == 404
    assert "--upstream" in answer.json()["error"]["message"]
    assert CLIENT.get(address + "/arr_coc/health").json() == {"status": "ok", "upstream": None}


class TestFilter:
    """The file that an administrator of Open WebUI pastes."""

    def ask(self, address: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """What the filter makes of a request, and what it says in the chat."""
        made = runpy.run_path(str(FILTER))["Filter"]()
        made.valves = made.Valves(address=address, tokens=64)
        said: list[str] = []

        async def emit(event: dict[str, Any]) -> None:
            said.append(event["data"]["description"])

        return asyncio.run(made.inlet(body, emit)), said

    def test_a_picture_is_packed(self, start: Start, screenshot: str) -> None:
        address, _, proxy = start()
        body = {"model": "m", "stream": True, "messages": [picture_turn(screenshot)], "metadata": {"a": [1]}}
        before = json.dumps(body)
        after, said = self.ask(address, body)
        assert json.dumps(body) == before
        assert {name: after[name] for name in ("model", "stream", "metadata")} == {
            name: body[name] for name in ("model", "stream", "metadata")
        }
        assert proxy.journal.records[-1].after <= 64
        assert len(after["messages"][0]["content"]) > 2
        assert said == [f"arr-coc: {proxy.journal.records[-1].summary}"]

    def test_words_alone_ask_nobody(self) -> None:
        body = {"messages": [{"role": "user", "content": "Why?"}]}
        assert self.ask("http://127.0.0.1:9", body) == (body, [])

    def test_whoever_does_not_answer_changes_nothing(self, start: Start, screenshot: str) -> None:
        address, _, _ = start()
        body = {"messages": [picture_turn(screenshot)]}
        for wrong in ("http://127.0.0.1:9", "no address", address + "/elsewhere"):
            after, said = self.ask(wrong, body)
            assert after is body
            assert said == ["arr-coc did not answer: pictures are sent whole"], wrong
