"""A server that was asked a thousand things nobody should ask is up, and right, afterwards."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image

from conftest import FOLDER, OVERRIDES
from hostile_requests import requests
from live import body, counter, data_url, server

COUNT, CLIENTS, IMPATIENT = 1000, 16, 25
"""Requests, how many at a time, and of how many one goes away before it has its answer."""
OF_VLLM = (
    "could be decompression bomb",
    "Cannot load local files without",
    "Only base64 data URLs are supported",
    "Cannot connect to host",
)
"""What vLLM refuses with a status of 500 or 501 before a plugin is asked."""
ONCE = "Internal server error"
"""What vLLM says once where its caches of images disagree; asked again, it answers."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that lets requests have settings of their own."""
    log = tmp_path_factory.mktemp("hostile") / "log"
    with server(FOLDER, OVERRIDES, log, "--trust-request-mm-kwargs", VLLM_PLUGINS="arr_coc") as address:
        yield address


async def send(url: str, bodies: list[bytes], unhurried: bool = False) -> list[tuple[int, str, bytes]]:
    """Status, text and body of each, so many clients at a time; status 0: it went away.

    Unless `unhurried`, some of them go away, and some ask for a trace.
    """
    queue, replies = list(enumerate(bodies)), []
    async with httpx.AsyncClient(timeout=120) as client:

        async def one() -> None:
            while queue:
                number, content = queue.pop()
                path = "/v1/chat/completions" if unhurried or number % 10 else "/arr_coc/trace"
                timeout = 120 if unhurried or number % IMPATIENT else 0.02
                headers = {"Content-Type": "application/json"}
                for last in (False, True):
                    try:
                        reply = await client.post(
                            url + path, content=content, headers=headers, timeout=timeout
                        )
                    except httpx.TimeoutException:
                        assert timeout < 1, f"no answer: {content[:300]!r}"
                        replies.append((0, "", content))
                    except httpx.TransportError:  # a connection kept alive was closed: a new one
                        if last:
                            raise
                        continue
                    else:
                        replies.append((reply.status_code, reply.text, content))
                    break

        await asyncio.gather(*(one() for _ in range(CLIENTS)))
    return replies


def test_a_thousand_hostile_requests_do_no_harm(url, pages) -> None:
    page = pages[0]
    good = body(page.questions[0].text, data_url(page.image))

    def answer() -> tuple[str, dict]:
        reply = httpx.post(url + "/v1/chat/completions", json=good, timeout=60).json()
        return reply["choices"][0]["message"]["content"], reply["usage"]["prompt_tokens_details"]

    before, _ = answer()
    picture = page.image.resize((128, 128))
    replies = asyncio.run(send(url, list(requests(COUNT, picture))))
    assert len(replies) == COUNT
    statuses = Counter(status for status, _, _ in replies)
    print(dict(statuses))
    bad = [(text, content) for status, text, content in replies if status >= 500]
    again = asyncio.run(send(url, [content for text, content in bad if ONCE in text], unhurried=True))
    print(len(again), "again")
    broken = [one for one in bad if not any(known in one[0] for known in (*OF_VLLM, ONCE))]
    broken += [(text, content) for status, text, content in again if status >= 500]
    assert not broken, "\n".join(f"{text[:300]} {content[:300]!r}" for text, content in broken[:10])
    assert statuses[400] > COUNT / 2
    for status, text, _ in replies:
        if status >= 400:
            error = json.loads(text)
            assert error.get("error", error), text
    assert httpx.get(url + "/health").status_code == 200
    after, details = answer()
    assert (after, details["multimodal_tokens"]) == (before, {"image": 64})
    assert counter(url, "vllm:num_requests_running") == counter(url, "vllm:num_requests_waiting") == 0
    assert counter(url, "vllm:kv_cache_usage_perc") < 0.01
    assert counter(url, "arr_coc_fallbacks_total") == 0


def test_files_of_the_server_are_nobodys(url, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (64, 64)).save(secret)
    for name in (f"file://{secret}", str(secret)):
        reply = httpx.post(url + "/v1/chat/completions", json=body("What?", name), timeout=60)
        assert reply.status_code >= 400
        assert "allowed-local-media-path" in reply.text or "must be either" in reply.text
