"""Models of transformers' own classes as parts of sources of relevance: find, load and tell them apart.

    place, remedy = model_place("ground", "openmmlab-community/mm_grounding_dino_tiny", "...")
    model, processor = load_native(place, remedy, {"mm-grounding-dino": "MMGroundingDinoForObjectDetection"})

No code of a model's folder runs, and weights are read from safetensors alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from arr_coc.files.device import resolve_device
from arr_coc.files.paths import is_local, local_path, shorten
from arr_coc.files.saved import reading

SAMPLED = 64  # numbers of each parameter that tell models apart


def colour_levels(picture: Tensor) -> Tensor:
    """Return a picture, float [3, h, w] in [0, 1], in levels of 0 to 255: uint8, on the CPU."""
    return (picture.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8)


def to_image(picture: Tensor) -> Image.Image:
    """Return a picture, float [3, h, w] in [0, 1], as the PIL image that processors take."""
    return Image.fromarray(colour_levels(picture).permute(1, 2, 0).contiguous().numpy())


def native_version(model: Any, processor: Any) -> str:
    """Return eight hexadecimal digits that change with a model's weights and its processor's settings."""
    part = getattr(processor, "image_processor", processor)
    facts = part.to_dict() if hasattr(part, "to_dict") else [len(part), type(part).__name__]  # a tokenizer
    settings = zlib.crc32(json.dumps(facts, sort_keys=True, default=str).encode())
    return f"{tensors_crc([one.detach().flatten()[:SAMPLED] for one in model.parameters()], settings):08x}"


def tensors_crc(tensors: Sequence[Tensor], start: int = 0) -> int:
    """Return the CRC-32 of tensors' numbers as float32; `start` is that of what comes before."""
    for one in tensors:
        start = zlib.crc32(one.detach().float().cpu().contiguous().numpy().tobytes(), start)
    return start


def model_place(relevance: str, argument: str, example: str) -> tuple[str, str]:
    """Return the folder or name of a model, and the remedy to show if there is none."""
    remedy = f"give a folder or a name on the Hub as {relevance}:NAME, such as {relevance}:{example}"
    if not argument:
        raise ValueError(f"relevance {relevance!r} needs a model: {remedy}")
    path = local_path(argument)  # which refuses what can't be a name
    return (str(path) if is_local(argument) else argument), remedy


@contextmanager
def without_bars() -> Generator[None]:
    """Hide transformers' progress bars, which would stand on stderr beside what `look` says."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def load_native(place: str, remedy: str, classes: Mapping[str, str], **settings: bool) -> tuple[Any, Any]:
    """Load a model, on an accelerator if there is one, and its processor, once each.

    Args:
        place: a folder or a name on the Hub, from `model_place`.
        remedy: for the message, from there as well.
        classes: by model type, the class of transformers; other types are refused.
        settings: of the processor.

    Raises:
        ValueError: the model can't be read, or is of another type.
    """
    return _loaded(place, remedy, tuple(classes.items()), tuple(settings.items()))


@lru_cache(maxsize=2)
def _loaded(
    place: str, remedy: str, classes: tuple[tuple[str, str], ...], settings: tuple[tuple[str, bool], ...]
) -> tuple[Any, Any]:
    """Load a model and its processor; `classes` and `settings` are pairs of those of `load_native`."""
    import transformers
    from transformers import AutoConfig, AutoProcessor

    from arr_coc.files.hub import download
    from arr_coc.files.vetting import SMALL_FILES, weight_names

    remote = not is_local(place)
    folder = download(place, SMALL_FILES, remedy=remedy) if remote else Path(place)
    with without_bars(), reading(f"model {shorten(place)} can't be loaded", remedy):
        kind = AutoConfig.from_pretrained(folder, trust_remote_code=False).model_type
        if kind not in dict(classes):
            raise ValueError(f"its type is {kind!r} and none of {', '.join(dict(classes))}")
        if remote:
            download(place, weight_names(folder), folder.name, remedy)
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False, **dict(settings))
        device = resolve_device()
        dtype = torch.float32 if device.type == "cpu" else "auto"
        family = getattr(transformers, dict(classes)[kind])
        model = family.from_pretrained(folder, dtype=dtype, use_safetensors=True, trust_remote_code=False)
        return model.to(device).eval().requires_grad_(False), processor
