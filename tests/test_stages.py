"""The stages of the stopwatch: each has its own time, and together they are no more than all of it."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
import torch

from arr_coc import ARRCOCModel
from tiny import tiny

DATA = Path(__file__).parent / "saved" / "v0.1"
STAGES = tuple("prompt texture scoring gestalt encode prefill decode other".split())
CHOOSING = ("texture", "scoring")
MODES = ("full", "prune", "sparse", "saccade", "compress", "weight")
QUESTION = "What is the total?"


@pytest.fixture(scope="module")
def trained() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(
        DATA / "base", allocator=DATA / "allocator", dtype=torch.float32, strict=True
    )


@pytest.fixture(scope="module")
def untrained() -> ARRCOCModel:
    built = tiny("qwen3_vl")
    return ARRCOCModel.wrap(built.model, built.processor, budget=9, strict=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["trained", "untrained"])
def test_they_are_parts_of_the_whole(mode: str, kind: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(kind)
    ms = model.ask(DATA / "page.png", QUESTION, mode=mode, max_new_tokens=3).ms
    assert tuple(sorted(ms)) == tuple(sorted((*STAGES, "total")))
    assert all(ms[stage] >= 0 for stage in STAGES)
    assert sum(ms[stage] for stage in STAGES) == pytest.approx(ms["total"])
    assert ms["prompt"] > 0
    assert ms["prefill"] > 0
    assert ms["decode"] > 0


@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade", "weight"])
def test_choosing_takes_time_in_each_of_its_stages(mode: str, trained: ARRCOCModel) -> None:
    ms = trained.ask(DATA / "page.png", QUESTION, mode=mode, max_new_tokens=1).ms
    assert all(ms[stage] > 0 for stage in CHOOSING), ms


@pytest.mark.parametrize("mode", ["full", "compress"])
def test_where_nothing_is_chosen_choosing_takes_none(mode: str, trained: ARRCOCModel) -> None:
    ms = trained.ask(DATA / "page.png", QUESTION, mode=mode, max_new_tokens=1).ms
    assert [ms[stage] for stage in CHOOSING] == [0.0] * 2


@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
def test_a_session_pays_once_for_what_is_of_the_image(mode: str, trained: ARRCOCModel) -> None:
    session = trained.session(DATA / "page.png")
    first = session.ask(QUESTION, mode=mode, max_new_tokens=1).ms
    (looked,) = session.encoded(mode).looked
    made = [*looked.textures.values()]
    second = session.ask("Who is the seller?", mode=mode, max_new_tokens=1).ms
    assert made
    assert all(map(operator.is_, looked.textures.values(), made)), "none is made for another question"
    assert min(first["texture"], second["texture"], second["scoring"]) > 0
