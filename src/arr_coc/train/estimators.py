"""Gradient estimators of a discrete selection: which cells a step keeps, and how their scores learn.

    choose(logits [Q, N], count, estimator) -> Choice(keep [Q, K], gates [Q, N], log_prob [Q])

Gathering by indices passes no gradient to the scores that chose them. Each estimator, by name, is another way
back. With s the logits, T the temperature, g Gumbel noise, and the kept tokens multiplied by their gates:

- "straight-through": the top K of s. A kept cell's gate is 1 with the derivative of log sigmoid(s), which is
  sigmoid(-s): `attending.gate` of the relevance, but safe where that saturates. Dropped cells learn nothing.
- "gumbel": the top K of z = s / T + g. The gates are their 0 and 1 with the derivative of `soft_top_k(z, K)`,
  whose sum stays K: raising one cell lowers the others, dropped ones included.
- "reinforce": the same sample, one draw of K cells without replacement (Plackett-Luce; Kool, van Hoof,
  Welling 2019, arXiv 1903.06059). No gates: `policy_loss` weighs the log of its probability by the cost.
- "scores-only": the top K of s, no way back; only losses on the map itself teach the scores.

Laws: forward, gates are exactly the 0/1 mask of `keep`; "gumbel" and "reinforce" see differences of logits
alone, so what moves all cells alike has no gradient under them; outside of training every estimator is the
plain top K, ties to the lower index. All is computed in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.attending import compute_retention_mask, soft_top_k

ESTIMATORS = ("straight-through", "gumbel", "reinforce", "scores-only")


@dataclass(frozen=True, eq=False)
class Choice:
    """The cells kept for each of Q questions, and what carries a gradient back to their logits.

    Attributes:
        keep: Long [Q, K], indices among the image's N cells, rising.
        gates: Float32 [Q, N], the factor of each cell: 1 where it is kept, 0 where not, in value. None where
            the estimator has none.
        log_prob: Float32 [Q], logarithm of the probability of the cells in the order they were drawn in,
            for `policy_loss`; None but for "reinforce".
    """

    keep: Tensor
    gates: Tensor | None = None
    log_prob: Tensor | None = None


def choose(
    logits: Tensor,
    count: int,
    estimator: str,
    *,
    temperature: float = 0.5,
    generator: torch.Generator | None = None,
    training: bool = True,
) -> Choice:
    """Choose `count` cells for each question.

    Args:
        logits: [Q, N], relevance before the sigmoid, any floating dtype.
        count: K, from 1 to N.
        estimator: One of `ESTIMATORS`.
        temperature: T of "gumbel" and "reinforce": the noise counts more the higher it is.
        generator: Where the noise comes from; None is torch's own. It may be on another device.
        training: False takes the plain top K, without gates and noise.

    Raises:
        NonFiniteScores: a logit is NaN or infinite.
        ValueError: an unknown estimator, a temperature that is not above 0, logits of another shape, or
            `count` is not in 1..N.
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
        return Choice(_indices(best, count))
    if estimator == "straight-through":
        return Choice(_indices(best, count), best * (1 + _only_gradient(F.logsigmoid(scores))))

    scores = scores / temperature
    noisy = scores + _gumbel(scores, generator)
    drawn = compute_retention_mask(noisy.detach(), count)
    keep = _indices(drawn, count)
    if estimator == "gumbel":
        return Choice(keep, drawn.float() + _only_gradient(soft_top_k(noisy, count)))
    return Choice(keep, log_prob=_log_prob(scores, noisy.detach(), count))


def policy_loss(cost: Tensor, baseline: Tensor, log_prob: Tensor) -> Tensor:
    """What "reinforce" minimises in place of the cost: mean of (cost - baseline) * log_prob, a scalar.

    Its gradient is an unbiased estimate of that of the mean expected cost, so it may be added to losses of
    that scale; it is not divided by K. A baseline that does not depend on this draw leaves it unbiased and
    takes variance out: the cost of the plain top K, or the mean cost of other draws of the same question.

    Args:
        cost: [Q], such as the cross-entropy of each answer; no gradient flows into it.
        baseline: [Q], as `cost`.
        log_prob: [Q], of `choose`.

    Raises:
        ValueError: the shapes differ.
    """
    if not cost.shape == baseline.shape == log_prob.shape:
        shapes = [tuple(x.shape) for x in (cost, baseline, log_prob)]
        raise ValueError(f"cost, baseline and log_prob have shapes {shapes}; pass one number per question")
    return ((cost - baseline).detach() * log_prob).mean()


def _indices(mask: Tensor, count: int) -> Tensor:
    """Bool [Q, N] with `count` true cells in each row -> long [Q, count], rising."""
    return mask.nonzero()[:, 1].view(len(mask), count)


def _only_gradient(x: Tensor) -> Tensor:
    """Exactly 0, with the gradient of x."""
    return x - x.detach()


def _gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard Gumbel noise -log E, E exponential, of the shape and on the device of `like`."""
    device = like.device if generator is None else generator.device
    waits = torch.empty(like.shape, device=device).exponential_(generator=generator)
    return -waits.clamp_min(torch.finfo(waits.dtype).tiny).log().to(like.device)


def _log_prob(scores: Tensor, noisy: Tensor, count: int) -> Tensor:
    """Plackett-Luce: sum over the first K in the order of `noisy` of s_i - logsumexp(s of those left)."""
    ordered = scores.gather(1, noisy.argsort(dim=1, descending=True, stable=True))
    left = ordered.flip(1).logcumsumexp(1).flip(1)  # (Q, N): of this cell and all after it
    return (ordered - left)[:, :count].sum(1)
