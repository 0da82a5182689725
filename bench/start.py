"""How long a new process takes to answer the built-in sample, beside another checkout of this project.

    python bench/start.py --before ../other/src --rounds 10 --out bench/results/start.json

Each round runs `python -m arr_coc ask --json` once on either side, in turn first and second. `seconds` is
what a user waits, `cpu` the processor time that it took, which other work on the machine changes less.
`startup` is the part before the question is answered: all but the answer's own total.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1] / "src"
COMMAND = ["-m", "arr_coc", "ask", "--json"]


def start(source: Path) -> dict[str, float]:
    """Seconds and processor seconds of one answer in a new process, and those before the question."""
    environment = os.environ | {"PYTHONPATH": str(source.resolve())}
    before, begun = os.times(), time.monotonic()
    done = subprocess.run([sys.executable, *COMMAND], env=environment, capture_output=True, check=True)
    seconds, after = time.monotonic() - begun, os.times()
    answering = json.loads(done.stdout)["ms"]["total"] / 1000
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": seconds, "startup": seconds - answering, "cpu": cpu}


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--before", type=Path, metavar="SRC", help="the src folder of another checkout")
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--out", type=Path)
args = parser.parse_args()

sides = {"now": HERE} | ({"before": args.before} if args.before else {})
for source in sides.values():  # compiles what is not compiled yet
    start(source)
rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
for number in range(args.rounds):
    for name in list(sides)[:: -1 if number % 2 else 1]:
        rounds[name].append(start(sides[name]))
        print(
            number, name, {key: round(value, 2) for key, value in rounds[name][-1].items()}, file=sys.stderr
        )
result = {
    "command": " ".join(["python", *sys.argv]),
    "ran": " ".join(["python", *COMMAND]),
    "cores": os.cpu_count(),
    "load": os.getloadavg()[0],
    **{
        name: {key: round(median(row[key] for row in rows), 2) for key in rows[0]}
        | {"rounds": [{key: round(value, 2) for key, value in row.items()} for row in rows]}
        for name, rows in rounds.items()
    },
}
if args.before:
    pairs = list(zip(rounds["now"], rounds["before"], strict=True))
    result["now / before"] = {key: round(median(n[key] / b[key] for n, b in pairs), 3) for key in pairs[0][0]}
print(json.dumps(result, indent=1))
if args.out:
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
