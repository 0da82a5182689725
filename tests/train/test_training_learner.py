"""The learner: what each row teaches, and which parameters each loss reaches."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.model import ARRCOCModel
from arr_coc.seam.batching import compacted_costs
from arr_coc.session import Session
from arr_coc.train.distill import own_answers
from arr_coc.train.learner import ImageLoss, Learner
from arr_coc.train.losses import ESTIMATORS, gated_cells
from arr_coc.train.parts import assembled
from arr_coc.train.rows import ImageRows, Row
from learning import recipe_of
from near import near
from tiny import FAMILIES, WIDTH, picture, tiny

IMAGE = picture(1, (48, 40))
ROWS = (
    Row("What?", ("left",), ((0.0, 0.0, 16.0, 8.0),), "value", 1.0, "first"),
    Row("Where is the red ball now?", ("under it",), ((24.0, 16.0, 48.0, 40.0),), "title", 1.0, "second"),
)
UNBOXED = tuple(replace(row, boxes=None) for row in ROWS)
CLOSE = 1e-5


def learner(family: str = "qwen3_vl", **changes: Any) -> Learner:
    """A learner on a tiny model of its own.

    The layer is nudged off its untrained start, where the mirrored halves of its nets cancel in the gradient
    of the layers before them.
    """
    built = tiny(family)
    layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH))
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
            parameter.add_(0.05 * noise)
    base = copy.deepcopy(built.model) if changes.keys() & {"lora", "top_layers"} else built.model
    model = ARRCOCModel(base, built.processor, layer)
    return Learner(model, recipe_of(**({"stage": "answers", "steps": 1, "budgets": (6,)} | changes)))


def learn(taught: Learner, *rows: Row) -> ImageLoss:
    torch.manual_seed(0)
    return taught.image_loss(ImageRows(IMAGE, rows, "here"))


def figure(taught: Learner, name: str, *rows: Row) -> float:
    (value,) = learn(taught, *rows).figures[name]
    return value


def reached(module: torch.nn.Module) -> set[str]:
    """Names of the parameters that have a gradient other than 0; every gradient is finite."""
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert all(g.isfinite().all() for g in grads.values())
    largest = max((float(g.abs().sum()) for g in grads.values()), default=0.0)
    return {name for name, g in grads.items() if float(g.abs().sum()) > 1e-6 * largest}


def names(module: torch.nn.Module) -> set[str]:
    return {name for name, _ in module.named_parameters()}


class TestRows:
    @pytest.mark.parametrize("rows", [(), tuple(replace(row, weight=0.0) for row in ROWS)])
    def test_an_image_that_teaches_nothing_has_a_loss_of_0_with_a_graph(self, rows: tuple[Row, ...]) -> None:
        taught = learner()
        loss, figures = learn(taught, *rows)
        assert (loss.item(), figures) == (0.0, {})
        loss.backward()
        assert all(p.grad is not None and (p.grad == 0).all() for p in taught.layer.parameters())

    def test_rows_without_boxes_teach_only_by_answers(self) -> None:
        taught = learner()
        loss, figures = learn(taught, *UNBOXED)
        assert set(figures) == {"loss", "answer"}
        assert loss.item() == pytest.approx(figures["answer"][0])
        mixed = learn(taught, ROWS[0], UNBOXED[1]).figures
        assert len(mixed["iou"]) == len(mixed["recall 1/4"]) == 1
        for term in ("relevance", "compress"):
            assert mixed[term] == pytest.approx(learn(taught, ROWS[0]).figures[term], abs=CLOSE)
        assert mixed["answer"] == pytest.approx(figures["answer"], abs=CLOSE)

    def test_boxes_of_nothing_are_known_evidence_of_absence(self) -> None:
        absent = replace(ROWS[0], boxes=())
        figures = learn(learner(), absent).figures
        assert {"relevance", "compress", "answer"} <= set(figures)
        assert figures["iou"] == []

    def test_a_row_of_weight_0_is_left_out(self) -> None:
        taught = learner()
        alone, both = (learn(taught, ROWS[0], *more) for more in ((), (replace(ROWS[1], weight=0.0),)))
        assert alone.figures == both.figures
        assert alone.loss.item() == both.loss.item() != learn(taught, *ROWS).loss.item()

    def test_answers_are_weighted_by_row(self) -> None:
        taught = learner()
        first, second = (figure(taught, "answer", row) for row in ROWS)
        heavy = figure(taught, "answer", replace(ROWS[0], weight=2.0), ROWS[1])
        assert abs(first - second) > 0.05
        assert heavy == pytest.approx((2 * first + second) / 3, abs=CLOSE)

    def test_relevance_is_weighted_by_row(self) -> None:
        """Evidence cells count the same, so the listwise term is weighted by row and evidence."""
        taught = learner()
        even, heavy = (
            figure(taught, "relevance", replace(ROWS[0], weight=weight), ROWS[1]) for weight in (1.0, 50.0)
        )
        alone = figure(taught, "relevance", ROWS[0])
        assert abs(heavy - alone) < 0.2 * abs(even - alone)

    @pytest.mark.slow
    def test_the_models_own_answer_stands_in_for_one_that_is_not_known(self) -> None:
        taught = learner()
        session = Session(taught.model, IMAGE)
        with torch.no_grad():
            one = taught.model.adapter.features(session.inputs("?"))
        (own,) = own_answers(session, one, [ROWS[1].question])
        unanswered, answered = replace(ROWS[1], answers=()), replace(ROWS[1], answers=(own,))
        assert learn(taught, ROWS[0], unanswered).figures == learn(taught, ROWS[0], answered).figures
        assert learn(taught, answered).figures != learn(taught, ROWS[1]).figures

    @pytest.mark.parametrize("target", ["gradient", "attention"])
    def test_what_the_model_used_teaches_without_boxes_or_answers(self, target: str) -> None:
        taught = learner(stage="relevance", target=target)
        loss, figures = learn(taught, *(replace(row, answers=()) for row in UNBOXED))
        assert set(figures) == {"loss", "relevance", "compress", "iou", "recall 1/16", "recall 1/4"}
        loss.backward()
        assert names(taught.layer) - reached(taught.layer) == set()

    def test_a_batch_is_the_mean_of_its_images(self) -> None:
        taught = learner(stage="relevance")
        items = [
            ImageRows(IMAGE, ROWS[:1], "a"),
            ImageRows(picture(2), ROWS[1:], "b"),
            ImageRows(IMAGE, (), ""),
        ]
        loss, figures = taught(items)
        assert loss.item() == pytest.approx(sum(taught.image_loss(item).loss.item() for item in items) / 3)
        assert len(figures["loss"]) == len(figures["iou"]) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_of_many_questions_is_that_of_each_and_of_the_model(family: str) -> None:
    taught = learner(family)
    taught.layer.trained = True  # or the model would look by the language model's own attention
    session, questions = Session(taught.model, IMAGE), [row.question for row in ROWS]
    adapter = taught.model.adapter
    with torch.no_grad():
        one = adapter.features(session.inputs("?"))
        together = taught.relevance(session, one, questions)
        for row, question in enumerate(questions):
            alone = taught.relevance(session, one, [question])
            look = session.look(question, budget=5)
            for name in ("information", "perspectival", "participatory", "balanced", "logits", "tensions"):
                value = getattr(together, name)[row]
                assert near(value, getattr(alone, name)[0])
            for name in ("information", "perspectival", "participatory", "balanced"):
                assert near(getattr(together, name)[row], getattr(look, name)[0])
            assert together.tensions[row].tolist() == pytest.approx(list(look.tensions.values()), abs=CLOSE)
    assert (together.logits[0] - together.logits[1]).abs().max() > 100 * CLOSE


class TestGradients:
    @pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if e != "scores-only"])
    def test_answers_reach_every_scorer(self, estimator: str) -> None:
        taught = learner(estimator=estimator, relevance=0.0, compress=0.0)
        loss, figures = learn(taught, *ROWS)
        assert {"relevance", "compress"}.isdisjoint(figures)
        loss.backward()
        # The last bias moves all cells alike, which does not change what is drawn.
        silent = set() if estimator == "straight-through" else {"balancer.bias"}
        assert names(taught.layer) - reached(taught.layer) == silent
        assert all(p.grad is None for p in taught.model.base.parameters())

    def test_answers_after_a_coarse_view(self) -> None:
        """In mode saccade an answer costs what it costs after the coarse view and the same cells."""
        taught = learner(mode="saccade", relevance=0.0, compress=0.0)
        loss, _ = learn(taught, *ROWS[:1])
        loss.backward()
        assert reached(taught.layer) == names(taught.layer)
        session, model = Session(taught.model, IMAGE), taught.model
        batch = session.batch([ROWS[0].question], ["left"])
        with torch.no_grad():
            whole = model.adapter.features(session.inputs("?"))
            coarse = taught.coarse_view(session, whole.layout.sizes[0])
            logits = taught.relevance(session, whole, [ROWS[0].question]).logits.flatten(1)
            kept = gated_cells(logits, 6, "straight-through").keep[0]
            fine = whole.select(whole.tokens_to_keep([kept]))
            prompt = assembled(model, "saccade", batch, whole.layout, kept, fine, coarse)
            expected = compacted_costs(model.adapter_for("saccade"), prompt)
        assert 0 < coarse.counts[0] < whole.counts[0]
        assert loss.item() == pytest.approx(expected.item(), abs=CLOSE)
        assert loss.item() != pytest.approx(learn(learner(relevance=0.0, compress=0.0), ROWS[0]).loss.item())

    def test_scores_only_passes_nothing_from_answers_to_scores(self) -> None:
        taught = learner(estimator="scores-only", relevance=0.0, compress=0.0, lora=2)
        learn(taught, *ROWS).loss.backward()
        assert reached(taught.layer) == set()
        assert reached(taught.model.loras)  # the answer's loss itself is there

    def test_the_compress_loss_moves_the_balancer_alone(self) -> None:
        taught = learner(stage="relevance", relevance=0.0, compress=1.0)
        wide = picture(3, (96, 96))  # more cells than "auto" always keeps: there is something to learn
        loss, figures = taught.image_loss(ImageRows(wide, ROWS, "here"))
        assert set(figures) >= {"loss", "compress"}
        assert "relevance" not in figures
        loss.backward()
        assert reached(taught.layer)
        assert all(name.startswith("balancer.") for name in reached(taught.layer))

    def test_boxes_teach_everything_but_the_base(self) -> None:
        taught = learner(stage="relevance")
        learn(taught, *ROWS).loss.backward()
        assert reached(taught.layer) == names(taught.layer)
        assert all(p.grad is None and not p.requires_grad for p in taught.model.base.parameters())

    def test_of_the_base_only_what_the_recipe_frees(self) -> None:
        for changes, part in (
            ({"lora": 2}, "loras."),
            ({"top_layers": 1}, "base.model.language_model.layers.1."),
        ):
            taught = learner(**changes)
            learn(taught, *ROWS).loss.backward()
            parts = {n for n in names(taught.model) if n.startswith(("base.", "loras."))}
            unfrozen = {name for name in parts if name.startswith(part)}
            assert unfrozen
            assert unfrozen == {
                n for n, p in taught.model.named_parameters() if n in parts and p.grad is not None
            }
            assert reached(taught.layer) == names(taught.layer)


def test_in_training_a_frozen_base_stays_in_evaluation_mode() -> None:
    taught = learner().train()
    assert taught.layer.training
    assert not any(module.training for module in taught.model.base.modules())


class TestQueryBlind:
    def test_its_scorer_learns_and_ours_does_not(self) -> None:
        taught = learner(allocator="query-blind")
        loss, figures = learn(taught, *ROWS)
        assert "compress" not in figures
        loss.backward()
        assert {"scorer.query.weight", "scorer.key.weight"} <= reached(taught.layer)
        assert reached(taught.model.layer) == set()

    def test_it_does_not_see_the_question(self) -> None:
        taught = learner(allocator="query-blind")
        session = Session(taught.model, IMAGE)
        with torch.no_grad():
            one = taught.model.adapter.features(session.inputs("?"))
            first, second = taught.relevance(session, one, [row.question for row in ROWS]).logits
        assert torch.equal(first, second)
        assert first.std() > 0
