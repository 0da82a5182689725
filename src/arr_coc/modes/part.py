"""The route of modes that choose before the encoder, "sparse" and "saccade", and of the coarse view alone.

Before the encoder, a cell is known by (the first that there is): what a trained stem sees in its pixels; the
gestalt token that covers it, read by a layer that was trained on encoded tokens; with an untrained layer, by
what the guide says, and where that is lost, where the model's own first layers look (`gaze`). Of a picture
that is foreign to a trained layer, by what the guide says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.budget import Budget
from arr_coc.choose.stem import Stem
from arr_coc.guide.deciding import Cues, Decision, decide, everything_kept
from arr_coc.modes import PRUNE
from arr_coc.modes.call import Call, Chooser, Prepared, guarded
from arr_coc.modes.cues import gather, pictures, stretch
from arr_coc.modes.familiar import noted, stem_tokens
from arr_coc.modes.guided import changes_for
from arr_coc.modes.mode import Mode
from arr_coc.modes.whole import coarse_maps, fall_back, gestalt_of, kept_cells, untaught
from arr_coc.seam import Layout, VisualFeatures
from arr_coc.seam.lora import PARTIAL
from arr_coc.seam.pixels import reading


def before_encoding(
    chooser: Chooser,
    call: Call,
    gather: Callable[[Chooser, Call], list[Cues]],
    budgets: Sequence[Budget | None],
    gestalt: VisualFeatures | None = None,
) -> Prepared:
    """Decide, encode the kept cells alone, and put them into the prompt behind a gestalt, if there is one.

    Args:
        chooser: what decides.
        call: the call.
        gather: what scoring reads.
        budgets: per image or clip; None: all of its cells.
        gestalt: what the language model reads of each image before its kept cells; None: nothing.
    """
    adapter = chooser.adapter_for(call.mode)
    layout = adapter.layout(call.inputs)

    def choose() -> Decision:
        if call.keep:
            return kept_cells(call, layout.grids)
        if all(budget is None for budget in budgets):
            return Decision([everything_kept(grid) for grid in call.spaces(layout.grids)])
        cues, changes = gather(chooser, call), changes_for(chooser, call, layout)
        decision = decide(chooser.layer, cues, layout.grids, budgets, call.watch, changes)
        return noted(chooser, call, decision)

    decision = guarded(chooser, choose)
    if decision is None:
        return fall_back(chooser, call)
    keep = [index.to(layout.cells[0].device) for index in decision.keep]
    with call.watch("encode"), reading(adapter.model.config.model_type):
        fine = encode_parts(chooser, call.mode, call.inputs, keep, layout.sizes)
    if decision.gates is not None:
        fine = gated(fine, layout, keep, decision.gates)
    if gestalt is not None and not any(gestalt.counts):
        gestalt = None
    order = call.orders(decision.allocations)
    compacted = adapter.assemble(
        call.inputs, layout, keep, fine, gestalt, use_cache=call.use_cache, order=order
    )
    coarse = [0] * len(keep) if gestalt is None else gestalt.counts
    read = [few + more for few, more in zip(fine.counts, coarse, strict=True)]
    return Prepared(
        adapter.model,
        compacted,
        decision.allocations,
        False,
        call.mode.name,
        call.of_visuals(read),
        call.of_visuals(layout.sizes),
        note=tiles_note(adapter.views_encoded(call.inputs, keep)),
        couplings=decision.couplings,
    )


def encode_parts(
    chooser: Chooser, mode: Mode, inputs: Mapping[str, Any], keep: Sequence[Tensor], sizes: Sequence[int]
) -> VisualFeatures:
    """Encode kept cells alone; the LoRA for parts is at work for images of which less than half is kept.

    It was taught with 64 to 273 cells of up to 1024. With half of them it is of no more use, and with all of
    them there is nothing to mend: they are encoded as by the stock tower, to the last bit. Each image goes by
    its own share, whatever else is in the batch.

    Args:
        chooser: whose adapter and LoRAs.
        mode: the mode that runs.
        inputs: ordinary processor inputs.
        keep: per image, long [K], its kept cells.
        sizes: per image how many cells it has.
    """
    parts = [2 * len(index) < size for index, size in zip(keep, sizes, strict=True)]
    if PARTIAL not in chooser.loras or not any(parts):
        return chooser.adapter_for(PRUNE).encode_cells(inputs, keep)
    ours = chooser.adapter_for(mode).encode_cells(inputs, keep)
    if all(parts):
        return ours
    stock = chooser.adapter_for(PRUNE).encode_cells(inputs, keep)

    def pick(some: list[Tensor], others: list[Tensor]) -> list[Tensor]:
        return [a if part else b for part, a, b in zip(parts, some, others, strict=True)]

    levels = [pick(some, others) for some, others in zip(ours.levels, stock.levels, strict=True)]
    return replace(ours, tokens=pick(ours.tokens, stock.tokens), levels=levels)


def without(gestalt: VisualFeatures, drop: Sequence[bool]) -> VisualFeatures:
    """A gestalt in which some images have no token."""
    if not any(drop):
        return gestalt
    kept = [cells[: 0 if dropped else None] for cells, dropped in zip(gestalt.cells, drop, strict=True)]
    grids = [(0, 0, 0) if dropped else grid for grid, dropped in zip(gestalt.grids, drop, strict=True)]
    return replace(gestalt.select(kept), grids=grids, cells=kept)


def tiles_note(views: tuple[int, int] | None) -> str | None:
    """What is said of an answer for which whole tiles were encoded.

    Args:
        views: how many were, and how many there are; None: cells alone were.
    """
    if views is None:
        return None
    return f"cells are encoded by whole tiles: {views[0]} of {views[1]} were"


def gated(
    fine: VisualFeatures, layout: Layout, keep: Sequence[Tensor], gates: Sequence[Tensor]
) -> VisualFeatures:
    """Multiply the kept cells of every level by their gates; tokens that are no cell are unchanged.

    Args:
        fine: the kept tokens of each image.
        layout: where the cells stand among the tokens.
        keep: per image long [K_i], the kept cells.
        gates: per image [N_i], of all cells.
    """
    kept = layout.tokens_to_keep(keep)
    factors = [
        gate.new_ones(count).index_copy(0, cells, gate)[index][:, None]
        for count, cells, gate, index in zip(layout.counts, layout.cells, gates, kept, strict=True)
    ]

    def times(images: list[Tensor]) -> list[Tensor]:
        return [tokens * factor.to(tokens) for tokens, factor in zip(images, factors, strict=True)]

    return replace(fine, tokens=times(fine.tokens), levels=[times(level) for level in fine.levels])


def unencoded_cues(chooser: Chooser, call: Call) -> list[Cues]:
    """What is known of cells before any is encoded."""
    adapter, stem, trained = chooser.adapter_for(call.mode), chooser.stem, chooser.layer.trained
    layout = adapter.layout(call.inputs)
    looks, guided = untaught(chooser, call, call.gestalt, layout)
    gestalt = means = cells = None
    if call.mode.gestalt or (stem is None and trained):
        gestalt = gestalt_of(chooser, call, call.gestalt)
        means = [gestalt.cell_tokens(image).float().mean(0) for image in range(len(layout.grids))]
    if trained and stem is not None:
        cells = stem_cells(chooser, call, stem, layout, gestalt)
    elif trained and gestalt is not None:
        cells = [
            stretch(gestalt.cell_tokens(i).T.unflatten(1, gestalt.grids[i][1:]), grid[1:]).flatten(1).T
            for i, grid in enumerate(layout.grids)
        ]
    return gather(
        adapter,
        chooser.layer,
        call.inputs,
        call.encoded,
        layout,
        call.watch,
        cells=cells,
        gestalt=means,
        coupling=looks,
        guided=guided,
        frames=call.frames,
        coarse=partial(coarse_maps, chooser, call),
    )


def stem_cells(
    chooser: Chooser, call: Call, stem: Stem, layout: Layout, gestalt: VisualFeatures | None
) -> list[Tensor]:
    """Per image the cells [N, D] as a stem sees them, over a gestalt if there is one; made once."""
    adapter, stems = chooser.adapter_for(call.mode), call.encoded.stems
    with call.watch("scoring"):
        if gestalt is None:
            return stem_tokens(adapter, stem, call.inputs, call.encoded)
        if call.gestalt not in stems:
            views = zip(pictures(adapter, call.inputs, call.encoded), layout.grids, strict=True)
            stems[call.gestalt] = [
                stem(picture[None], grid[1:], coarse_map(gestalt, image))[0]
                for image, (picture, grid) in enumerate(views)
            ]
    return stems[call.gestalt]


def coarse_map(gestalt: VisualFeatures, image: int) -> Tensor:
    """The gestalt of one image on its own grid: [1, D, h, w]."""
    return gestalt.cell_tokens(image).T.unflatten(1, gestalt.grids[image][1:])[None]


def coarse_alone(chooser: Chooser, call: Call) -> Prepared:
    """The gestalt in place of every image; tokens that are no cell stay."""
    adapter = chooser.adapter_for(call.mode)
    gestalt = gestalt_of(chooser, call, call.gestalt)
    features = call.encoded.features
    layout = adapter.layout(call.inputs) if features is None else features.layout
    none = [torch.zeros(0, dtype=torch.long, device=cells.device) for cells in layout.cells]
    rest = (
        adapter.other_tokens(call.inputs, layout)
        if features is None
        else features.select(features.tokens_to_keep(none))
    )
    compacted = adapter.assemble(call.inputs, layout, none, rest, gestalt, use_cache=call.use_cache)
    read = [len(tokens) + (0 if rest is None else rest.counts[i]) for i, tokens in enumerate(gestalt.tokens)]
    allocations = [everything_kept(grid) for grid in call.spaces(gestalt.grids)]
    read, sizes = call.of_visuals(read), call.of_visuals([len(cells) for cells in layout.cells])
    return Prepared(adapter.model, compacted, allocations, False, call.mode.name, read, sizes)
