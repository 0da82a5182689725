"""PruMerge+ (Shang et al. 2024, arXiv 2403.15388) at a given budget.

keep: attention outliers s_j > Q3 + 1.5 IQR, then every floor(floor(N / outliers) / 3)-th token
x_i <- x_i + sum of s_j x_j over the 32 tokens j with keys most similar to that of i

Published twice: for CLIP, where queries and keys are not split into heads (one softmax over their whole
width), and for Qwen2.5-VL, where s is the mean over heads of each head's own softmax, over queries too, and a
key is still the heads' keys side by side. `prumerge+` is the second, `prumerge+:joined` the first.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import ImageView, Method, Style, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, cosine

NEIGHBOURS = 32


@torch.no_grad()
def prumerge_plus(attention: Tensor, keys: Tensor, tokens: Tensor, k: int) -> Reduction:
    """Outliers and an even sample, each with its nearest neighbours added.

    Differs from the paper, so that methods compare at equal tokens: the paper keeps as many tokens as
    there are outliers and samples, here k. Too many are cut by attention, samples before outliers; too few
    are topped up by attention. The paper's extra token, the sum of all that was dropped, is left out. The
    sample covers all N tokens, where the published code stops at 575. With no outlier, where the paper's
    ratio is 0 and its step undefined, the step is that of one outlier.

    Args:
        attention: [N], attention of [CLS] to each token, after softmax (without [CLS], the mean over
            queries).
        keys: [N, d], keys of the same layer.
        tokens: [N, D], the visual tokens.
        k: Tokens to keep.

    Returns:
        `tokens` holds the kept tokens with their neighbours added, kept neighbours included, unnormalised
        as published, in the dtype given. They are merged at k = N too.

    Raises:
        ValueError: k is not in 1..N, numbers of tokens differ, or a value is NaN or infinite.
    """
    n = check_inputs(k, attention=attention, keys=keys, tokens=tokens)
    scores = attention.float()
    lower, upper = scores.quantile(scores.new_tensor([0.25, 0.75]))
    outlier = scores > upper + 1.5 * (upper - lower)
    step = max(1, n // max(1, int(outlier.sum())) // 3)
    tier = torch.full_like(scores, 2, dtype=torch.long)
    tier[::step] = 1
    tier[outlier] = 0
    ranked = scores.argsort(descending=True, stable=True)
    keep = ranked[tier[ranked].argsort(stable=True)][:k].sort().values

    similarity = cosine(keys[keep], keys)  # (K, N)
    similarity.scatter_(1, keep[:, None], -torch.inf)  # a token is no neighbour of itself
    near = similarity.argsort(dim=1, descending=True, stable=True)[:, : min(NEIGHBOURS, n - 1)]
    share = torch.zeros_like(similarity).scatter(1, near, scores[near])
    merged = tokens[keep].float() + share @ tokens.float()
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
        style=Style("#5f7f78", "p"),
    )
)
