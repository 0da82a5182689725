"""Measures what is chosen of real pictures that nobody here drew: today's default beside the trained allocator.

    python runs/real_pictures.py FOLDER              some five minutes of one core for 54 pictures

FOLDER holds pictures and `questions.jsonl`: a question a line, with `image`, `kind` of picture, `question`,
`answerable` and `boxes` in px of the picture that show its answer. The pictures are no part of the project; they are
for measuring alone, and nothing may be fitted to them.

Printed: how many pictures the bundled stem calls foreign; the share of evidence cells that is kept, and in brackets of
how many questions all are, at 64 and 273 of 1,024 cells and with budget "auto"; and how good the guide's verdict is: of
questions with less than all evidence at 273 of 1,024 how many had no word of warning, and of those without an answer.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from PIL import Image

from arr_coc.choose.allocation import Allocation
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.selector import Selector, StemScorer
from arr_coc.guide.trust import verdict_of
from arr_coc_lab.evaluate.guide import auc

BUDGETS = (64, 273)
OF = 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="every question's row, as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = (arguments.folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = sorted(map(json.loads, lines), key=lambda question: question["image"])
    own = Selector.from_pretrained("bundled")
    selectors = {
        "trained": Selector.from_pretrained("bundled", relevance="trained"),
        "default": own,
        "guide": Selector(sizing=own.sizing),
    }
    rows: list[dict[str, Any]] = []
    for question in questions:
        if not rows or rows[-1]["image"] != question["image"]:
            image = Image.open(arguments.folder / question["image"]).convert("RGB")
            foreign = is_foreign(own.trained, image)
        rows.append({**question, "foreign": foreign, **measure(selectors, image, question)})
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    report(rows)


def is_foreign(scorer: StemScorer, image: Image.Image) -> bool:
    """Whether the stem calls a picture foreign."""
    pixels, grid = scorer.pixels(image)
    with torch.no_grad():
        return scorer.is_foreign(scorer.stem(pixels, grid)[0])


def measure(selectors: dict[str, Selector], image: Image.Image, question: dict[str, Any]) -> dict[str, Any]:
    """The recall of each selector at each budget, and what the guide says."""
    row: dict[str, Any] = {}
    for name, selector in selectors.items():
        grid = selector.sizing.grid(image.height, image.width)
        evidence = evidence_cells(question["boxes"], grid, image.size).flatten()
        for budget in (*BUDGETS, "auto"):
            spent = budget if budget == "auto" else max(1, round(budget / OF * len(evidence)))
            decision = selector.decide(image, question["question"], spent, grid)
            row[f"{name}@{budget}"] = recall(decision.allocations[0], evidence)
            if budget == "auto":
                row[f"{name} spends"] = decision.allocations[0].kept / len(evidence)
        if name == "guide":
            coupling = decision.couplings[0]
            row |= {"confidence": coupling.confidence, "verdict": verdict_of(coupling)}
            row["matches"] = [f"{one.term} {one.likeness:.2f}" for one in coupling.best()]
    return row


def recall(allocation: Allocation, evidence: torch.Tensor) -> float | None:
    """The share of evidence cells that is kept; None without evidence."""
    if not evidence.any():
        return None
    return float((evidence & allocation.mask().flatten()).sum() / evidence.sum())


def report(rows: list[dict[str, Any]]) -> None:
    """Print the tables."""
    kinds = defaultdict(list)
    for row in {row["image"]: row for row in rows}.values():
        kinds[row["kind"]].append(row["foreign"])
    print("called foreign:", ", ".join(f"{kind} {sum(one)} of {len(one)}" for kind, one in kinds.items()))
    answerable = [row for row in rows if row["guide@64"] is not None]
    print(f"\n{len(answerable)} questions with evidence:")
    for name in ("trained", "default", "guide"):
        cells = [f"{name}@{budget}" for budget in (*BUDGETS, "auto")]
        texts = [
            f"{cell} {fmean(row[cell] for row in answerable):.3f} "
            f"({fmean(row[cell] == 1 for row in answerable):.0%})"
            for cell in cells
        ]
        print(", ".join(texts), f"with {fmean(row[f'{name} spends'] for row in answerable):.0%} of the cells")
    missed = [row for row in answerable if row["guide@273"] < 1]
    silent = sum(row["verdict"] == "sure" for row in missed)
    right = [row for row in answerable if row["guide@273"] == 1]
    print(f"\nsure: {sum(row['verdict'] == 'sure' for row in right)} of {len(right)} with all evidence kept,")
    print(f"      {silent} of {len(missed)} with less, without a word of warning,")
    vain = [row for row in rows if not row["answerable"]]
    print(f"      {sum(row['verdict'] == 'sure' for row in vain)} of {len(vain)} that have no answer")
    scores = [[row["confidence"] for row in part] for part in (answerable, vain)]
    print(f"      confidence tells an answer from none with AUC {auc(*scores):.2f}")


if __name__ == "__main__":
    main()
