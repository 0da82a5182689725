"""Gaze: where a model that nobody trained for this looks by itself, in a coarse view of the image.

    maps, neutral = gaze(adapter, inputs, gestalt)          relevance to the question, per image [h, w]
    coupling(maps[0], (H, W))                               as participatory logits of the cells
    gaze_of_words(adapter, inputs, words, gestalt, ...)     a map for each of some sets of words

The first layers of the language model read the gestalt and the question. What the question's words attend
to, over what the words of a neutral question attend to, is how relevant each gestalt token is:

    map = smoothed (asked + e) / (neutral + e)          e: the mean of `neutral` over the image

asked, neutral: the attention that a gestalt token receives, mean over words, heads and `gaze_layers`. What is
looked at whatever is asked, such as an attention sink, stands near 1; so does, because of e, what is hardly
looked at. Attention relative to a neutral question is that of Zhang et al., "MLLMs know where to look" (ICLR
2025), there of the answer's first token in one layer.

Laws: nothing is learned or drawn; another question moves the map, padding and what stands behind the question
do not; no row and no image has an influence on another; the model is as before afterwards, also by an error.
Layers behind the last one needed never run. The neutral attention depends on the image and what stands before
the question alone, so a session finds it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.seam import (
    GESTALT,
    PAD,
    PROMPT_NAMES,
    FamilyAdapter,
    Grid,
    VisualFeatures,
    gather_columns,
    image_spans,
)
from arr_coc.seam.attention import attention_modules, attention_rows, watch_attention

PER_PROMPT = ("position_ids", "labels")
"""What else has columns; a prompt that is rewritten has its own."""
NEUTRAL = "Describe the image."
"""The question that is about everything."""
STEEPNESS = 2.0
"""Logits per standard deviation of a log map, in `coupling`."""
SPREAD = 0.2
"""The least spread of a log map that counts as a full one; on blank pages it is 0.02 to 0.06."""


class Gaze(NamedTuple):
    """Where the model looks.

    Attributes:
        maps: per image float32 [h, w] > 0 on its gestalt's grid, 1 where the question draws as much
            attention as the neutral one.
        neutral: per image float32 [h * w], the attention of the neutral question's words; hand it to the next
            call about the same images.
    """

    maps: list[Tensor]
    neutral: list[Tensor]


def gaze_layers(depth: int) -> range:
    """The attention layers to look at: the middle third of `depth`, rounded outwards.

    The first layers look at what stands out whatever is asked. The last ones add little for their time: all
    five of the bundled model find 0.86 of the evidence by 273 cells, the middle three 0.84 (`training-free`
    among the results). Of 5 layers the middle is 1 to 3, of 28 layers 9 to 18, of 36 layers 12 to 23.

    Raises:
        ValueError: a depth below 1.
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
    """Ask the model's first layers where the question looks.

    Without a tokenizer there is no neutral question: even attention takes its place. Where no word of the
    question stands behind an image, the image is looked at by all text behind it.

    Args:
        adapter: of the base model's family.
        inputs: ordinary processor inputs of any number of rows and still images.
        gestalt: coarse tokens of every image, at least one each.
        layers: attention layers, counted from 0 (recurrent ones don't count); None: `gaze_layers`.
        features: the encoded images, for families that can't encode some cells alone; None for the others.
        neutral: of an earlier call about the same images; None: found here, at the price of a second pass.

    Raises:
        ValueError: layers that the model doesn't have, or a gestalt or neutral attention of other images.
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
    inputs = _each_alone(adapter, inputs, layout.counts)
    words = adapter.question_mask(inputs["input_ids"], adapter.attention_mask(inputs))
    asked = _attention(adapter, inputs, [words], gestalt, features, layers)
    if neutral is None:
        tokenizer = getattr(adapter.processor, "tokenizer", None)
        if tokenizer is None:
            neutral = [seen.mean().expand_as(seen) for seen in asked]
        else:
            said = tokenizer(NEUTRAL, add_special_tokens=False)["input_ids"]
            prompt = _saying(adapter, inputs, words, said)
            words = adapter.question_mask(prompt["input_ids"], prompt["attention_mask"])
            neutral = _attention(adapter, prompt, [words], gestalt, features, layers)
    found = [len(seen) for seen in neutral]
    if found != gestalt.counts:
        raise ValueError(
            f"neutral attention to {found} tokens does not fit gestalts of {gestalt.counts}; "
            "pass that of the same images"
        )
    return Gaze(list(map(_drawn, asked, neutral, gestalt.grids)), list(neutral))


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
    """Where each of some sets of words looks, in one pass: `gaze(...).maps`, were only they the question's.

    A word has read those before it, whatever its set holds.

    Args:
        adapter: of the base model's family.
        inputs: ordinary processor inputs of one row and one still image.
        words: bool [W, S], the columns of each set.
        gestalt: coarse tokens of the image.
        neutral: of a call of `gaze` about the same image.
        features: as in `gaze`.

    Returns:
        W maps, float32 [h, w] > 0.
    """
    layers = gaze_layers(len(attention_modules(adapter.model, "language")))
    asked = _attention(adapter, inputs, [some[None] for some in words], gestalt, features, layers)
    return [_drawn(seen, neutral, gestalt.grids[0]) for seen in asked]


def _drawn(asked: Tensor, neutral: Tensor, grid: Grid) -> Tensor:
    """Attention [n] to the tokens of a gestalt -> a map [t * h, w] > 0."""
    t, h, w = grid
    return smooth(relative(asked, neutral).view(t * h, w).log()).exp()


def relative(asked: Tensor, neutral: Tensor) -> Tensor:
    """(asked + e) / (neutral + e), e the mean of `neutral`: attention [n] >= 0 of one image -> [n] > 0."""
    most = neutral.mean().clamp_min(torch.finfo(neutral.dtype).tiny)
    return (asked + most) / (neutral + most)


def smooth(found: Tensor) -> Tensor:
    """Average each cell [h, w] with its neighbours, 1 4 1 a side: attention often falls just beside."""
    side = found.new_tensor([1.0, 4.0, 1.0]) / 6
    padded = F.pad(found[None, None], (1, 1, 1, 1), mode="replicate")
    return F.conv2d(padded, torch.outer(side, side)[None, None])[0, 0]


def coupling(found: Tensor, grid: tuple[int, int]) -> Tensor:
    """A map of `gaze` as participatory logits of the fine cells, for the mixture of an untrained layer.

    log(found), linear between the coarse middles, less its mean, in standard deviations, times STEEPNESS.
    Models differ in how far a question moves their attention, so the spread sets the scale; one below SPREAD
    counts as SPREAD, so that a page on which there is nothing to find stays flat.

    Args:
        found: [h, w] > 0.
        grid: (H, W) of the cells.

    Returns:
        float32 [H, W], mean 0.
    """
    coarse = found.float().log()[None, None]
    fine = F.interpolate(coarse, size=grid, mode="bilinear", align_corners=False)[0, 0]
    fine = fine - fine.mean()
    return STEEPNESS * fine / fine.square().mean().sqrt().clamp_min(SPREAD)


class _Seen(Exception):
    """Raised by the observer of the last layer needed, to end the model's call there."""


def _attention(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    words: Sequence[Tensor],
    gestalt: VisualFeatures,
    features: VisualFeatures | None,
    layers: range,
) -> list[Tensor]:
    """What sets of words attend to: per set and image float32 [n], a mean over words, heads and layers.

    Args:
        adapter: of the base model's family.
        inputs: processor inputs.
        words: sets of the question's, bool [B, S] each.
        gestalt: stands in place of the images' cells.
        features: as in `gaze`; their tokens that are no cell stand behind the gestalt.
        layers: which to look at.
    """
    layout = adapter.layout(inputs) if features is None else features.layout
    none = [cells.new_zeros(0) for cells in layout.cells]
    rest = None if features is None else features.select(layout.tokens_to_keep(none))
    compacted = adapter.assemble(inputs, layout, none, rest, gestalt, use_cache=False)
    text = compacted.columns >= 0
    text &= compacted.kwargs["input_ids"] != adapter.image_token_id
    asked = [text & gather_columns(some.long(), compacted.columns, fill=0).bool() for some in words]
    spans = image_spans(compacted.columns == GESTALT, gestalt.counts) * len(asked)
    sets = [some for some in asked for _ in gestalt.counts]
    looking = [
        _behind(some[row], text[row], columns) for some, (row, columns) in zip(sets, spans, strict=True)
    ]
    first = min((int(rows[0]) for rows in looking if len(rows)), default=0)
    received = [torch.zeros(len(columns), device=text.device) for _, columns in spans]

    def observe(layer: int, query: Tensor, key: Tensor, scaling: float, mask: Tensor | None) -> None:
        if layer in layers:
            seen = None if mask is None else mask[..., first:, :]
            rows = (
                attention_rows(query[:, :, first:], key, scaling, seen).mean(1).to(text.device)
            )  # (B, R, S)
            for total, (row, columns), behind in zip(received, spans, looking, strict=True):
                if len(behind):
                    total += rows[row][behind - first][:, columns].mean(0) / len(layers)
        if layer == max(layers):
            raise _Seen

    with suppress(_Seen), watch_attention(adapter.model, "language", observe) as watched:
        watched(**compacted.kwargs, use_cache=False)
    return received


def _each_alone(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], counts: Sequence[int]
) -> Mapping[str, Any]:
    """A prompt for each image, where one holds several: a neighbour must not move what is looked at.

    Args:
        adapter: of the base model's family.
        inputs: processor inputs.
        counts: visual tokens of each image.
    """
    ids, attended = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    spans = adapter.columns(ids, counts)
    if len({row for row, _ in spans}) == len(spans):
        return inputs
    rows = []
    for row, columns in spans:
        stays = attended[row] & (ids[row] != adapter.image_token_id)
        stays[columns] = True
        rows.append(stays.nonzero().flatten())
    width = max(map(len, rows))
    columns = torch.stack([F.pad(row, (width - len(row), 0), value=PAD) for row in rows])
    holders = torch.tensor([row for row, _ in spans], device=ids.device)
    alone = {name: value for name, value in inputs.items() if name not in (*PROMPT_NAMES, *PER_PROMPT)}
    for name in PROMPT_NAMES:
        if inputs.get(name) is not None:
            fill = adapter.padding_id if name == "input_ids" else 0
            alone[name] = gather_columns(inputs[name][holders], columns, fill)
    return alone | {"attention_mask": (columns != PAD).to(ids.dtype)}


def _behind(words: Tensor, text: Tensor, columns: Tensor) -> Tensor:
    """The columns [R] that can look back at an image: the question's words, else any text, behind it.

    Args:
        words: bool [S] of the image's row.
        text: bool [S].
        columns: long [n], where the image stands.
    """
    behind = torch.arange(len(text), device=text.device) > columns[-1]
    return ((words if (words & behind).any() else text) & behind).nonzero().flatten()


def _saying(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], words: Tensor, said: Sequence[int]
) -> dict[str, Any]:
    """The same prompts with other words: `said` stands where a question's last word stood, its others go.

    What stands between two words goes with them, unless it is an image.
    """
    attended, visual = adapter.attention_mask(inputs).bool(), inputs["input_ids"] == adapter.image_token_id
    rows = []
    for stays, asked, images in zip(attended.clone(), words, visual, strict=True):
        places = asked.nonzero().flatten().tolist()
        for left, right in pairwise(places):
            stays[left : left + 1 if images[left:right].any() else right] = False
        columns = stays.nonzero().flatten()
        if places:
            before, behind = columns[columns < places[-1]], columns[columns > places[-1]]
            columns = torch.cat([before, columns.new_full((len(said),), places[-1]), behind])
        rows.append(columns)
    width = max(map(len, rows))
    columns = torch.stack([F.pad(row, (width - len(row), 0), value=PAD) for row in rows])

    prompt = {name: value for name, value in inputs.items() if name not in (*PROMPT_NAMES, *PER_PROMPT)}
    for name in PROMPT_NAMES:
        if inputs.get(name) is not None:
            fill = adapter.padding_id if name == "input_ids" else 0
            prompt[name] = gather_columns(inputs[name], columns, fill)
    new = gather_columns(words.long(), columns, fill=0).bool()  # of the words only the last one is left
    ids = prompt["input_ids"]
    ids[new] = ids.new_tensor(said).repeat(int(new.sum()) // len(said))
    return prompt | {"attention_mask": (columns != PAD).to(ids.dtype)}
