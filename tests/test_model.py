"""ARRCOCModel around tiny random models: generate, forward, modes, fallback, refusals."""

from __future__ import annotations

import copy
import inspect
import logging
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, Trainer, TrainingArguments
from transformers.generation.streamers import BaseStreamer
from transformers.utils.generic import find_labels

from arr_coc.choose.allocation import Reason
from arr_coc.choose.attending import NonFiniteScores
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.texture import generate_texture_array
from arr_coc.model import ARRCOCModel, ARRCOCQwen
from arr_coc.modes import MODES
from arr_coc.relevance import deciding
from arr_coc.seam import PAD
from arr_coc.seam.decoding import CACHE, CHUNKED_PREFILL, REFUSED, Generated, use_given_positions
from arr_coc.session import NO_NUMBERS
from each import each
from near import near
from tiny import APART, KINDS, MASKABLE, apart, in_bfloat16, picture, prompts, tiny

NEW = 4
ROWS = [("What is the number on the door?", [picture(1, (48, 40))]), ("Where?", [picture(2, (40, 72))])]


@cache
def wrapped(family: str = "qwen3_vl") -> ARRCOCModel:
    built = tiny(family)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return ARRCOCModel.wrap(built.model, built.processor, budget=0.3).eval()


def inputs_of(family: str = "qwen3_vl", rows: list = ROWS) -> dict[str, Any]:
    return prompts(tiny(family), rows)


def greedy(model: ARRCOCModel, inputs: dict, **more: Any) -> Tensor:
    return model.generate(**inputs, do_sample=False, max_new_tokens=NEW, **more)


@pytest.fixture
def model() -> ARRCOCModel:
    """A wrapper of its own for tests that change it; the base is shared."""
    built = tiny("qwen3_vl")
    return ARRCOCModel.wrap(built.model, built.processor, budget=0.3).eval()


@pytest.mark.parametrize("family", apart(KINDS))
class TestEveryFamily:
    def test_text_is_that_of_the_kept_tokens(self, family: str) -> None:
        """The record says what the language model saw."""
        model, inputs = wrapped(family), inputs_of(family)
        out = greedy(model, inputs, return_allocation=True)
        assert isinstance(out, Generated)
        assert not out.fallback
        with torch.no_grad():
            features = model.adapter.features(inputs)
            keep = [allocation.keep for allocation in out.allocations]
            compacted = model.adapter.compact(inputs, features, keep)
            base = use_given_positions(tiny(family).model)
            again = base.generate(**compacted.kwargs, do_sample=False, max_new_tokens=NEW)
        assert torch.equal(out.sequences[:, -NEW:], again[:, -NEW:])
        assert [a.grid for a in out.allocations] == features.grids
        assert [a.kept for a in out.allocations] == [int(0.3 * a.total + 0.5) for a in out.allocations]

    def test_batch_equals_single(self, family: str) -> None:
        model = wrapped(family)
        both = greedy(model, inputs_of(family), return_allocation=True)
        for row, prompt in enumerate(ROWS):
            alone = greedy(model, inputs_of(family, [prompt]), return_allocation=True)
            assert torch.equal(alone.allocations[0].keep, both.allocations[row].keep)
            if family in MASKABLE:  # a recurrent layer's rounding depends on the padding
                assert torch.equal(alone.sequences[0, -NEW:], both.sequences[row, -NEW:])

    def test_several_images_have_a_quota_each(self, family: str) -> None:
        rows = [("Which one?", [picture(1), picture(2)]), ("And here?", [picture(3), picture(4)])]
        model, inputs = wrapped(family), inputs_of(family, rows)
        out = model.generate(**inputs, budget=7, max_new_tokens=1, return_allocation=True)
        assert [allocation.kept for allocation in out.allocations] == [7, 7, 7, 7]
        swapped = inputs_of(family, [("Which one?", [picture(1), picture(4)]), rows[1]])
        again = model.prepare(swapped, budget=7)
        assert torch.equal(out.allocations[0].keep, again.allocations[0].keep)  # whatever the neighbour

    def test_rows_without_images(self, family: str) -> None:
        rows = [("Only words.", []), ROWS[0]]
        inputs = inputs_of(family, rows)
        out = greedy(wrapped(family), inputs, return_allocation=True)
        assert len(out.allocations) == 1
        assert torch.equal(out.sequences[:, : inputs["input_ids"].shape[1]], inputs["input_ids"])


@pytest.mark.parametrize("family", APART)
class TestEveryLayout:
    """What tests of the seam hold in every family, of one of each way to lay pictures in a prompt."""

    def test_identity_in_full_mode_and_with_everything_kept(self, family: str) -> None:
        model, inputs, stock = wrapped(family), inputs_of(family), tiny(family).model
        with torch.no_grad():
            expected = stock.generate(**inputs, do_sample=False, max_new_tokens=NEW)
            logits = stock(**inputs).logits
            with model.full():
                assert torch.equal(greedy(model, inputs), expected)
                assert torch.equal(model(**inputs).logits, logits)
            assert (model(**inputs).logits[:, -1] - logits[:, -1]).abs().max() > 0.01  # pruning shows
            assert torch.equal(greedy(model, inputs, budget=1.0), expected)
            assert torch.equal(model(**inputs, budget=1.0).logits, logits)
            assert torch.equal(stock(**inputs).logits, logits)

    def test_beams_samples_and_returned_sequences(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        length = inputs["input_ids"].shape[1]
        repeated = inputs["input_ids"].repeat_interleave(2, dim=0)
        beams = greedy(model, inputs, num_beams=3, num_return_sequences=2)
        assert torch.equal(beams[:, :length], repeated)
        if family in ("qwen3_vl", "llava"):  # samples are repeated as beams are
            sampled = model.generate(**inputs, do_sample=True, num_return_sequences=2, max_new_tokens=NEW)
            assert torch.equal(sampled[:, :length], repeated)
            only_best = model.generate(**inputs, do_sample=True, top_k=1, max_new_tokens=NEW)
            assert torch.equal(only_best, greedy(model, inputs))

    def test_the_answer_teaches_the_scorers(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        model.layer.zero_grad()
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        for mode in ("prune", "weight") if family in ("qwen3_vl", "llava") else ("prune",):
            model(**inputs, labels=labels, mode=mode).loss.backward()
            grads = [p.grad for p in model.layer.parameters() if p.grad is not None]
            assert all(grad.isfinite().all() for grad in grads)
            assert any((grad != 0).any() for grad in grads)
            assert all(p.grad is None for p in model.base.parameters())
            model.layer.zero_grad(set_to_none=True)


class TestForward:
    @torch.no_grad()
    def test_output_is_the_base_models_own(self) -> None:
        model, inputs = wrapped(), inputs_of()
        ids = inputs["input_ids"]
        labels = ids.masked_fill(ids == model.adapter.image_token_id, -100)
        out = model(**inputs, labels=labels)
        assert type(out) is type(tiny("qwen3_vl").model(**inputs))
        assert out.allocation is out.allocations[0]
        assert len(out.allocations) == 2
        assert not out.fallback
        assert out.logits.shape[:2] == out.columns.shape
        kept = out.columns.clamp_min(0)
        target = labels.gather(1, kept).masked_fill(out.columns < 0, -100)
        target[:, 1:].masked_fill_(out.columns[:, :-1] == PAD, -100)  # padding predicts nothing
        expected = torch.nn.functional.cross_entropy(
            out.logits[:, :-1].flatten(0, 1), target[:, 1:].flatten()
        )
        assert near(out.loss, expected)

    @torch.no_grad()
    def test_text_alone_goes_to_the_base_model_untouched(self) -> None:
        model, inputs = wrapped(), inputs_of(rows=[("Only words.", [])])
        out = model(**inputs)
        assert out.allocations == []
        assert out.allocation is None
        assert torch.equal(out.logits, tiny("qwen3_vl").model(**inputs).logits)
        assert len(greedy(model, inputs)) == 1

    @torch.no_grad()
    def test_weight_keeps_all_and_scales(self) -> None:
        model, inputs = wrapped(), inputs_of()
        out = model(**inputs, mode="weight")
        assert out.logits.shape[:2] == inputs["input_ids"].shape
        assert all(allocation.kept == allocation.total for allocation in out.allocations)
        assert all((allocation.reasons == Reason.ALL).all() for allocation in out.allocations)
        features = model.adapter.features(inputs)
        scaled = features.scale([allocation.balanced.flatten() for allocation in out.allocations])
        kwargs = {name: value for name, value in inputs.items() if name != "pixel_values"}
        expected = tiny("qwen3_vl").model(**kwargs, mm_encoder_outputs=scaled.as_encoder_outputs())
        assert near(out.logits, expected.logits)
        assert (out.logits - model(**inputs, mode="full").logits).abs().max() > 0.01

    def test_base_is_frozen_and_stays_in_evaluation_mode(self, model: ARRCOCModel) -> None:
        model.train()
        assert model.layer.training
        assert not model.base.training
        assert not any(p.requires_grad for p in model.base.parameters())
        assert any(p.requires_grad for p in model.layer.parameters())

    @torch.no_grad()
    def test_nothing_is_kept_from_the_last_call(self) -> None:
        model, first, second = wrapped(), inputs_of(rows=ROWS[:1]), inputs_of(rows=ROWS[1:])
        before = dict(vars(model))
        alone = model(**second).logits
        model(**first)
        greedy(model, first)
        assert torch.equal(model(**second).logits, alone)
        assert vars(model) == before
        assert vars(model.layer).keys() == vars(wrapped().layer).keys()


class TestGenerate:
    def test_max_length_counts_the_whole_prompt(self) -> None:
        model, inputs = wrapped(), inputs_of()
        length = inputs["input_ids"].shape[1]
        assert model.generate(**inputs, max_length=length + 4).shape[1] == length + 4
        config = GenerationConfig(max_length=length + 3, pad_token_id=0)
        assert model.generate(**inputs, generation_config=config).shape[1] == length + 3
        assert config.max_length == length + 3

    @pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")
    def test_without_any_limit_the_default_is_the_base_models(self) -> None:
        default = tiny("qwen3_vl").model.generate(**inputs_of())
        assert wrapped().generate(**inputs_of()).shape == default.shape

    def test_the_models_own_generation_config_is_honoured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, inputs = wrapped(), inputs_of()
        out = greedy(model, inputs)[0, -NEW:]
        monkeypatch.setattr(model.base.generation_config, "eos_token_id", int(out[1]))
        monkeypatch.setattr(model.base.generation_config, "max_new_tokens", 6)
        alone = model.generate(**inputs_of(rows=ROWS[:1]))[
            0, inputs_of(rows=ROWS[:1])["input_ids"].shape[1] :
        ]
        assert torch.equal(alone, out[:2])

    def test_output_object(self) -> None:
        model, inputs = wrapped(), inputs_of()
        out = greedy(model, inputs, return_dict_in_generate=True, output_scores=True)
        assert torch.equal(out.sequences, greedy(model, inputs))
        assert len(out.scores) == NEW
        both = greedy(model, inputs, return_dict_in_generate=True, return_allocation=True)
        assert both.sequences is both.details.sequences

    def test_streamer_sees_the_whole_prompt(self) -> None:
        class Collect(BaseStreamer):
            def __init__(self) -> None:
                self.got: list[Tensor] = []

            def put(self, value: Tensor) -> None:
                self.got.append(value)

            def end(self) -> None:
                self.got.append(torch.tensor([-1]))

        inputs, collect = inputs_of(rows=ROWS[:1]), Collect()
        out = greedy(wrapped(), inputs, streamer=collect)
        assert torch.equal(collect.got[0], inputs["input_ids"])
        assert torch.equal(torch.cat(collect.got[1:-1]), out[0, -NEW:])

    def test_without_cache_and_in_chunks(self) -> None:
        for family in ("qwen3_vl", "llava"):
            model, inputs = wrapped(family), inputs_of(family, ROWS[:1])
            assert torch.equal(greedy(model, inputs, use_cache=False), greedy(model, inputs))
            if Version(transformers.__version__) >= CHUNKED_PREFILL:
                assert torch.equal(greedy(model, inputs, prefill_chunk_size=16), greedy(model, inputs))
            static = greedy(model, inputs, cache_implementation="static")
            assert torch.equal(static, greedy(model, inputs))
            assert torch.equal(greedy(model, inputs, **{CACHE: DynamicCache()}), greedy(model, inputs))

    @each("name", REFUSED)
    def test_what_cannot_be_honoured_is_refused_by_name(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name} can't be used while tokens are dropped.*mode='full'"):
            wrapped().generate(**inputs_of(), max_new_tokens=2, **{name: 2})

    def test_refusal_from_the_models_own_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = wrapped()
        monkeypatch.setattr(model.base.generation_config, "guidance_scale", 1.5)
        with pytest.raises(ValueError, match="guidance_scale"):
            greedy(model, inputs_of())
        monkeypatch.setattr(model.base.generation_config, "guidance_scale", 1.0)
        assert greedy(model, inputs_of()).shape[0] == 2

    @each("budget", [0, -3, 1.5, 0.0, float("nan"), "abc", "0", True])
    def test_bad_budget_is_an_error_not_a_fallback(self, budget: Any) -> None:
        with pytest.raises(ValueError, match=str(budget)):
            greedy(wrapped(), inputs_of(rows=ROWS[:1]), budget=budget)  # 30 cells

    @pytest.mark.parametrize("rows", [ROWS, [("Only words.", [])]])
    def test_a_bad_budget_is_an_error_also_where_nothing_is_chosen(
        self, rows: list, model: ARRCOCModel
    ) -> None:
        inputs = inputs_of(rows=rows)
        for call in (model, partial(model.generate, max_new_tokens=1)):
            with pytest.raises(ValueError, match="budget 'garbage' is not a number"):
                call(**inputs, budget="garbage", mode="full")
            with pytest.raises(ValueError, match="budget 0 is below 1"), model.full():
                call(**inputs, budget=0)
            with pytest.raises(ValueError, match=r"budget 1\.5 is not a fraction"):
                call(**inputs, budget=1.5)

    @pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "full"])
    def test_images_without_a_prompt_are_refused(self, mode: str) -> None:
        inputs = {name: value for name, value in inputs_of().items() if name != "input_ids"}
        for call in (wrapped(), wrapped().generate):
            with pytest.raises(ValueError, match="input_ids is missing, by which tokens to drop are"):
                call(**inputs, mode=mode)
            with pytest.raises(ValueError, match="input_ids is missing, by which tokens to drop are"):
                call(**inputs, mode=mode, input_ids=None)

    def test_a_budget_is_cut_to_small_images_and_only_the_default_without_a_word(self) -> None:
        built, inputs = tiny("qwen3_vl"), inputs_of(rows=ROWS[:1])
        model = ARRCOCModel.wrap(built.model, built.processor)
        assert model.budget == 273
        out = greedy(model, inputs, return_allocation=True)
        assert (out.allocations[0].kept, out.allocations[0].total) == (30, 30)
        model = ARRCOCModel.wrap(built.model, built.processor, budget=31)
        for more in ({}, {"budget": 31}, {"budget": 400}):
            out = greedy(model, inputs, return_allocation=True, **more)
            assert out.allocations[0].kept == 30
            count = more.get("budget", 31)
            assert out.note == f"budget {count} is more than the image has: all 30 cells were kept"
        full = greedy(model, inputs, mode="full", budget=9, return_allocation=True)
        assert full.note == "budget had no effect in mode full"

    def test_auto_budget(self) -> None:
        out = greedy(wrapped(), inputs_of(), budget="auto", return_allocation=True)
        assert not out.fallback
        assert [allocation.budget for allocation in out.allocations] == ["auto", "auto"]


class TestSecondTurn:
    """A cache doesn't say which tokens it lacks: refused; running the whole conversation again works."""

    @staticmethod
    def turns() -> tuple[dict, dict]:
        built = tiny("qwen3_vl")
        talk = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
        more = [
            {"role": "assistant", "content": [{"type": "text", "text": "A thing."}]},
            {"role": "user", "content": [{"type": "text", "text": "What kind?"}]},
        ]
        texts = [
            built.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
            for turns in (talk, talk + more)
        ]
        first, second = (
            dict(built.processor(images=[picture(5)], text=[text], return_tensors="pt")) for text in texts
        )
        return first, second

    def test_a_cache_is_refused_by_name(self) -> None:
        first, second = self.turns()
        out = greedy(wrapped(), first, return_dict_in_generate=True)
        with pytest.raises(ValueError, match=rf"{CACHE} can't be continued .* whole conversation"):
            greedy(wrapped(), second, **{CACHE: out[CACHE]})
        with pytest.raises(ValueError, match=f"{CACHE} can't be continued .* a cache doesn't say"):
            wrapped()(**second, **{CACHE: out[CACHE]})
        text = {
            name: value for name, value in second.items() if name not in ("pixel_values", "image_grid_thw")
        }
        with pytest.raises(ValueError, match=f"{CACHE} can't be continued .* a cache doesn't say"):
            greedy(wrapped(), text, **{CACHE: out[CACHE]})

    def test_the_whole_conversation_again(self) -> None:
        first, second = self.turns()
        model = wrapped()
        greedy(model, first)
        out = greedy(model, second, return_allocation=True)
        fresh = ARRCOCModel(model.base, model.processor, model.layer, budget=0.3)
        assert torch.equal(greedy(fresh, second), out.sequences)
        with torch.no_grad():
            compacted = model.adapter.compact(
                second, model.adapter.features(second), [out.allocations[0].keep]
            )
            expected = model.base.generate(**compacted.kwargs, do_sample=False, max_new_tokens=NEW)
        assert torch.equal(out.sequences[:, -NEW:], expected[:, -NEW:])

    def test_full_mode_continues_a_cache_as_the_stock_model_does(self) -> None:
        first, _ = self.turns()
        stock, results = tiny("qwen3_vl").model, []
        for model in (stock, wrapped()):
            more = {} if model is stock else {"mode": "full"}
            greedy_ = {"do_sample": False, "max_new_tokens": 4, "return_dict_in_generate": True}
            out = model.generate(**first, **greedy_, **more)
            ids = torch.cat([out.sequences, torch.tensor([[65, 66, 67]])], dim=1)
            follow = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            results.append(model.generate(**follow, **{CACHE: out[CACHE]}, **greedy_, **more))
        assert torch.equal(results[0].sequences, results[1].sequences)


class TestFallback:
    @pytest.mark.parametrize("failure", ["raises", "nan", "infinite", "allocate"])
    def test_the_answer_still_comes(
        self,
        failure: str,
        model: ARRCOCModel,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        inputs = inputs_of()
        expected = greedy(model, inputs, mode="full")
        self.break_it(model, failure, monkeypatch)
        with caplog.at_level(logging.ERROR):
            out = greedy(model, inputs, return_allocation=True)
        assert out.fallback
        assert torch.equal(out.sequences, expected)
        assert all(a.kept == a.total and (a.reasons == Reason.ALL).all() for a in out.allocations)
        assert "allocation failed; all visual tokens are used" in caplog.text
        with torch.no_grad():
            assert model(**inputs).fallback
            assert torch.equal(model(**inputs).logits, model(**inputs, mode="full").logits)
            assert model(**inputs, mode="weight").fallback or failure == "allocate"

    @pytest.mark.parametrize("failure", ["raises", "nan", "infinite", "allocate"])
    def test_strict_raises(self, failure: str, model: ARRCOCModel, monkeypatch: pytest.MonkeyPatch) -> None:
        model.strict = True
        self.break_it(model, failure, monkeypatch)
        with pytest.raises((RuntimeError, NonFiniteScores), match=r"broken|not finite"):
            greedy(model, inputs_of())

    @staticmethod
    def break_it(model: ARRCOCModel, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
        right = deciding.balanced

        def wrong(*args: Any, **kwargs: Any) -> Any:
            if failure == "raises":
                raise RuntimeError("broken scorer")
            value = float("nan") if failure == "nan" else float("inf")
            scored = right(*args, **kwargs)
            return scored._replace(balanced=scored.balanced.clone().index_fill_(2, torch.tensor([0]), value))

        def wrong_choice(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("broken allocator")

        if failure == "allocate":
            monkeypatch.setattr(model.layer, "allocate", wrong_choice)
        else:
            monkeypatch.setattr(deciding, "balanced", wrong)


class TestMaking:
    def test_it_shows_itself_on_one_line(self, model: ARRCOCModel) -> None:
        facts = "qwen3_vl, budget 0.3, mode 'prune', untrained layer"
        assert repr(model) == f"ARRCOCModel({model.base_name!r}, {facts})"
        assert "Qwen3VL" in repr(model.base)

    def test_two_lines(self) -> None:
        built = tiny("qwen3_vl")
        model = ARRCOCQwen.wrap(built.model, built.processor)
        assert ARRCOCQwen is ARRCOCModel
        assert model.base is built.model
        assert model.generate(**inputs_of(), max_new_tokens=1).shape[0] == 2

    def test_full_is_a_switch_that_restores(self, model: ARRCOCModel) -> None:
        model.mode = "weight"
        with model.full() as inside:
            assert inside is model
            assert model.mode == "full"
        assert model.mode == "weight"
        with pytest.raises(RuntimeError, match="inside"), model.full():
            raise RuntimeError("inside")
        assert model.mode == "weight"

    def test_exception(self) -> None:
        built = tiny("qwen3_vl")
        with pytest.raises(ValueError, match="abc"):
            ARRCOCModel.wrap(built.model, budget="abc")
        with pytest.raises(ValueError, match="mode 'fast'"):
            ARRCOCModel.wrap(built.model, mode="fast")

    @torch.no_grad()
    def test_bfloat16_base(self) -> None:
        built = in_bfloat16("qwen3_vl")
        model = ARRCOCModel.wrap(built.model, built.processor, budget=9)
        assert next(model.layer.parameters()).dtype == torch.float32
        out = model(**inputs_of())
        assert out.logits.dtype == torch.bfloat16
        assert [allocation.kept for allocation in out.allocations] == [9, 9]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_cells_are_chosen_in_the_weights_own_precision(
    dtype: torch.dtype, model: ARRCOCModel
) -> None:
    """Parts of the guide know no half precision; what the base model computes stays under autocast."""
    inputs = inputs_of()
    with torch.no_grad():
        plain = model(**inputs, mode="sparse")
        with torch.autocast("cpu", dtype=dtype):
            output = model(**inputs, mode="sparse")
            stock = tiny("qwen3_vl").model(**inputs).logits
            whole = model(**inputs, budget=1.0, mode="prune")
    assert not output.fallback
    assert [a.kept for a in output.allocations] == [a.kept for a in plain.allocations]
    assert output.logits.dtype == stock.dtype
    assert torch.equal(whole.logits, stock)


def test_a_fallback_is_noted(model: ARRCOCModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arr_coc.modes.route.decide", lambda *_: 1 / 0)
    out = model.generate(**inputs_of(), mode="prune", max_new_tokens=1, return_allocation=True)
    assert out.fallback
    assert out.note == "choosing cells failed, so all were kept: the log says why"


# ---- transformers' Trainer --------------------------------------------------------------------------------


@each("family", KINDS)
def test_forward_names_what_processors_return(family: str) -> None:
    """What isn't named is cut out of the data by transformers' Trainer, and labels aren't found."""
    names = inspect.signature(wrapped(family).forward).parameters
    assert names.keys() >= {*inputs_of(family), "labels"}
    assert "labels" in find_labels(ARRCOCModel)


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True])
def test_the_trainer_measures_the_loss_of_pruned_prompts(bf16: bool, tmp_path: Path) -> None:
    model, inputs = wrapped(), inputs_of()
    inputs["labels"] = inputs["input_ids"].clone()
    inputs["labels"][:, :-4] = -100  # what is taught is the answer: visual tokens have no labels
    with torch.no_grad():
        expected = float(model(**inputs).loss)
    settings: dict[str, Any] = {"output_dir": str(tmp_path), "report_to": [], "use_cpu": True, "bf16": bf16}
    trainer = Trainer(model, TrainingArguments(**settings), lambda rows: rows[0], eval_dataset=[inputs])
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=0.05 if bf16 else 1e-5)


def test_gradient_checkpointing_is_refused() -> None:
    """transformers' Trainer calls it where its arguments ask for checkpointing."""
    with pytest.raises(ValueError, match="has no effect on a frozen base model: leave it out, or"):
        wrapped().gradient_checkpointing_enable(gradient_checkpointing_kwargs={})


@pytest.mark.parametrize("mode", ["prune", "weight", "full"])
def test_a_model_that_computes_no_numbers_says_so(mode: str) -> None:
    """Its answer is the vocabulary's first token, again and again, like any other text."""
    built = tiny("qwen3_vl")
    base = copy.deepcopy(built.model)
    with torch.no_grad():
        base.get_output_embeddings().weight.fill_(float("nan"))
    broken, whole = ARRCOCModel.wrap(base, built.processor, budget=0.3), wrapped()
    notes = [m.ask(picture(1), "What?", mode=mode, max_new_tokens=2).note or "" for m in (broken, whole)]
    if mode != "full":  # which is the stock model's own `generate`
        notes += [
            greedy(m, inputs_of(), mode=mode, return_allocation=True).note or "" for m in (broken, whole)
        ]
    assert [NO_NUMBERS in note for note in notes] == [True, False] * (len(notes) // 2)


def test_the_first_calls_of_the_plan_work_or_name_what_does() -> None:
    image = torch.rand(1, 3, 100, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(generate_texture_array(image), generate_texture_array(image, (3, 2)))
    for call in (lambda: ARRCOCLayer(hidden_dim=64), ARRCOCLayer, lambda: ARRCOCLayer(64)):
        with pytest.raises(TypeError, match=r"ARRCOCLayer\(ARRCOCConfig\(dim="):
            call()
    for call in (
        lambda: ARRCOCQwen(base_model_name="Qwen/Qwen3-VL-2B-Instruct"),
        lambda: ARRCOCQwen("Qwen/Qwen3-VL-2B-Instruct"),
        ARRCOCQwen,
    ):
        with pytest.raises(TypeError, match=r"by its name or folder use ARRCOCModel.from_pretrained\("):
            call()
