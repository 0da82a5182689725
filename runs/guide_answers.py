"""What the bundled model still answers from what the guide kept, beside what its own allocator kept.

    python runs/guide_answers.py --pages 120 --out runs/results/guide-answers.json

Held-out drawn pages, some questions of each; the model answers each from all tokens and, in modes "prune" and "sparse",
from 64 and 273 that its trained allocator chose or that the guide did. Exact match.
"""

import argparse
import json
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import fmean

import torch
from rich.progress import track

from arr_coc import ARRCOCModel
from arr_coc.data.metrics import exact_match
from arr_coc_lab.world import draw_page

sys.path.insert(0, str(Path(__file__).parent))  # also where this is not the script that runs
from guide import load

MODES, BUDGETS, RELEVANCES = ("prune", "sparse"), (64, 273), ("trained", "guide")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--questions", type=int, default=6, help="of a page")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = {name: ARRCOCModel.from_pretrained(relevance=name, strict=True) for name in RELEVANCES}
    right: dict[str, list[float]] = defaultdict(list)
    for seed in track(range(arguments.pages), description="pages"):
        page = draw_page(seed, (1024, 1024), "test", void=False)
        step = max(1, len(page.questions) // arguments.questions)
        sessions = {name: model.session(page.image) for name, model in models.items()}
        for question in page.questions[::step][: arguments.questions]:
            whole = sessions[RELEVANCES[0]].ask(question.text, mode="full")
            right["all tokens"].append(exact_match(whole.text, [question.answer]))
            for mode, budget, name in product(MODES, BUDGETS, RELEVANCES):
                answer = sessions[name].ask(question.text, mode=mode, budget=budget)
                right[f"{mode}@{budget} {name}"].append(exact_match(answer.text, [question.answer]))
    result = {
        "guide": load(None)[1],
        "pages": arguments.pages,
        "questions": len(right["all tokens"]),
        "exact match": {name: round(fmean(values), 4) for name, values in right.items()},
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
