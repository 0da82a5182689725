"""Whether images and clips are foreign: unlike all that a model was taught on, by what a stem makes of them.

    foreign_visuals(adapter, stem, other, inputs, encoded) -> a bool per image or clip; [] if nobody can say
    guided_visuals(chooser, call)                          -> those of which the guide chooses

The stem that chooses says so if it has learned it, with tokens that mode "sparse" reads, too (`stem_tokens`
makes them once); else another one that chooses nothing: an allocator that was trained for the bundled model
anew knows its world by the stem of the bundled allocator.

A trained allocator is of no use outside of its world: there the guide chooses in every mode, unless the user
has named what is to choose. A picture that is familiar gets the cells that the allocator gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.stem import GUIDED, Stem
from arr_coc.guide.deciding import Decision
from arr_coc.modes.call import Call, Chooser, EncodedImages, guarded
from arr_coc.modes.cues import pictures
from arr_coc.modes.notes import joined
from arr_coc.seam import FamilyAdapter

FRAMES = 8
"""Frames of a clip that are looked at, evenly spread; it is foreign if most of them are."""


def foreign_visuals(
    adapter: FamilyAdapter,
    stem: Stem | None,
    other: Stem | None,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    frames: Sequence[int] = (),
) -> list[bool]:
    """Whether each image or clip is foreign; [] without a stem that says so, or a place for its cells.

    Args:
        adapter: of the model.
        stem: sees the cells that are chosen from.
        other: says it where `stem` doesn't; its tokens are not kept.
        inputs: processor inputs, in which the frames of clips are images.
        encoded: of these images; what is missing is filled in.
        frames: how many images in a row each image or clip consists of; empty: all are images.
    """
    own = stem is not None and stem.familiarity is not None
    eyes = stem if own else other
    if eyes is None or eyes.familiarity is None or adapter.encodes != "cells":
        return []
    if encoded.foreign is None:
        with torch.no_grad():
            encoded.foreign = _foreign(adapter, eyes, own, inputs, encoded, frames)
    return encoded.foreign


def _foreign(
    adapter: FamilyAdapter,
    eyes: Stem,
    own: bool,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    frames: Sequence[int],
) -> list[bool]:
    """`foreign_visuals` by a stem with a familiarity."""
    familiarity = eyes.familiarity
    assert familiarity is not None
    if own and not frames:
        stem_tokens(adapter, eyes, inputs, encoded)
    ready = encoded.stems.get(None) if own else None
    counts = frames or (1,) * len(adapter.layout(inputs).grids)
    foreign, first = [], 0
    for count in counts:
        looked = min(count, FRAMES)
        which = [first + (2 * i + 1) * count // (2 * looked) for i in range(looked)]
        cells = (
            tokens_of(adapter, eyes, inputs, encoded, which) if ready is None else [ready[i] for i in which]
        )
        foreign.append(2 * sum(bool(familiarity(one) > 0) for one in cells) > looked)
        first += count
    return foreign


def guided_visuals(chooser: Chooser, call: Call) -> list[bool]:
    """Whether the guide chooses the cells of each image or clip since it is foreign to a trained layer.

    Nowhere where the layer is untrained or a relevance was named, and where nobody can say what is foreign.
    """
    if chooser.relevance != "auto" or not chooser.layer.trained:
        return []
    parts = (chooser.adapter_for(call.mode), chooser.stem, None, call.inputs, call.encoded, call.frames)
    with call.watch("scoring"):
        return guarded(chooser, lambda: foreign_visuals(*parts), UNKNOWN) or []


UNKNOWN = "nobody can say whether the picture is foreign"
"""What the log says where that fails."""


def noted(chooser: Chooser, call: Call, decision: Decision) -> Decision:
    """The decision, with a note on each image and clip of which the guide chose cells since it is foreign."""
    guided = guided_visuals(chooser, call)
    if not any(guided):
        return decision
    allocations = [
        replace(one, note=joined(GUIDED, one.note)) if foreign and _chosen(one, call) else one
        for one, foreign in zip(decision.allocations, guided, strict=True)
    ]
    return replace(decision, allocations=allocations)


def _chosen(allocation: Allocation, call: Call) -> bool:
    """Whether somebody's relevance of the cells was of any account."""
    return not allocation.void and (allocation.kept < allocation.total or not call.mode.chooses)


def stem_tokens(
    adapter: FamilyAdapter, stem: Stem, inputs: Mapping[str, Any], encoded: EncodedImages
) -> list[Tensor]:
    """Per image the cells [N, D] as the stem that chooses sees them in pixels alone; made once."""
    if None not in encoded.stems:
        encoded.stems[None] = tokens_of(adapter, stem, inputs, encoded)
    return encoded.stems[None]


def tokens_of(
    adapter: FamilyAdapter,
    stem: Stem,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    which: Sequence[int] | None = None,
) -> list[Tensor]:
    """Per image, or for some of them, the cells [N, D] as any stem sees them in pixels alone."""
    views, grids = pictures(adapter, inputs, encoded), adapter.layout(inputs).grids
    every = range(len(grids)) if which is None else which
    return [stem(views[i][None], grids[i][1:])[0] for i in every]
