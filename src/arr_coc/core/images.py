"""Open any image a user has, or say in one line why not.

    open_image(path | bytes | PIL image) -> RGB PIL image, upright, ready for a processor

The first frame of an animation, CMYK, palette, 16-bit and alpha images are converted; the EXIF
orientation is applied; very thin and very small images grow by repeating their edge. Law: top left stays
top left, so pixel coordinates of an upright image are coordinates of the result. Every refusal is a
ValueError that names the file and the remedy. Nothing is fetched and no external program is run.
"""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps

MAX_PIXELS = 100_000_000
"""Larger images are refused from their header alone: 100 megapixels are 300 MB as RGB, and every model
scales far smaller ones down."""

MAX_ASPECT = 200
"""The processors of the Qwen-VL family refuse an image longer than 200 times its width."""

MIN_SIDE = 4
"""Arrays with a side of 1 or 3 can be mistaken for channels by image processors."""

ImageSource = str | Path | bytes | Image.Image

_PROGRAMS = {
    "EPS",
    "WMF",
}  # Pillow hands these to Ghostscript or the system, so they are not decoded here


def open_image(source: ImageSource) -> Image.Image:
    """Open an image and make it RGB and upright.

    Args:
        source: a path, the bytes of an image file, or an opened PIL image (which is left unchanged).

    Returns:
        A new image in mode RGB, at most `MAX_ASPECT` times longer than wide, at least `MIN_SIDE` px on
        each side. Transparency is laid on white; deeper values are scaled to 8 bits.

    Raises:
        ValueError: a missing, unreadable, empty, damaged or too large file, or no image at all.
    """
    if isinstance(source, Image.Image):
        return _upright_rgb(source, f"image of mode {source.mode}")
    if isinstance(source, bytes):
        return _decode(io.BytesIO(source), "image bytes", empty=not source)

    name = f"image {str(source)!r}"
    if re.match(r"(?i)[a-z][a-z0-9+.-]+:(//|.*;base64,)", str(source)):
        raise ValueError(
            f"{_short(name)} is an address and nothing is fetched: download it and give the file's path"
        )
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            raise ValueError(f"{name} is a folder: give the path of one image file")
        if not path.exists():
            raise ValueError(f"{name} does not exist: check the path (looked in {path.parent.absolute()})")
        if not path.is_file():
            raise ValueError(f"{name} is not a regular file: give the path of an image file")
        with path.open("rb") as file:
            return _decode(file, name, empty=path.stat().st_size == 0)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"{_short(name)} cannot be read ({reason}): check its name and permissions"
        ) from error


def _decode(file: IO[bytes], name: str, empty: bool) -> Image.Image:
    if empty:
        raise ValueError(f"{name} is empty (0 bytes): save or download it again")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of what is refused here, or was repaired by it
        try:
            image = Image.open(file)
        except Image.DecompressionBombError as error:
            # Pillow refused before it could give width and height; its message holds their product.
            pixels = re.search(r"\d+", str(error))
            raise ValueError(_too_large(name, int(pixels[0]) if pixels else 2 * MAX_PIXELS)) from error
        except Exception as error:  # damaged headers make decoders raise anything from OSError to IndexError
            remedy = "give a PNG, JPEG, WebP, GIF, BMP or TIFF file"
            raise ValueError(f"{name} is not an image that can be read: {remedy}") from error
        with image:
            if image.format in _PROGRAMS:
                raise ValueError(f"{name} is {image.format}, a page description: save it as PNG or JPEG")
            return _upright_rgb(image, name)


def _upright_rgb(image: Image.Image, name: str) -> Image.Image:
    width, height = image.size
    if width < 1 or height < 1:
        raise ValueError(f"{name} is {width}x{height} px: give an image of at least 1x1 px")
    if width * height > MAX_PIXELS:
        raise ValueError(_too_large(name, width * height, f"{width}x{height} px, "))
    try:
        image.load()  # an animation stands at its first frame
        image = ImageOps.exif_transpose(image)
        return _grow(_to_rgb(image))
    except Exception as error:  # see _decode; a truncated file is an OSError, a broken chunk a SyntaxError
        reason = " ".join(str(error).split()) or type(error).__name__
        remedy = "it may be damaged or cut off; download it again or save it as PNG or JPEG"
        raise ValueError(f"{name} cannot be decoded ({reason}): {remedy}") from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        return _deep_gray(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _deep_gray(image: Image.Image) -> Image.Image:
    """16-bit, 32-bit and floating-point gray to RGB, scaled: Pillow's own convert() clips at 255."""
    values = np.asarray(image, dtype=np.float64)
    if image.mode == "F":
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        low, high = min(values.min(), 0.0), values.max()
        full = 1.0 if high <= 1.0 else 255.0 if high <= 255.0 else high  # fractions, bytes, or anything else
        values = (values - low) / (full - low)
    else:
        values = values / max(65535.0, values.max())
    return Image.fromarray(np.rint(values.clip(0, 1) * 255).astype(np.uint8)).convert("RGB")


def _grow(image: Image.Image) -> Image.Image:
    """Repeat the last column and row where a side is too short for the processors."""
    width, height = image.size
    wanted_width = max(width, MIN_SIDE, -(-height // MAX_ASPECT))
    wanted_height = max(height, MIN_SIDE, -(-width // MAX_ASPECT))
    if (wanted_width, wanted_height) == (width, height):
        return image
    pixels = np.asarray(image)
    padding = ((0, wanted_height - height), (0, wanted_width - width), (0, 0))
    return Image.fromarray(np.pad(pixels, padding, mode="edge"))


def _too_large(name: str, pixels: int, size: str = "") -> str:
    size += f"{pixels / 1e6:.0f} megapixels, at most {MAX_PIXELS // 1_000_000} are opened"
    return f"{name} is too large ({size}): scale it down or cut out the part you ask about"


def _short(name: str) -> str:
    return name if len(name) <= 160 else f"{name[:150]}...'"
