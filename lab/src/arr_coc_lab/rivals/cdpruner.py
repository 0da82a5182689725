"""CDPruner (Zhang et al. 2025, arXiv 2506.10967): diverse tokens, conditioned on the question.

S = cos(V, V);  r = min-max of +-mean over question tokens of cos(V, E);  L = diag(r) S diag(r)
keep = greedy maximum of det(L_keep), the MAP estimate of a determinantal point process
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import ImageView, Method, register
from arr_coc_lab.rivals.reduction import (
    ROUNDING,
    Reduction,
    check_inputs,
    check_question,
    cosine,
    highest,
    min_max,
    top_k,
)

FLOOR = 1e-6  # keeps the least relevant token in the kernel
RESIDUAL = 1e-5  # below it a token adds rounding, not volume


@torch.no_grad()
def cdpruner(tokens: Tensor, question: Tensor, k: int, sign: int = 1) -> Reduction:
    """Return the k of `tokens` [N, D] that are relevant to `question` [L, D] and unlike one another.

    `sign` +1: similar tokens are relevant (OpenVINO); -1: dissimilar ones (the official code, on CLIP's
    embeddings); ValueError for others. Relevance is scaled over this image alone, in the published code over
    the batch. Where the kernel has fewer than k independent rows, the rest goes to the most relevant tokens.
    """
    if sign not in (1, -1):
        raise ValueError(f"sign {sign} must be +1 (similar is relevant) or -1 (dissimilar is relevant)")
    check_inputs(k, tokens=tokens)
    check_question(question, tokens)
    relevance = min_max(sign * cosine(question, tokens).mean(0), FLOOR)
    return Reduction(greedy_map(cosine(tokens), relevance, k).sort().values)


def greedy_map(similarity: Tensor, quality: Tensor, k: int) -> Tensor:
    """Greedy maximum of det(diag(quality) similarity diag(quality)) over subsets of k (Chen et al. 2018,
    1709.05135).

    `similarity` [N, N] is positive semidefinite with a diagonal of ones, `quality` [N] above 0. Returns long
    [k] in the order of choice, by quality once the determinant is 0.
    """
    # The Cholesky factor is that of `similarity`, and quality_j^2 scales its pivots: the same as a factor of
    # the product, but the residual then is a share of 1 for every token, however small its quality,
    # so that one threshold tells dependence from irrelevance.
    residual = similarity.diagonal().clone()  # (N,), squared length outside the span of the chosen
    factor = similarity.new_zeros(k, len(similarity))  # rows of the Cholesky factor
    order: list[int] = []
    for step in range(k):
        gain = torch.where(residual > RESIDUAL, quality**2 * residual, -1.0)  # growth of the determinant
        pick = highest(gain, ROUNDING * abs(float(gain.max())))
        if gain[pick] < 0:
            break
        row = (similarity[pick] - factor[:step, pick] @ factor[:step]) / residual[pick].sqrt()
        factor[step] = row
        residual -= row**2
        residual[pick] = -torch.inf
        order.append(pick)
    chosen = torch.tensor(order, dtype=torch.long, device=similarity.device)
    return torch.cat((chosen, top_k(quality.index_fill(0, chosen, -torch.inf), k - len(order))))


def _by_question(sign: int) -> Method:
    def select(view: ImageView, i: int, k: int) -> Reduction:
        return cdpruner(view.tokens, view.question(i), k, sign)

    return Method(
        "cdpruner+" if sign > 0 else "cdpruner-",
        "rival",
        select,
        by_question=True,
        contender=sign > 0,
        label=f"CDPruner ({'similar' if sign > 0 else 'dissimilar'} is relevant)",
        paper="Zhang et al. 2025, arXiv 2506.10967",
    )


register(_by_question(+1))
register(_by_question(-1))
