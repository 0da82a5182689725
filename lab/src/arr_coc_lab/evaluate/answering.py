"""Batched greedy answers to rows about one image: every method, question and budget of near length together.

    answer_rows(prompts, features, rows, ...)     rows of one encoded image
    answer_compacted(model, compacted, ...)       prompts that were prepared one by one

A row's answer does not depend on the rows around it; equal rows are answered once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.model import ARRCOCModel
from arr_coc.modes import FULL, PRUNE
from arr_coc.seam import Compacted, VisualFeatures
from arr_coc.seam.assembly import PROMPT_NAMES
from arr_coc.seam.decoding import generate_whole, use_given_positions
from arr_coc.seam.lora import OWN
from arr_coc.session import GREEDY, Session
from arr_coc_lab.rivals.reduction import Reduction

IGNORED = -100  # the label of columns outside the answer
SPREAD = 1.3
"""Longest over shortest row of a batch, at most: beyond it padding costs too much."""


@dataclass(frozen=True, eq=False)
class CellPrompt:
    """The number of a question and the cells it is answered from, with the model's LoRA if `adapted`."""

    question: int
    kept: Reduction
    adapted: bool = False


class Prompts:
    """The questions about one image as one left-padded batch to take rows from."""

    def __init__(self, session: Session, questions: Sequence[str]) -> None:
        self.model = session.model
        self.batch = session.batch(questions)
        self._positions = self.model.adapter.positions(self.batch)  # of whole prompts, costly for many rows

    def rows(self, questions: Sequence[int], whole: bool) -> dict[str, Any]:
        """Inputs of questions by number; `whole` leaves positions to the model: nothing will be dropped."""
        index = torch.tensor(questions, device=self.model.device)
        batch = {
            name: value[index.to(value.device)] if isinstance(value, Tensor) else value
            for name, value in self.batch.items()
        }
        attended = self.batch["attention_mask"][index].any(0)  # (S,), columns that some row uses
        start = int(attended.to(torch.int8).argmax())  # columns that are padding in all of these rows
        for name in PROMPT_NAMES:
            if name in batch:
                batch[name] = batch[name][:, start:]
        if not whole:
            batch["position_ids"] = self._positions[..., index, start:]  # [3, rows, S] or [rows, S]
        return batch


def answer_rows(
    prompts: Prompts, features: VisualFeatures, rows: Sequence[CellPrompt], *, most: int, max_new_tokens: int
) -> list[str]:
    """Greedy answers to `rows` about one encoded image, at most `most` rows in a forward."""
    model = prompts.model
    adapted = OWN in model.loras
    alike: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        key = (row.question, row.adapted and adapted, tuple(row.kept.keep.tolist()))
        # merged tokens differ per method: never shared
        alike.setdefault(key if row.kept.tokens is None else number, []).append(number)
    firsts = [numbers[0] for numbers in alike.values()]
    # Equal lengths side by side: little padding, and the whole image apart from what is dropped.
    firsts.sort(key=lambda n: (rows[n].adapted and adapted, len(rows[n].kept.keep)))
    texts: dict[int, str] = {}
    for part in _parts(firsts, rows, most, len(features.cells[0]), adapted):
        texts |= zip(part, _answer(prompts, features, [rows[n] for n in part], max_new_tokens), strict=True)
    answers = {number: texts[numbers[0]] for numbers in alike.values() for number in numbers}
    return [answers[number] for number in range(len(rows))]


def _parts(
    order: Sequence[int], rows: Sequence[CellPrompt], most: int, total: int, lora: bool
) -> list[list[int]]:
    """Runs of at most `most` rows of near lengths that may share a forward: all or none with the entire
    image, all or none with the LoRA.
    """
    parts: list[list[int]] = []
    first = (False, False, 0)
    for number in order:
        row = rows[number]
        count = len(row.kept.keep)
        group = (count == total, row.adapted and lora, count)
        if not parts or len(parts[-1]) == most or group[:2] != first[:2] or count > SPREAD * first[2]:
            parts.append([])
            first = group
        parts[-1].append(number)
    return parts


def _answer(
    prompts: Prompts, features: VisualFeatures, rows: Sequence[CellPrompt], max_new_tokens: int
) -> list[str]:
    model = prompts.model
    keep = [row.kept.keep for row in rows]
    whole = len(keep[0]) == len(features.cells[0])
    inputs = prompts.rows([row.question for row in rows], whole)
    compacted = model.adapter.compact(inputs, with_merged(features, [row.kept for row in rows]), keep)
    base = model.adapter_for(PRUNE if rows[0].adapted else FULL).model
    ids = generate_whole(base, inputs, compacted, **GREEDY, max_new_tokens=max_new_tokens)
    return _texts(model, ids[:, inputs["input_ids"].shape[1] :])


def _texts(model: ARRCOCModel, ids: Tensor) -> list[str]:
    return [text.strip() for text in model.processor.tokenizer.batch_decode(ids, skip_special_tokens=True)]


def answer_compacted(
    model: ARRCOCModel, compacted: Sequence[Compacted], mode: str, *, most: int, max_new_tokens: int
) -> list[str]:
    """Greedy answers to prompts of one row each, with the LoRA of `mode`, at most `most` in a forward."""
    texts: dict[int, str] = {}
    for part in _alike(compacted, most):
        inputs = joined([compacted[n] for n in part], model.adapter.padding_id)
        base = model.adapter_for(mode).model
        ids = use_given_positions(base).generate(**inputs, **GREEDY, max_new_tokens=max_new_tokens)
        texts |= zip(part, _texts(model, ids[:, inputs["input_ids"].shape[1] :]), strict=True)
    return [texts[n] for n in range(len(compacted))]


def _alike(compacted: Sequence[Compacted], most: int) -> list[list[int]]:
    """Runs of at most `most` prompts of near lengths; one that keeps all its tokens stays alone, as the stock
    model would run it.
    """
    parts: list[list[int]] = []
    first = 0
    for n in sorted(range(len(compacted)), key=lambda n: compacted[n].columns.shape[1]):
        width = compacted[n].columns.shape[1]
        whole = "position_ids" not in compacted[n].kwargs
        if not parts or whole or len(parts[-1]) == most or width > SPREAD * first:
            parts.append([])
            first = 0 if whole else width  # 0: none joins it
        parts[-1].append(n)
    return parts


def joined(compacted: Sequence[Compacted], padding_id: int) -> dict[str, Any]:
    """Prompts of one row each as one left-padded batch for the base model."""
    if len(compacted) == 1:
        return compacted[0].kwargs
    width = max(one.columns.shape[1] for one in compacted)
    batch = dict(compacted[0].kwargs)
    for name in (*PROMPT_NAMES, "position_ids"):
        if name in batch:
            fill = padding_id if name == "input_ids" else 0
            rows = (one.kwargs[name] for one in compacted)
            padded = [F.pad(row, (width - row.shape[-1], 0), value=fill) for row in rows]
            batch[name] = torch.cat(padded, dim=-2)  # rows: axis 1 of [3, B, S], else 0
    images = [one.kwargs["mm_encoder_outputs"]["image"] for one in compacted]
    fields = {"pooler_output": [tokens for image in images for tokens in image.pooler_output]}
    if getattr(images[0], "deepstack_features", None):
        levels = zip(*(image.deepstack_features for image in images), strict=True)
        fields["deepstack_features"] = [[tokens for part in level for tokens in part] for level in levels]
    batch["mm_encoder_outputs"] = {"image": type(images[0])(**fields)}
    return batch


def visual_tokens(model: ARRCOCModel, compacted: Compacted) -> int:
    """Visual tokens that the language model gets."""
    return int((compacted.kwargs["input_ids"] == model.adapter.image_token_id).sum())


def with_merged(features: VisualFeatures, kept: Sequence[Reduction]) -> VisualFeatures:
    """One image's features, once per selection, with the merged tokens written to the kept cells."""
    tokens = []
    for selection in kept:
        row = features.tokens[0]
        if selection.tokens is not None:
            row = row.clone()
            # tokens of cells, not all visual tokens
            row[features.cells[0][selection.keep.to(row.device)]] = selection.tokens.to(row)
        tokens.append(row)
    return replace(features.repeat(len(kept)), tokens=tokens)


def prefill(
    model: ARRCOCModel, inputs: Mapping[str, Any], features: VisualFeatures, kept: Reduction, mode: str
) -> Tensor:
    """Logits [1, vocabulary] of the first new token from the kept cells of one prompt."""
    compacted = model.adapter.compact(inputs, with_merged(features, [kept]), [kept.keep])
    base = model.adapter_for(mode).model
    return base(**compacted.kwargs, use_cache=True, logits_to_keep=1).logits[:, -1]
