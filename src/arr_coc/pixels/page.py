"""Find the layout of a printed page from its pixels, before any question: lines, rows, columns, controls.

page = find_page(image)
page.lines       boxes (x0, y0, x1, y1) in px, one for each stretch of print
page.rows        lines that say one thing together, such as a label and its value: indices into `lines`
page.headers     the line at the head of each line's column, -1 without one
page.panels      cards, sidebars and tables: the frames that enclose rows
page.controls    buttons, switches, fields and icons, each with the line that names it

Rows and columns come from the *rules* of a page: straight edges of lines, fills and frames.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from arr_coc.choose.boxes import Box
from arr_coc.pixels.lines import (
    RULE_STEP,
    PrintInk,
    Rules,
    find_ink,
    find_lines,
    find_rules,
    line_heights,
    read_light,
)

COLUMN_SPREAD = 240  # px between the ends of the lines of one column
RULE_WIDTH = 7.0  # px between the two edges of a drawn line; more is a gap between two frames
SLACK = 3.0  # px by which a rule may end before what it bounds; corners are round
MIN_OVERLAP = 0.5  # share of the lower line's height that two lines of one height share
CROSSED, MIN_CROSSINGS = 8, 3  # px on each side of a standing rule, and edges of lying ones that cross it
ALIGNED = 0.6  # share of the lines along a standing rule that go on behind it, in a table
BAND = 5.0  # heights of a line that a row between two lying rules may have
PITCH = 3.0  # heights of a line from one row of a table to the next
COLUMNS = 0.4  # share of a row's lines that have lines of their own above them, in a table
HEAD_GROUND = 255 * RULE_STEP / 2  # of luminance, that the ground of a head differs by at least
HEAD_STROKES = 255 * 0.06  # the same of its strokes
HEAD_WEIGHT = 1.15  # the share of ink of a head's print to that of the lines under it
CONTROL = (10, 72)  # px of the sides of a control without print
EDGE_PX = 4  # px of the raster on which controls are looked for
PADDING = (24.0, 3.4)  # heights of its line that a framed control may be wider and higher
REACH = 3.0  # heights of a line from a control to the words beside it


class PageControl(NamedTuple):
    """A control on a page: a button, switch, field or icon.

    Attributes:
        box: (x0, y0, x1, y1) in px of the picture.
        line: index of the line of print that is inside of it or names it; -1 where none is near.
    """

    box: Box
    line: int


@dataclass(frozen=True, eq=False)
class PrintedPage:
    """The print and layout of a picture, found once and used for any question.

    Attributes:
        size: (width, height) of the picture in px.
        ink: where strokes begin and end.
        rules: straight edges.
        lines: boxes of stretches of print, top to bottom, in px of the picture.
        light: luminance [h, w] in [0, 255] of the picture as the guide reads it.
    """

    size: tuple[int, int]
    ink: PrintInk
    rules: Rules
    lines: tuple[Box, ...]
    light: NDArray[np.uint8]

    @cached_property
    def boxes(self) -> NDArray[np.float64]:
        """The lines as an array [L, 4]."""
        return np.array(self.lines, dtype=np.float64).reshape(-1, 4)

    @cached_property
    def heights(self) -> NDArray[np.float64]:
        """The height in px of the print of each line [L], at least 1, without its pale edges."""
        return line_heights(self.lines)

    @cached_property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the lines in each row, from the left, rows from the top; every line is in one row."""
        return self._layout.rows

    @cached_property
    def headers(self) -> tuple[int, ...]:
        """For each line the index of the one at the head of its column; -1 without, or for a head itself."""
        return self._layout.headers

    @cached_property
    def panels(self) -> tuple[Box, ...]:
        """Frames that enclose two rows or more, the smallest around each, in px of the picture."""
        return self._layout.panels

    @cached_property
    def controls(self) -> tuple[PageControl, ...]:
        """Frames around one line, and shapes of a control's size without print, from the top."""
        return self._layout.controls

    @cached_property
    def _layout(self) -> PageLayout:
        across, down = self.ink.scale
        scale = np.array((across, down, across, down))
        layout = lay_out(self.boxes / scale, self.rules, self.light)

        def in_px(box: Box) -> Box:
            x0, y0, x1, y1 = np.minimum(np.array(box) * scale, (*self.size, *self.size)).tolist()
            return x0, y0, x1, y1

        controls = tuple(PageControl(in_px(control.box), control.line) for control in layout.controls)
        return layout._replace(panels=tuple(map(in_px, layout.panels)), controls=controls)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return self.ink.marks.nbytes + self.ink.above.nbytes + self.light.nbytes


def find_page(image: Image.Image) -> PrintedPage:
    """Find the printed page of an RGB image: its ink, rules and lines."""
    light = read_light(image)
    rules = find_rules(light)
    ink = find_ink(light, rules, image.size)
    return PrintedPage(image.size, ink, rules, find_lines(ink), (light * 255).astype(np.uint8))


class PageLayout(NamedTuple):
    """Rows, heads of columns, panels and controls of a page, in px of the picture as the guide reads it."""

    rows: tuple[tuple[int, ...], ...]
    headers: tuple[int, ...]
    panels: tuple[Box, ...]
    controls: tuple[PageControl, ...]


def lay_out(lines: NDArray[np.float64], rules: Rules, light: NDArray[np.uint8]) -> PageLayout:
    """Find the layout that lines of print [L, 4] form on a picture of luminance [h, w] in [0, 255]."""
    rules = _bounding(rules, lines)
    frames = _frames(lines, rules, light.shape)
    rows = _rows(lines, rules, frames)
    framed = [PageControl(*one) for one in _framed_controls(lines, rules, frames)]
    bare = _bare_controls(lines, rules, light, [control.box for control in framed])
    controls = sorted((*framed, *bare), key=lambda control: (control.box[1], control.box[0]))
    return PageLayout(rows, _headers(lines, rows, frames, light), _panels(rows, frames), tuple(controls))


# ---- rules ---------------------------------------------------------------------------------------------


def _bounding(rules: Rules, lines: NDArray[np.float64]) -> Rules:
    """Return the rules of a page without those that are strokes of its lines [L, 4]."""
    lying, standing = rules
    if not len(lines):
        return rules
    return Rules(lying[~_in_print(lying, lines[:, [1, 0, 3, 2]])], standing[~_in_print(standing, lines)])


def _in_print(rules: NDArray[np.int64], lines: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rules lie in a line of print, as strokes of letters; lines are [L, 4], across first."""
    at, low, high = (rules[:, None, i] for i in range(3))
    inside = (at > lines[:, 0] - 1) & (at < lines[:, 2] + 1)
    return np.any(inside & (low > lines[:, 1] - SLACK) & (high < lines[:, 3] + SLACK), axis=1)


def _frames(lines: NDArray[np.float64], rules: Rules, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the nearest rules around each line's middle, as boxes [L, 4]; else the picture's edge."""
    frames = np.tile(np.array((0.0, 0.0, shape[1], shape[0])), (len(lines), 1))
    if not len(lines):
        return frames
    x, y = (lines[:, 0] + lines[:, 2]) / 2, (lines[:, 1] + lines[:, 3]) / 2
    for edges, along, ends, low, high in (
        (rules.standing, y, lines[:, [0, 2]], 0, 2),
        (rules.lying, x, lines[:, [1, 3]], 1, 3),
    ):
        if not len(edges):
            continue
        spans = (edges[:, 1] - SLACK <= along[:, None]) & (edges[:, 2] + SLACK >= along[:, None])
        before = np.where(spans & (edges[:, 0] <= ends[:, :1] + 1), edges[:, 0], -np.inf).max(1)
        after = np.where(spans & (edges[:, 0] >= ends[:, 1:] - 1), edges[:, 0], np.inf).min(1)
        frames[:, low] = np.maximum(frames[:, low], before)
        frames[:, high] = np.minimum(frames[:, high], after)
    return frames


# ---- rows and columns ----------------------------------------------------------------------------------


def _rows(
    lines: NDArray[np.float64], rules: Rules, frames: NDArray[np.float64]
) -> tuple[tuple[int, ...], ...]:
    """Return the rows of a page: lines of one height, and lines between the same two horizontal rules."""
    parent = list(range(len(lines)))

    pairs = _neighbours(lines)
    crossed = [_rules_between(lines, rules, *pair) for pair in pairs]
    tables = _table_rules(lines, pairs, crossed, rules)
    for (i, j), between in zip(pairs, crossed, strict=True):
        if all(one in tables for one in between):
            parent[_root(parent, j)] = _root(parent, i)
    bands: dict[tuple[int, int], list[int]] = defaultdict(list)
    heights = lines[:, 3] - lines[:, 1]
    for i, frame in enumerate(frames):
        if frame[3] - frame[1] <= BAND * heights[i]:
            bands[round(frame[1]), round(frame[3])].append(i)
    for band in bands.values():
        band.sort(key=lambda i: lines[i, 0])
        for i, j in pairwise(band):
            if all(one in tables for one in _rules_between(lines, rules, i, j)):
                parent[_root(parent, j)] = _root(parent, i)
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(lines)):
        groups[_root(parent, i)].append(i)
    rows = [tuple(sorted(group, key=lambda i: (lines[i, 0], lines[i, 1]))) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: (min(lines[i, 1] for i in row), lines[row[0], 0])))


def _root(parent: list[int], i: int) -> int:
    """Return the first member of an index's group; each index of `parent` names another of its group."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _neighbours(lines: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return pairs of a line and the next one to its right at the same height."""
    if not len(lines):
        return []
    x0, y0, x1, y1 = lines.T
    shared = np.minimum(y1[:, None], y1) - np.maximum(y0[:, None], y0)
    level = shared >= MIN_OVERLAP * np.minimum((y1 - y0)[:, None], y1 - y0)
    gap = np.where(level & (x0 >= x1[:, None] - 1), x0 - x1[:, None], np.inf)
    np.fill_diagonal(gap, np.inf)
    nearest = gap.argmin(1)
    return [(i, int(j)) for i, j in enumerate(nearest) if np.isfinite(gap[i, j])]


def _rules_between(lines: NDArray[np.float64], rules: Rules, i: int, j: int) -> tuple[int, ...]:
    """Return the numbers of vertical rules between two lines of a row; edges of one drawn line count once.

    -1 stands for a gap between two frames, which no table has.
    """
    left, right = (i, j) if lines[i, 0] <= lines[j, 0] else (j, i)
    y = (max(lines[i, 1], lines[j, 1]) + min(lines[i, 3], lines[j, 3])) / 2
    at, low, high = rules.standing.T
    inside = (at >= lines[left, 2] - 1) & (at <= lines[right, 0] + 1) & (low <= y) & (high >= y)
    numbers = np.flatnonzero(inside)
    if not len(numbers):
        return ()
    numbers = numbers[np.argsort(at[numbers], kind="stable")]
    if at[numbers[-1]] - at[numbers[0]] > RULE_WIDTH:
        return (-1,)
    return (int(numbers[0]),)


def _table_rules(
    lines: NDArray[np.float64],
    pairs: list[tuple[int, int]],
    crossed: list[tuple[int, ...]],
    rules: Rules,
) -> set[int]:
    """Return the vertical rules that divide columns of a table, rather than panels.

    Horizontal rules cross them, or most lines along them go on behind them. Beside a rule that bounds a
    panel, print stands at heights of its own.
    """
    met: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for pair, between in zip(pairs, crossed, strict=True):
        if between and between[0] >= 0:
            met[round(rules.standing[between[0], 0])].append((*pair, between[0]))
    tables: set[int] = set()
    middle = (lines[:, 1] + lines[:, 3]) / 2
    for crossings in met.values():
        low = min(rules.standing[number, 1] for *_, number in crossings)
        high = max(rules.standing[number, 2] for *_, number in crossings)
        x = rules.standing[crossings[0][2], 0]
        beside = (middle > low) & (middle < high)
        left = int((beside & (lines[:, 2] <= x + 1) & (lines[:, 2] > x - _reach(lines, x, beside, 2))).sum())
        right = int((beside & (lines[:, 0] >= x - 1) & (lines[:, 0] < x + _reach(lines, x, beside, 0))).sum())
        ends = rules.lying[(rules.lying[:, 0] >= low - SLACK) & (rules.lying[:, 0] <= high + SLACK), 1:]
        if ((ends[:, 0] < x - CROSSED) & (ends[:, 1] > x + CROSSED)).sum() > MIN_CROSSINGS:
            tables.update(number for *_, number in crossings)
            continue
        level = sum(abs(middle[i] - middle[j]) <= 0.35 * (lines[i, 3] - lines[i, 1]) for i, j, _ in crossings)
        if level >= ALIGNED * max(1, min(left, right)):
            tables.update(number for *_, number in crossings)
    return tables


def _reach(lines: NDArray[np.float64], x: float, beside: NDArray[np.bool_], side: int) -> float:
    """Return how far from a rule the lines of the column beside it may end."""
    away = np.abs(lines[beside, side] - x)
    return float(away.min() + COLUMN_SPREAD) if len(away) else 0.0


def _headers(
    lines: NDArray[np.float64],
    rows: tuple[tuple[int, ...], ...],
    frames: NDArray[np.float64],
    light: NDArray[np.uint8],
) -> tuple[int, ...]:
    """Return the line at the head of each line's column, found by going up a table row by row.

    A row is a head if it looks different from the rows under it: its ground, or the weight of its print.
    """
    row_of = {i: number for number, row in enumerate(rows) for i in row}
    above = [-1] * len(lines)
    ends = {
        i: (lines[row[k - 1], 2] if k else -np.inf, lines[row[k + 1], 0] if k + 1 < len(row) else np.inf)
        for row in rows
        for k, i in enumerate(row)
    }
    uppers: list[int] = []  # of each row the one above it in its table, -1 without one
    for number, row in enumerate(rows):
        uppers.append(_upper(lines, rows, number))
        if uppers[number] >= 0 and _in_columns(lines, rows[uppers[number]], row):
            for i, k in zip(row, rows[uppers[number]], strict=True):
                above[i] = k
            continue
        for i in row:
            upper, column = uppers[number], []
            while upper >= 0 and not column:  # a cell may be empty
                over = [k for k in rows[upper] if lines[k, 0] < lines[i, 2] and lines[k, 2] > lines[i, 0]]
                framed = [k for k in rows[upper] if (frames[k, [0, 2]] == frames[i, [0, 2]]).all()]
                column = next((part for part in (over, framed) if len(part) == 1), over)
                if not column and uppers[upper] < 0:
                    middle = (lines[i, 0] + lines[i, 2]) / 2
                    column = [k for k in rows[upper] if ends[k][0] < middle < ends[k][1]]
                upper = uppers[upper]
            above[i] = column[0] if column else -1
    chains: list[list[int]] = []  # of each line those above it in its column, the highest first
    for i in range(len(lines)):
        chain, k = [], above[i]
        while k >= 0:
            chain.insert(0, k)
            k = above[k]
        chains.append(chain)
    under: dict[int, dict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )  # row, line of it -> lines
    for i, chain in enumerate(chains):
        for k in chain:
            under[row_of[k]][k].append(i)
    look = [_look(light, line) for line in lines]
    heads = {
        row
        for row, columns in under.items()
        if len(columns) > 1
        and _differs([look[i] for i in rows[row]], [look[i] for part in columns.values() for i in part])
    }
    return tuple(next((k for k in chain if row_of[k] in heads), -1) for chain in chains)


def _upper(lines: NDArray[np.float64], rows: tuple[tuple[int, ...], ...], number: int) -> int:
    """Return the nearest row above that may be of the same table, both of several lines; -1 without one."""
    row = rows[number]
    top, height = min(lines[i, 1] for i in row), max(lines[i, 3] - lines[i, 1] for i in row)
    for n in range(number - 1, -1, -1) if len(row) > 1 else ():
        other = rows[n]
        if len(other) < 2 or not 0 <= top - max(lines[i, 3] for i in other) <= PITCH * height:
            continue
        over = {k for k in other for i in row if lines[k, 0] < lines[i, 2] and lines[k, 2] > lines[i, 0]}
        if len(over) >= max(2, COLUMNS * len(row)) or (len(row) > 2 and _in_columns(lines, other, row)):
            return n
    return -1


def _in_columns(lines: NDArray[np.float64], upper: Sequence[int], row: Sequence[int]) -> bool:
    """Return whether two rows have as many lines, and what each spans with the one above it is a column.

    Such are heads set flush left over numbers set flush right, which stand above nothing of their own.
    """
    if len(upper) != len(row):
        return False
    pairs = lines[[upper, row]]
    return bool((pairs[:, :-1, 2].max(0) <= pairs[:, 1:, 0].min(0) + SLACK).all())


def _look(light: NDArray[np.uint8], line: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the luminance of a line's ground and of its strokes, and the share that the strokes fill."""
    x0, y0, x1, y1 = (int(side) for side in line)
    part = light[y0 : max(y0 + 1, y1), x0 : max(x0 + 1, x1)].astype(np.float64)
    ground = float(np.median(np.concatenate((part[0], part[-1], part[:, 0], part[:, -1]))))
    away = np.abs(part - ground)
    strokes = away >= 0.5 * max(away.max(), 1.0)
    return ground, float(part[strokes].mean()) if strokes.any() else ground, float(strokes.mean())


def _differs(head: list[tuple[float, ...]], below: list[tuple[float, ...]]) -> bool:
    """Return whether the lines of a row look different from those under it."""
    one, other = (np.median(np.array(part), axis=0) for part in (head, below))
    ground, strokes = np.abs(one - other)[:2]
    return bool(ground >= HEAD_GROUND or strokes >= HEAD_STROKES or one[2] > HEAD_WEIGHT * other[2])


# ---- panels and controls -------------------------------------------------------------------------------


def _panels(rows: tuple[tuple[int, ...], ...], frames: NDArray[np.float64]) -> tuple[Box, ...]:
    """Merge frames side by side or stacked between the same vertical rules, if they hold two rows."""
    columns: dict[tuple[int, int], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        left, right = min(frames[i, 0] for i in row), max(frames[i, 2] for i in row)
        top, bottom = min(frames[i, 1] for i in row), max(frames[i, 3] for i in row)
        columns[round(left), round(right)].append((left, top, right, bottom))
    panels = []
    for stack in columns.values():
        stack.sort(key=lambda box: box[1])
        group = [stack[0]]
        for box in (*stack[1:], None):
            if box is not None and box[1] <= max(one[3] for one in group) + RULE_WIDTH:
                group.append(box)
                continue
            if len(group) > 1:
                bottom = max(one[3] for one in group)
                panels.append((float(group[0][0]), float(group[0][1]), float(group[0][2]), float(bottom)))
            group = [box] if box is not None else group
    return tuple(sorted(panels, key=lambda box: (box[1], box[0])))


def _framed_controls(
    lines: NDArray[np.float64], rules: Rules, frames: NDArray[np.float64]
) -> list[tuple[Box, int]]:
    """Return buttons and fields with their lines: frames close around one line, whose rules end with them."""
    controls: list[tuple[Box, int]] = []
    for i, (line, frame) in enumerate(zip(lines, frames, strict=True)):
        height = line[3] - line[1]
        wide = frame[2] - frame[0] - (line[2] - line[0])
        if not (frame[3] - frame[1] <= PADDING[1] * height and wide <= 2 * PADDING[0] * height):
            continue
        above, below = (frames[:, k] - frame[4 - k] for k in (3, 1))
        stacked = (np.abs(above) <= RULE_WIDTH) | (np.abs(below) <= RULE_WIDTH)
        if (stacked & (frames[:, 0] == frame[0]) & (frames[:, 2] == frame[2])).any():
            continue  # a cell of a table
        if _ends_with(rules.lying, frame, 1) and _ends_with(rules.standing, frame, 0):
            x0, y0, x1, y1 = frame.tolist()
            controls.append(((x0, y0, x1, y1), i))
    return controls


def _ends_with(rules: NDArray[np.int64], frame: NDArray[np.float64], axis: int) -> bool:
    """Return whether both rules of a frame in one direction go no further than the frame's other two."""
    low, high = frame[1 - axis], frame[3 - axis]
    for at in (frame[axis], frame[axis + 2]):
        here = rules[(rules[:, 0] == at) & (rules[:, 1] < high) & (rules[:, 2] > low)]
        if not len(here) or here[:, 1].min() < low - 2 * SLACK or here[:, 2].max() > high + 2 * SLACK:
            return False
    return True


def _bare_controls(
    lines: NDArray[np.float64],
    rules: Rules,
    light: NDArray[np.uint8],
    framed: list[Box],
) -> list[PageControl]:
    """Return controls without print inside, with the nearest line of their row or beside them."""
    height, width = (-(-side // EDGE_PX) for side in light.shape)
    padded = np.pad(light, ((0, -light.shape[0] % EDGE_PX), (0, -light.shape[1] % EDGE_PX)), mode="edge")
    tiles = padded.reshape(height, EDGE_PX, width, EDGE_PX)
    edges = (tiles.max((1, 3)).astype(np.int16) - tiles.min((1, 3))) > 255 * 4 * RULE_STEP
    for x0, y0, x1, y1 in (*lines.tolist(), *framed):
        edges[int(y0 // EDGE_PX) : int(-(-y1 // EDGE_PX)), int(x0 // EDGE_PX) : int(-(-x1 // EDGE_PX))] = (
            False
        )
    for at, low, high in rules.lying[rules.lying[:, 2] - rules.lying[:, 1] > CONTROL[1]]:
        edges[int(max(0, at - 2) // EDGE_PX) : int((at + 1) // EDGE_PX) + 1,
              int(low // EDGE_PX) : int(-(-high // EDGE_PX))] = False  # fmt: skip
    for at, low, high in rules.standing[rules.standing[:, 2] - rules.standing[:, 1] > CONTROL[1]]:
        edges[int(low // EDGE_PX) : int(-(-high // EDGE_PX)),
              int(max(0, at - 2) // EDGE_PX) : int((at + 1) // EDGE_PX) + 1] = False  # fmt: skip
    controls = []
    for x0, y0, x1, y1 in _blobs(edges):
        box = (float(x0 * EDGE_PX), float(y0 * EDGE_PX), float(x1 * EDGE_PX), float(y1 * EDGE_PX))
        sides = box[2] - box[0], box[3] - box[1]
        if all(CONTROL[0] <= side <= CONTROL[1] for side in sides) and not _is_corner(box, rules):
            controls.append(PageControl(box, _name_of(box, lines, rules)))
    return controls


def _is_corner(box: Box, rules: Rules) -> bool:
    """Return whether a box is a frame's corner: a horizontal and a vertical rule end in it and lead away."""

    def ends(low: float, high: float, at: float, other: float, edges: NDArray[np.int64]) -> NDArray[np.bool_]:
        beside = (edges[:, 0] >= at - EDGE_PX) & (edges[:, 0] <= other + EDGE_PX)
        within = [(edges[:, k] >= low - EDGE_PX) & (edges[:, k] <= high + EDGE_PX) for k in (1, 2)]
        return beside & (within[0] ^ within[1]) & (edges[:, 2] - edges[:, 1] > 2 * EDGE_PX)

    x0, y0, x1, y1 = box
    return bool(ends(x0, x1, y0, y1, rules.lying).any() and ends(y0, y1, x0, x1, rules.standing).any())


def _blobs(raster: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Return the boxes (x0, y0, x1, y1), ends excluded, of connected shapes on a raster, corners included."""
    boxes: list[list[int]] = []
    parent: list[int] = []

    before: list[tuple[int, int, int]] = []  # first and last + 1 column of each run of the row above, number
    for y, row in enumerate(np.pad(raster, ((0, 0), (1, 1)))):
        edges = np.flatnonzero(row[1:] != row[:-1])
        here = []
        for x0, x1 in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            number = len(parent)
            parent.append(number)
            boxes.append([x0, y, x1, y + 1])
            for low, high, other in before:
                if low <= x1 and high >= x0:
                    one, two = sorted((_root(parent, other), _root(parent, number)))
                    if one != two:
                        parent[two] = one
                        a, b = boxes[one], boxes[two]
                        boxes[one] = [min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])]
            here.append((x0, x1, number))
        before = here
    roots = (boxes[i] for i in range(len(parent)) if parent[i] == i)
    return [(x0, y0, x1, y1) for x0, y0, x1, y1 in roots]


def _name_of(box: Box, lines: NDArray[np.float64], rules: Rules) -> int:
    """Return the line that names a control: at its height, the nearest without a vertical rule between."""
    if not len(lines):
        return -1
    x0, y0, x1, y1 = lines.T
    middle = (box[1] + box[3]) / 2
    away = np.abs((y0 + y1) / 2 - middle)
    gap = np.maximum(np.maximum(x0 - box[2], box[0] - x1), 0)
    near = away <= np.maximum(y1 - y0, (box[3] - box[1]) / 2)
    at, low, high = rules.standing.T
    crossing = at[(low <= middle) & (high >= middle)]
    for i in np.flatnonzero(near):
        left, right = (x1[i], box[0]) if x1[i] <= box[0] else (box[2], x0[i])
        near[i] = not ((crossing > left + 1) & (crossing < right - 1)).any()
    if not near.any():
        return -1
    # A switch stands at the right end of its row, as high as the middle of a name and what is said of it.
    return int(np.where(near, gap + np.round(away / (y1 - y0)) * (y1 - y0) * REACH, np.inf).argmin())
