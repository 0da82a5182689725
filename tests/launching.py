"""Processes that tests start: where they find the packages, and two of one run, as a launcher starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

_FOUND = [find_spec(name) for name in ("arr_coc", "arr_coc_lab")]
PACKAGES = os.pathsep.join(str(Path(spec.origin).parents[1]) for spec in _FOUND if spec and spec.origin)
"""`PYTHONPATH` of a process that is to have both packages of the checkout under test, and of no other."""


def launch(words: list[str], environment: dict[str, str] | None = None, limit: float = 300) -> str:
    """Run Python twice, as two processes of one run; what they print.

    By the environment that launchers set, without the launcher: it is a third process to wait for.

    Args:
        words: what follows "python".
        environment: more of it.
        limit: seconds until both are ended.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"} | (environment or {})
    running = [
        subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=limit) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, outputs, strict=True):
        assert process.returncode == 0, errors[-2000:]
    return "".join(printed for printed, _ in outputs)
