"""The fonts of the bundled world, which come with matplotlib and Pillow."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from PIL import ImageFont

from arr_coc.files.drawing import load_font

TRAIN_FONTS: tuple[str, ...] = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf", "Aileron")
HELD_OUT_FONTS: tuple[str, ...] = ("DejaVuSansMono-Bold.ttf",)


@lru_cache(maxsize=512)
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Load a font by file name at `size` px; `Aileron` is the one inside Pillow."""
    if name == "Aileron":
        return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
    return load_font(name, size)
