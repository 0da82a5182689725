"""A running `arr-coc proxy` without an upstream, and a stand-in for the server that answers."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from PIL import Image, ImageDraw

COMMAND = os.environ.get("ARR_COC", "arr-coc")  # of the environment that has it


@pytest.fixture(scope="session")
def proxy() -> Iterator[str]:
    """The address of a proxy on a free port."""
    with subprocess.Popen(
        [COMMAND, "proxy", "--port", "0", "--sure", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    ) as process:
        assert process.stdout is not None
        try:
            addresses = (
                word for line in process.stdout for word in line.split() if word.startswith("http://")
            )
            yield next(addresses)
        finally:
            process.terminate()


class StandIn(ThreadingHTTPServer):
    """A server of chat completions that keeps the bodies it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.bodies: list[Any] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    """Answers each request with the same words."""

    server: StandIn

    def do_POST(self) -> None:
        """Keep the body, and answer."""
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        message = {"role": "assistant", "content": "240.00"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        facts = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        content = json.dumps(facts | {"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def stand_in() -> Iterator[StandIn]:
    """The server that answers, on a free port."""
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join(20)


@pytest.fixture(scope="session")
def page() -> str:
    """A page of 1600 x 1200 px with some lines of print, as a data URL."""
    image = Image.new("RGB", (1600, 1200), "white")
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(("Invoice 4711", "Hosting  120.00", "Support  120.00", "Total  240.00")):
        draw.text((80, 80 + 280 * number), line, "black", font_size=32)
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


@pytest.fixture
def rows(page: str) -> list[dict[str, Any]]:
    """The turns of a chat: a rule, and a question about the page."""
    parts = [
        {"type": "text", "text": "What is the total?"},
        {"type": "image_url", "image_url": {"url": page}},
    ]
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]


def pixels(turn: dict[str, Any]) -> int:
    """How many px the pictures of a turn have together."""
    urls = [part["image_url"]["url"] for part in turn["content"] if part["type"] == "image_url"]
    files = [io.BytesIO(base64.b64decode(url.partition(",")[2])) for url in urls]
    sizes = [Image.open(file).size for file in files]
    return sum(width * height for width, height in sizes)
