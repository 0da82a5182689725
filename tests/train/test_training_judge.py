"""The reward of REINFORCE as the metric of sampled answers."""

from __future__ import annotations

import pytest
import torch

from arr_coc.data.metrics import f1
from arr_coc.model import ARRCOCModel
from arr_coc.train import distill
from arr_coc.train.distill import Judge
from arr_coc.train.learner import Learner
from arr_coc.train.recipe import make_recipe
from arr_coc.train.rows import ImageRows, Row
from tiny import picture, tiny

ITEM = ImageRows(
    picture(1, (48, 40)),
    (Row("What?", ("left",), None, "", 1.0, "a"), Row("Where is it?", (), None, "", 1.0, "b")),
    "here",
    number=0,
)


@pytest.fixture
def learner() -> Learner:
    built = tiny("qwen3_vl")
    recipe = make_recipe(
        stage="answers",
        steps=1,
        estimator="reinforce",
        reward="f1",
        relevance=0.0,
        compress=0.0,
        budgets=(6,),
    )
    return Learner(ARRCOCModel(built.model, built.processor, strict=True), recipe)


def test_a_lucky_draw_becomes_likelier_and_an_unlucky_one_less_so(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    grads = {}
    for cost in (0.0, 1.0):  # of the sampled answers; the greedy ones cost a half
        monkeypatch.setattr(
            Judge,
            "costs",
            lambda self, keep, sampled, draws=None, c=cost: torch.full((2,), c if sampled else 0.5),
        )
        learner.zero_grad()
        learner.image_loss(ITEM).loss.backward()
        grads[cost] = [p.grad.clone() for p in learner.layer.parameters() if p.grad is not None]
    assert any(bool(g.any()) for g in grads[0.0])
    assert all(torch.allclose(a, -b, atol=1e-7) for a, b in zip(grads[0.0], grads[1.0], strict=True))


@torch.no_grad()
def test_costs_are_those_of_the_answers(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    session = learner.model.session(ITEM.image)
    encoded = learner.model.adapter.features(session.inputs("?"))
    every = torch.arange(30).expand(2, -1)
    monkeypatch.setattr(distill, "LONGEST", 4)
    one = Judge(session, encoded, ITEM.rows, [("never",), ("never",)], "exact_match")
    assert one.costs(every, sampled=False).tolist() == [1, 1]
    drawn = [one.costs(every, True, torch.Generator().manual_seed(3)).tolist() for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_f1_counts_words() -> None:
    assert f1("red ball", ["ball"]) == pytest.approx(2 / 3)
    assert f1("the ball", ["nothing", "Ball"]) == 1
    assert f1("", ["ball"]) == 0


def test_a_reward_that_nothing_would_read_is_refused() -> None:
    with pytest.raises(ValueError, match="reward is 'anls': use estimator=reinforce"):
        make_recipe(stage="answers", steps=1, reward="anls")
