"""The table of magnified cells in docs/modes.md, from `runs/results/magnify.json`."""

from __future__ import annotations

from typing import Any

NAMES = {
    "all tokens": "all tokens of the shrunk page",
    "sparse, all tokens' worth, magnify auto": '`sparse`, `magnify="auto"`, `budget=1.0`',
    "sparse, magnify auto": '`sparse`, `magnify="auto"`',
    "saccade, magnify auto": '`saccade`, `magnify="auto"`',
    "another question's cells, magnify 2": "null: another question's cells, `magnify=2`",
    "the original, full": "the page as it is, all 4,096 tokens",
    "the original, sparse": "the page as it is, `sparse`",
    "the original, saccade": "the page as it is, `saccade`",
}


def magnify_text(result: dict[str, Any]) -> str:
    """Exact match and tokens read, for each size that pages were shrunk to."""
    parts = sorted(result["parts"].items(), key=lambda part: -int(part[0]))
    ways = list(dict.fromkeys(way for _, part in parts for way in part["ways"]))
    heads = [f"shrunk to {int(tokens):,} tokens | small print | tokens read" for tokens, _ in parts]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "--:|" * 3 * len(parts)]
    for way in ways:
        cells = []
        for _, part in parts:
            one = part["ways"].get(way)
            small = None if one is None else one["small print"]
            cells += ["-"] * 3 if one is None else [f"{one['exact match']:.0%}"]
            if one is not None:
                cells += ["-" if small is None else f"{small:.0%}", f"{one['tokens read']:,.0f}"]
        name = NAMES.get(way) or ", ".join(
            f"`{piece}`" for piece in way.replace("magnify ", "magnify=").split(", ")
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    first = parts[0][1]["ways"]
    counts = first["all tokens"]
    original = first.get("the original, full", {"questions": 0})
    lines += [
        "",
        f"Exact match of the bundled model on {counts['questions']} questions about drawn pages of 2,048 x 2,048 px (test split), "
        f"{counts['questions of small print']} of them about small or faint print, on a CPU; the page as it is on the first "
        f"{original['questions']}. `python runs/magnify.py`, `runs/results/magnify.json`. What favours us: the bundled model reads "
        "print at the size that it was taught and nothing smaller, and was never taught pages of 4,096 cells.",
    ]
    return "\n".join(lines)
