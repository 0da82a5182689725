"""Packing a page for a question: layouts, captions, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc.choose.allocation import Allocation
from arr_coc.pixels import LAYOUTS, Rule, find_rule, pack, pack_for
from arr_coc.pixels.lines import EDGES, print_height
from arr_coc.pixels.page import find_page
from arr_coc.pixels.planning import GAP
from arr_coc.pixels.regions import in_reading_order, merged, to_line_ends, with_lines
from arr_coc.relevance.deciding import best_kept
from arr_coc.selector import Selector
from arr_coc.trace.picture import font
from each import each

ORDER = Path(__file__).parents[2] / "docs" / "order.png"
QUESTION = "When will the parcel arrive?"
ARRIVES = (223.0, 333.0, 454.0, 348.0)  # px of the line that says so


@pytest.fixture(scope="module")
def selector() -> Selector:
    return Selector()


def printed(rows: int = 12, height: int = 20, size: tuple[int, int] = (640, 640)) -> Image.Image:
    """A page of lines of print."""
    image = Image.new("RGB", size, "white")
    pen, face = ImageDraw.Draw(image), font("normal", 9).font_variant(size=height)
    for row in range(rows):
        pen.text((20, 20 + 50 * row), f"Line {row} of the page, and more", fill="black", font=face)
    return image


def cells(*places: tuple[int, int], grid: tuple[int, int] = (20, 20)) -> Allocation:
    """An allocation that keeps the cells at (row, column)."""
    scores = torch.zeros(grid)
    for row, column in places:
        scores[row, column] = 1.0
    return best_kept((1, *grid), scores, len(places))


class TestLayouts:
    def test_a_layout_of_one_picture_gives_one_however_few_the_tokens(self) -> None:
        page, kept = printed(), cells((0, 1), (6, 15), (12, 2), (19, 19))
        for layout, tokens in (("strip", 2), ("strip", 6), ("crop", 2), ("mask", 2)):
            assert len(pack(page, kept, tokens, 8, layout).pictures) == 1

    def test_crops_hold_their_cells_and_say_where(self) -> None:
        image = printed()
        packed = pack(image, cells((2, 2), (15, 10)), 80, 32, "crops")
        assert packed.layout == "crops"
        assert len(packed.pictures) == 2
        assert [place.picture for place in packed.places] == [0, 1]
        assert packed.captions[0].startswith("Part 1 of 2 of the picture of 640 x 640 px: top left, x ")
        assert "bottom centre" in packed.captions[1]
        assert packed.to_packed((70, 70, 90, 90))[0][0] == 0
        assert packed.to_packed((325, 490, 330, 500))[0][0] == 1

    def test_an_overview_comes_first_and_shows_everything(self) -> None:
        image = printed()
        packed = pack(image, cells((2, 2)), 120, 32, "overview+crops")
        assert packed.captions[0].startswith("An overview of the whole picture of 640 x 640 px, at ")
        assert packed.captions[1].startswith("A part of the picture")
        assert packed.to_original(packed.pictures[0].width / 2, 1, 0) is not None
        ((first, _), (second, _)) = packed.to_packed((70, 70, 80, 80))
        assert {first, second} == {0, 1}

    def test_a_strip_is_one_picture_with_frames(self) -> None:
        image = printed()
        packed = pack(image, cells((2, 2), (15, 10)), 120, 32, "strip")
        assert (len(packed.pictures), packed.layout) == (1, "strip")
        assert len(packed.places) >= 2
        assert packed.to_original(GAP / 2, GAP / 2) is None
        boxes = [place.box for place in packed.places]
        for one in boxes:
            for other in boxes:
                apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
                assert one is other or apart
        assert "2 parts of a picture of 640 x 640 px" in packed.captions[0]

    def test_one_box_around_everything(self) -> None:
        packed = pack(printed(), cells((2, 2), (15, 10)), 400, 32, "crop")
        ((x0, y0, x1, y1),) = [place.origin for place in packed.places][:1]
        assert x0 <= 64 and x1 >= 352  # noqa: PT018 (one box)
        assert y0 <= 64 and y1 >= 512  # noqa: PT018

    def test_print_is_enlarged_from_the_originals_own_pixels(self) -> None:
        image = printed(height=9)
        packed = pack(image, cells((2, 2)), 300, 32, "crop")
        (place,) = packed.places
        assert 1.5 < place.magnification <= 3.0
        expected = image.crop(place.origin).resize(packed.pictures[0].size, Image.Resampling.LANCZOS)
        assert expected.tobytes() == packed.pictures[0].tobytes()
        assert pack(image, cells((2, 2)), 300, 32, "crop", magnify=1.0).places[0].magnification <= 1.01

    def test_large_print_is_not_enlarged(self) -> None:
        packed = pack(printed(height=34), cells((2, 2)), 300, 32, "crop")
        assert packed.places[0].magnification <= 1.01

    def test_readable_print_is_only_scaled_down(self) -> None:
        """A strong reader reads the whole picture at a quarter of its tokens."""
        image = printed(height=34)
        few = cells((2, 2))
        assert pack(image, few, 200, 32).layout == "shrunk"
        assert pack(printed(height=12), few, 60, 32).layout != "shrunk"

    def test_a_reader_of_large_print_gets_larger_print(self) -> None:
        image, few = printed(height=22), cells((2, 2))
        weak = pack(image, few, 60, 32, readable=12)
        assert pack(image, few, 60, 32, readable=5).layout == "shrunk"
        assert weak.layout != "shrunk"
        assert max(place.magnification for place in weak.places) * 20 > 12

    def test_a_provider_that_enlarges_small_pictures_gets_one(self) -> None:
        packed = pack(printed(), cells((2, 2), (15, 10)), 280, "gemma-4")
        assert len(packed.pictures) == 1
        assert packed.tokens <= 280

    def test_what_a_provider_would_scale_away_is_not_sent(self) -> None:
        image = printed(size=(2400, 1800))
        for name in ("claude-4.6", "gpt-4o", "pixtral", "gemma-3"):
            rule = find_rule(name)
            packed = pack(image, cells((2, 2), (15, 10)), rule.cheapest * 2, rule, "crops")
            for picture in packed.pictures:
                read = rule.seen(*picture.size)
                assert all(part >= 0.9 * side for part, side in zip(read, picture.size, strict=True))


class TestForQuestions:
    def test_the_line_that_answers_is_shown_readably(self, selector: Selector) -> None:
        for tokens in (48, 100, 200):
            packed = pack_for(ORDER, QUESTION, tokens, 32, selector=selector)
            assert packed.tokens <= tokens
            held = [
                place.magnification * (ARRIVES[3] - ARRIVES[1])
                for place in packed.places
                if place.origin[0] <= ARRIVES[0] and place.origin[1] <= ARRIVES[1]
                and place.origin[2] >= ARRIVES[2] and place.origin[3] >= ARRIVES[3]
            ]  # fmt: skip
            assert max(held) > 5.5, (tokens, packed.json())
            assert packed.confidence is not None
            assert packed.allocation is not None

    def test_several_questions_are_all_looked_for(self, selector: Selector) -> None:
        both = pack_for(ORDER, [QUESTION, "Who carries it?"], 120, 32, selector=selector)
        one = pack_for(ORDER, QUESTION, 120, 32, selector=selector)
        assert both.confidence is not None
        assert one.confidence is not None
        assert both.confidence <= one.confidence

    def test_a_question_about_everything_gets_everything(self, selector: Selector) -> None:
        assert pack_for(ORDER, "Describe the image.", 200, 32, selector=selector).layout == "shrunk"

    def test_the_whole_budget_gives_the_picture(self, selector: Selector) -> None:
        packed = pack_for(ORDER, QUESTION, 1000, 32, selector=selector)
        assert (packed.layout, packed.tokens, packed.whole_tokens) == ("whole", 1000, 1000)
        with Image.open(ORDER) as image:
            assert packed.pictures[0].tobytes() == image.convert("RGB").tobytes()

    def test_a_blank_page(self, selector: Selector) -> None:
        for layout in LAYOUTS:
            packed = pack_for(Image.new("RGB", (300, 200), "white"), QUESTION, 20, 32, layout, selector)
            assert packed.tokens <= 20

    @each("questions", [[], None, 7, [None], [7], [" "], {}])
    def test_no_question(self, selector: Selector, questions: Any) -> None:
        with pytest.raises(ValueError, match=r"the questions? (is|are) .*: give|the question is empty"):
            pack_for(ORDER, questions, 100, selector=selector)

    @each("value", ["3", "x", None, True, float("nan"), float("inf"), -1, [3], {}, object()])
    def test_options_of_another_kind_are_named(self, value: Any) -> None:
        allocation = cells((2, 2))
        for name in ("tokens", "rule", "layout", "magnify", "readable", "lines", "allocation"):
            if (name, value) in (("rule", "3"), ("rule", True)):
                continue
            how = {"allocation": allocation, "tokens": 80} | {name: value}
            if name == "lines" and value == {}:
                continue  # no lines
            with pytest.raises(ValueError, match=f"{name} |tokens .* is less"):
                pack(printed(), **how)


class TestSaving:
    def test_json_and_files(self, tmp_path: Path) -> None:
        packed = pack(printed(), cells((2, 2), (15, 10)), 80, 32, "crops")
        facts = json.loads(json.dumps(packed.json()))
        assert (facts["layout"], facts["tokens"], facts["size"]) == ("crops", packed.tokens, [640, 640])
        assert [len(facts[name]) for name in ("pictures", "places")] == [2, 2]
        paths = packed.save(tmp_path / "new" / "folder", "page")
        assert [path.name for path in paths] == ["page-1.png", "page-2.png"]
        for path, picture in zip(paths, packed.pictures, strict=True):
            with Image.open(path) as saved:
                assert saved.convert("RGB").tobytes() == picture.tobytes()

    def test_a_folder_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="can't be made a folder"):
            pack(printed(), cells((2, 2)), 80).save(tmp_path / "file")


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"tokens": 0}, "tokens 0 is no count"),
            ({"tokens": 2.5}, "tokens 2.5 is no count"),
            ({"tokens": 100, "rule": "gemini"}, "give at least 1120"),
            ({"rule": "gpt-0"}, "is not known: use one of"),
            ({"layout": "mosaic"}, "layout 'mosaic' is not known: use one of auto"),
            ({"magnify": 0.5}, "magnify 0.5 is not within 1 and 8"),
            ({"magnify": float("nan")}, "is not within"),
            ({"readable": 1}, "readable 1 is not within 2 and 40 px"),
        ],
    )
    def test_in_a_line(self, change: dict[str, Any], reason: str) -> None:
        settings: dict[str, Any] = {"tokens": 100, "rule": 32, "layout": "auto"} | change
        with pytest.raises(ValueError, match=reason):
            pack(printed(), cells((2, 2)), **settings)

    def test_a_clip(self) -> None:
        clip = best_kept((2, 4, 4), torch.arange(32.0), 3)
        with pytest.raises(ValueError, match="of a clip of 2 steps: pack its frames"):
            pack(printed(), clip, 80)

    def test_a_rule_of_ones_own(self) -> None:
        rule = Rule("mine", "flat", "", base=90)
        packed = pack(printed(), cells((2, 2)), 100, rule)
        assert (packed.tokens, packed.rule, len(packed.pictures)) == (90, "mine", 1)


class TestLines:
    def test_their_boxes(self) -> None:
        lines = find_page(printed(rows=3, height=20)).lines
        tops = sorted({round(box[1] / 50) for box in lines})
        assert tops == [0, 1, 2] or tops == [1, 2, 3]
        assert all(10 <= box[3] - box[1] <= 24 for box in lines)
        assert min(box[0] for box in lines) <= 24

    def test_their_height(self) -> None:
        small, large = (print_height(find_page(printed(height=height)).lines) for height in (12, 36))
        assert small is not None
        assert large is not None
        assert 8 <= small <= 14
        assert 26 <= large <= 40
        assert print_height(()) is None
        boxes = [(0.0, 0.0, 50.0, 10.0), (0.0, 20.0, 50.0, 50.0)]
        assert print_height(boxes, [1.0, 0.0]) == 10 - EDGES
        assert print_height(boxes, [0.0, 1.0]) == 30 - EDGES

    def test_a_picture_without_print(self) -> None:
        assert find_page(Image.new("RGB", (64, 48), "white")).lines == ()

    def test_room_between_words(self) -> None:
        image = Image.new("RGB", (200, 40), "white")
        pen = ImageDraw.Draw(image)
        for left in (10, 60, 120):  # three words, of strokes 4 px apart
            for stroke in range(8):
                pen.line((left + 4 * stroke, 10, left + 4 * stroke + 3, 30), fill="black")
        ink = find_page(image).ink
        x0, _, x1, _ = ink.room((70, 5, 80, 35), 30, 200)
        assert 42 <= x0 <= 60
        assert 90 <= x1 <= 118
        assert ink.room((70, 5, 80, 35), 2, 200) == (70, 5, 80, 35)


class TestRegions:
    def test_two_frames_or_one(self) -> None:
        near, far = [(0, 0, 10, 10), (12, 0, 22, 10)], [(0, 0, 10, 10), (200, 0, 210, 10)]
        assert merged(near, 8, 9) == [(0, 0, 22, 10)]
        assert merged(far, 8, 9) == far
        assert merged(far, 8, 1) == [(0, 0, 210, 10)]

    def test_whole_lines(self) -> None:
        lines = np.array([[0.0, 10.0, 100.0, 20.0], [0.0, 22.0, 100.0, 32.0], [300.0, 0.0, 400.0, 90.0]])
        assert with_lines((20, 12, 40, 18), lines, (400, 100), (0, 0)) == (20, 10, 40, 20)
        assert with_lines((20, 12, 40, 18), lines, (400, 100), (5, 5)) == (15, 5, 45, 22)
        assert with_lines((20, 12, 40, 25), lines, (400, 100), (0, 0)) == (20, 10, 40, 32)

    def test_regions_go_on_to_the_ends_of_their_lines(self) -> None:
        lines = np.array([(10.0, 10.0, 110.0, 20.0), (10.0, 40.0, 390.0, 50.0), (0.0, 80.0, 9.0, 90.0)])
        size = (400, 100)
        assert to_line_ends((40, 8, 90, 24), lines, size) == (10, 8, 110, 24), "half of it is inside"
        assert to_line_ends((100, 8, 120, 24), lines, size) == (100, 8, 120, 24), "its start is far away"
        assert to_line_ends((45, 38, 80, 52), lines, size) == (10, 38, 80, 52), "its start is near"
        assert to_line_ends((200, 0, 220, 9), lines, size) == (200, 0, 220, 9), "there is none"

    def test_reading_order(self) -> None:
        boxes = [(50, 0, 60, 12), (0, 2, 10, 10), (0, 40, 10, 50), (30, 38, 40, 48)]
        assert in_reading_order(boxes) == [boxes[1], boxes[0], boxes[2], boxes[3]]


def test_where_a_point_is_on_a_frame(selector: Selector) -> None:
    packed = pack_for(ORDER, QUESTION, 100, 32, "strip", selector)
    assert packed.to_original(1, 1) is None
    assert packed.to_original(20, 20, 7) is None
    assert packed.to_packed((5000, 5000, 5001, 5001)) == []
