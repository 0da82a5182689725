"""VTC-Bench's filter: score a method only on the questions that a shrunk image of as many tokens fails.

    scores, counts = beyond_downsampling(scores, tokens)

Most questions of the usual benchmarks are answered from the image made small, so that a method's score there
says little about what it chose (VTC-Bench, arXiv 2510.07143). Counted is a question that all tokens answer
("full" scores `RIGHT` or more) and that "downsample" with the method's own number of tokens does not. On what
is left full has 100 % and downsample 0 %, but for metrics with scores between. A method without a budget goes
by what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arr_coc_lab.results.kinds import DOWNSAMPLE, FULL, split_method

RIGHT = 0.5
"""The least score that counts as an answer, where a metric has scores between 0 and 1."""


def beyond_downsampling(
    scores: Mapping[str, np.ndarray], tokens: Mapping[str, float | None]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Scores with NaN wherever the filter leaves a question out.

    Args:
        scores: by method, a number or NaN for each question, [Q].
        tokens: visual tokens that a method reads, the mean over questions; None where nobody counted.

    Returns:
        The scores of the methods that have a shrunk image to be measured by and a question left; and the
        counts: "right" (the least score), "questions", "answered" (by all tokens), "left" {budget: how many
        of those downsample fails} and "left out", the other methods.

    Raises:
        ValueError: full or downsample was not run, or no question is left.
    """
    if FULL not in scores or not any(split_method(name)[0] == DOWNSAMPLE for name in scores):
        raise ValueError(
            f"the filter compares {FULL!r} with {DOWNSAMPLE!r}, and the run lacks one of them: "
            "evaluate with both among --methods"
        )
    answered = scores[FULL] >= RIGHT  # of NaN it is false
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
    """What a table says of the counts."""
    left = ", ".join(f"{count:,} with {name} tokens" for name, count in counts["left"].items())
    text = (
        f"VTC-Bench's filter: all tokens answer {counts['answered']:,} of {counts['questions']:,} questions; "
        f"a method is scored on those of them that the image shrunk to as many tokens fails, {left}"
    )
    missing = [name for name in counts["left out"] if split_method(name)[0] != DOWNSAMPLE]
    return text + (f"; with no such image or question: {', '.join(missing)}" if missing else "")
