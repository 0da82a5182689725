"""Pictures of an allocation, drawn from its record and the image alone.

    draw_allocation(image, allocation, question, answer)  image, relevance, kept cells
    draw_layers(image, allocation, question)              image, three scorers, their balance, kept cells

A colour means the same number in every picture: magma, 0 to 1, never rescaled. Evidence, where it is known,
is outlined: green and whole if all of its cells were kept, else red and dashed. The words that the guide read
stand where it read them.
"""

from __future__ import annotations

import unicodedata
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image, ImageFilter

from arr_coc.inspect.evidence import check_boxes, scaled, score
from arr_coc.inspect.marks import SAYS, Evidence, draw_evidence, draw_spots

if TYPE_CHECKING:
    from torch import Tensor

    from arr_coc.core.allocation import Allocation
    from arr_coc.data.record import Box
    from arr_coc.inspect.guidance import Guidance, Spot

DPI = 150
COLOUR_MAP = "magma"  # perceptually uniform, readable in gray and with every common kind of colour blindness
_INK, _QUIET, _EDGE, _ACCENT, _FRAME = "#17171c", "#6a6a75", "#ffc531", "#a3195b", "#d4d4da"
_MARGIN, _GAP, _CAPTION, _LEGEND = 0.35, 0.3, 0.34, 0.62  # inches
_LONGEST = 5.0  # longer images are squeezed to 1:5, so that their cells can be seen
_LINE = {"large": 0.31, "small": 0.23}
_SIZE = {"large": 14.5, "small": 10.0}  # points


@dataclass(frozen=True)
class _Panel:
    """One picture with a title and a note above it."""

    title: str
    note: str
    pixels: np.ndarray  # [h, w, 3] in [0, 1]
    mask: np.ndarray | None = None  # [H, W] bool, its border is outlined
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
        spots = self.guidance.matched
        return _Panel("image", SAYS[self.guidance.says], base, evidence=self.evidence, spots=spots)


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
        _heat_panel("relevance", "", base, allocation.balanced),
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
    names = ("information", "perspectival", "participatory")
    meanings = ("what is inside a cell", "what stands out", "what the question asks for")
    truth = _truth(image, allocation, evidence, guidance)
    panels = [truth.image(base, f"{image.width} × {image.height} px")]
    gates = allocation.gates or {}
    for name, meaning in zip(names, meanings, strict=True):
        weight = f", weight {gates[name]:.2f}" if gates else ""
        panels.append(_heat_panel(name, meaning + weight, base, getattr(allocation, name)))
    panels.append(_heat_panel("balanced", "the three as one", base, allocation.balanced))
    panels.append(_kept_panel(base, allocation, truth))
    return _compose(panels, columns, [(question, "bold", _INK, 2)], allocation)


def _panel_pixels(image: Image.Image, allocation: Allocation, box: tuple[float, float]) -> np.ndarray:
    """The image scaled to fit a box of width x height inches: [h, w, 3] in [0, 1]."""
    if allocation.grid[0] != 1:
        raise ValueError(
            f"a picture shows one frame, the record has {allocation.grid[0]}: draw each frame by itself"
        )
    aspect = min(max(image.width / image.height, 1 / _LONGEST), _LONGEST)
    width = min(box[0], box[1] * aspect)
    size = (round(width * DPI), round(width / aspect * DPI))
    # Enlarging keeps the pixels as they are; shrinking averages them.
    resample = Image.Resampling.NEAREST if size[0] > 2 * image.width else Image.Resampling.LANCZOS
    return np.asarray(image.convert("RGB").resize(size, resample), dtype=np.float32) / 255


def _spread(cells: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Cells [H, W] -> pixels [h, w], every pixel the value of the cell it lies in."""
    rows = np.arange(shape[0]) * cells.shape[0] // shape[0]
    columns = np.arange(shape[1]) * cells.shape[1] // shape[1]
    return cells[rows[:, None], columns[None, :]]


def _gray(pixels: np.ndarray) -> np.ndarray:
    """Luma of pixels [h, w, 3] -> [h, w, 1]."""
    return (pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32))[..., None]


def _heat_panel(title: str, note: str, base: np.ndarray, relevance: Tensor) -> _Panel:
    """A panel of one map [1, H, W] in colours, with the lines of the image."""
    cells = relevance[0].float().numpy().clip(0, 1)
    colours = matplotlib.colormaps[COLOUR_MAP](_spread(cells, base.shape))[..., :3].astype(np.float32)
    # Only the lines of the image are drawn, light on dark cells and dark on light ones, so that the colour of
    # the paper doesn't change the colour of a cell from the legend's.
    dark = _gray(colours) < 0.5
    lines = _lines(base)[..., None]
    note = note or f"mean {cells.mean():.2f}, highest {cells.max():.2f}"
    return _Panel(title, note, np.where(dark, colours + 0.55 * lines, colours - 0.8 * lines).clip(0, 1))


def _lines(base: np.ndarray) -> np.ndarray:
    """The absolute difference of each pixel's luma and its blurred surroundings': [h, w] in [0, 1]."""
    gray = Image.fromarray((_gray(base)[..., 0] * 255).astype(np.uint8))
    around = gray.filter(ImageFilter.GaussianBlur(8))
    return np.abs(np.asarray(gray, dtype=np.float32) - np.asarray(around, dtype=np.float32)) / 255


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
    mask = allocation.mask()[0].numpy()
    faded = _gray(base) * 0.30 + 0.06
    pixels = np.where(_spread(mask, base.shape)[..., None], base, faded)
    note = f"{allocation.kept:,} of {allocation.total:,} tokens"
    if allocation.void:
        note += ", an even grid: nothing to prefer"
    if truth.recall:
        note += f" · {truth.recall}"
    return _Panel("kept", note, pixels, mask, truth.evidence)


def _compose(
    panels: Sequence[_Panel],
    columns: int,
    texts: Sequence[tuple[str, str, str, int]],
    allocation: Allocation,
) -> Image.Image:
    """Lay out a header and the panels; each panel gets exactly its own pixels, so nothing is resampled."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # drawn as boxes
        return _lay_out(panels, columns, texts, allocation)


def _lay_out(
    panels: Sequence[_Panel],
    columns: int,
    texts: Sequence[tuple[str, str, str, int]],
    allocation: Allocation,
) -> Image.Image:
    """`_compose` without its filter of warnings."""
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
        lines = _wrap(text, weight, _SIZE["large"], inner, most)
        header += [(line, weight, colour, "large") for line in lines]
    lines = _wrap(_facts(allocation), "normal", _SIZE["small"], inner, 3)
    header += [(line, "normal", _QUIET, "small") for line in lines]
    header_h = _MARGIN + sum(_LINE[size] for *_, size in header) + 0.12
    height = header_h + rows * (panel_h + _CAPTION) + (rows - 1) * _GAP * 0.5 + _LEGEND

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    y = _MARGIN
    for text, weight, colour, size in header:
        y += _LINE[size]
        _text(figure, _MARGIN, height - y + 0.07, text, _SIZE[size], colour, weight)
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        top = header_h + row * (panel_h + _CAPTION + _GAP * 0.5)
        _draw_panel(
            figure, panel, _MARGIN + column * step, height - top - _CAPTION - panel_h, panel_w, panel_h
        )
    _draw_legend(figure, _MARGIN + (step if columns == 3 else 0), 0.33, max(panel_w - 0.75, 1.8))
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


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
        gates = ", ".join(f"{name} {gate:.2f}" for name, gate in allocation.gates.items())
        parts.append(f"weights: {gates}")
    return " · ".join(parts)


def _text(
    figure: Figure, x: float, y: float, text: str, size: float, colour: str, weight: str = "normal"
) -> None:
    """Write text at (x, y) in inches from the lower left corner."""
    width, height = figure.get_size_inches()
    # A question may hold "$", which would otherwise start a formula.
    figure.text(
        x / width,
        y / height,
        text,
        size=size,
        color=colour,
        weight=weight,
        va="baseline",
        parse_math=False,
    )


def _title_width(panel: _Panel) -> float:
    """Width of a panel's title and the gap after it, in inches."""
    return _text_width(panel.title, "bold", 11) / DPI + 0.12


def _caption_width(panel: _Panel) -> float:
    """Width of a panel's title and note, in inches."""
    return _title_width(panel) + _text_width(panel.note, "normal", 9) / DPI


def _draw_panel(figure: Figure, panel: _Panel, x: float, y: float, w: float, h: float) -> None:
    """Draw a panel with its lower left corner at (x, y), in inches."""
    width, height = figure.get_size_inches()
    _text(figure, x, y + h + 0.1, panel.title, 11, _INK, "bold")
    offset = _title_width(panel)
    _text(figure, x + offset, y + h + 0.1, panel.note, 9, _QUIET)
    axes = figure.add_axes((x / width, y / height, w / width, h / height))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(color=_FRAME, linewidth=0.6)
    axes.imshow(panel.pixels, interpolation="none", aspect="auto", extent=(0, 1, 1, 0))
    if panel.mask is not None:
        axes.add_collection(
            LineCollection(_outline(panel.mask), colors=_EDGE, linewidths=0.9, capstyle="projecting")
        )
    draw_evidence(axes, panel.evidence)
    draw_spots(axes, panel.spots)
    axes.set_xlim(0, 1)
    axes.set_ylim(1, 0)


def _outline(mask: np.ndarray) -> list[list[tuple[float, float]]]:
    """The border between kept and dropped cells as segments in [0, 1] x [0, 1]."""
    rows, columns = mask.shape
    framed = np.pad(mask, 1)
    across = np.argwhere(framed[1:, 1:-1] != framed[:-1, 1:-1])  # (y, x): the edge above cell y, x
    upright = np.argwhere(framed[1:-1, 1:] != framed[1:-1, :-1])  # (y, x): the edge left of cell y, x
    segments = [[(x / columns, y / rows), ((x + 1) / columns, y / rows)] for y, x in across]
    return segments + [[(x / columns, y / rows), (x / columns, (y + 1) / rows)] for y, x in upright]


def _draw_legend(figure: Figure, x: float, y: float, length: float) -> None:
    """Draw the scale of colours from 0 to 1, `length` inches wide."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((x / width, y / height, length / width, 0.1 / height))
    axes.imshow(
        np.linspace(0, 1, 256)[None], cmap=COLOUR_MAP, vmin=0, vmax=1, aspect="auto", extent=(0, 1, 0, 1)
    )
    axes.set_yticks([])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    _text(figure, x + length + 0.12, y, "relevance", 9, _QUIET)
    axes.tick_params(labelsize=8.5, labelcolor=_QUIET, color=_QUIET, length=3, width=0.6, pad=2)
    axes.spines[:].set_visible(False)


def _wrap(text: str, weight: str, size: float, width: float, most: int) -> list[str]:
    """Break into at most `most` lines of `width` pixels, the last with an ellipsis if there is more."""
    words = _printable(text[:600]).split()  # more than ever fits
    lines: list[str] = []
    line = ""
    while words:
        word = words.pop(0)
        joined = f"{line} {word}".strip()
        if _text_width(joined, weight, size) <= width:
            line = joined
        elif line:
            lines.append(line)
            line = ""
            words.insert(0, word)
        else:  # one word wider than the picture: cut it
            lengths = range(1, len(word) + 1)
            fits = max(1, bisect_right(lengths, width, key=lambda n: _text_width(word[:n], weight, size)))
            lines.append(word[:fits])
            words[:0] = [word[fits:]] if word[fits:] else []
        if len(lines) > most:
            break
    lines += [line] if line else []
    if len(lines) > most:
        last = lines[most - 1]
        while last and _text_width(f"{last}…", weight, size) > width:
            last = last[:-1]
        lines = [*lines[: most - 1], f"{last.rstrip()}…"]
    return lines


def _printable(text: str) -> str:
    """The text with control characters, for which fonts have no glyphs, as spaces."""
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


def _text_width(text: str, weight: str, size: float) -> float:
    """The width of a text in pixels at `DPI`."""
    renderer = RendererAgg(1, 1, DPI)
    return renderer.get_text_width_height_descent(
        text, FontProperties(weight=weight, size=size), ismath=False
    )[0]
