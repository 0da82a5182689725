"""Self-distillation: costs, gradients and attention are those of the stock model on the whole prompt."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.data.evidence import evidence_cells
from arr_coc.model import ARRCOCModel
from arr_coc.seam import VisualFeatures
from arr_coc.seam.batching import answer_costs
from arr_coc.session import Session
from arr_coc.train.distill import all_cells, attention_map, gradient_map, own_answers
from arr_coc_lab.world import draw_page
from near import near
from tiny import FAMILIES, MASKABLE, picture, some_cells, tiny

IMAGE = picture(1, (48, 40))
QUESTIONS = ["What?", "Where is the red ball now?"]
ANSWERS = ["a longer answer", "left"]
TOLERANCE = 2e-5  # nats; measured 1.4e-6
LIFT = 2.0  # of the evidence over chance; measured 4.9 (gradient) and 5.9 (attention) on six questions


def set_up(family: str) -> tuple[ARRCOCModel, Session, VisualFeatures]:
    """A model, a session on the image, and the image encoded once."""
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor)
    session = Session(model, IMAGE)
    with torch.no_grad():
        return model, session, model.adapter.features(session.inputs("?"))


def with_pixels(session: Session, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What the stock model is given for a batch about the image: every row has the pixels."""
    pixels = session.inputs("?")["pixel_values"]
    rows = len(inputs["input_ids"])
    return {n: v for n, v in inputs.items() if n != "labels"} | {
        "pixel_values": pixels.repeat(rows, *[1] * (pixels.ndim - 1))
    }


def direct_costs(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of each row's labels, row by row and token by token."""
    costs = []
    for row, wanted in zip(logits.log_softmax(-1), labels, strict=True):
        terms = [-row[at - 1, wanted[at]] for at in range(1, len(wanted)) if wanted[at] != -100]
        costs.append(torch.stack(terms).mean())
    return torch.stack(costs)


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    def test_costs_of_all_cells_are_the_stock_models(self, family: str) -> None:
        model, session, one = set_up(family)
        inputs, features = session.batch(QUESTIONS, ANSWERS), one.repeat(2)
        with torch.no_grad():
            costs = answer_costs(model.adapter_for("prune"), inputs, features, all_cells(features))
            logits = model.base(**with_pixels(session, inputs)).logits
            assert costs.shape == (2,)
            assert near(costs, direct_costs(logits, inputs["labels"]))
            for row in range(2):  # and not what stands beside it
                alone = session.batch(QUESTIONS[row : row + 1], ANSWERS[row : row + 1])
                cost = answer_costs(model.adapter_for("prune"), alone, one, all_cells(one))
                assert abs(cost[0] - costs[row]) < TOLERANCE

    def test_costs_of_some_cells_are_those_with_the_others_masked(self, family: str) -> None:
        if family not in MASKABLE:
            pytest.skip("recurrent layers: no mask hides a token from a running state")
        model, session, one = set_up(family)
        inputs, features = session.batch(QUESTIONS, ANSWERS), one.repeat(2)
        keep = [some_cells(len(cells), 6 + row, seed=row) for row, cells in enumerate(features.cells)]
        mask = inputs["attention_mask"].clone()
        columns = model.adapter.columns(inputs["input_ids"], features.counts)
        for (row, at), cells, kept in zip(columns, features.cells, keep, strict=True):
            mask[row, at[cells]] = 0
            mask[row, at[cells[kept]]] = 1
        hidden = {"attention_mask": mask, "position_ids": model.adapter.positions(inputs)}
        with torch.no_grad():
            costs = answer_costs(model.adapter_for("prune"), inputs, features, keep)
            logits = model.base(**(with_pixels(session, inputs) | hidden)).logits
            whole = answer_costs(model.adapter_for("prune"), inputs, features, all_cells(features))
        assert near(costs, direct_costs(logits, inputs["labels"]))
        assert (costs - whole).abs().min() > 100 * TOLERANCE

    def test_gradient_map_is_autograd_through_the_stock_model(
        self, family: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, session, one = set_up(family)
        inputs, features = session.batch(QUESTIONS, ANSWERS), one.repeat(2)
        maps = gradient_map(model, inputs, features)
        assert maps.shape == (2, len(one.cells[0]))
        assert (maps.amax(1) == 1).all()
        assert (maps >= 0).all()

        added: list[list[Tensor]] = []  # zeros, added to each level of each image on its way into the model
        encode = model.base.model.get_image_features

        def moved(*args: Any, **kwargs: Any) -> Any:
            output = encode(*args, **kwargs)
            levels = [list(output.pooler_output), *(getattr(output, "deepstack_features", None) or [])]
            added.extend([torch.zeros_like(t, requires_grad=True) for t in level] for level in levels)
            sums = [[t + z for t, z in zip(*pair, strict=True)] for pair in zip(levels, added, strict=True)]
            output.pooler_output = sums[0]
            if sums[1:]:
                output.deepstack_features = sums[1:]
            return output

        monkeypatch.setattr(model.base.model, "get_image_features", moved)
        logits = model.base(**with_pixels(session, inputs)).logits
        direct_costs(logits, inputs["labels"]).sum().backward()
        assert len(added) == 1 + len(one.levels)
        for row, cells in enumerate(features.cells):
            lengths = torch.cat([level[row].grad for level in added], 1).norm(dim=1)[cells]
            assert (maps[row] - lengths / lengths.max()).abs().max() < 1e-3

    def test_attention_map_is_the_most_of_eager_attention(self, family: str) -> None:
        model, session, one = set_up(family)
        inputs, features = session.batch(QUESTIONS, ANSWERS), one.repeat(2)
        maps = attention_map(model, inputs, features)
        eager = copy.deepcopy(model.base)
        eager.set_attn_implementation("eager")
        with torch.no_grad():
            layers = eager(**with_pixels(session, inputs), output_attentions=True).attentions
        rows = [layer.mean(1) for layer in layers if layer is not None]  # (B, S, S), over heads
        columns = model.adapter.columns(inputs["input_ids"], features.counts)
        for (row, at), cells in zip(columns, features.cells, strict=True):
            says = (inputs["labels"][row] != -100).nonzero().flatten() - 1
            most = torch.stack([layer[row, says].sum(0) for layer in rows]).amax(0)[at[cells]]
            assert near(maps[row], most / most.max())
            assert maps[row].max() == 1

    def test_own_answers_are_those_of_the_stock_model(self, family: str) -> None:
        model, session, one = set_up(family)
        answers = own_answers(session, one, QUESTIONS, longest=6)
        for question, text in zip(QUESTIONS, answers, strict=True):
            inputs = session.inputs(question)
            ids = model.base.generate(**inputs, do_sample=False, max_new_tokens=6)
            new = ids[0, inputs["input_ids"].shape[1] :]
            assert text == model.processor.tokenizer.decode(new, skip_special_tokens=True).strip()


def test_a_model_that_reads_nothing_of_the_image_has_a_gradient_of_zero() -> None:
    built = tiny("qwen3_vl")
    blind = copy.deepcopy(built.model)
    with torch.no_grad():
        for layer in blind.model.language_model.layers:
            layer.self_attn.o_proj.weight.zero_()
    model = ARRCOCModel.wrap(blind, built.processor)
    session = Session(model, IMAGE)
    with torch.no_grad():
        one = model.adapter.features(session.inputs("?"))
    inputs = session.batch(QUESTIONS, ANSWERS)
    assert (gradient_map(model, inputs, one.repeat(2)) == 0).all()
    assert (attention_map(model, inputs, one.repeat(2)).amax(1) == 1).all()  # it looks, and uses nothing


def test_maps_need_no_gradient_and_leave_none() -> None:
    model, session, one = set_up("qwen3_vl")
    inputs, features = session.batch(QUESTIONS, ANSWERS), one.repeat(2)
    with torch.no_grad():
        maps = [gradient_map(model, inputs, features), attention_map(model, inputs, features)]
    assert not any(m.requires_grad for m in maps)
    assert not any(t.requires_grad for t in features.tokens)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.slow
def test_the_evidence_of_drawn_pages_gets_more_than_chance() -> None:
    """The bundled model uses the cells in which titles and values are written, and looks at them."""
    model = ARRCOCModel.from_pretrained(strict=True)
    lifts: list[list[float]] = [[], []]
    for seed in (2, 3):
        page = draw_page(seed, (256, 256), "validation", void=False)
        questions = [q for q in page.questions if q.family in ("title", "value")]
        session = Session(model, page.image)
        with torch.no_grad():
            one = model.adapter.features(session.inputs("?"))
        inputs = session.batch([q.text for q in questions], [q.answer for q in questions])
        grid, size = one.grids[0][1:], page.image.size
        evidence = torch.stack([evidence_cells(q.evidence, grid, size) for q in questions]).flatten(1).float()
        for place, used in enumerate((gradient_map, attention_map)):
            maps = F.normalize(used(model, inputs, one.repeat(len(questions))), p=1.0, dim=1)
            lifts[place] += ((maps * evidence).sum(1) / evidence.mean(1)).tolist()
    assert len(lifts[0]) == 6
    for lift in lifts:
        assert sum(lift) / len(lift) > LIFT
        assert min(lift) > 1
