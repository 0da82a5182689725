"""The mode of calls that name none: what saves time in each family, what an owner sets, and the way back."""

from __future__ import annotations

import pytest

from arr_coc.model import ARRCOCModel
from arr_coc.modes.request import default_mode
from eyes import IMAGES, build
from tiny import FAMILIES, QWEN_FAMILIES, tiny


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["gaze", "covering", "stem"])
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
