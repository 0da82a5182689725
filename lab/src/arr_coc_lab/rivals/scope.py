"""SCOPE (Deng et al. 2025, arXiv 2510.24214): tokens that are salient and cover the others.

gain_j = attention_j^alpha * sum_i max(0, cos(v_i, v_j) - m_i);  m = max(m, cos(., v_j*));  m = 0 first
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, cosine, greedy_cover


@torch.no_grad()
def scope(tokens: Tensor, attention: Tensor, k: int, alpha: float = 1.0) -> Reduction:
    """Return the k of `tokens` [N, D] that greedily cover most of the image, weighted by saliency.

    `attention` [N], at least 0, is received in the last layer of the vision encoder; `alpha` is its power.
    """
    if not alpha >= 0:
        raise ValueError(f"alpha {alpha} is below 0; use 0 for coverage alone, 1 for the published weight")
    check_inputs(k, tokens=tokens, attention=attention)
    least = float(attention.min())  # logits would turn the weights round
    if least < 0:
        raise ValueError(f"attention {least} is below 0; pass probabilities, after softmax")
    return Reduction(greedy_cover(cosine(tokens), k, attention.float() ** alpha).sort().values)


register(
    Method(
        "scope",
        "rival",
        lambda view, i, k: scope(view.tokens, view.received(-1), k),
        needs=frozenset({"tower"}),
        contender=True,
        label="SCOPE",
        paper="Deng et al. 2025, arXiv 2510.24214",
    )
)
