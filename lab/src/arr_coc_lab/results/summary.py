"""The summary of a result file: figures per method, from which all tables and plots are made.

Laws: a summary depends on header and records alone; what was not measured is None, never 0; methods are
compared on the questions that both answered; intervals are 95 % bootstrap intervals over images, each with
all of its questions. Methods are named NAME@BUDGET, or NAME if they always spend the same ("full").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from arr_coc.files.validation import parse_json, validated
from arr_coc_lab.results.files import ERROR, Record, read_results
from arr_coc_lab.results.filtering import beyond_downsampling
from arr_coc_lab.results.intervals import bootstrap_interval, paired_interval
from arr_coc_lab.results.kinds import FULL, KINDS, OURS, kind, split_method
from arr_coc_lab.results.lines import Summed

Summary = dict[str, Any]
Figures = dict[str, Any]  # of one method with one budget, see `summarise`

MAX_SUMMARY = 2**26  # most bytes of a summary; the largest of a real run has about 50,000


def by_budget(summary: Summary) -> dict[str, list[str]]:
    """Return the methods of each budget: "" (full) first, most tokens first, "auto" last.

    A budget's place is the fewest tokens that one of its methods reads, or else its number; a method without
    one has its tokens as budget. Within a budget methods are sorted by kind, then score.
    """
    methods, header = summary["methods"], summary["header"]
    groups: dict[str, list[str]] = {}
    for method, row in methods.items():
        budget = split_method(method)[1]
        if not budget and kind(method, header) != "full" and row["tokens"] is not None:
            budget = f"{row['tokens']:.0f}"
        groups.setdefault(budget, []).append(method)  # rivals with a fixed budget stand among the others
    for group in groups.values():
        group.sort(key=lambda m: (KINDS.index(kind(m, header)), -methods[m]["score"]))

    def place(budget: str) -> tuple[int, float, float]:
        number = float(budget) if budget.replace(".", "", 1).isdecimal() else 0.0
        tokens = [count for m in groups[budget] if (count := methods[m]["tokens"]) is not None]
        return (0 if not budget else 2 if budget == "auto" else 1, -min(tokens, default=number), -number)

    return {budget: groups[budget] for budget in sorted(groups, key=place)}


def at_equal_time(summary: Summary, reference: str) -> dict[str, str]:
    """Name -> its best method whose first token is no later than that of the timed method `reference`."""
    methods = summary["methods"]
    limit = methods[reference]["ttft_ms"]
    best: dict[str, str] = {}
    for method, row in methods.items():
        name = split_method(method)[0]
        if row["ttft_ms"] is None or row["ttft_ms"] > limit:
            continue
        if name not in best or row["score"] > methods[best[name]]["score"]:
            best[name] = method
    return best


def tokens_needed(summary: Summary, share: float) -> dict[str, float | None]:
    """Name -> the fewest tokens that it reads from which on it keeps a share of full's score.

    Of the budgets that were measured: that one and every greater one keep the share. None where the greatest
    doesn't; methods whose tokens or share were not measured, or that read as many tokens as full, are left
    out.
    """
    every = summary["methods"].get(FULL, {}).get("tokens")
    budgets: dict[str, list[tuple[float, bool]]] = {}
    for method, row in summary["methods"].items():
        if row["tokens"] is None or row["retained"] is None or method == FULL:
            continue
        if every is None or row["tokens"] < every:
            name = split_method(method)[0]
            budgets.setdefault(name, []).append((row["tokens"], row["retained"] >= share))
    needed: dict[str, float | None] = {}
    for name, own in budgets.items():
        enough = takewhile(lambda budget: budget[1], sorted(own, reverse=True))
        needed[name] = min((tokens for tokens, _ in enough), default=None)
    return needed


def second_view(summary: Summary) -> Summary | None:
    """Return the summary of the questions alone that VTC-Bench's filter leaves; None without any, or with
    it.
    """
    filtered = summary.get("filtered")
    return None if filtered is None else {**summary, **filtered}


def read_summary(path: Path, families: Sequence[str] = (), vtc_filter: bool = False) -> Summary:
    """Read the summary of a .json, or compute it from a .jsonl or .jsonl.gz; arguments as of `summarise`.

    Raises ValueError if it can't be read, is none, or is a .json, which has no questions to filter.
    """
    if path.suffix != ".json":
        return summarise(*read_results(path), families, vtc_filter)
    if vtc_filter:
        raise ValueError(
            f"result {str(path)!r} has no single questions to filter: give the .jsonl of its run"
        )
    reason = ""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SUMMARY + 1)
        if len(content) > MAX_SUMMARY:
            raise ValueError(f"it is longer than {MAX_SUMMARY:,} bytes")
        summary = parse_json(content, "the summary", "evaluate again")
        validated(Summed, summary, "the summary")
        return summary
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"result {str(path)!r} can't be read ({reason}): give a file that arr-coc eval wrote")


def summarise(
    header: dict[str, Any],
    records: Sequence[Record],
    families: Sequence[str] = (),
    vtc_filter: bool = False,
) -> Summary:
    """Compute every figure that tables and plots show; JSON-safe.

    Families of questions in `families` come first, others follow by name. `vtc_filter` scores each method
    only on what downsampling fails (`filtering`), and adds the counts as "filter". Without it these counts
    and methods are the "filtered" part, for a second view, if the filter leaves any question.

    Returns:
        "header", "metric", "questions", "images", "timed" (questions), "evidence share" (of the cells, mean
        over questions with evidence), "methods"; and "failed", the "questions" that were not asked and
        {image: reason} as "images". Of each method, from 0 to 1 unless stated:

        - "n" questions, "score" and its "interval"; "families" {name: {"score", "n"}};
        - "retained": score as a share of full's; "difference": {"mean", "interval"} of this minus full;
        - "worst family": [name, retained], the family that keeps least of full's score;
        - "below ours": {"mean", "interval"} of "arr-coc" at the same budget minus this;
        - "tokens" read; "recall" of evidence; "hit", the share of questions of which the best box of the
          allocation overlaps a labelled one by half; "swap IoU" with the kept set of another question;
        - "ttft_ms", median time to first token; "ttft ratio", median over questions of full's / this;
          "realised", see `realised_gain`; "stages" {name: median ms}; "peak_mb", the largest.

    Raises:
        ValueError: there are no records, none of a question that was asked, or none that a filter leaves.
    """
    failed = [record for record in records if ERROR in record]
    records = [record for record in records if ERROR not in record]
    if not records and failed:
        one = f"none of {len(failed)} questions was asked, for no image could be opened"
        raise ValueError(f"{one}: {failed[0]['image']}: {failed[0][ERROR]}")
    if not records:
        raise ValueError("there are no questions to summarise: the run was killed before its first image")
    names = list(dict.fromkeys(method for record in records for method in record["score"]))
    scores = {m: np.array([r["score"].get(m, np.nan) for r in records]) for m in names}  # (Q,) each
    filtered = _filtered(scores, records, families, vtc_filter)
    shares = [r["evidence"] / r["total"] for r in records if r.get("evidence")]
    summary = {
        "header": header,
        "metric": str(header.get("metric", "exact match")).replace("_", " "),
        "questions": len(records),
        "images": len({r["image"] for r in records}),
        "timed": sum(bool(r.get("ms")) for r in records),
        "evidence share": _mean(shares),
    }
    if vtc_filter and filtered is not None:
        summary |= filtered
    else:
        summary["methods"] = {m: _figures(m, scores, records, families) for m in scores}
        summary |= {} if filtered is None else {"filtered": filtered}
    if failed:
        images = {record["image"]: record[ERROR] for record in failed}
        summary["failed"] = {"questions": len(failed), "images": images}
    return summary


def _filtered(
    scores: dict[str, np.ndarray], records: Sequence[Record], families: Sequence[str], needed: bool
) -> dict[str, Any] | None:
    """Return the "methods" on what downsampling fails and the counts as "filter"; None, or ValueError if
    `needed`, where the filter leaves nothing.
    """
    reads = {m: _mean(_values(records, "tokens", m), 1) for m in scores}
    try:
        left, counts = beyond_downsampling(scores, reads)
    except ValueError:
        if needed:
            raise
        return None
    return {"methods": {m: _figures(m, left, records, families) for m in left}, "filter": counts}


def _figures(
    method: str, scores: dict[str, np.ndarray], records: Sequence[Record], order: Sequence[str]
) -> Figures:
    own = scores[method]
    answered = ~np.isnan(own)  # NaN: not asked, or filtered out
    images = np.array([record["image"] for record in records])
    full, ours = scores.get(FULL), scores.get(f"{OURS}@{split_method(method)[1]}")
    families = {
        name: np.array([r.get("family") == name for r in records]) & answered
        for name in _families(records, order)
    }
    families = {name: chosen for name, chosen in families.items() if chosen.any()}
    kept = {} if full is None else {name: _retained(own[at], full[at]) for name, at in families.items()}
    shares = {name: share for name, share in kept.items() if share is not None}
    worst = min(shares, key=lambda name: shares[name], default=None) if method != FULL else None
    records = [record for record, one in zip(records, answered, strict=True) if one]
    times = [r.get("ms", {}) for r in records]
    stages = [t[method] for t in times if method in t]
    total = [sum(stage.values()) for stage in stages]
    ratios = [sum(t[FULL].values()) / sum(t[method].values()) for t in times if FULL in t and method in t]
    return {
        "n": int(answered.sum()),
        "score": _round(own[answered].mean()),
        "interval": [_round(end) for end in bootstrap_interval(own[answered], images[answered])],
        "retained": None if full is None else _retained(own, full),
        "difference": None if full is None or method == FULL else _paired(own, full, images),
        "worst family": [worst, shares[worst]] if worst is not None else None,
        "below ours": None if ours is None or ours is own else _paired(ours, own, images),
        "tokens": _mean(_values(records, "tokens", method), 1),
        "recall": _mean(_values(records, "recall", method)),
        "hit": _mean(_values(records, "hit", method)),
        "swap IoU": _mean(_values(records, "swap", method)),
        "ttft_ms": _median(total, 2),
        "ttft ratio": _median(ratios, 3),
        "realised": _median([gain for r in records if (gain := realised_gain(r, method)) is not None], 3),
        "stages": {
            name: _median([stage[name] for stage in stages if name in stage], 2)
            for name in dict.fromkeys(name for stage in stages for name in stage)
        },
        "peak_mb": max((_round(v, 1) for v in _values(records, "peak_mb", method)), default=None),
        "families": {
            name: {"score": _round(own[at].mean()), "n": int(at.sum())} for name, at in families.items()
        },
    }


def realised_gain(record: Record, method: str) -> float | None:
    """Return the share of the gain that dropping tokens promises of which a method makes time, for one
    question.

    (1 - t / t of full) / (1 - n / n of full), with the time t to the first token, all choosing and encoding
    included, and the visual tokens n that the language model reads. 1: the first token comes sooner by the
    share of tokens that were dropped, as if all time were the tokens' and each took as long. 0: no time is
    saved; below 0 choosing costs more than it saves; above 1 more is saved, as where attention takes the
    time, which costs the square of the tokens. No peak rate of a machine is in it, so it compares machines.
    None where the question was not timed, or all tokens are read.
    """
    times, tokens = record.get("ms", {}), record.get("tokens", {})
    if any(name not in part for name in (FULL, method) for part in (times, tokens)) or not tokens[FULL]:
        return None
    dropped = 1 - tokens[method] / tokens[FULL]
    return (1 - sum(times[method].values()) / sum(times[FULL].values())) / dropped if dropped > 0 else None


def _families(records: Sequence[Record], order: Sequence[str]) -> list[str]:
    names = {r["family"] for r in records if r.get("family")}
    return [name for name in order if name in names] + sorted(names - set(order))


def _retained(own: np.ndarray, full: np.ndarray) -> float | None:
    both = ~(np.isnan(own) | np.isnan(full))  # only questions that both answered
    whole = full[both].mean() if both.any() else 0
    return _round(own[both].mean() / whole) if whole > 1e-9 else None


def _paired(a: np.ndarray, b: np.ndarray, images: np.ndarray) -> dict[str, Any] | None:
    both = ~(np.isnan(a) | np.isnan(b))
    if not both.any():
        return None
    interval = [_round(end) for end in paired_interval(a[both], b[both], images[both])]
    return {"mean": _round((a[both] - b[both]).mean()), "interval": interval}


def _values(records: Sequence[Record], field: str, method: str) -> list[float]:
    return [r[field][method] for r in records if r.get(field) and method in r[field]]


def _round(value: float, digits: int = 4) -> float:
    return round(float(value), digits) + 0.0  # turns -0.0 into 0.0


def _mean(values: Sequence[float], digits: int = 4) -> float | None:
    return _round(float(np.mean(values)), digits) if values else None


def _median(values: Sequence[float], digits: int) -> float | None:
    return _round(float(np.median(values)), digits) if values else None
