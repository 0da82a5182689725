"""VisionSelector (Zhu et al. 2025, arXiv 2510.16598): a trained scorer that never reads the question.

    q = V Wq + bq, k = V Wk + bk;  s_i = mean_j (q_i . k_j) / sqrt(width);  keep the k highest s_i

It was published with a soft top-k, `choose.attending.soft_top_k`; `runs/study.sh` has how it is trained here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from arr_coc.choose.attending import soft_top_k
from arr_coc_lab.rivals.method import Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, top_k

__all__ = ["QueryBlindScorer", "visionselector", "soft_top_k"]


class QueryBlindScorer(nn.Module):
    """Scores visual tokens by the mean of their attention logits over all tokens of their image.

    Published with biases and `width` D // 2 (12.85 million parameters at D = 3584).
    """

    def __init__(self, dim: int, width: int, bias: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(dim, width, bias=bias)
        self.key = nn.Linear(dim, width, bias=bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, [N, D] -> [N] or [B, N, D] -> [B, N] of images of equal N (no padding)."""
        # s_i = mean_j q_i . k_j = q_i . mean_j k_j = q_i . ((mean_j v_j) Wk + bk): a dot product is linear in
        # its second side. Each token keeps its own query and meets one mean key: O(N), not O(N^2).
        mean_key = self.key(tokens.mean(-2))  # (..., width)
        return (self.query(tokens) @ mean_key.unsqueeze(-1)).squeeze(-1) / math.sqrt(mean_key.shape[-1])


@torch.no_grad()
def visionselector(scores: Tensor, k: int) -> Reduction:
    """The k highest of `scores` [N]."""
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
    )
)
