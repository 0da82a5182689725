"""Traces of one image from their parts, and their views as the viewer flattens them."""

from __future__ import annotations

from typing import Any

from PIL import Image

from arr_coc.choose.allocation import Allocation
from arr_coc.trace.evidence import Guidance
from arr_coc.trace.strip import Strip
from arr_coc.trace.trace import Trace


def image_trace(
    picture: Image.Image, allocation: Allocation, guidance: Guidance | None = None, **fields: Any
) -> Trace:
    """The trace of an answer about one image."""
    return Trace(strips=(Strip.of_image(picture, allocation, guidance),), **fields)


def image_view(view: dict[str, Any]) -> dict[str, Any]:
    """What the viewer draws of one image: its strip beside the rest, as `imageOf` of record.js."""
    (strip,) = view["strips"]
    return {**strip, **view, "grid": strip["grid"][1:], "image": strip["images"][0]}
