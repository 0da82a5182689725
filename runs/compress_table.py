"""The tables of gestalts for the pages: what is read of each, when its first token comes, and what it computes."""

from __future__ import annotations

from typing import Any

from arr_coc_lab.results.table import percent

FEW = 12
"""Images of which an interval says too little."""
GESTALTS = {
    "coc resize": "a smaller picture",
    "coc pool4": "averages of encoded cells",
    "coc conv4": "learned, of encoded cells",
    "coc tower4": "learned, inside the tower",
    "averaged patches 4": "averages inside the tower",
    "coc pool16": "averages of encoded cells",
    "coc conv16": "learned, of encoded cells",
    "coc tower16": "learned, inside the tower",
    "averaged patches 16": "averages inside the tower",
    "downsample": "the picture shrunk to as many tokens",
    "truncation": "the top of the page",
    "arr-coc sparse": "cells by the question, no coarse view",
    "arr-coc saccade": "a smaller picture, then cells by the question",
    "arr-coc saccade tower4": "compressed inside the tower, then cells by the question",
    "arr-coc saccade tower16": "compressed inside the tower, then cells by the question",
    "full": "all tokens",
}


def compress_text(
    summaries: list[dict[str, Any]],
    shrunk: list[dict[str, Any]],
    saccades: dict[str, Any],
    browser: dict[str, Any],
    works: list[dict[str, Any]],
    elsewhere: dict[str, Any] | None = None,
) -> str:
    """What gestalts and saccades read, per size of page, and what they compute.

    Args:
        summaries: of `arr-coc eval`, a size each.
        shrunk: for each of them, the picture shrunk to as much time as a compressor inside the tower takes, in a run of its
            own.
        saccades: of `arr-coc eval`, with more questions about large pages.
        browser: of `arr-coc eval`, on pages that a browser lays out.
        works: of `arr-coc bench --json` or `bench/prefill.py`, a model and size each.
        elsewhere: where stock was counted that one of them leaves out.
    """
    scores = [
        text
        for pair in zip(map(score_text, summaries), map(shrunk_text, shrunk), strict=True)
        for text in pair
    ]
    texts = [*scores, saccades_text(saccades), browser_text(browser)]
    return "\n\n".join([*texts, *(work_text(work, elsewhere) for work in works)])


def saccades_text(summary: dict[str, Any]) -> str:
    """Saccades behind each gestalt, side by side."""
    rows = (
        f"`{name}` {percent(row['score'])} ({100 * row['interval'][0]:.0f}-{100 * row['interval'][1]:.0f}), "
        f"{_number(row['ttft_ms'])} ms"
        for name, row in sorted(summary["methods"].items(), key=lambda each: _order(each[0]))
    )
    side = summary["header"]["size"]
    return (
        f"{summary['questions']} questions about {summary['images']} pages of {side} x {side} px, saccades alone "
        f"(`runs/results/saccade-gestalts.json`): {'; '.join(rows)} to the first token."
    )


def browser_text(summary: dict[str, Any]) -> str:
    """The best of all ways on pages that a browser lays out, beside all tokens."""
    methods = summary["methods"]
    best = max(methods, key=lambda name: methods[name]["score"])
    return (
        f"On {summary['images']} pages that a browser lays out ({summary['questions']} questions, "
        f"`runs/results/compress-browser.json`) the bundled model answers {percent(methods['full']['score'])} with all tokens "
        f"and at most {percent(methods[best]['score'])} in any of these ways: it reads no print but its own, so that "
        "nothing can be said of gestalts there."
    )


def shrunk_text(summary: dict[str, Any]) -> str:
    """The picture shrunk to more and more tokens beside the compressor that is in the same run."""
    methods, side = summary["methods"], summary["header"]["size"]
    tower = next(name for name in methods if name.startswith("coc tower"))
    rows = sorted((name for name in methods if name.startswith("downsample")), key=_order)
    shrunk = "; ".join(
        f"{name.partition('@')[2]} tokens {percent(methods[name]['score'])} ({_times(methods[name]['ttft ratio'])}x)"
        for name in rows
    )
    score, times = percent(methods[tower]["score"]), _times(methods[tower]["ttft ratio"])
    file = f"runs/results/compress-shrunk{'' if side == 1024 else f'-{side}'}.json"
    return (
        f"Shrunk to about the time of `{tower}`, in a run of its own (`{file}`; x faster than all tokens): "
        f"`{tower}` {score} ({times}x); the picture shrunk to {shrunk}."
    )


def score_text(summary: dict[str, Any]) -> str:
    """A table of one size of page, and what is best in the time of a gestalt from inside the tower."""
    header, methods = summary["header"], summary["methods"]
    side, machine = header["size"], header["machine"]
    lines = [
        f"{summary['questions']} held-out questions about {summary['images']} drawn pages of {side} x {side} px, "
        f"{methods['full']['tokens']:,.0f} cells each, the bundled model. Times to first token, encoder included, are medians of "
        f"{summary['timed']} questions asked alone ({machine['device']}, {machine['threads']} thread(s)), of one run."
        + (" Of so few pages the intervals are too narrow." if summary["images"] < FEW else ""),
        "",
        "| | | tokens | exact match | of all tokens' | first token, ms | x faster |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name, row in sorted(methods.items(), key=lambda each: _order(each[0])):
        low, high = row["interval"]
        lines.append(
            f"| {_bold(name)} | {GESTALTS.get(name.partition('@')[0], '')} | {row['tokens']:,.0f} | "
            f"{percent(row['score'])} ({100 * low:.0f}-{100 * high:.0f}) | {percent(row['retained'])} | "
            f"{_number(row['ttft_ms'])} | {_times(row['ttft ratio'])} |"
        )
    for tower in ("coc tower4", "coc tower16"):
        if tower in methods and methods[tower]["ttft_ms"]:
            lines += ["", equal_time(tower, methods)]
    return "\n".join(lines)


def equal_time(tower: str, methods: dict[str, Any]) -> str:
    """The best other way to read a picture without its question, in no more time than a gestalt."""
    most = methods[tower]["ttft_ms"]
    blind = {
        name: row
        for name, row in methods.items()
        if name.startswith(("coc ", "averaged", "downsample", "truncation"))
        and "tower" not in name
        and row["ttft_ms"]
        and row["ttft_ms"] <= most
    }
    if not blind:
        return f"Nothing else that never sees the question is as fast as `{tower}`."
    best = max(blind, key=lambda name: blind[name]["score"])
    return (
        f"In the time of `{tower}` ({percent(methods[tower]['score'])}) the best other that never sees the question is `{best}`: "
        f"{percent(blind[best]['score'])}."
    )


def work_text(work: dict[str, Any], elsewhere: dict[str, Any] | None = None) -> str:
    """A table of time and operations.

    Args:
        work: of one model and size.
        elsewhere: where stock was counted if not there, which takes minutes at 2048 px.
    """
    facts, rows = work["circumstances"], {row["mode"]: row for row in work["rows"]}
    stock = rows.get("stock") or next(row for row in (elsewhere or {})["rows"] if row["mode"] == "stock")
    width, height = facts["image"]
    rounds = len(next(iter(rows.values()))["rounds"])
    lines = [
        f"{facts.get('shape', 'The bundled model')}, {width} x {height} px: the first token's time and operations ({facts['device']}, "
        f"{facts['threads']} thread(s), {facts['dtype']}, median of {rounds} round(s))."
        + ("" if "stock" in rows else f" Stock, counted elsewhere, takes {stock['tflop']:.3g} TFLOP."),
        "",
        "| | tokens | ms | x faster | TFLOP | x fewer |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for mode, row in rows.items():
        lines.append(
            f"| {'resize' if mode == 'compress' else mode.removeprefix('compress ')} | {row['tokens']:,.0f} | {row['ms']:,.0f} | {_times(row['speed'])} | {row['tflop']:.3g} | "
            f"{stock['tflop'] / row['tflop']:.2f} |"
        )
    return "\n".join(lines)


def _order(method: str) -> tuple[int, float]:
    name, _, budget = method.partition("@")
    names = list(GESTALTS)
    return (names.index(name) if name in names else len(names), float(budget) if budget else 0.0)


def _bold(name: str) -> str:
    return f"**{name}**" if "tower" in name else name


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
