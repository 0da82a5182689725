"""Learning to read an image in part: kept sets, the whole tower's lesson, what each stage teaches."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.families import adapter_for
from arr_coc.model import ARRCOCModel
from arr_coc.seam.batching import IGNORED, answer_costs, compacted_costs, hinted_costs
from arr_coc.seam.gestalt import compress
from arr_coc.session import Session
from arr_coc.train import parts
from arr_coc.train.parts import PartsLearner, TaughtImage, assembled, echo_loss, kept_cells, prepare_towers
from arr_coc.train.recipe import built_in, load_recipe, make_recipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc.train.trainer import train
from each import each
from learning import losses, recipe_of
from near import near
from tiny import WIDTH, picture, prompts, tiny

IMAGE = picture(1, (48, 40))  # 6 x 5 cells
ROWS = (
    Row("What?", ("left",), ((0.0, 0.0, 16.0, 8.0),), "value", 1.0, "first"),
    Row("Where is it now?", (), None, "title", 1.0, "second"),
)
ITEM = ImageRows(IMAGE, ROWS, "here", number=0)


def learner(stage: str, **changes: Any) -> PartsLearner:
    """A learner of a stage on a tiny model."""
    built = tiny("qwen3_vl")
    model = ARRCOCModel(built.model, built.processor, ARRCOCLayer(ARRCOCConfig(dim=WIDTH)), strict=True)
    settings = {"stage": stage, "steps": 1, "lora": 2, "budgets": (8,)}
    return PartsLearner(model, recipe_of(**(settings | changes)))


def reached(module: nn.Module) -> set[str]:
    """Names of the parameters with a gradient other than 0."""
    return {name for name, p in module.named_parameters() if p.grad is not None and bool(p.grad.any())}


def costs(model: ARRCOCModel, *of_an_image: Any) -> torch.Tensor:
    """What answers cost in mode "prune" from an image in part."""
    return compacted_costs(model.adapter_for("prune"), assembled(model, "prune", *of_an_image))


class TestKeptCells:
    def test_evidence_is_kept_and_the_count_is_met(self) -> None:
        evidence = torch.zeros(6, 8, dtype=torch.bool)
        evidence[2, 3:6] = True
        for seed in range(20):
            kept = kept_cells(random.Random(seed), evidence, evidence, 10)
            assert len(kept) == 10
            assert set(evidence.flatten().nonzero().flatten().tolist()) <= set(kept.tolist())
            assert bool((kept.diff() > 0).all())

    def test_no_more_cells_than_there_are(self) -> None:
        nothing = torch.zeros(2, 3, dtype=torch.bool)
        assert kept_cells(random.Random(0), nothing, nothing, 10).tolist() == list(range(6))


class TestEcho:
    def test_nothing_is_missed_of_the_same(self) -> None:
        levels = [torch.randn(20, 8), torch.randn(20, 8)]
        assert echo_loss(levels, levels) == 0

    def test_who_knows_the_mean_alone_misses_everything(self) -> None:
        whole = [3 + 2 * torch.randn(400, 8)]
        assert echo_loss([whole[0].mean(0).expand(400, 8)], whole).item() == pytest.approx(1, abs=0.01)

    @torch.no_grad()
    def test_all_cells_encoded_alone_are_those_of_the_whole_image(self) -> None:
        model = learner("partial").model
        inputs = Session(model, IMAGE).inputs("?")
        whole, keep = model.adapter.features(inputs), torch.arange(30)
        fine = model.adapter.encode_cells(inputs, [keep])
        assert echo_loss(*parts.same_cells(fine, whole, keep)) < 1e-8

    @torch.no_grad()
    def test_tokens_that_are_no_cell_are_compared_with_nothing(self) -> None:
        """Of two of 30 cells, beside which the encoder makes newlines, a begin and an end."""
        built = tiny("hunyuan_vl")
        adapter, inputs = adapter_for(built.model, built.processor), prompts(built, [("?", [IMAGE])])
        whole, keep = adapter.features(inputs), torch.tensor([4, 7])
        fine = adapter.encode_cells(inputs, [keep])
        ((alone,), (taught,)) = parts.same_cells(fine, whole, keep)
        assert alone.shape == taught.shape == (2, WIDTH)
        assert torch.equal(taught, whole.cell_tokens(0)[keep])
        assert torch.equal(alone, fine.tokens[0][[1, 3]])  # begin, cell 4, newline, cell 7, newlines, end


class TestStages:
    @each("stage", ["partial", "coarse"])
    def test_it_teaches_its_own_and_nothing_else(self, stage: str) -> None:
        taught = learner(stage)
        before = copy.deepcopy(taught.model.base.state_dict())
        taught.image_loss(ITEM).loss.backward()
        names = reached(taught)
        assert names
        assert all(name.startswith("model.loras.weights.") for name in names)
        assert all(f"/{stage}/" in f"/{name.removeprefix('model.loras.weights.')}" for name in names)
        after = taught.model.base.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)

    @pytest.mark.slow
    def test_together_both_loras_learn_from_one_answer(self) -> None:
        taught = learner("coarse", together=True)
        result = taught.image_loss(ITEM)
        assert result.figures.keys() == {"loss", "answer", "echo", "sparse answer"}
        result.loss.backward()
        names = reached(taught)
        for kind in ("partial", "coarse"):
            assert any(f"/{kind}/" in f"/{name.removeprefix('model.loras.weights.')}" for name in names)
        assert all(name.startswith("model.loras.weights") for name in names)

    def test_together_a_coarse_view_has_its_way_back_to_the_tower(self) -> None:
        taught = learner("coarse", together=True)
        session = Session(taught.model, IMAGE)
        whole = taught.model.adapter.features(session.inputs("?"))
        image = TaughtImage(ITEM, session, whole.layout, whole)
        assert taught._gestalt(image, random.Random(0)).tokens[0].requires_grad

    @pytest.mark.slow
    def test_together_memory_for_time_changes_nothing(self) -> None:
        plain, saving = (learner("coarse", together=True, checkpointing=saves) for saves in (False, True))
        saving.model.loras.load_state_dict(plain.model.loras.state_dict())  # they begin at random
        for taught in (plain, saving):
            taught.image_loss(ITEM).loss.backward()
        mine, theirs = (dict(taught.named_parameters()) for taught in (plain, saving))
        for name in sorted(reached(plain)):
            torch.testing.assert_close(mine[name].grad, theirs[name].grad)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("stage", "changes", "runs"),
        [
            ("partial", {}, True),
            ("partial", {"echo_pixels": 4096}, False),
            ("partial", {"echo_pixels": 100_000}, True),
            ("coarse", {}, False),
            ("coarse", {"gestalts": ("resize", "pool4")}, True),
            ("coarse", {"together": True}, True),
            ("coarse", {"together": True, "echo_pixels": 4096}, False),
        ],
    )
    def test_the_whole_tower_runs_where_something_is_asked_of_it(
        self, stage: str, changes: dict[str, Any], runs: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taught = learner(stage, **changes)
        whole: list[Any] = []
        features = type(taught.model.adapter).features

        def counted(adapter: Any, inputs: Any, *others: Any) -> Any:
            result = features(adapter, inputs, *others)
            if result.layout.sizes == [108]:
                whole.append(result)
            return result

        monkeypatch.setattr(type(taught.model.adapter), "features", counted)
        image = picture(1, (96, 72))  # 12 x 9 cells, 6,912 pixels
        figures = taught.image_loss(ImageRows(image, ROWS[:1], "here", number=0)).figures
        assert bool(whole) is runs
        assert ("echo" in figures) is (runs and "gestalts" not in changes)
        taught.image_loss(ImageRows(image, ROWS, "here", number=0))  # the second row lacks an answer
        assert whole

    @pytest.mark.slow
    def test_answers_teach_the_same_without_the_whole_tower(self) -> None:
        item = ImageRows(IMAGE, ROWS[:1], "here", number=0)
        plain, sparing = learner("coarse", together=True, echo=0), learner("coarse", together=True)
        sparing.model.loras.load_state_dict(plain.model.loras.state_dict())
        mine, theirs = (taught.image_loss(item).figures for taught in (plain, sparing))
        assert mine["answer"] == theirs["answer"]
        assert mine["sparse answer"] == theirs["sparse answer"]

    @pytest.mark.slow
    def test_one_learns_what_the_whole_tower_sees(self) -> None:
        taught = learner("partial", answer=0.0)
        values = losses(taught, ITEM, 0.02, 12)
        assert values[-1] < 0.8 * values[0]

    @each("name", ["resize", "pool4", "tower4"])
    def test_a_coarse_view_is_what_the_mode_would_make(self, name: str) -> None:
        model = learner("coarse").model
        prepare_towers(model, make_recipe(stage="tower", steps=1, lora=2))
        taught = PartsLearner(model, make_recipe(stage="coarse", steps=1, lora=2, gestalts=(name,)))
        session = Session(model, IMAGE)
        whole = model.adapter.features(session.inputs("?"))
        mine = taught._gestalt(TaughtImage(ITEM, session, whole.layout, whole), random.Random(0))
        if name == "resize":  # of a picture this small the mode makes none
            assert len(mine.cells[0]) <= len(whole.cells[0]) // 4
            return
        adapter = model.chooser.adapter_with(name) if name == "tower4" else model.adapter_for("saccade")
        other = compress(name, adapter, session.inputs("?"), whole, model.compressors)
        assert mine.grids == other.grids
        torch.testing.assert_close(mine.tokens[0], other.tokens[0])
        assert not mine.tokens[0].requires_grad

    @torch.no_grad()
    def test_an_answer_from_a_gestalt_costs_what_the_mode_would_read(self) -> None:
        model = learner("coarse").model
        session = Session(model, IMAGE)
        whole = model.adapter.features(session.inputs("?"))
        batch = session.batch(["What?"], ["left"])
        every = torch.arange(30)
        fine = whole.select([every])
        kept = costs(model, batch, whole, every, fine, None)
        full = answer_costs(model.adapter, batch, whole, [every])
        assert near(kept, full)

    def test_a_hint_is_what_the_answer_begins_with_where_the_question_ends(self) -> None:
        model = learner("partial").model
        session = Session(model, IMAGE)
        whole = model.adapter.features(session.inputs("?"))
        batch = session.batch(["What?", "Where is it now?"], ["left", "under the table"])
        every = torch.arange(30)
        compacted = assembled(model, "prune", batch, whole.layout, every, whole.select([every]), None)
        adapter = model.adapter_for("prune")
        tail = parts.prompt_tail(session)
        assert 1 <= tail < 20
        costs, hints = hinted_costs(adapter, compacted, tail)
        assert near(costs, compacted_costs(adapter, compacted))
        kwargs = dict(compacted.kwargs)
        labels = kwargs.pop("labels")
        logits = adapter.model(**kwargs, use_cache=False).logits.log_softmax(-1)
        for row in range(2):
            first = int((labels[row] != IGNORED).nonzero()[0])
            said = logits[row, first - tail : first, labels[row, first]]
            assert hints[row].item() == pytest.approx(-said.mean().item(), abs=1e-5)

    @pytest.mark.slow
    def test_hints_add_to_the_loss(self) -> None:
        plain, hinted = learner("coarse").image_loss(ITEM), learner("coarse", hint=0.5).image_loss(ITEM)
        assert "hint" not in plain.figures
        (hint,), (loss,) = hinted.figures["hint"], hinted.figures["loss"]
        assert hint > 0
        assert loss == pytest.approx(plain.figures["loss"][0] + hint, rel=1e-5)

    @pytest.mark.slow
    def test_an_image_draws_the_same_whatever_came_before(self) -> None:
        taught = learner("partial")
        first = taught.image_loss(ITEM).loss
        torch.manual_seed(99)
        assert torch.equal(first, taught.image_loss(ITEM).loss)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file"), [("partial", "partial/"), ("coarse", "coarse/"), ("tower", "tower4")]
)
def test_a_recipe_makes_an_allocator_with_it(base: Path, tmp_path: Path, name: str, file: str) -> None:
    changes = {"model": str(base), "init": None, "sizes": (128,), "questions": 2, "steps": 1, "workers": 0}
    train(load_recipe(name, changes), tmp_path / "out", progress=False)
    assert any(path.relative_to(tmp_path / "out").as_posix().startswith(file) for path in
               (tmp_path / "out").rglob("*.safetensors"))  # fmt: skip
    model = ARRCOCModel.from_pretrained(tmp_path / "out")
    assert not model.layer.trained  # nobody has taught it where to look
    assert model.layer.trained_on[-1]["recipe"] == name


class TestRefusals:
    @each(
        ("changes", "reason"),
        [
            ({"stage": "partial"}, "lora is 0, but stage 'partial' teaches one"),
            ({"stage": "tower", "eyes": "stem"}, "eyes is no setting of stage 'tower'"),
            ({"stage": "coarse", "lora": 2, "answer": 0.0}, "answer is 0, so stage 'coarse' learns nothing"),
            ({"stage": "partial", "lora": 2, "gestalts": ("pool4",)}, "stage 'partial' reads no coarse view"),
            ({"stage": "relevance", "gestalts": ("pool4",)}, "gestalts is no setting of stage 'relevance'"),
            ({"stage": "coarse", "lora": 2, "gestalts": ("mean",)}, "gestalts"),
            ({"stage": "partial", "lora": 2, "together": True}, "stage 'partial' teaches one LoRA"),
            ({"stage": "relevance", "together": True}, "but of partial, coarse"),
        ],
    )
    def test_what_would_teach_nothing(self, changes: dict[str, Any], reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            make_recipe(steps=1, **changes)

    def test_a_gestalt_that_has_not_been_learned(self) -> None:
        with pytest.raises(ValueError, match="has not learned: teach it first by recipe tower"):
            learner("coarse", gestalts=("tower16",))

    def test_a_tower_that_encodes_all_or_nothing(self) -> None:
        built = tiny("llava_next")
        model = ARRCOCModel(built.model, built.processor)
        with pytest.raises(ValueError, match="so no mode would use it: use relevance"):
            PartsLearner(model, make_recipe(stage="partial", steps=1, lora=2))


def test_both_are_built_in() -> None:
    assert {"partial", "coarse"} <= built_in().keys()
