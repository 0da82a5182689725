"""How likely answers are from some cells of an image: their cross-entropy under the base model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    kwargs = dict(compacted.kwargs)
    labels = kwargs.pop("labels")
    last = int((labels != IGNORED).sum(1).max()) + 1  # answers stand at the right end of every row
    logits = adapter.model(**kwargs, use_cache=False, logits_to_keep=last).logits[:, -last:-1].float()
    answers = labels[:, -last + 1 :]
    costs = F.cross_entropy(logits.transpose(1, 2), answers, ignore_index=IGNORED, reduction="none")
    return costs.sum(1) / (answers != IGNORED).sum(1)
