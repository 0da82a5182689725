"""Pictures of an allocation, drawn from its record and the image alone.

    draw_allocation(image, allocation, question, answer)  image, relevance, kept cells
    draw_layers(image, allocation, question)              image, three scorers, their balance, kept cells

A map's colours run from 0 to its highest value, written above it. Pillow draws: importing matplotlib would
take longer than all of a picture.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch import Tensor

from arr_coc.choose.allocation import SCORERS, Allocation
from arr_coc.data.record import Box
from arr_coc.files.drawing import load_font
from arr_coc.trace.evidence import Guidance, Spot, check_boxes, likely_units, scaled, score

# ---- colours of numbers in [0, 1] ----------------------------------------------------------------------

# Lightness rises from near-black over purple and orange to cream, so that a map is readable in gray and with
# common kinds of colour blindness.
STOPS = (  # RGB at equal steps, mixed in between
    (8, 8, 20), (58, 20, 92), (140, 36, 104), (214, 66, 82), (250, 136, 72), (254, 206, 120), (255, 250, 226),
)  # fmt: skip
_STEPS = np.linspace(0, len(STOPS) - 1, 256)
PALETTE: np.ndarray = np.rint(  # of 0 to 1, RGB, uint8 [256, 3]
    np.stack([np.interp(_STEPS, range(len(STOPS)), channel) for channel in zip(*STOPS, strict=True)], axis=1)
).astype(np.uint8)


def colours(numbers: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1] as RGB, float [...] -> uint8 [..., 3]."""
    return PALETTE[(numbers * 256).astype(np.int64).clip(0, 255)]


# ---- text, in DejaVu Sans, which comes with matplotlib; other scripts in a font of the system ----------

DPI = 150  # pixels per inch of all pictures
OTHER_SCRIPT = "(text in another script)"  # replaces text that no font here can show
_NO_CHARACTER = "\uffff"  # for which a font draws its empty box
_TRIED = 10.0  # points at which letters are drawn to see whether a font has them
_FILES = {"normal": "DejaVuSans.ttf", "bold": "DejaVuSans-Bold.ttf"}


@cache
def font(weight: str, size: float) -> ImageFont.FreeTypeFont:
    """Return the font of a weight, "normal" or "bold", and a size in points."""
    return load_font(_FILES[weight], size * DPI / 72)


def text_width(text: str, weight: str, size: float) -> float:
    """Return the width of a text of one line in pixels."""
    return font_of(text, weight, size).getlength(text)


def font_of(text: str, weight: str, size: float) -> ImageFont.FreeTypeFont:
    """`font`, or if it lacks a letter of the text, a system font that has all."""
    lacks = any(not _has_glyph(c, weight) for c in text if unicodedata.category(c).startswith("L"))
    file = _system_font(_signs(text), weight) if lacks else None
    return font(weight, size) if file is None else _loaded(file, size)


@lru_cache(64)
def _loaded(file: str, size: float) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(file, size * DPI / 72)


def _signs(text: str) -> frozenset[str]:
    """Return the letters, numbers and punctuation of a text."""
    return frozenset(c for c in text if unicodedata.category(c)[0] in "LMNP")


@lru_cache(512)
def _system_font(signs: frozenset[str], weight: str) -> str | None:
    """Return the file of the system font nearest to a weight that has all of some characters, or None."""
    codes = set(map(ord, signs))
    return next((file for file in _system_fonts(weight) if codes <= _charmap(file)), None)


@cache
def _system_fonts(weight: str) -> tuple[str, ...]:
    """Return the files of matplotlib's known fonts, upright ones nearest to a weight first."""
    from matplotlib import font_manager  # slow to import, and needed for other scripts alone

    wanted = font_manager.weight_dict[weight]

    def distance(entry: font_manager.FontEntry) -> tuple[bool, float]:
        own = font_manager.weight_dict.get(entry.weight, entry.weight)
        return entry.style != "normal", abs(float(own) - wanted)

    # The font of last resort has a numbered box for every character.
    entries = [one for one in font_manager.fontManager.ttflist if "Last Resort" not in one.name]
    return tuple(dict.fromkeys(entry.fname for entry in sorted(entries, key=distance)))


@cache
def _charmap(file: str) -> frozenset[int]:
    """Return the characters of a font file; none if it can't be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(file).get_charmap())
    except (OSError, RuntimeError):  # listed by matplotlib, but gone or damaged since
        return frozenset()


def wrap(text: str, weight: str, size: float, width: float, most: int) -> list[str]:
    """Break text into at most `most` lines of `width` pixels, the last with an ellipsis if there is more."""
    words = drawable_text(text[:600], weight).split()  # more than ever fits
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


def drawable_text(text: str, weight: str = "normal") -> str:
    """Return the text without control characters; `OTHER_SCRIPT` if no font has most of its letters."""
    letters = [c for c in text if unicodedata.category(c).startswith("L")]
    missing = sum(not _has_glyph(c, weight) for c in letters)
    if 2 * missing > len(letters) and _system_font(_signs(text), weight) is None:
        return OTHER_SCRIPT
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


@lru_cache(4096)
def _has_glyph(letter: str, weight: str) -> bool:
    """Return whether a font has a letter: it draws another shape than for an invalid character."""
    letter_shape, empty_shape = (_drawn(sign, weight) for sign in (letter, _NO_CHARACTER))
    return letter_shape != empty_shape


def _drawn(sign: str, weight: str) -> bytes:
    """Return the pixels of a character as the font of a weight draws it."""
    image = Image.new("L", (3 * round(_TRIED * DPI / 72), 3 * round(_TRIED * DPI / 72)))
    ImageDraw.Draw(image).text((0, 0), sign, 255, font(weight, _TRIED))
    return image.tobytes()


# ---- marks on a panel: outlines of the evidence, and the guide's words where it read them --------------

# Boxes in shares of the picture's sides, and whether all of their cells were kept.
Evidence: TypeAlias = Sequence[tuple[Box, bool]]
_Px: TypeAlias = tuple[int, int, int, int]  # left, top, right, bottom; the last two are inside
AROUND = 0.005  # gap between a box and its outline, in shares of the sides, so that print stays visible
HIT, MISSED, SPOT = "#0e9f6e", "#e02424", "#0b7bc4"
_MARK_LINE, _HALO, _DASH, _SPACE = 4, 2, 11, 8  # px of an outline, its white edge, a dash, a gap
_LABEL = 8.0  # points of a word of the guide
_BAR, _BAR_HALF = 7, 12  # px, the height of a bar below print and half its width
_DOT = 4  # px, the most that are blank within a letter: below the dot of an i
_CONTRAST = 24  # levels of gray within a row from which on it is printed
_AWAY = 2  # of its own heights: how far up a word may move so that it hides nothing
_SMOOTH = 4  # rounded shapes are drawn so many times as large and reduced


def draw_evidence(panel: Image.Image, evidence: Evidence) -> None:
    """Outline boxes: solid green if all cells were kept, else dashed red."""
    draw = ImageDraw.Draw(panel)
    for (x0, y0, x1, y1), is_hit in evidence:
        left, right = (round(x * panel.width) for x in (x0 - AROUND, x1 + AROUND))
        top, bottom = (round(y * panel.height) for y in (y0 - AROUND, y1 + AROUND))
        strokes = list(_strokes((left, top, right, bottom), dashed=not is_hit))
        for grown, colour in ((_HALO, "white"), (0, HIT if is_hit else MISSED)):
            for x, y, x_end, y_end in strokes:
                draw.rectangle((x - grown, y - grown, x_end + grown, y_end + grown), fill=colour)


def _strokes(box: _Px, dashed: bool) -> Iterator[_Px]:
    """Yield the outline of a box in px as filled rectangles: solid sides or dashes."""
    before, after = _MARK_LINE // 2, _MARK_LINE - _MARK_LINE // 2 - 1
    left, top, right, bottom = box[0] - before, box[1] - before, box[2] + after, box[3] + after
    across, down = (
        [(at, min(at + _DASH - 1, end)) for at in range(start, end + 1, _DASH + _SPACE)]
        if dashed
        else [(start, end)]
        for start, end in ((left, right), (top, bottom))
    )
    thick = before + after
    yield from ((start, y, end, y + thick) for y in (top, bottom - thick) for start, end in across)
    yield from ((x, start, x + thick, end) for x in (left, right - thick) for start, end in down)


def draw_spots(panel: Image.Image, spots: Sequence[Spot]) -> None:
    """Draw on a panel, in place: a bar under the print nearest to each spot, and its label above or below.

    A label moves up to avoid other labels and print at other places, and a little further to avoid other
    print.
    """
    letters, pad = font("normal", _LABEL), round(0.2 * _LABEL * DPI / 72)
    above, below = letters.getmetrics()
    gray = np.asarray(panel.convert("L"), dtype=np.int16)
    spots = sorted(spots, key=lambda one: one.place, reverse=True)
    prints = [_print(gray, spot.place) for spot in spots]
    taken = list(prints)
    for left, _, right, bottom in prints:
        _rounded(panel, (left, bottom - _BAR + 1, right, bottom), _BAR // 2)
    high = above + below + 2 * pad + 1
    # Print at the top has room only below it, so its labels are placed first.
    for spot, box in sorted(zip(spots, prints, strict=True), key=lambda both: both[1][1] >= high):
        words = f"{spot.label} {spot.likeness:.2f}"
        (text,) = wrap(words, "normal", _LABEL, panel.width - 2 * pad - 1, 1)
        wide = round(text_width(text, "normal", _LABEL)) + 2 * pad + 1
        x = max(0, min(_start(box, wide, prints), panel.width - wide))
        last, nearest = panel.height - high, box[1] - high
        rows = [*range(nearest, -1, -1), *range(box[3] + 1, last + 1)]
        in_the_way = [(upper, lower) for start, upper, end, lower in taken if start < x + wide and x <= end]
        free = [y for y in rows if all(y + high <= upper or lower < y for upper, lower in in_the_way)]
        near = (y for y in free if 0 <= nearest - y <= _AWAY * high)
        blank = (y for y in near if np.ptp(gray[y : y + high, x : x + wide]) < _CONTRAST)
        y = next(blank, free[0] if free else max(0, min(nearest, last)))
        taken.append((x, y, x + wide - 1, y + high - 1))
        _rounded(panel, taken[-1], 2 * pad)
        own = font_of(text, "normal", _LABEL)
        ImageDraw.Draw(panel).text((x + pad, y + pad + above), text, "white", own, anchor="ls")


def _start(box: _Px, wide: int, prints: Sequence[_Px]) -> int:
    """Return where a label begins: centred on its bar, or turned away from a neighbour in the same line."""
    line = [other for other in prints if other[1] <= box[3] and box[1] <= other[3]]
    middles = [(left + right) // 2 for left, _, right, _ in line]
    own = (box[0] + box[2]) // 2
    before, after = (any(0 < side * (middle - own) < wide for middle in middles) for side in (-1, 1))
    if before == after:
        return own - wide // 2
    return own - _BAR_HALF // 2 if before else own + _BAR_HALF // 2 - wide


def _print(gray: np.ndarray, place: tuple[float, float]) -> _Px:
    """Return the box in px, as wide as a bar, of the print nearest to a place and the bar below it.

    Without edges of print, as in a photograph, the box ends just above and below the place.
    """
    height, width = gray.shape
    row, column = (min(int(share * side), side - 1) for share, side in zip(place, gray.shape, strict=True))
    left, right = max(0, column - _BAR_HALF), min(width - 1, column + _BAR_HALF)
    reach = height // 20
    first, last = max(0, row - reach), min(height - 1, row + reach)
    # (rows, columns) -> (rows,)
    printed = np.ptp(gray[first : last + 1, left : right + 1], axis=1) >= _CONTRAST
    top = bottom = row
    if printed.any():
        rows = first + np.flatnonzero(printed)
        nearest = int(np.abs(rows - row).argmin())
        gaps = np.flatnonzero(np.diff(rows) > _DOT + 1)  # after which rows a line ends
        start = gaps[gaps < nearest].max(initial=-1) + 1
        end = gaps[gaps >= nearest].min(initial=len(rows) - 1)
        top, bottom = int(rows[start]), int(rows[end])
    top -= (bottom - top) * 2 // 5 + 1  # neighbours in the line may be capitals
    return left, max(0, top), right, min(bottom + _BAR, height - 1)


def _rounded(panel: Image.Image, box: _Px, radius: int) -> None:
    """Paint a rounded box in the colour of spots with a white edge."""
    size = (box[2] - box[0] + 1, box[3] - box[1] + 1)
    for inset, colour in ((0, "white"), (_SMOOTH + _SMOOTH // 2, SPOT)):
        shape = Image.new("L", (size[0] * _SMOOTH, size[1] * _SMOOTH))
        corners = (inset, inset, shape.width - 1 - inset, shape.height - 1 - inset)
        ImageDraw.Draw(shape).rounded_rectangle(corners, radius * _SMOOTH - inset, fill=255)
        panel.paste(colour, box[:2], shape.resize(size, Image.Resampling.BOX))


# ---- pictures of panels --------------------------------------------------------------------------------

_FADE, _GROUNDS, _DARK = (
    0.78,
    ((233, 235, 239), (44, 46, 51)),
    100,
)  # as in canvas.js
_ROOM = 8  # px around what is outlined
_INK, _QUIET, _EDGE, _ACCENT, _FRAME = "#17171c", "#6a6a75", "#d97706", "#a3195b", "#d4d4da"
_MARGIN, _GAP, _CAPTION, _LEGEND = 0.35, 0.3, 0.34, 0.62  # inches
_MAX_ASPECT = 5.0  # longer images are squeezed to 1:5, so that their cells can be seen
_LINE = {"large": 0.31, "small": 0.23}  # inches
_SIZE = {"large": 14.5, "small": 10.0}  # points
TITLE, _NOTE, _TICK = 11.0, 9.0, 8.5  # points
_NOTE_LINES = 12  # the most below a picture, which may be narrow


@dataclass(frozen=True)
class Panel:
    """A picture with a title and a note above it."""

    title: str
    note: str
    pixels: np.ndarray  # uint8 [h, w, 3]
    evidence: Evidence = ()
    spots: Sequence[Spot] = ()


@dataclass(frozen=True)
class Truth:
    """What is drawn over a choice: boxes of evidence, their recall, and the guide's findings."""

    evidence: Evidence = ()
    recall: str = ""
    guidance: Guidance | None = None

    def image(self, base: np.ndarray, note: str) -> Panel:
        """Return the panel of the image with evidence and guidance."""
        if self.guidance is None:
            return Panel("image", note, base, evidence=self.evidence)
        return Panel("image", _verdict(self.guidance), base, self.evidence, self.guidance.matched)


def _verdict(guidance: Guidance) -> str:
    """Return the guide's verdict in few words."""
    general = {
        "overview": "about the whole picture",
        "unusual": "about what stands out",
        "unread": "not read",
    }
    return general.get(guidance.says, f"confidence {guidance.confidence:.0%}")


def draw_allocation(
    image: Image.Image,
    allocation: Allocation,
    question: str,
    answer: str,
    evidence: Sequence[Box] = (),
    guidance: Guidance | None = None,
) -> Image.Image:
    """Draw the image, the relevance of its cells and the kept cells, with question and answer.

    Args:
        image: the image of the question, at any size.
        allocation: the record of one frame (T = 1).
        question: drawn at the top.
        answer: drawn below the question.
        evidence: boxes (x0, y0, x1, y1) in px of the image that show the answer; outlined.
        guidance: the guide's record; its words are written on the image.

    Returns:
        An RGB image of three panels, side by side, or stacked for a wide image.

    Raises:
        ValueError: a record of several frames, or an empty box.
    """
    columns = 1 if image.width > 1.8 * image.height else 3
    base = panel_pixels(image, allocation, box=(11.0, 6.6) if columns == 1 else (5.4, 6.6))
    truth = truth_of(image, allocation, evidence, guidance)
    panels = [
        truth.image(base, f"{image.width} × {image.height} px"),
        _heat_panel("relevance", "", _lines(base), allocation.balanced),
        kept_panel(base, allocation, truth),
    ]
    return _compose(
        panels, columns, [(question, "bold", _INK, 2), (answer, "normal", _ACCENT, 3)], allocation
    )


def draw_layers(
    image: Image.Image,
    allocation: Allocation,
    question: str,
    evidence: Sequence[Box] = (),
    guidance: Guidance | None = None,
) -> Image.Image:
    """Draw all maps of an allocation: image, three scorers, their balance, kept cells: six panels, RGB.

    Arguments and errors as in `draw_allocation`.
    """
    columns = 2 if image.width > 1.8 * image.height else 3
    base = panel_pixels(image, allocation, box=(7.6, 6.6) if columns == 2 else (5.4, 6.6))
    truth = truth_of(image, allocation, evidence, guidance)
    panels = [truth.image(base, f"{image.width} × {image.height} px")]
    gates, lines = allocation.gates or {}, _lines(base)
    for name, (title, meaning) in SCORERS.items():
        weight = f", weight {gates[name]:.2f}" if gates else ""
        panels.append(_heat_panel(title, meaning + weight, lines, getattr(allocation, name)))
    panels.append(_heat_panel("relevance", "the three as one", lines, allocation.balanced))
    panels.append(kept_panel(base, allocation, truth))
    return _compose(panels, columns, [(question, "bold", _INK, 2)], allocation)


def with_note(picture: Image.Image, note: str | None) -> Image.Image:
    """Return a picture with a note painted below it, so that it can't be shared without the note."""
    if not note:
        return picture
    margin, line = round(_MARGIN * DPI), round(_LINE["small"] * DPI)
    inner = max(picture.width - 2 * margin, picture.width // 2)
    lines = wrap(f"Note: {note}", "normal", _SIZE["small"], inner, _NOTE_LINES)
    sheet = Image.new("RGB", (picture.width, picture.height + len(lines) * line + margin // 2), "white")
    sheet.paste(picture)
    draw, x = ImageDraw.Draw(sheet), (picture.width - inner) / 2 / DPI
    for number, text in enumerate(lines, 1):
        _text(draw, x, (picture.height + number * line) / DPI - 0.07, text, _SIZE["small"], _ACCENT)
    return sheet


def panel_pixels(image: Image.Image, allocation: Allocation, box: tuple[float, float]) -> np.ndarray:
    """Return the image scaled to fit width x height inches: uint8 [h, w, 3]."""
    if allocation.grid[0] != 1:
        raise ValueError(
            f"a picture shows one frame, the record has {allocation.grid[0]}: draw each frame by itself"
        )
    aspect = min(max(image.width / image.height, 1 / _MAX_ASPECT), _MAX_ASPECT)
    width = min(box[0], box[1] * aspect)
    size = (round(width * DPI), round(width / aspect * DPI))
    # Nearest neighbour when enlarging keeps pixels visible; shrinking averages.
    resample = Image.Resampling.NEAREST if size[0] > 2 * image.width else Image.Resampling.LANCZOS
    return np.asarray(image.convert("RGB").resize(size, resample))


def spread(cells: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Repeat cells [H, W, ...] as pixels [h, w, ...]."""
    rows = np.arange(shape[0]) * cells.shape[0] // shape[0]
    columns = np.arange(shape[1]) * cells.shape[1] // shape[1]
    return cells[:, columns][rows]


def _gray(pixels: np.ndarray) -> np.ndarray:
    """Return the luma of pixels [h, w, 3], float [h, w]."""
    return pixels.astype(np.float32) @ np.array([0.299, 0.587, 0.114], dtype=np.float32)


def _heat_panel(title: str, note: str, lines: np.ndarray, relevance: Tensor) -> Panel:
    """Return a coloured panel of one map [1, H, W] with the image's `lines` drawn over it."""
    cells = relevance[0].float().numpy().clip(0, 1)
    highest = float(cells.max())
    plain = colours(cells / (highest or 1.0))
    # Only the image's lines are drawn, light on dark cells and dark on light ones: a copy of the paper would
    # change the colours from the legend's.
    strength = np.where(_gray(plain) < 127.5, np.float32(0.55), np.float32(-0.8))
    pixels = spread(plain.astype(np.float32), lines.shape)
    pixels += (spread(strength, lines.shape) * lines)[..., None]  # (h, w, 3) += (h, w, 1)
    note = f"{note or f'mean {cells.mean():.2g}'}, highest {highest:.2g}"
    return Panel(title, note, np.rint(pixels.clip(0, 255, out=pixels), out=pixels).astype(np.uint8))


def _lines(base: np.ndarray) -> np.ndarray:
    """Return how far each pixel's luma is from its blurred surroundings: float [h, w] in [0, 255]."""
    gray = Image.fromarray(base).convert("L")
    around = gray.filter(ImageFilter.GaussianBlur(8))
    return np.abs(np.asarray(gray, dtype=np.float32) - np.asarray(around, dtype=np.float32))


def truth_of(
    image: Image.Image, allocation: Allocation, boxes: Sequence[Box], guidance: Guidance | None
) -> Truth:
    """Return the evidence and guidance of an allocation of an image."""
    check_boxes(boxes)
    scored = score(boxes, allocation, image.size)
    shares = scaled(boxes, image.size, (1, 1))
    return Truth(tuple(zip(shares, scored.hits, strict=True)), scored.text, guidance)


def kept_panel(base: np.ndarray, allocation: Allocation, truth: Truth) -> Panel:
    """Return a panel of the image, its dropped cells pale, with an outline around what is likely meant."""
    mask = spread(allocation.mask()[0].numpy(), base.shape)
    ground = np.array(_GROUNDS[int(_gray(base).mean() <= _DARK)])
    pale = np.rint(base + _FADE * (ground - base)).astype(np.uint8)
    panel = Image.fromarray(np.where(mask[..., None], base, pale))
    for x0, y0, x1, y1 in reversed(likely_units(Image.fromarray(base), allocation)):
        around = (x0 - _ROOM, y0 - _ROOM, x1 + _ROOM, y1 + _ROOM)
        ImageDraw.Draw(panel).rounded_rectangle(around, _ROOM, outline=_EDGE, width=_ROOM // 2)
    note = f"{allocation.kept:,} of {allocation.total:,} tokens"
    if allocation.void:
        note += ", an even grid: nothing to prefer"
    if truth.recall:
        note += f" · {truth.recall}"
    return Panel("kept", note, np.asarray(panel), truth.evidence)


def _compose(
    panels: Sequence[Panel],
    columns: int,
    texts: Sequence[tuple[str, str, str, int]],
    allocation: Allocation,
) -> Image.Image:
    """Lay out a header and the panels, whose pixels are never resampled."""
    high, wide = panels[0].pixels.shape[:2]
    rows = -(-len(panels) // columns)
    panel_w, panel_h = wide / DPI, high / DPI
    # Narrow panels are spaced, so that captions fit and the header doesn't wrap at every word.
    least = max([_caption_width(panel) for panel in panels] + [8.3 / columns - _GAP])
    step = max(panel_w, least) + _GAP
    width = 2 * _MARGIN + columns * step - _GAP

    inner = (width - 2 * _MARGIN) * DPI
    header: list[tuple[str, str, str, str]] = []  # text, weight, colour, size
    for text, weight, colour, most in texts:
        lines = wrap(text, weight, _SIZE["large"], inner, most)
        header += [(line, weight, colour, "large") for line in lines]
    lines = wrap(_facts(allocation), "normal", _SIZE["small"], inner, 3)
    header += [(line, "normal", _QUIET, "small") for line in lines]
    header_h = _MARGIN + sum(_LINE[size] for *_, size in header) + 0.12
    height = header_h + rows * (panel_h + _CAPTION) + (rows - 1) * _GAP * 0.5 + _LEGEND

    sheet = Image.new("RGB", (round(width * DPI), round(height * DPI)), "white")
    draw = ImageDraw.Draw(sheet)
    y = _MARGIN
    for text, weight, colour, size in header:
        y += _LINE[size]
        _text(draw, _MARGIN, y - 0.07, text, _SIZE[size], colour, weight)
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        top = header_h + row * (panel_h + _CAPTION + _GAP * 0.5) + _CAPTION
        draw_panel(sheet, panel, _MARGIN + column * step, top)
    x = _MARGIN + (step if columns == 3 else 0)
    _draw_legend(sheet, x, height - 0.33, max(panel_w - 1.15, 1.8))
    return sheet


def _facts(allocation: Allocation) -> str:
    """Return the line of figures below question and answer."""
    _, h, w = allocation.grid
    kept, total = allocation.kept, allocation.total
    parts = [
        f"{kept:,} of {total:,} visual tokens kept ({kept / total:.0%})",
        f"grid {h} × {w}",
    ]
    parts += [f"budget {allocation.budget}"] if allocation.budget != allocation.kept else []
    if allocation.gates is not None:
        parts.append(f"weights: {allocation.gates_text}")
    return " · ".join(parts)


def _text(
    draw: ImageDraw.ImageDraw,
    x: float,
    y: float,
    text: str,
    size: float,
    colour: str,
    weight: str = "normal",
    anchor: str = "ls",
) -> None:
    """Write text on the baseline y, at x by `anchor`, in inches from the upper left corner."""
    draw.text((round(x * DPI), round(y * DPI)), text, colour, font_of(text, weight, size), anchor)


def _title_width(panel: Panel) -> float:
    """Return the width of a panel's title and the gap after it, in inches."""
    return text_width(panel.title, "bold", TITLE) / DPI + 0.12


def _caption_width(panel: Panel) -> float:
    """Return the width of a panel's title and note, in inches."""
    return _title_width(panel) + text_width(panel.note, "normal", _NOTE) / DPI


def draw_panel(sheet: Image.Image, panel: Panel, x: float, y: float) -> None:
    """Draw a panel with its upper left corner at (x, y), in inches, and its caption above."""
    draw = ImageDraw.Draw(sheet)
    _text(draw, x, y - 0.1, panel.title, TITLE, _INK, "bold")
    _text(draw, x + _title_width(panel), y - 0.1, panel.note, _NOTE, _QUIET)
    picture = Image.fromarray(panel.pixels)
    draw_evidence(picture, panel.evidence)
    draw_spots(picture, panel.spots)
    left, top = round(x * DPI), round(y * DPI)
    sheet.paste(picture, (left, top))
    draw.rectangle((left - 1, top - 1, left + picture.width, top + picture.height), outline=_FRAME)


def _draw_legend(sheet: Image.Image, x: float, y: float, length: float) -> None:
    """Draw the scale of colours, `length` inches wide, with its lower edge at y."""
    draw = ImageDraw.Draw(sheet)
    scale = Image.fromarray(PALETTE[None]).resize((round(length * DPI), round(0.1 * DPI)))
    left, bottom = round(x * DPI), round(y * DPI)
    sheet.paste(scale, (left, bottom - scale.height))
    for tick in (0, 25, 50, 75, 100):
        at = left + round(tick / 100 * (scale.width - 1))
        draw.line((at, bottom, at, bottom + 5), fill=_QUIET)
        _text(draw, at / DPI, y + 0.16, f"{tick}", _TICK, _QUIET, anchor="ms")
    _text(draw, x + length + 0.12, y, "% of the highest", _NOTE, _QUIET)
