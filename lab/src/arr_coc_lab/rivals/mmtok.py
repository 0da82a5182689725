"""MMTok (Dong et al. 2025, arXiv 2508.18264): tokens that cover both the question and the image.

    P = softmax_j(cos(text_t, v_j) / 0.02) / L;  Q = softmax_j(cos(c_i, c_j) / 0.2) / N;  C = [P; 0.5 Q]
    greedily argmax_j sum over rows of max(0, C_j - best);  best = max(best, C_j*);  best = 0 first

`mmtok:qwen` is the published port to Qwen2.5-VL: 0.01, and c is the mean of a cell's patches.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from arr_coc_lab.rivals.method import ImageView, Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_inputs, check_question, cosine, greedy_cover

TEXT_TEMPERATURE = 0.02
QWEN_TEXT_TEMPERATURE = 0.01
VISION_TEMPERATURE = 0.2
VISION_WEIGHT = 0.5


@torch.no_grad()
def mmtok(
    tokens: Tensor, question: Tensor, features: Tensor, k: int, temperature: float = TEXT_TEMPERATURE
) -> Reduction:
    """Return the k of `tokens` [N, D] that greedily cover most of the `question` [L, D] and the image's own
    tokens.

    `features` [N, d] are the same tokens before the projection; `temperature`, above 0, is of the question's
    similarities.
    """
    if not temperature > 0:
        raise ValueError(f"temperature {temperature} is not above 0; the published ones are 0.02 and 0.01")
    n = check_inputs(k, tokens=tokens, features=features)
    check_question(question, tokens)
    text = (cosine(question, tokens) / temperature).softmax(-1) / len(question)  # (L, N)
    vision = (cosine(features) / VISION_TEMPERATURE).softmax(-1) / n  # (N, N)
    worth = torch.cat((text, VISION_WEIGHT * vision)).T.contiguous()  # (N, L + N)
    return Reduction(greedy_cover(worth, k).sort().values)


def _of_qwen(view: ImageView, i: int, k: int) -> Reduction:
    features = view.states.unflatten(1, (view.patches, -1)).mean(1)
    return mmtok(view.tokens, view.question(i), features, k, QWEN_TEXT_TEMPERATURE)


def _variation(argument: str) -> Method:
    if argument != "qwen":
        raise ValueError(f"method 'mmtok:{argument}' is unknown; use mmtok, or mmtok:qwen")
    return replace(METHOD, name="mmtok:qwen", select=_of_qwen, label="MMTok, as for Qwen")


METHOD = register(
    Method(
        "mmtok",
        "rival",
        lambda view, i, k: mmtok(view.tokens, view.question(i), view.states, k),
        by_question=True,
        needs=frozenset({"tower"}),
        variation=_variation,
        label="MMTok",
        paper="Dong et al. 2025, arXiv 2508.18264",
    )
)
