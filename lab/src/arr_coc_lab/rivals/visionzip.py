"""VisionZip (Yang et al. 2024, arXiv 2412.04467): the most attended tokens, and merged ones for the rest.

dominant = top k - n of the attention received;  of the others every floor(R/n)-th is a target t
h_t <- h_t + mean of the h_r whose most similar target is t
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc_lab.rivals.method import Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, cosine, top_k


@torch.no_grad()
def visionzip(attention: Tensor, keys: Tensor, tokens: Tensor, k: int, contextual: float = 0.1) -> Reduction:
    """Dominant tokens of `tokens` [N, D] as they are, and contextual tokens that gather the remainder.

    `attention` [N] is received in the vision encoder, `keys` [N, d] are of the same layer, the mean over
    heads. `contextual`, 0 to 1, is the share of k merged: 0.1 is the Qwen default, 10/64 that for LLaVA.
    """
    if not 0 <= contextual <= 1:
        raise ValueError(f"contextual {contextual} is not a share of k; use 0 to 1, such as 0.1")
    n = check_inputs(k, attention=attention, keys=keys, tokens=tokens)
    count = math.floor(contextual * k + 0.5)
    dropped = torch.ones(n, dtype=torch.bool, device=tokens.device)
    dropped[top_k(attention.float(), k - count)] = False
    rest = dropped.nonzero().flatten()
    targets = rest[:: max(1, len(rest) // max(1, count))][:count]
    dropped[targets] = False
    keep = (~dropped).nonzero().flatten()
    merged = tokens.float()
    if count and k < n:
        others = dropped.nonzero().flatten()
        nearest = cosine(keys[others], keys[targets]).argmax(1)
        # A product with the assignment, not index_add_, whose order of summation varies on a GPU.
        member = F.one_hot(nearest, count).T.float()  # (count, R - count)
        mean = member / member.sum(1, keepdim=True).clamp_min(1) @ merged[others]
        merged = merged.index_add(0, targets, mean)  # targets are distinct: no sum to order
    return Reduction(keep, merged[keep].to(tokens.dtype))


register(
    Method(
        "visionzip",
        "rival",
        lambda view, i, k: visionzip(view.received(-2), view.keys(-2), view.tokens, k),
        needs=frozenset({"tower"}),
        contender=True,
        label="VisionZip",
        paper="Yang et al. 2024, arXiv 2412.04467",
    )
)
