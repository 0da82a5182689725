"""Words for what an answer is read from, in families of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from arr_coc.app.asking import source_words
from arr_coc.model import ARRCOCModel
from tiny import picture, tiny


@pytest.mark.parametrize(
    ("family", "count"), [("qwen3_vl", 108), ("internvl", 54), ("llava", 36), ("gemma3", 36)]
)
def test_source_words(family: str, count: int) -> None:
    built = tiny(family)
    session = ARRCOCModel.wrap(built.model, built.processor).session(picture(1, (96, 72)))

    def words(budget: int | str | float, mode: str, **choice: Any) -> str:
        return source_words(session.plan("What?", budget=budget, mode=mode, **choice))

    assert words(7, "prune") == "7 tokens"
    assert words(0.5, "prune") == f"{count // 2} tokens"
    assert words("auto", "sparse") == f"{session.look('What?', budget='auto', mode='sparse').kept} tokens"
    few = {"qwen3_vl": "108 tokens", "llava": "a coarse view and 7 tokens"}  # a small image is read whole
    assert words(7, "saccade") == few.get(family, "7 tokens")
    if family == "llava":  # of the cells of crops
        assert words(0.5, "saccade") == "a coarse view and 162 tokens"
    if family == "qwen3_vl":
        assert words(40, "sparse", magnify=2) == "40 tokens"
    assert words(7, "full") != "7 tokens"
