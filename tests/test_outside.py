"""What a caller of `ARRCOCModel` does that stock transformers takes: each line of an outside test, by class.

The parts have their own tests (decoding, seam); here they are joined.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Generator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from torch import Tensor
from transformers import DynamicCache, StoppingCriteria, pipeline

from arr_coc.model import ARRCOCModel
from arr_coc.seam.decoding import CACHE
from each import each
from near import near
from tiny import APART, LLAVA_FAMILIES, picture, prompts, tiny

ROWS = [("What is the number on the door?", [picture(1, (48, 40))]), ("Where?", [picture(2, (40, 72))])]
GREEDY = {"do_sample": False, "max_new_tokens": 4}


@cache
def wrapped(family: str = "qwen3_vl") -> ARRCOCModel:
    built = tiny(family)
    return ARRCOCModel.wrap(built.model, built.processor, budget=0.3, strict=True)


def inputs_of(family: str = "qwen3_vl", rows: list = ROWS) -> dict[str, Any]:
    return prompts(tiny(family), rows)


@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade", "full"])
def test_the_usual_idiom_stops_a_generation(mode: str) -> None:
    """`ids[:, n:]` is the answer so far, n the length of the prompt that was passed."""
    inputs = inputs_of()
    length = inputs["input_ids"].shape[1]

    class AfterTwo(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            return torch.full((len(input_ids),), input_ids[:, length:].shape[1] >= 2)

    out = wrapped().generate(**inputs, mode=mode, stopping_criteria=[AfterTwo()], max_new_tokens=6)
    assert out.shape[1] == length + 2


class TestPositionalArguments:
    @pytest.mark.parametrize("mode", ["prune", "full"])
    def test_generate(self, mode: str) -> None:
        inputs = inputs_of()
        ids = inputs.pop("input_ids")
        expected = wrapped().generate(input_ids=ids, **inputs, **GREEDY, mode=mode)
        assert torch.equal(wrapped().generate(ids, **inputs, **GREEDY, mode=mode), expected)
        assert torch.equal(wrapped().generate(inputs=ids, **inputs, **GREEDY, mode=mode), expected)
        config = copy.deepcopy(wrapped().base.generation_config)
        config.max_new_tokens = 2
        assert wrapped().generate(ids, config, **inputs, mode=mode).shape[1] == ids.shape[1] + 2

    @torch.no_grad()
    @pytest.mark.parametrize("mode", ["prune", "full"])
    def test_forward(self, mode: str) -> None:
        inputs = inputs_of()
        expected = wrapped()(**inputs, mode=mode).logits
        ids = inputs.pop("input_ids")
        assert torch.equal(wrapped()(ids, **inputs, mode=mode).logits, expected)


@pytest.mark.parametrize("family", APART)
@each("mode", ["prune", "full"])
def test_a_padded_batch_without_a_mask(family: str, mode: str) -> None:
    inputs = inputs_of(family)
    expected = wrapped(family).generate(**inputs, **GREEDY, mode=mode, return_allocation=True)
    assert (inputs.pop("attention_mask") == 0).any()
    out = wrapped(family).generate(**inputs, **GREEDY, mode=mode, return_allocation=True)
    assert torch.equal(out.sequences, expected.sequences)
    for one, other in zip(out.allocations, expected.allocations, strict=True):
        assert torch.equal(one.keep, other.keep)


class TestCaches:
    """A cache says whether it lacks tokens; `mode="full"` continues only whole ones."""

    @staticmethod
    def follow(sequences: Tensor) -> dict[str, Tensor]:
        ids = torch.cat([sequences, torch.tensor([[65, 66, 67]])], dim=1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    @pytest.mark.parametrize("mode", ["prune", "sparse"])
    def test_of_generate(self, mode: str) -> None:
        inputs = inputs_of(rows=ROWS[:1])
        out = wrapped().generate(**inputs, **GREEDY, mode=mode, return_dict_in_generate=True)
        with pytest.raises(ValueError, match=rf"{CACHE} comes from a call that dropped visual tokens"):
            wrapped().generate(**self.follow(out.sequences), **{CACHE: out[CACHE]}, mode="full", **GREEDY)

    @torch.no_grad()
    def test_of_forward(self) -> None:
        inputs, own = inputs_of(rows=ROWS[:1]), DynamicCache()
        out = wrapped()(**inputs, **{CACHE: own})
        token = {"input_ids": torch.tensor([[65]])}
        for cache_ in (own, out[CACHE]):
            with pytest.raises(ValueError, match=f"{CACHE} comes from a call that dropped"):
                wrapped()(**token, **{CACHE: cache_}, mode="full")

    def test_a_whole_one_goes_on_as_in_the_stock_model(self) -> None:
        inputs, sequences = inputs_of(rows=ROWS[:1]), []
        for model, more in ((tiny("qwen3_vl").model, {}), (wrapped(), {"budget": 1.0})):
            out = model.generate(**inputs, **GREEDY, **more, return_dict_in_generate=True)
            full = {"mode": "full"} if more else {}
            past = out[CACHE]
            sequences.append(model.generate(**self.follow(out.sequences), **{CACHE: past}, **GREEDY, **full))
        assert torch.equal(*sequences)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["prune", "full"])
def test_a_tuple_as_output(mode: str) -> None:
    inputs = inputs_of()
    out = wrapped()(**inputs, mode=mode, return_dict=False)
    assert isinstance(out, tuple)
    assert torch.equal(out[0], wrapped()(**inputs, mode=mode).logits)


class TestTypesOfNumbers:
    @pytest.fixture
    def halves(self) -> Generator[None, None, None]:
        torch.set_default_dtype(torch.bfloat16)
        yield
        torch.set_default_dtype(torch.float32)

    @pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
    def test_a_default_of_bfloat16(self, mode: str, halves: None) -> None:
        built, inputs = tiny("qwen3_vl"), inputs_of()
        model = ARRCOCModel.wrap(built.model, built.processor, budget=0.3, strict=True)
        assert all(p.dtype == torch.float32 for p in model.layer.parameters())
        assert not model.generate(**inputs, **GREEDY, mode=mode, return_allocation=True).fallback
        torch.set_default_dtype(torch.float32)
        out = model.generate(**inputs, **GREEDY, mode=mode, return_allocation=True)
        expected = wrapped().generate(**inputs, **GREEDY, mode=mode, return_allocation=True)
        for one, other in zip(out.allocations, expected.allocations, strict=True):
            assert torch.equal(one.keep, other.keep)

    @pytest.mark.parametrize(
        ("cast", "mode"), [("half", "prune"), ("bfloat16", "sparse"), ("to", "prune"), ("double", "sparse")]
    )
    def test_a_cast_of_the_whole(self, cast: str, mode: str) -> None:
        """The layer is small and stays float32, its weights to the last bit."""
        built = tiny("qwen3_vl")
        model = ARRCOCModel.wrap(copy.deepcopy(built.model), built.processor, budget=0.3, strict=True)
        before = {name: value.clone() for name, value in model.layer.state_dict().items()}
        model = model.to(torch.bfloat16) if cast == "to" else getattr(model, cast)()
        assert model.base.dtype != torch.float32
        for name, value in model.layer.state_dict().items():
            assert torch.equal(value, before[name])
            assert value.dtype == before[name].dtype
        inputs = inputs_of()
        inputs["pixel_values"] = inputs["pixel_values"].to(model.base.dtype)
        out = model.generate(**inputs, **GREEDY, mode=mode, return_allocation=True)
        assert not out.fallback
        assert [allocation.kept for allocation in out.allocations] == [9, 14]

    def test_a_move_of_the_whole(self) -> None:
        built = tiny("qwen3_vl")
        model = ARRCOCModel.wrap(copy.deepcopy(built.model), built.processor)
        model.to("meta", torch.bfloat16)
        assert {p.device.type for p in model.layer.parameters()} == {"meta"}
        assert {p.dtype for p in model.layer.parameters()} == {torch.float32}


class TestOffload:
    @pytest.mark.parametrize("mode", ["prune", "sparse", "full"])
    def test_the_layer_goes_where_the_calls_run(self, mode: str) -> None:
        base = copy.deepcopy(tiny("qwen3_vl").model)
        cpu_offload(base, execution_device=torch.device("cpu"))
        assert base.device.type == "meta"
        model = ARRCOCModel.wrap(base, tiny("qwen3_vl").processor, budget=0.3, strict=True)
        assert model.device == torch.device("cpu")
        assert {p.device.type for p in model.layer.parameters()} == {"cpu"}
        inputs = inputs_of(rows=ROWS[:1])
        out = model.generate(**inputs, **GREEDY, mode=mode)
        assert torch.equal(out, wrapped().generate(**inputs, **GREEDY, mode=mode))


class TestBudgets:
    @pytest.mark.parametrize("budget", [5, 0.5, "auto"])
    def test_saccade_says_that_a_small_image_is_read_whole(self, budget: Any) -> None:
        out = wrapped().generate(
            **inputs_of(), **GREEDY, mode="saccade", budget=budget, return_allocation=True
        )
        assert [allocation.kept for allocation in out.allocations] == [30, 45]
        assert out.note is not None
        assert "saccade kept all 30, 45 cells whatever the budget" in out.note
        assert out.mode == "saccade"

    def test_saccade_says_nothing_where_no_budget_is_left(self) -> None:
        built = tiny("qwen3_vl")
        model = ARRCOCModel.wrap(built.model, built.processor)
        for more in ({}, {"budget": 1.0}, {"budget": 30}):
            inputs = inputs_of(rows=ROWS[:1])
            out = model.generate(**inputs, **GREEDY, mode="saccade", return_allocation=True, **more)
            assert out.note is None

    @pytest.mark.parametrize("budget", [np.int64(9), np.int32(9), np.float32(0.3), np.float64(0.3)])
    def test_numbers_of_numpy(self, budget: Any) -> None:
        out = wrapped().generate(**inputs_of(rows=ROWS[:1]), **GREEDY, budget=budget, return_allocation=True)
        assert [allocation.kept for allocation in out.allocations] == [9]
        built = tiny("qwen3_vl")
        assert ARRCOCModel.wrap(built.model, built.processor, budget=budget).budget == float(budget)


class TestPipeline:
    @pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
    def test_it_takes_the_wrapper(self, family: str) -> None:
        built = tiny(family)
        text = built.processor.apply_chat_template(
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}],
            add_generation_prompt=True,
            tokenize=False,
        )
        answers = []
        for model in (built.model, wrapped(family)):
            ask = pipeline("image-text-to-text", model=model, processor=built.processor)
            repr(ask)
            call = {"text": text, "images": [picture(2)], "max_new_tokens": 5, "return_full_text": False}
            (answer,) = ask(**call, generate_kwargs={"do_sample": False})
            answers.append(answer["generated_text"])
            if model is wrapped(family):
                with model.full():
                    (answer,) = ask(**call, generate_kwargs={"do_sample": False})
                answers.append(answer["generated_text"])
        stock, pruned, full = answers
        assert stock == full
        assert pruned != stock


@pytest.mark.parametrize(("family", "size"), [("qwen3_vl", (48, 40)), ("llava", (24, 24))])
def test_pixels_without_normalisation_are_no_failure(family: str, size: tuple[int, int]) -> None:
    """That they are the same picture is a law of the seam, in every family."""
    built, image = tiny(family), picture(3, size)
    plain = built.processor.image_processor(images=[image], do_normalize=False, return_tensors="pt")
    inputs = prompts(built, [("What?", [image])]) | {"pixel_values": plain["pixel_values"]}
    assert not wrapped(family).generate(**inputs, **GREEDY, return_allocation=True).fallback


@pytest.mark.parametrize(("family", "size"), [("llava_next", (1, 3000)), ("llava_onevision", (3000, 1))])
def test_a_very_thin_image_is_answered(family: str, size: tuple[int, int]) -> None:
    inputs = inputs_of(family, [("What?", [picture(1, size)])])
    out = wrapped(family).generate(**inputs, **GREEDY, return_allocation=True)
    assert [(a.grid, a.kept) for a in out.allocations] == [((1, 6, 6), 11)]
    stock = tiny(family).model.generate(**inputs, **GREEDY)
    assert torch.equal(wrapped(family).generate(**inputs, **GREEDY, budget=1.0), stock)


@pytest.mark.parametrize("family", LLAVA_FAMILIES)
@torch.no_grad()
def test_the_loss_does_not_depend_on_the_cache(family: str) -> None:
    """Without one, LLaVA's prompt gets a spare column of padding, which predicts nothing."""
    inputs = inputs_of(family, ROWS[:1])
    inputs["labels"] = inputs["input_ids"].clone()
    with_cache, without = (wrapped(family)(**inputs, use_cache=use).loss for use in (True, False))
    assert near(with_cache, without)


def test_no_window_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "arr_coc"):
        wrapped().generate(**inputs_of(), **GREEDY)
    assert wrapped().adapter.window is None
    assert not caplog.records
