"""Gaze: relevance without training, from the attention of the model's own first layers to a coarse view.

    map = smoothed (attention + e) / (neutral + e)      e: the mean of `neutral` over the image

attention, neutral: what a token of that view (the gestalt) receives from the words of the question, and
of a neutral one, mean over words, heads and `gaze_layers` (relative attention as of Zhang et al., "MLLMs know
where to look", ICLR 2025). Attention sinks are near 1. Nothing is random; no row or image influences another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.seam.assembly import (
    GESTALT,
    PAD,
    PROMPT_NAMES,
    Grid,
    Layout,
    VisualFeatures,
    gather_columns,
    image_spans,
)
from arr_coc.seam.attention import attention_modules, attention_rows, watch_attention
from arr_coc.seam.base import FamilyAdapter

PER_PROMPT = ("position_ids", "labels")  # left out of a rewritten prompt
NEUTRAL = "Describe the image."  # the neutral question: about the image as a whole
STEEPNESS = 2.0  # logits per standard deviation of a log map, in `coupling`
SPREAD = 0.2  # least standard deviation that `coupling` divides by; on blank pages it is 0.02 to 0.06


class Gaze(NamedTuple):
    """Relevance maps of some images, and the attention of a neutral question to them.

    `maps`: per image float32 [h, w] > 0 on its gestalt's grid, 1 where the question draws as much attention
    as the neutral one. `neutral`: per image float32 [h * w]; it depends on the image alone, so pass it on.
    """

    maps: list[Tensor]
    neutral: list[Tensor]


def gaze_layers(depth: int) -> range:
    """The attention layers whose attention is read: the middle third of `depth`, rounded outwards.

    The first ones attend to what is salient, whatever the question; the last ones add little for their time.
    """
    if depth < 1:
        raise ValueError(f"depth {depth} is below 1; pass how many attention layers the model has")
    return range(depth // 3, -(-2 * depth // 3))


@torch.no_grad()
def gaze(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    gestalt: VisualFeatures,
    layers: range | None = None,
    *,
    features: VisualFeatures | None = None,
    neutral: Sequence[Tensor] | None = None,
) -> Gaze:
    """Relevance maps of images to their question, from the attention of the model's first layers.

    Without a tokenizer uniform attention takes the place of a neutral question's. Where no word of the
    question comes after an image, the attention of all text after the image is read.

    Args:
        adapter: the base model's adapter.
        inputs: processor inputs of any number of rows and still images.
        gestalt: gestalt tokens of every image, at least one each.
        layers: attention layers, counted from 0 without recurrent ones; None: `gaze_layers`.
        features: the encoded images, for families that can't encode some cells alone.
        neutral: of an earlier call about the same images; None: computed in a second forward pass.
    """
    depth = len(attention_modules(adapter.model, "language"))
    layers = gaze_layers(depth) if layers is None else layers
    if not layers or min(layers) < 0 or max(layers) >= depth:
        raise ValueError(
            f"{layers} is not within the model's {depth} attention layers; use one of 0 to {depth - 1}"
        )
    if not all(gestalt.counts):
        raise ValueError(f"the gestalts have {gestalt.counts} tokens; every image needs at least one")

    layout = adapter.layout(inputs) if features is None else features.layout
    rest = _other_tokens(adapter, inputs, layout, features)
    inputs = _split_images(adapter, inputs, layout.in_prompt)
    words = adapter.question_mask(inputs["input_ids"], adapter.attention_mask(inputs))
    attention = _attention(adapter, inputs, [words], gestalt, layout, rest, layers)
    if neutral is None:
        tokenizer = getattr(adapter.processor, "tokenizer", None)
        if tokenizer is None:
            neutral = [received.mean().expand_as(received) for received in attention]
        else:
            neutral_ids = tokenizer(NEUTRAL, add_special_tokens=False)["input_ids"]
            prompt = _replace_question(adapter, inputs, words, neutral_ids)
            words = adapter.question_mask(prompt["input_ids"], prompt["attention_mask"])
            neutral = _attention(adapter, prompt, [words], gestalt, layout, rest, layers)
    lengths = [len(received) for received in neutral]
    if lengths != gestalt.counts:
        raise ValueError(
            f"neutral attention to {lengths} tokens does not fit gestalts of {gestalt.counts}; pass that of "
            "the same images"
        )
    return Gaze(list(map(_relevance_map, attention, neutral, gestalt.grids)), list(neutral))


@torch.no_grad()
def gaze_of_words(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    words: Tensor,
    gestalt: VisualFeatures,
    neutral: Tensor,
    *,
    features: VisualFeatures | None = None,
) -> list[Tensor]:
    """Relevance maps [h, w] > 0 of one image to W sets of the question's words, bool [W, S], in one pass.

    The model still reads the whole question, so a word depends on those before it.
    """
    layers = gaze_layers(len(attention_modules(adapter.model, "language")))
    layout = adapter.layout(inputs) if features is None else features.layout
    rest = _other_tokens(adapter, inputs, layout, features)
    attention = _attention(adapter, inputs, [some[None] for some in words], gestalt, layout, rest, layers)
    return [_relevance_map(received, neutral, gestalt.grids[0]) for received in attention]


def _relevance_map(attention: Tensor, neutral: Tensor, grid: Grid) -> Tensor:
    """Attention [n] to the tokens of a gestalt -> a map [t * h, w] > 0."""
    t, h, w = grid
    return smooth(relative(attention, neutral).view(t * h, w).log()).exp()


def relative(attention: Tensor, neutral: Tensor) -> Tensor:
    """(attention + e) / (neutral + e), e the mean of `neutral`; of one image, [n] >= 0 -> [n] > 0."""
    most = neutral.mean().clamp_min(torch.finfo(neutral.dtype).tiny)
    return (attention + most) / (neutral + most)


def smooth(values: Tensor) -> Tensor:
    """Averages each cell [h, w] with its neighbours, weights 1 4 1: attention is often one cell off."""
    side = values.new_tensor([1.0, 4.0, 1.0]) / 6
    padded = F.pad(values[None, None], (1, 1, 1, 1), mode="replicate")
    return F.conv2d(padded, torch.outer(side, side)[None, None])[0, 0]  # separable: 3 x 3 of sum 1


def coupling(relevance: Tensor, grid: tuple[int, int]) -> Tensor:
    """A map [h, w] of `gaze` as participatory logits [H, W] of the fine cells, mean 0.

    log(relevance), linear between the middles of the coarse cells, less its mean, in standard deviations (at
    least SPREAD, so that a page without structure stays flat), times STEEPNESS. Models differ in how far a
    question moves their attention, so the deviation sets the scale.
    """
    coarse = relevance.float().log()[None, None]
    fine = F.interpolate(coarse, size=grid, mode="bilinear", align_corners=False)[0, 0]
    fine = fine - fine.mean()  # over the H x W cells of one image
    return STEEPNESS * fine / fine.square().mean().sqrt().clamp_min(SPREAD)


class _LastLayer(Exception):
    """Ends the forward pass at the last layer needed."""


def _attention(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    words: Sequence[Tensor],
    gestalt: VisualFeatures,
    layout: Layout,
    rest: VisualFeatures | None,
    layers: range,
) -> list[Tensor]:
    """The attention of sets of words (bool [B, S]) to gestalt tokens, mean over words, heads and layers.

    `rest` are tokens that are no cell, which come after the gestalt. Returns per set and image float32 [n].
    """
    none = [cells.new_zeros(0) for cells in layout.cells]
    compacted = adapter.assemble(inputs, layout, none, rest, gestalt, use_cache=False)
    text = compacted.columns >= 0
    text &= compacted.kwargs["input_ids"] != adapter.image_token_id
    compact_words = [text & gather_columns(some.long(), compacted.columns, fill=0).bool() for some in words]
    spans = image_spans(compacted.columns == GESTALT, gestalt.counts) * len(words)
    sets = [some for some in compact_words for _ in gestalt.counts]
    queries = [
        _query_columns(some[row], text[row], columns)
        for some, (row, columns) in zip(sets, spans, strict=True)
    ]
    # One slice of queries from the earliest word on serves all rows and sets.
    first = min((int(rows[0]) for rows in queries if len(rows)), default=0)
    received = [torch.zeros(len(columns), device=text.device) for _, columns in spans]

    def observe(layer: int, query: Tensor, key: Tensor, scaling: float, mask: Tensor | None) -> None:
        if layer in layers:
            mask = None if mask is None else mask[..., first:, :]
            rows = attention_rows(query[:, :, first:], key, scaling, mask).mean(1)  # (B, R, S)
            rows = rows.to(text.device)
            for total, (row, columns), own in zip(received, spans, queries, strict=True):
                if len(own):
                    total += rows[row][own - first][:, columns].mean(0) / len(layers)
        if layer == max(layers):
            raise _LastLayer

    with suppress(_LastLayer), watch_attention(adapter.model, "language", observe) as watched:
        watched(**compacted.kwargs, use_cache=False)
    return received


def _other_tokens(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], layout: Layout, features: VisualFeatures | None
) -> VisualFeatures | None:
    """The tokens that are no cell, of the encoded images or, where there are none, encoded alone."""
    if features is None:
        return adapter.other_tokens(inputs, layout)
    return features.select(layout.tokens_to_keep([cells.new_zeros(0) for cells in layout.cells]))


def _split_images(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], counts: Sequence[int]
) -> Mapping[str, Any]:
    """Prompts of one image each, where one holds several: no image may influence the map of another."""
    ids, attended = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    spans = adapter.columns(ids, counts)
    if len({row for row, _ in spans}) == len(spans):
        return inputs
    rows = []
    for row, columns in spans:
        kept = attended[row] & (ids[row] != adapter.image_token_id)
        kept[columns] = True
        rows.append(kept.nonzero().flatten())
    width = max(map(len, rows))
    columns = torch.stack([F.pad(row, (width - len(row), 0), value=PAD) for row in rows])
    sources = torch.tensor([row for row, _ in spans], device=ids.device)
    prompts = {name: value for name, value in inputs.items() if name not in (*PROMPT_NAMES, *PER_PROMPT)}
    for name in PROMPT_NAMES:
        if inputs.get(name) is not None:
            fill = adapter.padding_id if name == "input_ids" else 0
            prompts[name] = gather_columns(inputs[name][sources], columns, fill)
    return prompts | {"attention_mask": (columns != PAD).to(ids.dtype)}


def _query_columns(words: Tensor, text: Tensor, columns: Tensor) -> Tensor:
    """The columns [R] whose attention to an image is read: words [S] after it, else all text after it."""
    after = torch.arange(len(text), device=text.device) > columns[-1]
    return ((words if (words & after).any() else text) & after).nonzero().flatten()


def _replace_question(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], words: Tensor, new_ids: Sequence[int]
) -> dict[str, Any]:
    """The same prompts with `new_ids` in the place of the question's last word.

    The question's other words are removed, and so is what is between two words, unless it is an image.
    """
    attended, visual = adapter.attention_mask(inputs).bool(), inputs["input_ids"] == adapter.image_token_id
    rows = []
    for kept, question, images in zip(attended.clone(), words, visual, strict=True):
        places = question.nonzero().flatten().tolist()
        for left, right in pairwise(places):
            kept[left : left + 1 if images[left:right].any() else right] = False
        columns = kept.nonzero().flatten()
        if places:
            before, after = columns[columns < places[-1]], columns[columns > places[-1]]
            columns = torch.cat([before, columns.new_full((len(new_ids),), places[-1]), after])
        rows.append(columns)
    width = max(map(len, rows))
    columns = torch.stack([F.pad(row, (width - len(row), 0), value=PAD) for row in rows])

    prompt = {name: value for name, value in inputs.items() if name not in (*PROMPT_NAMES, *PER_PROMPT)}
    for name in PROMPT_NAMES:
        if inputs.get(name) is not None:
            fill = adapter.padding_id if name == "input_ids" else 0
            prompt[name] = gather_columns(inputs[name], columns, fill)
    new = gather_columns(words.long(), columns, fill=0).bool()  # the last word's column, repeated
    ids = prompt["input_ids"]
    ids[new] = ids.new_tensor(new_ids).repeat(int(new.sum()) // len(new_ids))
    return prompt | {"attention_mask": (columns != PAD).to(ids.dtype)}
