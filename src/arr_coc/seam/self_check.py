"""A check that a model whose family nobody registered can be given fewer tokens, run before it is used.

Two drawn pictures go through the model's own processor, each in one piece, as a large one must that is not
read. Each prompt must hold a placeholder for every encoded token; the pixels must show the picture; most
tokens must change the most where the picture does, which the queries of a resampler don't. With all cells
kept the logits must be the stock model's to the last bit; with some dropped they must be those of the stock
model with the dropped columns masked, as far as its numbers go; and `generate` must go on from there as
`forward` does on a prompt that is a token longer.
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

SIZES = ((448, 448), (672, 448))
"""Width and height of the pictures, px."""
LARGE = (2048, 1024)
"""The same of a picture that is prepared and not read: families in tiles cut it."""
SLACK = 0.05
"""Of the spread of the logits: how far dropping may be from masking. 1e-5 in float32, 0.02 in bfloat16."""

PLACED = 0.5
"""Of the tokens: how many must change the most with their own quarter of the picture; 0.25 is chance."""
UNLIKE = 0.1
"""Mean difference above which a picture in [0, 1] is not another one resized; 0.25 of two random ones."""
BY_POSITION = "minimax_m3_sparse"
"""A kind of layers that reads columns by their positions, and on a GPU dies of one that is past the last."""
STEPS = {
    "max_new_tokens": 2,
    "min_new_tokens": 2,
    "do_sample": False,
    "num_beams": 1,
    "return_dict_in_generate": True,
    "output_logits": True,
}
"""Arguments of the `generate` that is checked."""


@torch.no_grad()
def self_check(adapter: FamilyAdapter) -> None:
    """Run the check.

    Args:
        adapter: of the model, with its processor.

    Raises:
        ValueError: what doesn't hold, in one line.
    """
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
        _check_pieces(adapter, _drawn(LARGE, len(SIZES)))
        for number, size in enumerate(SIZES):
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
    """A question about a picture, on the model's device."""
    return {
        name: value.to(adapter.model.device) if isinstance(value, Tensor) else value
        for name, value in VisualPrompt(adapter.processor, [image]).inputs("What is it?").items()
    }


def _check_pieces(adapter: FamilyAdapter, image: Image.Image) -> None:
    """Raise a ValueError if a picture comes in pieces, each of which would be taken for an image."""
    pieces = len(adapter.patches(_inputs(adapter, image)))
    if pieces != 1:
        raise ValueError(f"its processor cuts a picture of {image.width}x{image.height} px into {pieces}")


def _check_picture(adapter: FamilyAdapter, image: Image.Image) -> None:
    """Raise a ValueError for what doesn't hold on a picture."""
    model = adapter.model
    if BY_POSITION in (getattr(model.config.get_text_config(), "layer_types", None) or ()):
        raise ValueError("some of its layers take positions for numbers of columns, which dropping changes")
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
    _check_steps(adapter, inputs, features, some, SLACK * float(stock.std()))
    narrow = adapter.window is not None and adapter.window < inputs["input_ids"].shape[1]
    if adapter.recurrent or narrow:
        return  # dropping has no masked equivalent, or only in a shorter prompt
    columns = compacted.columns[0]
    real = columns >= 0
    masked = model(**_masked(adapter, inputs, columns)).logits[0, columns[real]]
    error = float((dropped[real] - masked).abs().max() / stock.std())
    if error > SLACK:
        raise ValueError(
            f"with some tokens dropped its logits are {error:.2g} standard deviations from those with the "
            "tokens masked"
        )


def _check_places(adapter: FamilyAdapter, image: Image.Image, features: VisualFeatures) -> None:
    """Raise a ValueError where tokens don't stand for the cells of their grid: no quarter moves its own."""
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
    if placed < PLACED:
        raise ValueError(
            f"of its tokens only {placed:.0%} change the most with their own quarter of the picture, so they "
            "don't stand for places in it"
        )


def _check_pixels(adapter: FamilyAdapter, inputs: Mapping[str, Any], image: Image.Image) -> None:
    """Raise a ValueError where the pixels of a square picture, which nobody crops, show another one."""
    if image.width != image.height:
        return
    pixels = adapter.images(inputs)[0].cpu()
    same = image.resize((pixels.shape[2], pixels.shape[1]), Image.Resampling.BICUBIC)
    error = float((pixels - torch.from_numpy(np.array(same)).permute(2, 0, 1) / 255).abs().mean())
    if error > UNLIKE:
        raise ValueError(f"its pixels are not the picture's: they differ by {error:.2g} of white on average")


def _check_steps(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    features: VisualFeatures,
    keep: Sequence[Tensor],
    tolerance: float,
) -> None:
    """Raise a ValueError where `generate` gives a token other logits than `forward` without a cache."""
    compacted = adapter.compact(inputs, features, keep)
    output = generate_whole(adapter.model, inputs, compacted, **STEPS)
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


def _masked(adapter: FamilyAdapter, inputs: Mapping[str, Any], columns: Tensor) -> dict[str, Any]:
    """The inputs of the whole prompt with the dropped columns masked."""
    mask = torch.zeros_like(inputs["input_ids"])
    mask[0, columns[columns >= 0]] = 1
    return dict(inputs) | {"attention_mask": mask, "position_ids": adapter.positions(inputs)}


def _drawn(size: tuple[int, int], seed: int) -> Image.Image:
    """A picture of coarse random colours."""
    colours = np.random.default_rng(seed).integers(0, 256, (9, 13, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize(size, Image.Resampling.BILINEAR)
