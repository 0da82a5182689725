"""What each command costs before and while it does its work: processor seconds of new processes.

    python bench/start.py --before ../other --rounds 5 --out bench/results/start.json

Each round runs each command once on either side (`--before`: the root of another checkout), in turn first and
second. `cpu` is the processor time of all threads, user and system, which other work on the machine raises
less than `seconds`, what a user waits; of each the minimum and the median. `floor` are imports that a command
can't do without: torch
for what the guide does, transformers' model code for what a model does. `now / floor` compares minima.
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

ROOT = Path(__file__).parents[1]
PAGE, QUESTION = str(ROOT / "docs" / "order.png"), "When will the parcel arrive?"
RESULT = str(ROOT / "runs" / "results" / "ablation.json")
CLI = ("-m", "arr_coc")
COMMANDS: dict[str, tuple[str, ...]] = {
    "--help": (*CLI, "--help"),
    "bad argument": (*CLI, "ask", PAGE, QUESTION, "--budget", "3x"),
    "tokens": (*CLI, "tokens", PAGE),
    "report, refused": (*CLI, "report", "nope.jsonl"),
    "report, with its plot": (*CLI, "report", RESULT, "--out", "plot.png"),
    "look": (*CLI, "look", PAGE, QUESTION),
    "crop": (*CLI, "crop", PAGE, QUESTION),
    "ask": (*CLI, "ask"),
    "from_pretrained": ("-c", "import arr_coc; arr_coc.ARRCOCModel.from_pretrained()"),
}
FLOORS: dict[str, tuple[str, ...]] = {
    "import torch": ("-c", "import torch"),
    "import transformers.modeling_utils": ("-c", "import transformers.modeling_utils"),
}
FLOOR_OF = {
    "look": "import torch",
    "crop": "import torch",
    "ask": "import transformers.modeling_utils",
    "from_pretrained": "import transformers.modeling_utils",
}
Times = dict[str, float]


def start(command: tuple[str, ...], root: Path, folder: str) -> Times:
    """Seconds and processor seconds of one command in a new process, with the packages of a checkout."""
    packages = os.pathsep.join(str(root.resolve() / part) for part in ("src", "lab/src"))
    environment = os.environ | {"PYTHONPATH": packages}
    before, begun = os.times(), time.monotonic()
    subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, check=False
    )  # what is refused exits with 2
    seconds, after = time.monotonic() - begun, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"cpu": cpu, "seconds": seconds}


def summed(rows: list[Times]) -> dict[str, Any]:
    """Minimum and median of rounds."""
    return {
        key: {
            "minimum": round(min(row[key] for row in rows), 2),
            "median": round(median(row[key] for row in rows), 2),
        }
        for key in rows[0]
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="the root of another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", metavar="NAME", help="one of the commands; repeatable")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    sides = {"now": ROOT} | ({"before": args.before} if args.before else {})
    named = {name: COMMANDS[name] for name in args.only or COMMANDS}
    rounds: dict[str, dict[str, list[Times]]] = {side: {name: [] for name in named} for side in sides}
    floors: dict[str, list[Times]] = {name: [] for name in FLOORS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, args.rounds):  # the first compiles what is not compiled yet
            for name, command in FLOORS.items():
                took = start(command, ROOT, folder)
                if number >= 0:
                    floors[name].append(took)
            for name, command in named.items():
                for side in list(sides)[:: -1 if number % 2 else 1]:
                    took = start(command, sides[side], folder)
                    if number >= 0:
                        rounds[side][name].append(took)
                    print(number, side, name, round(took["cpu"], 2), file=sys.stderr)
    floor = {name: summed(rows) for name, rows in floors.items()}
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
        "rounds": args.rounds,
        "floor": floor,
        **{side: {name: summed(rows) for name, rows in table.items()} for side, table in rounds.items()},
    }
    result["now / floor"] = {
        name: round(result["now"][name]["cpu"]["minimum"] / floor[of]["cpu"]["minimum"], 2)
        for name, of in FLOOR_OF.items()
        if name in named
    }
    if args.before:
        result["now / before"] = {
            name: round(
                median(
                    n["cpu"] / b["cpu"]
                    for n, b in zip(rounds["now"][name], rounds["before"][name], strict=True)
                ),
                2,
            )
            for name in named
        }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
