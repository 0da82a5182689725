"""Tables of a summary, in markdown.

    table(summary, "short" | "budgets" | "families" | "time") -> text;  claims_table(claims) -> text

Laws: a table reads the summary alone; ours are in bold; columns that nothing was measured for are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from arr_coc.evaluate.summary import (
    FULL,
    SACCADE,
    SPARSE,
    Row,
    Summary,
    at_equal_time,
    by_budget,
    kind,
    split_method,
)


def percent(value: float) -> str:
    """A share as 12.3%."""
    return f"{value:.1%}"


def points(value: float) -> str:
    """A share in percentage points, 12.3."""
    return f"{100 * value:.1f}"


def table(summary: Summary, columns: str = "short") -> str:
    """A markdown table, one row per method, by budget; columns that nothing was measured for are left out.

    Args:
        summary: of `summarise`.
        columns: "short" for tokens, score, recall and time of each method with each budget; "budgets" for
            a row per method: its score with each, and recall, query-swap IoU and speed with the smallest;
            "families" for the score of every family, the lowest of a row in bold; "time" for what each method
            reaches in the time to first token of each of ours.

    Raises:
        ValueError: unknown columns, or families or times of a summary that has none.
    """
    order = [method for group in by_budget(summary).values() for method in group]
    rows = [(method, summary["methods"][method]) for method in order]
    if columns == "families":
        return _family_table(rows)
    if columns == "budgets":
        return _budget_table(summary)
    if columns == "time":
        return _time_table(summary)
    if columns != "short":
        raise ValueError(f'columns {columns!r} are unknown: use "short", "budgets", "families" or "time"')
    found: list[tuple[str, Callable[[Row], str | None]]] = [
        ("tokens", _shown("tokens", ",.0f")),
        (
            summary["metric"],
            lambda r: f"{r['score']:.1%} ({points(r['interval'][0])}-{points(r['interval'][1])})",
        ),
        ("retained", _shown("retained", ".1%")),
        ("recall", _shown("recall", ".1%")),
        ("swap IoU", _shown("swap IoU", ".2f")),
        ("TTFT ms", _shown("ttft_ms", ",.0f")),
        ("speed-up", _shown("ttft ratio", ".2f")),
        ("peak MB", _shown("peak_mb", ",.0f")),
    ]
    cells = {name: [show(row) for _, row in rows] for name, show in found}
    cells = {name: column for name, column in cells.items() if any(column)}
    names = [f"**{method}**" if kind(method) == "ours" else method for method in order]
    lines = zip(names, *([cell or "-" for cell in column] for column in cells.values()), strict=True)
    return _markdown(["method", *cells], lines)


def _family_table(rows: Sequence[tuple[str, Row]]) -> str:
    names = list(dict.fromkeys(name for _, row in rows for name in row["families"]))
    if not names:
        raise ValueError('the questions have no families: use the columns "short"')
    lines = []
    for method, row in rows:
        scores = {name: family["score"] for name, family in row["families"].items()}
        weakest = min(scores, key=lambda name: scores[name], default=None)
        texts = [percent(scores[name]) if name in scores else "-" for name in names]
        shown = [f"**{text}**" if name == weakest else text for name, text in zip(names, texts, strict=True)]
        lines.append((method, percent(row["score"]), *shown))
    return _markdown(["method", "all", *names], lines)


def _shown(key: str, form: str) -> Callable[[Row], str | None]:
    return lambda row: None if row[key] is None else format(row[key], form)


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    align = "|---" + "|--:" * (len(head) - 1) + "|"
    return "\n".join(["| " + " | ".join(head) + " |", align, *("| " + " | ".join(c) + " |" for c in lines)])


def _budget_table(summary: Summary) -> str:
    """A row per method, best with the smallest budget first; the scores of all tokens in the heading."""
    methods, groups = summary["methods"], by_budget(summary)
    asked = {split_method(method)[1] for method in methods}
    budgets = [b for b in groups if b in asked and b.replace(".", "", 1).isdigit()]
    smallest = budgets[-1] if budgets else ""
    names = list(dict.fromkeys(split_method(m)[0] for b in budgets for m in groups[b] if "@" in m))
    names.sort(key=lambda name: -methods.get(f"{name}@{smallest}", {"score": -1})["score"])
    known: list[tuple[str, Callable[[Row], str | None]]] = [
        ("recall", _shown("recall", ".2f")),
        ("swap IoU", _shown("swap IoU", ".2f")),
        ("TTFT speed-up", lambda row: None if row["ttft ratio"] is None else f"{row['ttft ratio']:.2f}x"),
    ]
    columns = {
        f"{name} @{smallest}": [show(methods[f"{n}@{smallest}"]) for n in names] for name, show in known
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    lines = []
    for i, name in enumerate(names):
        rows = [methods.get(f"{name}@{budget}") for budget in budgets]
        scores = ["-" if row is None else percent(row["score"]) for row in rows]
        shown = [*scores, *(cells[i] or "-" for cells in columns.values())]
        if kind(f"{name}@{smallest}") == "ours":
            name, *shown = (text if text == "-" else f"**{text}**" for text in (name, *shown))
        lines.append((name, *shown))
    head = [f"{summary['metric']} @{budget}" if i == 0 else f"@{budget}" for i, budget in enumerate(budgets)]
    text = _markdown(["method", *head, *columns], lines)
    fixed = [m for group in groups.values() for m in group if "@" not in m and kind(m) != "full"]
    extra = [m for m in (FULL, *fixed, *groups.get("auto", ())) if m in methods]
    notes = [
        f"{'all tokens' if m == FULL else m} ({methods[m]['tokens']:,.0f}): {percent(methods[m]['score'])}"
        for m in extra
    ]
    return text + "\n\n" + "; ".join(notes) + "."


def _time_table(summary: Summary) -> str:
    """A row per method, a column per reference, fastest first: what it reaches in the time of that one.

    References are ours that choose before the encoder; where there are none, all of ours.
    """
    methods = summary["methods"]
    timed = [m for m in methods if kind(m) == "ours" and methods[m]["ttft_ms"] is not None]
    references = [m for m in timed if split_method(m)[0] in (SPARSE, SACCADE)] or timed
    if not references:
        raise ValueError('none of ours was timed: evaluate with --timed, or use the columns "short"')
    references.sort(key=lambda m: methods[m]["ttft_ms"])
    best = [at_equal_time(summary, reference) for reference in references]
    names = list(dict.fromkeys(split_method(m)[0] for m in methods if methods[m]["ttft_ms"] is not None))
    on_time = [name for name in names if any(name in column for column in best)]
    late = [name for name in names if name not in on_time]
    on_time.sort(key=lambda name: [-methods[c[name]]["score"] if name in c else 1 for c in reversed(best)])

    def shown(name: str, column: dict[str, str]) -> str:
        if name not in column:
            return "-"
        budget = split_method(column[name])[1]
        return percent(methods[column[name]]["score"]) + (f" @{budget}" if budget else "")

    lines = []
    for name in on_time:
        texts = [name, *(shown(name, column) for column in best)]
        bold = kind(name) == "ours"
        lines.append([f"**{text}**" if bold and text != "-" else text for text in texts])
    head = [f"in {methods[m]['ttft_ms']:,.0f} ms ({m})" for m in references]
    text = _markdown(["method", *head], lines)
    return f"{text}\n\nlater than all of these, with any budget: {', '.join(late)}." if late else text


def claims_table(claims: Sequence[dict[str, Any]]) -> str:
    """The targets and what was measured, one row each."""
    says = {True: "yes", False: "**no**", None: "-"}
    lines = ((c["claim"], c["target"], c["figure"], says[c["holds"]]) for c in claims)
    return _markdown(["claim", "target", "measured", "holds"], lines)
