"""Records what is answered and kept, so that two states of the code can be compared: a change of layout changes neither.

    python runs/same_answers.py record before.json     some 15 minutes of two cores
    python runs/same_answers.py compare before.json after.json

200 questions about drawn pages, each in every mode of the bundled model: the answer, the kept cells of every image and
their relevance. Then one question to a tiny random model of every family, in every mode that it offers. It calls what
the pages promise and nothing else, so that the same file runs on older and newer states: copy it there.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from arr_coc import MODES, Allocation, ARRCOCModel, ARRCOCQwen

QUESTIONS = 60
PAGES = 20
BUDGETS = (64, 273, "auto")
"""In turns over the questions."""
CLOSE = 1e-5
"""The largest difference of a relevance in [0, 1] that other orders of additions explain."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("out", type=Path)
    compared = commands.add_parser("compare")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    if arguments.command == "record":
        rows = bundled_rows() | tiny_rows()
        arguments.out.write_text(json.dumps(rows), encoding="utf-8")
        print(f"{len(rows)} answers, digest {digest(rows)}")
        return 0
    before, after = (json.loads(path.read_text("utf-8")) for path in (arguments.before, arguments.after))
    return compare(before, after)


def bundled_rows() -> dict[str, Any]:
    """Answers of the bundled model to drawn pages, by question and mode."""
    rows: dict[str, Any] = {}
    model = ARRCOCQwen.from_pretrained()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw = ["-m", "arr_coc", "draw", "--count", str(PAGES), "--seed", "4000", "--out", name]
        subprocess.run([sys.executable, *draw], check=True, stdout=subprocess.DEVNULL)
        lines = map(json.loads, (folder / "questions.jsonl").read_text("utf-8").splitlines())
        by_page: dict[str, list[str]] = {}
        for line in lines:
            by_page.setdefault(line["image"], []).append(line["question"])
        for image, questions in by_page.items():
            for number, question in enumerate(questions[: QUESTIONS // PAGES]):
                for mode in MODES:
                    budget = BUDGETS[number % len(BUDGETS)]
                    answer = model.ask(str(folder / image), question, mode=mode, budget=budget)
                    rows[f"{image}: {question} ({mode}, {budget})"] = row(answer.text, answer.allocations)
    return rows


def tiny_rows() -> dict[str, Any]:
    """Answers of tiny random models, by family and mode."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from tiny import EVERY, picture, tiny  # of the same state of the code

    rows: dict[str, Any] = {}
    for family in EVERY:
        small = tiny(family)
        torch.manual_seed(0)
        model = ARRCOCModel.wrap(small.model, small.processor)
        for mode in MODES:
            try:
                answer = model.ask(picture(1), "What is it?", mode=mode, budget=6, max_new_tokens=4)
                rows[f"{family} ({mode})"] = row(answer.text, answer.allocations)
            except ValueError as error:
                rows[f"{family} ({mode})"] = {"refused": str(error)}
        model.unwrap()
    return rows


def row(text: str, allocations: tuple[Allocation, ...]) -> dict[str, Any]:
    """What is compared of one answer."""
    return {
        "text": text,
        "keep": [one.keep.tolist() for one in allocations],
        "order": [hashlib.sha256(str(one.order.tolist()).encode()).hexdigest()[:16] for one in allocations],
        "relevance": [[round(x, 6) for x in one.balanced.flatten().tolist()[::7]] for one in allocations],
        "weights": [[round(x, 6) for x in one.weights.tolist()] for one in allocations],
    }


def digest(rows: dict[str, Any]) -> str:
    """One digest of answers and kept cells, without the relevance, which sums in another order may move."""
    told = [(key, one.get("text", one.get("refused")), one.get("keep")) for key, one in sorted(rows.items())]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs; the exit status is 1 where anything does."""
    print(f"before: {len(before)} answers, digest {digest(before)}; after: {len(after)}, {digest(after)}")
    if before.keys() != after.keys():
        print("other questions:", sorted(before.keys() ^ after.keys())[:5])
    differing, furthest = 0, 0.0
    for key in sorted(before.keys() & after.keys()):
        one, other = before[key], after[key]
        differs = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
        for name in differs & {"relevance", "weights"}:
            lists = zip(one[name], other[name], strict=False)
            apart = max((abs(a - b) for x, y in lists for a, b in zip(x, y, strict=False)), default=0.0)
            furthest = max(furthest, apart)
            if apart <= CLOSE:
                differs -= {name}
        if differs:
            differing += 1
            print(f"{key}: {', '.join(sorted(differs))}")
    print(f"{differing} differ; relevance at most {furthest:.1e} apart elsewhere")
    return int(differing > 0 or before.keys() != after.keys())


if __name__ == "__main__":
    sys.exit(main())
