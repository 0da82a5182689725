"""Image files for tests: encoded pictures, and headers that claim more than they hold."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def corners() -> Image.Image:
    """30 x 20, red top left, green top right, blue bottom left, gray bottom right."""
    pixels = np.full((20, 30, 3), 128, dtype=np.uint8)
    pixels[:10, :15], pixels[:10, 15:], pixels[10:, :15] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    return Image.fromarray(pixels)


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_header(width: int, height: int) -> bytes:
    """The first bytes of a PNG that claims a size: enough for a header, nothing to decode."""
    ihdr = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    data = png_chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + ihdr + data + png_chunk(b"IEND", b"")


def with_chunk(png: bytes, name: bytes, data: bytes, last: bool = False) -> bytes:
    """A PNG with one more chunk, behind its header or before its end."""
    at = len(png) - 12 if last else 33
    return png[:at] + png_chunk(name, data) + png[at:]


def with_scans(jpeg: bytes, count: int) -> bytes:
    """A JPEG whose last scan is there so many more times."""
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    return jpeg[:-2] + scan * count + jpeg[-2:]


def tiled_tiff(size: tuple[int, int], tile: tuple[int, int]) -> bytes:
    """A TIFF in gray that claims one tile of a size."""
    data = zlib.compress(bytes(1000))
    numbers = {
        256: size[0], 257: size[1], 258: 8, 259: 8, 262: 1, 277: 1,
        322: tile[0], 323: tile[1], 324: 8 + 2 + 12 * 10 + 4, 325: len(data),
    }  # fmt: skip
    entries = [struct.pack("<HHII", tag, 4, 1, number) for tag, number in numbers.items()]
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4) + data


def junk_exif(orientation: int) -> bytes:
    """EXIF data with an orientation, and beside it a text where an offset to more data belongs."""

    def entry(tag: int, kind: int, value: bytes) -> bytes:
        return struct.pack("<HHI", tag, kind, len(value) if kind == 2 else 1) + value.ljust(4, b"\0")

    entries = [entry(0x0112, 3, struct.pack("<H", orientation)), entry(0x0201, 2, b"abc")]
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
