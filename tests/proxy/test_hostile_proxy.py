"""Hostile requests, drawn from a seed: whatever is sent, the proxy stays up, and memory stays flat."""

from __future__ import annotations

import base64
import io
import json
import random
import resource
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from chat_servers import CLIENT, URL, Started, encoded
from hostile import VALUES, spoilt, spoilt_bytes

Start = Callable[..., Started]
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/api/generate")
MAX_GROWTH = 700  # MiB of memory, over all requests

pytestmark = pytest.mark.slow


def png_that_claims(width: int, height: int) -> bytes:
    """A PNG of some bytes whose header claims any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\x00" * 100))
        + chunk(b"IEND", b"")
    )


def bomb() -> bytes:
    """A sound PNG of some KB that decodes to more pixels than are opened."""
    file = io.BytesIO()
    Image.new("1", (8000, 8000)).save(file, "PNG")
    return file.getvalue()


def hostile_pictures() -> list[str]:
    sound = base64.b64decode(encoded(320, 240))
    raw = [
        b"", b"\x00" * 10, sound[:40], sound[:-30], sound * 3, bomb(), png_that_claims(2**31 - 1, 2**31 - 1),
        png_that_claims(60_000, 1), png_that_claims(0, 0), b"<svg/>", b"%PDF-1.7",
        b"GIF89a\xff\xff\xff\xff", b"\xff\xd8\xff\xe0" + b"\x00" * 50, b"BM" + b"\xff" * 60,
        b"II*\x00" + b"\xff" * 99,
    ]  # fmt: skip
    texts = [base64.b64encode(one).decode() for one in raw]
    return [
        *texts,
        texts[4][:-3],
        "\u0000",
        "日本語",
        "A" * 100_001,
        "=" * 40,
        " " + texts[4],
        texts[4] + "\n",
        "../../etc",
    ]


def sound_body(rng: random.Random, pictures: list[str]) -> Any:
    """A body of any of the protocols, with a picture that may be any."""
    data = rng.choice(pictures)
    words = rng.choice(
        ["What is red?", "", "\x00", "x" * 5000, "\u202e\ud800", "fail", "Read all text.", "何?"]
    )
    parts = [
        {"type": "text", "text": words},
        {"type": "input_text", "text": words},
        {"type": "image_url", "image_url": {"url": URL + data}},
        {"type": "input_image", "image_url": URL + data},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    ]
    count = rng.choice([1, 1, 1, 2, 40]) if len(data) < 2000 else 1
    turn = {"role": "user", "content": parts * count}
    if rng.random() < 0.3:
        turn = {"role": "user", "content": words, "images": [data] * count}
    model = rng.choice(["m", "gpt-4o", "claude-3", "\ud800", "gemini-3-pro"])
    return {"model": model, "messages": [turn] * rng.choice([1, 1, 2, 5]), "input": [turn], "prompt": words,
            "images": [data], "stream": rng.random() < 0.2}  # fmt: skip


def hostile_content(rng: random.Random, pictures: list[str]) -> bytes:
    way = rng.randrange(8)
    if way == 0:
        return rng.randbytes(rng.choice([0, 1, 100, 10_000]))
    if way == 1:
        opening = rng.choice([b"[", b'{"a":', b'{"messages":[', b'{"image":['])
        return opening * rng.choice([500, 990, 1010, 100_000])
    if way == 2:
        depth = rng.choice([400, 900, 990, 1500])
        return (
            b'{"x":' + b"[" * depth + b"]" * depth + b"," + json.dumps(sound_body(rng, pictures)).encode()[1:]
        )
    if way == 3:
        return b'{"images": [' + b'"",' * rng.choice([10, 200_000]) + b'""], "prompt": "x"}'
    if way == 4:
        return json.dumps(
            {name: rng.choice(VALUES) for name in ("messages", "images", "input", "model")}
        ).encode()
    body = json.dumps(sound_body(rng, pictures)).encode()
    if way == 5:
        return spoilt_bytes(body, rng)
    return json.dumps(spoilt(json.loads(body), rng)).encode() if way == 6 else body


def resident() -> float:
    """MiB of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def test_a_thousand_hostile_requests_leave_it_up(start: Start, screenshot: str) -> None:
    address, stand_in, _ = start()
    rng, pictures, before = random.Random(48), hostile_pictures(), resident()
    headers = [{}, {}, {}, {"x-arr-coc-tokens": "64"}, {"x-arr-coc-layout": "mask"},
               {"content-encoding": "gzip"},
               {"x-arr-coc": "\x7f"}, {"content-type": "text/plain"}, {"x-arr-coc-tokens": "-1"}]  # fmt: skip
    statuses: dict[int, int] = {}
    with httpx.Client(timeout=60) as client:
        for _ in range(1000):
            content = hostile_content(rng, pictures)
            count = len(stand_in.bodies)
            answer = client.post(address + rng.choice(PATHS), content=content, headers=rng.choice(headers))
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, answer.text
            if answer.status_code != 400 or len(stand_in.bodies) > count:
                sent = stand_in.bodies.pop()
                assert sent == content or json.loads(sent), "a body is as it came, or sound"
            stand_in.headers.clear()
    assert statuses[200] > 200
    assert statuses[400] > 100
    assert resident() - before < MAX_GROWTH
    check_up(client_address=address, screenshot=screenshot)


def test_hostile_bytes_leave_it_up(start: Start, screenshot: str) -> None:
    """What is no HTTP at all, and targets that no server expects."""
    address, _, _ = start()
    rng = random.Random(49)
    port = int(address.rpartition(":")[2])
    lines = [b"GET http://evil.example/ HTTP/1.1", b"GET //evil.example/x HTTP/1.1", b"GET * HTTP/1.1",
             b"OPTIONS * HTTP/1.1",
             b"CONNECT evil.example:443 HTTP/1.1",
             b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1",
             b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999999",
             b"POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz",
             b"GET /%00%ff%2e%2e/ HTTP/1.1",
             b"GET /arr_coc/../v1/models HTTP/1.1", b"GET /arr_coc/%2e%2e/x HTTP/1.1", b"PRI * HTTP/2.0",
             b"GET /v1/models HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade"]  # fmt: skip
    for number in range(200):
        line = lines[number % len(lines)] if number % 2 else rng.randbytes(rng.randrange(1, 300))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(0.2)
            client.sendall(line + b"\r\nHost: localhost\r\n\r\n")
            try:
                client.recv(1000)
            except (TimeoutError, ConnectionError):
                continue
    check_up(address, screenshot)


def check_up(client_address: str, screenshot: str) -> None:
    """A sound request is served as if nothing had been."""
    content = [
        {"type": "image_url", "image_url": {"url": URL + screenshot}},
        {"type": "text", "text": "What is red?"},
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    answer = CLIENT.post(client_address + "/v1/chat/completions", json=body, timeout=30)
    assert answer.headers["x-arr-coc"].startswith("packed 1 of 1")
    assert CLIENT.get(client_address + "/arr_coc/health").status_code == 200
    assert CLIENT.get(client_address + "/arr_coc/requests").status_code == 200


def test_memory_is_flat_over_two_thousand_pictures(start: Start) -> None:
    address, stand_in, proxy = start()
    with httpx.Client(timeout=30) as client:
        sizes = []
        for number in range(2000):
            data = encoded(400 + number % 97, 300 + number % 89, number % 256)
            content = [
                {"type": "image_url", "image_url": {"url": URL + data}},
                {"type": "text", "text": f"red {number}?"},
            ]
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            answer = client.post(
                address + "/v1/chat/completions", json=body, headers={"x-arr-coc-tokens": "64"}
            )
            assert answer.headers["x-arr-coc"].startswith("packed 1")
            stand_in.bodies.clear()
            if number % 500 == 499:
                sizes.append(resident())
    assert max(sizes[1:]) - sizes[0] < 80, sizes  # MiB
    assert len(proxy.journal.records) == 100
