"""Several prompts about the same images as one batch, and the cost of their answers given some cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.seam.assembly import KIND_NAMES, PROMPT_NAMES, Compacted, VisualFeatures
from arr_coc.seam.base import FamilyAdapter


def with_answer(row: Mapping[str, Any], ids: Sequence[int], kind: int = 0) -> dict[str, Any]:
    """Return a prompt of one row followed by an answer's ids of this `kind`; `labels` elsewhere are -100."""
    longer = dict(row)
    new = longer["input_ids"].new_tensor([list(ids)])
    longer["labels"] = torch.cat([torch.full_like(longer["input_ids"], -100), new], 1)
    longer["input_ids"] = torch.cat([longer["input_ids"], new], 1)
    longer["attention_mask"] = torch.ones_like(longer["input_ids"])
    for name in KIND_NAMES:
        if name in longer:
            longer[name] = F.pad(longer[name], (0, len(ids)), value=kind)
    return longer


def left_padded(
    rows: Sequence[Mapping[str, Any]], visual: Mapping[str, Any], adapter: FamilyAdapter
) -> dict[str, Any]:
    """One batch, padded on the left, of prompts of one row each about the same images, without their pixels.

    `visual` is what the processor made of the images; the rows have all labels or none.
    """
    longest = max(row["input_ids"].shape[1] for row in rows)
    fill = {"input_ids": adapter.padding_id, "labels": -100}
    columns = [name for name in (*PROMPT_NAMES, "labels") if name in rows[0]]
    batch = {
        name: torch.cat(
            [F.pad(r[name], (longest - r[name].shape[1], 0), value=fill.get(name, 0)) for r in rows]
        )
        for name in columns
    }
    about = {name: value for name, value in visual.items() if name != "pixel_values"}
    repeated = {
        name: value.repeat(len(rows), *[1] * (value.ndim - 1)) if isinstance(value, Tensor) else value
        for name, value in about.items()
    }
    batch |= repeated
    if adapter.plain_positions and not bool(batch["attention_mask"].all()):
        # A model counts padding along; where positions aren't only relative, its rows then differ.
        batch["position_ids"] = adapter.positions(batch)
    return batch


IGNORED = -100  # label of columns outside an answer


def answer_costs(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    features: VisualFeatures,
    keep: Sequence[Tensor],
    gestalt: VisualFeatures | None = None,
) -> Tensor:
    """Mean cross-entropy [B] of each row's answer, in nats per token, from kept cells [K] of one image a row.

    `inputs` are of `Session.batch` with answers, `gestalt` is a coarse view before the kept cells; a gradient
    may come back through the features.
    """
    return compacted_costs(adapter, adapter.compact(inputs, features, keep, gestalt, use_cache=False))


def compacted_costs(adapter: FamilyAdapter, compacted: Compacted) -> Tensor:
    """Mean cross-entropy [B] of each row's answer, as `answer_costs`, from a compacted prompt."""
    return _costs(*_last_logits(adapter, compacted))


def hinted_costs(adapter: FamilyAdapter, compacted: Compacted, tail: int) -> tuple[Tensor, Tensor]:
    """As `compacted_costs`, and the cost of the answer's first token in the prompt's last columns: [B] each.

    The second is the mean cross-entropy of that token as `tail` >= 1 columns predict it, up to its own.
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
    costs = F.cross_entropy(logits.transpose(1, 2), answers, ignore_index=IGNORED, reduction="none")  # (B, S)
    return costs.sum(1) / (answers != IGNORED).sum(1)  # over columns: nats per token
