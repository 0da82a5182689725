"""Text on pictures, in DejaVu Sans, which comes with matplotlib; other scripts in a font of the system.

font("bold", 11)                         of 11 points at DPI
font_of("总价", "bold", 11)               the first font that has its letters
text_width("relevance", "bold", 11)      in pixels
wrap(question, "bold", 14.5, 900, 2)     lines that fit
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

DPI = 150
"""Pixels per inch of every picture."""
OTHER_SCRIPT = "(text in another script)"
"""Stands for a text that no font here can show."""
_NO_CHARACTER, _TRIED = "\uffff", 10.0  # points
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
    return font_of(text, weight, size).getlength(text)


def font_of(text: str, weight: str, size: float) -> ImageFont.FreeTypeFont:
    """The font of a text: `font`, or where a letter is missing in that, one of the system's that has all."""
    lacks = any(not _has_glyph(c, weight) for c in text if unicodedata.category(c).startswith("L"))
    file = _system_font(_signs(text), weight) if lacks else None
    return font(weight, size) if file is None else _loaded(file, size)


@lru_cache(64)
def _loaded(file: str, size: float) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(file, size * DPI / 72)


def _signs(text: str) -> frozenset[str]:
    """The letters, numbers and punctuation of a text."""
    return frozenset(c for c in text if unicodedata.category(c)[0] in "LMNP")


@lru_cache(512)
def _system_font(signs: frozenset[str], weight: str) -> str | None:
    """The file of a font on this system that has all of some characters, nearest to a weight; or None."""
    codes = set(map(ord, signs))
    return next((file for file in _system_fonts(weight) if codes <= _charmap(file)), None)


@cache
def _system_fonts(weight: str) -> tuple[str, ...]:
    """The files of fonts that matplotlib knows of, upright ones nearest to a weight first."""
    from matplotlib import font_manager  # slow to import, and needed for other scripts alone

    wanted = font_manager.weight_dict[weight]

    def distance(entry: font_manager.FontEntry) -> tuple[bool, float]:
        own = font_manager.weight_dict.get(entry.weight, entry.weight)
        return entry.style != "normal", abs(float(own) - wanted)

    # The font of last resort has a box with a number for every character there is.
    entries = [one for one in font_manager.fontManager.ttflist if "Last Resort" not in one.name]
    return tuple(dict.fromkeys(entry.fname for entry in sorted(entries, key=distance)))


@cache
def _charmap(file: str) -> frozenset[int]:
    """The characters that a font file has; none of one that can't be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(file).get_charmap())
    except (OSError, RuntimeError):  # in matplotlib's list, and gone or damaged since
        return frozenset()


def wrap(text: str, weight: str, size: float, width: float, most: int) -> list[str]:
    """Break into at most `most` lines of `width` pixels, the last with an ellipsis if there is more."""
    words = printable(text[:600], weight).split()  # more than ever fits
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


def printable(text: str, weight: str = "normal") -> str:
    """The text with control characters, for which fonts have no glyphs, as spaces.

    A text of which most letters are missing in every font would be a row of boxes: `OTHER_SCRIPT` says so.
    """
    if _is_other(text, weight) and _system_font(_signs(text), weight) is None:
        return OTHER_SCRIPT
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


def _is_other(text: str, weight: str) -> bool:
    """Whether most letters of a text are missing in the font of a weight."""
    letters = [c for c in text if unicodedata.category(c).startswith("L")]
    return 2 * sum(not _has_glyph(c, weight) for c in letters) > len(letters)


@lru_cache(4096)
def _has_glyph(letter: str, weight: str) -> bool:
    """Whether the font of a weight has a letter: it draws another shape than for what is no character."""
    letter_shape, empty_shape = (_drawn(sign, weight) for sign in (letter, _NO_CHARACTER))
    return letter_shape != empty_shape


def _drawn(sign: str, weight: str) -> bytes:
    """The pixels of a character as the font of a weight draws it."""
    image = Image.new("L", (3 * round(_TRIED * DPI / 72), 3 * round(_TRIED * DPI / 72)))
    ImageDraw.Draw(image).text((0, 0), sign, 255, font(weight, _TRIED))
    return image.tobytes()
