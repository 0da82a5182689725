"""Targets of self-distillation: maps of what the model itself used when it answered with all tokens.

    gradient    the length of d log p(answer) / d token, over all levels of the token
    attention   what the rows that say the answer attend to, mean over heads, the most of any layer

Both are maps in [0, 1], scaled so that the strongest cell is 1; no labels are needed. The answer is the right
one where a row has it, else the model's own. The targets are computed when they are needed, by one more
forward pass with all tokens ("gradient": and one backward pass) for each question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from arr_coc.model import ARRCOCModel
from arr_coc.modes import PRUNE
from arr_coc.seam import VisualFeatures
from arr_coc.seam.attention import attention_rows, watch_attention
from arr_coc.seam.batching import IGNORED, answer_costs
from arr_coc.seam.decoding import generate_whole
from arr_coc.session import GREEDY, Session


def own_answers(
    session: Session,
    features: VisualFeatures,
    questions: Sequence[str],
    longest: int = 32,
    together: bool = False,
) -> list[str]:
    """The model's answer to each question with all tokens, decoded greedily.

    Args:
        session: of the image.
        features: the image, encoded.
        questions: about it.
        longest: tokens of an answer at most.
        together: go on until all processes of the run have their answers, which hold the model together.
    """
    model, inputs = session.model, session.batch(questions)
    compacted = model.adapter.compact(
        inputs, features.repeat(len(questions)), everything(features) * len(questions)
    )
    options = GREEDY | {"max_new_tokens": longest, "synced_gpus": together}
    ids = generate_whole(model.adapter_for(PRUNE).model, inputs, compacted, **options)
    new = ids[:, inputs["input_ids"].shape[1] :]
    return [text.strip() for text in model.processor.tokenizer.batch_decode(new, skip_special_tokens=True)]


def everything(features: VisualFeatures) -> list[Tensor]:
    """Per image the indices of all its cells."""
    return [torch.arange(len(cells), device=cells.device) for cells in features.cells]


def gradient_map(model: ARRCOCModel, inputs: Mapping[str, Any], features: VisualFeatures) -> Tensor:
    """Length of the gradient of the answer's log-probability by each cell: [B, N] in [0, 1].

    Args:
        model: the model, with all tokens.
        inputs: of `Session.batch` with answers.
        features: one image per row, of one size.
    """
    with torch.enable_grad():
        leaves = [
            [t.detach().clone().requires_grad_() for t in tokens]
            for tokens in (features.tokens, *features.levels)
        ]
        watched = replace(features, tokens=leaves[0], levels=leaves[1:])
        costs = answer_costs(model.adapter_for(PRUNE), inputs, watched, everything(features))
        grads = torch.autograd.grad(costs.sum(), [t for level in leaves for t in level])
    rows = len(features.tokens)
    squares = (
        torch.stack([g.float().square().sum(-1) for g in grads]).unflatten(0, (-1, rows)).sum(0)
    )  # (B, tokens)
    return _scaled(torch.stack([s[cells] for s, cells in zip(squares, features.cells, strict=True)]).sqrt())


@torch.no_grad()
def attention_map(model: ARRCOCModel, inputs: Mapping[str, Any], features: VisualFeatures) -> Tensor:
    """Attention of the rows that predict the answer to each cell: [B, N] in [0, 1]; as `gradient_map`."""
    answer = inputs["labels"] != IGNORED
    last = int(answer.sum(1).max()) + 1
    predicts = answer[:, -last:].roll(-1, 1)  # the row before a token predicts it
    predicts[:, -1] = False
    most: list[Tensor] = []

    def observe(layer: int, query: Tensor, key: Tensor, scaling: float, mask: Tensor | None) -> None:
        rows = attention_rows(
            query[:, :, -last:], key, scaling, None if mask is None else mask[..., -last:, :]
        )
        most.append((rows.mean(1) * predicts[..., None]).sum(1))  # (B, S)

    with watch_attention(model.adapter_for(PRUNE).model, "language", observe) as watched:
        answer_costs(model.adapter.on(watched), inputs, features, everything(features))
    attention = torch.stack(most).amax(0)
    columns = model.adapter.columns(inputs["input_ids"], features.counts)
    cells = zip(columns, features.cells, strict=True)
    return _scaled(torch.stack([attention[row, at[index]] for (row, at), index in cells]))


def _scaled(maps: Tensor) -> Tensor:
    """Divide by the strongest cell; a map of zeros stays zero."""
    return maps / maps.amax(-1, keepdim=True).clamp_min(1e-12)
