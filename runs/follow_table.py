"""The table of follow-up questions for the pages: from bench/results/follow.json and its like, as markdown."""

from __future__ import annotations

from statistics import fmean
from typing import Any

Rows = list[dict[str, Any]]
SETTINGS = {
    "session": "each question by itself",
    "chat": "each with the conversation before it",
    "server": "a server",
}


def follow_text(results: list[dict[str, Any]]) -> str:
    """A table per shape and setting, a row per way: what questions 2 to 5 retain, cost and hold.

    Args:
        results: contents of result files; rows of one shape stand together, whichever command wrote them.
    """
    parts: list[str] = []
    shapes: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        shapes.setdefault(result["circumstances"]["shape"], []).append(result)
    for shape, group in shapes.items():
        rows = [row for result in group for row in result["rows"]]
        lines = [line for result in group for line in result.get("break-even", [])]
        together = {
            name: line for result in group for name, line in result.get("questions 2 to 5", {}).items()
        }
        for setting in dict.fromkeys(row["setting"] for row in rows):
            own = [row for row in rows if row["setting"] == setting]
            ends = {line["way"]: line for line in lines if line["setting"] == setting}
            scores = {
                name.partition(" ")[2]: one for name, one in together.items() if name.split()[0] == setting
            }
            parts.append(f"{_title(shape, setting, group)}\n\n{_table(own, ends, scores)}")
    return "\n\n".join(parts)


def _title(shape: str, setting: str, group: list[dict[str, Any]]) -> str:
    """What a table is of."""
    facts = group[0]["circumstances"]
    name = "The bundled model" if shape == "bundled" else f"{shape}, random weights"
    width, height = facts["image"]
    pages = f", {facts['pages']} pages of five questions" if facts.get("pages") else ""
    rounds = f", times of {facts['rounds']} rounds ({facts['device']})" if facts.get("rounds") else ""
    return f"{name}, {width}x{height} px, {SETTINGS.get(setting, setting)}{pages}{rounds}:"


def _table(rows: Rows, ends: dict[str, dict[str, Any]], scores: dict[str, dict[str, Any]]) -> str:
    """A row per way; columns that nobody measured are left out."""
    timed = any(row.get("ratio") is not None for row in rows)
    scored = any(row.get("retained") is not None for row in rows)
    head = ["", *(["score, question 1", "retained", "score, 2 to 5", "retained"] if scored else [])]
    head += ["tokens in cache", "MiB held", "operations, question 1", "2 to 5"]
    head += [
        *(["time, question 1", "2 to 5", "time, 2 to 5, x stock's"] if timed else []),
        "stock cheaper from",
    ]
    lines = [f"| {' | '.join(head)} |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for way in dict.fromkeys(row["way"] for row in rows):
        turns = sorted((row for row in rows if row["way"] == way), key=lambda row: row["turn"])
        first, later = turns[0], turns[1:]
        cells = [way]
        if scored:
            total = scores.get(way, {})
            cells += [_percent(first.get("score")), _percent(first.get("retained"))]
            cells += [_percent(total.get("score", _mean(later, "score")))]
            cells += [_range(total) if "retained_range" in total else _percent(_mean(later, "retained"))]
        cells += [_span(turns, "tokens", ",.0f"), _span(turns[-1:], "held_mb", ",.1f")]
        cells += [_percent(first.get("flop cost")), _span(later, "flop cost", ".1%")]
        if timed:
            cells += [_percent(first.get("cost")), _span(later, "cost", ".1%"), _span(later, "ratio", ".2f")]
        lines.append(f"| {' | '.join([*cells, _end(ends.get(way, {}), timed)])} |")
    return "\n".join(lines)


def _end(line: dict[str, Any], timed: bool) -> str:
    """From which question on stock is cheaper, by time where that was measured, and by operations."""
    texts = []
    for unit, name in (("time", "by time"), ("operations", "by operations")):
        if unit in line and (unit == "operations" or timed):
            start, until = line[unit]["stock from"], line[unit].get("stock until")
            text = "never" if start is None else f"question {start}" + (f" to {until}" if until else "")
            texts.append(f"{text} {name}")
    return "; ".join(texts) or "-"


def _mean(rows: Rows, name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return fmean(values) if values else None


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _range(line: dict[str, Any]) -> str:
    low, high = line["retained_range"]
    return f"{line['retained']:.1%} ({low:.1%} to {high:.1%})"


def _span(rows: Rows, name: str, form: str) -> str:
    """A figure over turns: one, or its range."""
    values = [format(row[name], form) for row in rows if row.get(name) is not None]
    if not values:
        return "-"
    low, high = (pick(row[name] for row in rows if row.get(name) is not None) for pick in (min, max))
    return values[0] if len(set(values)) == 1 else f"{format(low, form)} to {format(high, form)}"
