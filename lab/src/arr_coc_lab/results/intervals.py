"""Bootstrap intervals of means over questions (Efron 1979): of one method, and of two methods paired.

Scores of questions about one image are correlated, so images are drawn, each with all of its questions (a
cluster bootstrap, Davison & Hinkley 1997): drawing questions would make intervals too narrow.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

Values = Sequence[float] | np.ndarray


def bootstrap_interval(
    values: Values,
    groups: Sequence[Hashable] | None = None,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values` [Q], one finite score per question.

    `groups` [Q], such as images, are drawn with all their values; few groups make the interval too narrow, of
    a single one its values are drawn (None: every value is a group). `level` in (0, 1) is the share of the
    `draws` resampled means between the ends. The same values and seed give the same interval.

    Raises:
        ValueError: values or groups of a wrong shape, NaN or infinity, a bad level or number of draws.
    """
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(
            f"values have shape {scores.shape}: pass one score for each of at least one question"
        )
    if not np.isfinite(scores).all():
        at = int((~np.isfinite(scores)).argmax())
        raise ValueError(f"value {at} is {scores[at]}: leave questions without a score out before averaging")
    if groups is not None and len(groups) != len(scores):
        raise ValueError(f"{len(groups)} groups can't be those of {len(scores)} values: name one for each")
    if not 0 < level < 1:
        raise ValueError(f"level {level!r} is not a share: use a number between 0 and 1, usually 0.95")
    if draws < 1:
        raise ValueError(f"draws {draws!r} is not a count: use at least 1, usually 2000")
    sums, counts = _summed(scores, groups)
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(draws):  # all draws at once would take 3 GB for the 214,354 questions of VQAv2
        drawn = rng.integers(0, len(sums), len(sums))
        means.append(sums[drawn].sum() / counts[drawn].sum())  # groups weigh as many as their questions
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_interval(
    a: Values,
    b: Values,
    groups: Sequence[Hashable] | None = None,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap interval of mean(a) - mean(b), two methods on the same questions in the same order.

    Both scores of a question are drawn together, so that its difficulty cancels. ValueError if the numbers of
    scores differ; otherwise as `bootstrap_interval`.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"{first.shape} and {second.shape} scores can't be paired: score the same questions")
    return bootstrap_interval(first - second, groups, level, draws, seed)


def _summed(scores: np.ndarray, groups: Sequence[Hashable] | None) -> tuple[np.ndarray, np.ndarray]:
    """Sum and count of the scores of each group, in the order in which groups come."""
    if groups is None:
        return scores, np.ones(len(scores))
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    if len(places) == 1:
        return scores, np.ones(len(scores))
    at = [places[group] for group in groups]  # group of each question, (Q,)
    return np.bincount(at, scores), np.bincount(at)
