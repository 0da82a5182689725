"""Losses of relevance maps against evidence, and the figures that judge a selection: IoU and recall.

    relevance_loss(logits [Q, H, W], target [Q, H, W]) -> scalar        soft_iou(logits, target, count) -> [Q]
    selection_iou, recall: (logits, bool target, count) -> one number per row that has evidence

A target is evidence (bool, the cells that hold the answer) or a soft map in [0, 1] (what the model itself
used when it read all cells). A row without evidence asks for something absent. All is computed in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.attending import compute_retention_mask, soft_top_k

POSITIVE = 8.0
"""What an evidence cell weighs in the BCE: there are few of them."""


def relevance_loss(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Binary and listwise cross-entropy of the continuous map; what is learned depends on no budget.

        4 * mean BCE(s, t)  +  listwise: sum_r w_r sum_n -t_rn log softmax(s_r)_n / sum_r w_r sum_n t_rn

    On evidence, an evidence cell counts `POSITIVE` times in the BCE, and every one of the batch the same in
    the listwise term. On a soft map the BCE is plain, least where sigmoid(s) = t; and t is normalised to sum
    1 in the listwise term, so every row counts the same. A row without evidence has only its BCE.

    Args:
        logits: [Q, H, W] before the sigmoid.
        target: Bool [Q, H, W], or float in [0, 1].
        weight: [Q], at least 0, of each row in both means; None is 1.

    Returns:
        A scalar, 0 where no row has weight.

    Raises:
        ValueError: shapes do not fit, the target is not bool or in [0, 1], a weight is negative or not
            finite.
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
    bce = F.binary_cross_entropy_with_logits(scores, truth, reduction="none", pos_weight=positive).mean(1)
    if soft:
        truth = truth / _or_one(truth.sum(1, keepdim=True))
    listwise = -(scores.log_softmax(1) * truth).sum(1)
    return 4 * _ratio(rows * bce, rows) + _ratio(rows * listwise, rows * truth.sum(1))


def soft_iou(logits: Tensor, target: Tensor, count: int) -> Tensor:
    """Intersection over union of a target and the softly kept `count` cells, differentiable: [Q] in [0, 1].

        p = soft_top_k(s, count);    sum p t / sum (p + t - p t)

    At most |t| / count where `count` exceeds the evidence; 0 in a row without any. As a loss, 1 - its mean.

    Args:
        logits: [Q, H, W] before the sigmoid.
        target: Bool or float in [0, 1], [Q, H, W].
        count: From 1 to H*W.

    Raises:
        ValueError: shapes do not fit, the count is out of range, or a logit is NaN or infinite.
    """
    _check_shapes(logits, target)
    kept, truth = soft_top_k(logits.float().flatten(1), count), target.float().flatten(1)
    both = kept * truth
    return both.sum(1) / (kept + truth - both).sum(1)


def selection_iou(logits: Tensor, target: Tensor, count: int | None = None) -> list[float]:
    """Per row with evidence, intersection over union of its evidence and its best cells.

    Args:
        logits: [Q, H, W]; ties go to the earlier cell.
        target: Bool [Q, H, W].
        count: How many best cells, at most all of them; None is as many as the row has evidence.

    Raises:
        ValueError: shapes do not fit, the target is not bool, the count is below 1, a logit is NaN or
            infinite.
    """
    ious = []
    for scores, there in _rows_with_evidence(logits, target):
        cells = int(there.sum())
        kept = compute_retention_mask(scores, min(cells if count is None else count, len(scores)))
        hits = int((kept & there).sum())
        ious.append(hits / (int(kept.sum()) + cells - hits))
    return ious


def recall(logits: Tensor, target: Tensor, count: int) -> list[float]:
    """Per row with evidence, the share of its evidence cells among the `count` best; as `selection_iou`."""
    return [
        int((compute_retention_mask(scores, min(count, len(scores))) & there).sum()) / int(there.sum())
        for scores, there in _rows_with_evidence(logits, target)
    ]


def _rows_with_evidence(logits: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The pairs (logits [N], evidence [N]) of rows that have any."""
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
    """The sum of one over the sum of the other, 0 where both are."""
    return parts.sum() / _or_one(whole.sum())


def _or_one(total: Tensor) -> Tensor:
    """A denominator: 1 where it would be 0."""
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
