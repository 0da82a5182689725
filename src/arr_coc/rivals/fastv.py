"""FastV (Chen et al. 2024, arXiv 2403.06764): keep what the end of the prompt attends to.

    s_j = mean over heads of A[h, last, j];  keep the k highest s_j

Which layer, and what happens to positions and cache afterwards, is the caller's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.rivals.method import Method, Style, register
from arr_coc.rivals.reduction import Reduction, check_inputs, top_k


@torch.no_grad()
def fastv(attention: Tensor, visual: slice | Tensor, k: int) -> Reduction:
    """The k visual tokens that the last prompt token attends to most.

    Args:
        attention: [H, L], probabilities over the prompt of its last token at one layer, after softmax.
        visual: Where the image's N tokens lie among the L: a slice, or long [N] in raster order.
        k: Tokens to keep.

    Returns:
        Indices among the image's N tokens, not among the prompt's L.

    Raises:
        ValueError: k is not in 1..N, or the attention to the image holds NaN or infinity.
    """
    scores = attention[:, visual].float().mean(0)  # (N,)
    check_inputs(k, attention=scores)
    return Reduction(top_k(scores, k).sort().values)


register(
    Method(
        "fastv",
        "rival",
        between_layers=fastv,
        by_question=True,
        needs=frozenset({"layers"}),
        contender=True,
        label="FastV",
        paper="Chen et al. 2024, arXiv 2403.06764",
        style=Style("#33508f", "s"),
    )
)
