"""Watching attention: nothing changes, everything is seen, and the probabilities are the model's own."""

from __future__ import annotations

import copy
import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from peft import LoraConfig
from torch import Tensor

from arr_coc.seam.attention import (
    Part,
    attention_modules,
    attention_received,
    attention_rows,
    watch_attention,
)
from each import each
from near import near
from tiny import FAMILIES, Tiny, picture, prompts, tiny

PARTS: tuple[Part, ...] = ("language", "vision")
Call = tuple[int, Tensor, Tensor, float, Tensor | None]


def ragged(family: str) -> tuple[Tiny, dict[str, Any]]:
    """A model and two prompts, the first of which is padded."""
    built = tiny(family)
    inputs = prompts(built, [("What?", [picture(1)]), ("Where is the word?", [picture(2)])])
    assert inputs["attention_mask"][0, 0] == 0
    return built, inputs


def configured(model: Any) -> list[str]:
    return [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]


def state(model: Any) -> dict[str, Any]:
    """By which a change of a model would show: its modules, attributes, weights and configuration."""
    return {
        "modules": [(name, type(module), id(module)) for name, module in model.named_modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "attention": configured(model),
        "config": model.config.to_dict(),
        "weights": {name: (value.data_ptr(), value._version) for name, value in model.state_dict().items()},
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
    }


@torch.no_grad()
def calls_of(model: Any, part: Part, inputs: dict[str, Any]) -> list[Call]:
    seen: list[Call] = []
    with watch_attention(model, part, lambda *call: seen.append(call)) as watched:
        watched(**inputs)
    return seen


@torch.no_grad()
@each("part", PARTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_watch_changes_nothing(family: str, part: Part) -> None:
    built, inputs = ragged(family)
    model, layers = built.model, []
    stock, before = model(**inputs).logits, state(model)
    with watch_attention(model, part, lambda layer, *_: layers.append(layer)) as watched:
        assert state(model) == before
        assert torch.equal(model(**inputs).logits, stock)
        assert layers == []  # the model itself is not observed
        assert torch.equal(watched(**inputs).logits, stock)
    assert state(model) == before
    assert layers == sorted(layers)
    assert set(layers) == set(range(len(attention_modules(model, part))))
    calls = len(layers)
    model(**inputs)
    watched(**inputs)
    assert len(layers) == calls  # the watch has ended


def test_recurrent_layers_are_not_observed() -> None:
    built, inputs = ragged("qwen3_5")
    assert len(calls_of(built.model, "language", inputs)) == 1  # the model has a recurrent layer beside it


@torch.no_grad()
@each("part", PARTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_the_eager_weights(family: str, part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer by layer and call by call, in a copy that is set to eager and whose own weights are noted."""
    built, inputs = ragged(family)
    eager = copy.deepcopy(built.model)
    eager.set_attn_implementation("eager")
    file = sys.modules[type(attention_modules(eager, part)[0]).__module__]
    own = file.eager_attention_forward
    expected: list[Tensor] = []

    def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
        output = own(module, *args, **kwargs)
        if module in modules:
            expected.append(output[1])
        return output

    modules = attention_modules(eager, part)
    monkeypatch.setattr(file, "eager_attention_forward", noted)
    eager(**inputs)
    monkeypatch.undo()

    seen = calls_of(built.model, part, inputs)
    assert len(seen) == len(expected) > 0
    for (_, query, key, scaling, mask), weights in zip(seen, expected, strict=True):
        rows = attention_rows(query, key, scaling, mask)
        if part == "language":  # queries that stand in the padding see nothing, which eager makes uniform
            attended = inputs["attention_mask"].bool()
            rows, weights = rows.transpose(1, 2)[attended], weights.transpose(1, 2)[attended]
        assert near(rows, weights)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_token_spends_all_attention_and_none_on_padding(family: str) -> None:
    built, inputs = ragged(family)
    padding = inputs["attention_mask"] == 0
    for _, query, key, scaling, mask in calls_of(built.model, "language", inputs):
        assert mask is not None
        last = attention_rows(query[:, :, -1:], key, scaling, mask[:, :, -1:])
        assert torch.allclose(last.sum(-1), torch.ones(last.shape[:-1]))
        assert bool((last.transpose(1, 3)[padding] == 0).all())
        by_padding = attention_rows(query[:, :, -1:], key, scaling, inputs["attention_mask"])
        assert torch.equal(by_padding, last)


@pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
def test_causal_attention_comes_with_its_mask(family: str) -> None:
    """Without padding sdpa gets no mask but a flag; the observer still gets one that hides the future."""
    built = tiny(family)
    inputs = prompts(built, [("What?", [picture(1)])])
    for _, query, key, scaling, mask in calls_of(built.model, "language", inputs):
        rows = attention_rows(query, key, scaling, mask)
        assert torch.equal(rows, rows.tril())
        assert torch.allclose(rows.sum(-1), torch.ones(rows.shape[:-1]))


@torch.no_grad()
def test_decoding_is_watched_with_the_cached_keys() -> None:
    built = tiny("qwen3_vl")
    inputs = prompts(built, [("What?", [picture(1)])])
    width = inputs["input_ids"].shape[1]
    seen: list[tuple[int, int]] = []
    stock = built.model.generate(**inputs, max_new_tokens=3, do_sample=False)

    def observe(_: int, query: Tensor, key: Tensor, *__: Any) -> None:
        seen.append((query.shape[2], key.shape[2]))

    with watch_attention(built.model, "language", observe) as watched:
        ids = watched.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert torch.equal(ids, stock)
    assert seen[::2] == [(width, width), (1, width + 1), (1, width + 2)]


@torch.no_grad()
def test_eager_is_watched_under_sdpa_and_stays_eager() -> None:
    built, inputs = ragged("llava")
    eager = copy.deepcopy(built.model)
    eager.set_attn_implementation("eager")
    before = eager(**inputs).logits
    with (
        watch_attention(eager, "language", lambda *_: None) as half,
        watch_attention(half, "vision", lambda *_: None) as watched,
    ):
        logits = watched(**inputs).logits
        assert torch.equal(eager(**inputs).logits, before)  # with its own causal mask
        assert set(configured(eager)) == {"eager"}
    assert torch.equal(logits, built.model(**inputs).logits)  # which is set to sdpa
    assert set(configured(eager)) == {"eager"}


@torch.no_grad()
@each("part", PARTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_error_of_the_observer_ends_the_twins_call_alone(family: str, part: Part) -> None:
    built, inputs = ragged(family)
    stock, before = built.model(**inputs).logits, state(built.model)

    def observe(*_: Any) -> None:
        raise ArithmeticError("seen enough")

    with watch_attention(built.model, part, observe) as watched:
        with pytest.raises(ArithmeticError):
            watched(**inputs)
        assert torch.equal(built.model(**inputs).logits, stock)
    with pytest.raises(ArithmeticError), watch_attention(built.model, part, observe) as watched:
        watched(**inputs)
    assert state(built.model) == before
    assert torch.equal(built.model(**inputs).logits, stock)
    assert torch.equal(watched(**inputs).logits, stock)  # nobody is told


@torch.no_grad()
def test_both_parts_may_be_watched_by_watching_the_twin() -> None:
    built, inputs = ragged("qwen3_vl")
    model, counts = built.model, {"language": 0, "vision": 0}
    stock = model(**inputs).logits

    def counting(part: str) -> Any:
        return lambda *_: counts.update({part: counts[part] + 1})

    with watch_attention(model, "language", counting("language")) as language:
        with watch_attention(language, "vision", counting("vision")) as both:
            assert torch.equal(both(**inputs).logits, stock)
        assert counts == {"language": 2, "vision": 3 * 2}  # layers: 2; 3, each per image
        language(**inputs)
    assert counts == {"language": 4, "vision": 3 * 2}


@torch.no_grad()
def test_a_watch_inside_another_of_the_same_part() -> None:
    """One observer at a time: that of the innermost watch, and after it the outer one again."""
    built, inputs = ragged("llava")
    first: list[int] = []
    second: list[int] = []
    with watch_attention(built.model, "language", lambda layer, *_: first.append(layer)) as outer:
        with watch_attention(built.model, "language", lambda layer, *_: second.append(layer)) as inner:
            inner(**inputs)
        assert (first, second) == ([], [0, 1])
        outer(**inputs)
    assert (first, second) == ([0, 1], [0, 1])


class TestThreads:
    """Any number of threads may watch one model, and call it beside."""

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    @pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
    def test_each_sees_its_own_calls(self, family: str, attention: str) -> None:
        built = tiny(family)
        model = copy.deepcopy(built.model)  # no twin of it is made yet
        model.set_attn_implementation(attention)
        questions = ["What?", "Where is the word?", "How many are there?", "Is it so?"]
        inputs = [prompts(built, [(question, [picture(i)])]) for i, question in enumerate(questions)]
        stock = [model(**one).logits for one in inputs]
        watched_alone = [built.model(**one).logits for one in inputs]  # under sdpa
        together = threading.Barrier(2 * len(questions), timeout=60)

        def watching(i: int) -> None:
            calls: list[tuple[int, int]] = []
            observe = lambda layer, query, *_: calls.append((layer, query.shape[2]))  # noqa: E731
            together.wait()
            with torch.no_grad(), watch_attention(model, "language", observe) as watched:
                for _ in range(3):
                    calls.clear()
                    assert near(watched(**inputs[i]).logits, watched_alone[i])
                    width = inputs[i]["input_ids"].shape[1]
                    assert calls == [(0, width), (1, width)]

        def calling(i: int) -> None:
            together.wait()
            with torch.no_grad():
                for _ in range(3):
                    assert torch.equal(model(**inputs[i]).logits, stock[i])

        with ThreadPoolExecutor(together.parties) as pool:
            every = [pool.submit(work, i) for work in (watching, calling) for i in range(len(questions))]
        for future in every:
            future.result()
        assert set(configured(model)) == {attention}


@torch.no_grad()
def test_the_twin_follows_the_models_weights_and_adapters() -> None:
    built, inputs = ragged("llava")
    model = copy.deepcopy(built.model)

    def watched_logits() -> Tensor:
        with watch_attention(model, "language", lambda *_: None) as watched:
            return watched(**inputs).logits

    before = watched_logits()
    model.get_input_embeddings().weight.mul_(0.5)
    assert torch.equal(watched_logits(), model(**inputs).logits)
    assert not torch.equal(watched_logits(), before)
    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False), "mine")
    adapted = model(**inputs).logits
    assert torch.equal(watched_logits(), adapted)
    model.disable_adapters()
    assert torch.equal(watched_logits(), model(**inputs).logits)
    assert not torch.equal(watched_logits(), adapted)
    model.to(torch.float64)
    inputs["pixel_values"] = inputs["pixel_values"].double()
    assert torch.equal(watched_logits(), model(**inputs).logits)


@pytest.mark.slow
def test_a_model_that_is_gone_takes_its_twins_with_it() -> None:
    model = copy.deepcopy(tiny("llava").model)
    with watch_attention(model, "language", lambda *_: None):
        pass
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


@pytest.mark.slow
def test_a_watch_lets_go_of_its_observer() -> None:
    class Observer:
        def __call__(self, *_: Any) -> None: ...

    observe = Observer()
    alive = weakref.ref(observe)
    with watch_attention(tiny("llava").model, "language", observe):
        pass
    del observe
    gc.collect()
    assert alive() is None


@torch.no_grad()
def test_another_model_is_not_observed() -> None:
    built, inputs = ragged("llava")
    other = copy.deepcopy(built.model)
    seen: list[int] = []
    with (
        watch_attention(built.model, "language", lambda layer, *_: seen.append(layer)) as watched,
        watch_attention(other, "language", lambda *_: None) as others,
    ):
        other(**inputs)
        others(**inputs)
        assert not seen
        watched(**inputs)
    assert seen


def test_a_part_that_is_not_there_is_named() -> None:
    built = tiny("llava")
    with pytest.raises(ValueError, match="part 'audio' is unknown"):
        attention_modules(built.model, "audio")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no vision part"):
        attention_modules(built.model.get_decoder(), "vision")


class TestRows:
    def drawn(self, queries: int = 5, keys: int = 7) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        query = torch.randn(2, 4, queries, 8, generator=generator)
        return query, torch.randn(2, 2, keys, 8, generator=generator)

    def test_heads_share_their_group_s_keys(self) -> None:
        query, key = self.drawn()
        rows = attention_rows(query, key, 0.3)
        for head in range(4):
            alone = (query[:, head] @ key[:, head // 2].mT * 0.3).softmax(-1)
            assert near(rows[:, head], alone)

    def test_masks_of_every_kind_say_the_same(self) -> None:
        query, key = self.drawn()
        seen = torch.ones(2, 7, dtype=torch.bool)
        seen[0, :3] = False
        rows = attention_rows(query, key, 0.3, seen)
        full = seen[:, None, None].expand(2, 1, 5, 7)
        for low in (torch.finfo(torch.float32).min, -torch.inf):
            added = torch.zeros(full.shape).masked_fill(~full, low)
            assert torch.equal(attention_rows(query, key, 0.3, added), rows)
        assert torch.equal(attention_rows(query, key, 0.3, full), rows)
        assert torch.equal(attention_rows(query, key, 0.3, seen.long()), rows)
        assert bool((rows[0, :, :, :3] == 0).all())
        without = attention_rows(query[:1], key[:1, :, 3:], 0.3)
        assert near(rows[:1, :, :, 3:], without)

    def test_an_added_bias_counts(self) -> None:
        query, key = self.drawn()
        bias = torch.randn(2, 1, 5, 7, generator=torch.Generator().manual_seed(1))
        scores = query @ key.repeat_interleave(2, 1).mT * 0.3 + bias
        assert near(attention_rows(query, key, 0.3, bias), scores.softmax(-1))

    def test_a_query_that_sees_nothing_is_zero(self) -> None:
        query, key = self.drawn()
        blind = torch.zeros(2, 1, 5, 7, dtype=torch.bool)
        for mask in (blind, blind.float() + torch.finfo(torch.float32).min, blind.float() - torch.inf):
            assert bool((attention_rows(query, key, 0.3, mask) == 0).all())

    def test_half_precision_is_softmaxed_in_float32(self) -> None:
        query, key = self.drawn()
        rows = attention_rows(query.bfloat16(), key.bfloat16(), 0.3)
        assert rows.dtype == torch.float32
        assert near(rows.sum(-1), torch.ones(2, 4, 5))

    def test_heads_that_do_not_divide_are_named(self) -> None:
        query, key = self.drawn()
        with pytest.raises(ValueError, match="3 query heads are no multiple of 2 key heads"):
            attention_rows(query[:, :3], key, 0.3)


class TestReceived:
    def test_it_is_the_mean_over_heads_and_queries(self) -> None:
        query, key = TestRows().drawn(queries=11)
        whole = attention_rows(query[:1], key[:1], 0.3)[0].mean((0, 1))
        for rows in (1, 4, 11, 1024):
            received = attention_received(query[0], key[0], 0.3, rows=rows)
            assert near(received, whole)
            assert received.sum().item() == pytest.approx(1)

    def test_a_key_like_every_query_receives_most(self) -> None:
        query = torch.ones(2, 9, 8)
        key = torch.zeros(2, 6, 8)
        key[:, 4] = 1
        assert attention_received(query, key, 1.0, rows=2).argmax() == 4

    def test_all_probabilities_are_never_held_at_once(self) -> None:
        held: list[int] = []
        query, key = torch.randn(2, 100, 4), torch.randn(2, 100, 4)

        class Held(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                output = func(*args, **(kwargs or {}))
                if isinstance(output, Tensor):
                    held.append(output.numel())
                return output

        with Held():
            attention_received(query, key, 0.5, rows=10)
        assert max(held) == 2 * 10 * 100

    def test_no_rows_are_refused(self) -> None:
        with pytest.raises(ValueError, match="rows 0 is below 1"):
            attention_received(torch.ones(1, 2, 4), torch.ones(1, 2, 4), 1.0, rows=0)
