"""The tables of follow-up questions for the pages: from bench/results/follow.json and its like, as markdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

Rows = list[dict[str, Any]]
SETTINGS = {
    "session": "each question by itself",
    "chat": "each with the conversation before it",
    "server": "a vLLM server, each with the conversation before it",
}
SHAPES = {"bundled": "The bundled model", "mid": "A middle shape (8 layers of 512), random weights"}


def follow_blocks(folder: Path) -> dict[str, str]:
    """The blocks of the pages that there are result files for: "follow", and "served" for the page about serving.

    Args:
        folder: of the result files.
    """
    results = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("follow*.json"))
    }
    found = {"follow": follow_text(list(results.values()))} if results else {}
    return found | ({"served": served_text(results["follow-served"])} if "follow-served" in results else {})


def follow_text(results: list[dict[str, Any]]) -> str:
    """A table per shape and setting, a row per way: what questions 2 to 5 retain, cost and hold.

    Args:
        results: contents of result files; rows of one shape stand together, whichever command wrote them.
    """
    parts: list[str] = []
    shapes: dict[str, list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda one: one["circumstances"]["shape"] != "bundled"):
        shapes.setdefault(result["circumstances"]["shape"], []).append(result)
    for shape, group in shapes.items():
        settings = dict.fromkeys(row["setting"] for result in group for row in result["rows"])
        for setting in sorted(settings, key=list(SETTINGS).index):
            of = [one for one in group if any(row["setting"] == setting for row in one["rows"])]
            own = [row for one in of for row in one["rows"] if row["setting"] == setting]
            lines = [line for one in of for line in one.get("break-even", [])]
            ends = {line["way"]: line for line in lines if line["setting"] == setting}
            together = [item for one in of for item in one.get("questions 2 to 5", {}).items()]
            scores = {name.partition(" ")[2]: one for name, one in together if name.split()[0] == setting}
            parts.append(f"{_title(shape, of[0]['circumstances'], own)}\n\n{_table(own, ends, scores)}")
    return "\n\n".join(parts)


def served_text(result: dict[str, Any]) -> str:
    """What a server's follow-up questions come to, for the page about serving.

    Args:
        result: of `bench/follow_served.py`, the bundled model.
    """
    rows, later = result["rows"], result["questions 2 to 5"]
    head = [
        "",
        "visual tokens",
        "question 1 right",
        "2 to 5 right",
        "of stock's",
        "image read anew at 2 to 5",
    ]
    head += ["of the prompt in the prefix cache at 2 to 5", "time of 2 to 5, x stock's"]
    lines = [f"| {' | '.join(head)} |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for way in dict.fromkeys(row["way"] for row in rows):
        turns = sorted((row for row in rows if row["way"] == way), key=lambda row: row["turn"])
        total = later[f"server {way}"]
        cells = [way, _span(turns, "tokens", ",.0f"), _percent(turns[0]["score"]), _percent(total["score"])]
        cells += [_percent(total["retained"]), _span(turns[1:], "changed", ".0%")]
        cells += [_span(turns[1:], "cached", ".0%"), _span(turns[1:], "ratio", ".1f")]
        lines.append(f"| {' | '.join(cells)} |")
    froms = {
        line["way"]: line["time"]["stock from"]
        for line in result["break-even"]
        if "time" in line and not line["way"].endswith(" first")
    }
    ends = "; ".join(
        f"{way} from {'none' if start is None else f'question {start}'} on" for way, start in froms.items()
    )
    share = result["circumstances"].get("others", 0)
    busy = f" Other programs took {share:.0%} of the cores meanwhile." if share >= 0.05 else ""
    ends = f"Stock took less time in all, the first question with the rest: against {ends}."
    return "\n".join(lines) + f"\n\n{ends}{busy}"


def _title(shape: str, facts: dict[str, Any], rows: Rows) -> str:
    """What a table is of."""
    name = SHAPES.get(shape, f"{shape}, random weights")
    width, height = facts["image"]
    pages = f", {facts['pages']} pages of five questions" if facts.get("pages") else ""
    rounds = f", times of {facts['rounds']} rounds ({facts['device']})" if facts.get("rounds") else ""
    others = facts.get("others", 0)
    busy = f"; other programs took {others:.0%} of the cores meanwhile" if others >= 0.05 else ""
    return f"{name}, {width}x{height} px, {SETTINGS[rows[0]['setting']]}{pages}{rounds}{_stock(rows)}{busy}:"


def _stock(rows: Rows) -> str:
    """How long a server's own requests take, in milliseconds."""
    stock = [row for row in rows if row["way"] == "stock" and row.get("cached") is not None]
    own = {row["turn"]: row["ms"] for row in stock if row.get("ms") is not None}
    if 1 not in own or len(own) < 2:
        return ""
    later = median(own[turn] for turn in own if turn > 1)
    return f"; stock's first token came after {own[1]:,.0f} ms at question 1, after {later:,.0f} ms at 2 to 5"


def _table(rows: Rows, ends: dict[str, dict[str, Any]], scores: dict[str, dict[str, Any]]) -> str:
    """A row per way; columns that nobody measured are left out."""
    timed = any(row.get("ratio") is not None for row in rows)

    def total(turns: Rows) -> dict[str, Any]:
        return scores.get(turns[0]["way"], {})

    def score(turns: Rows) -> str:
        return _percent(total(turns).get("score", _mean(turns[1:], "score")))

    def retained(turns: Rows) -> str:
        line = total(turns)
        return _range(line) if "retained_range" in line else _percent(_mean(turns[1:], "retained"))

    # Each with its heading, the figure without which it is left out, and what it says of the turns of a way.
    columns: list[tuple[str, str, Callable[[Rows], str]]] = [
        ("score, question 1", "retained", lambda turns: _percent(turns[0].get("score"))),
        ("retained", "retained", lambda turns: _percent(turns[0].get("retained"))),
        ("score, 2 to 5", "retained", score),
        ("retained", "retained", retained),
        ("tokens in cache", "held_mb", lambda turns: _span(turns, "tokens", ",.0f")),
        ("MiB held", "held_mb", lambda turns: _span(turns[-1:], "held_mb", ",.1f")),
        ("visual tokens", "cached", lambda turns: _span(turns, "tokens", ",.0f")),
        ("found in the prefix cache, 2 to 5", "cached", lambda turns: _span(turns[1:], "cached", ".0%")),
        ("image read anew, 2 to 5", "changed", lambda turns: _span(turns[1:], "changed", ".0%")),
        ("operations, question 1", "flop cost", lambda turns: _percent(turns[0].get("flop cost"))),
        ("2 to 5", "flop cost", lambda turns: _span(turns[1:], "flop cost", ".1%")),
        ("time, question 1", "ratio", lambda turns: _percent(turns[0].get("cost"))),
        ("2 to 5", "ratio", lambda turns: _span(turns[1:], "cost", ".1%")),
        ("time, 2 to 5, x stock's", "ratio", lambda turns: _span(turns[1:], "ratio", ".2f")),
        ("processor time, question 1", "cpu cost", lambda turns: _percent(turns[0].get("cpu cost"))),
        ("2 to 5", "cpu cost", lambda turns: _span(turns[1:], "cpu cost", ".1%")),
        ("stock cheaper from", "way", lambda turns: _end(ends.get(turns[0]["way"], {}), timed)),
    ]
    columns = [column for column in columns if any(row.get(column[1]) is not None for row in rows)]
    lines = [
        f"| {' | '.join(['', *(heading for heading, *_ in columns)])} |",
        "|---" + "|--:" * len(columns) + "|",
    ]
    for way in dict.fromkeys(row["way"] for row in rows):
        turns = sorted((row for row in rows if row["way"] == way), key=lambda row: row["turn"])
        lines.append(f"| {' | '.join([way, *(cell(turns) for *_, cell in columns)])} |")
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
