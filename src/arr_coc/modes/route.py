"""The route of a call: a mode carried out, from processor inputs to the base model's input.

    call = new_call(chooser, inputs, mode, budget)     checked, clips as frames
    prepare(chooser, call) -> Prepared                 encode, choose, drop

    full, prune, weight     encode all N cells -> choose -> keep K (or scale N)
    sparse, saccade         choose from pixels -> encode K cells alone, behind a coarse view in saccade
    compress                the coarse view alone

Law: if choosing fails, the answer still comes, from all tokens and with a note; unless `strict`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from arr_coc.choose.attending import Budget
from arr_coc.choose.budget import (
    AUTO,
    COVERAGE,
    DEFAULT_BUDGET,
    budget_count,
    budget_of,
    check_budget,
    coverage_share,
    parse_budget,
)
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.files.images import ImageSource, open_image
from arr_coc.guide.coupling import GUIDE
from arr_coc.guide.trust import is_transcription
from arr_coc.modes.call import Call, Chooser, EncodedImages, Prepared, guarded, joined, logger
from arr_coc.modes.magnify import (
    cells_to_choose,
    fine_cells,
    finer_grid,
    parse_magnify,
    scale_of,
    scales_of,
    tokens_of,
)
from arr_coc.modes.mode import FULL, MODES, PRUNE, SPARSE, Mode, find_mode
from arr_coc.modes.scoring import (
    changes_for,
    check_mode,
    cues_of,
    deciding_layer,
    default_gestalt,
    encoded_features,
    gestalt_of,
    note_foreign,
    pictures,
    texts_of,
)
from arr_coc.relevance.coverage import coverage_rule
from arr_coc.relevance.deciding import Cues, Decision, best_kept, decide, everything_kept, groups, weigh
from arr_coc.seam.assembly import Layout, VisualFeatures, without_crops
from arr_coc.seam.base import FamilyAdapter, as_frames
from arr_coc.seam.clips import clip_step_times
from arr_coc.seam.decoding import check_inputs
from arr_coc.seam.gestalt import find_compressor
from arr_coc.seam.lora import COARSE, PARTIAL
from arr_coc.seam.pixels import reading_pixels

# Raster indices [K] of one image's cells, or of those of each of several images.
NamedCells: TypeAlias = "Sequence[int] | Tensor | Sequence[Sequence[int] | Tensor]"
SACCADE_TOKENS = 529  # visual tokens of an image in mode "saccade": 256 of the gestalt and 273 cells
TRANSCRIBED = (
    "the question is about all that is printed, so all tokens were read; transcribe() reads part after part"
)
PARTLY_READ = (
    "the question is about all that is printed, and only a part was read: name neither mode nor budget"
)


def new_call(
    chooser: Chooser,
    inputs: Mapping[str, Any],
    mode: Mode,
    budget: Budget | None = None,
    *,
    gestalt: str | None = None,
    watch: Stopwatch | None = None,
    encoded: EncodedImages | None = None,
    pictures: Sequence[ImageSource] | None = None,
    **more: Any,
) -> Call:
    """The checked call of processor inputs, with the frames of clips as images.

    `budget` None is the chooser's, `gestalt` None the family's default. `encoded` holds what is computed of
    these images already, and is filled in; the guide and crops read `pictures`; `more` are further fields of
    `Call`.

    Raises:
        ValueError: a bad budget, an unknown gestalt, inputs that don't fit the family, or `pictures` that are
            not the prompt's.
    """
    adapter = chooser.adapter
    check_budget(budget)  # before any work is done
    scale = more.get("magnify", 1)
    if scale != 1 or isinstance(scale, bool):
        more["magnify"] = parse_magnify(scale)
    check_inputs(adapter, inputs)
    framed, frames = as_frames(adapter, inputs)
    if gestalt is not None:
        find_compressor(gestalt)
    return Call(
        framed,
        mode,
        adapter,
        gestalt or default_gestalt(adapter, reads_crops(adapter, mode)),
        with_pictures(adapter, framed, pictures, encoded or EncodedImages(), frames),
        watch or Stopwatch(adapter.model.device),
        partial(budget_of, chooser.budget, budget),
        budget,
        fill_to_529=budget is None and chooser.budget == DEFAULT_BUDGET,
        frames=frames,
        times=clip_step_times(adapter, inputs, frames) if frames else (),
        named_gestalt=gestalt is not None,
        **more,
    )


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """The base model's input for a call: images encoded, cells chosen, the others dropped.

    Raises:
        ValueError: a bad budget or set of cells, a coverage that isn't calibrated, or a prompt that
            doesn't match its images.
    """
    chooser, call = covering(chooser, call)
    resolved, substituted = resolve(chooser, call)
    if substituted is not None:
        logger.warning(substituted)
    mode = resolved.mode
    check_mode(chooser.layer, mode)
    prepared = _run(chooser, resolved)
    own_view = resolved.gestalt != call.gestalt and reads_crops(chooser.adapter, mode)
    note = joined(
        substituted,
        prepared.note,
        f"gestalt {call.gestalt} had no effect: the coarse view is the model's own" if own_view else None,
        f"magnify had no effect in mode {mode.name}"
        if call.magnify != 1 and not mode.before_encoder
        else None,
        remarks(chooser, call, prepared),
    )
    return replace(prepared, note=note)


def covering(chooser: Chooser, call: Call) -> tuple[Chooser, Call]:
    """The parts and the call; where its budget is a coverage, what is calibrated chooses, by its rule.

    In place of "auto" that is the guide alone.

    Raises:
        ValueError: clips, a mode with scores of its own, or a source without calibration.
    """
    budget = chooser.budget if call.budget is None else call.budget
    share = coverage_share(parse_budget(budget)) if isinstance(budget, str) else None
    if share is None or call.keep or not call.mode.chooses:
        return chooser, call
    if call.frames:
        raise ValueError("a coverage is calibrated for pictures alone: give a budget for a clip")
    source = None if chooser.relevance == "trained" or call.mode.score is not None else chooser.source
    if source is None:
        what = f"relevance {chooser.relevance!r}" if call.mode.score is None else f"mode {call.mode.name!r}"
        raise ValueError(f"coverage isn't calibrated for {what}: use relevance 'auto', or a budget")
    rule = coverage_rule(source, share)
    if chooser.relevance == "auto":
        chooser = replace(chooser, relevance=GUIDE, layer=deciding_layer(chooser.layer, GUIDE))
    return chooser, replace(call, rule=rule)


def resolve(chooser: Chooser, call: Call) -> tuple[Call, str | None]:
    """The call as this family can run it: its mode, adapter, crops and gestalt; and why another mode runs.

    Raises:
        ValueError: cells named for another image, or pictures that aren't those of the prompt.
    """
    adapter, lacks = chooser.adapter, None
    if reads_crops(adapter, call.mode):
        call, lacks = with_crops(adapter, call)
    if call.keep:
        check_cells(adapter, call)
    mode, substituted = runs_as(adapter, call.mode)
    if lacks is not None:
        mode, substituted = MODES[mode.instead], f"{mode.name} ran as {mode.instead}: {lacks}"
    gestalt = gestalt_for(adapter, mode, call.gestalt)
    return replace(call, mode=mode, adapter=chooser.adapter_for(mode), gestalt=gestalt), substituted


def _run(chooser: Chooser, call: Call) -> Prepared:
    mode = call.mode
    if mode.coarse:
        return coarse_alone(chooser, call)
    if mode.gestalt and mode.before_encoder:
        return saccade(chooser, call)
    if mode.before_encoder:
        layout = call.adapter.layout(call.inputs)
        budgets = [call.budgets(count) for count in call.of_visuals(layout.sizes)]
        return before_encoding(chooser, call, layout, budgets)
    return after_encoding(chooser, call)


# Choosing cells.


def choose(
    chooser: Chooser,
    call: Call,
    layout: Layout,
    budgets: Sequence[Budget | None],
    most: Sequence[int | None] = (),
) -> Decision | None:
    """The kept cells, or weights, of each image or clip; None where deciding failed.

    `budgets` are per image or clip (None keeps all of its cells), and `most` the most that they may keep.
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
    """The decision for cells that a call names, in their order there."""
    allocations = []
    for cells, grid in zip(call.keep, layout.grids, strict=True):
        scores = torch.zeros(grid)
        # falling scores, so that the best kept are these cells in this order
        scores.view(-1)[cells.cpu()] = torch.linspace(1.0, 0.5, len(cells))
        allocations.append(best_kept(grid, scores, int((scores > 0).sum())))
    return Decision(allocations)


def _own_scores(chooser: Chooser, call: Call, layout: Layout, budgets: Sequence[Budget | None]) -> Decision:
    """The decision by a mode's own scores (`Mode.score`)."""
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
    """The `Cues` of each image of a resolved call: texture, question embeddings and any cell features.

    Raises:
        ValueError: the mode scores nothing, or "saccade" keeps all cells because there are so few.
    """
    mode, adapter = call.mode, call.adapter
    if not mode.scores:
        raise ValueError(f"mode {mode.name!r} scores nothing of this image; use 'prune' or 'weight'")
    if not mode.before_encoder:
        return cues_of(chooser, call, encoded_features(chooser, call).layout)
    layout = adapter.layout(call.inputs)
    cells, most = max(call.of_visuals(layout.sizes)), most_unreduced(adapter)
    if mode.gestalt and cells <= most and call.magnify == 1:  # magnified, small images have a coarse view too
        raise ValueError(
            f"mode {mode.name!r} scores nothing of this image: it has {cells} cells, and up to {most} "
            "all are kept; use 'prune' or 'weight'"
        )
    return cues_of(chooser, call, layout)


# Modes that encode every cell.


def after_encoding(chooser: Chooser, call: Call) -> Prepared:
    """The base model's input where every cell is encoded and the choice is by encoded cells."""
    features = encoded_features(chooser, call)
    if call.mode.stock:
        return everything(chooser, call)
    sizes = call.of_visuals([len(cells) for cells in features.cells])
    decision = choose(chooser, call, features.layout, [call.budgets(size) for size in sizes])
    if decision is None:
        return everything(chooser, call, fallback=True)
    return dropped(chooser, call, features, decision)


def everything(chooser: Chooser, call: Call, fallback: bool = False) -> Prepared:
    """The base model's input with every cell encoded and kept."""
    features = encoded_features(chooser, call)
    every = Decision([everything_kept(grid) for grid in call.spaces(features.grids)], fallback=fallback)
    return dropped(chooser, call, features, every)


def dropped(chooser: Chooser, call: Call, features: VisualFeatures, decision: Decision) -> Prepared:
    """The prompt without the cells that a decision does not keep."""
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
    chooser: Chooser,
    call: Call,
    layout: Layout,
    budgets: Sequence[Budget | None],
    gestalt: VisualFeatures | None = None,
) -> Prepared:
    """Choose, encode the kept cells alone, and put them into the prompt, behind a coarse view if given.

    `budgets` are per image or clip; None keeps all of its cells.
    """
    adapter = call.adapter
    scales, lacks = magnification(call, layout, budgets)
    if any(scale > 1 for scale in scales):
        return magnified(chooser, call, layout, budgets, gestalt, scales)
    decision = choose(chooser, call, layout, budgets)
    if decision is None:  # all tokens, as mode "prune" encodes and reads them
        plain = without_crops(call.inputs)
        stock = chooser.adapter_for(PRUNE)
        call = replace(call, inputs=plain, mode=PRUNE, adapter=stock, encoded=EncodedImages())
        return everything(chooser, call, fallback=True)
    keep = [index.to(layout.cells[0].device) for index in decision.keep]
    with call.watch("encode"), reading_pixels(adapter.model.config.model_type):
        fine = encode_parts(chooser, call.mode, call.inputs, keep, layout.sizes)
    if decision.gates is not None:
        fine = gated(fine, layout, keep, decision.gates)
    if gestalt is not None and not any(gestalt.counts):
        gestalt = None
    compacted = adapter.assemble(call.inputs, layout, keep, fine, gestalt, use_cache=call.use_cache)
    coarse = [0] * len(keep) if gestalt is None else gestalt.counts
    tiles = adapter.views_encoded(call.inputs, keep)
    parts = None if tiles is None else f"cells are encoded by whole tiles: {tiles[0]} of {tiles[1]} were"
    return Prepared(
        adapter.model,
        compacted,
        decision.allocations,
        False,
        call.mode.name,
        call.of_visuals([few + more for few, more in zip(fine.counts, coarse, strict=True)]),
        call.of_visuals(layout.sizes),
        note="; ".join(filter(None, (parts, lacks))) or None,
        couplings=decision.couplings,
    )


def magnification(
    call: Call, layout: Layout, budgets: Sequence[Budget | None]
) -> tuple[list[float], str | None]:
    """How much each image's kept cells are magnified, 1 for not at all, and a note on why not."""
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


def magnified(
    chooser: Chooser,
    call: Call,
    layout: Layout,
    budgets: Sequence[Budget | None],
    gestalt: VisualFeatures | None,
    scales: Sequence[float],
) -> Prepared:
    """As `before_encoding`, with kept cells encoded from the user's pictures, at `scales` times the px.

    `budgets` count visual tokens: as many fewer cells are kept as each of them is read in more tokens.
    """
    adapter, sizes = call.adapter, layout.sizes
    rows = zip(scales, budgets, sizes, strict=True)
    cells, most = zip(*(cells_to_choose(call.magnify, *row) for row in rows), strict=True)
    decision = choose(chooser, call, layout, cells, most)
    if decision is None:
        return before_encoding(chooser, replace(call, magnify=1.0), layout, budgets, gestalt)
    allocations = [
        replace(allocation, budget=allocation.budget if budget is None else budget)
        for allocation, budget in zip(decision.allocations, budgets, strict=True)
    ]
    tokens = [tokens_of(budget, size) for budget, size in zip(budgets, sizes, strict=True)]
    if call.keep and call.magnify != AUTO:  # named cells, at a named scale
        tokens = [None] * len(sizes)
    grids = [finer_grid(*row) for row in zip(allocations, scales, tokens, strict=True)]
    keep = [fine_cells(*row).to(layout.cells[0].device) for row in zip(allocations, grids, strict=True)]
    with call.watch("encode"), reading_pixels(adapter.model.config.model_type):
        finer = {**call.inputs, **adapter.finer(call.inputs, call.encoded.sources or (), grids)}
        counts = [t * h * w for t, h, w in grids]
        fine = encode_parts(chooser, call.mode, finer, keep, counts)
    if gestalt is not None and not any(gestalt.counts):
        gestalt = None
    compacted = adapter.assemble_finer(
        call.inputs, layout, keep, grids, fine, gestalt, use_cache=call.use_cache
    )
    coarse = [0] * len(keep) if gestalt is None else gestalt.counts
    return Prepared(
        adapter.model,
        compacted,
        allocations,
        False,
        call.mode.name,
        [few + more for few, more in zip(fine.counts, coarse, strict=True)],
        sizes,
        couplings=decision.couplings,
        magnified=tuple(scale_of(*pair) for pair in zip(layout.grids, grids, strict=True)),
    )


def encode_parts(
    chooser: Chooser, mode: Mode, inputs: Mapping[str, Any], keep: Sequence[Tensor], sizes: Sequence[int]
) -> VisualFeatures:
    """The kept cells encoded alone; `keep` is long [K] per image, `sizes` its number of cells.

    The LoRA for parts, trained with 64 to 273 of up to 1024 cells, works on images of which less than half is
    kept. Each image goes by its own share; with all cells kept the tokens are the stock tower's bit for bit.
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
    """The kept tokens, cells multiplied by gates [N_i] at every level; other tokens are unchanged."""
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
    """The base model's input with a gestalt (coarse view) in place of every image's cells."""
    adapter = call.adapter
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


# Saccade: a gestalt of 256 tokens, and 273 fine cells chosen for the question. An image of at most 529
# cells stays as it is; the frames of a clip share both. In a family whose tower reads one square view (LLaVA
# 1.5: 576 tokens) that view is the gestalt, and the 273 are cells of finer crops of the picture.


def saccade(chooser: Chooser, call: Call) -> Prepared:
    """Make the coarse view, choose fine cells before they are encoded, encode those alone."""
    adapter = call.adapter
    layout = adapter.layout(call.inputs)
    sizes, most = call.of_visuals(layout.sizes), most_unreduced(adapter)
    frames = call.frames or (1,) * len(sizes)
    small = [size <= most for size, count in zip(sizes, frames, strict=True) for _ in range(count)]
    lacks = None
    if any(small) and call.magnify != 1:  # a small image whose picture is larger has finer cells
        budgets = [size if call.fill_to_529 else call.budgets(size) for size in sizes]
        scales, lacks = magnification(call, layout, budgets)
        small = [few and scale == 1 for few, scale in zip(small, scales, strict=True)]
    whole = sizes if call.frames else [size for size, few in zip(sizes, small, strict=True) if few]
    note = small_images(whole, None if call.fill_to_529 or call.keep else call.budgets, most)
    if all(small):
        prepared = before_encoding(chooser, replace(call, magnify=1.0), layout, [None] * len(sizes))
        return replace(prepared, note=joined(note, prepared.note, lacks))
    gestalt = without(gestalt_of(chooser, call, call.gestalt), small)
    allowed = None if call.fill_to_529 and adapter.encodes != "crops" else call.budgets
    coarse = call.of_visuals(gestalt.counts)
    budgets = [saccades(size, few, allowed) for size, few in zip(sizes, coarse, strict=True)]
    prepared = before_encoding(chooser, call, layout, budgets, gestalt)
    return replace(prepared, note=joined(note, prepared.note))


def most_unreduced(adapter: FamilyAdapter) -> int:
    """The most cells of an image that has no coarse view and keeps all of them."""
    return adapter.view_cells if adapter.encodes == "crops" else SACCADE_TOKENS


def small_images(sizes: Sequence[int], budgets: Any, most: int) -> str | None:
    """A note on images of at most `most` cells that keep all of them under a smaller budget, or None."""
    if budgets is None:
        return None
    small = [(size, budgets(size)) for size in sizes if size <= most]
    every = [
        str(size) for size, budget in small if isinstance(budget, str) or budget_count(budget, size) < size
    ]
    if not every:
        return None
    return (
        f"saccade kept all {', '.join(every)} cells whatever the budget: images of at most {most} "
        "cells have no coarse view and are read whole; use sparse or prune for fewer"
    )


def saccades(cells: int, coarse: int, budgets: Any) -> Budget | None:
    """How many cells are kept beside a gestalt (coarse view) of `coarse` tokens; None: all, where that is 0.

    `budgets` is a call's; None: SACCADE_TOKENS in all, a ValueError where the gestalt leaves none of them.
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
    """A gestalt (coarse view) in which the images marked in `drop` have no token."""
    if not any(drop):
        return gestalt
    kept = [cells[: 0 if dropped else None] for cells, dropped in zip(gestalt.cells, drop, strict=True)]
    grids = [(0, 0, 0) if dropped else grid for grid, dropped in zip(gestalt.grids, drop, strict=True)]
    return replace(gestalt.select(kept), grids=grids, cells=kept)


# Which mode runs, and with which coarse view.


def mode_for_question(
    chooser: Chooser, question: str, mode: str | None, free: bool
) -> tuple[str | None, str | None]:
    """The mode that a question calls for (None: the model's) and a note on it.

    `free`: neither budget nor cells are named; without a mode, questions about all print then get "full".
    """
    reads = isinstance(question, str) and question.strip() and chooser.relevance != "gaze"
    if not reads or not is_transcription(chooser.guide, question):
        return mode, None
    if mode is None and free:
        return FULL.name, TRANSCRIBED
    chooses = mode is None or find_mode(mode).chooses or find_mode(mode).coarse
    return mode, PARTLY_READ if chooses and not free else None


def default_mode(adapter: FamilyAdapter, stem: object | None) -> Mode:
    """The mode of calls that name none: the one that saves most of this model's time.

    "sparse", which spares the vision encoder too, with a trained stem in a family that encodes cells alone;
    else "prune".
    """
    return SPARSE if stem is not None and adapter.encodes == "cells" else PRUNE


def runs_as(adapter: FamilyAdapter, mode: Mode) -> tuple[Mode, str | None]:
    """The mode that runs in this family for a given one, and a note where it is another."""
    tiles = adapter.encodes == "tiles"
    if not mode.before_encoder or adapter.encodes == "cells" or (tiles and not mode.gestalt):
        return mode, None
    if reads_crops(adapter, mode):
        return mode, None
    family = adapter.model.config.model_type
    if tiles:
        return SPARSE, (
            f"{mode.name} ran as {SPARSE.name}: {family} has a coarse view of its own, which always stays"
        )
    return MODES[mode.instead], (
        f"{mode.name} ran as {mode.instead}: the vision tower of {family} can't encode some cells alone, so "
        "all of them were encoded"
    )


def gestalt_for(adapter: FamilyAdapter, mode: Mode, name: str) -> str:
    """The compressor of a mode in this family: "resize" for towers of tiles or crops, else the call's."""
    own = (mode.before_encoder and adapter.encodes == "tiles") or reads_crops(adapter, mode)
    return "resize" if own else name


# The user's pictures, and finer crops of them for families whose tower reads one square view.


def reads_crops(adapter: FamilyAdapter, mode: Mode) -> bool:
    """Whether a mode chooses cells of crops in this family, beside the tower's square view."""
    return adapter.encodes == "crops" and mode.before_encoder and mode.gestalt


def with_crops(adapter: FamilyAdapter, call: Call) -> tuple[Call, str | None]:
    """A call with the crops of its pictures, and why crops are impossible, or None."""
    with call.watch("prompt"):
        crops, lacks = crops_of(adapter, call.inputs, call.encoded)
    return replace(call, inputs={**call.inputs, **crops}), lacks


def crops_of(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], encoded: EncodedImages
) -> tuple[Mapping[str, Tensor], str | None]:
    """The crops of a call's pictures as inputs, made once; ({}, reason) if crops are impossible.

    Raises:
        ValueError: pictures that are not those of the prompt.
    """
    sources = encoded.sources
    lacks = adapter.lacks_crops(inputs, sources)
    if lacks is not None or sources is None:
        return {}, lacks
    if encoded.crops is None:
        encoded.crops = adapter.crops(inputs, sources)
    return encoded.crops, None


def with_pictures(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    pictures: Sequence[ImageSource] | None,
    encoded: EncodedImages,
    frames: Sequence[int] = (),
) -> EncodedImages:
    """A copy of `encoded` with the caller's pictures, which the guide reads at their own resolution.

    Raises:
        ValueError: no list, a wrong number of pictures, an unreadable one, or a prompt with clips.
    """
    if pictures is None:
        return encoded
    if not isinstance(pictures, list | tuple):
        raise ValueError(
            f"pictures is a {type(pictures).__name__}: pass a list of images in the order of the prompt"
        )
    if frames:
        raise ValueError("pictures are passed, and the prompt has clips: leave them out, or ask in a session")
    early = adapter.early_layout
    with reading_pixels(adapter.model.config.model_type):
        images = len(adapter.layout(inputs).grids if early else adapter.patches(inputs, encoded.features))
    if len(pictures) != images:
        raise ValueError(f"{len(pictures)} pictures are passed, and the prompt has {images} images")
    return replace(encoded, sources=[open_image(picture) for picture in pictures], unrefined=None)


# Checks of a call, and notes on arguments without effect.


def sorted_cells(cells: NamedCells | None) -> tuple[Tensor, ...]:
    """Named cells of an image or of each of several, unique and rising; () for None.

    A ValueError for a mask or fractions.
    """
    if cells is None:
        return ()
    if isinstance(cells, (list, tuple)) and cells and all(map(_is_listed, cells)):
        return tuple(_of_one_image(one) for one in cells)
    return (_of_one_image(cells),)


def _is_listed(cells: object) -> bool:
    """Whether these are several cells, not one."""
    return isinstance(cells, (list, tuple)) or (isinstance(cells, Tensor) and cells.ndim > 0)


def _of_one_image(cells: Any) -> Tensor:
    with suppress(TypeError, ValueError, RuntimeError):  # torch can't make a tensor of it
        named = torch.as_tensor(cells)
        fractions = named.numel() > 0 and (named.is_floating_point() or named.is_complex())
        if named.dtype != torch.bool and not fractions:
            return named.long().unique()
    text = " ".join(repr(cells).split())[:60]
    raise ValueError(
        f"cells are {text}: give their numbers in raster order, such as `allocation.keep` or "
        "mask.flatten().nonzero()"
    )


def layout_of(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> Layout:
    """The layout of a prompt's tokens before encoding; a ValueError where the family has none."""
    if adapter.early_layout:
        return adapter.layout(inputs)
    family = adapter.model.config.model_type
    raise ValueError(f"cells of {family} can't be named before all are encoded: ask without cells")


def check_cells(adapter: FamilyAdapter, call: Call) -> None:
    """Raise a ValueError where a call names cells outside its images, or its mode chooses none."""
    if call.frames or not call.mode.chooses:
        what = "a clip" if call.frames else f"mode {call.mode.name!r}"
        raise ValueError(
            f"cells can't be named for {what}: name them for images, in prune, sparse or saccade"
        )
    sizes = [len(cells) for cells in layout_of(adapter, call.inputs).cells]
    if len(sizes) != len(call.keep):
        raise ValueError(f"cells of {len(call.keep)} images are named, and the prompt has {len(sizes)}")
    for cells, size in zip(call.keep, sizes, strict=True):
        if not len(cells) or int(cells.min()) < 0 or int(cells.max()) >= size:
            raise ValueError(
                f"cells {cells.tolist()} are not of an image of {size}; name some of 0 to {size - 1}"
            )


def remarks(chooser: Chooser, call: Call, prepared: Prepared) -> str | None:
    """A note on arguments without effect: budget, gestalt and named cells; None if all had one."""
    if prepared.fallback:
        return "choosing cells failed, so all were kept: the log says why"
    mode, gestalt = find_mode(prepared.mode), call.named_gestalt
    of_cells = joined(*dict.fromkeys(allocation.note for allocation in prepared.allocations))
    if call.keep:
        no_budget = None if call.budget is None else "budget had no effect: the cells to keep are named"
        return joined(no_budget, unused(mode, None, gestalt), of_cells)
    if call.budget is None and chooser.budget == DEFAULT_BUDGET:  # the default is cut to small images
        return joined(unused(mode, None, gestalt), of_cells)  # without a note: nobody named it
    allowed = chooser.budget if call.budget is None else call.budget
    chooses = mode.chooses and not prepared.magnified
    too_much = budget_exceeds_image(allowed, prepared.cells) if chooses else None
    return joined(unused(mode, call.budget, gestalt), too_much, of_cells)


def unused(mode: Mode, budget: Budget | None, gestalt: bool) -> str | None:
    """A note on the named arguments that have no effect in a mode; None: all have one."""
    names = []
    if budget is not None and not mode.chooses:
        names.append("coverage" if str(budget).strip().lower().startswith(COVERAGE) else "budget")
    if gestalt and not mode.gestalt:
        names.append("gestalt")
    return f"{' and '.join(names)} had no effect in mode {mode.name}" if names else None


def budget_exceeds_image(budget: Budget, sizes: list[int]) -> str | None:
    """A note on images with fewer cells than the budget; None without any."""
    count = parse_budget(budget)
    small = [str(size) for size in sizes if isinstance(count, int) and size < count]
    if not small:
        return None
    return f"budget {count} is more than the image has: all {', '.join(small)} cells were kept"


def too_large(prepared: Prepared, trained: int, kinds: Collection[str]) -> str | None:
    """A note on images with more cells than the model was trained on (`trained`); None without any.

    Modes with a coarse view, alone or with a LoRA for it (of `kinds`), never give the model such an image.
    """
    sizes = [f"{size:,}" for size in prepared.cells if size > trained]
    if not sizes:
        return None
    mode = find_mode(prepared.mode)
    if mode.coarse or COARSE in mode.kinds(kinds):
        return None
    return (
        f"this model was taught on pictures of at most {trained:,} cells and this one has "
        f"{', '.join(sizes)}, so its answer may well be wrong: shrink the picture, or cut out a part of it"
    )
