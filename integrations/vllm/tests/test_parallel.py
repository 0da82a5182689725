"""A server over two processes answers as one does.

Run: make test-vllm ARGS='-m slow'
"""

from __future__ import annotations

import httpx
import pytest

from conftest import FOLDER, OVERRIDES
from live import COMMAND, body, counter, data_url, server

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("choose", ["front", "worker"])
@pytest.mark.parametrize("option", ["--tensor-parallel-size", "--data-parallel-size"])
def test_answers_are_those_of_transformers(wrapped, pages, tmp_path, option, choose) -> None:
    overrides = OVERRIDES | {"arr_coc": {"budget": 64, "choose": choose}}
    with server(FOLDER, overrides, tmp_path / "log", option, "2") as url:
        for page in pages[:4]:
            question = page.questions[0].text
            request = body(question, data_url(page.image))
            reply = httpx.post(url + "/v1/chat/completions", json=request, timeout=120).json()
            answer = wrapped.session(page.image).ask(question, budget=64, max_new_tokens=8).text
            assert reply["choices"][0]["message"]["content"].strip() == answer.strip()
            assert reply["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 64}


def test_several_api_servers_share_the_counters(wrapped, pages, tmp_path) -> None:
    options = ("--api-server-count", "2")
    with server(FOLDER, OVERRIDES, tmp_path / "log", *options, start=COMMAND) as url:
        for page in pages[:6]:
            question = page.questions[0].text
            request = body(question, data_url(page.image))
            reply = httpx.post(url + "/v1/chat/completions", json=request, timeout=120).json()
            answer = wrapped.session(page.image).ask(question, budget=64, max_new_tokens=8).text
            assert reply["choices"][0]["message"]["content"].strip() == answer.strip()
        assert counter(url, "arr_coc_images_total") == 6
