"""The table of docs/scale.md: what choosing for a corpus costs, from bench/results/corpus.json."""

import json
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parents[1] / "bench" / "results" / "corpus.json"


def corpus_text() -> str:
    """CPU seconds of a page by size, and hours of a core for a million of them."""
    facts: dict[str, Any] = json.loads(RESULT.read_bytes())
    sizes = {name: row for name, row in facts.items() if isinstance(row, dict)}
    pages = {row["pages"] for row in sizes.values()}
    lines = [
        "| PNG of a drawn page, px | CPU seconds: page with a question | of it opening, choosing, boxes (medians) "
        "| another question about it | hours of a core: a million pages | a million more questions "
        "| results of a million |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, row in sizes.items():
        steps = ", ".join(
            f"{row['median seconds of the steps'][key]:.3f}" for key in ("open", "choose", "boxes")
        )
        lines.append(
            f"| {name.replace('x', ' x ')} | {row['seconds of a page and its question']:.2f} | {steps} "
            f"| {row['seconds of another question about it']:.2f} "
            f"| {row['core hours of a million pages']:,} | {row['core hours of a million more questions']:,} "
            f"| {row['bytes of its result'] / 1000:.1f} GB |"
        )
    key = next(key for key in next(iter(sizes.values())) if "together" in key)
    others = ", ".join(
        f"{name.replace('x', ' x ')}: {row[key]['seconds of a page']:.2f} s of CPU a page, "
        f"{row[key]['share of cells that are others']:.1%} of the cells are others "
        f"(in {row[key]['pages with another cell']} of {row['pages']} pages)"
        for name, row in sizes.items()
    )
    return "\n".join([
        *lines, "",
        f"{max(pages)} pages of each size, {facts['budget']} cells, one thread, {facts['machine']}, torch {facts['torch']}; "
        f"the machine had other work meanwhile (load {facts['load']:.0f}). Starting an actor takes "
        f"{facts['seconds of starting an actor']:.0f} s of CPU. {key[0].upper()}{key[1:]}: {others}.",
    ])  # fmt: skip
