"""What a call asks for: the mode of one that names none, cells that a caller names, and what runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc.choose.keep_list import KeepList
from arr_coc.model import ARRCOCModel
from arr_coc.modes.request import default_mode, mode_for_question
from arr_coc.seam import GESTALT
from eyes import IMAGES, ROWS, build, inputs_of, prepared_for, wrapped
from tiny import FAMILIES, QWEN_FAMILIES, tiny

pytestmark = pytest.mark.usefixtures("small_constants")
IMAGE = IMAGES[1]  # 45 cells: the coarse view has 8


@pytest.mark.parametrize(
    ("family", "kind"),
    [(family, "stem") for family in FAMILIES] + [("qwen3_vl", "gaze"), ("qwen2_5_vl", "covering")],
)
def test_it_is_what_saves_time(family: str, kind: str) -> None:
    """Before the encoder only where a stem was learned for it and the family's tower can."""
    model = build(family, kind)
    expected = "sparse" if kind == "stem" and family in QWEN_FAMILIES else "prune"
    assert default_mode(model.adapter, model.stem).name == expected
    assert (model.mode, model.default_mode) == (expected, expected)
    answer = model.ask(IMAGES[1], "What?", max_new_tokens=1)
    assert (answer.mode, answer.note, answer.kept) == (expected, None, 7)
    assert model.look(IMAGES[1], "What?").kept == 7


@pytest.mark.slow
def test_the_bundled_model_chooses_before_its_encoder() -> None:
    model = ARRCOCModel.from_pretrained()
    assert model.mode == "sparse"
    assert ARRCOCModel.wrap(model).mode == "sparse"
    assert ARRCOCModel.wrap(model.base, model.processor).mode == "prune"  # nothing is learned there


def test_what_is_set_stays_until_none_restores_the_default() -> None:
    model = build(mode="prune")
    assert (model.mode, model.default_mode) == ("prune", "sparse")
    assert model.ask(IMAGES[1], "What?", max_new_tokens=1).mode == "prune"
    model.mode = None
    assert model.mode == "sparse"
    model.mode = "weight"
    with model.full():
        assert model.mode == "full"
        model.mode = None
        assert model.mode == "full"
    assert model.mode == "sparse"


def test_what_is_no_mode_is_refused_and_changes_nothing() -> None:
    model = build(mode="compress")
    with pytest.raises(ValueError, match="mode 'fast' is unknown"):
        model.mode = "fast"
    assert model.mode == "compress"
    built = tiny("qwen3_vl")
    with pytest.raises(ValueError, match="mode '' is unknown"):
        ARRCOCModel(built.model, built.processor, mode="")


def lines(count: int) -> Image.Image:
    """A white picture with lines of hatching in place of print."""
    page = np.full((24 * count, 64, 3), 255, np.uint8)
    for line in range(count):
        page[24 * line + 6 : 24 * line + 16, 6:58:3] = 0
    return Image.fromarray(page)


@torch.no_grad()
def test_cells_that_are_named_are_kept_and_no_others() -> None:
    model, inputs, cells = wrapped(), inputs_of(rows=ROWS[1:]), torch.tensor([3, 4, 40])
    for mode in ("prune", "sparse", "saccade"):
        prepared = prepared_for(model, inputs, mode, keep=(cells,))
        assert torch.equal(prepared.allocations[0].keep, cells)
        assert int((prepared.compacted.columns == GESTALT).sum()) == (8 if mode == "saccade" else 0)
    for bad, words in (
        ({"keep": (torch.tensor([45]),)}, "not of an image of 45"),
        ({"keep": (cells, cells)}, "cells of 2 images are named, and the prompt has 1"),
        ({"keep": (cells,), "mode": "full"}, "can't be named for mode 'full'"),
    ):
        with pytest.raises(ValueError, match=words):
            prepared_for(model, inputs, **({"mode": "sparse"} | bad))


class TestTranscription:
    ALL = ("Transcribe this page.", "Read the page aloud.", "transcribe everything", "Extract all text.")
    PART = ("Read the note.", "What does the small text say?", "Describe the image.", "Read the total field.")

    def test_questions_for_all_that_is_printed_are_told_from_others(self) -> None:
        chooser = wrapped("qwen3_vl", "guide").chooser
        for question in self.ALL:
            assert mode_for_question(chooser, question, None, True)[0] == "full", question
        for question in self.PART:
            assert mode_for_question(chooser, question, None, True) == (None, None), question

    def test_a_mode_that_was_named_for_the_model_is_not_replaced(self) -> None:
        assert build(kind="guide", mode="prune").ask(IMAGE, "Transcribe this page.").mode == "prune"

    def test_all_tokens_are_read_and_the_answer_says_so(self) -> None:
        answer = build(kind="guide").ask(IMAGE, "Transcribe this page.")
        assert (answer.mode, answer.kept) == ("full", 45)
        assert "all tokens were read" in answer.note

    def test_who_names_a_budget_gets_it_and_a_warning(self) -> None:
        answer = build(kind="guide").ask(IMAGE, "Transcribe this page.", budget=7)
        assert answer.kept == 7
        assert "only a part was read" in answer.note

    def test_a_walk_reads_every_block_within_its_cells(self) -> None:
        model = build(kind="guide")
        session = model.session(lines(3))
        walk = session.transcribe(budget=6, max_new_tokens=3)
        assert walk.note is None
        model.base_name = "bundled"
        note = session.transcribe(budget=6, max_new_tokens=1).note
        assert note is not None
        assert "never taught to transcribe" in note
        assert len(walk.answers) == len(walk.blocks) == 3
        for answer, block in zip(walk.answers, walk.blocks, strict=True):
            assert torch.equal(answer.allocation.keep, block.cells)
        alone = session.ask(
            "Transcribe the text.", mode="sparse", cells=walk.blocks[0].cells, max_new_tokens=3
        )
        assert walk.text.split("\n")[0] == walk.answers[0].text
        assert len(alone.allocation.keep) == len(walk.blocks[0].cells)

    def test_what_is_said_beside_named_cells(self) -> None:
        session = build(kind="guide").session(IMAGE)
        plain = session.ask("What?", mode="saccade", cells=[30, 20], max_new_tokens=1)
        assert (plain.kept, plain.note) == (2, None)
        other = session.ask("What?", mode="prune", cells=[30, 20], budget=64, max_new_tokens=1)
        assert (other.kept, other.note) == (2, "budget had no effect: the cells to keep are named")

    def test_a_session_that_keeps_its_image_reads_named_cells(self) -> None:
        session = build(kind="guide").session(IMAGE, keep_image_after=1)
        assert session.ask("What?", max_new_tokens=1).mode != "full"
        assert session.ask("What?", max_new_tokens=1).mode == "full"
        named = session.ask("What?", cells=[3, 4], max_new_tokens=1)
        assert (named.kept, named.mode) == (2, session.model.mode)

    @pytest.mark.parametrize("cells", ["mask", [1.9, 2.9], [None], {1: 2}])
    def test_cells_are_numbers(self, cells: Any) -> None:
        session = build(kind="guide").session(IMAGE)
        mask = session.look("What?", budget=4).mask()
        with pytest.raises(ValueError, match=r"cells are [\s\S]* give their numbers in raster order"):
            session.ask("What?", mode="sparse", cells=mask if cells == "mask" else cells)

    def test_a_keep_list_or_its_file_names_cells(self, tmp_path: Path) -> None:
        session = build(kind="guide").session(IMAGE)
        allocation = session.plan("What?", mode="prune", budget=4).allocations[0]
        one = KeepList.of(allocation, "What?", IMAGE)
        one.save(tmp_path / "keep.json")
        numbers = session.plan("What?", mode="prune", cells=allocation.keep)
        for cells in (one, tmp_path / "keep.json", str(tmp_path / "keep.json"), [one]):
            named = session.plan("What?", mode="prune", cells=cells)
            assert (
                named.allocations[0].keep.tolist() == list(one.keep) == numbers.allocations[0].keep.tolist()
            )
        with pytest.raises(ValueError, match=r"keep list '.*none.json' can't be read"):
            session.plan("What?", mode="prune", cells=str(tmp_path / "none.json"))
        grid = (1, one.grid[2], one.grid[1])
        turned = replace(one, grid=grid)
        with pytest.raises(
            ValueError, match=rf"of a grid of \[{', '.join(map(str, grid))}\] .T, H, W., and the"
        ):
            session.plan("What?", mode="prune", cells=turned)
        finer = replace(one, grid=(1, 40, 40), keep=tuple(range(1600)))  # as of a model with smaller cells
        with pytest.raises(ValueError, match=r"the keep list is of a grid of \[1, 40, 40\]"):
            session.plan("What?", mode="prune", cells=finer)
        with pytest.raises(ValueError, match=r"are not of an image of 45: name 0 to 44") as error:
            session.plan("What?", mode="prune", cells=range(1600))
        assert len(str(error.value)) < 200

    def test_a_family_whose_cells_have_no_names_yet(self) -> None:
        session = build("llava_next", kind="guide").session(IMAGE)
        for ask in (session.transcribe, lambda: session.ask("What?", mode="prune", cells=[0])):
            with pytest.raises(ValueError, match="cells of llava_next can't be named before all are encoded"):
                ask()

    def test_one_image_alone(self) -> None:
        with pytest.raises(ValueError, match="reads one image"):
            build(kind="guide").session(list(IMAGES)).transcribe()
