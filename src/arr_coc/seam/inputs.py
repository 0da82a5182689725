"""The check of a call's inputs, one for all families: the prompt, what stands beside it, and its images.

    check_inputs(adapter, inputs)   before anything is encoded

Whatever doesn't fit is one ValueError with the remedy. Mode "full" is the stock model: its inputs aren't
checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from arr_coc.seam.assembly import KIND_NAMES, image_spans
from arr_coc.seam.clips import StepPixels
from arr_coc.seam.pixels import REMEDY, reading

if TYPE_CHECKING:
    from arr_coc.seam.base import FamilyAdapter

BY_TOKEN = ("attention_mask", *KIND_NAMES, "labels")
"""Arguments with one value per token of the prompt: [B, S]."""
BY_PICTURE = ("image_sizes", "spatial_shapes", "image_position_ids", "pixel_attention_mask")
"""Arguments with one row for each row of `pixel_values`."""
GRIDS = {"pixel_values": "image_grid_thw", "pixel_values_videos": "video_grid_thw"}
"""Pixels that some processors cut into patches, and the grid [images, 3] of these."""


def check_inputs(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Check what a caller passes beside its images, before anything is encoded.

    Args:
        adapter: of the model's family.
        inputs: processor inputs, and other arguments of the base model.

    Raises:
        ValueError: what is missing, or doesn't fit the prompt or the pixels, in one line with the remedy.
    """
    check_prompt(inputs)
    check_by_token(adapter, inputs)
    for name in ("pixel_values", "pixel_values_videos"):
        _check_pixels(adapter, inputs, name)
    _check_placeholders(adapter, inputs)


def check_without_images(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Check a prompt that comes without images.

    Raises:
        ValueError: it has placeholders of images or clips.
    """
    if inputs.get("input_ids") is not None:
        _check_placeholders(adapter, inputs)


def check_prompt(inputs: Mapping[str, Any]) -> None:
    """Check that a call has its prompt beside its images.

    Raises:
        ValueError: there are no `input_ids`, or not rows of them.
    """
    ids = inputs.get("input_ids")
    if ids is None:
        raise ValueError(
            "input_ids is missing, by which tokens to drop are found: pass all that the processor makes of a "
            "prompt and its images"
        )
    if ids.ndim != 2 or not ids.numel():
        raise ValueError(f"input_ids has shape {tuple(ids.shape)}: pass rows of ids [B, S], as processors do")


def check_by_token(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Check the arguments that have a value per token of the prompt.

    Raises:
        ValueError: one of another shape than the ids, or one that nobody knows how to shorten.
    """
    shape = tuple(inputs["input_ids"].shape)
    for name in BY_TOKEN:
        value = inputs.get(name)
        if value is None or (isinstance(value, Tensor) and tuple(value.shape) == shape):
            continue
        what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
        remedy = "pass one value per token" + (
            ", the processor's two-dimensional mask," if name == "attention_mask" else ""
        )
        raise ValueError(f"{name} has {what} but input_ids have shape {shape}; {remedy} or use mode='full'")
    positions = inputs.get("position_ids")
    if positions is not None:
        _check_positions(adapter, positions, shape)
    unknown = inputs.keys() - {*inspect.signature(adapter.model.forward).parameters, *adapter.visual_names}
    for name in sorted(unknown - {*BY_TOKEN, "position_ids"}):
        value = inputs[name]
        if isinstance(value, Tensor) and value.ndim >= 2 and tuple(value.shape[:2]) == shape:
            raise ValueError(
                f"{name} has a value per token of the prompt, and nothing says what becomes of it where "
                "tokens are dropped: leave it out, or use mode='full'"
            )


def _check_positions(adapter: FamilyAdapter, positions: Any, shape: tuple[int, ...]) -> None:
    """Raise a ValueError where position ids are not of the prompt."""
    rows, length = shape
    own = tuple(positions.shape) if isinstance(positions, Tensor) else ()
    depth = 2 if adapter.plain_positions else 3
    if 2 <= len(own) <= depth and own[-1] == length and own[-2] in (1, rows):
        return
    raise ValueError(
        f"position_ids has shape {own} but input_ids have shape {shape}; pass positions of the whole prompt, "
        "or leave them out"
    )


def _check_pixels(adapter: FamilyAdapter, inputs: Mapping[str, Any], name: str) -> None:
    """Raise a ValueError for pixels that are empty, or that lack what a family needs beside them."""
    pixels = inputs.get(name)
    if pixels is None or isinstance(pixels, StepPixels):  # those are our own
        return
    if not len(pixels):
        raise ValueError(f"{name} is empty; leave it out of a prompt without images, or {REMEDY}")
    images = name == "pixel_values"
    for other in adapter.needed if images else (GRIDS[name],) if adapter.clips else ():
        if inputs.get(other) is None:
            kind = adapter.model.config.model_type
            raise ValueError(f"{other} is missing, which {kind} needs beside {name}; {REMEDY}")
    if images:
        for other in BY_PICTURE:
            value = inputs.get(other) if other in adapter.visual_names else None
            if value is not None and len(value) != len(pixels):
                raise ValueError(f"{other} has {len(value)} rows and {name} {len(pixels)}; {REMEDY}")
    grid = inputs.get(GRIDS[name])
    if grid is None or not isinstance(pixels, Tensor):
        return
    if grid.ndim != 2 or grid.shape[1] != 3 or int(grid.prod(1).sum()) != len(pixels):
        raise ValueError(f"{GRIDS[name]} {grid.tolist()} are not of {len(pixels)} patches; {REMEDY}")


def _check_placeholders(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Raise a ValueError where a prompt has placeholders of no image or clip, or images without any.

    How many an image has is compared where the family knows before anything is encoded.
    """
    ids = inputs["input_ids"]
    image, clip = adapter.image_token_id, getattr(adapter.model.config, "video_token_id", None)
    if inputs.get("pixel_values_videos") is not None:
        return  # compared where clips become frames
    if clip is not None and clip != image and (count := int((ids == clip).sum())):
        raise ValueError(f"the prompt has {count} video tokens and no pixel_values_videos; {REMEDY}")
    count = int((ids == image).sum())
    if inputs.get("pixel_values") is None:
        if count:
            raise ValueError(f"the prompt has {count} image tokens and no pixel_values; {REMEDY}")
        return
    if not count:
        raise ValueError(f"the prompt has no image token (id {image}) for its pixel_values; {REMEDY}")
    with reading(adapter.model.config.model_type):
        counts = adapter.early_counts(inputs)
    if counts is not None:
        image_spans(ids == image, counts)
