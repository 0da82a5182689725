"""Targets from the model itself: its own answers, rewards of sampled answers, and maps of self-distillation.

    gradient    the length of d log p(answer) / d token, over all levels of the token
    attention   attention of the rows that predict the answer: mean over heads, maximum over layers

Both are maps in [0, 1], scaled so that the strongest cell is 1; no labels are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from arr_coc.data.metrics import anls, exact_match, f1
from arr_coc.model import ARRCOCModel
from arr_coc.modes import PRUNE
from arr_coc.seam import VisualFeatures
from arr_coc.seam.attention import attention_rows, watch_attention
from arr_coc.seam.batching import IGNORED, answer_costs
from arr_coc.seam.decoding import generate_whole
from arr_coc.session import GREEDY, Session
from arr_coc.train.rows import Row

REWARDS: dict[str, Callable[[str, Sequence[str]], float]] = {
    "exact_match": exact_match,
    "anls": anls,
    "f1": f1,
}
LONGEST = 32  # most tokens of an answer
SAMPLING = GREEDY | {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}


def own_answers(
    session: Session,
    features: VisualFeatures,
    questions: Sequence[str],
    longest: int = LONGEST,
    together: bool = False,
) -> list[str]:
    """Return the model's greedy answer to each question from all tokens; `together`: in step with all
    processes.
    """
    inputs, rows = session.batch(questions), len(questions)
    options = GREEDY | {"max_new_tokens": longest, "synced_gpus": together}
    return _generated(session.model, inputs, features.repeat(rows), all_cells(features) * rows, options)


class Judge:
    """The reward of REINFORCE: a metric of the answers generated from kept cells of an image.

    `truths` are the accepted answers of each of the Q `rows`; `reward` is a name of `REWARDS`.
    """

    def __init__(
        self,
        session: Session,
        encoded: VisualFeatures,
        rows: Sequence[Row],
        truths: Sequence[Sequence[str]],
        reward: str,
        together: bool = False,
    ) -> None:
        self.model, self.metric, self.features = session.model, REWARDS[reward], encoded.repeat(len(rows))
        self.inputs = session.batch([row.question for row in rows])
        self.truths, self.together = truths, together

    @torch.no_grad()
    def costs(self, keep: Tensor, sampled: bool, draws: torch.Generator | None = None) -> Tensor:
        """1 - metric of each answer, [Q] in [0, 1], from the kept cells `keep`, long [Q, K].

        Answers are sampled from the model's distribution, seeded by `draws`, or greedy.
        """
        options = SAMPLING if sampled else GREEDY
        options = options | {"max_new_tokens": LONGEST, "synced_gpus": self.together}
        # Sampling uses the global generator: fork it, or the run's own draws would depend on the answers.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=draws)))
            answers = _generated(self.model, self.inputs, self.features, list(keep), options)
        costs = [1 - self.metric(answer, truths) for answer, truths in zip(answers, self.truths, strict=True)]
        return torch.tensor(costs, device=keep.device)


def _generated(
    model: ARRCOCModel,
    inputs: Mapping[str, Any],
    features: VisualFeatures,
    keep: list[Tensor],
    options: Mapping[str, Any],
) -> list[str]:
    compacted = model.adapter.compact(inputs, features, keep)
    ids = generate_whole(model.adapter_for(PRUNE).model, inputs, compacted, **options)
    new = ids[:, inputs["input_ids"].shape[1] :]
    return [text.strip() for text in model.processor.tokenizer.batch_decode(new, skip_special_tokens=True)]


def all_cells(features: VisualFeatures) -> list[Tensor]:
    """Indices of all cells, per image."""
    return [torch.arange(len(cells), device=cells.device) for cells in features.cells]


def gradient_map(model: ARRCOCModel, inputs: Mapping[str, Any], features: VisualFeatures) -> Tensor:
    """Length of the gradient of the answer's log-probability by each cell: [B, N] in [0, 1].

    `inputs` are of `Session.batch` with answers; `features` holds one image per row, all of one size.
    """
    with torch.enable_grad():
        leaves = [
            [t.detach().clone().requires_grad_() for t in tokens]
            for tokens in (features.tokens, *features.levels)
        ]
        watched = replace(features, tokens=leaves[0], levels=leaves[1:])
        costs = answer_costs(model.adapter_for(PRUNE), inputs, watched, all_cells(features))
        grads = torch.autograd.grad(costs.sum(), [t for level in leaves for t in level])
    rows = len(features.tokens)
    # Gradients come level by level, the rows of each: squares are summed over channels, then over levels, in
    # float32, since those of a bfloat16 model vanish.
    squares = torch.stack([g.float().square().sum(-1) for g in grads])  # (levels x B, tokens)
    squares = squares.unflatten(0, (-1, rows)).sum(0)  # (B, tokens)
    return _scaled(torch.stack([s[cells] for s, cells in zip(squares, features.cells, strict=True)]).sqrt())


@torch.no_grad()
def attention_map(model: ARRCOCModel, inputs: Mapping[str, Any], features: VisualFeatures) -> Tensor:
    """Attention to each cell from the rows that predict the answer: [B, N] in [0, 1]; as `gradient_map`."""
    answer = inputs["labels"] != IGNORED
    last = int(answer.sum(1).max()) + 1
    predicts = answer[:, -last:].roll(-1, 1)  # the row before a token predicts it
    predicts[:, -1] = False  # the roll wraps around
    most: list[Tensor] = []

    def observe(layer: int, query: Tensor, key: Tensor, scaling: float, mask: Tensor | None) -> None:
        rows = attention_rows(
            query[:, :, -last:], key, scaling, None if mask is None else mask[..., -last:, :]
        )
        most.append((rows.mean(1) * predicts[..., None]).sum(1))  # (B, S)

    with watch_attention(model.adapter_for(PRUNE).model, "language", observe) as watched:
        answer_costs(model.adapter.on(watched), inputs, features, all_cells(features))
    attention = torch.stack(most).amax(0)  # (layers, B, S) -> (B, S)
    columns = model.adapter.columns(inputs["input_ids"], features.counts)
    cells = zip(columns, features.cells, strict=True)
    return _scaled(torch.stack([attention[row, at[index]] for (row, at), index in cells]))


def _scaled(maps: Tensor) -> Tensor:
    return maps / maps.amax(-1, keepdim=True).clamp_min(1e-12)  # a map of zeros stays zero
