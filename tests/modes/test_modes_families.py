"""Every mode on every family, with nothing trained: the guide chooses, and what can't be done is said."""

from __future__ import annotations

import pytest
import torch

from arr_coc import ARRCOCModel
from arr_coc.modes import MODES
from tiny import EVERY, apart, picture, prompts, tiny

QUESTION = "Where is the red ball?"


@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY)
def test_every_mode(family: str) -> None:
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True, budget=9)
    session = model.session(picture(1, (96, 72)))
    total = sum(model.adapter.features(session.inputs(QUESTION)).counts)
    for mode, definition in MODES.items():
        answer = session.ask(QUESTION, mode=mode, max_new_tokens=2)
        adapter, early = model.adapter, definition.before_encoder
        crops = adapter.encodes == "crops" and definition.gestalt
        alone = adapter.encodes == "cells" or crops or not early
        ran = mode if alone else "sparse" if adapter.encodes == "tiles" else definition.instead
        assert (answer.mode, answer.fallback) == (ran, False)
        assert ("ran as" in (answer.note or "")) == (ran != mode)
        if ran in ("prune", "sparse"):
            assert answer.kept == 9
            assert answer.total <= total


@pytest.mark.parametrize("family", apart(EVERY))
def test_pictures_of_what_was_chosen(family: str) -> None:
    built = tiny(family)
    answer = ARRCOCModel.wrap(built.model, built.processor, strict=True).ask(
        picture(1, (96, 72)), QUESTION, budget=9, max_new_tokens=2
    )
    (allocation,) = answer.allocations
    t, height, width = allocation.grid
    assert (t, int(allocation.keep.numel())) == (1, 9)
    assert allocation.balanced.numel() == height * width
    shown_width, shown_height = answer.show().size
    assert shown_width > shown_height
    assert answer.couplings  # the guide was asked


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("family", apart(EVERY))
def test_generate_gives_back_the_whole_prompt(family: str) -> None:
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True, budget=9)
    rows = [(QUESTION, [picture(1, (96, 72))]), ("What?", [picture(2, (72, 96))])]
    inputs = prompts(built, rows)
    ids = model.generate(**inputs, max_new_tokens=3, num_beams=2)
    assert torch.equal(ids[:, : inputs["input_ids"].shape[1]], inputs["input_ids"])
    sampled = model.generate(**inputs, max_new_tokens=2, do_sample=True, num_return_sequences=2)
    assert len(sampled) == 4
