"""What `arr-coc look` costs beside the import of torch, and a selector's first and later questions.

    python bench/look.py --rounds 10 --out bench/results/look.json

Processes: `import torch` alone, and `look` on the built-in sample of 1024 px with a picture and with --json,
each in new processes, in turn; `seconds` is what a user waits, `cpu` the processor time of all threads,
which other work on the machine changes less. `of torch` is the ratio to the import of torch in the same
round. Questions: one process that imports torch first, then loads a selector and asks; once with threads that
spin while they wait (what they do by themselves) and once with threads that sleep (what `look` asks for).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parents[1] / "src"
SAMPLE = HERE / "arr_coc" / "bundled" / "sample.png"
QUESTIONS = (
    "What is the invoice number?",
    "Where is the total?",
    "Which colour is the square?",
    "What is unusual here?",
    "Describe the image.",
)
LOOK = ["-m", "arr_coc", "look", str(SAMPLE), QUESTIONS[0]]
TORCH = "import torch"


def process(command: list[str], **settings: str) -> tuple[dict[str, float], str]:
    """Seconds and processor seconds of a new process of Python, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(HERE)} | settings
    before, begun = os.times(), time.monotonic()
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, check=True)
    seconds, after = time.monotonic() - begun, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": seconds, "cpu": cpu}, done.stdout.decode()


def ask() -> dict[str, dict[str, float]]:
    """Stages of one process that asks: seconds and processor seconds of each."""
    times: dict[str, dict[str, float]] = {}
    clock = time.perf_counter(), time.process_time()

    def stage(name: str, count: int = 1) -> None:
        nonlocal clock
        now = time.perf_counter(), time.process_time()
        times[name] = {"seconds": (now[0] - clock[0]) / count, "cpu": (now[1] - clock[1]) / count}
        clock = time.perf_counter(), time.process_time()

    import torch  # noqa: F401

    stage(TORCH)
    from arr_coc import Selector

    stage("import of the selector")
    selector = Selector.from_pretrained()
    stage("loading")
    selector(SAMPLE, QUESTIONS[0])
    stage("first question")
    for question in QUESTIONS[1:]:
        selector(SAMPLE, question)
    stage("a later question", len(QUESTIONS) - 1)
    return times


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(median(row[key] for row in rows), 4) for key in rows[0]}


def measure(rounds: int) -> dict[str, Any]:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            TORCH: ["-c", TORCH],
            "look": [*LOOK, "--out", str(Path(folder) / "look.png")],
            "look --json": [*LOOK, "--json"],
        }
        ways: dict[str, dict[str, str]] = {"spin": {}, "sleep": {"OMP_WAIT_POLICY": "passive"}}
        alone: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        asking: dict[str, list[dict[str, dict[str, float]]]] = {way: [] for way in ways}
        for command in commands.values():  # compiles what is not compiled yet
            process(command)
        for number in range(rounds):
            for name in list(commands)[:: -1 if number % 2 else 1]:
                alone[name].append(process(commands[name])[0])
                print(number, name, alone[name][-1], file=sys.stderr)
            for way, settings in ways.items():
                _, text = process([__file__, "--ask"], **settings)
                asking[way].append(json.loads(text))
    result: dict[str, Any] = {
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
        "rounds": rounds,
        "processes": {name: medians(rows) for name, rows in alone.items()},
        "of torch": {
            name: medians(
                [{key: a[key] / b[key] for key in a} for a, b in zip(rows, alone[TORCH], strict=True)]
            )
            for name, rows in alone.items()
            if name != TORCH
        },
        "questions, threads that": {
            way: {stage: medians([row[stage] for row in rows]) for stage in rows[0]}
            for way, rows in asking.items()
        },
    }
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--ask", action="store_true", help=argparse.SUPPRESS
    )  # what a process of its own runs
    arguments = parser.parse_args()
    if arguments.ask:
        print(json.dumps(ask()))
        sys.exit()
    text = json.dumps(measure(arguments.rounds), indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
