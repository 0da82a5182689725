"""What is printed on a page: lines, rows, heads of columns, panels and controls, before any question."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from arr_coc.files.images import open_image
from arr_coc.pixels.page import PrintedPage, find_page
from arr_coc.trace.picture import font

ORDER = Path(__file__).parents[2] / "docs" / "order.png"
TABLE = (("Order", "Customer", "Total"), ("4021", "Arvid Holm", "717.35"), ("4022", "Bea Okafor", "404.76"),
         ("4023", "Carl Dietz", "536.87"), ("4024", "Dora Lind", "221.68"))  # fmt: skip
COLUMNS = (40, 240, 520)


class Sheet:
    """A picture that print and frames are drawn on."""

    def __init__(self, size: tuple[int, int] = (800, 480), paper: str = "white") -> None:
        self.image = Image.new("RGB", size, paper)
        self.pen = ImageDraw.Draw(self.image)

    def text(self, x: int, y: int, text: str, px: int = 16, ink: str = "black", face: str = "normal") -> None:
        self.pen.text((x, y), text, ink, font(face, 9).font_variant(size=px))

    def page(self) -> PrintedPage:
        return find_page(self.image)


def table(grid: str | None = None, head: str = "white", ink: str = "black", paper: str = "white") -> Sheet:
    """Five rows of three columns, with grid lines of a colour, the head on a ground of its own."""
    sheet = Sheet(paper=paper)
    sheet.pen.rectangle((30, 30, 769, 69), fill=head if head != "white" else paper)
    for row, cells in enumerate(TABLE):
        for x, cell in zip(COLUMNS, cells, strict=True):
            sheet.text(x, 40 + 40 * row, cell, ink=ink)
    if grid:
        for y in range(30, 231, 40):
            sheet.pen.line((30, y, 770, y), grid)
        for x in (30, 230, 510, 770):
            sheet.pen.line((x, 30, x, 230), grid)
    return sheet


LEFT_OVER_RIGHT = (("Item", "Units", "Price", "Total"), ("Rope", "4", "11.20", "44.80"),
                   ("Kettle", "12", "8.00", "96.00"), ("Ladder", "150", "79.95", "11992.50"))  # fmt: skip
ENDS = (160, 320, 480, 680)  # of columns that begin at 40, 180, 340 and 500


def left_over_right(sheet: Sheet) -> PrintedPage:
    """Heads set flush left over numbers set flush right, which stand under nothing of their own."""
    for row, cells in enumerate(LEFT_OVER_RIGHT):
        sheet.text(40, 40 + 40 * row, cells[0], face="normal" if row else "bold")
        for start, end, cell in zip((180, 340, 500), ENDS[1:], cells[1:], strict=True):
            face = font("normal" if row else "bold", 9).font_variant(size=16)
            x = end - face.getlength(cell) if row else start
            sheet.pen.text((x, 40 + 40 * row), cell, "black", face)
    return sheet.page()


def line_at(page: PrintedPage, x: float, y: float) -> int:
    """The line at a point; an assertion fails if there is none."""
    found = [i for i, (x0, y0, x1, y1) in enumerate(page.lines) if x0 <= x <= x1 and y0 <= y <= y1]
    assert found, (x, y, page.lines)
    return found[0]


@pytest.mark.parametrize(
    "sheet",
    [table(), table("#cccccc"), table("black"), table("#e8e8e8", "#f2f2f2"), table(None, "#2b6b33"),
     table("#3a3d40", "#2c3034", "#dddddd", "#1e2124")],
    ids=["blank", "pale grid", "black grid", "pale head", "dark head", "dark"],
)  # fmt: skip
def test_a_table_has_rows(sheet: Sheet) -> None:
    page = sheet.page()
    assert len(page.lines) == 15, page.lines
    assert [len(row) for row in page.rows] == [3] * 5
    assert sorted(i for row in page.rows for i in row) == list(range(15))
    tops = [min(page.lines[i][1] for i in row) for row in page.rows]
    assert tops == sorted(tops)


@pytest.mark.parametrize("head", ["#f2f2f2", "#d0e0ff"])
def test_a_head_of_another_ground_heads_its_columns(head: str) -> None:
    page = table("#cccccc", head).page()
    first = page.rows[0]
    assert all(page.headers[i] == -1 for i in first)
    for row in page.rows[1:]:
        assert [page.headers[i] for i in row] == list(first)


def test_rows_alike_have_no_head() -> None:
    assert set(table("#cccccc").page().headers) == {-1}


def test_an_empty_cell_does_not_break_a_column() -> None:
    sheet = table(None, "#d0e0ff")
    sheet.pen.rectangle((COLUMNS[1], 110, COLUMNS[2] - 10, 145), fill="white")
    page = sheet.page()
    head = line_at(page, COLUMNS[1] + 5, 48)
    assert page.headers[line_at(page, COLUMNS[1] + 5, 168)] == head


def test_a_value_belongs_to_its_label_across_white() -> None:
    """A card of settings: the value stands as high as the middle of a name and what is said of it."""
    sheet = Sheet(paper="#f3f4f6")
    sheet.pen.rectangle((40, 40, 740, 176), fill="white", outline="#dcdfe4")
    sheet.pen.line((40, 108, 740, 108), "#e6e8ec")
    for y, name, note, value in ((52, "Sound", "Played with each alert", "Glass bell"),
                                 (120, "Time zone", "Of your browser", "Europe/Lisbon")):  # fmt: skip
        sheet.text(60, y, name)
        sheet.text(60, y + 20, note, 13, "#667080")
        sheet.text(580, y + 11, value)
    page = sheet.page()
    sound, zone = line_at(page, 70, 61), line_at(page, 70, 129)
    row = next(row for row in page.rows if sound in row)
    assert line_at(page, 590, 72) in row
    assert line_at(page, 590, 140) not in row
    assert line_at(page, 590, 140) in next(row for row in page.rows if zone in row)
    assert any(abs(x0 - 40) < 3 and abs(x1 - 740) < 3 and abs(y0 - 40) < 3 for x0, y0, x1, _ in page.panels)


def test_panels_side_by_side_share_no_row() -> None:
    sheet = Sheet()
    sheet.pen.rectangle((0, 0, 199, 479), fill="#eef0f4")
    for number in range(6):
        sheet.text(20, 40 + 62 * number, f"Entry {number}")
        sheet.text(240, 40 + 35 * number, f"What stands on the page, line {number}")
    for x in (240, 480):  # two cards, whose lines are level
        sheet.pen.rectangle((x, 300, x + 200, 400), outline="#c0c0c0")
        sheet.text(x + 20, 320, "Opening balance")
        sheet.text(x + 20, 350, "2,117.06")
    page = sheet.page()
    for row in page.rows:
        assert len({page.lines[i][0] < 200 for i in row}) == 1
        assert (
            len({page.lines[i][0] < 460 for i in row if page.lines[i][1] > 305 and page.lines[i][0] > 200})
            <= 1
        )


def test_controls_and_what_they_are_called() -> None:
    sheet = Sheet()
    sheet.pen.rounded_rectangle((40, 40, 180, 76), 6, fill="white", outline="#808080")
    sheet.text(66, 50, "Delete it")
    for y, ground in ((120, "#23a566"), (200, "#b4b9c4")):
        sheet.text(40, y, "Desktop alerts" if y == 120 else "Weekly digest")
        sheet.pen.rounded_rectangle((600, y, 640, y + 22), 11, fill=ground)
        sheet.pen.ellipse((602, y + 2, 620, y + 20), fill="white")
    page = sheet.page()
    boxes = np.array([control.box for control in page.controls])
    assert len(boxes) == 3, page.controls
    assert np.abs(boxes[0] - (40, 40, 180, 76)).max() <= 4
    assert np.abs(boxes[1] - (600, 120, 640, 142)).max() <= 4
    names = [page.lines[control.line] for control in page.controls]
    assert [round(name[1], -1) for name in names] == [50, 120, 200]
    assert all(name[0] < 80 for name in names)


def test_a_table_of_cells_has_no_controls() -> None:
    assert table("#cccccc").page().controls == ()


def test_frames_are_no_print() -> None:
    """A line ends where its letters end, not at the border of its cell or field."""
    for grid in ("black", "#444444"):
        page = table(grid).page()
        x0, y0, x1, y1 = page.lines[line_at(page, COLUMNS[0] + 5, 88)]
        assert COLUMNS[0] - 4 <= x0
        assert x1 < COLUMNS[0] + 60
        assert y1 - y0 < 24


def test_long_lines_and_large_headings_are_whole() -> None:
    sheet = Sheet((1400, 300))
    long = "A line of print that goes on and on over more than five hundred pixels of a page, to its end"
    sheet.text(40, 40, long, 16)
    sheet.text(40, 120, "Clockmakers' Museum", 44)
    page = sheet.page()
    assert [len(row) for row in page.rows] == [1, 1]
    assert page.lines[0][2] - page.lines[0][0] > 700


def test_sizes_follow_the_picture() -> None:
    """A page of twice the px has the same rows, and boxes twice as large."""
    sheet = table("#cccccc", "#f2f2f2")
    large = sheet.image.resize((1600, 960), Image.Resampling.NEAREST)
    one, other = sheet.page(), find_page(large)
    assert [len(row) for row in other.rows] == [len(row) for row in one.rows]
    assert np.abs(other.boxes / 2 - one.boxes).max() < 6


@pytest.mark.parametrize("size", [(1, 1), (3, 900), (900, 2), (64, 48)])
def test_pictures_without_print(size: tuple[int, int]) -> None:
    page = find_page(Image.new("RGB", size, "white"))
    assert (page.lines, page.rows, page.headers, page.panels, page.controls) == ((), (), (), (), ())


def test_any_picture_has_a_page() -> None:
    rng = np.random.default_rng(0)
    for shape in ((40, 60), (200, 31), (333, 257)):
        page = find_page(Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8)))
        assert sorted(i for row in page.rows for i in row) == list(range(len(page.lines)))
        assert len(page.headers) == len(page.lines)
        for box in (*page.panels, *(control.box for control in page.controls)):
            assert 0 <= box[0] < box[2] <= page.size[0]
            assert 0 <= box[1] < box[3] <= page.size[1]
        assert all(-1 <= control.line < len(page.lines) for control in page.controls)


def test_a_real_page() -> None:
    """The order page of the documentation: what arrives stands beside when."""
    page = find_page(open_image(ORDER))
    arrives = line_at(page, 300, 340)
    assert len(page.lines) > 20
    assert page.lines[arrives][3] - page.lines[arrives][1] < 24


def test_heads_set_flush_left_are_those_of_numbers_set_flush_right() -> None:
    sheet = Sheet()
    sheet.pen.rectangle((30, 30, 769, 69), fill="#dde4ee")
    page = left_over_right(sheet)
    first, *others = page.rows
    assert [len(row) for row in page.rows] == [4, 4, 4, 4]
    for row in others:
        assert [page.headers[i] for i in row] == list(first)
