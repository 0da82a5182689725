"""Open any image a user has, or say in one line why not.

    open_image(path | bytes | file | array | tensor | PIL image) -> RGB PIL image, ready for a processor

The first frame of an animation, CMYK, palette, 16-bit and alpha images are converted; the EXIF
orientation is applied; very thin and very small images grow by repeating their edge. Law: top left stays
top left, so pixel coordinates of an upright image are coordinates of the result. Every refusal is a
ValueError that names the file and the remedy. Nothing is fetched and no external program is run.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import ExifTags, Image
from PIL.Image import Transpose

from arr_coc.core.arrays import array_picture, tensor_picture
from arr_coc.core.paths import local_path
from arr_coc.core.question import kind_of

if TYPE_CHECKING:
    from torch import Tensor  # at run time a path needs no torch

MAX_PIXELS = 100_000_000
"""Larger images are refused from their header alone: 100 megapixels are 300 MB as RGB, and every model
scales far smaller ones down."""

MAX_ASPECT = 200
"""The processors of the Qwen-VL family refuse an image longer than 200 times its width."""

MIN_SIDE = 4
"""Arrays with a side of 1 or 3 can be mistaken for channels by image processors."""

ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | IO[bytes] | np.ndarray | Tensor | Image.Image"
"""A path, the bytes of an image file, a file object of them, pixels, or an opened image."""

TWELVE_BITS = (4095, 65535)
"""Largest values of gray of 12 and of 16 bits: scanners and medical devices save 12 in files for 16."""

_PROGRAMS = {
    "EPS",
    "WMF",
}  # Pillow hands these to Ghostscript or the system, so they are not decoded here

_SHARED = Lock()
"""For what threads may share: two that decode one opened image, or read one file, spoil it for both."""


def open_image(source: ImageSource) -> Image.Image:
    """Open an image and make it RGB and upright.

    Args:
        source: a path; the bytes of an image file, or a file object that can be rewound, which stays open and
            where it stands; pixels as an array [H, W] or [H, W, 1|3|4] or a tensor [C, H, W] or [H, W, C],
            uint8, bool, or floating point in [0, 1]; or an opened PIL image, which is left unchanged.

    Returns:
        A new image in mode RGB, at most `MAX_ASPECT` times longer than wide, at least `MIN_SIDE` px on
        each side. Transparency is laid on white; deeper values are scaled to 8 bits.

    Raises:
        ValueError: a missing, unreadable, empty, damaged or too large file, pixels of another shape, type or
            range, or no image at all.
    """
    if isinstance(source, Image.Image):
        file = getattr(source, "filename", "")
        name = f"image {str(file)!r}" if file else f"image of mode {source.mode}"
        return _upright_rgb(source, name, _SHARED)
    if isinstance(source, np.ndarray):
        return _upright_rgb(array_picture(source, MAX_PIXELS), "image array")
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(io.BytesIO(source), "image bytes", empty=not len(source))
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fsdecode(source))
    other: Any = source
    if hasattr(other, "is_floating_point"):
        return _upright_rgb(tensor_picture(other, MAX_PIXELS), "image tensor")
    if hasattr(other, "read"):
        with _SHARED:
            return _open_file(other)
    raise ValueError(
        f"the image is {kind_of(source)}: give a path, bytes, a file opened with 'rb', an array, a "
        "tensor or a PIL image"
    )


def picture_digest(image: Image.Image) -> bytes:
    """A short name of the pixels of an opened image: 16 bytes."""
    return hashlib.blake2b(f"{image.size}".encode() + image.tobytes(), digest_size=16).digest()


def _open_path(text: str) -> Image.Image:
    name = f"image {text!r}"
    if not text:
        raise ValueError("the image's path is empty: give the path of one image file")
    if re.match(r"(?i)[a-z][a-z0-9+.-]+:(//|.*;base64,)", text):
        raise ValueError(
            f"{_short(name)} is an address and nothing is fetched: download it and give the file's path"
        )
    try:
        path = local_path(text)
    except ValueError as error:
        raise ValueError(f"the image's {error}") from error
    try:
        if path.is_dir():
            raise ValueError(f"{name} is a folder: give the path of one image file")
        if not path.exists():
            folder = str(path.parent.absolute())
            raise ValueError(f"{name} does not exist: check the path (looked in {folder!r})")
        if not path.is_file():
            raise ValueError(f"{name} is not a regular file: give the path of an image file")
        with path.open("rb") as file:
            return _decode(file, name, empty=path.stat().st_size == 0)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"{_short(name)} cannot be read ({reason}): check its name and permissions"
        ) from error


def _open_file(file: Any) -> Image.Image:
    """An image of a file object, which is left open and where it stands."""
    name = getattr(file, "name", None)
    label = _short(f"image file {name!r}" if isinstance(name, str) else f"image file ({type(file).__name__})")
    if getattr(file, "closed", False):
        raise ValueError(f"{label} is closed: open it again, or give its path")
    try:
        start = file.tell()
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(0)
        if not isinstance(file.read(0), bytes):
            raise ValueError(f"{label} was opened as text: open it with 'rb'")
    except (OSError, AttributeError, NotImplementedError) as error:
        raise ValueError(f"{label} can't be rewound: read it, and give its bytes") from error
    try:
        return _decode(file, label, empty=size == 0)
    finally:
        file.seek(start)


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


def _upright_rgb(
    image: Image.Image, name: str, decoding: AbstractContextManager[object] | None = None
) -> Image.Image:
    width, height = image.size
    if width < 1 or height < 1:
        raise ValueError(f"{name} is {width}x{height} px: give an image of at least 1x1 px")
    if width * height > MAX_PIXELS:
        raise ValueError(_too_large(name, width * height, f"{width}x{height} px, "))
    try:
        with decoding or nullcontext():
            image.load()  # an animation stands at its first frame
        image = _grow(_to_rgb(_upright(image)))
        image.info = {}  # with the orientation that was applied: opened again, it must not turn again
        return image
    except Exception as error:  # see _decode; a truncated file is an OSError, a broken chunk a SyntaxError
        reason = " ".join(str(error).split()) or type(error).__name__
        remedy = "it may be damaged or cut off; download it again or save it as PNG or JPEG"
        raise ValueError(f"{name} cannot be decoded ({reason}): {remedy}") from error


_TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
"""What makes an image upright, by its EXIF orientation."""


def _upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF orientation says; as it is where the EXIF data can't be read.

    Pillow's `exif_transpose` also writes the data anew, and refuses a sound image with one junk entry.
    """
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except Exception:  # junk raises anything; the pixels don't depend on it
        return image
    return image if turn is None else image.transpose(turn)


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
        # "I" of fewer than 16 bits is of Pillow's own convert("I"), which leaves bytes as they are
        depths = (255, *TWELVE_BITS) if image.mode == "I" else TWELVE_BITS
        full = next((depth for depth in depths if values.max() <= depth), values.max())
        values = values / full
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
