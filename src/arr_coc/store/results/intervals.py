"""Bootstrap intervals of means over questions (Efron 1979): of one method, and of two methods paired.

bootstrap_interval(values) -> (low, high) of their mean; paired_interval(a, b) of a difference of means
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Values = Sequence[float] | np.ndarray


def bootstrap_interval(
    values: Values, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values`, one per question.

    The same values and seed give the same interval. One value, or equal ones, give an interval of width 0.

    Args:
        values: one score per question, [Q].
        level: the share of the distribution of means between the two ends, above 0 and below 1.
        draws: how many times Q questions are drawn with replacement.
        seed: of NumPy's default generator.

    Raises:
        ValueError: no values, more than one dimension, NaN or infinity, a bad level or number of draws.
    """
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(
            f"values have shape {scores.shape}: pass one score for each of at least one question"
        )
    if not np.isfinite(scores).all():
        at = int((~np.isfinite(scores)).argmax())
        raise ValueError(f"value {at} is {scores[at]}: leave questions without a score out before averaging")
    if not 0 < level < 1:
        raise ValueError(f"level {level!r} is not a share: use a number between 0 and 1, usually 0.95")
    if draws < 1:
        raise ValueError(f"draws {draws!r} is not a count: use at least 1, usually 2000")
    rng = np.random.default_rng(seed)
    # One draw at a time: all of them at once would take 3 GB for the 214,354 questions of VQAv2.
    means = [scores[rng.integers(0, len(scores), len(scores))].mean() for _ in range(draws)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_interval(
    a: Values, b: Values, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of mean(a) - mean(b), two methods on the same questions in the same order.

    Questions are drawn, and both methods' scores of each go along, so that how hard a question is cancels. An
    interval that holds 0 shows no difference.

    Raises:
        ValueError: the numbers of scores differ; otherwise as `bootstrap_interval`.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"{first.shape} and {second.shape} scores can't be paired: score the same questions")
    return bootstrap_interval(first - second, level, draws, seed)
