"""What magnified cells are worth: pages larger than the model is given them, read at equal tokens.

    python runs/magnify.py --tokens 1024 --pages 24 --out runs/results/magnify.json
    python runs/magnify.py --tokens 576 --pages 24 --out runs/results/magnify.json        adds its part
    python runs/magnify.py --table                                                        as in docs/modes.md

Drawn pages of 2,048 px, split "test", which the processor shrinks to --tokens cells of 32 px; the bundled model
answers from all of them, from chosen ones as it was given them, and from chosen ones magnified. Nulls: cells of
another question of the page, magnified; and the whole page with its 4,096 tokens (--original pages of it). Exact
match. Cost: some eight seconds of one core a question, and twelve more with the original.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from arr_coc import ARRCOCModel
from arr_coc.answer import Answer
from arr_coc.data.metrics import exact_match
from arr_coc.files.atomic import write_atomic
from arr_coc_lab.world import draw_page

sys.path.insert(0, str(Path(__file__).parent))

from magnify_table import magnify_text

SIDE, CELL = 2048, 32
ORIGINAL = 4096  # cells of a page as it is
ORIGINALS = ("full", "sparse", "saccade")  # modes in which a page is read as it is
SMALL = ("small", "gray", "note")  # families of small or faint print
WAYS: dict[str, dict[str, Any]] = {
    "all tokens": {"mode": "full"},
    "sparse": {"mode": "sparse"},
    "saccade": {"mode": "saccade"},
    "sparse, magnify 2": {"mode": "sparse", "magnify": 2},
    "sparse, magnify auto": {"mode": "sparse", "magnify": "auto"},
    "sparse, all tokens' worth, magnify auto": {"mode": "sparse", "magnify": "auto", "budget": 1.0},
    "saccade, magnify 2": {"mode": "saccade", "magnify": 2},
    "saccade, magnify auto": {"mode": "saccade", "magnify": "auto"},
}
NULL = "another question's cells, magnify 2"


def given(model: ARRCOCModel, page: Any, tokens: int) -> Any:
    """A session about a page that the processor shrinks to at most so many cells."""
    model.processor.image_processor.size = {"shortest_edge": CELL**2, "longest_edge": tokens * CELL**2}
    return model.session(page.image)


def measure(model: ARRCOCModel, tokens: int, pages: int, per_page: int, original: int) -> dict[str, Any]:
    """Answers, tokens and seconds of each way, over all questions."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def note(way: str, family: str, answer: Answer, right: str) -> None:
        correct = exact_match(answer.text, [right])
        row = {"family": family, "right": correct, "read": answer.read, "ms": round(answer.ms["total"])}
        rows[way].append(row | {"magnified": [round(scale, 2) for scale in answer.magnified]})

    for number in range(pages):
        page = draw_page(number, (SIDE, SIDE), "test")
        questions = page.questions[:per_page]
        session = given(model, page, tokens)
        for i, question in enumerate(questions):
            for way, how in WAYS.items():
                note(
                    way, question.family, session.ask(question.text, max_new_tokens=8, **how), question.answer
                )
            other = session.look(questions[i - 1].text, mode="sparse", budget=68).keep
            if len(questions) > 1:
                how = {"mode": "sparse", "magnify": 2, "cells": other}
                note(
                    NULL,
                    question.family,
                    session.ask(question.text, max_new_tokens=8, **how),
                    question.answer,
                )
        if number < original:
            session = given(model, page, ORIGINAL)
            for question in questions:
                for mode in ORIGINALS:
                    answer = session.ask(question.text, mode=mode, max_new_tokens=8)
                    note(f"the original, {mode}", question.family, answer, question.answer)
        print(number, {way: round(share(found), 2) for way, found in rows.items()}, flush=True)
    return {way: summary(found) for way, found in rows.items()}


def share(rows: list[dict[str, Any]]) -> float:
    """The share of right answers."""
    return sum(row["right"] for row in rows) / len(rows)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a way."""
    small = [row for row in rows if row["family"] in SMALL]
    families = sorted({row["family"] for row in rows})
    scales = [scale for row in rows for scale in row["magnified"]]
    return {
        "questions": len(rows),
        "exact match": round(share(rows), 4),
        "small print": round(share(small), 4) if small else None,
        "questions of small print": len(small),
        "tokens read": round(sum(row["read"] for row in rows) / len(rows), 1),
        "ms": round(sum(row["ms"] for row in rows) / len(rows)),
        "scale": round(sum(scales) / len(scales), 2) if scales else 1.0,
        "by family": {f: round(share([row for row in rows if row["family"] == f]), 4) for f in families},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--pages", type=int, default=24)
    parser.add_argument("--per-page", type=int, default=6)
    parser.add_argument("--original", type=int, default=0, help="pages that are read as they are, too")
    parser.add_argument("--out", type=Path, default=Path("runs/results/magnify.json"))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    result = json.loads(options.out.read_text()) if options.out.is_file() else {"parts": {}}
    if options.table:
        print(magnify_text(result))
        return
    start, model = time.monotonic(), ARRCOCModel.from_pretrained()
    ways = measure(model, options.tokens, options.pages, options.per_page, options.original)
    command = f"python runs/magnify.py --tokens {options.tokens} --pages {options.pages}"
    command += f" --per-page {options.per_page} --original {options.original}"
    result["parts"][str(options.tokens)] = {
        "command": command,
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "machine": platform.machine(),
        "minutes": round((time.monotonic() - start) / 60, 1),
        "ways": ways,
    }
    write_atomic((json.dumps(result, indent=1) + "\n").encode(), options.out)
    print(magnify_text(result))


if __name__ == "__main__":
    main()
