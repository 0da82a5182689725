"""Questions about several images together: one answer, and a quota and an allocation for each image."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from arr_coc.choose.keep_list import KeepList
from arr_coc.modes import MODES
from arr_coc.modes.request import reads_crops
from eyes import IMAGES, build, set_constants, wrapped
from tiny import FAMILIES, MASKABLE, apart, picture, prompts, tiny

THREE = [*IMAGES, picture(7, (56, 56))]


@pytest.fixture(autouse=True)
def small_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", MODES)
def test_the_answer_is_that_of_generate(family: str, mode: str) -> None:
    model, built = wrapped(family), tiny(family)
    answer = model.ask(THREE[1:], "Which?", mode=mode, max_new_tokens=4)
    inputs = prompts(built, [("Which?", THREE[1:])])
    how = {"do_sample": False, "max_new_tokens": 4, "return_allocation": True, "pictures": THREE[1:]}
    out = model.generate(**inputs, mode=mode, **how)
    new = out.sequences[0, inputs["input_ids"].shape[1] :]
    assert answer.text == built.processor.tokenizer.decode(new, skip_special_tokens=True).strip()
    assert len(answer.allocations) == 2
    assert answer.allocation is answer.allocations[0]
    assert [a.kept for a in answer.allocations][: len(out.allocations)] == [a.kept for a in out.allocations]
    if MODES[mode].chooses:
        assert [a.kept for a in answer.allocations] == [7, 7]
        assert (answer.kept, answer.budget) == (14, 7)
    encoded = sum(len(cells) for cells in model.adapter.features(inputs).cells)
    if reads_crops(model.adapter, MODES[mode]):  # cells of finer crops, beside those of the view
        assert answer.total == sum(allocation.total for allocation in answer.allocations) > encoded
    else:
        assert answer.total == encoded


@pytest.mark.parametrize("family", apart(MASKABLE))
def test_each_image_is_chosen_from_by_itself(family: str) -> None:
    """Whatever its neighbours are, as far as the processor prepares it alike."""
    model = wrapped(family)
    looks = model.session(THREE[1:]).looks("Which?")
    swapped = model.session([THREE[1], IMAGES[0]]).looks("Which?")
    assert torch.equal(looks[0].keep, swapped[0].keep)
    assert torch.equal(model.look(THREE[1:], "Which?").keep, looks[0].keep)


@pytest.mark.parametrize("mode", ["saccade", "sparse"])
def test_a_session_answers_each_question_as_a_fresh_one(mode: str) -> None:
    """Nothing of an earlier question's cells is kept between two gestalts."""
    model = wrapped()
    session = model.session(THREE[1:])
    for question in ("Which?", "Where is the red ball?", "Which?"):
        alone = model.ask(THREE[1:], question, mode=mode, max_new_tokens=4)
        again = session.ask(question, mode=mode, max_new_tokens=4)
        assert again.text == alone.text
        for a, b in zip(again.allocations, alone.allocations, strict=True):
            assert torch.equal(a.keep, b.keep)


@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
def test_cells_named_for_each_image(mode: str) -> None:
    """Those that a call chooses give its answer when they are named; one image's are of that image alone."""
    model = wrapped()
    chosen = model.ask(THREE[1:], "Which?", mode=mode, max_new_tokens=4)
    keeps = [allocation.keep for allocation in chosen.allocations]
    named = model.ask(THREE[1:], "Which?", mode=mode, cells=keeps, max_new_tokens=4)
    assert named.text == chosen.text
    assert [a.keep.tolist() for a in named.allocations] == [keep.tolist() for keep in keeps]
    lists = [KeepList.of(one, "Which?") for one in chosen.allocations]
    assert model.ask(THREE[1:], "Which?", mode=mode, cells=lists, max_new_tokens=4).text == chosen.text
    few = model.ask(THREE[1:], "Which?", mode=mode, cells=[[4, 2], keeps[1]], max_new_tokens=1)
    assert [a.keep.tolist() for a in few.allocations] == [[2, 4], keeps[1].tolist()]


def test_three_of_any_kind(tmp_path: Any) -> None:
    THREE[0].save(tmp_path / "a.png")
    sources = [tmp_path / "a.png", torch.rand(3, 40, 72), THREE[2]]
    answer = build(budget=0.5).ask(sources, "Which?", max_new_tokens=2)
    assert [a.total for a in answer.allocations] == [30, 45, 49]
    assert (answer.kept, answer.total) == (15 + 23 + 25, 30 + 45 + 49)
    assert [image.size for image in answer.images] == [(48, 40), (72, 40), (56, 56)]
    assert answer.show(2).size == (56, 56)


def test_notes_are_of_the_small_ones() -> None:
    answer = wrapped().ask(THREE[:2], "Which?", mode="sparse", budget=31, max_new_tokens=1)
    assert [a.kept for a in answer.allocations] == [30, 31]
    assert answer.note == "budget 31 is more than the image has: all 30 cells were kept"


class TestRefused:
    def test_no_image_and_a_bad_one(self) -> None:
        with pytest.raises(ValueError, match="the list of images is empty"):
            wrapped().ask([], "What?")
        with pytest.raises(ValueError, match="no-such"):
            wrapped().ask([IMAGES[0], "no-such.png"], "What?")
        with pytest.raises(ValueError, match="the image is a list"):
            wrapped().ask([IMAGES], "What?")  # ty: ignore

    def test_cells_of_other_images(self) -> None:
        model = wrapped()
        for cells, message in (
            ([1, 2], "cells of 1 images are named, and the prompt has 2"),
            ([[1, 2], [3], [4]], "cells of 3 images are named, and the prompt has 2"),
            ([[1, 2], []], "cells .* are not of an image of"),
            ([[1, 2], [0.5]], r"cells are \[0.5\]: give their numbers in raster order"),
        ):
            with pytest.raises(ValueError, match=message):
                model.ask(THREE[:2], "Which?", mode="sparse", cells=cells, max_new_tokens=1)  # ty: ignore

    def test_a_template_of_one_image(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = build()
        processor = model.processor
        template = "<|vision_start|><|image_pad|><|vision_end|>{{ messages[0].content[-1].text }}"
        monkeypatch.setattr(processor, "chat_template", template)
        assert model.ask(IMAGES[0], "What?", max_new_tokens=1).kept == 7
        with pytest.raises(ValueError, match="writes 1 of 2 images into a prompt"):
            model.ask(IMAGES, "What?")
