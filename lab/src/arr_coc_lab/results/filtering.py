"""VTC-Bench's filter (arXiv 2510.07143): score methods only on questions that a shrunk image fails.

Most benchmark questions are answered from a shrunk image, whatever a method chooses. Left are questions that
"full" answers (`RIGHT` or more) and "downsample" with the method's number of tokens does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arr_coc_lab.results.kinds import DOWNSAMPLE, FULL, split_method

RIGHT = 0.5  # least score, in [0, 1], that counts as answered


def beyond_downsampling(
    scores: Mapping[str, np.ndarray], tokens: Mapping[str, float | None]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Scores with NaN for the questions that the filter leaves out, and counts of what is left.

    `scores` are by method, [Q], with NaN for none; `tokens` the mean that a method reads, None if not
    counted. The counts are "right" (the least score), "questions", "answered" (by all tokens), "left"
    {budget: how many of those downsample fails} and "left out", methods without a shrunk image or a question
    left.

    Raises:
        ValueError: full or downsample was not run, or no question is left.
    """
    if FULL not in scores or not any(split_method(name)[0] == DOWNSAMPLE for name in scores):
        raise ValueError(
            f"the filter compares {FULL!r} with {DOWNSAMPLE!r}, and the run lacks one of them: "
            "evaluate with both among --methods"
        )
    answered = scores[FULL] >= RIGHT  # NaN compares as false
    left = {
        split_method(name)[1]: answered & (own < RIGHT)
        for name, own in scores.items()
        if split_method(name)[0] == DOWNSAMPLE
    }
    chosen = {}
    for name, own in scores.items():
        count = tokens.get(name)
        budget = split_method(name)[1] or ("" if count is None else f"{count:.0f}")
        mask = answered if name == FULL else left.get(budget)
        if mask is not None and (mask & ~np.isnan(own)).any():
            chosen[name] = np.where(mask, own, np.nan)
    counts = {
        "right": RIGHT,
        "questions": len(answered),
        "answered": int(answered.sum()),
        "left": {budget: int(mask.sum()) for budget, mask in left.items()},
        "left out": [name for name in scores if name not in chosen],
    }
    if not any(counts["left"].values()):
        raise ValueError(
            f"the filter leaves none of {len(answered)} questions: all tokens answer {counts['answered']}, "
            "and the shrunk image those too; ask more, or with smaller budgets"
        )
    return chosen, counts


def sentence(counts: Mapping[str, Any]) -> str:
    """Return the counts as one sentence below a table."""
    left = ", ".join(f"{count:,} with {name} tokens" for name, count in counts["left"].items())
    text = (
        f"VTC-Bench's filter: all tokens answer {counts['answered']:,} of {counts['questions']:,} questions; "
        f"a method is scored on those of them that the image shrunk to as many tokens fails, {left}"
    )
    missing = [name for name in counts["left out"] if split_method(name)[0] != DOWNSAMPLE]
    return text + (f"; with no such image or question: {', '.join(missing)}" if missing else "")
