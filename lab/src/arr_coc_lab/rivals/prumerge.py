"""PruMerge+ (Shang et al. 2024, arXiv 2403.15388) at a given budget.

    keep: attention outliers s_j > Q3 + 1.5 IQR, then every floor(floor(N / outliers) / 3)-th token
    x_i <- x_i + sum of s_j x_j over the 32 tokens j with keys most similar to that of i

`prumerge+` is the port to Qwen2.5-VL (one softmax per head), `prumerge+:joined` that for CLIP (one over all).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import ImageView, Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, cosine

NEIGHBOURS = 32


@torch.no_grad()
def prumerge_plus(attention: Tensor, keys: Tensor, tokens: Tensor, k: int) -> Reduction:
    """Outliers and an even sample of `tokens` [N, D], each with its nearest neighbours added.

    `attention` [N] is that of [CLS] to each token after softmax (without [CLS], the mean over queries),
    `keys` [N, d] are of the same layer. Exactly k are kept, unlike in the paper: surplus is cut by attention,
    samples first, and gaps are filled by attention. The paper's extra token, the sum of all dropped ones, is
    left out.
    """
    n = check_inputs(k, attention=attention, keys=keys, tokens=tokens)
    scores = attention.float()
    lower, upper = scores.quantile(scores.new_tensor([0.25, 0.75]))
    outlier = scores > upper + 1.5 * (upper - lower)
    step = max(1, n // max(1, int(outlier.sum())) // 3)
    tier = torch.full_like(scores, 2, dtype=torch.long)  # 0: outlier, 1: sample, 2: other
    tier[::step] = 1  # over all N, where the published code stops at 575
    tier[outlier] = 0
    ranked = scores.argsort(descending=True, stable=True)
    keep = ranked[tier[ranked].argsort(stable=True)][:k].sort().values

    similarity = cosine(keys[keep], keys)  # (K, N)
    similarity.scatter_(1, keep[:, None], -torch.inf)  # a token is no neighbour of itself
    near = similarity.argsort(dim=1, descending=True, stable=True)[:, : min(NEIGHBOURS, n - 1)]
    share = torch.zeros_like(similarity).scatter(1, near, scores[near])
    merged = tokens[keep].float() + share @ tokens.float()  # (K, D)
    return Reduction(keep, merged.to(tokens.dtype))


def _select(view: ImageView, i: int, k: int) -> Reduction:
    return prumerge_plus(view.received(-1), view.keys(-1, joined=True), view.tokens, k)


def _select_joined(view: ImageView, i: int, k: int) -> Reduction:
    return prumerge_plus(view.received(-1, joined=True), view.keys(-1, joined=True), view.tokens, k)


def _variation(argument: str) -> Method:
    if argument != "joined":
        raise ValueError(f"method 'prumerge+:{argument}' is unknown; use prumerge+, or prumerge+:joined")
    return replace(METHOD, name="prumerge+:joined", select=_select_joined, label="PruMerge+, heads joined")


METHOD = register(
    Method(
        "prumerge+",
        "rival",
        _select,
        needs=frozenset({"tower"}),
        variation=_variation,
        label="PruMerge+",
        paper="Shang et al. 2024, arXiv 2403.15388",
    )
)
