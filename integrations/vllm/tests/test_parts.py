"""Settings, choosing and positions: what needs no engine."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from vllm.multimodal.processing import BaseMultiModalProcessor

from arr_coc.files.images import picture_digest
from arr_coc.relevance.deciding import Cues, Decision
from arr_coc.selector import Selector
from arr_coc_lab.world.page import draw_page
from arr_coc_vllm import metrics
from arr_coc_vllm.choosing import Chooser, Pictured, Reading, chooser_for
from arr_coc_vllm.models import check_family, prompt_positions
from arr_coc_vllm.settings import Settings, read_settings


def of(image: Image.Image, grid: tuple[int, int]) -> Pictured:
    """A picture of a request, named by its pixels."""
    return Pictured(picture_digest(image).hex(), grid, lambda: image)


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
    reading = Reading("Which total?", Settings(budget=4), of(draw_page(3, (256, 256), "test").image, (8, 8)))
    kept = [chooser.choose(reading).keep.tolist() for chooser in choosers]
    assert kept == [[0, 1, 8, 9], [4, 5, 12, 13]]
    assert len({Chooser(Selector()).source, *(chooser.source for chooser in choosers)}) == 3
    assert chooser_for(Settings()) is chooser_for(Settings(budget=8))
    assert chooser_for(Settings(relevance=f"boxes:{path}")) is not chooser_for(Settings())


def test_a_vllm_whose_caches_would_not_know_the_question_is_refused(monkeypatch) -> None:
    check_family("ARRCOCQwen3VL", "qwen3_vl")
    monkeypatch.delattr(BaseMultiModalProcessor, "_get_mm_hashes")
    with pytest.raises(ValueError, match=r"needs vLLM 0\.32 or newer, and this is"):
        check_family("ARRCOCQwen3VL", "qwen3_vl")


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
    picture = of(Image.new("RGB", (64, 64)), (2, 2))
    choice = chooser.choose(Reading("What?", Settings(), picture))
    assert choice.keep.tolist() == [0, 1, 2, 3]
    assert metrics.FALLBACKS._value.get() == before + 1
    assert chooser.reading(picture, ["A?", "B?"], Settings()).question == "B?"


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
        chooser.choose(chooser.reading(of(page.image, grid), questions, settings))
        return selector.worked - before

    assert turn(asked[0]) == 1
    assert turn(asked[0]) == 0
    assert turn(asked[0], "Thanks!") == 1  # whether that needs other cells
    assert turn(asked[0], "Thanks!") == 0
    assert turn(asked[0], "Thanks!", asked[1]) <= 2  # the same of the last, and its own cells
    assert turn(asked[0], "Thanks!", asked[1]) == 0
    assert turn(asked[2], asked[0]) <= 2
    other = chooser.choose(Reading(asked[0], Settings(budget=8), of(page.image, grid)))
    assert len(other.keep) == 8
    assert chooser.record(other.number).question == asked[0]
    assert chooser.record(0) is None


@pytest.mark.parametrize("follow", ["auto", "first", "last"])
def test_after_some_questions_all_cells_are_encoded_under_one_name(follow: str) -> None:
    page, grid = draw_page(3, (256, 256), "test"), (8, 8)
    asked = [question.text for question in page.questions[:4]]
    chooser = Chooser(Selector())
    settings = Settings(budget=16, follow=follow, keep_image_after=2)
    picture = of(page.image, grid)
    readings = [chooser.reading(picture, asked[:turn], settings) for turn in (1, 2, 3, 4)]
    kept = [len(chooser.choose(reading).keep) for reading in readings]
    assert kept == [16, 16, 64, 64]
    names = [(reading.question, reading.settings.print()) for reading in readings]
    assert names[2] == names[3]  # so that the third turn's cells are in the cache at the fourth
    assert names[2] == (asked[0], Settings(budget=16, mode="full").print())


def test_a_known_decision_opens_no_picture() -> None:
    page, grid, settings = draw_page(3, (256, 256), "test"), (8, 8), Settings(budget=16)
    asked, opened = [question.text for question in page.questions[:2]], []

    def picture() -> Pictured:
        """Of another request, so that nothing is left of it."""
        return Pictured("a", grid, lambda: opened.append(1) or page.image)

    chooser = Chooser(Selector())
    for turn in (1, 2):
        for _ in range(2):
            chooser.choose(chooser.reading(picture(), asked[:turn], settings))
        assert len(opened) == turn  # the first time, and once though two questions are compared


@pytest.mark.parametrize("questions", [1, 3])
def test_who_wants_the_same_waits_and_a_picture_is_encoded_once(
    questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, grid = draw_page(3, (256, 256), "test"), (8, 8)
    selector, viewed = Counting(), []
    view_all = selector.source.view_all

    def noted(pictures: Any) -> Any:
        viewed.append(1)
        return view_all(pictures)

    monkeypatch.setattr(selector.source, "view_all", noted)
    chooser = Chooser(selector)
    wanted = [page.questions[i % questions].text for i in range(12)]
    with ThreadPoolExecutor(12) as threads:
        records = list(threads.map(lambda text: chooser.decide(of(page.image, grid), text, 16), wanted))
    assert len({record.number for record in records}) == selector.worked == questions
    assert [record.question for record in records] == wanted
    assert len(viewed) == 1


def test_pictures_of_a_request_are_chosen_from_at_the_same_time() -> None:
    """Each waits until the other is being chosen from: one after the other would never end."""
    both = threading.Barrier(2, timeout=60)

    class Meeting(Selector):
        def decide(self, *args: Any, **more: Any) -> Decision:
            both.wait()
            return super().decide(*args, **more)

    pages = [draw_page(seed, (256, 256), "test") for seed in (3, 4)]
    readings = [Reading("Which total?", Settings(budget=4), of(page.image, (8, 8))) for page in pages]
    chooser = Chooser(Meeting())
    numbers = [choice.number for choice in chooser.each(chooser.choose, readings)]
    assert sorted(numbers) == [1, 2]
    alone = [Chooser(Selector()).choose(reading).keep.tolist() for reading in readings]
    again = [choice.keep.tolist() for choice in chooser.each(chooser.choose, readings)]
    assert again == alone


def test_a_failure_is_not_remembered() -> None:
    chooser, page = Chooser(Selector()), draw_page(3, (256, 256), "test")
    broken = Pictured("a", (8, 8), lambda: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            chooser.decide(broken, "Which total?", 4)
    whole = Pictured("a", (8, 8), lambda: page.image)
    assert len(chooser.decide(whole, "Which total?", 4).allocation.keep) == 4
