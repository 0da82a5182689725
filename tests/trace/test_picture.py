"""Pictures of allocation records."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from arr_coc.choose.allocation import Allocation, Reason
from arr_coc.trace import picture as lettering
from arr_coc.trace.evidence import Guidance, Spot
from arr_coc.trace.picture import (
    DPI,
    OTHER_SCRIPT,
    PALETTE,
    Panel,
    Truth,
    _caption_width,
    _heat_panel,
    _lines,
    colours,
    draw_allocation,
    draw_layers,
    drawable_text,
    kept_panel,
    panel_pixels,
    spread,
    text_width,
    with_note,
    wrap,
)
from records import record

BOX = (5.4, 6.6)


def with_map(values: torch.Tensor) -> Allocation:
    return dataclasses.replace(record(*values.shape, kept=1), balanced=values[None].float())


class TestPicture:
    @pytest.mark.parametrize(
        ("size", "grid"),
        [((1024, 1024), (32, 32)), ((1600, 512), (16, 50)), ((512, 1400), (44, 16)), ((4, 4), (1, 1))],
    )
    def test_smoke(self, size: tuple[int, int], grid: tuple[int, int]) -> None:
        image = Image.new("RGB", size, "white")
        allocation = record(*grid, kept=max(1, grid[0] * grid[1] // 4))
        for picture in (
            draw_allocation(image, allocation, "What is it?", "white"),
            draw_layers(image, allocation, "What is it?"),
        ):
            assert picture.mode == "RGB"
            assert 1000 <= picture.width <= 3000
            assert 300 <= picture.height <= 4000

    @pytest.mark.slow
    def test_the_truth_stands_beside_the_choice(self) -> None:
        image, allocation = Image.new("RGB", (256, 256), "white"), record(8, 8, 16)
        boxes = tuple(
            (32.0 * (c % 8) + 1, 32.0 * (c // 8) + 1, 32.0 * (c % 8) + 31, 32.0 * (c // 8) + 31)
            for c in (int(allocation.keep[0]), next(c for c in range(64) if c not in allocation.keep))
        )
        spot = Spot("seller", "vendor", 0.9, (0.5, 0.5), torch.rand(8, 8))
        picture = np.asarray(
            draw_layers(image, allocation, "q", boxes, Guidance(0.9, 0.0, 0.0, (spot,)))
        ).astype(int)
        for colour in ((14, 159, 110), (224, 36, 36), (11, 123, 196)):  # hit, missed, word
            assert (abs(picture - np.array(colour)).max(-1) < 12).any()
        with pytest.raises(ValueError, match="evidence box"):
            draw_allocation(image, allocation, "q", "a", ((5.0, 5.0, 5.0, 9.0),))

    @pytest.mark.parametrize("size", [(15, 3000), (3000, 15)])
    def test_very_long_images_stay_readable(self, size: tuple[int, int]) -> None:
        grid = (114, 1) if size[1] > size[0] else (1, 114)
        picture = draw_allocation(Image.new("RGB", size), record(*grid, kept=30), "What is it?", "black")
        assert max(picture.size) < 4000

    def test_wide_images_are_stacked(self) -> None:
        square = draw_allocation(Image.new("RGB", (600, 600)), record(8, 8, 16), "q", "a")
        wide = draw_allocation(Image.new("RGB", (1200, 400)), record(4, 12, 16), "q", "a")
        assert square.width > 2 * square.height
        assert wide.width < wide.height

    def test_captions_of_narrow_panels_have_room(self) -> None:
        allocation = record(40, 4, 16)
        base = np.zeros((990, 198, 3), dtype=np.uint8)
        longest = _caption_width(Panel("information", "what the question asks for, weight 0.88", base))
        assert longest > base.shape[1] / DPI
        assert draw_layers(Image.new("RGB", (100, 1000)), allocation, "q").width > 3 * longest * DPI

    def test_deterministic_and_inputs_untouched(self) -> None:
        image, allocation = Image.new("RGB", (64, 64), "red"), record(4, 4, 5)
        before = allocation.to_dict()
        first = draw_allocation(image, allocation, "q", "a")
        assert first == draw_allocation(image, allocation, "q", "a")
        assert allocation.to_dict() == before
        assert image == Image.new("RGB", (64, 64), "red")

    def test_exception(self) -> None:
        with pytest.raises(ValueError, match="one frame, the record has 2"):
            draw_allocation(Image.new("RGB", (8, 8)), record(4, 4, 5, frames=2), "q", "a")
        with pytest.raises(ValueError, match="one frame, the record has 2"):
            draw_layers(Image.new("RGB", (8, 8)), record(4, 4, 5, frames=2), "q")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "costs $5 and $6_a^b \\frac{",
            "日本語 🙂 عربى",
            "a\x00b\nc\td",
            "x" * 5000,
            "word " * 5000,
            "<b>[red]",
        ],
    )
    def test_any_text_can_be_drawn(self, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            draw_allocation(Image.new("RGB", (64, 64)), record(4, 4, 5), text, text)

    @pytest.mark.slow
    def test_pillow_alone_draws(self) -> None:
        """Of matplotlib no more than the files of its fonts is read."""
        code = (
            "import sys\nfrom PIL import Image\nfrom arr_coc.trace.picture import draw_layers\n"
            "from records import record\n"
            "draw_layers(Image.new('RGB', (64, 64)), record(4, 4, 5), 'q')\n"
            "sys.exit('matplotlib' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False)
        assert done.returncode == 0


class TestHeat:
    def test_colours_rise_from_dark_to_light(self) -> None:
        lightness = PALETTE @ (0.2126, 0.7152, 0.0722)
        assert (np.diff(lightness) >= 0).all()
        assert lightness[0] < 12 < 245 < lightness[-1]
        assert np.array_equal(colours(np.array([0.0, 0.5, 1.0])), PALETTE[[0, 128, 255]])

    def test_colour_is_the_number(self) -> None:
        cells = torch.tensor([[0.0, 0.25], [0.5, 1.0]])
        base = panel_pixels(Image.new("RGB", (100, 100), (70, 130, 90)), with_map(cells), BOX)
        pixels = _heat_panel("relevance", "", _lines(base), cells[None]).pixels / 255
        h, w = pixels.shape[:2]
        for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
            wanted = colours(cells[y, x].numpy()) / 255
            assert np.abs(pixels[h // 4 + y * h // 2, w // 4 + x * w // 2] - wanted).max() < 0.01

    def test_low_scores_are_as_plain_as_high_ones_and_the_highest_is_written(self) -> None:
        strong = torch.tensor([[0.0, 0.25], [0.5, 1.0]])
        base = panel_pixels(Image.new("RGB", (100, 100), "white"), with_map(strong), BOX)
        whole, weak, nothing = (
            _heat_panel("r", "", _lines(base), share * strong[None]) for share in (1.0, 2.0**-8, 0.0)
        )
        assert (weak.pixels == whole.pixels).all()
        assert whole.note.endswith("highest 1")
        assert weak.note.endswith("highest 0.0039")
        half = _heat_panel("r", "weight 0.88", _lines(base), strong[None] / 2)
        assert half.note == "weight 0.88, highest 0.5"
        assert (nothing.pixels == PALETTE[0]).all()

    def test_lines_of_the_image_show_on_dark_and_on_light(self) -> None:
        image = Image.new("RGB", (810, 810), "white")
        image.paste("black", (0, 403, 810, 408))
        cells = torch.tensor([[0.05, 0.95]])
        base = panel_pixels(image, with_map(cells), BOX)
        pixels = _heat_panel("r", "", _lines(base), cells[None]).pixels.mean(-1) / 255
        h, w = pixels.shape
        assert pixels[h // 2, w // 4] > pixels[h // 8, w // 4] + 0.1
        assert pixels[h // 2, 3 * w // 4] < pixels[h // 8, 3 * w // 4] - 0.1


class TestKept:
    def test_kept_cells_keep_their_colours_and_others_lose_them(self) -> None:
        allocation = record(4, 4, 5)
        base = panel_pixels(Image.new("RGB", (80, 80), (220, 40, 40)), allocation, BOX)
        panel = kept_panel(base, allocation, Truth())
        mask = spread(allocation.mask()[0].numpy(), base.shape)
        assert (panel.pixels[mask] == base[mask]).all()
        assert set(map(tuple, panel.pixels[~mask].tolist())) == {(83, 45, 49)}  # mostly dark ground

    def test_what_is_likely_meant_is_outlined(self) -> None:
        meant = dataclasses.replace(record(4, 4, 5), weights=torch.tensor([0.0, 0.1, 0.9]))
        spread_out = dataclasses.replace(meant, weights=torch.tensor([0.9, 0.1, 0.0]))
        base = panel_pixels(Image.new("RGB", (80, 80), "white"), meant, BOX)
        edge = ImageColor.getrgb("#d97706")
        outlined, plain = (
            (kept_panel(base, one, Truth()).pixels == edge).all(-1).any() for one in (meant, spread_out)
        )
        assert (outlined, plain) == (True, False)

    def test_void_is_said(self) -> None:
        base = np.zeros((10, 10, 3), dtype=np.uint8)
        assert "even grid" in kept_panel(base, record(4, 4, 4, reason=Reason.VOID), Truth()).note
        assert "even grid" not in kept_panel(base, record(4, 4, 4), Truth()).note

    def test_spread_gives_each_pixel_the_cell_it_lies_in(self) -> None:
        cells = np.arange(6).reshape(2, 3)
        assert spread(cells, (4, 6)).tolist() == [[0, 0, 1, 1, 2, 2]] * 2 + [[3, 3, 4, 4, 5, 5]] * 2

    def test_drawing_shows_each_panel_as_it_is(self) -> None:
        """Pixels reach the file unresampled."""
        allocation = record(4, 4, 5)
        image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (810, 810, 3), dtype=np.uint8))
        base = panel_pixels(image, allocation, BOX)
        assert base.shape == (810, 810, 3)
        picture = np.asarray(draw_allocation(image, allocation, "q", "a"))
        left = round(0.35 * DPI)
        rows = [
            y
            for y in range(picture.shape[0] - 810)
            if (picture[y + 400, left + 10 : left + 800] == base[400, 10:800]).all()
        ]
        assert len(rows) >= 1


class TestWrap:
    def test_short_text_is_one_line(self) -> None:
        assert wrap("two words", "normal", 10, 1000, 2) == ["two words"]
        assert wrap("", "normal", 10, 1000, 2) == []

    def test_lines_fit_and_nothing_is_lost(self) -> None:
        text = "the quick brown fox jumps over the lazy dog"
        lines = wrap(text, "bold", 12, 300, 9)
        assert " ".join(lines) == text
        assert len(lines) > 1
        assert all(text_width(line, "bold", 12) <= 300 for line in lines)

    def test_long_text_ends_in_an_ellipsis(self) -> None:
        lines = wrap("word " * 200, "normal", 10, 300, 2)
        assert len(lines) == 2
        assert lines[1].endswith("…")
        assert text_width(lines[1], "normal", 10) <= 300

    def test_a_word_wider_than_the_picture_is_cut(self) -> None:
        lines = wrap("w" * 300, "normal", 10, 200, 3)
        assert len(lines) == 3
        assert all(text_width(line, "normal", 10) <= 200 for line in lines)

    @pytest.mark.parametrize("weight", ["normal", "bold"])
    def test_a_text_that_no_font_has_is_said_to_be_one(
        self, weight: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lettering, "_system_font", lambda *_: None)
        for text in (
            "总价是多少",
            "合計はいくらですか",
            "총액은 얼마입니까?",
            "कुल कितना है",
            "USB 接口在哪里？",
        ):
            assert drawable_text(text, weight) == OTHER_SCRIPT
            assert wrap(text, weight, 12, 900, 2) == [OTHER_SCRIPT]
        for text in (
            "Größe, naïve façade",
            "Ποιο είναι το σύνολο;",
            "Какая сумма?",
            "tổng",
            "what does 语 mean?",
        ):
            assert drawable_text(text, weight) == text
        assert drawable_text("1 + 2 = 3 \u2713", weight) == "1 + 2 = 3 \u2713"

    @pytest.mark.parametrize("weight", ["normal", "bold"])
    def test_another_script_is_drawn_in_a_font_that_has_it(self, weight: str) -> None:
        stix = "ののの"  # the one sign of Japanese that a font of matplotlib's own has
        assert drawable_text(stix, weight) == stix
        assert wrap(stix, weight, 12, 900, 2) == [stix]
        letters = lettering.font_of(stix, weight, 12)
        assert letters.getname()[0] != "DejaVu Sans"
        assert bytes(letters.getmask("の")) != bytes(letters.getmask("\uffff"))
        assert text_width(stix, weight, 12) == letters.getlength(stix)
        assert lettering.font_of("what does の mean?", weight, 12).getname()[0] == letters.getname()[0]
        assert lettering.font_of("Größe", weight, 12).getname()[0] == "DejaVu Sans"


def test_a_note_stands_below_a_picture_of_any_width() -> None:
    for width in (40, 300, 1500):
        picture = Image.new("RGB", (width, 50), "red")
        noted = with_note(picture, "the guide chose the cells, and the answer is probably wrong " * 3)
        assert noted.width == width
        assert noted.crop((0, 0, width, 50)).tobytes() == picture.tobytes()
        below = noted.crop((0, 50, width, noted.height))
        assert len(below.getcolors(10_000) or ()) > 1, "it is written"
        assert with_note(picture, None) is picture
