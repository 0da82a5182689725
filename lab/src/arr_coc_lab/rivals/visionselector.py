"""VisionSelector (Zhu et al. 2025, arXiv 2510.16598): a learned scorer that never sees the question.

    q = V Wq + bq, k = V Wk + bk;  s_i = mean_j (q_i . k_j) / sqrt(width);  keep the k highest s_i

It was published with a soft top-k without noise, p = sigmoid(s + t), with t found by bisection so that the
p sum to k (`choose.attending.soft_top_k`), and a curriculum from soft to hard masks. How the scorer is
taught here, and how that differs, is the trainer's: see `runs/study.sh`. The bundled one has no biases.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from arr_coc.choose.attending import soft_top_k
from arr_coc_lab.rivals.method import Method, Style, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, top_k

__all__ = ["QueryBlindScorer", "visionselector", "soft_top_k"]


class QueryBlindScorer(nn.Module):
    """Scores visual tokens by the mean of their attention logits over all tokens of their image.

    Args:
        dim: Width D of the tokens.
        width: Width of queries and keys; D // 2 as published (12.85 million parameters at D = 3584).
        bias: Queries and keys have biases, as published; False for weights that were learned without.
    """

    def __init__(self, dim: int, width: int, bias: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(dim, width, bias=bias)
        self.key = nn.Linear(dim, width, bias=bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, [N, D] -> [N] or [B, N, D] -> [B, N] (images of equal N: the mean knows no padding)."""
        # s_i = mean_j q_i . k_j = q_i . mean_j k_j = q_i . ((mean_j v_j) Wk + bk): a dot product is linear in
        # its second side. Each token keeps its own query and meets one mean key: O(N), not O(N^2).
        mean_key = self.key(tokens.mean(-2))  # (..., width)
        return (self.query(tokens) @ mean_key.unsqueeze(-1)).squeeze(-1) / math.sqrt(mean_key.shape[-1])


@torch.no_grad()
def visionselector(scores: Tensor, k: int) -> Reduction:
    """The k highest of `scores` [N], those of a `QueryBlindScorer`.

    Raises:
        ValueError: k is not in 1..N, or a score is NaN or infinite.
    """
    check_inputs(k, scores=scores)
    return Reduction(top_k(scores, k).sort().values)


register(
    Method(
        "visionselector",
        "rival",
        lambda view, i, k: visionselector(view.blind_scores(), k),
        needs=frozenset({"scorer"}),
        label="VisionSelector",
        paper="Zhu et al. 2025, arXiv 2510.16598",
        style=Style("#117733", "D"),
    )
)
