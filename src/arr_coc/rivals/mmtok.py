"""MMTok (Dong et al. 2025, arXiv 2508.18264): tokens that cover both the question and the image.

P = softmax_j(cos(text_t, v_j) / 0.02) / L;  Q = softmax_j(cos(c_i, c_j) / 0.2) / N;  C = [P; 0.5 Q]
greedily argmax_j sum over rows of max(0, C_j - best);  best = max(best, C_j*);  best = 0 first
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.rivals.method import Method, Style, register
from arr_coc.rivals.reduction import Reduction, check_inputs, check_question, cosine, greedy_cover

TEXT_TEMPERATURE = 0.02
VISION_TEMPERATURE = 0.2
VISION_WEIGHT = 0.5


@torch.no_grad()
def mmtok(tokens: Tensor, question: Tensor, features: Tensor, k: int) -> Reduction:
    """The k tokens that greedily cover most of the question's tokens and the image's own.

    Args:
        tokens: [N, D], the visual tokens.
        question: [L, D], embeddings of the question in the same space.
        features: [N, d], the same tokens on the vision side, before the projection.
        k: Tokens to keep.

    Raises:
        ValueError: the question is empty or of another width, k is not in 1..N, numbers of tokens differ,
            or a value is NaN or infinite.
    """
    n = check_inputs(k, tokens=tokens, features=features)
    check_question(question, tokens)
    text = (cosine(question, tokens) / TEXT_TEMPERATURE).softmax(-1) / len(question)  # (L, N)
    vision = (cosine(features) / VISION_TEMPERATURE).softmax(-1) / n  # (N, N)
    worth = torch.cat((text, VISION_WEIGHT * vision)).T.contiguous()  # (N, L + N)
    return Reduction(greedy_cover(worth, k).sort().values)


register(
    Method(
        "mmtok",
        "rival",
        lambda view, i, k: mmtok(view.tokens, view.question(i), view.states, k),
        by_question=True,
        needs=frozenset({"tower"}),
        label="MMTok",
        paper="Dong et al. 2025, arXiv 2508.18264",
        style=Style("#b8860b", "v"),
    )
)
