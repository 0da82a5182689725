"""Open any image that a user has as an upright RGB picture, or refuse it in one line.

The cost of an image is bounded before it is decoded: about 10 bytes of memory a pixel (twice that for half as
many pixels of `HEAVY` formats) and seconds of time. Nothing is fetched and no external program is run.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import ExifTags, Image
from PIL.Image import Transpose

from arr_coc.files.paths import local_path, shorten
from arr_coc.files.question import kind_of

if TYPE_CHECKING:
    from torch import Tensor

MAX_PIXELS = 100_000_000  # 300 MB as RGB; all models scale far smaller images down
HEAVY = ("JPEG2000", "WEBP")  # formats decoded in twice the memory: half as many pixels are opened
SLOW = ("ppm", "ppm_plain")  # Pillow decoders in Python: PPM as text, or of unusual depth
SLOW_PIXELS = 2_000_000  # px for `SLOW` formats, which take about two microseconds each
MAX_SCANS = 64  # of a JPEG: each passes over all its pixels; programs write about ten
SMALL_TILES = 2**24  # px of a TIFF's tiles that are decoded however small the image
MAX_BYTES = 2**30  # of an image in a file object
MAX_ASPECT = 200  # the processors of the Qwen-VL family refuse an image longer than 200 times its width
MIN_SIDE = 4  # arrays with a side of 1 or 3 can be mistaken for channels by image processors
CHANNELS = (1, 3, 4)  # of an array: gray, RGB, and RGB with opacity
SLACK = 1e-3  # how far a value of an array may lie outside [0, 1] by rounding: a quarter of an 8-bit level
TURNED = "turned"  # in the `info` of an opened image: the orientation that its file had
PAPERS = (255, 0, 128)  # levels of gray that transparency becomes, the usual one first
VISIBLE_EDGE = 32.0  # levels between two pixels, of an edge that is seen well
MAX_LOST = 0.05  # share of the edges that may be lost on a paper that comes before others
TWELVE_BITS = (4095, 65535)  # largest gray values: scanners save 12 bits in files for 16
# Opened formats, by Pillow's names. Of its others some start programs (EPS, WMF), some decode at a cost that
# isn't in the header (FITS, QOI).
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "JPEG2000", "PPM", "ICO")
_GIVE = "give a PNG, JPEG, WebP, GIF, BMP or TIFF file"
_DAMAGED = "it may be damaged or cut off; download it again or save it as PNG or JPEG"

Box = tuple[float, float, float, float]  # a rectangle (x0, y0, x1, y1) in px of an image
ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | IO[bytes] | np.ndarray | Tensor | Image.Image"
"""A path, the bytes of an image file, an open file of them, pixels, or an open PIL image."""

_SHARED = Lock()  # two threads that decode one opened image, or read one file, spoil it for both
_LARGE = Lock()  # images of more than LARGE px are decoded one at a time
LARGE = 10_000_000


class TooManyPixels(ValueError):
    """Raised for an image with too many pixels, as it comes or after it is grown (`grown_size`)."""


def open_image(source: ImageSource, most: int = MAX_PIXELS) -> Image.Image:
    """Open an image, or an animation's first frame, as upright RGB.

    Law: top left stays top left, so pixel coordinates of an upright image are coordinates of the result.

    Args:
        source: a path; bytes of an image file, or a seekable file object, which stays open at its position;
            pixels as an array [H, W] or [H, W, 1|3|4] or a tensor [C, H, W] or [H, W, C], uint8, bool, or
            floating point in [0, 1]; or a PIL image, which is left unchanged.
        most: pixels that an image of a file may have, before and after it grows.

    Returns:
        A new RGB image. Thin and small ones grow by repeating their edge to an aspect of at most `MAX_ASPECT`
        and sides of at least `MIN_SIDE` px. Transparency becomes white, or black or gray if the drawing would
        be lost on white; deeper values are scaled to 8 bits.

    Raises:
        ValueError: a missing, unreadable, empty or damaged file, or one with too many pixels
            (`TooManyPixels`); pixels of another shape, dtype or range; any other object.
    """
    if isinstance(source, Image.Image):
        file = getattr(source, "filename", "")
        name = f"image {str(file)!r}" if file else f"image of mode {source.mode}"
        return _upright_rgb(source, name, most, _SHARED)
    if isinstance(source, np.ndarray):
        return _upright_rgb(_array_picture(source), "image array", most)
    if isinstance(source, bytes | bytearray | memoryview):
        source = bytes(source)  # a view may skip some, as data[::2] does
        return _decode(io.BytesIO(source), "image bytes", most, empty=not len(source))
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fsdecode(source), most)
    other: Any = source
    if hasattr(other, "is_floating_point"):
        return _upright_rgb(_tensor_picture(other), "image tensor", most)
    if hasattr(other, "read"):
        return _open_file(other, most)
    raise ValueError(
        f"the image is {kind_of(source)}: give a path, bytes, a file opened with 'rb', an array, a "
        "tensor or a PIL image"
    )


def picture_digest(image: Image.Image) -> bytes:
    """Return a 16-byte digest of an opened image's size and pixels."""
    digest = hashlib.blake2b(f"{image.size}".encode(), digest_size=16)
    for box in _strips(image.size):
        digest.update(image.crop(box).tobytes())
    return digest.digest()


def _open_path(text: str, most: int) -> Image.Image:
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
            return _decode(file, name, most, empty=path.stat().st_size == 0)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"{_short(name)} cannot be read ({reason}): check its name and permissions"
        ) from error


def _open_file(file: Any, most: int) -> Image.Image:
    """Return the image in a file object, which is left open at its position."""
    # All bytes are read here: a decoder must not meet what a caller's object may return.
    name = getattr(file, "name", None)
    label = _short(f"image file {name!r}" if isinstance(name, str) else f"image file ({type(file).__name__})")
    if getattr(file, "closed", False):
        raise ValueError(f"{label} is closed: open it again, or give its path")
    with _SHARED:
        try:
            start = file.tell()
            file.seek(0)
        except Exception as error:  # a caller's object may raise anything
            raise ValueError(f"{label} can't be rewound: read it, and give its bytes") from error
        data = bytearray()
        try:
            while part := file.read(2**20):
                if not isinstance(part, bytes | bytearray | memoryview):
                    break
                data += part
                if len(data) > MAX_BYTES:
                    break
            file.seek(start)
        except Exception as error:
            raise ValueError(f"{label} cannot be read ({_reason(error)}): give its path or bytes") from error
    if isinstance(part, str):
        raise ValueError(f"{label} was opened as text: open it with 'rb'")
    if not isinstance(part, bytes | bytearray | memoryview):
        raise ValueError(f"{label} gives {kind_of(part)} where bytes are read: give its path or bytes")
    if len(data) > MAX_BYTES:
        raise ValueError(f"{label} is longer than {MAX_BYTES >> 20} MiB: scale the image down")
    return _decode(io.BytesIO(data), label, most, empty=not data)


def _array_picture(array: np.ndarray) -> Image.Image:
    """Return an array [H, W] or [H, W, C] as a picture in mode L, RGB or RGBA; its range is never guessed.

    Raises:
        ValueError: another shape or dtype, values that aren't finite or in [0, 1], or too many pixels.
    """
    label = f"image array of shape {tuple(array.shape)} and dtype {array.dtype}"
    if np.ma.is_masked(array):
        raise ValueError(f"{label} has masked values: fill them, as array.filled(0) does")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in CHANNELS):
        raise ValueError(f"{label} is no picture: give one as (H, W), (H, W, 3) or (H, W, 4)")
    _check_array_size(array.shape[0], array.shape[1], label)
    return _picture(np.asarray(array), label)


def _tensor_picture(tensor: Tensor) -> Image.Image:
    """Return a tensor [H, W], [C, H, W] or [H, W, C] as a picture; if both fit, channels come first."""
    kind = str(tensor.dtype).removeprefix("torch.")
    try:
        label = f"image tensor of shape {tuple(tensor.shape)} and dtype {kind}"
    except Exception as error:  # a nested tensor has no shape
        raise ValueError(f"image tensor of dtype {kind} has no shape: give (H, W) or (3, H, W)") from error
    first, last = (tensor.ndim == 3 and tensor.shape[axis] in CHANNELS for axis in (0, 2))
    if tensor.ndim != 2 and not first and not last:
        raise ValueError(f"{label} is no picture: give (H, W), (3, H, W) or (H, W, 3), without a batch")
    height, width = tensor.shape[1:] if first else tensor.shape[:2]
    _check_array_size(height, width, label)
    try:
        values = tensor.detach().cpu()
        values = values.float() if values.is_floating_point() else values  # NumPy has no bfloat16
        array = (values.movedim(0, 2) if first else values).numpy()
    except Exception as error:
        raise ValueError(
            f"{label} has no pixels that can be read (meta, sparse, quantized?): give a dense tensor, as of "
            "to_dense() or dequantize()"
        ) from error
    return _picture(array, label)


def _check_array_size(height: int, width: int, label: str) -> None:
    if not height or not width:
        raise ValueError(f"{label} is empty: give a picture of at least 1x1 px")
    if height * width > MAX_PIXELS:  # before anything is copied
        raise ValueError(f"{label} is too large (at most {MAX_PIXELS:,} px): scale it down or cut out a part")


def _picture(values: np.ndarray, label: str) -> Image.Image:
    """Return checked values [H, W] or [H, W, C] as a picture."""
    if values.dtype == np.bool_:
        values = values * np.uint8(255)
    elif np.issubdtype(values.dtype, np.floating):
        values = _levels(values, label)
    elif values.dtype != np.uint8:
        raise ValueError(f"{label} has no pixels: give uint8, bool, or floating point in [0, 1]")
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    return Image.fromarray(np.ascontiguousarray(values))


def _levels(values: np.ndarray, label: str) -> np.ndarray:
    """Return floating-point values in [0, 1] as 8-bit levels."""
    low, high = float(values.min()), float(values.max())  # NaN comes through both
    if not np.isfinite([low, high]).all():
        raise ValueError(f"{label} holds NaN or infinity: give finite values in [0, 1]")
    if low < -SLACK or high > 1 + SLACK:
        raise ValueError(
            f"{label} holds {low:.4g} to {high:.4g}: give values in [0, 1], or uint8 for 0 to 255"
        )
    levels = np.empty(values.shape, np.uint8)
    for row, numbers in zip(levels, values, strict=True):  # by rows: bounds temporary memory
        row[...] = np.rint(numbers.clip(0, 1) * 255)
    return levels


def _decode(file: IO[bytes], name: str, most: int, empty: bool) -> Image.Image:
    if empty:
        raise ValueError(f"{name} is empty (0 bytes): save or download it again")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of what is refused here, or what it has repaired
        try:
            with identify(file, name) as image:
                return _upright_rgb(image, name, most)
        except ValueError as error:
            # Pillow raises a ValueError for overlong texts in a PNG.
            short = _without_texts(file) if isinstance(error.__cause__, ValueError) else None
            if short is None:
                raise
        with identify(short, name) as image:
            return _upright_rgb(image, name, most)


def identify(file: IO[bytes], name: str) -> Image.Image:
    """Open an image file with Pillow without decoding it; `name` is for messages.

    Raises:
        ValueError: another format than `FORMATS`, a damaged header, or far too many pixels.
    """
    try:
        return Image.open(file, formats=FORMATS)
    except Image.DecompressionBombError as error:
        # Pillow refused before it knew width and height; its message holds their product.
        pixels = re.search(r"\d+", str(error))
        raise TooManyPixels(_too_large(name, int(pixels[0]) if pixels else 2 * MAX_PIXELS)) from error
    except Image.UnidentifiedImageError as error:
        raise ValueError(f"{name} {_unidentified(file)}") from error
    except Exception as error:  # damaged headers make decoders raise anything
        raise ValueError(f"{name} cannot be opened ({_reason(error)}): {_DAMAGED}") from error


def _unidentified(file: IO[bytes]) -> str:
    """Return why Pillow can't identify an image, as the format's own decoder reports it."""
    file.seek(0)
    start = file.read(1024)
    if b"%PDF-" in start:
        return "is a PDF: save a page as PNG, or draw it by arr_coc.files.pdf.open_page('a.pdf', page=1)"
    Image.init()
    for kind in Image.ID:
        factory, accepts = Image.OPEN[kind]
        try:
            if accepts is None or accepts(start[:16]) is not True:
                continue
        except Exception:  # the file is too short
            continue
        if kind not in FORMATS:
            return f"is {kind}, which is not opened: save it as PNG or JPEG"
        try:
            file.seek(0)
            factory(file, "")
        except Exception as error:
            return f"cannot be opened ({kind}: {_reason(error)}): {_DAMAGED}"
    return f"is not an image that can be read: {_GIVE}"


def _without_texts(file: IO[bytes]) -> IO[bytes] | None:
    """Return a PNG file without its texts and colour profile; None if it has none."""
    file.seek(0)
    kept, left_out = [file.read(8)], False
    if kept[0] != b"\x89PNG\r\n\x1a\n":
        return None
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind in (b"tEXt", b"zTXt", b"iTXt", b"iCCP"):
            left_out = True
            file.seek(length + 4, os.SEEK_CUR)
        else:
            kept += [head, file.read(length + 4)]
    return io.BytesIO(b"".join(kept)) if left_out else None


def check_cost(image: Image.Image, name: str, most: int = MAX_PIXELS) -> None:
    """Refuse an image, before it is decoded, that takes far more memory or time than others of its size.

    Raises:
        ValueError: too many pixels, before or after `grown_size`, JPEG scans, or too large TIFF tiles.
    """
    is_slow = any(part[0] in SLOW for part in getattr(image, "tile", ()))
    allowed = SLOW_PIXELS if is_slow else MAX_PIXELS // 2 if image.format in HEAVY else MAX_PIXELS
    _check_size(image.size, name, min(allowed, most), most)
    file = getattr(image, "fp", None)
    if file is None:  # already decoded
        return
    try:
        scans, tiles = 0, 0
        if image.format in ("JPEG", "MPO"):
            place = file.tell()
            scans = count_scans(file, MAX_SCANS)
            file.seek(place)
        elif image.format == "TIFF":
            tiles = _tile_pixels(image)
    except Exception as error:  # a closed file, or an invalid number of a tile
        raise ValueError(f"{name} cannot be decoded ({_reason(error)}): {_DAMAGED}") from error
    if scans > MAX_SCANS:
        raise ValueError(f"{name} is a JPEG of more than {MAX_SCANS} scans: save it anew as PNG or JPEG")
    if tiles > max(2 * image.width * image.height, SMALL_TILES):
        raise ValueError(
            f"{name} of {image.width}x{image.height} px has tiles of {tiles / 1e6:.0f} megapixels: save it "
            "anew as PNG or JPEG"
        )


def _check_size(size: tuple[int, int], name: str, most: int, most_grown: int) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise ValueError(f"{name} is {width}x{height} px: give an image of at least 1x1 px")
    if width * height > most:
        raise TooManyPixels(_too_large(name, width * height, f"{width}x{height} px, ", most))
    wide, high = grown_size(size)
    if wide * high > most_grown:
        raise TooManyPixels(
            f"{name} is too thin ({width}x{height} px): models take images at most {MAX_ASPECT} times as "
            f"long as wide, and {wide}x{high} px are too many: cut out the part you ask about"
        )


def _tile_pixels(image: Image.Image) -> int:
    """Return how many pixels the tiles that cover a TIFF have; 0 without tiles."""
    tags: Any = getattr(image, "tag_v2", {})
    width, height = (int(tags.get(tag, 0)) for tag in (322, 323))
    if not width or not height:
        return 0
    return -(-image.width // width) * width * -(-image.height // height) * height


_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd8]")  # a JPEG segment with a length
_SOS, _EOI = 0xDA, 0xD9


def count_scans(file: IO[bytes], most: int) -> int:
    """Count the scans of a JPEG, up to `most` + 1; move the file's position."""
    scans = at = start = 0
    block = b""
    while True:
        if not start <= at <= start + len(block) - 4:
            file.seek(at)
            start, block = at, file.read(2**16)
            if len(block) < 4:
                return scans
        marker = _MARKER.search(block, at - start)
        if marker is None:
            at = start + len(block) - 1
            continue
        at = start + marker.start()
        if at > start + len(block) - 4:
            continue  # its length is in the next block
        code = block[at - start + 1]
        scans += code == _SOS
        if code == _EOI or scans > most:
            return scans
        at += 2 + int.from_bytes(block[at - start + 2 : at - start + 4])


def _upright_rgb(
    image: Image.Image, name: str, most: int, decoding: AbstractContextManager[object] | None = None
) -> Image.Image:
    with _LARGE if math.prod(grown_size(image.size)) > LARGE else nullcontext():
        with decoding or nullcontext():
            check_cost(image, name, most)
            try:
                image.load()  # an animation is at its first frame
            except Exception as error:  # a truncated file is an OSError, a broken chunk a SyntaxError
                raise ValueError(f"{name} cannot be decoded ({_reason(error)}): {_DAMAGED}") from error
        _check_size(image.size, name, most, most)  # an icon's size is known only now
        try:
            result = _grow(_to_rgb(_upright(image)))
        except Exception as error:  # modes that Pillow can't convert
            raise ValueError(f"{name} cannot be decoded ({_reason(error)}): {_DAMAGED}") from error
        result = result.copy() if result is image else result
    # It includes the applied orientation: reopened, it must not turn again.
    result.info = {} if (turn := orientation_of(image)) == 1 else {TURNED: turn}
    return result


_TURNS = {  # by EXIF orientation
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}


def orientation_of(image: Image.Image) -> int:
    """Return an image's orientation by its EXIF data, 1 to 8; 1 (upright) if none can be read."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged data raises anything; the pixels don't depend on it
        return 1
    return orientation if orientation in _TURNS else 1


def _upright(image: Image.Image) -> Image.Image:
    """Return the image turned by its EXIF orientation; unchanged if the EXIF data can't be read."""
    # Not Pillow's `exif_transpose`, which refuses a sound image for one damaged entry.
    turn = _TURNS.get(orientation_of(image))
    return image if turn is None else image.transpose(turn)


_PIXELS_AT_ONCE = 2**18  # bounds the memory of each conversion


def _strips(size: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield boxes of a few rows each that together cover an image."""
    width, height = size
    rows = max(1, _PIXELS_AT_ONCE // width)
    return ((0, top, width, min(top + rows, height)) for top in range(0, height, rows))


def _to_rgb(image: Image.Image) -> Image.Image:
    """Return the image in mode RGB, itself if it is already."""
    convert: Callable[[Image.Image], Image.Image]
    if image.mode.startswith("I") or image.mode == "F":
        convert = _deep_gray(image)
    elif image.has_transparency_data:
        convert = _with_alpha
    else:
        return image if image.mode == "RGB" else image.convert("RGB")
    paper = _paper(map(convert, map(image.crop, _strips(image.size))))
    result = Image.new("RGB", image.size)
    for box in _strips(image.size):
        strip = convert(image.crop(box))
        if strip.mode == "RGBA":
            strip = Image.alpha_composite(Image.new("RGBA", strip.size, (paper,) * 3), strip)
        result.paste(strip.convert("RGB"), box)
    return result


def _with_alpha(image: Image.Image) -> Image.Image:
    """Return an image with transparency of any kind as RGBA."""
    if image.mode in ("La", "RGBa"):  # multiplied by their opacity, which Pillow takes back one by one
        image = image.convert(image.mode.replace("a", "A"))
    return image.convert("RGBA")


def _paper(strips: Iterable[Image.Image]) -> int:
    """Return the gray that transparency becomes: the first of `PAPERS` on which little that is drawn is lost.

    An edge counts as visible if it is half as strong as on the best paper, or as strong as `VISIBLE_EDGE`,
    and as lost as far as it is fainter. So what is dark, strong in colour or on an opaque ground lies on
    white.
    """
    visible, every = np.zeros(len(PAPERS)), 0.0
    for strip in strips:
        if strip.mode != "RGBA" or strip.getchannel("A").getextrema() == (255, 255):
            continue
        opacity = np.asarray(strip.getchannel("A"), dtype=np.float32) / 255
        ink = np.asarray(strip.convert("RGB").convert("L"), dtype=np.float32) * opacity
        levels = [ink + paper * (1 - opacity) for paper in PAPERS]
        for axis in (0, 1):
            edges = [np.abs(np.diff(level, axis=axis)) for level in levels]
            enough = np.minimum(np.max(edges, axis=0) / 2, VISIBLE_EDGE)
            visible += [np.minimum(edge, enough).sum() for edge in edges]
            every += float(enough.sum())
    kept = [i for i in range(len(PAPERS)) if visible[i] >= (1 - MAX_LOST) * every]
    return PAPERS[kept[0] if kept else int(visible.argmax())]


def _deep_gray(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Return a function that turns strips of 16-bit, 32-bit or float gray into RGB, scaled by the range of
    all strips.

    It gives RGBA if a level of gray is named as transparent. Pillow's own convert() clips at 255.
    """
    clear = image.info.get("transparency")

    def values_of(strip: Image.Image) -> np.ndarray:
        values = np.asarray(strip, dtype=np.float64)
        return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0) if image.mode == "F" else values

    ranges = [(values.min(), values.max()) for values in map(values_of, map(image.crop, _strips(image.size)))]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    if image.mode == "F":
        low = min(low, 0.0)
        full = 1.0 if high <= 1.0 else 255.0 if high <= 255.0 else high  # fractions, bytes, or any range
    else:
        # Mode "I" below 16 bits comes from Pillow's convert("I"), which keeps bytes unchanged.
        depths = (255, *TWELVE_BITS) if image.mode == "I" else TWELVE_BITS
        low, full = 0.0, next((depth for depth in depths if high <= depth), high)

    def convert(strip: Image.Image) -> Image.Image:
        values = values_of(strip)
        levels = ((values - low) / (full - low)).clip(0, 1) * 255
        gray = Image.fromarray(np.rint(levels).astype(np.uint8)).convert("RGB")
        if isinstance(clear, int):
            gray.putalpha(Image.fromarray(np.where(values == clear, np.uint8(0), np.uint8(255))))
        return gray

    return convert


def grown_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return the (width, height) that `open_image` makes of an image of this size."""
    width, height = size
    return max(width, MIN_SIDE, -(-height // MAX_ASPECT)), max(height, MIN_SIDE, -(-width // MAX_ASPECT))


def _grow(image: Image.Image) -> Image.Image:
    """Repeat the last column and row of an image with a side too short for image processors."""
    (width, height), (wide, high) = image.size, grown_size(image.size)
    if (wide, high) == (width, height):
        return image
    grown = Image.new("RGB", (wide, high))
    grown.paste(image)
    if wide > width:
        column = image.crop((width - 1, 0, width, height))
        grown.paste(column.resize((wide - width, height), Image.Resampling.NEAREST), (width, 0))
    if high > height:
        row = grown.crop((0, height - 1, wide, height))
        grown.paste(row.resize((wide, high - height), Image.Resampling.NEAREST), (0, height))
    return grown


def _too_large(name: str, pixels: int, size: str = "", most: int = MAX_PIXELS) -> str:
    size += f"{pixels / 1e6:.0f} megapixels, at most {most // 1_000_000} are opened"
    return f"{name} is too large ({size}): scale it down or cut out the part you ask about"


def _reason(error: Exception) -> str:
    """Return a decoder's error as part of a line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.isprintable() and len(text) <= 160 else shorten(text)


def _short(name: str) -> str:
    return name if len(name) <= 160 else f"{name[:150]}...'"
