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


def png_header(width: int, height: int) -> bytes:
    """The first bytes of a PNG that claims a size: enough for a header, nothing to decode."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    ihdr = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + ihdr + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def junk_exif(orientation: int) -> bytes:
    """EXIF data with an orientation, and beside it a text where an offset to more data belongs."""

    def entry(tag: int, kind: int, value: bytes) -> bytes:
        return struct.pack("<HHI", tag, kind, len(value) if kind == 2 else 1) + value.ljust(4, b"\0")

    entries = [entry(0x0112, 3, struct.pack("<H", orientation)), entry(0x0201, 2, b"abc")]
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
