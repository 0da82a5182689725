"""Notes of an answer: budgets that were cut, arguments without effect, and how several are joined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arr_coc import ARRCOCModel
from arr_coc.choose.stem import FOREIGN
from arr_coc.modes.notes import joined
from arr_coc.store.checkpoint import BUNDLED_CELLS
from arr_coc_lab.world import draw_page
from each import each
from eyes import IMAGES, build, wrapped
from tiny import QWEN_FAMILIES

pytestmark = pytest.mark.usefixtures("small_constants")


def note(mode: str, family: str = "qwen3_vl", **more: Any) -> str | None:
    return wrapped(family).ask(IMAGES[1], "What?", mode=mode, max_new_tokens=1, **more).note


def test_joined() -> None:
    assert joined() is joined(None, "", None) is None
    assert joined(None, "one") == "one"
    assert joined("one", None, "two") == "one; two"


class TestBudgets:
    @pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
    def test_of_a_small_image_all_is_kept_and_said(self, mode: str) -> None:
        answer = wrapped().ask(IMAGES[1], "What?", mode=mode, budget=400, max_new_tokens=1)
        assert (answer.kept, answer.total, answer.budget, answer.fallback) == (45, 45, 400, False)
        assert answer.note == "budget 400 is more than the image has: all 45 cells were kept"
        assert wrapped().look(IMAGES[1], "What?", mode=mode, budget=400).kept == 45
        assert note(mode, budget=45) is None
        assert note(mode, budget=1.0) is None

    def test_a_models_own(self) -> None:
        answer = build(budget=46).ask(IMAGES[1], "What?", max_new_tokens=1)
        assert answer.note == "budget 46 is more than the image has: all 45 cells were kept"
        assert build(budget=273).ask(IMAGES[1], "What?", max_new_tokens=1).note is None

    @pytest.mark.parametrize("mode", ["prune", "sparse", "saccade", "full", "compress", "weight"])
    @each("budget", [0, [3], "many"])
    def test_what_is_none_is_refused_in_every_mode(self, mode: str, budget: Any) -> None:
        with pytest.raises(ValueError, match="budget"):
            note(mode, budget=budget)


class TestArguments:
    @pytest.mark.parametrize("mode", ["full", "weight", "compress"])
    def test_a_budget_where_nothing_is_chosen(self, mode: str) -> None:
        assert note(mode, budget=7) == f"budget had no effect in mode {mode}"
        assert note(mode) is None

    @pytest.mark.parametrize("mode", ["full", "prune", "sparse", "weight"])
    def test_a_gestalt_where_none_is_read(self, mode: str) -> None:
        assert note(mode, gestalt="pool4") == f"gestalt had no effect in mode {mode}"

    def test_both(self) -> None:
        assert note("full", gestalt="pool4", budget=7) == "budget and gestalt had no effect in mode full"

    @pytest.mark.parametrize("family", QWEN_FAMILIES)
    def test_what_has_an_effect_is_not_mentioned(self, family: str) -> None:
        assert note("saccade", family, gestalt="pool4", budget=7) is None
        assert note("compress", family, gestalt="pool4") is None

    def test_beside_another_note(self) -> None:
        text = note("saccade", "llava_next", gestalt="pool4", budget=400)
        assert text is not None
        assert text.startswith("saccade ran as prune: ")
        assert "; gestalt had no effect in mode prune; budget 400 is more" in text


@pytest.fixture(scope="module")
def bundled() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(device="cpu")


@pytest.fixture(scope="module")
def large() -> Image.Image:
    """A drawn page of 1,440 cells, which the bundled model knows but for its size."""
    return draw_page(743, (1280, 1152), "test").image


class TestSizes:
    @pytest.mark.slow
    @pytest.mark.parametrize("mode", ["sparse", "prune"])
    def test_more_cells_than_the_bundled_model_was_taught(
        self, bundled: ARRCOCModel, large: Image.Image, mode: str
    ) -> None:
        text = bundled.ask(large, "What is the title?", mode=mode, max_new_tokens=1).note
        assert text is not None
        assert "taught on pictures of at most 1,056 cells and this one has 1,440" in text

    @pytest.mark.slow
    def test_as_many_are_not_mentioned(self, bundled: ARRCOCModel) -> None:
        page = draw_page(744, (33 * 32, 32 * 32), "test").image
        answer = bundled.ask(page, "What is the title?", max_new_tokens=1)
        assert (answer.total, answer.note) == (BUNDLED_CELLS, None)

    @pytest.mark.slow
    def test_coarse_views_were_taught_on_larger_ones(self, bundled: ARRCOCModel, large: Image.Image) -> None:
        assert "coarse" in bundled.loras.kinds
        assert "at most" not in (bundled.ask(large, "Title?", mode="saccade", max_new_tokens=1).note or "")
        bare = ARRCOCModel(bundled.base, bundled.processor, bundled.layer, base_name="bundled")
        note = bare.ask(large, "What is the title?", mode="saccade", max_new_tokens=1).note
        assert "taught on pictures of at most 1,056 cells" in (note or "")
        assert bare.ask(large, "Title?", mode="compress", max_new_tokens=1).note is None

    @pytest.mark.slow
    def test_of_several_those_are_counted(self, bundled: ARRCOCModel, large: Image.Image) -> None:
        page = draw_page(745, (320, 320), "test").image
        note = bundled.ask([page, large], "What is the title?", max_new_tokens=1).note
        assert "one has 1,440, so" in (note or "")

    @pytest.mark.slow
    def test_of_a_foreign_picture_there_is_one_warning(self, bundled: ARRCOCModel) -> None:
        image = draw_page(743, (640, 576), "test").image
        enlarged = image.resize((2 * image.width, 2 * image.height))
        answer = bundled.ask(enlarged, "What is the title?", max_new_tokens=1)
        assert (answer.total, answer.foreign, answer.note) == (1440, True, FOREIGN)

    @pytest.mark.slow
    def test_of_another_model_nobody_knows(self, bundled: ARRCOCModel, large: Image.Image) -> None:
        other = ARRCOCModel(bundled.base, bundled.processor, bundled.layer, base_name="another")
        assert other.ask(large, "What is the title?", max_new_tokens=1).note is None

    def test_the_limit_is_that_of_the_stage_that_teaches_answers(self) -> None:
        script = (Path(__file__).parents[2] / "runs" / "bundled.sh").read_text(encoding="utf-8")
        sizes = re.search(r"making\.together.*?--sizes ([\d,]+)", script, re.DOTALL)
        assert sizes is not None
        side = max(map(int, sizes[1].split(","))) / 32
        stretches = np.exp(np.linspace(-0.25, 0.25, 100_001))  # as `making.together.AskedPages` draws them
        assert (np.round(side * stretches) * np.round(side / stretches)).max() == BUNDLED_CELLS
