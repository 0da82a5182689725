"""From the arguments of a call to a checked `Call` that the model's family can run.

new_call(chooser, inputs, mode, budget) -> Call     checked; frames of clips as images
resolve(chooser, call) -> (Call, note)              as this family runs it, and why another mode runs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from arr_coc.choose.budget import (
    DEFAULT_BUDGET,
    Budget,
    budget_of,
    check_budget,
    coverage_share,
    parse_budget,
)
from arr_coc.choose.keep_list import KeepList
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.files.images import ImageSource, open_image
from arr_coc.files.question import kind_of
from arr_coc.files.validation import short
from arr_coc.guide.trust import is_transcription
from arr_coc.modes.call import Call, Chooser, EncodedImages
from arr_coc.modes.magnify import parse_magnify
from arr_coc.modes.mode import FULL, MODES, PRUNE, SPARSE, Mode, find_mode
from arr_coc.modes.scoring import deciding_layer, default_gestalt
from arr_coc.relevance.coverage import coverage_rule
from arr_coc.seam.assembly import Grid, Layout
from arr_coc.seam.base import FamilyAdapter, as_frames
from arr_coc.seam.clips import clip_step_times
from arr_coc.seam.decoding import check_inputs
from arr_coc.seam.gestalt import find_compressor
from arr_coc.seam.pixels import reading_pixels

# Raster indices [K] of one image's cells, a keep list or its file; or a list of these, one for each image.
OneNamed: TypeAlias = "Sequence[int] | Tensor | KeepList | str | Path"
NamedCells: TypeAlias = "OneNamed | Sequence[OneNamed]"
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
    """Check the arguments of a call and return them as a `Call`; frames of clips become images.

    `budget` None means the chooser's, `gestalt` None the family's default. `encoded` holds what has been
    computed about these images, and is added to. `pictures` are the originals, which the guide and crops
    read; `more` are further fields of `Call`.

    Raises:
        ValueError: a bad budget, an unknown gestalt, inputs that don't fit the family, or `pictures` that
            don't match the prompt's images.
    """
    adapter = chooser.adapter
    check_budget(budget)  # before any work is done
    scale = more.get("magnify", 1)
    if scale != 1 or isinstance(scale, bool):
        more["magnify"] = parse_magnify(scale)
    if "keep" in more:
        more["keep"], more["keep_grids"] = named_cells(more["keep"])
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


def with_pictures(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    pictures: Sequence[ImageSource] | None,
    encoded: EncodedImages,
    frames: Sequence[int] = (),
) -> EncodedImages:
    """Return a copy of `encoded` with the caller's original pictures, for the guide to read at full size.

    Raises:
        ValueError: not a list, a wrong number of pictures, an unreadable one, or a prompt with clips.
    """
    if pictures is None:
        return encoded
    if not isinstance(pictures, list | tuple):
        raise ValueError(f"pictures is {kind_of(pictures)}: pass a list of images in the order of the prompt")
    if frames:
        raise ValueError("pictures are passed, and the prompt has clips: leave them out, or ask in a session")
    early = adapter.early_layout
    with reading_pixels(adapter.model.config.model_type):
        images = len(adapter.layout(inputs).grids if early else adapter.patches(inputs, encoded.features))
    if len(pictures) != images:
        raise ValueError(f"{len(pictures)} pictures are passed, and the prompt has {images} images")
    return replace(encoded, sources=[open_image(picture) for picture in pictures], unrefined=None)


def resolve(chooser: Chooser, call: Call) -> tuple[Call, str | None]:
    """Return a call as this family runs it (mode, adapter, crops, gestalt), and why another mode runs.

    Raises:
        ValueError: cells named for another image, or pictures that don't match the prompt.
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


def covering(chooser: Chooser, call: Call) -> tuple[Chooser, Call]:
    """Return the source calibrated for a call's coverage, and the call with its rule.

    Other calls come back unchanged. With relevance "auto" what it stands for without training chooses.

    Raises:
        ValueError: clips, a mode that scores cells itself, or a source without calibration.
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
        chooser = replace(chooser, relevance=source, layer=deciding_layer(chooser.layer, source))
    return chooser, replace(call, rule=rule)


# Which mode runs, and with which coarse view.


def mode_for_question(
    chooser: Chooser, question: str, mode: str | None, free: bool
) -> tuple[str | None, str | None]:
    """Return the mode that a question calls for (None: the model's default) and a note on it.

    Questions for all print get "full" if no mode is named and `free`: no budget or cells are either.
    """
    reads = isinstance(question, str) and question.strip() and chooser.relevance != "gaze"
    if not reads or not is_transcription(chooser.guide, question):
        return mode, None
    if mode is None and free:
        return FULL.name, TRANSCRIBED
    chooses = mode is None or find_mode(mode).chooses or find_mode(mode).coarse
    return mode, PARTLY_READ if chooses and not free else None


def default_mode(adapter: FamilyAdapter, stem: object | None) -> Mode:
    """Return the mode of calls that name none: the one that saves this model most time.

    It is "sparse", which spares the vision encoder too, if there is a trained stem and the family can encode
    some cells alone; else "prune".
    """
    return SPARSE if stem is not None and adapter.encodes == "cells" else PRUNE


def runs_as(adapter: FamilyAdapter, mode: Mode) -> tuple[Mode, str | None]:
    """Return the mode that this family runs when asked for a given one, and a note if the two differ."""
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
    """Return how a mode's coarse view is made here: "resize" for towers of tiles or crops, else `name`."""
    own = (mode.before_encoder and adapter.encodes == "tiles") or reads_crops(adapter, mode)
    return "resize" if own else name


# Finer crops of the user's pictures, for families whose tower reads one square view.


def reads_crops(adapter: FamilyAdapter, mode: Mode) -> bool:
    """Return whether a mode chooses cells of finer crops in this family, beside the tower's square view."""
    return adapter.encodes == "crops" and mode.before_encoder and mode.gestalt


def with_crops(adapter: FamilyAdapter, call: Call) -> tuple[Call, str | None]:
    """Return a call with crops of its pictures added, and the reason if there can't be any (else None)."""
    with call.watch("prompt"):
        crops, lacks = crops_of(adapter, call.inputs, call.encoded)
    return replace(call, inputs={**call.inputs, **crops}), lacks


def crops_of(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], encoded: EncodedImages
) -> tuple[Mapping[str, Tensor], str | None]:
    """Return the crops of a call's pictures as inputs, made once; ({}, reason) if there can't be any.

    Raises:
        ValueError: pictures that don't match the prompt.
    """
    sources = encoded.sources
    lacks = adapter.lacks_crops(inputs, sources)
    if lacks is not None or sources is None:
        return {}, lacks
    if encoded.crops is None:
        encoded.crops = adapter.crops(inputs, sources)
    return encoded.crops, None


# Cells that a call names.


def named_cells(
    cells: NamedCells | tuple[Tensor, ...] | None,
) -> tuple[tuple[Tensor, ...], tuple[Grid | None, ...]]:
    """Return the named cells of each image, unique and ascending, and its grid where a keep list says it.

    Both are () for None. A list of them is of several images, in the order of the prompt.

    Raises:
        ValueError: masks or fractions, or a keep list that can't be read.
    """
    if cells is None or (isinstance(cells, tuple) and not cells):
        return (), ()
    several = isinstance(cells, (list, tuple)) and cells and all(map(_is_listed, cells))
    lists: list[Any] = [KeepList.load(one) if isinstance(one, (str, Path)) else one
                        for one in (cells if several else [cells])]  # fmt: skip
    grids = tuple(one.grid if isinstance(one, KeepList) else None for one in lists)
    return tuple(_of_one_image(one.keep if isinstance(one, KeepList) else one) for one in lists), grids


def _is_listed(cells: object) -> bool:
    """Return whether `cells` is a collection of cells; False for a single one."""
    return isinstance(cells, (list, tuple, str, Path, KeepList)) or (
        isinstance(cells, Tensor) and cells.ndim > 0
    )


def _of_one_image(cells: Any) -> Tensor:
    with suppress(TypeError, ValueError, RuntimeError):  # torch can't make a tensor of it
        named = torch.as_tensor(cells)
        fractions = named.numel() > 0 and (named.is_floating_point() or named.is_complex())
        if named.dtype != torch.bool and not fractions:
            return named.long().unique()
    text = " ".join(repr(cells).split())[:60]
    raise ValueError(
        f"cells are {text}: give their numbers in raster order, such as `allocation.keep` or "
        "mask.flatten().nonzero(), or a keep list"
    )


def layout_of(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> Layout:
    """Return where a prompt's image tokens stand, before encoding; raise ValueError if that is unknown."""
    if adapter.early_layout:
        return adapter.layout(inputs)
    family = adapter.model.config.model_type
    raise ValueError(f"cells of {family} can't be named before all are encoded: ask without cells")


def check_cells(adapter: FamilyAdapter, call: Call) -> None:
    """Raise a ValueError if a call names cells outside its images, or in a mode that chooses no cells."""
    if call.frames or not call.mode.chooses:
        what = "a clip" if call.frames else f"mode {call.mode.name!r}"
        raise ValueError(
            f"cells can't be named for {what}: name them for images, in prune, sparse or saccade"
        )
    layout = layout_of(adapter, call.inputs)
    sizes = [len(cells) for cells in layout.cells]
    if len(sizes) != len(call.keep):
        raise ValueError(f"cells of {len(call.keep)} images are named, and the prompt has {len(sizes)}")
    for named, grid in zip(call.keep_grids, layout.grids, strict=False):  # no grids where none is known
        if named is not None and named != tuple(grid):
            raise ValueError(
                f"the keep list is of a grid of {list(named)} (T, H, W), and the image has {list(grid)} in "
                "this model: make the list with `arr-coc look --keep --model`, of this model and picture"
            )
    for cells, size in zip(call.keep, sizes, strict=True):
        outside = cells[(cells < 0) | (cells >= size)].tolist()
        if outside or not len(cells):
            raise ValueError(f"cells {short(outside)} are not of an image of {size}: name 0 to {size - 1}")
