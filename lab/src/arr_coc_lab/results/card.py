"""The figures of a result file as text for an allocator's model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arr_coc.files.paths import input_file
from arr_coc_lab.results.kinds import DOWNSAMPLE, kind, split_method
from arr_coc_lab.results.summary import Summary, by_budget, read_summary
from arr_coc_lab.results.table import percent, plain, table

COMPARED = ("random", DOWNSAMPLE)  # controls that a card shows beside ours and the best rival


def figures(path: str | Path, weights: str) -> str:
    """Describe the data of a result file, with a table of its figures, for a model card.

    Raises ValueError if the file can't be read, is filtered, or was measured with weights of another
    fingerprint than `weights`.
    """
    summary = read_summary(input_file(path))
    if summary.get("filter"):
        raise ValueError(
            f"result {str(path)!r} is of a filtered part of its questions: report it without one"
        )
    header = summary["header"]
    if header.get("weights", {}).get("arr-coc") != weights:
        raise ValueError(
            f"result {str(path)!r} was measured with other weights than these: leave it out, or measure this "
            "allocator with arr-coc eval --allocator FOLDER"
        )
    rows = _excerpt(summary)
    if not header.get("data") or not header.get("size"):
        raise ValueError(f"result {str(path)!r} lacks data or size in its header: measure with arr-coc eval")
    source, _, _ = plain(header["data"]).partition(":")  # without the folder after it
    what = f"drawn pages of {header['size']} px" if source == "world" else f"`{source}`"
    text = f"{summary['questions']:,} questions about {summary['images']:,} images ({what}), "
    text += f"{plain(summary['metric'])} with its 95 % interval"
    if summary["timed"]:
        device = plain(str(header.get("machine", {}).get("device", "one machine")))
        text += f"; time to first token (TTFT) is the median of {summary['timed']} questions on {device}"
    text += ":\n\n" + table(summary | {"methods": rows}, "short")
    worst = [
        (*row["worst family"], method)
        for method, row in rows.items()
        if kind(method, header) == "ours" and row["worst family"]
    ]
    if worst:
        family, kept, method = min(worst, key=lambda entry: entry[1])
        text += f"\n\nWeakest: {method} keeps {percent(kept)} of the score of all tokens on "
        text += f"`{plain(family)}` questions."
    return text


def _excerpt(summary: Summary) -> dict[str, Any]:
    """Return the methods that a card shows: all tokens, ours, `COMPARED` and the best rival of each
    budget.
    """
    chosen: list[str] = []
    for group in by_budget(summary).values():  # each from the best down
        kinds = [kind(method, summary["header"]) for method in group]
        if not {"full", "ours"} & set(kinds):
            continue
        rival = next((m for m, k in zip(group, kinds, strict=True) if k == "rival"), None)
        chosen += [
            m
            for m, k in zip(group, kinds, strict=True)
            if k in ("full", "ours") or m == rival or split_method(m)[0] in COMPARED
        ]
    return {method: summary["methods"][method] for method in chosen}
