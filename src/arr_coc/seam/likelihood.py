"""How likely answers are from some cells of an image: their cross-entropy under the base model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.features import Compacted, VisualFeatures

IGNORED = -100
"""The label of columns that are no part of an answer."""


def answer_costs(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], features: VisualFeatures, keep: Sequence[Tensor]
) -> Tensor:
    """Mean cross-entropy of each row's answer, from the kept cells: [B], in nats per token.

    Args:
        adapter: on the model that predicts the answers: that of a mode, or a watched twin.
        inputs: of `Session.batch` with answers.
        features: one image per row; a gradient may come back through them.
        keep: per row the kept cells [K].
    """
    return compacted_costs(adapter, adapter.compact(inputs, features, keep, use_cache=False))


def compacted_costs(adapter: FamilyAdapter, compacted: Compacted) -> Tensor:
    """As `answer_costs`, of a prompt that was compacted or assembled already."""
    return _costs(*_last_logits(adapter, compacted))


def hinted_costs(adapter: FamilyAdapter, compacted: Compacted, tail: int) -> tuple[Tensor, Tensor]:
    """As `compacted_costs`, and the cost of the answer's first token in the prompt's last columns: [B] each.

    Args:
        adapter: as of `answer_costs`.
        compacted: a prompt with answers.
        tail: so many columns, the one that predicts the answer's first token among them; at least 1.
    """
    logits, answers = _last_logits(adapter, compacted, tail - 1)
    begin = (answers != IGNORED).long().argmax(1)  # the column that predicts an answer's first token
    first = answers.gather(1, begin[:, None])
    columns = begin[:, None] - torch.arange(tail, device=begin.device)  # (B, tail), all there
    early = logits.gather(1, columns[..., None].expand(-1, -1, logits.shape[-1]))
    hints = F.cross_entropy(early.transpose(1, 2), first.expand(-1, tail), reduction="none").mean(1)
    return _costs(logits, answers), hints


def _last_logits(adapter: FamilyAdapter, compacted: Compacted, before: int = 0) -> tuple[Tensor, Tensor]:
    """Logits [B, S, V] of the columns that predict answers and of some before those, and their labels."""
    kwargs = dict(compacted.kwargs)
    labels = kwargs.pop("labels")
    last = int((labels != IGNORED).sum(1).max()) + 1 + before  # answers stand at the right end of every row
    logits = adapter.model(**kwargs, use_cache=False, logits_to_keep=last).logits[:, -last:-1].float()
    return logits, labels[:, -last + 1 :]


def _costs(logits: Tensor, answers: Tensor) -> Tensor:
    """Mean cross-entropy of each row's answer, [B]."""
    costs = F.cross_entropy(logits.transpose(1, 2), answers, ignore_index=IGNORED, reduction="none")
    return costs.sum(1) / (answers != IGNORED).sum(1)
