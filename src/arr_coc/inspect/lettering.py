"""Text on pictures, in DejaVu Sans, which comes with matplotlib and of which no more than its files is used.

font("bold", 11)                         of 11 points at DPI
text_width("relevance", "bold", 11)      in pixels
wrap(question, "bold", 14.5, 900, 2)     lines that fit
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from PIL import ImageFont

DPI = 150
"""Pixels per inch of every picture."""
_FILES = {"normal": "DejaVuSans.ttf", "bold": "DejaVuSans-Bold.ttf"}


@cache
def font(weight: str, size: float) -> ImageFont.FreeTypeFont:
    """The font of a weight, "normal" or "bold", and a size in points."""
    spec = find_spec("matplotlib")  # which finds the folder and imports nothing
    if spec is None or spec.origin is None:
        raise FileNotFoundError("matplotlib, whose fonts pictures are lettered in, is not installed")
    file = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / _FILES[weight]
    return ImageFont.truetype(str(file), size * DPI / 72)


def text_width(text: str, weight: str, size: float) -> float:
    """The width of a text of one line in pixels."""
    return font(weight, size).getlength(text)


def wrap(text: str, weight: str, size: float, width: float, most: int) -> list[str]:
    """Break into at most `most` lines of `width` pixels, the last with an ellipsis if there is more."""
    words = printable(text[:600]).split()  # more than ever fits
    lines: list[str] = []
    line = ""
    while words:
        word = words.pop(0)
        joined = f"{line} {word}".strip()
        if text_width(joined, weight, size) <= width:
            line = joined
        elif line:
            lines.append(line)
            line = ""
            words.insert(0, word)
        else:  # one word wider than the picture: cut it
            lengths = range(1, len(word) + 1)
            fits = max(1, bisect_right(lengths, width, key=lambda n: text_width(word[:n], weight, size)))
            lines.append(word[:fits])
            words[:0] = [word[fits:]] if word[fits:] else []
        if len(lines) > most:
            break
    lines += [line] if line else []
    if len(lines) > most:
        last = lines[most - 1]
        while last and text_width(f"{last}…", weight, size) > width:
            last = last[:-1]
        lines = [*lines[: most - 1], f"{last.rstrip()}…"]
    return lines


def printable(text: str) -> str:
    """The text with control characters, for which fonts have no glyphs, as spaces."""
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)
