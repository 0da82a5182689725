"""IDPruner (AngelSlim 2026): importance against redundancy, by maximal marginal relevance.

first argmax_i importance_i, scaled to [0, 1] over the image;
then argmax_i [ w importance_i - (1 - w) max over the chosen j of cos(v_i, v_j) ]
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, cosine, highest, min_max


@torch.no_grad()
def idpruner(importance: Tensor, tokens: Tensor, k: int, weight: float = 0.5) -> Reduction:
    """Return the k of `tokens` [N, D] that are important and unlike those already chosen.

    `importance` [N] is higher for better, at any scale (published: of a trained `QueryBlindScorer`); `weight`
    that of importance against redundancy, 0 to 1.
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight {weight} of importance is not in [0, 1]; the published one is 0.5")
    check_inputs(k, importance=importance, tokens=tokens)
    merit = min_max(importance.float())
    similarity = cosine(tokens)
    taken = torch.zeros_like(merit, dtype=torch.bool)
    closest = torch.full_like(merit, -1)  # cosine to the nearest chosen token
    pick = highest(merit)
    order = [pick]
    while len(order) < k:
        taken[pick] = True
        closest = torch.maximum(closest, similarity[pick])
        score = weight * merit - (1 - weight) * closest
        pick = highest(score.masked_fill_(taken, -torch.inf))
        order.append(pick)
    return Reduction(torch.tensor(order, device=tokens.device).sort().values)


register(
    Method(
        "idpruner",
        "rival",
        lambda view, i, k: idpruner(view.blind_scores(), view.tokens, k),
        needs=frozenset({"scorer"}),
        label="IDPruner",
        paper="AngelSlim 2026",
    )
)
