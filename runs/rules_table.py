"""The table of docs/pixels.md: rules of spending from `arr_coc.pixels.RULES`, with what some pictures cost.

python runs/rules_table.py          # writes it between the marks of that page
"""

from __future__ import annotations

from pathlib import Path

from arr_coc.pixels import RULES

PAGE = Path(__file__).parents[1] / "docs" / "pixels.md"
MARKS = ("<!-- rules -->", "<!-- /rules -->")
SIZES = ((320, 240), (1280, 800), (3840, 2160))


def rules_table() -> str:
    """The rules as a markdown table."""
    heads = " | ".join(f"{width} x {height}" for width, height in SIZES)
    lines = [f"| `--for` | models | {heads} | source, and the day it was read |", "|---|---|--:|--:|--:|---|"]
    for rule in RULES.values():
        about = "about " if rule.approximate else ""
        costs = " | ".join(f"{about}{rule.tokens(*size):,}" for size in SIZES)
        host = rule.source.split("/")[2]
        lines.append(f"| `{rule.name}` | {rule.models} | {costs} | [{host}]({rule.source}), {rule.date} |")
    return "\n".join(lines)


def page() -> str:
    """The page with the table as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{rules_table()}\n{MARKS[1]}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
