"""Preparing a call: what is encoded, what is decided, what the language model gets, for every mode.

    full, prune, weight   everything is encoded; then all, some, or all of it scaled
    sparse                decided before the encoder, which then sees the kept cells alone
    saccade               a gestalt of the whole image, then kept cells of the fine one
    compress              the gestalt alone

Before the encoder, a cell is known by (the first that there is): what a trained stem sees in its pixels; the
gestalt token that covers it, read by a layer that was trained on encoded tokens; and with an untrained layer,
where the model's own first layers look in the gestalt (`gaze`). Families whose vision tower can't encode some
cells alone have `sparse` and `saccade` by encoding everything and then pruning, and the result says so.

Law: whatever fails in deciding, the answer still comes, from all tokens, and says so; unless `strict`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.attending import Budget
from arr_coc.gaze import coupling, gaze
from arr_coc.gestalt import compress, find_compressor
from arr_coc.layer import ARRCOCLayer
from arr_coc.lora import PARTIAL, REST, has_lora, lora_for
from arr_coc.realize import (
    Decision,
    EncodedImages,
    Prepared,
    Seen,
    Stopwatch,
    all_kept,
    decide,
    everything_kept,
    pictures,
    seen_whole,
)
from arr_coc.seam import PROMPT_NAMES, FamilyAdapter, Grid, Layout, VisualFeatures
from arr_coc.stem import Stem

logger = logging.getLogger(__name__)

MODES = ("full", "prune", "sparse", "saccade", "compress", "weight")
BEFORE = ("sparse", "saccade")
"""Modes that decide before the encoder."""
SACCADE_TOKENS = 529
"""Visual tokens of an image in mode "saccade": 256 of the gestalt and 273 saccades."""

Budgets = Callable[[int], Budget]
"""From the cells of an image to what it is allowed."""


@dataclass(frozen=True)
class Chooser:
    """What decides for one model.

    Attributes:
        adapter: of the base model's family.
        layer: the scorers, the balancer and the allocator.
        stem: sees cells in pixels; None: there is none for this model.
        convs: trained compressors by name.
        strict: raise when deciding fails.
    """

    adapter: FamilyAdapter
    layer: ARRCOCLayer
    stem: Stem | None = None
    convs: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True)
class Call:
    """One call that is being prepared.

    Attributes:
        inputs: ordinary processor inputs with images.
        mode: one of `MODES`.
        budgets: what an image is allowed.
        gestalt: the compressor's name.
        watch: where to add the time of each stage.
        encoded: what is known of the images already; filled in for the next call.
        use_cache: whether the base model will use a key/value cache.
        filling: nobody said how many saccades there are to be: what the gestalt leaves of SACCADE_TOKENS.
    """

    inputs: Mapping[str, Any]
    mode: str
    budgets: Budgets
    gestalt: str
    watch: Stopwatch
    encoded: EncodedImages
    use_cache: bool = True
    filling: bool = False


def default_gestalt(adapter: FamilyAdapter) -> str:
    """The compressor of a call that names none: "pool4" where the vision tower takes no smaller view."""
    return "resize" if adapter.sparse else "pool4"


def runs_as(adapter: FamilyAdapter, mode: str) -> tuple[str, str | None]:
    """What a mode really runs as in this family, and why, if it isn't itself."""
    if mode not in BEFORE or adapter.sparse:
        return mode, None
    family = adapter.model.config.model_type
    return "prune", (
        f"{mode} ran as prune: the vision tower of {family} can't encode some cells alone, so all of them "
        "were encoded"
    )


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Encode, decide, drop: everything before the base model is called.

    Raises:
        ValueError: a bad budget, or a prompt that doesn't match its images.
    """
    mode, note = runs_as(chooser.adapter, call.mode)
    if note is not None:
        logger.warning(note)
    route = _coarse if mode == "compress" else _parts if mode in BEFORE else _whole
    return replace(route(chooser, replace(call, mode=mode)), note=note)


# ---- everything is encoded ------------------------------------------------------------------------------


def _whole(chooser: Chooser, call: Call, failed: bool = False) -> Prepared:
    """Modes "full", "prune" and "weight"; and what is left to do when deciding has `failed`."""
    adapter, encoded = chooser.adapter, call.encoded
    with call.watch("encode"):
        features = encoded.features = encoded.features or adapter.features(call.inputs)
    decision = all_kept(features, fallback=failed)
    if call.mode != "full" and not failed:
        budgets = [call.budgets(len(cells)) for cells in features.cells]

        def choose() -> Decision:
            seen = seen_whole(features)
            if not chooser.layer.trained:
                found = _coupling(chooser, call, "pool4", _gestalt(chooser, call, "pool4"), features.grids)
                seen = replace(seen, coupling=found)
            return decide(adapter, chooser.layer, call.inputs, encoded, budgets, call.mode, call.watch, seen)

        decision = _guarded(chooser, choose) or all_kept(features, fallback=True)
    if decision.gates is not None:
        features = features.scale(decision.gates)
    keep = [
        allocation.keep.to(cells.device)
        for allocation, cells in zip(decision.allocations, features.cells, strict=True)
    ]
    compacted = adapter.compact(call.inputs, features, keep, use_cache=call.use_cache)
    read = [len(index) for index in features.tokens_to_keep(keep)]
    cells = [len(index) for index in features.cells]
    return Prepared(compacted, decision.allocations, decision.fallback, call.mode, read, cells)


def _guarded(chooser: Chooser, choose: Callable[[], Decision]) -> Decision | None:
    """A decision, or None where it failed."""
    try:
        return choose()
    except Exception:  # whatever goes wrong in deciding, the answer must still come
        if chooser.strict:
            raise
        logger.exception("allocation failed; all visual tokens are used")
        return None


# ---- some cells are encoded -----------------------------------------------------------------------------


def _parts(chooser: Chooser, call: Call) -> Prepared:
    """Modes "sparse" and "saccade"."""
    adapter = chooser.adapter
    layout = adapter.layout(call.inputs)
    sizes = [len(cells) for cells in layout.cells]
    gestalt: VisualFeatures | None = None
    budgets: list[Budget | None] = [None] * len(sizes)  # all cells
    if call.mode == "saccade" and max(sizes) > SACCADE_TOKENS:
        gestalt = without(_gestalt(chooser, call, call.gestalt), [n <= SACCADE_TOKENS for n in sizes])
        allowed = None if call.filling else call.budgets
        budgets = [saccades(n, m, allowed) for n, m in zip(sizes, gestalt.counts, strict=True)]
    elif call.mode == "sparse":
        budgets = [call.budgets(n) for n in sizes]

    def choose() -> Decision:
        if all(budget is None for budget in budgets):
            return all_kept(layout)
        seen = _seen(chooser, call, layout)
        return decide(adapter, chooser.layer, call.inputs, call.encoded, budgets, call.mode, call.watch, seen)

    decision = _guarded(chooser, choose)
    if decision is None:  # all tokens, as the stock model encodes and reads them
        with lora_for(adapter.model, REST):
            return _whole(chooser, replace(call, mode="prune", encoded=EncodedImages()), failed=True)
    keep = [allocation.keep.to(layout.cells[0].device) for allocation in decision.allocations]
    with call.watch("encode"):
        fine = encode_parts(adapter, call.inputs, keep, sizes, call.mode)
    if decision.gates is not None:
        fine = gated(fine, [gate[index] for gate, index in zip(decision.gates, keep, strict=True)])
    if gestalt is not None and not any(gestalt.counts):
        gestalt = None
    compacted = adapter.assemble(call.inputs, layout, keep, fine, gestalt, use_cache=call.use_cache)
    coarse = [0] * len(keep) if gestalt is None else gestalt.counts
    read = [len(index) + few for index, few in zip(keep, coarse, strict=True)]
    return Prepared(compacted, decision.allocations, False, call.mode, read, sizes)


def encode_parts(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], keep: Sequence[Tensor], sizes: Sequence[int], mode: str
) -> VisualFeatures:
    """Encode kept cells alone; the LoRA for parts is at work for images of which less than half is kept.

    It was taught with 64 to 273 cells of up to 1024. With half of them it is of no more use, and with all of
    them there is nothing to mend: they are encoded as by the stock tower, to the last bit. Each image
    goes by its own share, whatever else is in the batch.

    Args:
        adapter: of the base model's family.
        inputs: ordinary processor inputs.
        keep: per image, long [K], its kept cells.
        sizes: per image how many cells it has.
        mode: "sparse" or "saccade".
    """
    parts = [2 * len(index) < size for index, size in zip(keep, sizes, strict=True)]
    with lora_for(adapter.model, mode if any(parts) else REST):
        fine = adapter.encode_cells(inputs, keep)
    if all(parts) or not any(parts) or not has_lora(adapter.model, PARTIAL):
        return fine
    with lora_for(adapter.model, REST):
        stock = adapter.encode_cells(inputs, keep)

    def pick(ours: list[Tensor], theirs: list[Tensor]) -> list[Tensor]:
        return [a if part else b for part, a, b in zip(parts, ours, theirs, strict=True)]

    levels = [pick(ours, theirs) for ours, theirs in zip(fine.levels, stock.levels, strict=True)]
    return replace(fine, tokens=pick(fine.tokens, stock.tokens), levels=levels)


def saccades(cells: int, coarse: int, budgets: Budgets | None) -> Budget | None:
    """How many cells of an image are kept beside its gestalt; None: all of them, and there is no gestalt.

    Args:
        cells: N of the image.
        coarse: tokens of its gestalt, 0 where it has none.
        budgets: what the caller allows; None: SACCADE_TOKENS in all.

    Raises:
        ValueError: the gestalt leaves none of SACCADE_TOKENS.
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
    """A gestalt in which some images have no token."""
    if not any(drop):
        return gestalt
    kept = [cells[: 0 if dropped else None] for cells, dropped in zip(gestalt.cells, drop, strict=True)]
    grids = [(0, 0, 0) if dropped else grid for grid, dropped in zip(gestalt.grids, drop, strict=True)]
    return replace(gestalt.select(kept), grids=grids, cells=kept)


def gated(fine: VisualFeatures, gates: Sequence[Tensor]) -> VisualFeatures:
    """Multiply kept tokens of every level by a gate each, [K_i] per image."""

    def times(images: list[Tensor]) -> list[Tensor]:
        return [tokens * gate.to(tokens)[:, None] for tokens, gate in zip(images, gates, strict=True)]

    return replace(fine, tokens=times(fine.tokens), levels=[times(level) for level in fine.levels])


def _gestalt(chooser: Chooser, call: Call, name: str) -> VisualFeatures:
    """The gestalt of every image by one compressor, made once."""
    known = call.encoded.gestalts
    if name not in known:
        reads = find_compressor(name).factor is not None
        if reads and call.encoded.features is None:
            with call.watch("encode"):
                call.encoded.features = chooser.adapter.features(call.inputs)
        with call.watch("gestalt"):
            known[name] = compress(name, chooser.adapter, call.inputs, call.encoded.features, chooser.convs)
    return known[name]


def _seen(chooser: Chooser, call: Call, layout: Layout) -> Seen:
    """What is known of the cells before any is encoded."""
    seen = Seen(layout.counts, layout.grids)
    stem, trained = chooser.stem, chooser.layer.trained
    gestalt = None
    if call.mode == "saccade" or stem is None or not trained:
        gestalt = _gestalt(chooser, call, call.gestalt)
        means = [gestalt.cell_tokens(image).float().mean(0) for image in range(len(layout.grids))]
        seen = replace(seen, gestalt=means)
    if not trained:
        assert gestalt is not None, "made just above"
        return replace(seen, coupling=_coupling(chooser, call, call.gestalt, gestalt, layout.grids))
    if stem is None:
        assert gestalt is not None, "made just above"
        covering = [
            stretch(gestalt.cell_tokens(i).T.unflatten(1, gestalt.grids[i][1:]), grid[1:]).flatten(1).T
            for i, grid in enumerate(layout.grids)
        ]
        return replace(seen, cells=covering)
    known, under = call.encoded.stems, None if gestalt is None else call.gestalt
    with call.watch("score"):
        if under not in known:
            known[under] = [
                _look(stem, picture, grid[1:], gestalt, image)
                for image, (picture, grid) in enumerate(
                    zip(pictures(chooser.adapter, call.inputs, call.encoded), layout.grids, strict=True)
                )
            ]
    return replace(seen, cells=known[under])


def _look(
    stem: Stem, picture: Tensor, grid: tuple[int, int], gestalt: VisualFeatures | None, image: int
) -> Tensor:
    """The cells of one image as the stem sees them: [N, D]."""
    coarse = None
    if gestalt is not None:
        coarse = gestalt.cell_tokens(image).T.unflatten(1, gestalt.grids[image][1:])[None]
    return stem(picture[None], grid, coarse)[0]


def _coupling(
    chooser: Chooser, call: Call, name: str, gestalt: VisualFeatures, grids: Sequence[Grid]
) -> list[Tensor]:
    """Where the model's own first layers look: logits [H, W] of each image's cells.

    Args:
        chooser: whose model.
        call: the call.
        name: of the gestalt's compressor.
        gestalt: where the model looks.
        grids: of the cells.
    """
    known, features = call.encoded.neutral, call.encoded.features
    names = (*PROMPT_NAMES, "position_ids", *chooser.adapter.visual_names)  # not what is said to `generate`
    inputs = {name: call.inputs[name] for name in names if name in call.inputs}
    with call.watch("score"):
        found = gaze(chooser.adapter, inputs, gestalt, features=features, neutral=known.get(name))
        known[name] = found.neutral
        return [coupling(seen, grid[1:]) for seen, grid in zip(found.maps, grids, strict=True)]


def stretch(coarse: Tensor, grid: tuple[int, int]) -> Tensor:
    """A coarse map [c, h, w] on a fine grid: float [c, H, W], linear between the coarse middles."""
    return F.interpolate(coarse[None].float(), size=grid, mode="bilinear", align_corners=False)[0]


# ---- the gestalt alone ----------------------------------------------------------------------------------


def _coarse(chooser: Chooser, call: Call) -> Prepared:
    """Mode "compress"."""
    adapter = chooser.adapter
    gestalt = _gestalt(chooser, call, call.gestalt)
    features = call.encoded.features
    layout = adapter.layout(call.inputs) if features is None else features.layout
    none = [torch.zeros(0, dtype=torch.long, device=cells.device) for cells in layout.cells]
    rest = None  # tokens that are no cell stay
    if features is not None:
        rest = features.select(features.tokens_to_keep(none))
    compacted = adapter.assemble(call.inputs, layout, none, rest, gestalt, use_cache=call.use_cache)
    read = [len(tokens) + (0 if rest is None else rest.counts[i]) for i, tokens in enumerate(gestalt.tokens)]
    allocations = [everything_kept(grid) for grid in gestalt.grids]
    return Prepared(compacted, allocations, False, call.mode, read, [len(cells) for cells in layout.cells])
