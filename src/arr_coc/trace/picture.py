"""Pictures of an allocation, drawn from its record and the image alone.

    draw_allocation(image, allocation, question, answer)  image, relevance, kept cells
    draw_layers(image, allocation, question)              image, three scorers, their balance, kept cells

The colours of a map go from 0 to its own highest value, which is written above it. Evidence, where known, is
outlined: green and whole if all of its cells were kept, else red and dashed. The words that the guide read
stand where it read them. Pillow alone draws: matplotlib takes longer to import than all of a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFilter

from arr_coc.choose.allocation import SCORERS
from arr_coc.trace.colours import PALETTE, colours
from arr_coc.trace.evidence import check_boxes, scaled, score
from arr_coc.trace.lettering import DPI, font_of, text_width, wrap
from arr_coc.trace.marks import Evidence, draw_evidence, draw_spots

if TYPE_CHECKING:
    from torch import Tensor

    from arr_coc.choose.allocation import Allocation
    from arr_coc.data.record import Box
    from arr_coc.trace.guidance import Guidance, Spot

_INK, _QUIET, _EDGE, _ACCENT, _FRAME = "#17171c", "#6a6a75", "#ffc531", "#a3195b", "#d4d4da"
_MARGIN, _GAP, _CAPTION, _LEGEND = 0.35, 0.3, 0.34, 0.62  # inches
_LONGEST = 5.0  # longer images are squeezed to 1:5, so that their cells can be seen
_LINE = {"large": 0.31, "small": 0.23}
_SIZE = {"large": 14.5, "small": 10.0}  # points
_TITLE, _NOTE, _TICK = 11.0, 9.0, 8.5
_NOTE_LINES = 12  # the most below a picture, which may be narrow


@dataclass(frozen=True)
class _Panel:
    """One picture with a title and a note above it."""

    title: str
    note: str
    pixels: np.ndarray  # uint8 [h, w, 3]
    evidence: Evidence = ()
    spots: Sequence[Spot] = ()


@dataclass(frozen=True)
class _Truth:
    """What stands beside a choice: the evidence and its recall, and what the guide read."""

    evidence: Evidence = ()
    recall: str = ""
    guidance: Guidance | None = None

    def image(self, base: np.ndarray, note: str) -> _Panel:
        """The panel of the image, with both."""
        if self.guidance is None:
            return _Panel("image", note, base, evidence=self.evidence)
        return _Panel("image", _verdict(self.guidance), base, self.evidence, self.guidance.matched)


def _verdict(guidance: Guidance) -> str:
    """The guide's verdict in few words; the note has the sentence."""
    general = {"whole": "about the whole picture", "odd": "about what stands out", "unread": "not read"}
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
        allocation: the record; T must be 1.
        question: the question, drawn above.
        answer: the answer, drawn below the question.
        evidence: boxes (x0, y0, x1, y1) in px of the image that show the answer, outlined.
        guidance: what the guide read; its words stand on the image.

    Returns:
        An RGB image. Three panels side by side, or one below the other for a wide image.

    Raises:
        ValueError: the record is of more than one frame, or a box has no inside.
    """
    columns = 1 if image.width > 1.8 * image.height else 3
    base = _panel_pixels(image, allocation, box=(11.0, 6.6) if columns == 1 else (5.4, 6.6))
    truth = _truth(image, allocation, evidence, guidance)
    panels = [
        truth.image(base, f"{image.width} × {image.height} px"),
        _heat_panel("relevance", "", _lines(base), allocation.balanced),
        _kept_panel(base, allocation, truth),
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
    """Draw every map of an allocation: the image, the three scorers, their balance, the kept cells.

    Args:
        image: the image of the question, at any size.
        allocation: the record; T must be 1.
        question: the question, drawn above.
        evidence: boxes (x0, y0, x1, y1) in px of the image that show the answer, outlined.
        guidance: what the guide read; its words stand on the image.

    Returns:
        An RGB image of six panels.

    Raises:
        ValueError: the record is of more than one frame, or a box has no inside.
    """
    columns = 2 if image.width > 1.8 * image.height else 3
    base = _panel_pixels(image, allocation, box=(7.6, 6.6) if columns == 2 else (5.4, 6.6))
    truth = _truth(image, allocation, evidence, guidance)
    panels = [truth.image(base, f"{image.width} × {image.height} px")]
    gates, lines = allocation.gates or {}, _lines(base)
    for name, (title, meaning) in SCORERS.items():
        weight = f", weight {gates[name]:.2f}" if gates else ""
        panels.append(_heat_panel(title, meaning + weight, lines, getattr(allocation, name)))
    panels.append(_heat_panel("relevance", "the three as one", lines, allocation.balanced))
    panels.append(_kept_panel(base, allocation, truth))
    return _compose(panels, columns, [(question, "bold", _INK, 2)], allocation)


def with_note(picture: Image.Image, note: str | None) -> Image.Image:
    """A picture with a note below it, so that neither is passed on without the other."""
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


def _panel_pixels(image: Image.Image, allocation: Allocation, box: tuple[float, float]) -> np.ndarray:
    """The image scaled to fit a box of width x height inches: uint8 [h, w, 3]."""
    if allocation.grid[0] != 1:
        raise ValueError(
            f"a picture shows one frame, the record has {allocation.grid[0]}: draw each frame by itself"
        )
    aspect = min(max(image.width / image.height, 1 / _LONGEST), _LONGEST)
    width = min(box[0], box[1] * aspect)
    size = (round(width * DPI), round(width / aspect * DPI))
    # Enlarging keeps the pixels as they are; shrinking averages them.
    resample = Image.Resampling.NEAREST if size[0] > 2 * image.width else Image.Resampling.LANCZOS
    return np.asarray(image.convert("RGB").resize(size, resample))


def _spread(cells: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Cells [H, W, ...] -> pixels [h, w, ...], every pixel the value of the cell it lies in."""
    rows = np.arange(shape[0]) * cells.shape[0] // shape[0]
    columns = np.arange(shape[1]) * cells.shape[1] // shape[1]
    return cells[:, columns][rows]


def _gray(pixels: np.ndarray) -> np.ndarray:
    """Luma of pixels [h, w, 3] -> float [h, w]."""
    return pixels.astype(np.float32) @ np.array([0.299, 0.587, 0.114], dtype=np.float32)


def _heat_panel(title: str, note: str, lines: np.ndarray, relevance: Tensor) -> _Panel:
    """A panel of one map [1, H, W] in colours, with the lines of the image as `_lines` finds them."""
    cells = relevance[0].float().numpy().clip(0, 1)
    highest = float(cells.max())
    plain = colours(cells / (highest or 1.0))
    # Only the lines of the image are drawn, light on dark cells and dark on light ones, so that the colour of
    # the paper doesn't change the colour of a cell from the legend's.
    strength = np.where(_gray(plain) < 127.5, np.float32(0.55), np.float32(-0.8))
    pixels = _spread(plain.astype(np.float32), lines.shape)
    pixels += (_spread(strength, lines.shape) * lines)[..., None]
    note = f"{note or f'mean {cells.mean():.2g}'}, highest {highest:.2g}"
    return _Panel(title, note, np.rint(pixels.clip(0, 255, out=pixels), out=pixels).astype(np.uint8))


def _lines(base: np.ndarray) -> np.ndarray:
    """How far each pixel's luma is from its blurred surroundings': float [h, w] in [0, 255]."""
    gray = Image.fromarray(base).convert("L")
    around = gray.filter(ImageFilter.GaussianBlur(8))
    return np.abs(np.asarray(gray, dtype=np.float32) - np.asarray(around, dtype=np.float32))


def _truth(
    image: Image.Image, allocation: Allocation, boxes: Sequence[Box], guidance: Guidance | None
) -> _Truth:
    """What stands beside an allocation of an image."""
    check_boxes(boxes)
    scored = score(boxes, allocation, image.size)
    shares = scaled(boxes, image.size, (1, 1))
    return _Truth(tuple(zip(shares, scored.hits, strict=True)), scored.text, guidance)


def _kept_panel(base: np.ndarray, allocation: Allocation, truth: _Truth) -> _Panel:
    """A panel of the image with the dropped cells faded and the kept ones outlined."""
    mask = _spread(allocation.mask()[0].numpy(), base.shape)
    faded = np.asarray(Image.fromarray(base).convert("L").point(lambda level: 15 + 0.3 * level))
    pixels = np.where(mask[..., None], base, faded[..., None])
    pixels[_outline(mask)] = ImageColor.getrgb(_EDGE)
    note = f"{allocation.kept:,} of {allocation.total:,} tokens"
    if allocation.void:
        note += ", an even grid: nothing to prefer"
    if truth.recall:
        note += f" · {truth.recall}"
    return _Panel("kept", note, pixels, truth.evidence)


def _outline(mask: np.ndarray) -> np.ndarray:
    """The pixels [h, w] along the border of a mask, one on either side; what is outside isn't kept."""
    framed = np.pad(mask, 1)
    line = np.zeros_like(framed)
    across, upright = framed[1:] != framed[:-1], framed[:, 1:] != framed[:, :-1]
    for edge, before, after in ((across, line[:-1], line[1:]), (upright, line[:, :-1], line[:, 1:])):
        before |= edge
        after |= edge
    return line[1:-1, 1:-1]


def _compose(
    panels: Sequence[_Panel],
    columns: int,
    texts: Sequence[tuple[str, str, str, int]],
    allocation: Allocation,
) -> Image.Image:
    """Lay out a header and the panels; each panel gets exactly its own pixels, so nothing is resampled."""
    high, wide = panels[0].pixels.shape[:2]
    rows = -(-len(panels) // columns)
    panel_w, panel_h = wide / DPI, high / DPI
    # Narrow panels are spaced, so that captions have room and the header does not wrap at every word.
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
        _draw_panel(sheet, panel, _MARGIN + column * step, top)
    x = _MARGIN + (step if columns == 3 else 0)
    _draw_legend(sheet, x, height - 0.33, max(panel_w - 1.15, 1.8))
    return sheet


def _facts(allocation: Allocation) -> str:
    """The line of figures below question and answer."""
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
    """Write text on the baseline y, at x as `anchor` says, in inches from the upper left corner."""
    draw.text((round(x * DPI), round(y * DPI)), text, colour, font_of(text, weight, size), anchor)


def _title_width(panel: _Panel) -> float:
    """Width of a panel's title and the gap after it, in inches."""
    return text_width(panel.title, "bold", _TITLE) / DPI + 0.12


def _caption_width(panel: _Panel) -> float:
    """Width of a panel's title and note, in inches."""
    return _title_width(panel) + text_width(panel.note, "normal", _NOTE) / DPI


def _draw_panel(sheet: Image.Image, panel: _Panel, x: float, y: float) -> None:
    """Draw a panel with its upper left corner at (x, y), in inches, and its caption above."""
    draw = ImageDraw.Draw(sheet)
    _text(draw, x, y - 0.1, panel.title, _TITLE, _INK, "bold")
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
