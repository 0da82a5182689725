"""Processes that tests start: where they find the packages, and two of one run, as a launcher starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

_FOUND = [find_spec(name) for name in ("arr_coc", "arr_coc_lab")]
PACKAGES = os.pathsep.join(str(Path(spec.origin).parents[1]) for spec in _FOUND if spec and spec.origin)
"""`PYTHONPATH` of a process that is to have both packages of the checkout under test, and of no other."""


AFTER_FAILURE = 5.0
"""Seconds that a process has to end after the other one failed."""
ATTEMPTS = 3
"""Runs that are tried: another test may take the free port, and torch may abort as a process ends."""
ABORTED = "terminate called without an active exception"


def launch(words: list[str], environment: dict[str, str] | None = None, limit: float = 300) -> str:
    """Run Python twice, as two processes of one run; what they print.

    By the environment that launchers set, without the launcher: it is a third process to wait for.

    Args:
        words: what follows "python".
        environment: more of it.
        limit: seconds until both are ended.
    """
    for attempt in range(ATTEMPTS):
        codes, outputs, errors = _run_twice(words, environment or {}, limit)
        if codes == [0, 0]:
            return "".join(outputs)
        taken = any("address already in use" in text.lower() for text in errors)
        # torch's threads may be gone before they are told to end: a process aborts after all its work
        aborted = any(text.rstrip().endswith(ABORTED) for text in errors)
        if not (taken or aborted) or attempt == ATTEMPTS - 1:
            break
    pairs = enumerate(zip(codes, errors, strict=True))
    raise AssertionError(
        "\n".join(f"process {i}, status {code}:\n{text[-2000:]}" for i, (code, text) in pairs)
    )


def _run_twice(
    words: list[str], environment: dict[str, str], limit: float
) -> tuple[list[int | None], list[str], list[str]]:
    """The exit statuses of two processes of one run, what each printed and its errors."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"} | environment
    # Into files: a pipe that nobody reads would stop a process that writes much.
    files = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in range(2)]
    running = [
        subprocess.Popen(
            [sys.executable, *words],
            stdout=out,
            stderr=err,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank, (out, err) in enumerate(files)
    ]
    deadline = time.monotonic() + limit
    while any(process.poll() is None for process in running) and time.monotonic() < deadline:
        if any(process.poll() for process in running):  # one failed: the other would wait for it
            deadline = min(deadline, time.monotonic() + AFTER_FAILURE)
        time.sleep(0.1)
    for process in running:
        process.kill()
        process.wait()
    texts = []
    for pair in files:
        for file in pair:
            file.seek(0)
            texts.append(file.read())
            file.close()
    return [process.returncode for process in running], texts[::2], texts[1::2]
