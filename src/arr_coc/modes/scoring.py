"""What the layer reads to score the cells of a call's images, each part computed once.

cues_of(chooser, call, layout) -> Cues per image   all that `relevance.deciding.decide` reads

pixels -> pictures -> texture array [1, C, H, W]   channels, from the picture, earlier frames and turns
       -> cells [N, D]                             encoded tokens, or a stem's (a small net on pixels)
question -> word embeddings [1, L, D]
         -> coupling [H, W]                        the guide's, for an untrained layer or unfamiliar picture
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.motion import FRAMES
from arr_coc.choose.stem import GUIDED, Stem
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.choose.texture import channel_groups
from arr_coc.files.pixels import same_picture
from arr_coc.guide.coupling import Coupling, seen_pixels
from arr_coc.guide.trust import GENERAL, blend, is_general, shares, verdict_of
from arr_coc.modes.call import Call, Chooser, EncodedImages, guarded
from arr_coc.modes.mode import Mode
from arr_coc.modes.notes import joined
from arr_coc.relevance.deciding import Cues, Decision, LookedAt, groups
from arr_coc.relevance.names import OF_MODELS, parse_relevance
from arr_coc.relevance.source import PictureView, RelevanceSource, couple_all, view_all
from arr_coc.seam.assembly import CROP_GRIDS, CROP_VALUES, PROMPT_NAMES, Grid, Layout, VisualFeatures
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.clips import StepRows, with_whole_pixels
from arr_coc.seam.gaze import coupling, gaze
from arr_coc.seam.gestalt import compress, find_compressor, gestalt_features
from arr_coc.video.temporal import Changes, event_of

T = TypeVar("T")

MADE = frozenset({"text_evidence", "previous_frames", "coarse_features", "features"})
"""Inputs that a call can always make for a group that needs them, beside the layer's own basis."""
POOLED = "pool4"  # compressor of the coarse view for the model's own attention, once every cell is encoded
FAMILIARITY_FRAMES = 8  # evenly spread frames of a clip to test; it is foreign if most of them are
FAMILIARITY_FAILED = "it can't be told whether the picture is foreign"  # for the log


def deciding_layer(layer: ARRCOCLayer, relevance: str | RelevanceSource) -> ARRCOCLayer:
    """Return the layer that decides, for what `relevance` says should score cells against the question.

    "trained": this layer. "gaze": attention in the model's own first layers. The name of a source, a sum such
    as "guide+ocr", or a source itself (`relevance.sums`): that source. "auto": a trained layer, except on
    pictures foreign to it (`foreign_visuals`), which the guide scores; without training the guide, mixed with
    the model's attention where it finds nothing. Except for "auto" and "trained", the other two maps come
    from an untrained copy of the layer.

    Raises:
        ValueError: an unknown relevance, "trained" with an untrained layer, or as `check_layer`.
    """
    check_layer(layer)
    if isinstance(relevance, str) and relevance not in OF_MODELS:
        parse_relevance(relevance)
    if relevance == "trained" and not layer.trained:
        raise ValueError("relevance is 'trained', but nobody has trained the layer: use 'auto'")
    if relevance in ("auto", "trained") or not layer.trained:
        return layer
    return layer.untrained()


def check_layer(layer: ARRCOCLayer) -> None:
    """Raise a ValueError if a channel group needs earlier relevance or attention: a first question has none.

    A group that reads one only where it exists (`reads`) is fine.
    """
    made = MADE if layer.basis is None else MADE | {"basis"}
    groups = () if layer.needed_inputs <= made else channel_groups(layer.config.channels)
    for group in groups:
        lacking = sorted({*group.needs} - made)
        if lacking == ["basis"]:
            raise ValueError(
                f"channel group {group.name!r} needs a basis of the encoder's features, which the layer has "
                "not: train the layer, which fits one, or set layer.basis to fit_coarse_basis(model, "
                "pictures) of arr_coc.train.learner"
            )
        if lacking:
            raise ValueError(
                f"channel group {group.name!r} needs {' and '.join(lacking)}, which no mode can know of a "
                "first question: let the group read it where it is at hand (`reads`), leave it out of the "
                "layer's channels, or call the layer yourself with texture_inputs"
            )
    if layer.basis is not None and layer.basis.width != layer.config.dim:
        raise ValueError(
            f"the basis is for features {layer.basis.width} wide, but the layer's model makes them "
            f"{layer.config.dim} wide: fit one on that model"
        )


def check_mode(layer: ARRCOCLayer, mode: Mode) -> None:
    """Raise a ValueError if a channel group needs encoded cells and the mode chooses before encoding."""
    if not mode.before_encoder or "features" not in layer.needed_inputs:
        return
    for group in channel_groups(layer.config.channels):
        if "features" in group.needs:
            raise ValueError(
                f"channel group {group.name!r} needs features, the encoded cells, and mode {mode.name!r} "
                "chooses before any is encoded: use mode 'prune', or leave the group out"
            )


# What depends on the images alone.


def pictures(adapter: FamilyAdapter, inputs: Mapping[str, Any], encoded: EncodedImages) -> Sequence[Tensor]:
    """Return the picture that the model reads, per image, from its input: float32 [3, h, w] in [0, 1].

    The result is kept in `encoded`, which has a record of each from then on.
    """
    if encoded.pictures is None or len(encoded.looked) != len(encoded.pictures):
        pixels = inputs["pixel_values"] if "pixel_values" in inputs else None
        if isinstance(pixels, StepRows):
            encoded.pictures = pixels.pictures(adapter, inputs["image_grid_thw"])
        else:
            encoded.pictures = adapter.images(inputs, encoded.features)
        encoded.looked_at(len(encoded.pictures))
    return encoded.pictures


def encoded_features(chooser: Chooser, call: Call) -> VisualFeatures:
    """Encode every cell of the images, once; the result is kept in `call.encoded`."""
    if call.encoded.features is None:
        with call.watch("encode"):
            inputs = with_whole_pixels(call.inputs)
            call.encoded.features = call.adapter.features(inputs)
    return call.encoded.features


def default_gestalt(adapter: FamilyAdapter, crops: bool = False) -> str:
    """Return the default compressor: "pool4" if the vision tower takes no smaller view."""
    return "resize" if adapter.encodes == "cells" or crops else "pool4"


def gestalt_of(chooser: Chooser, call: Call, name: str) -> VisualFeatures:
    """Return each image's coarse view (gestalt) by a compressor, made once; frames of a clip share cells."""
    gestalts = call.encoded.gestalts
    if name not in gestalts:
        compressor = find_compressor(name)
        if compressor.reads_tokens:
            encoded_features(chooser, call)
        features = call.encoded.features
        adapter = chooser.adapter_with(name) if compressor.inside else call.adapter
        with call.watch("gestalt"):
            gestalts[name] = compress(name, adapter, call.inputs, features, chooser.compressors, call.frames)
    return gestalts[name]


def changes_of(adapter: FamilyAdapter, call: Call, layout: Layout) -> list[Changes | None]:
    """Return what is new in each clip's frames, compared once; None for a still, [] without clips."""
    if not call.frames:
        return []
    if call.encoded.changes is None:
        with call.watch("texture"):
            views = groups(pictures(adapter, call.inputs, call.encoded), call.frames)
            grids = call.spaces(layout.grids)
            call.encoded.changes = [
                None if len(frames) == 1 else Changes.of(frames, grid[1:])
                for frames, grid in zip(views, grids, strict=True)
            ]
    return call.encoded.changes


def stem_cells(
    stem: Stem,
    picture: Tensor,
    grid: Grid,
    looked: LookedAt,
    name: str | None = None,
    coarse: Tensor | None = None,
) -> Tensor:
    """Return a stem's vectors [N, D] of a picture's cells; made once. A stem is a small net on pixels.

    `coarse` [D, h, w] is any coarse view that it reads, too, and `name` that of the view's compressor.
    """
    if name not in looked.stems:
        view = None if coarse is None else coarse[None]
        looked.stems[name] = stem(picture[None], grid[1:], view)[0]
    return looked.stems[name]


def _coarse_map(gestalt: VisualFeatures, image: int) -> Tensor:
    return gestalt.cell_tokens(image).T.unflatten(1, gestalt.grids[image][1:])  # (N, D) -> (D, h, w)


# Familiarity: whether a picture resembles those that a trained layer was trained on.


def foreign_visuals(
    adapter: FamilyAdapter,
    stem: Stem | None,
    other: Stem | None,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    frames: Sequence[int] = (),
    layout: Layout | None = None,
) -> list[bool]:
    """Return whether each image or clip is unlike all that a stem was trained on; [] if no stem can tell.

    If `stem` keeps no record of its training pictures, `other` judges: an allocator retrained for the bundled
    model uses the bundled stem. In `inputs` frames of clips are images; `frames` counts them per clip.
    `layout` is that of the inputs, if it is at hand.
    """
    own = stem is not None and stem.familiarity is not None
    judge = stem if own else other
    if judge is None or judge.familiarity is None or adapter.encodes != "cells":
        return []
    if encoded.foreign is None:
        with torch.no_grad():
            views = pictures(adapter, inputs, encoded)
            grids = (adapter.layout(inputs) if layout is None else layout).grids
            # another stem's vectors are of no further use
            looked = encoded.looked if own else [LookedAt() for _ in grids]
            encoded.foreign = _foreign(judge, views, grids, looked, frames)
    return encoded.foreign


def _foreign(
    judge: Stem,
    views: Sequence[Tensor],
    grids: Sequence[Grid],
    looked: Sequence[LookedAt],
    frames: Sequence[int],
) -> list[bool]:
    familiarity = judge.familiarity
    assert familiarity is not None
    foreign, first = [], 0
    for count in frames or (1,) * len(grids):
        tested = min(count, FAMILIARITY_FRAMES)
        # the middles of `tested` equal stretches of the clip
        which = [first + (2 * i + 1) * count // (2 * tested) for i in range(tested)]
        cells = [stem_cells(judge, views[i], grids[i], looked[i]) for i in which]
        foreign.append(2 * sum(bool(familiarity(one) > 0) for one in cells) > tested)
        first += count
    return foreign


def guided_visuals(chooser: Chooser, call: Call) -> list[bool]:
    """Return whether the guide chooses each image's or clip's cells because it is foreign to a trained layer.

    Foreign: unlike all that the layer was trained on (`foreign_visuals`). The list is empty for an untrained
    layer, a named relevance, or if no stem can tell.
    """
    stem = chooser.stem
    if chooser.relevance != "auto" or not chooser.layer.trained or stem is None or stem.familiarity is None:
        return []
    if call.encoded.foreign is not None:
        return call.encoded.foreign
    parts = (call.adapter, stem, None, call.inputs, call.encoded, call.frames, call.layout)
    with call.watch("scoring"):
        return guarded(chooser, lambda: foreign_visuals(*parts), FAMILIARITY_FAILED) or []


def note_foreign(chooser: Chooser, call: Call, decision: Decision) -> Decision:
    """Return a decision with a note on each image and clip that the guide chose, as it is foreign."""
    guided = guided_visuals(chooser, call)
    if not any(guided):
        return decision
    allocations = [
        replace(one, note=joined(GUIDED, one.note))
        if foreign and not one.void and (one.kept < one.total or not call.mode.chooses)
        else one
        for one, foreign in zip(decision.allocations, guided, strict=True)
    ]
    return replace(decision, allocations=allocations)


# The question: its text for the guide, its word embeddings for the layer, its coupling with the cells.


def question_embeddings(adapter: FamilyAdapter, inputs: Mapping[str, Any], like: Tensor) -> list[Tensor]:
    """Return the word embeddings [L, D] of each row's question, in the dtype and on the device of `like`."""
    ids, mask = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    question = adapter.question_mask(ids, mask)
    text = mask & (ids != adapter.image_token_id)  # where no words are found
    question = torch.where(question.any(dim=1, keepdim=True), question, text)
    embed = adapter.model.get_input_embeddings()
    return [embed(row[words]).to(like) for row, words in zip(ids, question, strict=True)]


def texts_of(adapter: FamilyAdapter, call: Call, layout: Layout) -> list[str] | None:
    """Return the question about each image as text: the one that the call names, else as `question_texts`."""
    if call.question is not None:
        return [call.question] * len(layout.grids)
    return question_texts(adapter, call.inputs, layout)


def question_texts(adapter: FamilyAdapter, inputs: Mapping[str, Any], layout: Layout) -> list[str] | None:
    """Return the question about each image, decoded from the prompt's ids, or None.

    It is None without a tokenizer or if a row has no words.
    """
    tokenizer = getattr(adapter.processor, "tokenizer", None)
    if tokenizer is None:
        return None
    ids, mask = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    words = adapter.question_mask(ids, mask)
    rows = [row for row, _ in adapter.columns(ids, layout.in_prompt)]
    texts = {}
    for row in set(rows):
        places = words[row].nonzero().flatten().tolist()
        if not places:
            return None
        text = [
            ids[row, place].item()
            for place in range(places[0], places[-1] + 1)
            if words[row, place] or (mask[row, place] and not tokenizer.decode([ids[row, place]]).strip())
        ]
        texts[row] = tokenizer.decode(text, skip_special_tokens=True)
    return [texts[row] for row in rows]


def untrained_relevance(
    chooser: Chooser, call: Call, name: str, layout: Layout
) -> tuple[Sequence[Tensor | None] | None, Sequence[Coupling | None] | None]:
    """Score cells without training: return logits [H, W] per image, and what the guide found about each.

    With a trained layer: the guide's logits, only for foreign pictures and questions about no single place.
    Else for all, mixed with the model's own attention by the share of `not_found`; without a guide attention
    alone. The model's first layers run only if needed, on the coarse view by compressor `name`.
    """
    if chooser.layer.trained:
        chosen = off_ground_couplings(chooser, call, layout)
        if chosen is None:
            return None, None
        return [None if one is None else one.logits for one in chosen], chosen
    guided = couplings(chooser, call, layout)
    if guided is not None and not (
        chooser.relevance in ("auto", "trained") and any(shares(one).not_found for one in guided)
    ):
        return [one.logits for one in guided], guided
    adapter = call.adapter
    attended = attention_maps(adapter, call, name, gestalt_of(chooser, call, name), layout.grids)
    if guided is None:
        return attended, None
    return [blend(one, own) for one, own in zip(guided, attended, strict=True)], guided


def couplings(chooser: Chooser, call: Call, layout: Layout) -> list[Coupling] | None:
    """Return what the source finds about each image and its question; None without a source or a question's
    text.
    """
    source = chooser.source_of(call)
    texts = None if source is None else texts_of(call.adapter, call, layout)
    return None if source is None or texts is None else _coupled(source, chooser, call, layout, texts)


def off_ground_couplings(chooser: Chooser, call: Call, layout: Layout) -> list[Coupling | None] | None:
    """Return the guide's findings about images that a trained layer shouldn't judge; None for the others.

    These are foreign, or asked about no single place. Without any, or with relevance "trained", all is None.
    """
    texts = None if chooser.relevance == "trained" else texts_of(call.adapter, call, layout)
    if texts is None:
        return None
    guide = chooser.guide
    general = {text: is_general(guide, text) for text in dict.fromkeys(texts)}
    counts = call.frames or (1,) * len(texts)
    foreign = guided_visuals(chooser, call) or [False] * len(counts)
    per_frame = [one for one, count in zip(foreign, counts, strict=True) for _ in range(count)]
    wanted = any(general[text] or one for text, one in zip(texts, per_frame, strict=True))
    source = chooser.source_of(call) if wanted else None
    if source is None:
        return None
    every = _coupled(source, chooser, call, layout, texts)
    # A question that looked general names print on some pictures, and boxes train that.
    theirs = [
        one or (general[text] and verdict_of(says) in GENERAL)
        for text, one, says in zip(texts, per_frame, every, strict=True)
    ]
    return [one if its else None for one, its in zip(every, theirs, strict=True)] if any(theirs) else None


def _coupled(
    source: RelevanceSource, chooser: Chooser, call: Call, layout: Layout, texts: Sequence[str]
) -> list[Coupling]:
    """Return the source's findings about each image and its question; repeated frames share those before."""
    adapter = call.adapter
    changes = changes_of(adapter, call, layout)
    repeated = [again for one in changes for again in (one.repeated if one else [False])]
    repeated = repeated or [False] * len(layout.grids)
    with call.watch("scoring"):
        encoded = call.encoded
        views = pictures(adapter, call.inputs, encoded)
        looked = encoded.looked
        if any(one.view is None for one in looked):
            originals = encoded.sources or [None] * len(views)
            pairs = zip(originals, views, repeated, strict=True)
            new = [whole_picture(source, original, small) for original, small, again in pairs if not again]
            for one, view in zip(looked, _repeat(view_all(source, new), repeated), strict=True):
                one.view = view
        rows = zip(looked, texts, layout.grids, repeated, strict=True)
        wanted = [(one.seen, text, grid[1:]) for one, text, grid, again in rows if not again]
        own, questions, grids = map(list, zip(*wanted, strict=True))
        return _repeat(couple_all(source, own, questions, grids), repeated)


def _repeat(values: Sequence[T], repeated: Sequence[bool]) -> list[T]:
    """Give each frame its value: the next of `values`, or the previous frame's if it is `repeated`."""
    new, every = iter(values), list[T]()
    for again in repeated:
        every.append(every[-1] if again else next(new))
    return every


def whole_picture(source: RelevanceSource, original: Image.Image | None, read: Tensor) -> Tensor:
    """Return the user's picture as a source reads it; `read`, the model's input, if that shows a part."""
    if original is None:
        return read
    pixels = seen_pixels(source, original, read.device)
    return pixels if same_picture(pixels, read) else read


def attention_maps(
    adapter: FamilyAdapter, call: Call, name: str, gestalt: VisualFeatures, grids: Sequence[Grid]
) -> list[Tensor]:
    """Return logits [H, W] of each image's cells, by attention of the model's first layers to a coarse view.

    `name` is the compressor that made the view `gestalt`.
    """
    neutral, features = call.encoded.neutral, call.encoded.features
    # The prompt's inputs alone: a single forward pass takes no arguments of `generate`.
    names = (*PROMPT_NAMES, "position_ids", *adapter.visual_names, CROP_VALUES, CROP_GRIDS)
    inputs = {name: call.inputs[name] for name in names if name in call.inputs}
    with call.watch("scoring"):
        attended = gaze(adapter, inputs, gestalt, features=features, neutral=neutral.get(name))
        neutral[name] = attended.neutral
        return [coupling(coarse, grid[1:]) for coarse, grid in zip(attended.maps, grids, strict=True)]


def changes_for(chooser: Chooser, call: Call, layout: Layout) -> list[Changes | None]:
    """Return `changes_of` for this question, which may name a moment, or an event that the guide locates."""
    if not call.frames:
        return []
    adapter = call.adapter
    changes = changes_of(adapter, call, layout)
    texts = texts_of(adapter, call, layout)
    if texts is None:
        return changes
    own = [group[0] for group in groups(texts, call.frames)]
    times = call.times or (None,) * len(own)
    shows: list[Tensor | None] = [None] * len(own)
    source = chooser.source_of(call)
    views_of_all = [one.view for one in call.encoded.looked if one.view is not None]
    if source is not None and views_of_all:
        sights = groups(views_of_all, call.frames)
        with call.watch("scoring"):
            shows = [
                None if one is None else _event(source, views, text, grid[1:])
                for one, views, text, grid in zip(
                    changes, sights, own, call.spaces(layout.grids), strict=True
                )
            ]
    return [
        None if one is None else one.at(text, when, event)
        for one, text, when, event in zip(changes, own, times, shows, strict=True)
    ]


def _event(
    source: RelevanceSource, sights: Sequence[PictureView], text: str, grid: tuple[int, int]
) -> Tensor | None:
    """Return logits [T, H, W] of the event that a question names in a clip's frames; None without one."""
    if (event := event_of(text)) is None:
        return None
    each = {id(sight): sight for sight in sights}  # repeated frames share one
    maps = {key: source.couple(sight, event, grid).logits for key, sight in each.items()}
    return torch.stack([maps[id(sight)] for sight in sights])


# Cues: all inputs of scoring together.


def cues_of(chooser: Chooser, call: Call, layout: Layout) -> list[Cues]:
    """Return what the layer reads about each image of a call (`Cues`), put together by `gather`.

    Before the encoder, a cell's vector is the first of: a trained stem's, from its pixels; for a layer
    trained on encoded tokens, the coarse-view token that covers it. An untrained layer has none: it goes by
    the guide, and by attention of the model's first layers where the guide finds nothing.
    """
    cells: list[Tensor] | None = None
    means: list[Tensor] | None = None
    layer, encoded, images = chooser.layer, call.encoded, range(len(layout.grids))
    if call.mode.before_encoder:
        logits, guided = untrained_relevance(chooser, call, call.gestalt, layout)
        stem, gestalt, maps = chooser.stem, None, []
        if call.mode.gestalt or (stem is None and layer.trained):
            gestalt = gestalt_of(chooser, call, call.gestalt)
            maps = [_coarse_map(gestalt, image) for image in images]
            means = [gestalt.cell_tokens(image).float().mean(0) for image in images]
        if layer.trained and stem is not None:
            name = None if gestalt is None else call.gestalt
            if not encoded.looked or any(name not in one.stems for one in encoded.looked):
                with call.watch("scoring"):
                    views = pictures(call.adapter, call.inputs, encoded)
                    for i, grid in enumerate(layout.grids):
                        stem_cells(stem, views[i], grid, encoded.looked[i], name, maps[i] if maps else None)
            cells = [one.stems[name] for one in encoded.looked]
        elif layer.trained:
            cells = [
                stretch(coarse, grid[1:]).flatten(1).T  # (D, H, W) -> (N, D)
                for coarse, grid in zip(maps, layout.grids, strict=True)
            ]
    else:
        features = encoded_features(chooser, call)
        logits, guided = untrained_relevance(chooser, call, POOLED, layout)
        cells = [features.cell_tokens(image) for image in range(len(features.grids))]
    if "coarse_features" in layer.wanted_inputs:
        with call.watch("texture"):
            pictures(call.adapter, call.inputs, encoded)
        if any(one.coarse is None for one in encoded.looked):
            view = gestalt_of(chooser, call, default_gestalt(chooser.adapter))
            for one, made in zip(encoded.looked, gestalt_features(view), strict=True):
                one.coarse = made.to(next(layer.parameters()))
    return gather(
        call.adapter,
        layer,
        call.inputs,
        encoded,
        layout,
        call.watch,
        cells=cells,
        gestalt=means,
        coupling=logits,
        guided=guided,
        frames=call.frames,
    )


def gather(
    adapter: FamilyAdapter,
    layer: ARRCOCLayer,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    layout: Layout,
    watch: Stopwatch,
    *,
    cells: Sequence[Tensor] | None = None,
    gestalt: Sequence[Tensor] | None = None,
    coupling: Sequence[Tensor | None] | None = None,
    guided: Sequence[Coupling | None] | None = None,
    frames: Sequence[int] = (),
) -> list[Cues]:
    """Return what a layer reads about each image of a call, as `LookedAt.cues` gathers it.

    `cells`, `gestalt`, `coupling` and `guided` have one entry per image; `frames` are the images in a row of
    each image or clip, empty if all are images. `encoded` is filled in, `watch` adds up the texture's time.
    """
    cues: list[Cues] = []
    relevance: list[Tensor] = []  # of the steps of a clip so far
    with watch("texture"):
        images, looked = pictures(adapter, inputs, encoded), encoded.looked
        make = ChannelInputs(layer, encoded, layout, images, frames, cells)
        queries = question_embeddings(adapter, inputs, make.like)
        for image, (row, _) in enumerate(adapter.columns(inputs["input_ids"], layout.in_prompt)):
            relevance = relevance if make.places[image] else []
            one = looked[image].cues(
                layer,
                layout.grids[image][1:],
                partial(make.picture, image),
                queries[row],
                cells=None if cells is None else cells[image],
                gestalt=None if gestalt is None else gestalt[image],
                coupling=None if coupling is None else coupling[image],
                guided=None if guided is None else guided[image],
                inputs=partial(make, image, relevance) if make.wanted else None,
            )
            cues.append(one)
            if make.remembers and image + 1 < len(layout.grids) and make.places[image + 1]:
                with torch.no_grad():
                    relevance.append(one.relevance(layer).balanced)
    return cues


def stretch(coarse: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return a coarse map [c, h, w] interpolated to a fine grid, bilinear: float [c, H, W]."""
    return F.interpolate(coarse[None].float(), size=grid, mode="bilinear", align_corners=False)[0]


class ChannelInputs:
    """Makes what texture channels read of a call's images, in their order; parameters as in `gather`.

    picture                 of each image, [3, h, w] in [0, 1], as all the rest on the layer's device
    previous_frames         at most 8 earlier steps of a clip; none before its first, or for a still
    relevance_history       of these steps, by the layer for the same question
    attention_history       relevance maps of a conversation's earlier turns
    coarse_features         the gestalt of the modes
    features                the encoded cells [N, D], in modes that encode all of them
    """

    def __init__(
        self,
        layer: ARRCOCLayer,
        encoded: EncodedImages,
        layout: Layout,
        pictures: Sequence[Tensor],
        frames: Sequence[int] = (),
        cells: Sequence[Tensor] | None = None,
    ) -> None:
        self.encoded, self.layout, self.pictures, self.cells = encoded, layout, pictures, cells
        self.like = next(layer.parameters())
        self.needed, self.wanted = layer.needed_inputs, layer.wanted_inputs
        counts = tuple(frames) or (1,) * len(layout.grids)
        self.places = [place for count in counts for place in range(count)]  # of each image in its clip
        self.remembers = not self.wanted.isdisjoint({"relevance_history", "previous_relevance"})
        self._made: deque[tuple[int, Tensor]] = deque(maxlen=FRAMES + 1)

    def picture(self, image: int) -> Tensor:
        """Return an image's picture; a clip's steps are made once if images come in order."""
        made = dict(self._made)
        if image not in made:
            made[image] = self.pictures[image].to(self.like)
            self._made.append((image, made[image]))
        return made[image]

    def __call__(self, image: int, relevance: Sequence[Tensor] = ()) -> dict[str, Any]:
        """Return an image's inputs by name; `relevance` is [1, H, W] of each earlier step."""
        own: dict[str, Any] = {}
        if "previous_frames" in self.wanted and (self.places[image] or "previous_frames" in self.needed):
            first = image - min(self.places[image], FRAMES)
            # A group that needs earlier frames gets the picture itself where there are none.
            earlier = [self.picture(n) for n in range(first, image)] or [self.picture(image)]
            own["previous_frames"] = torch.stack(earlier)[None]
        if relevance and self.remembers:
            history = torch.stack(list(relevance)[-FRAMES:], 1).to(self.like).clamp(0, 1)
            own |= {"relevance_history": history, "previous_relevance": history[:, -1]}
        if self.encoded.earlier and (attention := self.encoded.attention(image)) is not None:
            own["attention_history"] = attention[None].to(self.like)
        own["coarse_features"] = self.encoded.looked[image].coarse
        if "features" in self.wanted and self.cells is not None:
            grid = self.layout.grids[image][1:]
            own["features"] = self.cells[image].T.unflatten(1, grid)[None].to(self.like)
        return own
