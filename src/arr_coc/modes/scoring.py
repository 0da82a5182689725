"""What is known of a call's images before its cells are chosen, each part computed once.

cues_of(chooser, call, layout) -> Cues per image      all that `guide.realizing.decide` reads

pixels -> pictures -> texture array [1, C, H, W]      channels, from the picture and earlier frames and turns
-> cells [N, D]                    encoded tokens, or in their place what a stem sees
question -> word embeddings [1, L, D]
-> coupling [H, W]                           the guide's, where the layer is untrained or off its ground
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.motion import FRAMES
from arr_coc.choose.stem import GUIDED, Stem
from arr_coc.choose.texture import Channels, TextureCache, channel_groups, generate_texture_array
from arr_coc.guide.coupling import Coupling, couple, view
from arr_coc.guide.deciding import Cues, Decision, Stopwatch, groups
from arr_coc.guide.guide import Guide, GuidePage, picture_inputs
from arr_coc.guide.selector import image_pixels
from arr_coc.guide.trust import blend, is_general, shares
from arr_coc.modes.call import RELEVANCES, Call, Chooser, EncodedImages, guarded, joined
from arr_coc.modes.mode import Mode
from arr_coc.seam.assembly import CROP_GRIDS, CROP_VALUES, PROMPT_NAMES, Grid, Layout, VisualFeatures
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.clips import StepRows, with_whole_pixels
from arr_coc.seam.gaze import coupling, gaze
from arr_coc.seam.gestalt import coarse_features, compress, find_compressor, gestalt_features
from arr_coc.video.temporal import Changes, event_of

OF_PICTURE = frozenset({"image", "text_evidence", "previous_frames"})
"""Inputs of channels that are the same for an image of a session, or step of a clip, whatever is asked."""
MADE = frozenset({"text_evidence", "previous_frames", "coarse_features", "features"})
"""Inputs that a call can always make for a group that can't do without, beside the layer's own basis."""
POOLED = "pool4"
"""The compressor of the coarse view that the model's own attention reads once every cell is encoded."""
SAME_IMAGE_MAX_DIFF = 0.04
"""The most that two pictures of one thing differ in, mean over pixels in [0, 1], after one was resampled."""
COMPARED_SIDE = 64
"""Side in px at which pictures are compared."""
FAMILIARITY_FRAMES = 8
"""Frames of a clip that are tested for familiarity, evenly spread; it is foreign if most of them are."""
FAMILIARITY_FAILED = "it can't be told whether the picture is foreign"
"""What the log says where that fails."""


def wanted_inputs(channels: Channels) -> frozenset[str]:
    """The optional inputs that some group of the channels needs or reads."""
    return frozenset(name for group in channel_groups(channels) for name in (*group.needs, *group.reads))


def deciding_layer(layer: ARRCOCLayer, relevance: str) -> ARRCOCLayer:
    """The layer that decides: an untrained copy if relevance is "guide" or "gaze".

    Raises:
        ValueError: no such relevance, "trained" with a layer that isn't, or channels that read what no mode
            can know.
    """
    check_layer(layer)
    if relevance not in RELEVANCES:
        raise ValueError(f"relevance {relevance!r} is unknown; use one of {', '.join(RELEVANCES)}")
    if relevance == "trained" and not layer.trained:
        raise ValueError("relevance is 'trained', but nobody has trained the layer: use 'auto'")
    if relevance in ("auto", "trained") or not layer.trained:
        return layer
    return layer.untrained()


def check_layer(layer: ARRCOCLayer) -> None:
    """Raise a ValueError where a channel group of a layer needs what no mode can know.

    A map of earlier relevance or attention is nothing that a first question has; groups that read one where
    it is at hand do without.
    """
    made = MADE if layer.basis is None else MADE | {"basis"}
    for group in channel_groups(layer.config.channels):
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
    """Raise a ValueError where a channel group needs encoded cells in a mode that chooses before encoding."""
    if not mode.before_encoder:
        return
    for group in channel_groups(layer.config.channels):
        if "features" in group.needs:
            raise ValueError(
                f"channel group {group.name!r} needs features, the encoded cells, and mode {mode.name!r} "
                "chooses before any is encoded: use mode 'prune', or leave the group out"
            )


# What is computed of the images, whatever the question.


def pictures(adapter: FamilyAdapter, inputs: Mapping[str, Any], encoded: EncodedImages) -> Sequence[Tensor]:
    """Per image what the model sees, recovered once: float32 [3, h, w] in [0, 1].

    Of the steps of a clip whose pixels are made when they are read, it is made each time, too.
    """
    if encoded.pictures is None:
        pixels = inputs["pixel_values"] if "pixel_values" in inputs else None
        if isinstance(pixels, StepRows):
            encoded.pictures = pixels.pictures(adapter, inputs["image_grid_thw"])
        else:
            encoded.pictures = adapter.images(inputs, encoded.features)
    return encoded.pictures


def encoded_features(chooser: Chooser, call: Call) -> VisualFeatures:
    """Every cell of the images, encoded once."""
    if call.encoded.features is None:
        with call.watch("encode"):
            inputs = with_whole_pixels(call.inputs)
            call.encoded.features = call.adapter.features(inputs)
    return call.encoded.features


def default_gestalt(adapter: FamilyAdapter, crops: bool = False) -> str:
    """The compressor of a call that names none: "pool4" where the vision tower takes no smaller view.

    Args:
        adapter: of the family.
        crops: the mode reads finer crops beside the tower's own view.
    """
    return "resize" if adapter.encodes == "cells" or crops else "pool4"


def gestalt_of(chooser: Chooser, call: Call, name: str) -> VisualFeatures:
    """The gestalt of every image by one compressor, made once; the frames of a clip share one's cells."""
    gestalts = call.encoded.gestalts
    if name not in gestalts:
        compressor = find_compressor(name)
        if compressor.reads_tokens:
            encoded_features(chooser, call)
        features = call.encoded.features
        adapter = chooser.adapter_with(name) if compressor.inside else call.adapter
        with call.watch("gestalt"):
            gestalts[name] = compress(name, adapter, call.inputs, features, chooser.convs, call.frames)
    return gestalts[name]


def coarse_maps(chooser: Chooser, call: Call) -> list[Tensor]:
    """Per image the gestalt of a call that names none, [1, D, h, w]: a coarse view as the encoder sees it."""
    return gestalt_features(gestalt_of(chooser, call, default_gestalt(chooser.adapter)))


def changes_of(adapter: FamilyAdapter, call: Call, layout: Layout) -> list[Changes | None]:
    """Per image or clip what is new in its frames, compared once; None for an image, [] without clips."""
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


def stem_tokens(
    adapter: FamilyAdapter, stem: Stem, inputs: Mapping[str, Any], encoded: EncodedImages
) -> list[Tensor]:
    """Per image the cells [N, D] as the stem that chooses sees them in pixels alone; made once."""
    if None not in encoded.stems:
        encoded.stems[None] = _tokens_of(adapter, stem, inputs, encoded)
    return encoded.stems[None]


def _tokens_of(
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


def stem_cells(
    chooser: Chooser, call: Call, stem: Stem, layout: Layout, gestalt: VisualFeatures | None
) -> list[Tensor]:
    """Per image the cells [N, D] as a stem sees them, over a gestalt if there is one; made once."""
    adapter, stems = call.adapter, call.encoded.stems
    with call.watch("scoring"):
        if gestalt is None:
            return stem_tokens(adapter, stem, call.inputs, call.encoded)
        if call.gestalt not in stems:
            views = zip(pictures(adapter, call.inputs, call.encoded), layout.grids, strict=True)
            stems[call.gestalt] = [
                stem(picture[None], grid[1:], _coarse_map(gestalt, image)[None])[0]
                for image, (picture, grid) in enumerate(views)
            ]
    return stems[call.gestalt]


def _coarse_map(gestalt: VisualFeatures, image: int) -> Tensor:
    """The gestalt of one image on its own grid: [D, h, w]."""
    return gestalt.cell_tokens(image).T.unflatten(1, gestalt.grids[image][1:])


# Whether a picture is one that a trained layer knows its way in.


def foreign_visuals(
    adapter: FamilyAdapter,
    stem: Stem | None,
    other: Stem | None,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    frames: Sequence[int] = (),
) -> list[bool]:
    """Whether each image or clip is unlike all that a stem was trained on; [] where no stem can tell.

    An allocator that was trained anew for the bundled model knows its ground by the stem of the bundled one.

    Args:
        adapter: of the model.
        stem: sees the cells that are chosen from.
        other: tells it where `stem` doesn't; its tokens are not kept.
        inputs: processor inputs, in which the frames of clips are images.
        encoded: of these images; what is missing is filled in.
        frames: how many images in a row each image or clip consists of; empty: all are images.
    """
    own = stem is not None and stem.familiarity is not None
    judge = stem if own else other
    if judge is None or judge.familiarity is None or adapter.encodes != "cells":
        return []
    if encoded.foreign is None:
        with torch.no_grad():
            encoded.foreign = _foreign(adapter, judge, own, inputs, encoded, frames)
    return encoded.foreign


def _foreign(
    adapter: FamilyAdapter,
    judge: Stem,
    own: bool,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
    frames: Sequence[int],
) -> list[bool]:
    """`foreign_visuals` by a stem with a familiarity."""
    familiarity = judge.familiarity
    assert familiarity is not None
    if own and not frames:
        stem_tokens(adapter, judge, inputs, encoded)
    ready = encoded.stems.get(None) if own else None
    counts = frames or (1,) * len(adapter.layout(inputs).grids)
    foreign, first = [], 0
    for count in counts:
        tested = min(count, FAMILIARITY_FRAMES)
        which = [first + (2 * i + 1) * count // (2 * tested) for i in range(tested)]
        cells = (
            _tokens_of(adapter, judge, inputs, encoded, which) if ready is None else [ready[i] for i in which]
        )
        foreign.append(2 * sum(bool(familiarity(one) > 0) for one in cells) > tested)
        first += count
    return foreign


def guided_visuals(chooser: Chooser, call: Call) -> list[bool]:
    """Whether the guide chooses the cells of each image or clip since it is foreign to a trained layer.

    A trained layer is of no use on pictures unlike those that it was trained on: there the guide chooses in
    every mode. Nowhere where the layer is untrained or a relevance was named, and where it can't be told.
    """
    if chooser.relevance != "auto" or not chooser.layer.trained:
        return []
    parts = (call.adapter, chooser.stem, None, call.inputs, call.encoded, call.frames)
    if call.encoded.foreign is not None:
        return foreign_visuals(*parts)
    with call.watch("scoring"):
        return guarded(chooser, lambda: foreign_visuals(*parts), FAMILIARITY_FAILED) or []


def note_foreign(chooser: Chooser, call: Call, decision: Decision) -> Decision:
    """The decision, with a note on each image and clip of which the guide chose cells since it is foreign."""
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
    """Per row the word embeddings [L, D] of its question, in the dtype and on the device of `like`."""
    ids, mask = inputs["input_ids"], adapter.attention_mask(inputs).bool()
    question = adapter.question_mask(ids, mask)
    text = mask & (ids != adapter.image_token_id)  # for a prompt without words of its own
    question = torch.where(question.any(dim=1, keepdim=True), question, text)
    embed = adapter.model.get_input_embeddings()
    return [embed(row[words]).to(like) for row, words in zip(ids, question, strict=True)]


def texts_of(adapter: FamilyAdapter, call: Call, layout: Layout) -> list[str] | None:
    """Per image the question of its row: the call's own where it is in hand, else as `question_texts`."""
    if call.question is not None:
        return [call.question] * len(layout.grids)
    return question_texts(adapter, call.inputs, layout)


def question_texts(adapter: FamilyAdapter, inputs: Mapping[str, Any], layout: Layout) -> list[str] | None:
    """Per image the question of its row, read off the prompt's ids: its words and the spaces between them.

    None without a tokenizer or where a row has no words.
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
    """Per image the logits [H, W] of a coupling that no layer was trained for, and all that the guide says.

    With a trained layer: the guide's, where a picture is foreign to it or a question about no place. Else
    the guide's logits, into which the model's own attention is mixed by the share of `not_found`; that alone
    where there is no guide. The model's first layers run only where they are needed.

    Args:
        chooser: with or without a guide.
        call: the call.
        name: of the compressor of the gestalt that the model's attention reads.
        layout: where the images' tokens stand.
    """
    if chooser.layer.trained:
        chosen = off_ground_couplings(chooser, call, layout)
        if chosen is None:
            return None, None
        return [None if one is None else one.logits for one in chosen], chosen
    guided = couplings(chooser, call, layout)
    if guided is not None and not (
        chooser.relevance != "guide" and any(shares(one).not_found for one in guided)
    ):
        return [one.logits for one in guided], guided
    adapter = call.adapter
    attended = attention_maps(adapter, call, name, gestalt_of(chooser, call, name), layout.grids)
    if guided is None:
        return attended, None
    return [blend(one, own) for one, own in zip(guided, attended, strict=True)], guided


def couplings(chooser: Chooser, call: Call, layout: Layout) -> list[Coupling] | None:
    """What the guide says of each image; None where there is no guide, or no question that is text."""
    guide = chooser.guide
    texts = None if guide is None else texts_of(call.adapter, call, layout)
    return None if guide is None or texts is None else _coupled(guide, chooser, call, layout, texts)


def off_ground_couplings(chooser: Chooser, call: Call, layout: Layout) -> list[Coupling | None] | None:
    """What the guide says, beside a trained layer, of each image that is foreign to it or whose question is
    about no place in it.

    Returns:
        A coupling per such image, None for all others; None where there is no such image or no guide, or
        what the layer has learned is to decide everything.
    """
    guide = None if chooser.relevance == "trained" else chooser.guide
    texts = None if guide is None else texts_of(call.adapter, call, layout)
    if guide is None or texts is None:
        return None
    general = {text: is_general(guide, text) for text in dict.fromkeys(texts)}
    counts = call.frames or (1,) * len(texts)
    foreign = guided_visuals(chooser, call) or [False] * len(counts)
    per_frame = [one for one, count in zip(foreign, counts, strict=True) for _ in range(count)]
    theirs = [general[text] or one for text, one in zip(texts, per_frame, strict=True)]
    if not any(theirs):
        return None
    every = _coupled(guide, chooser, call, layout, texts)
    return [one if its else None for one, its in zip(every, theirs, strict=True)]


def _coupled(
    guide: Guide, chooser: Chooser, call: Call, layout: Layout, texts: Sequence[str]
) -> list[Coupling]:
    """The guide's coupling of each image with its question; a frame that repeats the one before is not read
    again.
    """
    adapter = call.adapter
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


def whole_picture(source: Image.Image | None, read: Tensor) -> Tensor:
    """The picture as the user gave it, [3, h, w] in [0, 1]; what the model sees where that is a part of it.

    Args:
        source: the user's picture; None: it isn't at hand.
        read: what the model sees, [3, h, w] in [0, 1].
    """
    if source is None:
        return read
    pixels = image_pixels(source).to(read.device)
    side = (COMPARED_SIDE, COMPARED_SIDE)
    small = [F.interpolate(x, side, mode="area") for x in (pixels, read[None].float())]
    same = float((small[0] - small[1]).abs().mean()) <= SAME_IMAGE_MAX_DIFF
    return pixels[0] if same else read


def attention_maps(
    adapter: FamilyAdapter, call: Call, name: str, gestalt: VisualFeatures, grids: Sequence[Grid]
) -> list[Tensor]:
    """Where the model's own first layers attend: logits [H, W] of each image's cells.

    Args:
        adapter: on the model that attends.
        call: the call.
        name: of the gestalt's compressor.
        gestalt: the coarse view that it reads.
        grids: of the cells.
    """
    neutral, features = call.encoded.neutral, call.encoded.features
    # Of the prompt alone: arguments of `generate` among the inputs are not for this.
    names = (*PROMPT_NAMES, "position_ids", *adapter.visual_names, CROP_VALUES, CROP_GRIDS)
    inputs = {name: call.inputs[name] for name in names if name in call.inputs}
    with call.watch("scoring"):
        attended = gaze(adapter, inputs, gestalt, features=features, neutral=neutral.get(name))
        neutral[name] = attended.neutral
        return [coupling(coarse, grid[1:]) for coarse, grid in zip(attended.maps, grids, strict=True)]


def changes_for(chooser: Chooser, call: Call, layout: Layout) -> list[Changes | None]:
    """As `changes_of`, for the question of this call, which may name a moment.

    An event that one names is searched for by the guide, where the guide has read the frames.
    """
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


# Cues: all of it together.


def cues_of(chooser: Chooser, call: Call, layout: Layout) -> list[Cues]:
    """What scoring reads of each image of a call: the cells as encoded, or as they are known before.

    Before the encoder a cell is known by (the first that there is): what a trained stem sees in its pixels;
    the gestalt token that covers it, read by a layer that was trained on encoded tokens; with an untrained
    layer, what the guide says, and where that finds nothing, where the model's own first layers attend.
    """
    cells: list[Tensor] | None = None
    means: list[Tensor] | None = None
    if call.mode.before_encoder:
        logits, guided = untrained_relevance(chooser, call, call.gestalt, layout)
        stem, trained, gestalt = chooser.stem, chooser.layer.trained, None
        if call.mode.gestalt or (stem is None and trained):
            gestalt = gestalt_of(chooser, call, call.gestalt)
            means = [gestalt.cell_tokens(image).float().mean(0) for image in range(len(layout.grids))]
        if trained and stem is not None:
            cells = stem_cells(chooser, call, stem, layout, gestalt)
        elif trained and gestalt is not None:
            cells = [
                stretch(_coarse_map(gestalt, image), grid[1:]).flatten(1).T
                for image, grid in enumerate(layout.grids)
            ]
    else:
        features = encoded_features(chooser, call)
        logits, guided = untrained_relevance(chooser, call, POOLED, layout)
        cells = [features.cell_tokens(image) for image in range(len(features.grids))]
    views = call.encoded.views or None
    if views is None and "coarse_features" in wanted_inputs(chooser.layer.config.channels):
        views = coarse_maps(chooser, call)
    adapter = call.adapter
    return gather(
        adapter,
        chooser.layer,
        call.inputs,
        call.encoded,
        layout,
        call.watch,
        cells=cells,
        gestalt=means,
        coupling=logits,
        guided=guided,
        frames=call.frames,
        views=views,
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
    views: Sequence[Tensor] | None = None,
) -> list[Cues]:
    """Put together what a layer reads of each image: texture, question, and what else is known.

    Args:
        adapter: of the model.
        layer: that will score; everything comes in its dtype and on its device.
        inputs: processor inputs.
        encoded: of these images; pictures and textures are filled in.
        layout: where the images' tokens stand.
        watch: where to add the time of the texture.
        cells: per image [N, D], encoded cells or in their place what a stem sees.
        gestalt: per image [D], the mean token of a coarse view.
        coupling: per image [H, W], logits of the coupling with the question; None: the layer's own.
        guided: per image what the guide says of it and its question; None: it isn't asked.
        frames: how many images in a row each image or clip consists of; empty: all are images.
        views: per image the encoder's features of a coarse view, [1, F, h, w]; None: made where a channel
            reads them.
    """
    like = next(layer.parameters())
    with watch("texture"):
        images = pictures(adapter, inputs, encoded)
        make = TextureMaker(adapter, layer, inputs, encoded, layout, images, frames, views, cells)
    queries = question_embeddings(adapter, inputs, like)

    def one(some: Sequence[Tensor | None] | None, image: int) -> Tensor | None:
        part = None if some is None else some[image]
        return None if part is None else part[None].to(like)

    cues: list[Cues] = []
    relevance: list[Tensor] = []  # of the steps of a clip so far
    for image, (row, _) in enumerate(adapter.columns(inputs["input_ids"], layout.in_prompt)):
        relevance = relevance if make.places[image] else []
        with watch("texture"):
            texture = make(image, relevance)
        query = queries[row][None]
        words = torch.ones(query.shape[:2], dtype=torch.bool, device=query.device)
        parts = (one(cells, image), one(gestalt, image), one(coupling, image))
        cues.append(Cues(texture, query, words, *parts, None if guided is None else guided[image]))
        if make.remembers and image + 1 < len(layout.grids) and make.places[image + 1]:
            with torch.no_grad():
                relevance.append(cues[-1].relevance(layer, watch).balanced)
    encoded.textures[:] = [cue.texture for cue in cues]
    return cues


def stretch(coarse: Tensor, grid: tuple[int, int]) -> Tensor:
    """A coarse map [c, h, w] on a fine grid: float [c, H, W], linear between the coarse middles."""
    return F.interpolate(coarse[None].float(), size=grid, mode="bilinear", align_corners=False)[0]


class TextureMaker:
    """Makes the texture arrays of the images of a call, in their order, from all that the call knows.

    A channel group gets what it needs or reads where a call can know it:

        image, text_evidence    of each picture
        previous_frames         the steps of a clip before it, at most 8; none before its first, or a still
        relevance_history       of these steps, as the layer itself found it for the same question
        attention_history       where the questions of a conversation's earlier turns attended
        coarse_features, basis  the gestalt of the modes, and the basis that was fitted for the layer
        features                the encoded cells, in modes that encode all of them

    Args:
        adapter: of the model.
        layer: whose channels and basis; everything comes in its dtype and on its device.
        inputs: processor inputs.
        encoded: of these images; caches and what the textures are made of are filled in.
        layout: where the images' tokens stand.
        pictures: per image what the model sees, [3, h, w] in [0, 1].
        frames: how many images in a row each image or clip consists of; empty: all are images.
        views: per image the encoder's features of a coarse view, [1, F, h, w]; None: made here.
        cells: per image [N, D], encoded cells, where all are encoded.
    """

    def __init__(
        self,
        adapter: FamilyAdapter,
        layer: ARRCOCLayer,
        inputs: Mapping[str, Any],
        encoded: EncodedImages,
        layout: Layout,
        pictures: Sequence[Tensor],
        frames: Sequence[int] = (),
        views: Sequence[Tensor] | None = None,
        cells: Sequence[Tensor] | None = None,
    ) -> None:
        self.adapter, self.inputs, self.encoded, self.layout = adapter, inputs, encoded, layout
        self.layer, self.like, self.pictures = layer, next(layer.parameters()), pictures
        self.channels = layer.config.channels
        self.groups = channel_groups(self.channels)
        self.needed = {name for group in self.groups for name in group.needs}
        self.wanted = self.needed | {name for group in self.groups for name in group.reads}
        self.views, self.cells = views, cells
        counts = tuple(frames) or (1,) * len(layout.grids)
        self.places = [place for count in counts for place in range(count)]  # of each image in its clip
        self.remembers = not self.wanted.isdisjoint({"relevance_history", "previous_relevance"})
        self._before: deque[tuple[int, Tensor]] = deque(maxlen=FRAMES)
        if len(encoded.caches) != len(layout.grids):
            encoded.caches[:] = [TextureCache(OF_PICTURE) for _ in layout.grids]

    def __call__(self, image: int, relevance: Sequence[Tensor] = ()) -> Tensor:
        """The texture array of an image, [1, C, H, W].

        Args:
            image: its number; they are made one after another.
            relevance: [1, H, W] each, of the steps of its clip before it, oldest first.
        """
        grid, cache = self.layout.grids[image][1:], self.encoded.caches[image]
        if (ready := cache.ready(self.groups, grid)) is not None:
            return ready.to(self.like)
        picture = self.pictures[image].to(self.like)
        inputs = self._inputs(image, picture, relevance)
        return generate_texture_array(picture[None], grid, self.channels, **inputs, cache=cache)

    def _inputs(self, image: int, picture: Tensor, relevance: Sequence[Tensor]) -> dict[str, Any]:
        """What some group needs or reads, where it is known."""
        own: dict[str, Any] = {"basis": self.layer.basis}
        if "text_evidence" in self.wanted:
            if image not in self.encoded.printed:
                self.encoded.printed[image] = picture_inputs(self.channels, picture)["text_evidence"]
            own["text_evidence"] = self.encoded.printed[image]
        if "previous_frames" in self.wanted and (self.places[image] or "previous_frames" in self.needed):
            # For a group that can't do without, a picture with nothing before it has itself before it.
            own["previous_frames"] = torch.stack(self._earlier(image) or [picture])[None]
        if relevance and self.remembers:
            history = torch.stack(list(relevance)[-FRAMES:], 1).to(self.like).clamp(0, 1)
            own |= {"relevance_history": history, "previous_relevance": history[:, -1]}
        if self.encoded.earlier and (attention := self.encoded.attention(image)) is not None:
            own["attention_history"] = attention[None].to(self.like)
        if "coarse_features" in self.wanted:
            own["coarse_features"] = self._coarse(image)
        if "features" in self.wanted and self.cells is not None:
            height, width = self.layout.grids[image][1:]
            own["features"] = self.cells[image].T.unflatten(1, (height, width))[None].to(self.like)
        return {name: value for name, value in own.items() if name in self.wanted}

    def _earlier(self, image: int) -> list[Tensor]:
        """The steps before an image of a clip, at most 8, oldest first; made once each if in order."""
        first = image - min(self.places[image], FRAMES)
        before = [(n, one) for n, one in self._before if first <= n < image]
        made = {n for n, _ in before}
        before += [(n, self.pictures[n].to(self.like)) for n in range(first, image) if n not in made]
        self._before = deque(sorted(before, key=lambda pair: pair[0]), maxlen=FRAMES)
        return [one for _, one in self._before]

    def _coarse(self, image: int) -> Tensor:
        """The encoder's features of a coarse view, made once for all images."""
        views = self.encoded.views
        if not views:
            made = coarse_features(self.adapter, self.inputs) if self.views is None else self.views
            views += [one.to(self.like) for one in made]
        return views[image]
