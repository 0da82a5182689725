"""Losses of relevance maps, gradient estimators of a selection, and figures that judge it: IoU and recall.

    relevance_loss(logits [Q, H, W], target [Q, H, W]) -> scalar
    gated_cells(logits [Q, N], count, estimator) -> GatedCells(keep [Q, K], gates [Q, N], log_prob [Q])

A target is evidence (bool, the cells that hold the answer) or a soft map in [0, 1]. All is in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.attending import compute_retention_mask, soft_top_k
from arr_coc.train.recipe import AnswerRecipe

POSITIVE = 8.0  # weight of an evidence cell in the BCE: there are few of them


def relevance_loss(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Binary and listwise cross-entropy of a relevance map; a scalar that depends on no budget.

        4 * mean BCE(s, t)  +  listwise: sum_r w_r sum_n -t_rn log softmax(s_r)_n / sum_r w_r sum_n t_rn

    `logits` [Q, H, W] are before the sigmoid, `weight` [Q] is at least 0 (None: 1). True cells of a bool
    `target` [Q, H, W] count `POSITIVE` times in the BCE; a soft one in [0, 1] has a plain BCE, and each of
    its rows counts the same in the listwise term. ValueError for other shapes or values.
    """
    _check_shapes(logits, target)
    soft = target.is_floating_point()
    if soft and not bool(((target >= 0) & (target <= 1)).all()):
        raise ValueError("a soft target has values outside of [0, 1]; divide each map by its maximum")
    if not soft:
        _check_bool(target)
    scores, truth = logits.float().flatten(1), target.float().flatten(1)
    rows = _weights(weight, scores)
    positive = None if soft else scores.new_tensor(POSITIVE)
    # means over the cells of a row, (Q, N) -> (Q,); rows are weighted after it
    bce = F.binary_cross_entropy_with_logits(scores, truth, reduction="none", pos_weight=positive).mean(1)
    if soft:
        truth = truth / _or_one(truth.sum(1, keepdim=True))  # a distribution over cells
    listwise = -(scores.log_softmax(1) * truth).sum(1)
    return 4 * _ratio(rows * bce, rows) + _ratio(rows * listwise, rows * truth.sum(1))


def selection_iou(logits: Tensor, target: Tensor, count: int | None = None) -> list[float]:
    """Per row with evidence, intersection over union of its evidence [H, W] and its `count` best cells.

    `count` None is as many as there is evidence; ties go to the earlier cell.
    """
    ious = []
    for scores, there in _rows_with_evidence(logits, target):
        cells = int(there.sum())
        kept = compute_retention_mask(scores, min(cells if count is None else count, len(scores)))
        hits = int((kept & there).sum())
        ious.append(hits / (int(kept.sum()) + cells - hits))
    return ious


def recall(logits: Tensor, target: Tensor, count: int) -> list[float]:
    """Per row with evidence, the share of its evidence cells that are among its `count` best cells."""
    return [
        int((compute_retention_mask(scores, min(count, len(scores))) & there).sum()) / int(there.sum())
        for scores, there in _rows_with_evidence(logits, target)
    ]


# how the gradient of a loss on kept cells reaches their scores, see `choose`
ESTIMATORS: tuple[str, ...] = get_args(AnswerRecipe.model_fields["estimator"].annotation)


@dataclass(frozen=True, eq=False)
class GatedCells:
    """The cells kept for each of Q questions, and what carries a gradient back to their logits."""

    keep: Tensor  # long [Q, K], indices among the image's N cells, ascending
    gates: Tensor | None = None  # float32 [Q, N]: 1 where kept, 0 where not, in value
    log_prob: Tensor | None = None  # float32 [Q] of the cells in the order drawn; "reinforce" only


def gated_cells(
    logits: Tensor,
    count: int,
    estimator: str,
    *,
    temperature: float = 0.5,
    generator: torch.Generator | None = None,
    training: bool = True,
) -> GatedCells:
    """Choose the cells [Q, K] with the best of `logits` [Q, N], with a gradient back to the logits.

    Gathering by indices passes none. With s the logits, T the temperature, g Gumbel noise, and the kept
    tokens multiplied by their gates:

    - "straight-through": the top K of s. A kept cell's gate is 1 with the derivative of log sigmoid(s), which
      is sigmoid(-s). Dropped cells get no gradient.
    - "gumbel": the top K of z = s / T + g. The gates are 0 and 1 with the derivative of `soft_top_k(z, K)`,
      whose sum stays K: raising one cell lowers the others, dropped ones included.
    - "reinforce": the same sample, K cells without replacement (Plackett-Luce; Kool, van Hoof, Welling 2019,
      arXiv 1903.06059). No gates: `policy_loss` weighs the log of its probability by the cost.
    - "scores-only": the top K of s, no gradient; only losses on the map itself train the scores.

    Laws: forward, gates are exactly the 0/1 mask of `keep`; "gumbel" and "reinforce" depend on differences of
    logits alone; outside of training every estimator is the plain top K, ties to the lower index.

    Raises:
        ValueError: logits not finite or not [Q, N], an unknown estimator, a temperature not above 0, or a
            count outside 1..N.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown estimator {estimator!r}; choose one of {', '.join(ESTIMATORS)}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature {temperature!r} is not above 0; use about 0.1 to 2")
    if logits.ndim != 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; pass [Q, N], maps by flatten(1)")
    scores = logits.float()
    best = compute_retention_mask(scores.detach(), count)  # here, so that bad logits are named before noise
    if not training or estimator == "scores-only":
        return GatedCells(_indices(best, count))
    if estimator == "straight-through":
        return GatedCells(_indices(best, count), best * (1 + _only_gradient(F.logsigmoid(scores))))

    # The K best of logits plus Gumbel noise are a draw of K cells without replacement.
    scores = scores / temperature
    noisy = scores + _gumbel(scores, generator)
    drawn = compute_retention_mask(noisy.detach(), count)
    keep = _indices(drawn, count)
    if estimator == "gumbel":
        return GatedCells(keep, drawn.float() + _only_gradient(soft_top_k(noisy, count)))
    return GatedCells(keep, log_prob=_log_prob(scores, noisy.detach(), count))


def policy_loss(cost: Tensor, baseline: Tensor, log_prob: Tensor) -> Tensor:
    """Surrogate loss of "reinforce": the mean of (cost - baseline) * log_prob, each [Q].

    Its gradient is unbiased for the expected cost; a baseline independent of the draw reduces the variance.
    """
    if not cost.shape == baseline.shape == log_prob.shape:
        shapes = [tuple(x.shape) for x in (cost, baseline, log_prob)]
        raise ValueError(f"cost, baseline and log_prob have shapes {shapes}; pass one number per question")
    return ((cost - baseline).detach() * log_prob).mean()


def _rows_with_evidence(logits: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    _check_shapes(logits, target)
    _check_bool(target)
    pairs = zip(logits.detach().float().flatten(1), target.flatten(1), strict=True)
    return [(scores, there) for scores, there in pairs if bool(there.any())]


def _weights(weight: Tensor | None, scores: Tensor) -> Tensor:
    if weight is None:
        return scores.new_ones(len(scores))
    if weight.shape != scores.shape[:1]:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; pass [{len(scores)}], one for each row")
    if not bool((weight.isfinite() & (weight >= 0)).all()):
        raise ValueError(f"weights {weight.tolist()} are not all finite and at least 0; use 1 or 2")
    return weight.to(scores)


def _ratio(parts: Tensor, whole: Tensor) -> Tensor:
    return parts.sum() / _or_one(whole.sum())


def _or_one(total: Tensor) -> Tensor:
    """Return a denominator, with 1 in place of 0."""
    return total.masked_fill(total == 0, 1)


def _check_shapes(logits: Tensor, target: Tensor) -> None:
    if logits.ndim != 3 or logits.shape != target.shape:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and the target {tuple(target.shape)}; "
            "pass [Q, H, W] of both"
        )


def _check_bool(target: Tensor) -> None:
    if target.dtype is not torch.bool:
        raise ValueError(f"the target is {target.dtype}; pass bool evidence, such as `target > 0.5`")


def _indices(mask: Tensor, count: int) -> Tensor:
    """Bool [Q, N] with `count` true cells in each row -> long [Q, count], ascending."""
    return mask.nonzero()[:, 1].view(len(mask), count)


def _only_gradient(x: Tensor) -> Tensor:
    """Exactly 0, with the gradient of x."""
    return x - x.detach()


def _gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard Gumbel noise, -log of exponential noise, with the shape and device of `like`."""
    device = like.device if generator is None else generator.device
    waits = torch.empty(like.shape, device=device).exponential_(generator=generator)
    return -waits.clamp_min(torch.finfo(waits.dtype).tiny).log().to(like.device)


def _log_prob(scores: Tensor, noisy: Tensor, count: int) -> Tensor:
    """Plackett-Luce: sum over the first K in the order of `noisy` of s_i - logsumexp(s of those left)."""
    ordered = scores.gather(1, noisy.argsort(dim=1, descending=True, stable=True))
    left = ordered.flip(1).logcumsumexp(1).flip(1)  # (Q, N): of this cell and all after it
    return (ordered - left)[:, :count].sum(1)
