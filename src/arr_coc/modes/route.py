"""The route of a call: from processor inputs to the base model's input, as its mode says.

    call = new_call(chooser, inputs, mode, budget)     checked, clips as frames (`modes.request`)
    prepare(chooser, call) -> Prepared                 encode, choose, drop

    full, prune, weight     encode all N cells -> choose -> keep K (or scale N)
    sparse, saccade         choose from pixels -> encode K cells alone, behind a coarse view in saccade
    compress                the coarse view alone

Law: if choosing fails, the answer still comes, from all tokens and with a note; unless `strict`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arr_coc.choose.attending import Budget
from arr_coc.choose.budget import (
    AUTO,
)
from arr_coc.modes.call import Call, Chooser, EncodedImages, Prepared, guarded, logger
from arr_coc.modes.magnify import (
    cells_at,
    fine_cells,
    finer_grid,
    scale_of,
    scales_of,
    tokens_of,
)
from arr_coc.modes.mode import PRUNE, Mode
from arr_coc.modes.notes import joined, note_of_call, small_images
from arr_coc.modes.request import covering, reads_crops, resolve
from arr_coc.modes.scoring import (
    changes_for,
    check_mode,
    cues_of,
    encoded_features,
    gestalt_of,
    note_foreign,
    pictures,
    texts_of,
)
from arr_coc.relevance.deciding import Cues, Decision, best_kept, decide, everything_kept, groups, weigh
from arr_coc.seam.assembly import Grid, Layout, VisualFeatures, without_crops
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.lora import PARTIAL
from arr_coc.seam.pixels import reading_pixels

SACCADE_TOKENS = 529  # visual tokens of an image in mode "saccade": 256 of the gestalt and 273 cells


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Build the base model's input for a call: encode images, choose cells, drop the others.

    Raises:
        ValueError: a bad budget or set of cells, a coverage that isn't calibrated, or a prompt that doesn't
            match its images.
    """
    chooser, call = covering(chooser, call)
    resolved, substituted = resolve(chooser, call)
    if substituted is not None:
        logger.warning(substituted)
    mode = resolved.mode
    check_mode(chooser.layer, mode)
    prepared = _run(chooser, resolved)
    own_view = resolved.gestalt != call.gestalt and reads_crops(chooser.adapter, mode)
    return replace(prepared, note=note_of_call(chooser, call, prepared, mode, substituted, own_view))


def _run(chooser: Chooser, call: Call) -> Prepared:
    mode = call.mode
    if mode.coarse:
        return coarse_alone(chooser, call)
    if mode.gestalt and mode.before_encoder:
        return saccade(chooser, call)
    if mode.before_encoder:
        return before_encoding(chooser, call, [call.budgets(size) for size in call.sizes])
    return after_encoding(chooser, call)


# Choosing cells.


def choose(
    chooser: Chooser,
    call: Call,
    layout: Layout,
    budgets: Sequence[Budget | None],
    most: Sequence[int | None] = (),
) -> Decision | None:
    """Choose the kept cells, or the weights, of each image or clip; None if choosing failed.

    Per image or clip: `budgets` (None: keep all cells) and `most`, the most cells that may be kept.
    """

    def decision() -> Decision:
        if call.keep:
            return _named_cells(call, layout)
        if all(budget is None for budget in budgets):
            return Decision([everything_kept(grid) for grid in call.spaces(layout.grids)])
        if call.mode.score is not None:
            return _own_scores(chooser, call, layout, budgets)
        cues = cues_of(chooser, call, layout)
        changes = changes_for(chooser, call, layout)
        with call.watch("scoring"):
            if call.mode.scales:
                decided = weigh(chooser.layer, cues, layout.grids, changes)
            else:
                decided = decide(chooser.layer, cues, layout.grids, budgets, changes, call.rule, most)
        return note_foreign(chooser, call, decided)

    return guarded(chooser, decision)


def _named_cells(call: Call, layout: Layout) -> Decision:
    """Return the decision that keeps the cells a call names, in the order of the call."""
    allocations = []
    for cells, grid in zip(call.keep, layout.grids, strict=True):
        scores = torch.zeros(grid)
        # falling scores, so that the best kept are these cells in this order
        scores.view(-1)[cells.cpu()] = torch.linspace(1.0, 0.5, len(cells))
        allocations.append(best_kept(grid, scores, int((scores > 0).sum())))
    return Decision(allocations)


def _own_scores(chooser: Chooser, call: Call, layout: Layout, budgets: Sequence[Budget | None]) -> Decision:
    """Decide by the mode's own scoring function (`Mode.score`)."""
    assert call.mode.score is not None
    adapter, spaces = call.adapter, call.spaces(layout.grids)
    frames = call.frames or (1,) * len(spaces)
    views = groups(list(pictures(adapter, call.inputs, call.encoded)), frames)
    texts = texts_of(adapter, call, layout) or [""] * len(layout.grids)
    questions = [own[0] for own in groups(texts, frames)]
    return Decision(
        [
            best_kept(grid, call.mode.score(list(view), question, grid), budget)
            for grid, view, question, budget in zip(spaces, views, questions, budgets, strict=True)
        ]
    )


def cues_for(chooser: Chooser, call: Call) -> list[Cues]:
    """Return what the layer reads about each image (`Cues`): texture, question embeddings, cell features.

    Raises:
        ValueError: the mode scores nothing, or "saccade" keeps all cells because there are so few.
    """
    mode, adapter = call.mode, call.adapter
    if not mode.scores:
        raise ValueError(f"mode {mode.name!r} scores nothing of this image; use 'prune' or 'weight'")
    if not mode.before_encoder:
        return cues_of(chooser, call, encoded_features(chooser, call).layout)
    cells, most = max(call.sizes), most_unreduced(adapter)
    if mode.gestalt and cells <= most and call.magnify == 1:  # magnified, small images have a coarse view too
        raise ValueError(
            f"mode {mode.name!r} scores nothing of this image: it has {cells} cells, and up to {most} "
            "all are kept; use 'prune' or 'weight'"
        )
    return cues_of(chooser, call, call.layout)


# Modes that encode every cell.


def after_encoding(chooser: Chooser, call: Call) -> Prepared:
    """Build the base model's input in modes that encode every cell and then choose among the encoded ones."""
    features = encoded_features(chooser, call)
    if call.mode.stock:
        return everything(chooser, call)
    sizes = call.of_visuals([len(cells) for cells in features.cells])
    decision = choose(chooser, call, features.layout, [call.budgets(size) for size in sizes])
    if decision is None:
        return everything(chooser, call, fallback=True)
    return dropped(chooser, call, features, decision)


def everything(chooser: Chooser, call: Call, fallback: bool = False) -> Prepared:
    """Build the base model's input with every cell; `fallback` marks that choosing had failed."""
    features = encoded_features(chooser, call)
    every = Decision([everything_kept(grid) for grid in call.spaces(features.grids)], fallback=fallback)
    return dropped(chooser, call, features, every)


def dropped(chooser: Chooser, call: Call, features: VisualFeatures, decision: Decision) -> Prepared:
    """Build the base model's input from encoded cells: the prompt less the cells that a decision drops."""
    adapter = call.adapter
    if decision.gates is not None:
        features = features.scale(decision.gates)
    keep = [index.to(cells.device) for index, cells in zip(decision.keep, features.cells, strict=True)]
    compacted = adapter.compact(call.inputs, features, keep, use_cache=call.use_cache)
    return Prepared(
        adapter.model,
        compacted,
        decision.allocations,
        decision.fallback,
        call.mode.name,
        call.of_visuals([len(index) for index in features.tokens_to_keep(keep)]),
        call.of_visuals([len(index) for index in features.cells]),
        couplings=decision.couplings,
    )


# Modes that choose before the encoder.


def before_encoding(
    chooser: Chooser, call: Call, budgets: Sequence[Budget | None], gestalt: VisualFeatures | None = None
) -> Prepared:
    """Choose cells, encode those alone, and put them into the prompt, behind a coarse view if given.

    `budgets` count visual tokens, one entry per image or clip; None keeps all cells. Magnified cells cost
    several tokens each, so fewer are kept.
    """
    adapter, layout = call.adapter, call.layout
    scales, lacks = magnification(call, layout, budgets)
    magnified = any(scale > 1 for scale in scales)
    allowed, most = (cells_at(call.magnify, scales, budgets, layout.sizes)) if magnified else (budgets, ())
    decision = choose(chooser, call, layout, allowed, most)
    if decision is None:  # all tokens, as mode "prune" encodes and reads them
        plain = without_crops(call.inputs)
        stock = chooser.adapter_for(PRUNE)
        call = replace(call, inputs=plain, mode=PRUNE, adapter=stock, encoded=EncodedImages())
        return everything(chooser, call, fallback=True)
    if gestalt is not None and not any(gestalt.counts):
        gestalt = None
    coarse = [0] * len(layout.grids) if gestalt is None else gestalt.counts
    finer = None
    if magnified:
        decision, finer = on_finer_grids(call, decision, scales, budgets)
    keep = [index.to(layout.cells[0].device) for index in (decision.keep if finer is None else finer.keep)]
    with call.watch("encode"), reading_pixels(adapter.model.config.model_type):
        inputs, sizes = (call.inputs, layout.sizes) if finer is None else (finer.inputs(call), finer.sizes)
        fine = encode_parts(chooser, call.mode, inputs, keep, sizes)
    if finer is None:
        if decision.gates is not None:
            fine = gated(fine, layout, keep, decision.gates)
        compacted = adapter.assemble(call.inputs, layout, keep, fine, gestalt, use_cache=call.use_cache)
        tiles = adapter.views_encoded(call.inputs, keep)
        if tiles is not None:
            lacks = joined(f"cells are encoded by whole tiles: {tiles[0]} of {tiles[1]} were", lacks)
    else:
        compacted = adapter.assemble_finer(
            call.inputs, layout, keep, finer.grids, fine, gestalt, use_cache=call.use_cache
        )
    return Prepared(
        adapter.model,
        compacted,
        decision.allocations,
        False,
        call.mode.name,
        call.of_visuals([few + more for few, more in zip(fine.counts, coarse, strict=True)]),
        call.sizes,
        note=lacks,
        couplings=decision.couplings,
        magnified=() if finer is None else tuple(map(scale_of, layout.grids, finer.grids)),
    )


def magnification(
    call: Call, layout: Layout, budgets: Sequence[Budget | None]
) -> tuple[list[float], str | None]:
    """Return by how much each image's kept cells are magnified (1: not at all), and a note if they aren't."""
    if call.magnify == 1:
        return [1.0] * len(layout.grids), None
    adapter, encoded = call.adapter, call.encoded
    lacks: str | None = "clips are read at one scale"
    if not call.frames:
        if encoded.unrefined is None:  # pictures are compared once
            with reading_pixels(adapter.model.config.model_type):
                encoded.unrefined = (adapter.lacks_finer(call.inputs, encoded.sources),)
        (lacks,) = encoded.unrefined
    if lacks is not None:
        return [1.0] * len(layout.grids), f"magnify had no effect: {lacks}"
    return scales_of(call.magnify, encoded.sources or (), layout.grids, budgets, adapter.cell_px), None


class FinerCells(NamedTuple):
    """Kept cells read from the user's original pictures, on grids finer than the model's own."""

    grids: list[Grid]  # per image
    keep: list[Tensor]  # long [K'] of each

    @property
    def sizes(self) -> list[int]:
        """The number of cells of each finer grid."""
        return [t * h * w for t, h, w in self.grids]

    def inputs(self, call: Call) -> Mapping[str, Any]:
        """Return the call's inputs with the pixels of the finer grids."""
        return {**call.inputs, **call.adapter.finer(call.inputs, call.encoded.sources or (), self.grids)}


def on_finer_grids(
    call: Call, decision: Decision, scales: Sequence[float], budgets: Sequence[Budget | None]
) -> tuple[Decision, FinerCells]:
    """Return a decision and its kept cells magnified by `scales`, with the budgets that the call named."""
    allocations = [
        replace(allocation, budget=allocation.budget if budget is None else budget)
        for allocation, budget in zip(decision.allocations, budgets, strict=True)
    ]
    tokens = [tokens_of(budget, size) for budget, size in zip(budgets, call.sizes, strict=True)]
    if call.keep and call.magnify != AUTO:  # named cells, at a named scale
        tokens = [None] * len(tokens)
    grids = [finer_grid(*row) for row in zip(allocations, scales, tokens, strict=True)]
    keep = [fine_cells(*row) for row in zip(allocations, grids, strict=True)]
    return replace(decision, allocations=allocations), FinerCells(grids, keep)


def encode_parts(
    chooser: Chooser, mode: Mode, inputs: Mapping[str, Any], keep: Sequence[Tensor], sizes: Sequence[int]
) -> VisualFeatures:
    """Encode the kept cells alone; `keep` is long [K] per image, `sizes` the number of cells of each.

    The LoRA for parts, trained with 64 to 273 of up to 1024 cells, is used on images of which less than half
    is kept. With all cells of an image kept its tokens are those of the stock tower, bit for bit.
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


def gated(
    fine: VisualFeatures, layout: Layout, keep: Sequence[Tensor], gates: Sequence[Tensor]
) -> VisualFeatures:
    """Multiply the kept cells' tokens by gates [N_i], at every level; leave other tokens unchanged."""
    kept = layout.tokens_to_keep(keep)
    # [K_i, 1] each: a cell's gate, 1 at tokens that are no cell (separators, newlines)
    factors = [
        gate.new_ones(count).index_copy(0, cells, gate)[index][:, None]
        for count, cells, gate, index in zip(layout.counts, layout.cells, gates, kept, strict=True)
    ]

    def times(images: list[Tensor]) -> list[Tensor]:
        return [tokens * factor.to(tokens) for tokens, factor in zip(images, factors, strict=True)]

    return replace(fine, tokens=times(fine.tokens), levels=[times(level) for level in fine.levels])


def coarse_alone(chooser: Chooser, call: Call) -> Prepared:
    """Build the base model's input with a coarse view (gestalt) in place of every image's cells."""
    adapter = call.adapter
    gestalt = gestalt_of(chooser, call, call.gestalt)
    features = call.encoded.features
    layout = call.layout if features is None else features.layout
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


# Saccade: a gestalt of 256 tokens, and 273 fine cells chosen for the question. An image of at most 529
# cells stays as it is; the frames of a clip share both. In a family whose tower reads one square view (LLaVA
# 1.5: 576 tokens) that view is the gestalt, and the 273 are cells of finer crops of the picture.


def saccade(chooser: Chooser, call: Call) -> Prepared:
    """Build the base model's input from a coarse view and fine cells chosen before they are encoded."""
    adapter = call.adapter
    sizes, most = call.sizes, most_unreduced(adapter)
    frames = call.frames or (1,) * len(sizes)
    small = [size <= most for size, count in zip(sizes, frames, strict=True) for _ in range(count)]
    lacks = None
    if any(small) and call.magnify != 1:  # a small image whose picture is larger has finer cells
        budgets = [size if call.fill_to_529 else call.budgets(size) for size in sizes]
        scales, lacks = magnification(call, call.layout, budgets)
        small = [few and scale == 1 for few, scale in zip(small, scales, strict=True)]
    whole = sizes if call.frames else [size for size, few in zip(sizes, small, strict=True) if few]
    note = small_images(whole, None if call.fill_to_529 or call.keep else call.budgets, most)
    if all(small):
        prepared = before_encoding(chooser, replace(call, magnify=1.0), [None] * len(sizes))
        return replace(prepared, note=joined(note, prepared.note, lacks))
    gestalt = without(gestalt_of(chooser, call, call.gestalt), small)
    allowed = None if call.fill_to_529 and adapter.encodes != "crops" else call.budgets
    coarse = call.of_visuals(gestalt.counts)
    budgets = [saccades(size, few, allowed) for size, few in zip(sizes, coarse, strict=True)]
    prepared = before_encoding(chooser, call, budgets, gestalt)
    return replace(prepared, note=joined(note, prepared.note))


def most_unreduced(adapter: FamilyAdapter) -> int:
    """Return up to how many cells an image is read whole in `saccade`, without a coarse view."""
    return adapter.view_cells if adapter.encodes == "crops" else SACCADE_TOKENS


def saccades(cells: int, coarse: int, budgets: Any) -> Budget | None:
    """Return how many fine cells are kept beside a coarse view of `coarse` tokens; None (all) without one.

    `budgets` is a call's; None: SACCADE_TOKENS in all, and ValueError if the view leaves none of them.
    """
    if not coarse:
        return None
    if budgets is not None:
        return budgets(cells)
    if coarse >= SACCADE_TOKENS:
        raise ValueError(
            f"the gestalt makes {coarse} tokens of an image of {cells} cells, which leaves none of "
            f"{SACCADE_TOKENS} for saccades; use gestalt 'resize', or give a budget of saccades"
        )
    return SACCADE_TOKENS - coarse


def without(gestalt: VisualFeatures, drop: Sequence[bool]) -> VisualFeatures:
    """Return a coarse view (gestalt) with the tokens of the images marked in `drop` removed."""
    if not any(drop):
        return gestalt
    kept = [cells[: 0 if dropped else None] for cells, dropped in zip(gestalt.cells, drop, strict=True)]
    grids = [(0, 0, 0) if dropped else grid for grid, dropped in zip(gestalt.grids, drop, strict=True)]
    return replace(gestalt.select(kept), grids=grids, cells=kept)
