"""Units: whole lines with labels, and controls with captions, ranked; and the parts that show them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as draw
from PIL import Image, ImageDraw

from arr_coc.choose.allocation import Allocation
from arr_coc.files.images import open_image
from arr_coc.pixels import Packed, PageUnit, PrintedPage, find_page, pack_for, ranked_units
from arr_coc.pixels.units import GRAZED, SAME, unit_evidence, unit_regions, whole_lines
from arr_coc.relevance.deciding import best_kept
from arr_coc.selector import Selector
from arr_coc.trace.picture import font

ROWS = (("Order", "Customer", "City", "Total"), ("4021", "Arvid Holm", "Malmo", "717.35"),
        ("4022", "Bea Okafor", "Lagos", "404.76"), ("4023", "Carl Dietz", "Bonn", "536.87"),
        ("4024", "Dora Lind", "Oslo", "221.68"), ("4025", "Emil Roth", "Graz", "118.20"))  # fmt: skip
COLUMNS = (40, 180, 420, 640)
PITCH, TOP, PX = 40, 40, 16
SIZE = (800, 420)
SETTINGS = settings(max_examples=40, deadline=None)


def sheet(button: bool = True) -> Image.Image:
    """A table with a pale head, a caption with a switch and a framed button below it."""
    image = Image.new("RGB", SIZE, "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((30, 30, 770, 69), fill="#dde4ee")
    for row, cells in enumerate(ROWS):
        for x, cell in zip(COLUMNS, cells, strict=True):
            pen.text((x, TOP + PITCH * row), cell, "black", font("normal", 9).font_variant(size=PX))
    if button:
        pen.text((40, 300), "Alerts", "black", font("normal", 9).font_variant(size=PX))
        pen.rounded_rectangle((640, 296, 680, 320), 12, fill="#1a73e8")
        pen.ellipse((659, 299, 677, 317), fill="white")
        pen.rectangle((40, 350, 180, 390), outline="black")
        pen.text((62, 361), "Save draft", "black", font("normal", 9).font_variant(size=PX))
    return image


def relevant(spots: Sequence[tuple[float, float, float]], grid: tuple[int, int] = (13, 25)) -> Allocation:
    """An allocation that keeps every cell, with (x, y, relevance) spots on the sheet."""
    scores = torch.full((1, *grid), 0.001)
    for x, y, score in spots:
        scores[0, int(y * grid[0] / SIZE[1]), int(x * grid[1] / SIZE[0])] = score
    return best_kept((1, *grid), scores.flatten(), grid[0] * grid[1])


def middle(row: int) -> float:
    return TOP + PITCH * row + PX / 2


def cut(box: Sequence[float], lines: np.ndarray) -> list[list[float]]:
    """The lines that a box cuts: it reaches into them, and doesn't hold them."""
    found = []
    for line in lines.tolist():
        across, down = (min(line[k + 2], box[k + 2]) - max(line[k], box[k]) for k in (0, 1))
        inside = all(box[k] <= line[k] + SAME and line[k + 2] <= box[k + 2] + SAME for k in (0, 1))
        if across > SAME and down > GRAZED * (line[3] - line[1]) + SAME and not inside:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def page() -> PrintedPage:
    return find_page(sheet())


def text_at(page: PrintedPage, unit: PageUnit) -> set[tuple[int, int]]:
    """Row and column of the cells of the table in a unit."""
    found = set()
    for i in unit.lines:
        x0, y0, _, y1 = page.lines[i]
        found.add(
            (round(((y0 + y1) / 2 - middle(0)) / PITCH), min(range(4), key=lambda k: abs(COLUMNS[k] - x0)))
        )
    return found


class TestRanked:
    def test_a_value_stands_with_its_label_under_its_header(self, page: PrintedPage) -> None:
        units = ranked_units(page, relevant([(200, middle(3), 0.8), (650, middle(3), 0.4)]))
        assert text_at(page, units[0]) == {(3, 1), (3, 3)}
        assert text_at(page, units[0]._replace(lines=(units[0].header,))) == {(0, 3)}
        assert units[0].score == 1.0  # `best_kept` scales scores

    def test_lines_of_a_row_that_score_nothing_are_left_out(self, page: PrintedPage) -> None:
        (first, *_) = ranked_units(page, relevant([(200, middle(2), 0.8)]))
        assert text_at(page, first) == {(2, 1)}

    def test_a_cell_is_where_a_row_and_a_head_that_are_asked_for_meet(self, page: PrintedPage) -> None:
        units = ranked_units(page, relevant([(200, middle(3), 0.8), (650, middle(0), 0.7)]))
        assert {(3, 1), (3, 3)} in [text_at(page, unit) for unit in units]
        assert (3, 2) not in set().union(*(text_at(page, unit) for unit in units[:2]))

    def test_a_control_is_what_to_click(self, page: PrintedPage) -> None:
        alerts, *_ = ranked_units(page, relevant([(50, 310, 0.9)]))
        assert alerts.control is not None
        assert alerts.control[0] <= 645 <= 675 <= alerts.control[2]
        save, *_ = ranked_units(page, relevant([(100, 370, 0.9)]))
        assert save.control is not None
        assert save.control[0] <= 42 <= 178 <= save.control[2]

    @SETTINGS
    @given(
        draw.lists(
            draw.tuples(draw.floats(0, 799), draw.floats(0, 419), draw.floats(0.01, 1)),
            min_size=1,
            max_size=8,
        )
    )
    @example([(32.0, 130.0, 1.0)])  # the one kept cell only grazes a line
    def test_no_box_cuts_a_line_and_the_list_is_sorted(self, spots: list[tuple[float, float, float]]) -> None:
        known = find_page(sheet())
        units = ranked_units(known, relevant(spots))
        assert 0 < len(units) <= 10
        scores = [unit.score for unit in units]
        assert scores == sorted(scores, reverse=True)
        for number, unit in enumerate(units):
            assert unit.lines == () or not cut(unit.box, known.boxes)
            assert len(set(units[:number])) == number

    def test_without_print_they_are_boxes_of_cells(self) -> None:
        image = Image.new("RGB", SIZE, "white")
        allocation = relevant([(400, 200, 0.9)])
        units = ranked_units(find_page(image), allocation)
        assert [unit.box for unit in units] == [one.box for one in allocation.evidence(SIZE)]

    def test_evidence_is_what_was_kept(self, page: PrintedPage) -> None:
        image = sheet()
        allocation = relevant([(200, middle(3), 0.8), (200, middle(5), 0.5)])
        (first, *_) = unit_evidence(image, allocation)
        assert first.box == ranked_units(page, allocation)[0].box
        assert first.cells >= 1
        kept = best_kept(allocation.grid, allocation.balanced.flatten(), 1)
        assert len(unit_evidence(image, kept)) == 1


class TestParts:
    @SETTINGS
    @given(
        draw.lists(draw.sampled_from([(row, column) for row in range(6) for column in range(4)]), min_size=1),
        draw.floats(0, 64),
        draw.integers(1, 9),
    )
    def test_parts_of_one_row_share_their_rows(
        self, cells: list[tuple[int, int]], frame: float, most: int
    ) -> None:
        known = find_page(sheet(False))
        row_of = {i: number for number, row in enumerate(known.rows) for i in row}
        asked = [known.rows[row][column] for row, column in cells]
        boxes = [whole_lines(tuple(map(round, known.lines[i])), known.boxes) for i in asked]
        parts = unit_regions(boxes, known, frame, most)
        assert len(parts) <= most
        rows: dict[int, set[tuple[int, int]]] = {}
        for part in parts:
            assert not cut(part, known.boxes)
            for i in asked:
                x0, y0, x1, y1 = known.lines[i]
                if part[0] <= x0 + 1 and part[1] <= y0 + 1 and x1 <= part[2] + 1 and y1 <= part[3] + 1:
                    rows.setdefault(row_of[i], set()).add((part[1], part[3]))
        assert set(rows) == {row_of[i] for i in asked}
        assert all(len(levels) == 1 for levels in rows.values())


@pytest.fixture(scope="module")
def order() -> Image.Image:
    return open_image("docs/order.png")


@pytest.mark.parametrize("tokens", [48, 120, 300])
@pytest.mark.parametrize("question", ["When will the parcel arrive?", "How much is the postage?"])
def test_what_is_packed_cuts_no_line(order: Image.Image, tokens: int, question: str) -> None:
    packed: Packed = pack_for(order, question, tokens, selector=Selector())
    lines = find_page(order).boxes
    parts = [place.origin for place in packed.places if place.origin[2:] != tuple(map(float, order.size))]
    for part in parts:
        assert not cut(part, lines)
    by_height = [(a, b) for a in parts for b in parts if a[1] < b[3] and b[1] < a[3]]
    rows = find_page(order).rows
    for a, b in by_height:
        shared = [row for row in rows if all(any(_in(lines[i], part) for i in row) for part in (a, b))]
        assert not shared or a[1::2] == b[1::2]


def _in(line: np.ndarray, part: Sequence[float]) -> bool:
    return (
        part[0] <= line[0] + 1
        and part[1] <= line[1] + 1
        and line[2] <= part[2] + 1
        and line[3] <= part[3] + 1
    )
