"""Words of the guide on a panel."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor, ImageDraw

from arr_coc.trace.evidence import Spot
from arr_coc.trace.picture import SPOT, draw_spots, font
from each import each

Box = tuple[int, int, int, int]


def spot(word: str, y: float, x: float, term: str | None = None) -> Spot:
    return Spot(word, term or word, 0.9, (y, x), torch.zeros(0))


def blue(panel: Image.Image) -> np.ndarray:
    """The pixels in the colour of spots [h, w]."""
    return (abs(np.asarray(panel).astype(int) - ImageColor.getrgb(SPOT)).max(-1) < 3).astype(int)


def marked(size: tuple[int, int], *spots: Spot) -> Image.Image:
    panel = Image.new("RGB", size, "black")
    draw_spots(panel, spots)
    return panel


def page(lines: int, pitch: int, size: float) -> tuple[Image.Image, list[Box]]:
    """A panel of printed lines, and the boxes of their print."""
    panel = Image.new("RGB", (800, 800), "white")
    draw, letters, boxes = ImageDraw.Draw(panel), font("normal", size), []
    for n in range(lines):
        draw.text((100, 300 + n * pitch), "Total price", "black", letters)
        boxes.append(tuple(map(round, draw.textbbox((100, 300 + n * pitch), "Total price", letters))))
    return panel, boxes


def covered(before: Image.Image, after: Image.Image, box: Box) -> int:
    """Pixels of print within a box that are no longer as they were."""
    was, now = (np.asarray(panel.crop(box)).astype(int) for panel in (before, after))
    return int(((was < 200) & (now != was)).sum())


@cache
def rows_with_room() -> int:
    """Rows of a label and its bar in a panel with room on all sides."""
    return int(blue(marked((1000, 1000), spot("seller", 0.5, 0.5))).any(1).sum())


@each("size", [(1650, 330), (198, 990), (1140, 228), (810, 648)])
@each("y", [0.0, 0.05, 0.5, 0.98, 1.0])
@each("x", [0.0, 0.5, 1.0])
def test_a_label_is_wholly_inside_any_panel(size: tuple[int, int], y: float, x: float) -> None:
    panel = marked(size, spot("seller", y, x))
    framed = blue(panel)
    edge = [framed[0], framed[-1], framed[:, 0], framed[:, -1]]
    assert not np.concatenate(edge).any()  # a label has a white edge
    assert framed.any(1).sum() >= rows_with_room() - 4  # its rows and the bar's, which may reach the edge


def test_a_label_wider_than_the_panel_is_cut() -> None:
    framed = blue(marked((198, 990), spot("reservation", 0.5, 0.5, "confirmation of a booking")))
    assert framed.any()
    assert not framed[:, [0, -1]].any()


def test_without_room_above_the_label_stands_below_its_bar() -> None:
    for y, is_above in ((0.5, True), (0.02, False)):
        rows = np.flatnonzero(blue(marked((1650, 330), spot("seller", y, 0.5))).any(1))
        (gap,) = np.flatnonzero(np.diff(rows) > 1)
        label_first = gap + 1 > len(rows) // 2
        assert label_first == is_above


@each("size", [6.0, 8.0, 14.0, 20.0])
@each("off", [-0.5, 0.0, 0.5])
def test_what_is_printed_at_a_place_stays_readable(size: float, off: float) -> None:
    """Wherever in the height of the word, from its upper to its lower edge, the place lies."""
    panel, [(left, top, right, bottom)] = page(1, 0, size)
    before = panel.copy()
    y = (top + bottom) / 2 + off * (bottom - top)
    draw_spots(panel, [spot("total", y / 800, (left + 30) / 800), spot("price", y / 800, (right - 30) / 800)])
    assert covered(before, panel, (left, top, right, bottom)) == 0
    assert blue(panel)[:top].any()
    bar = np.flatnonzero(blue(panel)[(top + bottom) // 2 :].any(1))
    assert 0 < bar[0] < 0.8 * (bottom - top) + 6  # right below the word


def test_labels_cover_no_print_of_other_places() -> None:
    panel, boxes = page(3, 30, 8.0)
    before = panel.copy()
    places = [((top + bottom) / 1600, (left + 20) / 800) for left, top, _, bottom in boxes]
    draw_spots(panel, [spot("total", *place) for place in places])
    for left, top, _, bottom in boxes:
        assert covered(before, panel, (left + 8, top, left + 32, bottom)) == 0


@pytest.mark.parametrize("blank", [True, False])
def test_a_label_rises_from_print_to_where_the_picture_is_blank(blank: bool) -> None:
    panel, (first, second) = page(2, 30, 8.0)
    if not blank:  # then it may as well stand where it is nearest
        noise = np.random.default_rng(0).integers(0, 256, (first[1] - 1, 800, 3), dtype=np.uint8)
        panel.paste(Image.fromarray(noise), (0, 0))
    before = panel.copy()
    draw_spots(panel, [spot("total", (second[1] + second[3]) / 1600, (second[0] + 20) / 800)])
    assert (covered(before, panel, first) == 0) == blank


@pytest.mark.parametrize("size", [(1650, 330), (810, 810)])
def test_labels_do_not_cover_each_other(size: tuple[int, int]) -> None:
    spots = [spot(word, 0.5, 0.5 + 0.01 * n) for n, word in enumerate(("seller", "total", "price"))]
    alone = sum(blue(marked(size, one)).sum() for one in spots)
    bar = 7 * 25
    assert blue(marked(size, *spots)).sum() > alone - 3 * bar


def test_labels_of_two_words_in_a_line_stand_beside_each_other() -> None:
    panel = blue(marked((810, 810), spot("total", 0.5, 0.5), spot("price", 0.5, 0.54)))
    one = blue(marked((810, 810), spot("total", 0.5, 0.5)))
    assert (np.flatnonzero(panel.any(1)) == np.flatnonzero(one.any(1))).all()


def test_a_word_at_the_top_has_its_label_next_to_it_whatever_is_below() -> None:
    """The label of the word below makes room for it, below its own bar."""
    at_the_top, below = spot("total", 0.02, 0.5), spot("merged", 0.1, 0.5)
    alone, both = (blue(marked((810, 540), *spots)) for spots in ([at_the_top], [at_the_top, below]))
    end = np.flatnonzero(alone.any(1))[-1] + 1
    assert (both[:end] == alone[:end]).all()


def test_a_photograph_is_marked_near_the_place() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), dtype=np.uint8)
    panel = Image.fromarray(noise)
    draw_spots(panel, [spot("dog", 0.5, 0.5)])
    assert (np.asarray(panel)[295:305, 290:310] == noise[295:305, 290:310]).all()
    assert blue(panel)[300:345].sum() > 50
