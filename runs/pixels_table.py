"""What a reader finds on packed pictures, from `runs/results/pixels.json`."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SHOWN = {
    "arr-coc": "**arr-coc, `auto`**",
    "arr-coc crops": "arr-coc, `crops`",
    "shrunk": "null: the picture shrunk",
    "crops of another question": "null: our crops for another picture's question",
    "densest print": "null: crop of the densest print",
    "centre crop": "null: crop of the middle",
    "random crop": "null: crop at random",
    "oracle's crops": "crops of the labelled evidence",
    "whole": "what the engine shows of the whole picture",
}


def pixels_text() -> str:
    """A table for each set of pictures."""
    tables = json.loads((RESULTS / "pixels.json").read_bytes())
    parts = [_table(name, facts) for name, facts in tables.items()]
    machine = next(iter(tables.values()))["machine"]
    return "\n\n".join(parts) + (
        "\n\nShares of the questions whose printed answer RapidOCR finds on the picture as it is; it had no part in training, and what a "
        "vision-language model would answer was not measured here. Budgets are of 1,024 tokens of 32 x 32 px, scaled to each picture, or "
        f"counts where an engine shrinks. `python runs/pixels.py`, `runs/results/pixels.json`, {machine['processor']}."
    )


def _table(name: str, facts: dict[str, Any]) -> str:
    methods = facts["groups"]["all"]
    budgets = list(next(iter(methods.values())))
    questions = methods["arr-coc"][budgets[0]]["questions"]
    lines = [
        f"**{name[0].upper()}{name[1:]}**, {questions} questions",
        "",
        f"| answers read, by tokens | {' | '.join(budgets)} |",
        "|---|" + "--:|" * len(budgets),
    ]
    for method, text in SHOWN.items():
        if method in methods and (method != "whole" or facts["seen"]):
            cells = [f"{methods[method][budget]['read']:.0%}" for budget in budgets]
            lines.append(f"| {text} | {' | '.join(cells)} |")
    shares = " / ".join(f"{methods['arr-coc'][budget]['shrunk']:.0%}" for budget in budgets)
    return "\n".join(lines) + f"\n\n`auto` took the shrunk picture for {shares} of the questions."
