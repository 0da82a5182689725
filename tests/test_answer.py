"""Answers and allocations as they show themselves: one line, HTML, a picture; copies and pickles."""

from __future__ import annotations

import base64
import copy
import io
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc import Answer
from arr_coc.choose.allocation import Allocation
from arr_coc.choose.attending import Selection
from arr_coc.files.drawing import LONGEST, kept_picture
from arr_coc.relevance.deciding import best_kept, everything_kept

GRID = (1, 4, 6)
NASTY = "<script>alert('1 & 2')</script>"


def allocation() -> Allocation:
    """6 of 24 cells: the first row."""
    return best_kept(GRID, torch.arange(24, 0, -1).float(), 6)


def answer(**more: object) -> Answer:
    record = allocation()
    image = Image.new("RGB", (1200, 800), (200, 40, 40))
    facts = {"ms": {"prompt": 1.0, "total": 51.4}, "fallback": False, "mode": "sparse", "budget": 6}
    counts = {"kept": 6, "total": 24, "read": 6}
    return Answer("4711", record, **(facts | counts | {"question": "Number?", "images": (image,)} | more))


def inline_pictures(html: str) -> list[Image.Image]:
    data = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html)
    return [Image.open(io.BytesIO(base64.b64decode(one))) for one in data]


class TestOneLine:
    def test_answer(self) -> None:
        assert repr(answer()) == "Answer(text='4711', kept=6 of 24, mode='sparse', 51 ms)"
        assert repr(answer(fallback=True)).endswith("mode='sparse', fallback, 51 ms)")
        long = replace(answer(), text="word\n" * 1000)
        assert len(repr(long)) < 160
        assert "\n" not in repr(long)

    def test_allocation_and_selection(self) -> None:
        assert repr(allocation()) == "Allocation(6 of 24 cells, grid 1x4x6, budget 6)"
        assert repr(replace(allocation(), void=True)).endswith("budget 6, void)")
        assert repr(everything_kept((1, 40, 50))).startswith("Allocation(2,000 of 2,000 cells, grid 1x40x50")
        keep = torch.arange(3)
        assert repr(Selection(keep, keep, keep, True)) == "Selection(3 cells, void)"


class TestHtml:
    def test_an_answer_with_its_picture(self) -> None:
        html = answer(note="budget was cut")._repr_html_()
        (picture,) = inline_pictures(html)
        assert max(picture.size) == LONGEST
        for words in ("Number?", "4711", "6 of 24 visual tokens, mode sparse", "51 ms", "budget was cut"):
            assert words in html
        assert len(html) < 60_000

    def test_text_is_escaped_and_nothing_is_loaded(self) -> None:
        html = replace(answer(), text=NASTY, question=NASTY, note=NASTY)._repr_html_()
        assert "<script" not in html
        assert html.count("&lt;script&gt;alert(&#x27;1 &amp; 2&#x27;)") == 3
        assert re.findall(r'(?:src|href)="(?!data:)', html) == []

    def test_without_pictures(self) -> None:
        html = replace(answer(), images=())._repr_html_()
        assert "4711" in html
        assert inline_pictures(html) == []

    def test_an_allocation_without_its_image(self) -> None:
        html = allocation()._repr_html_()
        (picture,) = inline_pictures(html)
        assert "6 of 24 cells" in html
        pixels = np.asarray(picture, dtype=int)
        spread = pixels.max(2) - pixels.min(2)  # kept cells have a colour, others are gray
        assert spread[5, ::40].min() > 60
        assert spread[-5, ::40].max() < 20


class TestPictures:
    def test_dropped_cells_are_faded(self) -> None:
        picture = answer().show()
        assert picture.size == (512, 341)
        assert picture.getpixel((256, 20)) == (200, 40, 40)
        assert max(picture.getpixel((256, 300))) < 60

    def test_which_of_several(self) -> None:
        second = Image.new("RGB", (60, 40), "white")
        both = answer(images=(*answer().images, second), allocations=(allocation(), everything_kept(GRID)))
        assert both.show(1).getpixel((30, 30)) == (255, 255, 255)
        assert len(inline_pictures(both._repr_html_())) == 2
        for which in (2, -1):
            with pytest.raises(ValueError, match=f"image {which} is not in this answer: it has 2"):
                both.show(which)

    def test_the_image_is_left_as_it_is(self) -> None:
        image = Image.new("RGB", (1200, 800), "white")
        kept_picture(image, allocation().mask())
        assert image.size == (1200, 800)

    def test_several_frames_are_refused(self) -> None:
        with pytest.raises(ValueError, match="one frame"):
            kept_picture(Image.new("RGB", (60, 40)), torch.ones(2, 4, 6, dtype=torch.bool))


def test_copies_and_pickles() -> None:
    for again in (copy.copy(answer()), copy.deepcopy(answer()), pickle.loads(pickle.dumps(answer()))):
        assert (again.text, again.kept, again.ms) == ("4711", 6, answer().ms)
        assert torch.equal(again.allocation.keep, answer().allocation.keep)
        assert again.show().tobytes() == answer().show().tobytes()
        assert again.allocations == (again.allocation,)


class TestGates:
    def test_there_are_none_without_a_layers_say(self) -> None:
        assert allocation().gates is None
        assert everything_kept(GRID).gates is None
        assert allocation().weights.tolist() == [0.0, 0.0, 0.0]  # as saved records have them

    def test_they_are_the_weights_by_name(self) -> None:
        weighed = replace(allocation(), weights=torch.tensor([0.125, 0.0, 0.875]))
        assert weighed.gates == {"information": 0.125, "perspectival": 0.0, "participatory": 0.875}
        assert weighed.gates_text == "information 0.12, saliency 0.00, coupling 0.88"
        assert allocation().gates_text == ""
