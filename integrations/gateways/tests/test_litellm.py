"""LiteLLM's own proxy, with the configuration of this folder, in front of a stand-in."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from conftest import StandIn, pixels

yaml = pytest.importorskip("yaml")
pytest.importorskip("litellm")

CONFIG = Path(__file__).parents[1] / "litellm.yaml"
KEY = "sk-" + secrets.token_hex(32)
HEADERS = {"authorization": f"Bearer {KEY}"}
SETTINGS = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture(scope="module", params=["as told", "arr-coc is away"])
def gateway(
    request: pytest.FixtureRequest, proxy: str, stand_in: StandIn, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, bool]]:
    """The address of LiteLLM's proxy, and whether arr-coc answers it."""
    answers = request.param == "as told"
    config = yaml.safe_load(CONFIG.read_text())
    config["model_list"][0]["litellm_params"]["api_base"] = stand_in.address + "/v1"
    config["guardrails"][0]["litellm_params"]["api_base"] = proxy if answers else "http://127.0.0.1:9"
    path, port = tmp_path_factory.mktemp("litellm") / "config.yaml", free_port()
    path.write_text(yaml.safe_dump(config))
    command = [Path(sys.executable).with_name("litellm"), "--config", path, "--port", str(port)]
    words = list(map(str, [*command, "--host", "127.0.0.1"]))
    with subprocess.Popen(words, env=os.environ | SETTINGS) as process:
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                try:
                    httpx.get(address + "/health/liveliness", timeout=2).raise_for_status()
                    break
                except httpx.HTTPError:
                    assert process.poll() is None
                    time.sleep(0.2)
            yield address, answers
        finally:
            process.terminate()


def test_a_picture_is_packed_before_the_model_is_asked(
    gateway: tuple[str, bool], stand_in: StandIn, rows: list[dict[str, Any]]
) -> None:
    address, answers = gateway
    body = {"model": "qwen3-vl", "messages": rows}
    answer = httpx.post(address + "/v1/chat/completions", json=body, headers=HEADERS, timeout=120)
    assert answer.json()["choices"][0]["message"]["content"] == "240.00"
    system, turn = stand_in.bodies[-1]["messages"]
    assert system == rows[0]
    assert turn["content"][0] == rows[1]["content"][0]
    if answers:
        assert pixels(turn) < pixels(rows[1]) / 3
        assert len(turn["content"]) > 2
    else:
        assert turn == rows[1]


def test_words_alone_stay_as_they_are(gateway: tuple[str, bool], stand_in: StandIn) -> None:
    address, _ = gateway
    rows = [{"role": "user", "content": "Why?"}]
    body = {"model": "qwen3-vl", "messages": rows}
    httpx.post(address + "/v1/chat/completions", json=body, headers=HEADERS, timeout=120).raise_for_status()
    assert stand_in.bodies[-1]["messages"] == rows


def test_anthropics_clients_too(gateway: tuple[str, bool], stand_in: StandIn, page: str) -> None:
    """LiteLLM hands the turns of Anthropic's Messages on in the form of chat completions."""
    address, answers = gateway
    source = {"type": "base64", "media_type": "image/png", "data": page.partition(",")[2]}
    parts = [{"type": "text", "text": "What is the total?"}, {"type": "image", "source": source}]
    body = {"model": "qwen3-vl", "max_tokens": 9, "messages": [{"role": "user", "content": parts}]}
    before = len(stand_in.bodies)
    httpx.post(address + "/v1/messages", json=body, headers=HEADERS, timeout=120)
    assert (
        len(stand_in.bodies) > before
    )  # in the form of OpenAI's responses, which the stand-in doesn't speak
    assert (page.partition(",")[2] in str(stand_in.bodies[-1])) == (not answers)
