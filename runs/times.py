"""How much sooner a first token comes with the bundled model: every method over several runs of a process.

    python runs/times.py runs/results/times.json                                       [--runs 3]

Each run is an evaluation as `arr-coc eval --timed` makes it, in a process of its own, one after the other: its questions are
asked alone, every method beside all tokens. A run's figure is the median over its questions of the time with all tokens over that of the method, from
pixels to the first token's logits, choosing included. What is written is the range over the runs, with the machine. Killed,
the same line goes on where it was; the runs' own files are in runs/out/times.

About three minutes a run on two quiet cores. Pages of 2048 px (--size, --methods and --budgets choose others) were never timed so:
the times of saccade.json are of one run.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import torch

from arr_coc.choose.budget import parse_budget
from arr_coc_lab.evaluate import Settings, evaluate, scene
from arr_coc_lab.evaluate.work import processor_name

METHODS = (
    "full,arr-coc,arr-coc sparse,arr-coc saccade,coc resize,coc pool4,coc pool16,random,even grid,"
    "downsample,shuffled question,oracle,blind oracle,oracle sparse,fastv,fastv:1,fastv:3,fastv:4,visionzip,divprune,"
    "cdpruner+,cdpruner-,prumerge+,prumerge+:joined,scope,mmtok,mmtok:qwen,idpruner,visionselector"
)


def files(args: argparse.Namespace) -> list[Path]:
    """What each run writes; `arr_coc_lab.evaluate.run` adds the endings."""
    return [Path("runs/out/times") / f"{args.out.stem}-{number + 1}" for number in range(args.runs)]


def time_once(out: Path, args: argparse.Namespace) -> None:
    """One run, in this process."""
    scene.PEAKS = 0  # memory is not asked for, and would take longer than all else
    settings = Settings(
        out=out,
        methods=tuple(args.methods.split(",")),
        budgets=tuple(map(parse_budget, args.budgets.split(","))),
        size=args.size,
        questions=args.questions,
        per_image=8,
        timed=args.timed,
    )
    evaluate(settings)


def ranges(summaries: list[dict]) -> dict[str, dict]:
    """By method with its budget: the medians over the runs, and the lowest and highest of them."""
    found = {}
    for method in summaries[0]["methods"]:
        rows = [summary["methods"][method] for summary in summaries]
        if any(row["ttft ratio"] is None for row in rows):
            continue
        ratios, ms = [row["ttft ratio"] for row in rows], [row["ttft_ms"] for row in rows]
        found[method] = {
            "ttft ratio": median(ratios),
            "ttft range": [min(ratios), max(ratios)],
            "ttft_ms": median(ms),
            "ttft_ms range": [min(ms), max(ms)],
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--run", type=int, default=0, help="make this one alone, in this process")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--timed", type=int, default=3, help="questions of a run that are asked alone")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--budgets", default="273,64,auto")
    parser.add_argument("--methods", default=METHODS)
    args = parser.parse_args()
    if args.run:
        time_once(files(args)[args.run - 1], args)
        return
    for number, out in enumerate(files(args)):
        if not out.with_suffix(".json").is_file():
            subprocess.run([sys.executable, *sys.argv, "--run", str(number + 1)], check=True)
    summaries = [json.loads(out.with_suffix(".json").read_text(encoding="utf-8")) for out in files(args)]
    header = summaries[0]["header"]
    cpu = torch.device("cpu")
    result = {
        "command": " ".join(["python", "runs/times.py", *sys.argv[1:]]),
        "size": args.size,
        "runs": args.runs,
        "questions timed in each": summaries[0]["timed"],
        "machine": header["machine"]
        | {"device": processor_name(cpu), "cores": os.cpu_count(), "dtype": "float32"},
        "versions": header["versions"],
        "weights": header["weights"],
        "methods": ranges(summaries),
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for method, row in result["methods"].items():
        low, high = row["ttft range"]
        print(
            f"{method:28} {row['ttft_ms']:9,.0f} ms  {low:6.2f} to {high:6.2f} times sooner than all tokens"
        )


if __name__ == "__main__":
    main()
