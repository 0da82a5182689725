"""The guide in a call: what it says of each image and its question.

    couplings(chooser, call, layout)           -> a Coupling per image, for a model that nobody trained for
    strange_couplings(chooser, call, layout)   -> for pictures and questions that no trained layer has met
    question_texts(adapter, inputs, layout)    -> per image the question of its row, as text

A session hands over its pictures as the user gave them, which the guide reads at their own resolution; else,
and where the model reads a crop or tiles, it reads the pixels that the model reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.guide.coupling import Coupling, couple, view
from arr_coc.guide.deciding import groups
from arr_coc.guide.guide import Guide, GuidePage
from arr_coc.guide.selector import image_pixels
from arr_coc.guide.trust import is_general
from arr_coc.modes.call import Call, Chooser
from arr_coc.modes.cues import changes_of, pictures
from arr_coc.modes.familiar import guided_visuals
from arr_coc.seam import FamilyAdapter, Layout
from arr_coc.video.temporal import Changes, event_of

SAME = 0.04
"""The most that two pictures of one thing differ in, mean over pixels in [0, 1], after one was resampled."""
COARSE = 64
"""Side in px at which pictures are compared."""


def couplings(chooser: Chooser, call: Call, layout: Layout) -> list[Coupling] | None:
    """What the guide says of each image; None where there is no guide, or no question that is text."""
    guide = chooser.guide
    texts = None if guide is None else question_texts(chooser.adapter_for(call.mode), call.inputs, layout)
    return None if guide is None or texts is None else _coupled(guide, chooser, call, layout, texts)


def strange_couplings(chooser: Chooser, call: Call, layout: Layout) -> list[Coupling | None] | None:
    """What the guide says, beside a trained layer, of each image that is foreign to it or whose question is
    about no place in it.

    Returns:
        A coupling per such image, None for all others; None where there is no such image or no guide, or
        what the layer has learned is to decide everything.
    """
    guide = None if chooser.relevance == "trained" else chooser.guide
    texts = None if guide is None else question_texts(chooser.adapter_for(call.mode), call.inputs, layout)
    if guide is None or texts is None:
        return None
    general = {text: is_general(guide, text) for text in dict.fromkeys(texts)}
    counts = call.frames or (1,) * len(texts)
    foreign = guided_visuals(chooser, call) or [False] * len(counts)
    strange = [one for one, count in zip(foreign, counts, strict=True) for _ in range(count)]
    theirs = [general[text] or one for text, one in zip(texts, strange, strict=True)]
    if not any(theirs):
        return None
    every = _coupled(guide, chooser, call, layout, texts)
    return [one if its else None for one, its in zip(every, theirs, strict=True)]


def _coupled(
    guide: Guide, chooser: Chooser, call: Call, layout: Layout, texts: Sequence[str]
) -> list[Coupling]:
    """The guide's coupling of each image with its question; a frame that repeats the one before is not looked
    at again.
    """
    adapter = chooser.adapter_for(call.mode)
    with call.watch("texture"):
        views = pictures(adapter, call.inputs, call.encoded)
    changes = changes_of(adapter, call, layout)
    repeated = [again for one in changes for again in (one.repeated if one else [False])]
    repeated = repeated or [False] * len(views)
    with call.watch("scoring"):
        encoded = call.encoded
        pages = encoded.pages or []
        if not pages:  # kept once all are there: what is interrupted here, or runs twice, is as if it weren't
            sources = encoded.sources or [None] * len(views)
            for source, small, again in zip(sources, views, repeated, strict=True):
                pages.append(pages[-1] if again else view(guide, whole_picture(source, small)))
            encoded.pages = pages
        every: list[Coupling] = []
        for page, text, grid, again in zip(pages, texts, layout.grids, repeated, strict=True):
            every.append(every[-1] if again else couple(guide, page, text, grid[1:]))
        return every


def changes_for(chooser: Chooser, call: Call, layout: Layout) -> list[Changes | None]:
    """As `changes_of`, for the questions of this call, which may name a moment.

    An event that one names is looked for by the guide, where the guide has looked at the frames.
    """
    adapter = chooser.adapter_for(call.mode)
    changes = changes_of(adapter, call, layout)
    texts = question_texts(adapter, call.inputs, layout) if changes else None
    if texts is None:
        return changes
    own = [group[0] for group in groups(texts, call.frames)]
    times = call.times or (None,) * len(own)
    shows: list[Tensor | None] = [None] * len(own)
    if chooser.guide is not None and call.encoded.pages is not None:
        pages = groups(call.encoded.pages, call.frames)
        with call.watch("scoring"):
            shows = [
                None if one is None else _event(chooser.guide, views, text, grid[1:])
                for one, views, text, grid in zip(changes, pages, own, call.spaces(layout.grids), strict=True)
            ]
    return [
        None if one is None else one.at(text, when, event)
        for one, text, when, event in zip(changes, own, times, shows, strict=True)
    ]


def _event(guide: Guide, pages: Sequence[GuidePage], text: str, grid: tuple[int, int]) -> Tensor | None:
    """The logits [T, H, W] of the event that a question names in the frames of a clip; None without one."""
    if (event := event_of(text)) is None:
        return None
    maps = {id(page): couple(guide, page, event, grid).logits for page in {id(p): p for p in pages}.values()}
    return torch.stack([maps[id(page)] for page in pages])


def whole_picture(source: Image.Image | None, read: Tensor) -> Tensor:
    """The picture as the user gave it, [3, h, w] in [0, 1]; what the model sees where that is a part of it.

    Args:
        source: the user's picture; None: it isn't at hand.
        read: what the model sees, [3, h, w] in [0, 1].
    """
    if source is None:
        return read
    pixels = image_pixels(source).to(read.device)
    small = [F.interpolate(x, (COARSE, COARSE), mode="area") for x in (pixels, read[None].float())]
    return pixels[0] if float((small[0] - small[1]).abs().mean()) <= SAME else read


def question_texts(adapter: FamilyAdapter, inputs: Mapping[str, Any], layout: Layout) -> list[str] | None:
    """Per image the question of its row: its words and the spaces between them; None without a tokenizer."""
    tokenizer = getattr(adapter.processor, "tokenizer", None)
    if tokenizer is None:
        return None
    ids, mask = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    words = adapter.question_mask(ids, mask)
    texts = {}
    for row in {row for row, _ in adapter.columns(ids, layout.in_prompt)}:
        places = words[row].nonzero().flatten().tolist()
        if not places:
            return None
        text = [
            ids[row, place].item()
            for place in range(places[0], places[-1] + 1)
            if words[row, place] or (mask[row, place] and not tokenizer.decode([ids[row, place]]).strip())
        ]
        texts[row] = tokenizer.decode(text, skip_special_tokens=True)
    return [texts[row] for row, _ in adapter.columns(ids, layout.in_prompt)]
