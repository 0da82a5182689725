"""The route of modes that encode every cell ("full", "prune", "weight"), also taken when deciding fails.

everything(chooser, call), after_encoding(chooser, call, gather, scale=...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from arr_coc.guide.coupling import Coupling
from arr_coc.guide.deciding import Cues, Decision, best_kept, decide, everything_kept, weigh
from arr_coc.guide.trust import blend, shares
from arr_coc.modes import PRUNE
from arr_coc.modes.call import Call, Chooser, EncodedImages, Prepared, default_gestalt, guarded
from arr_coc.modes.cues import gather
from arr_coc.modes.familiar import noted
from arr_coc.modes.guided import changes_for, couplings, strange_couplings
from arr_coc.seam import PROMPT_NAMES, FamilyAdapter, Grid, Layout, VisualFeatures
from arr_coc.seam.assembly import CROP_GRIDS, CROP_VALUES, without_crops
from arr_coc.seam.clips import with_whole_pixels
from arr_coc.seam.gaze import coupling, gaze
from arr_coc.seam.gestalt import compress, find_compressor, gestalt_features

VIEW = "pool4"
"""The gestalt in which an untrained layer looks, once every cell is encoded."""


def everything(chooser: Chooser, call: Call, fallback: bool = False) -> Prepared:
    """Encode every cell and keep it."""
    features = encoded_features(chooser, call)
    whole = Decision([everything_kept(grid) for grid in call.spaces(features.grids)], fallback=fallback)
    return dropped(chooser, call, features, whole)


def fall_back(chooser: Chooser, call: Call) -> Prepared:
    """All tokens, as mode "prune" encodes and reads them, because deciding failed."""
    plain = without_crops(call.inputs)
    return everything(
        chooser, replace(call, inputs=plain, mode=PRUNE, encoded=EncodedImages()), fallback=True
    )


def after_encoding(
    chooser: Chooser, call: Call, gather: Callable[[Chooser, Call], list[Cues]], *, scale: bool
) -> Prepared:
    """Encode every cell, decide by what is known of it then, and drop or scale.

    Args:
        chooser: what decides.
        call: the call.
        gather: what scoring reads.
        scale: keep every cell, scaled by its relevance, instead of choosing.
    """
    features = encoded_features(chooser, call)
    sizes = call.of_visuals([len(cells) for cells in features.cells])
    budgets = [call.budgets(size) for size in sizes]  # a bad one is refused

    def choose() -> Decision:
        if call.keep:
            return kept_cells(call, features.grids)
        cues = gather(chooser, call)
        changes = changes_for(chooser, call, features.layout)
        if scale:
            return noted(chooser, call, weigh(chooser.layer, cues, features.grids, call.watch, changes))
        decision = decide(chooser.layer, cues, features.grids, budgets, call.watch, changes)
        return noted(chooser, call, decision)

    decision = guarded(chooser, choose)
    if decision is None:
        return everything(chooser, call, fallback=True)
    return dropped(chooser, call, features, decision)


def kept_cells(call: Call, grids: Sequence[Grid]) -> Decision:
    """The decision for the cells that a call names itself, in the order in which it names them."""
    allocations = []
    for cells, grid in zip(call.keep, grids, strict=True):
        scores = torch.zeros(grid)
        scores.view(-1)[cells.cpu()] = torch.linspace(1.0, 0.5, len(cells))
        allocations.append(best_kept(grid, scores, int((scores > 0).sum())))
    return Decision(allocations)


def dropped(chooser: Chooser, call: Call, features: VisualFeatures, decision: Decision) -> Prepared:
    """The prompt from which all cells that a decision doesn't keep are dropped."""
    adapter = chooser.adapter_for(call.mode)
    if decision.gates is not None:
        features = features.scale(decision.gates)
    keep = [index.to(cells.device) for index, cells in zip(decision.keep, features.cells, strict=True)]
    order = call.orders(decision.allocations)
    compacted = adapter.compact(call.inputs, features, keep, use_cache=call.use_cache, order=order)
    read = call.of_visuals([len(index) for index in features.tokens_to_keep(keep)])
    cells = call.of_visuals([len(index) for index in features.cells])
    return Prepared(
        adapter.model,
        compacted,
        decision.allocations,
        decision.fallback,
        call.mode.name,
        read,
        cells,
        couplings=decision.couplings,
    )


def encoded_cues(chooser: Chooser, call: Call) -> list[Cues]:
    """What is known of encoded cells; where no layer was taught it, their coupling with the question too."""
    adapter, features = chooser.adapter_for(call.mode), encoded_features(chooser, call)
    layout = features.layout
    looks, guided = untaught(chooser, call, VIEW, layout)
    cells = [features.cell_tokens(image) for image in range(len(features.grids))]
    return gather(
        adapter,
        chooser.layer,
        call.inputs,
        call.encoded,
        layout,
        call.watch,
        cells=cells,
        coupling=looks,
        guided=guided,
        frames=call.frames,
        coarse=partial(coarse_maps, chooser, call),
    )


def coarse_maps(chooser: Chooser, call: Call) -> list[Tensor]:
    """Per image the gestalt of a call that names none, [1, D, h, w]: a coarse view as the encoder sees it."""
    return gestalt_features(gestalt_of(chooser, call, default_gestalt(chooser.adapter)))


def untaught(
    chooser: Chooser, call: Call, name: str, layout: Layout
) -> tuple[Sequence[Tensor | None] | None, Sequence[Coupling | None] | None]:
    """Per image the logits [H, W] of its cells' coupling where no layer was taught it, and the guide's say.

    With a trained layer: the guide's, where a picture is foreign to it or a question about no place
    (`strange_couplings`). Else the guide's logits, into which the model's own attention is mixed by the
    share of `not_found`; that alone where there is no guide. The model's first layers run only where they are
    needed.

    Args:
        chooser: with or without a guide.
        call: the call.
        name: of the compressor of the gestalt in which the model looks.
        layout: where the images' tokens stand.
    """
    if chooser.layer.trained:
        strange = strange_couplings(chooser, call, layout)
        if strange is None:
            return None, None
        return [None if one is None else one.logits for one in strange], strange
    guided = couplings(chooser, call, layout)
    if guided is not None and not (chooser.own_look and any(shares(one).not_found for one in guided)):
        return [one.logits for one in guided], guided
    adapter = chooser.adapter_for(call.mode)
    looks = gazed(adapter, call, name, gestalt_of(chooser, call, name), layout.grids)
    if guided is None:
        return looks, None
    return [blend(one, look) for one, look in zip(guided, looks, strict=True)], guided


def encoded_features(chooser: Chooser, call: Call) -> VisualFeatures:
    """Every cell of the images, encoded once."""
    if call.encoded.features is None:
        with call.watch("encode"):
            inputs = with_whole_pixels(call.inputs)
            call.encoded.features = chooser.adapter_for(call.mode).features(inputs)
    return call.encoded.features


def gestalt_of(chooser: Chooser, call: Call, name: str) -> VisualFeatures:
    """The gestalt of every image by one compressor, made once; the frames of a clip share one's cells."""
    gestalts = call.encoded.gestalts
    if name not in gestalts:
        compressor = find_compressor(name)
        if compressor.reads_tokens:
            encoded_features(chooser, call)
        features = call.encoded.features
        adapter = chooser.adapter_with(name) if compressor.inside else chooser.adapter_for(call.mode)
        with call.watch("gestalt"):
            gestalts[name] = compress(name, adapter, call.inputs, features, chooser.convs, call.frames)
    return gestalts[name]


def gazed(
    adapter: FamilyAdapter, call: Call, name: str, gestalt: VisualFeatures, grids: Sequence[Grid]
) -> list[Tensor]:
    """Where the model's own first layers look: logits [H, W] of each image's cells.

    Args:
        adapter: on the model that looks.
        call: the call.
        name: of the gestalt's compressor.
        gestalt: where the model looks.
        grids: of the cells.
    """
    neutral, features = call.encoded.neutral, call.encoded.features
    # Not what is said to `generate`.
    names = (*PROMPT_NAMES, "position_ids", *adapter.visual_names, CROP_VALUES, CROP_GRIDS)
    inputs = {name: call.inputs[name] for name in names if name in call.inputs}
    with call.watch("scoring"):
        look = gaze(adapter, inputs, gestalt, features=features, neutral=neutral.get(name))
        neutral[name] = look.neutral
        return [coupling(coarse, grid[1:]) for coarse, grid in zip(look.maps, grids, strict=True)]
