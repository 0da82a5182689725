"""Records which cells the guide keeps for a thousand questions, so that two states of the code can be compared.

    python runs/same_cells.py record before.json [--folder FOLDER]     some three minutes of a core
    python runs/same_cells.py compare before.json after.json [--out FILE]

The questions are those of FOLDER, pictures with `questions.jsonl` as for `runs/real_pictures.py`, and of drawn pages up to
COUNT. It calls what the pages promise and nothing else, so that the same file runs on older states: copy it there.
A kept cell that differs is a tie where its relevance and that of the cell in its place are within TIE of each other.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from arr_coc import Selector
from arr_coc.guide.guide import load_guide

COUNT = 1000
BUDGETS = (64, 273, "auto")
"""In turns over the questions."""
TIE = 1e-3
"""Difference of the relevance in [0, 1] below which two cells are equally good."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recorded = commands.add_parser("record")
    recorded.add_argument("out", type=Path)
    recorded.add_argument("--folder", type=Path)
    compared = commands.add_parser("compare")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    compared.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    if arguments.command == "record":
        rows = record(arguments.folder)
        arguments.out.write_text(json.dumps(rows), encoding="utf-8")
        print(f"{len(rows)} questions")
        return 0
    before, after = (json.loads(path.read_text("utf-8")) for path in (arguments.before, arguments.after))
    facts = compare(before, after)
    print(json.dumps(facts, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return int(facts["questions with other cells, ties aside"] > 0)


def record(folder: Path | None) -> dict[str, Any]:
    """The kept cells and their relevance, by picture and question."""
    # In float32, for in bfloat16 another order of additions moves relevance by up to 0.02.
    selector, rows = Selector(load_guide(dtype="float32")), dict[str, Any]()
    with tempfile.TemporaryDirectory() as name:
        for path, question in questions(folder, Path(name)):
            budget = BUDGETS[len(rows) % len(BUDGETS)]
            kept = selector(path, question, budget=budget)
            rows[f"{path.name}: {question}"] = {
                "budget": budget,
                "keep": kept.keep.tolist(),
                "relevance": [round(x, 6) for x in kept.balanced.flatten().tolist()],
            }
            if len(rows) == COUNT:
                break
    return rows


def questions(folder: Path | None, drawn: Path) -> Iterator[tuple[Path, str]]:
    """Pictures with questions: of the folder first, then drawn ones."""
    if folder is not None:
        yield from listed(folder)
    draw = ["-m", "arr_coc", "draw", "--count", "120", "--seed", "4000", "--out", str(drawn)]
    subprocess.run([sys.executable, *draw], check=True, stdout=subprocess.DEVNULL)
    yield from listed(drawn)


def listed(folder: Path) -> Iterator[tuple[Path, str]]:
    """The pictures and questions of a folder's `questions.jsonl`."""
    for line in (folder / "questions.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        yield folder / row["image"], row["question"]


def compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """How many questions keep other cells, with and without ties, and how far relevance moved."""
    if before.keys() != after.keys():
        raise ValueError(f"other questions: {sorted(before.keys() ^ after.keys())[:3]}; record both anew")
    other, apart, furthest = 0, [], 0.0
    for key, one in before.items():
        two = after[key]
        moved = max(abs(a - b) for a, b in zip(one["relevance"], two["relevance"], strict=True))
        furthest = max(furthest, moved)
        lost, new = set(one["keep"]) - set(two["keep"]), set(two["keep"]) - set(one["keep"])
        other += bool(lost or new)
        # A swap of equals changes nothing; "auto" may also keep a cell more or less.
        values = [one["relevance"][cell] for cell in (*lost, *new)]
        if values and max(values) - min(values) > TIE:
            apart.append(key)
    return {
        "questions": len(before),
        "questions with other cells": other,
        "questions with other cells, ties aside": len(apart),
        "largest difference of relevance": round(furthest, 6),
        "such as": apart[:5],
    }


if __name__ == "__main__":
    sys.exit(main())
