"""DivPrune (Alvar et al. 2025, arXiv 2503.02175): the most diverse tokens, by greedy max-min distance.

D = 1 - cos(V, V);  first the token farthest from its nearest neighbour;
then always argmax_j min over the chosen i of D_ij
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, cosine, highest


@torch.no_grad()
def divprune(tokens: Tensor, k: int) -> Reduction:
    """Return the k of `tokens` [N, D] that lie far from one another."""
    check_inputs(k, tokens=tokens)
    distance = 1 - cosine(tokens)  # (N, N)
    pick = highest(distance.fill_diagonal_(torch.inf).amin(0))
    order = [pick]
    reach = torch.full_like(distance[0], torch.inf)  # to the nearest chosen token
    while len(order) < k:
        reach = torch.minimum(reach, distance[pick])
        # the published code trusts D_ii = 0 here, which duplicates and rounding defeat
        reach[pick] = -torch.inf  # and stays so under the minimum
        pick = highest(reach)
        order.append(pick)
    return Reduction(torch.tensor(order, device=tokens.device).sort().values)


register(
    Method(
        "divprune",
        "rival",
        lambda view, i, k: divprune(view.tokens, k),
        contender=True,
        label="DivPrune",
        paper="Alvar et al. 2025, arXiv 2503.02175",
    )
)
