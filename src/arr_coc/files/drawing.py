"""Fonts, and small pictures of kept cells with HTML for notebooks; `trace.picture` draws larger ones."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib.metadata import distribution
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFont, ImageOps

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 512  # px of a picture's longer side
ACCENT = np.array([255, 197, 49], dtype=np.float32)  # RGB of a kept cell of relevance 1


def load_font(file: str, pixels: float) -> ImageFont.FreeTypeFont:
    """Load a font that comes with matplotlib, such as DejaVuSans.ttf, without importing that."""
    path = distribution("matplotlib").locate_file(f"matplotlib/mpl-data/fonts/ttf/{file}")
    return ImageFont.truetype(str(path), pixels)


def kept_picture(image: Image.Image, mask: Tensor) -> Image.Image:
    """Return the image with dropped cells faded, RGB, sides up to `LONGEST` px; `mask` is bool [1, H, W]."""
    small = thumbnail(image)
    faded = ImageOps.grayscale(small).point(lambda level: 15 + 0.3 * level).convert("RGB")  # dark gray
    kept = Image.fromarray(_cells(mask).astype(np.uint8) * 255)
    return Image.composite(small, faded, kept.resize(small.size, Image.Resampling.NEAREST))


def thumbnail(image: Image.Image, longest: int = LONGEST) -> Image.Image:
    """Return an RGB copy of the image, no side longer than `longest` px."""
    small = image.convert("RGB")
    small.thumbnail((longest, longest))
    return small


def relevance_picture(relevance: Tensor, mask: Tensor) -> Image.Image:
    """Draw relevance, float [1, H, W] in [0, 1], as brightness; cells of `mask`, bool [1, H, W], coloured."""
    light = 0.25 + 0.75 * _cells(relevance.detach().float()).clip(0, 1)[..., None]
    colours = np.where(_cells(mask)[..., None], light * ACCENT, light * np.float32(120))
    cells = Image.fromarray(np.rint(colours).astype(np.uint8))
    scale = max(1, LONGEST // max(cells.size))
    return cells.resize((cells.width * scale, cells.height * scale), Image.Resampling.NEAREST)


def figure(
    pictures: Sequence[Image.Image], rows: Sequence[tuple[str, str]], label: str = "kept cells"
) -> str:
    """Return HTML of pictures side by side and rows (name, text) below them; `label` describes the pictures.

    Text is escaped and pictures are inline, so that nothing is loaded from elsewhere.
    """
    images = "".join(
        f'<img src="{_data_uri(picture)}" width="{picture.width}" height="{picture.height}" '
        'style="max-width:100%;margin:0 8px 8px 0" '
        f'alt="{escape(label)}">'
        for picture in pictures
    )
    lines = "".join(
        '<tr><th style="text-align:left;padding-right:1em">'
        f'{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<div>{images}<table>{lines}</table></div>"


def _data_uri(picture: Image.Image) -> str:
    """Return a picture as a data URL (JPEG)."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _cells(cells: Tensor) -> np.ndarray:
    """Return a map [1, H, W] as an array [H, W]."""
    if cells.ndim != 3 or len(cells) != 1:
        raise ValueError(f"a picture shows one frame, the map is {tuple(cells.shape)}: draw each by itself")
    return cells[0].cpu().numpy()
