"""FastV (Chen et al. 2024, arXiv 2403.06764): keep what the end of the prompt attends to.

    s_j = mean over heads of A[h, last, j] in the last of the first K layers;  keep the k highest s_j

The paper's K is 2; the published code with a key/value cache also runs 3 (`fastv:3`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, top_k


@torch.no_grad()
def fastv(attention: Tensor, visual: slice | Tensor, k: int) -> Reduction:
    """Return the k visual tokens that the last prompt token attends to most, as indices among the image's N.

    `attention` [H, L] is the last prompt token's at one layer, after softmax; `visual` the columns of the N
    image tokens among the L, a slice or long [N] in raster order.
    """
    scores = attention[:, visual].float().mean(0)  # (N,)
    check_inputs(k, attention=scores)
    return Reduction(top_k(scores, k).sort().values)


def _after(argument: str) -> Method:
    """FastV after another number of layers than two."""
    if not (argument.isascii() and argument.isdigit() and int(argument) >= 1):
        raise ValueError(f"method 'fastv:{argument}' needs a number of layers of 1 or more, such as fastv:3")
    layers = int(argument)
    return replace(
        METHOD, name=f"fastv:{layers}", layers=layers, contender=False, label=f"FastV after layer {layers}"
    )


METHOD = register(
    Method(
        "fastv",
        "rival",
        between_layers=fastv,
        by_question=True,
        needs=frozenset({"layers"}),
        variation=_after,
        contender=True,
        label="FastV",
        paper="Chen et al. 2024, arXiv 2403.06764",
    )
)
