"""Settings, choosing and positions: what needs no engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc.guide.coupling import Coupling
from arr_coc.relevance.deciding import Cues
from arr_coc.selector import Selector
from arr_coc_lab.world.page import draw_page
from arr_coc_vllm import metrics
from arr_coc_vllm.choosing import Chooser, Reading, chooser_for, covered
from arr_coc_vllm.models import prompt_positions
from arr_coc_vllm.settings import Settings, read_settings


def test_settings_are_checked() -> None:
    assert read_settings(None) == Settings()
    assert read_settings({"budget": 0.25}).budget == 0.25
    server = read_settings({"budget": 150, "allocator": "folder"})
    assert server.merged(None) == server
    assert server.merged({"budget": "auto"}).allocator == "folder"
    assert server.merged({"keep_image_after": 2}).keep_image_after == 2
    assert (
        read_settings({"relevance": "guide+boxes:a.json"}).merged({"budget": 8}).relevance
        == "guide+boxes:a.json"
    )
    for wrong in (
        {"budget": 0},
        {"budget": "much"},
        {"mode": "saccade"},
        {"keep_image_after": 0},
        {"keep_image_after": True},
        {"relevance": "gaze"},
        {"relevance": "tarot"},
        {"relevance": 1},
        {"colour": 1},
        [1],
        "x",
    ):
        with pytest.raises(ValueError, match="arr_coc"):
            read_settings(wrong)
    for wrong in (
        {"allocator": "/etc"},
        {"relevance": "boxes:/etc/passwd"},
        {"budget": -1},
        5,
        [1],
        "x",
        {1: 2},
    ):
        with pytest.raises(ValueError, match="arr_coc"):
            server.merged(wrong)


def test_what_a_choice_depends_on_is_in_the_print() -> None:
    base = Settings()
    assert base.print() != Settings(budget=64).print()
    assert base.print() != Settings(mode="full").print()
    assert base.print() != Settings(relevance="guide").print()
    assert base.print() == Settings(follow="last").print()
    assert base.print() == Settings(keep_image_after=2).print()


def test_a_source_of_relevance_decides_and_is_told_apart(tmp_path: Path) -> None:
    path, choosers = tmp_path / "boxes.json", []
    for x in (0, 128):
        path.write_text(json.dumps([{"box": [x, 0, x + 64, 64], "score": 0.9}]))
        choosers.append(Chooser(Selector.from_pretrained(relevance=f"boxes:{path}")))
    picture, reading = draw_page(3, (256, 256), "test").image, Reading("Which total?", Settings(budget=4))
    kept = [chooser.choose(picture, reading, (8, 8)).keep.tolist() for chooser in choosers]
    assert kept == [[0, 1, 8, 9], [4, 5, 12, 13]]
    assert len({Chooser(Selector()).source, *(chooser.source for chooser in choosers)}) == 3
    assert chooser_for(Settings()) is chooser_for(Settings(budget=8))
    assert chooser_for(Settings(relevance=f"boxes:{path}")) is not chooser_for(Settings())


def test_positions_keep_cells_at_their_place_and_go_on_after_the_whole_grid() -> None:
    keep = np.array([1, 5, 11])
    positions = prompt_positions(9, [(2, keep, (3, 4))])
    assert positions[:, :2].tolist() == [[0, 1]] * 3
    assert positions[:, 2:5].tolist() == [[2, 2, 2], [2, 3, 4], [3, 3, 5]]
    assert positions[:, 5:].tolist() == [[6, 7, 8, 9]] * 3
    assert prompt_positions(3, []).tolist() == [[0, 1, 2]] * 3


class Refusing:
    """A selector that fails."""

    def decide(self, *args: object) -> None:
        raise RuntimeError("no")


def test_where_choosing_fails_all_cells_are_encoded_and_counted() -> None:
    before = metrics.FALLBACKS._value.get()
    chooser = Chooser(Refusing())  # type: ignore[arg-type]
    choice = chooser.choose(Image.new("RGB", (64, 64)), Reading("What?", Settings()), (2, 2))
    assert choice.keep.tolist() == [0, 1, 2, 3]
    assert metrics.FALLBACKS._value.get() == before + 1
    assert chooser.reading(Image.new("RGB", (64, 64)), ["A?", "B?"], (2, 2), Settings()).question == "B?"


class Counting(Selector):
    """A selector that counts what it is asked to work out."""

    def __init__(self) -> None:
        super().__init__()
        self.worked = 0

    def _cues(self, *args: Any) -> tuple[Cues, bool]:  # which `cues` and `decide` call
        self.worked += 1
        return super()._cues(*args)


def test_nothing_is_worked_out_twice() -> None:
    page, grid, settings = draw_page(3, (256, 256), "test"), (8, 8), Settings(budget=16)
    asked = [question.text for question in page.questions[:3]]
    selector = Counting()
    chooser = Chooser(selector)

    def turn(*questions: str) -> int:
        """How much was worked out for a request whose image is in no cache."""
        before = selector.worked
        reading = chooser.reading(page.image, questions, grid, settings)
        chooser.choose(page.image, reading, grid)
        return selector.worked - before

    assert turn(asked[0]) == 1
    assert turn(asked[0]) == 0
    assert turn(asked[0], "Thanks!") == 1  # whether that needs other cells
    assert turn(asked[0], "Thanks!") == 0
    assert turn(asked[0], "Thanks!", asked[1]) <= 2  # the same of the last, and its own cells
    assert turn(asked[0], "Thanks!", asked[1]) == 0
    assert turn(asked[2], asked[0]) <= 2
    other = chooser.choose(page.image, Reading(asked[0], Settings(budget=8)), grid)
    assert len(other.keep) == 8
    assert chooser.record(other.number).question == asked[0]
    assert chooser.record(0) is None


@pytest.mark.parametrize("follow", ["auto", "first", "last"])
def test_after_some_questions_all_cells_are_encoded_under_one_name(follow: str) -> None:
    page, grid = draw_page(3, (256, 256), "test"), (8, 8)
    asked = [question.text for question in page.questions[:4]]
    chooser = Chooser(Selector())
    settings = Settings(budget=16, follow=follow, keep_image_after=2)
    readings = [chooser.reading(page.image, asked[:turn], grid, settings) for turn in (1, 2, 3, 4)]
    kept = [len(chooser.choose(page.image, reading, grid).keep) for reading in readings]
    assert kept == [16, 16, 64, 64]
    names = [(reading.question, reading.settings.print()) for reading in readings]
    assert names[2] == names[3]  # so that the third turn's cells are in the cache at the fourth
    assert names[2] == (asked[0], Settings(budget=16, mode="full").print())


def test_how_much_of_a_need_is_covered() -> None:
    logits = torch.full((2, 2), -20.0)
    logits[0, 1] = 4.0
    guided = Coupling(logits, 1.0, 0.0, 0.0)
    assert covered(torch.tensor([1]), guided) > 0.99
    assert covered(torch.tensor([0, 2, 3]), guided) < 0.01
