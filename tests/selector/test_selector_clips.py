"""The selector on a clip: laws of the choice, and memory that doesn't grow with the clip."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from arr_coc.selector import ClipSelector, Selector
from near import near

SIZE = (256, 192)


def frame(*texts: tuple[int, int, str], size: tuple[int, int] = SIZE) -> Image.Image:
    """A white picture with words at places."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for x, y, text in texts:
        draw.text((x, y), text, fill="black", font=ImageFont.load_default(20))
    return image


@pytest.fixture(scope="module")
def selector() -> Selector:
    return Selector.from_pretrained()


def test_it_looks_when_and_where_the_words_stand(selector: Selector) -> None:
    plain, total = frame((10, 10, "Berlin")), frame((10, 10, "Berlin"), (10, 130, "Total 42"))
    frames = [plain] * 4 + [total] * 4 + [plain] * 4
    allocation = selector.decide_clip(frames, "What is the total?", budget=8).allocations[0]
    assert allocation.grid == (6, 6, 8)
    assert allocation.kept == 8
    best = allocation.order[:3]
    assert {int(i) // 48 for i in best} == {2}  # the step in which it appears
    assert {int(i) % 48 // 8 for i in best} == {4}


def test_a_clip_of_one_picture_is_the_image(selector: Selector) -> None:
    image = frame((10, 10, "Berlin"), (10, 130, "Total 42"))
    clip = selector.decide_clip([image], "What is the total?", budget=8).allocations[0]
    still = selector(image, "What is the total?", budget=8)
    assert torch.equal(clip.keep, still.keep)
    assert near(clip.balanced, still.balanced)


def test_what_repeats_is_kept_once(selector: Selector) -> None:
    image = frame((10, 10, "Berlin"), (10, 130, "Total 42"))
    allocation = selector.decide_clip([image] * 12, "What is the total?", budget=24).allocations[0]
    steps = allocation.positions[:, 0]
    assert int((steps == 0).sum()) >= 15  # evenly spread it would be two


def test_pictures_of_another_size_are_refused(selector: Selector) -> None:
    with pytest.raises(ValueError, match="256x192 and of 128x64"):
        selector.decide_clip([frame(), frame(size=(128, 64))], "What?")


def test_no_picture_is_refused(selector: Selector) -> None:
    with pytest.raises(ValueError, match="no pictures"):
        selector.decide_clip([], "What?")


@pytest.mark.parametrize("frames", [frame(), None, "clip.mp4"])
def test_what_is_no_clip_is_refused(selector: Selector, frames: Any) -> None:
    with pytest.raises(ValueError, match=r"the clip's frames are .*: give a list of them"):
        selector.decide_clip(frames, "What?")


@pytest.mark.parametrize("choose", [Selector.decide_clip, ClipSelector])
@pytest.mark.parametrize("count", [0, -1, 2.0, None, True])
def test_a_step_holds_a_whole_number_of_frames(selector: Selector, choose: Any, count: Any) -> None:
    question = {"question": "What?"} if choose is Selector.decide_clip else {}
    with pytest.raises(ValueError, match=r"frames_per_step .* is no count: use a whole number, 1 or more"):
        choose(selector, [frame()] * 4, **question, frames_per_step=count)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (["a"] * 4, "are not all numbers"),
        ([None] * 4, "are not all numbers"),
        ([math.nan] * 4, "are not all numbers"),
        ([], "are of 0 steps and the clip has 2"),
        (range(90), "are of 45 steps and the clip has 2"),
    ],
    ids=str,
)
def test_times_are_the_seconds_of_each_frame(selector: Selector, times: Any, problem: str) -> None:
    frames = [frame((10, 10, "Berlin"))] * 2 + [frame((10, 130, "Total 42"))] * 2
    with pytest.raises(ValueError, match=f"times .*{problem}.*: give the seconds of each frame, or None"):
        selector.decide_clip(frames, "What happens after 40 seconds?", times=times)


def held(selector: Selector, frames: Any, question: str, budget: float, grid: tuple[int, int]) -> Any:
    return ClipSelector(selector, frames, grid).decide(question, budget)


@pytest.mark.parametrize("choose", [Selector.decide_clip, held])
def test_a_bad_grid_and_a_selector_without_a_guide_are_refused(selector: Selector, choose: Any) -> None:
    with pytest.raises(ValueError, match="grid is"):
        choose(selector, [frame()], "What?", 0.1, (0, 3))
    with pytest.raises(ValueError, match="decided by the guide"):
        choose(Selector.from_pretrained("bundled"), [frame()], "What?", 0.1, (4, 4))


@pytest.mark.slow
@pytest.mark.parametrize("question", ["What is the total?", "Where is Paris?"])
def test_what_is_told_is_of_the_surest_step_however_it_is_looked_at(
    selector: Selector, question: str
) -> None:
    texts = ("Berlin", "Total", "Total 42", "Total 42", "Paris")
    frames = [frame((10 + i % 3, 10, text)) for i, text in enumerate(texts * 2)]
    streamed = selector.decide_clip(frames, question, 0.2)
    held = ClipSelector(selector, frames).decide(question, 0.2)
    assert torch.equal(streamed.allocations[0].keep, held.allocations[0].keep)
    assert streamed.couplings[0].matches == held.couplings[0].matches != ()
    assert streamed.couplings[0].confidence == held.couplings[0].confidence


@pytest.mark.slow
def test_memory_does_not_grow_with_the_clip(selector: Selector) -> None:
    def stream(count: int) -> Iterator[Image.Image]:
        for i in range(count):
            yield frame((10 + i % 50, 10, "Berlin"))

    peaks = []
    for count in (20, 100):
        tracemalloc.start()
        selector.decide_clip(stream(count), "What is the total?")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]
