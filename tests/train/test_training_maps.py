"""Relevance maps as what teaches and as what is measured: rows, targets, kept sets, an adaptation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from arr_coc.train.learner import Learner
from arr_coc.train.losses import relevance_loss
from arr_coc.train.recipe import Recipe, make_recipe
from arr_coc.train.rows import ImageRows, Row, open_rows
from arr_coc_lab.adaptation import Adaptation, adapt, survey
from arr_coc_lab.evaluate.questions import data_questions
from arr_coc_lab.evaluate.view import View
from tiny import WIDTH, picture, tiny

MAP = np.array([[1.0, 0.4], [0.0, 0.6]])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four pictures of 6 x 5 cells with two questions each, one with a map and one without."""
    np.savez(tmp_path / "a.npz", map=MAP)
    lines = []
    for seed in range(4):
        picture(seed, (48, 40)).save(tmp_path / f"{seed}.png")
        for question, more in (("Left?", {"map": "a.npz"}), ("Right?", {})):
            lines.append({"image": f"{seed}.png", "question": question, "answer": "yes"} | more)
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def learner(**changes: object) -> Learner:
    built = tiny("qwen3_vl")
    model = ARRCOCModel(built.model, built.processor, ARRCOCLayer(ARRCOCConfig(dim=WIDTH)))
    return Learner(model, make_recipe(**({"stage": "relevance", "steps": 1, "compress": 0.0} | changes)))


def recipe(data: Path, **changes: object) -> Recipe:
    return make_recipe(**({"stage": "relevance", "steps": 4, "data": (f"jsonl:{data}",)} | changes))


@pytest.mark.parametrize("target", ["boxes", "maps"])
def test_questions_with_a_map_are_learned_from(data: Path, target: str) -> None:
    rows = open_rows(recipe(data, target=target))
    assert {row.question for item in (rows[i] for i in range(4)) for row in item.rows} == {"Left?"}
    assert rows[0].rows[0].marked
    assert rows[0].rows[0].map is not None
    assert rows[0].rows[0].map.tolist() == pytest.approx(MAP)


def test_a_map_is_evidence_above_half_and_a_soft_target_with_its_own_values() -> None:
    row = Row("Left?", ("yes",), None, "", 1.0, "here", torch.from_numpy(MAP).float())
    item = ImageRows(picture(1, (64, 64)), (row,), "here", number=0)
    session = Session(learner().model, item.image)
    hard, labelled = learner()._target(session, learner()._encoded(session), None, item)
    soft, _ = learner(target="maps")._target(session, learner()._encoded(session), None, item)
    assert labelled.tolist() == [True]
    assert hard.dtype == torch.bool
    assert soft.dtype == torch.float32
    h, w = hard.shape[1:]
    assert torch.equal(soft[0] > 0.5, hard[0])
    corners = soft[0, [0, 0, h - 1, h - 1], [0, w - 1, 0, w - 1]]
    assert corners.tolist() == pytest.approx(MAP.flatten())


def test_the_loss_is_that_of_the_map() -> None:
    row = Row("Left?", ("yes",), None, "", 1.0, "here", torch.from_numpy(MAP).float())
    item = ImageRows(picture(1, (64, 64)), (row,), "here", number=0)
    taught = learner(target="maps")
    loss = taught.image_loss(item).loss
    session = Session(taught.model, item.image)
    encoded = taught._encoded(session)
    logits = taught.relevance(session, encoded, ["Left?"]).logits
    target, _ = taught._target(session, encoded, None, item)
    assert torch.equal(loss, relevance_loss(logits, target, torch.ones(1)))
    moved = replace(row, map=torch.from_numpy(MAP[::-1].copy()).float())
    assert taught.image_loss(replace(item, rows=(moved,))).loss != loss


def test_boxes_add_to_a_map() -> None:
    row = Row("Left?", (), ((0.0, 32.0, 32.0, 64.0),), "", 1.0, "here", torch.from_numpy(MAP).float())
    assert row.evidence((2, 2), (64, 64)).tolist() == [[True, False], [True, True]]
    assert row.soft_map((2, 2), (64, 64)).tolist() == pytest.approx(np.maximum(MAP, [[0, 0], [1, 0]]))


def test_maps_as_target_need_some(data: Path) -> None:
    lines = (data / "questions.jsonl").read_text().replace(', "map": "a.npz"', ', "boxes": [[0, 0, 9, 9]]')
    (data / "questions.jsonl").write_text(lines)
    with pytest.raises(ValueError, match="has no maps, but target is 'maps': use target=gradient"):
        open_rows(recipe(data, target="maps"))


def test_recall_is_measured_on_maps(data: Path) -> None:
    source = data_questions(f"jsonl:{data}")[1][0]
    built = tiny("qwen3_vl")
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
    session = Session(model, picture(0, (48, 40)))
    prompts = [session.inputs(query.text) for query in source.queries]
    view = View(model, source, prompts, model.adapter.features(prompts[0]), size=(48, 40))
    evidence = view.evidence(0)
    assert evidence is not None
    assert bool(evidence[0, 0])
    assert not bool(evidence[-1, 0])
    assert view.evidence(1) is None
    (only,) = view.possible_evidence()
    assert torch.equal(only, evidence)


@pytest.mark.slow
def test_an_adaptation_learns_where_to_look_from_maps(base: Path, data: Path, tmp_path: Path) -> None:
    assert survey(f"jsonl:{data}", None).boxed
    settings = Adaptation(str(base), str(data), steps=1, budgets=(6,), recipes=("relevance",))
    result = adapt(settings, tmp_path / "out", progress=False)
    assert list(result["parts"]) == ["relevance"]
    assert {"arr-coc@6", "ink density@6", "oracle@6"} <= result["gain"]["recall"].keys()
