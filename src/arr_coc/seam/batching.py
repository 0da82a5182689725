"""Several prompts about the same images as one batch, padded on the left.

with_answer(row, ids)                    a prompt that goes on with an answer, and its labels
left_padded(rows, visual, adapter)       the batch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.seam.features import KIND_NAMES, PROMPT_NAMES

if TYPE_CHECKING:
    from arr_coc.seam.base import FamilyAdapter


def with_answer(row: Mapping[str, Any], ids: Sequence[int], kind: int = 0) -> dict[str, Any]:
    """A prompt of one row that goes on with the ids of an answer; `labels` are -100 but at these.

    Args:
        row: the prompt.
        ids: of the answer.
        kind: of the answer's tokens, beside those of the prompt's.
    """
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
    """One batch of prompts of one row each about the same images, without their pixels.

    Args:
        rows: the prompts, all with labels or none.
        visual: what the processor made of the images.
        adapter: of the model, which says by which token columns are padded.
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
