"""A check that a model of an unregistered family can be given fewer tokens, run before it is used.

Two drawn pictures go through its processor, each in one piece. Each encoded token must have a placeholder,
pixels show the picture, and most tokens change the most where it does. With all cells kept the logits must be
the stock model's, with some dropped the masked ones', and `generate` must agree with `forward`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from arr_coc.seam.assembly import VisualFeatures
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.decoding import generate_whole
from arr_coc.seam.prompt import VisualPrompt

PICTURE_SIZES = ((448, 448), (672, 448))  # width and height, px
LARGE_SIZE = (2048, 1024)  # of a picture that is only preprocessed: families in tiles cut it
# Dropping against masking, in spreads of the logits: 1e-5 in float32, 0.02 in bfloat16.
MAX_LOGIT_ERROR = 0.05

MIN_PLACED = 0.5  # share of tokens that change the most with their own quarter; 0.25 is chance
MAX_PIXEL_ERROR = 0.1  # mean difference of a resized picture in [0, 1]; of two random ones 0.25
GENERATE_OPTIONS = {
    "max_new_tokens": 2,
    "min_new_tokens": 2,
    "do_sample": False,
    "num_beams": 1,
    "return_dict_in_generate": True,
    "output_logits": True,
}


@torch.no_grad()
def self_check(adapter: FamilyAdapter) -> None:
    """Runs the check; a ValueError says in one line what doesn't hold. The adapter needs its processor."""
    model = adapter.model
    kind = model.config.model_type
    if adapter.processor is None:
        raise ValueError(
            f"model type {kind!r} has no adapter of its own; pass its processor, so that it can be tried "
            "whether it works without one"
        )
    training = model.training
    model.eval()
    try:
        if adapter.unfit is not None:
            raise ValueError(adapter.unfit)
        pieces = len(adapter.patches(_inputs(adapter, _drawn(LARGE_SIZE, len(PICTURE_SIZES)))))
        if pieces != 1:  # each would be taken for an image
            raise ValueError(
                f"its processor cuts a picture of {LARGE_SIZE[0]}x{LARGE_SIZE[1]} px into {pieces}"
            )
        for number, size in enumerate(PICTURE_SIZES):
            _check_picture(adapter, _drawn(size, number))
    except Exception as error:  # whatever a model that nobody tried may raise
        what = " ".join(str(error).split())
        raise ValueError(
            f"model type {kind!r} has no adapter of its own, and the generic one doesn't fit it: {what}; use "
            "the model without arr-coc, or register a FamilyAdapter (`arr_coc.families.register_family`)"
        ) from error
    finally:
        model.train(training)


def _inputs(adapter: FamilyAdapter, image: Image.Image) -> dict[str, Any]:
    return {
        name: value.to(adapter.model.device) if isinstance(value, Tensor) else value
        for name, value in VisualPrompt(adapter.processor, [image]).inputs("What is it?").items()
    }


def _check_picture(adapter: FamilyAdapter, image: Image.Image) -> None:
    model = adapter.model
    inputs = _inputs(adapter, image)
    _check_pixels(adapter, inputs, image)
    features = adapter.features(inputs)
    encoded, written = sum(features.counts), int((inputs["input_ids"] == adapter.image_token_id).sum())
    if encoded != written:
        raise ValueError(f"{encoded} encoded tokens for {written} placeholders")
    _check_places(adapter, image, features)
    everything = [torch.arange(len(cells), device=cells.device) for cells in features.cells]
    stock = model(**inputs).logits
    whole = model(**adapter.compact(inputs, features, everything).kwargs).logits
    if not torch.equal(stock, whole):
        raise ValueError("with every token kept its logits are not the stock model's")
    some = [cells[::3] for cells in everything]
    compacted = adapter.compact(inputs, features, some, use_cache=False)
    dropped = model(**compacted.kwargs, use_cache=False).logits[0]
    if not bool(dropped.isfinite().all()):
        raise ValueError("with some tokens dropped its logits are not finite")
    _check_steps(adapter, inputs, features, some, MAX_LOGIT_ERROR * float(stock.std()))
    narrow = adapter.window is not None and adapter.window < inputs["input_ids"].shape[1]
    if adapter.recurrent or narrow:
        return  # dropping has no masked equivalent, or only in a shorter prompt
    columns = compacted.columns[0]
    real = columns >= 0
    mask = torch.zeros_like(inputs["input_ids"])
    mask[0, columns[real]] = 1
    hidden = dict(inputs) | {"attention_mask": mask, "position_ids": adapter.positions(inputs)}
    masked = model(**hidden).logits[0, columns[real]]
    error = float((dropped[real] - masked).abs().max() / stock.std())
    if error > MAX_LOGIT_ERROR:
        raise ValueError(
            f"with some tokens dropped its logits are {error:.2g} standard deviations from those with the "
            "tokens masked"
        )


def _check_places(adapter: FamilyAdapter, image: Image.Image, features: VisualFeatures) -> None:
    """Raises a ValueError where few tokens change the most with their own quarter of the picture."""
    (_, height, width), cells = features.grids[0], features.cell_tokens(0).float()
    middle = image.width // 2, image.height // 2
    changes = []
    for y in (0, middle[1]):
        for x in (0, middle[0]):
            other = image.copy()
            box = (x, y, x + middle[0], y + middle[1])
            other.paste(ImageOps.invert(image.crop(box)), box[:2])
            moved = adapter.features(_inputs(adapter, other)).cell_tokens(0).float()
            changes.append((moved - cells).norm(dim=-1))
    rows, columns = torch.arange(height) * 2 // height, torch.arange(width) * 2 // width
    quarter = (rows[:, None] * 2 + columns).flatten().to(cells.device)
    placed = float((torch.stack(changes).argmax(0) == quarter).float().mean())
    if placed < MIN_PLACED:
        raise ValueError(
            f"of its tokens only {placed:.0%} change the most with their own quarter of the picture, so they "
            "don't stand for places in it"
        )


def _check_pixels(adapter: FamilyAdapter, inputs: Mapping[str, Any], image: Image.Image) -> None:
    """Raises a ValueError where the pixels of a square picture, which isn't cropped, show another one."""
    if image.width != image.height:
        return
    pixels = adapter.images(inputs)[0].cpu()
    same = image.resize((pixels.shape[2], pixels.shape[1]), Image.Resampling.BICUBIC)
    error = float((pixels - torch.from_numpy(np.array(same)).permute(2, 0, 1) / 255).abs().mean())
    if error > MAX_PIXEL_ERROR:
        raise ValueError(f"its pixels are not the picture's: they differ by {error:.2g} of white on average")


def _check_steps(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    features: VisualFeatures,
    keep: Sequence[Tensor],
    tolerance: float,
) -> None:
    """Raises a ValueError where `generate` gives a token other logits than `forward` without a cache."""
    compacted = adapter.compact(inputs, features, keep)
    output = generate_whole(adapter.model, inputs, compacted, **GENERATE_OPTIONS)
    new, length = output.sequences[:, inputs["input_ids"].shape[1] :], inputs["input_ids"].shape[1]
    for step, logits in enumerate(output.logits):
        added = {"input_ids": new[:, :step], "attention_mask": torch.ones_like(new[:, :step])}
        longer = {
            name: torch.cat([value, added.get(name, torch.zeros_like(new[:, :step])).to(value)], dim=1)
            if isinstance(value, Tensor) and value.shape == (1, length)
            else value
            for name, value in inputs.items()
        }
        prompt = adapter.compact(longer, features, keep, use_cache=False)
        expected = adapter.model(**prompt.kwargs, use_cache=False).logits[0, -1]
        if not bool((logits[0] - expected).abs().max() <= tolerance):
            raise ValueError(
                "with some tokens dropped `generate` gives other logits than `forward`, as if it forgot the "
                "positions of what is left"
            )


def _drawn(size: tuple[int, int], seed: int) -> Image.Image:
    """Return a picture of coarse random colours."""
    colours = np.random.default_rng(seed).integers(0, 256, (9, 13, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize(size, Image.Resampling.BILINEAR)
