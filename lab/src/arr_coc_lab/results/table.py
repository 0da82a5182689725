"""Markdown tables of a summary.

    table(summary, "short" | "budgets" | "tokens" | "families" | "time") -> text
    markdown(head, rows) -> text

A table reads the summary alone. Columns without a measurement are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from arr_coc.files.validation import nearest
from arr_coc_lab.results.filtering import sentence
from arr_coc_lab.results.kinds import FULL, SACCADE, SPARSE, kind, split_method
from arr_coc_lab.results.summary import Figures, Summary, at_equal_time, by_budget, tokens_needed

COLUMNS = ("short", "budgets", "tokens", "families", "time")  # kinds of tables
SHARES = (0.97, 0.9, 0.95, 0.99)  # of the score of all tokens, in "tokens"; by the first the rows are sorted


# what bold means in each table
BOLD = {name: "In bold: the methods of arr-coc." for name in COLUMNS} | {
    "families": "In bold: the weakest family of each method."
}


def percent(value: float) -> str:
    """Return a share as 12.3%."""
    return f"{value:.1%}"


def points(value: float) -> str:
    """Return a share in percentage points, 12.3."""
    return f"{100 * value:.1f}"


def table(summary: Summary, columns: str = "short") -> str:
    """Return a markdown table of `summary`, one row per method.

    `columns`: "short" for tokens, score, recall and time of each method with each budget; "budgets" for
    score, tokens and speed-up with every budget, recall and query-swap IoU with the smallest; "tokens" for
    how many a method needs to keep `SHARES` of the score of all tokens; "families" for the score of every
    family; "time" for what each method reaches in the time to first token of each of ours.

    Raises:
        ValueError: unknown columns, or families, times or a score of all tokens that a summary hasn't.
    """
    if columns not in COLUMNS:
        use = ", ".join(map(repr, COLUMNS))
        raise ValueError(f"columns {columns!r} are unknown: use one of {use}{nearest(columns, COLUMNS)}")
    order = [method for group in by_budget(summary).values() for method in group]
    rows = [(method, summary["methods"][method]) for method in order]
    if columns == "families":
        text = _family_table(rows)
    elif columns == "budgets":
        text = _budget_table(summary)
    elif columns == "tokens":
        text = _token_table(summary)
    elif columns == "time":
        text = _time_table(summary)
    else:
        text = _short_table(summary, rows)
    filtered = [plain(sentence(summary["filter"]))] if summary.get("filter") else []
    return "\n\n".join([text, *filtered, *_failures(summary)])


def _failures(summary: Summary) -> list[str]:
    failed = summary.get("failed")
    if not failed:
        return []
    images = [f"{plain(name)} ({plain(reason)})" for name, reason in failed["images"].items()]
    rest = [f"and {len(images) - 3:,} more"] if len(images) > 3 else []
    total = summary["questions"] + failed["questions"]
    return [
        f"{failed['questions']:,} of {total:,} questions were not asked, as their images can't be opened: "
        + "; ".join([*images[:3], *rest])
    ]


def _short_table(summary: Summary, rows: Sequence[tuple[str, Figures]]) -> str:
    counted = len({row.get("n") for _, row in rows}) > 1  # a turn 2 has fewer questions, as the filter leaves
    forms: list[tuple[str, Callable[[Figures], str | None]]] = [
        ("tokens", _formatted("tokens", ",.0f")),
        ("questions", _formatted("n", ",d") if counted or summary.get("filter") else lambda _: None),
        (
            summary["metric"],
            lambda r: f"{r['score']:.1%} ({points(r['interval'][0])}-{points(r['interval'][1])})",
        ),
        ("retained", _formatted("retained", ".1%")),
        ("recall", _formatted("recall", ".1%")),
        ("hit@IoU .5", _formatted("hit", ".1%")),
        ("swap IoU", _formatted("swap IoU", ".2f")),
        ("TTFT ms", _formatted("ttft_ms", ",.0f")),
        ("speed-up", speed_up),
        ("gain realised", _formatted("realised", "z.0%")),
        ("peak MB", _formatted("peak_mb", ",.0f")),
    ]
    cells = {name: [show(row) for _, row in rows] for name, show in forms}
    cells = {name: column for name, column in cells.items() if any(column)}
    header = summary["header"]
    names = [f"**{method}**" if kind(method, header) == "ours" else method for method, _ in rows]
    lines = zip(names, *([cell or "-" for cell in column] for column in cells.values()), strict=True)
    return markdown(["method", *cells], lines)


def _family_table(rows: Sequence[tuple[str, Figures]]) -> str:
    names = list(dict.fromkeys(name for _, row in rows for name in row["families"]))
    if not names:
        raise ValueError('the questions have no families: use the columns "short"')
    lines = []
    for method, row in rows:
        scores = {name: family["score"] for name, family in row["families"].items()}
        weakest = min(scores, key=lambda name: scores[name], default=None)
        texts = [percent(scores[name]) if name in scores else "-" for name in names]
        cells = [_bold(text) if name == weakest else text for name, text in zip(names, texts, strict=True)]
        lines.append((method, percent(row["score"]), *cells))
    return markdown(["method", "all", *names], lines)


def speed_up(row: Figures) -> str | None:
    """Return how many times sooner the first token comes, or the range over several runs."""
    if row.get("ttft range"):
        low, high = row["ttft range"]
        return f"{low:.2f}-{high:.2f}x"
    once = " (one run)" if row.get("one run") else ""
    return None if row["ttft ratio"] is None else f"{row['ttft ratio']:.2f}x{once}"


def _formatted(key: str, form: str) -> Callable[[Figures], str | None]:
    # a summary of an earlier version may lack a figure
    return lambda row: None if row.get(key) is None else format(row[key], form)


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a markdown table: the first column aligned left, the others right."""
    align = "|---" + "|--:" * (len(head) - 1) + "|"
    first, *others = ("| " + " | ".join(map(plain, cells)) + " |" for cells in (head, *lines))
    return "\n".join([first, align, *others])


def plain(text: str) -> str:
    """Return a text for one cell of a table, without control characters and separators."""
    printable = "".join(sign if sign.isprintable() else " " for sign in text)
    return printable.replace("|", "\\|")


def _bold(text: str) -> str:
    """Return a cell in bold, unless it is 0 or not measured."""
    return text if text == "-" or text.startswith(percent(0)) else f"**{text}**"


def _budget_table(summary: Summary) -> str:
    """Return a row per method, best with the smallest budget first; methods without budgets in the line
    below.
    """
    methods, header, groups = summary["methods"], summary["header"], by_budget(summary)
    named = {split_method(method)[1] for method in methods}
    budgets = [b for b in groups if b in named and b.replace(".", "", 1).isdecimal()]
    smallest = budgets[-1] if budgets else ""
    names = list(dict.fromkeys(split_method(m)[0] for b in budgets for m in groups[b] if "@" in m))
    names.sort(key=lambda name: -methods.get(f"{name}@{smallest}", {"score": -1})["score"])
    every, last = tuple(budgets), tuple(budgets[-1:])
    forms: list[tuple[str, Callable[[Figures], str | None], tuple[str, ...]]] = [
        ("reads", _formatted("tokens", ",.0f"), every),
        ("recall", _formatted("recall", ".2f"), last),
        ("swap IoU", _formatted("swap IoU", ".2f"), last),
        ("TTFT speed-up", speed_up, every),
    ]
    columns = {
        f"{name} @{budget}": [
            show(row) if (row := methods.get(f"{n}@{budget}")) is not None else None for n in names
        ]
        for name, show, own in forms
        for budget in own
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    lines = []
    for i, name in enumerate(names):
        rows = [methods.get(f"{name}@{budget}") for budget in budgets]
        scores = ["-" if row is None else percent(row["score"]) for row in rows]
        line = [name, *scores, *(cells[i] or "-" for cells in columns.values())]
        if kind(name, header) == "ours":
            line = [_bold(text) for text in line]
        lines.append(line)
    head = [f"{summary['metric']} @{budget}" if i == 0 else f"@{budget}" for i, budget in enumerate(budgets)]
    text = markdown(["method", *head, *columns], lines)
    fixed = [m for group in groups.values() for m in group if "@" not in m and kind(m, header) != "full"]
    extra = [m for m in (FULL, *fixed, *groups.get("auto", ())) if m in methods]
    tokens = _formatted("tokens", ",.0f")
    notes = [
        f"{'all tokens' if m == FULL else m} ({tokens(methods[m]) or '-'}): {percent(methods[m]['score'])}"
        for m in extra
    ]
    return text + "\n\n" + "; ".join(notes) + "."


def _time_table(summary: Summary) -> str:
    """Return a row per method, a column per reference, fastest first: the best score in that time.

    References are ours that choose before the encoder, or else all of ours.
    """
    methods, header = summary["methods"], summary["header"]
    timed = [m for m in methods if kind(m, header) == "ours" and methods[m]["ttft_ms"] is not None]
    references = [m for m in timed if split_method(m)[0] in (SPARSE, SACCADE)] or timed
    if not references:
        raise ValueError('none of ours was timed: evaluate with --timed, or use the columns "short"')
    references.sort(key=lambda m: methods[m]["ttft_ms"])
    best = [at_equal_time(summary, reference) for reference in references]
    names = list(dict.fromkeys(split_method(m)[0] for m in methods if methods[m]["ttft_ms"] is not None))
    on_time = [name for name in names if any(name in column for column in best)]
    late = [name for name in names if name not in on_time]
    on_time.sort(key=lambda name: [-methods[c[name]]["score"] if name in c else 1 for c in reversed(best)])

    def best_score(name: str, column: dict[str, str]) -> str:
        if name not in column:
            return "-"
        budget = split_method(column[name])[1]
        return percent(methods[column[name]]["score"]) + (f" @{budget}" if budget else "")

    lines = []
    for name in on_time:
        texts = [name, *(best_score(name, column) for column in best)]
        lines.append([_bold(text) for text in texts] if kind(name, header) == "ours" else texts)
    head = [f"in {methods[m]['ttft_ms']:,.0f} ms ({m})" for m in references]
    text = markdown(["method", *head], lines)
    return f"{text}\n\nlater than all of these, with any budget: {', '.join(late)}." if late else text


def _token_table(summary: Summary) -> str:
    """Return a row per method, fewest tokens first: how many keep `SHARES` of the score of all tokens."""
    full, header = summary["methods"].get(FULL), summary["header"]
    needed = {share: tokens_needed(summary, share) for share in SHARES}
    names = list(needed[SHARES[0]])
    if full is None or not names:
        raise ValueError(f"nothing was measured beside {FULL!r}: evaluate it with others, or use 'short'")
    many = full["tokens"]

    def count(tokens: float | None) -> str:
        if tokens is None:
            return "-"
        return f"{tokens:,.0f}" + (f" ({percent(tokens / many)})" if many else "")

    names.sort(key=lambda name: [needed[share][name] or math.inf for share in SHARES])
    lines = []
    for name in names:
        texts = [name, *(count(needed[share][name]) for share in sorted(SHARES))]
        lines.append([_bold(text) for text in texts] if kind(name, header) == "ours" else texts)
    head = ["tokens needed for", *(f"{share:.0%}" for share in sorted(SHARES))]
    note = (
        f"The fewest of the measured visual tokens read from which on a method keeps so much of the score of "
        f"all tokens ({percent(full['score'])}{f' with {many:,.0f}' if many else ''}); a dash: none of them."
    )
    return f"{markdown(head, lines)}\n\n{note}"
