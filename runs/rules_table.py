"""Two tables of the docs: rules of spending with what some pictures cost (docs/pixels.md), and hard limits of servers
(docs/any-model.md).

python runs/rules_table.py          # writes them between the marks of those pages
"""

from __future__ import annotations

from pathlib import Path

from arr_coc.pixels import RULES
from arr_coc.pixels.limits import LIMITS, Limits

PAGE = Path(__file__).parents[1] / "docs" / "pixels.md"
MARKS = ("<!-- rules -->", "<!-- /rules -->")
LIMITS_PAGE = PAGE.with_name("any-model.md")
LIMITS_MARKS = ("<!-- limits -->", "<!-- /limits -->")
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


def limits_table() -> str:
    """The limits as a markdown table; a star stands behind what no page of the provider's own says."""
    lines = ["| limits of | types | px a side | base64 of one | a request | pictures | other | source, and the day |",
             "|---|---|--:|--:|--:|--:|---|---|"]  # fmt: skip
    for one in LIMITS.values():
        side = f"{one.side:,}" if one.side else ""
        side += f"; {one.many_side:,} where there are more than {one.many}" if one.many_side else ""
        other = [f"{one.pixels:,} px in all" if one.pixels else "", f"{one.a_turn} a turn" if one.a_turn else "",
                 f"at least {one.least} px{star(one, 'least')}" if one.least else "",
                 f"at most {one.aspect} times as long as wide{star(one, 'aspect')}" if one.aspect else ""]  # fmt: skip
        cells = [
            f"`{one.name}`: {one.title}",
            ", ".join(one.kinds) + star(one, "kinds"),
            side,
            megabytes(one.letters) + star(one, "letters"),
            megabytes(one.request) + star(one, "request"),
            f"{one.pictures:,}{star(one, 'pictures')}" if one.pictures else "",
            ", ".join(filter(None, other)),
            f"[{one.source.split('/')[2]}]({one.source}), {one.date}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def megabytes(nbytes: int) -> str:
    """A number of bytes in MB; "" for none."""
    return f"{nbytes / 1e6:.3g} MB" if nbytes else ""


def star(limits: Limits, field: str) -> str:
    """A star if a limit has no source of its own."""
    return "*" if field in limits.unverified else ""


def page() -> str:
    """The page of rules with its table as it should be."""
    return between(PAGE, MARKS, rules_table())


def limits_page() -> str:
    """The page of limits with its table as it should be."""
    return between(LIMITS_PAGE, LIMITS_MARKS, limits_table())


def between(path: Path, marks: tuple[str, str], table: str) -> str:
    """A page with a table between its marks."""
    before, rest = path.read_text(encoding="utf-8").split(marks[0])
    _, after = rest.split(marks[1])
    return f"{before}{marks[0]}\n{table}\n{marks[1]}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    LIMITS_PAGE.write_text(limits_page(), encoding="utf-8")
