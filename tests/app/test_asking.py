"""Words for what an answer is read from, in families of every kind."""

from __future__ import annotations

import pytest

from arr_coc.app.asking import source_words
from arr_coc.choose.budget import parse_budget
from arr_coc.model import ARRCOCModel
from tiny import picture, tiny


@pytest.mark.parametrize(
    ("family", "count"), [("qwen3_vl", 108), ("internvl", 54), ("llava", 36), ("gemma3", 36)]
)
def test_source_words(family: str, count: int) -> None:
    built = tiny(family)
    session = ARRCOCModel.wrap(built.model, built.processor).session(picture(1, (96, 72)))
    inputs = session.inputs("What?")

    def words(budget: int | str | float, mode: str) -> str:
        return source_words(session, inputs, parse_budget(budget), mode)

    assert words(7, "prune") == "7 tokens"
    assert words(0.5, "prune") == f"{count // 2} tokens"
    assert words("auto", "sparse") == "the tokens chosen"
    coarse = "a coarse view and " if family in ("qwen3_vl", "llava") else ""
    assert words(7, "saccade") == f"{coarse}7 tokens"
    if family == "llava":  # of the cells of crops
        assert words(0.5, "saccade") == f"{coarse}162 tokens"
    assert words(7, "full") != "7 tokens"
