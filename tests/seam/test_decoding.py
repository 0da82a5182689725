"""Decoding: settings, limits and refusals on hand-made cases, and the caches it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    MaxLengthCriteria,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
)
from transformers.generation import BaseStreamer

from arr_coc.families import adapter_for
from arr_coc.seam import PAD, Compacted
from arr_coc.seam.decoding import (
    CACHE,
    DROPPED_MARK,
    REFUSED,
    cache_of,
    check_length,
    generate_whole,
    mark_caches,
    named_arguments,
    refuse_cache,
    refuse_pruned_cache,
    refuse_settings,
    setting,
    with_inferred_mask,
)
from each import each
from tiny import KINDS, apart, compacted, picture, prompts, tiny

# ---- decoding --------------------------------------------------------------------------------------------

ROWS = [("What is the number on the door?", [picture(1, (48, 40))]), ("Where?", [picture(2, (40, 72))])]


class Base:
    """Answers every call with two new tokens, 50 and 51, and remembers its arguments."""

    def __init__(self, **config: Any) -> None:
        self.generation_config = SimpleNamespace(**config)

    def generate(self, **kwargs: Any) -> torch.Tensor:
        self.kwargs = kwargs
        ids = kwargs["input_ids"].repeat_interleave(kwargs.get("num_return_sequences", 1), dim=0)
        return torch.cat([ids, torch.tensor([[50, 51]]).expand(len(ids), 2)], dim=1)


def call(base: Base, **more: Any) -> torch.Tensor:
    ids = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 0]])
    columns = torch.tensor([[0, 3, 4], [-1, 0, 4]])
    less = Compacted({"input_ids": torch.tensor([[1, 4, 5], [99, 6, 0]])}, columns)
    return generate_whole(base, {"input_ids": ids}, less, **more)


def test_feature() -> None:
    assert call(Base()).tolist() == [[1, 2, 3, 4, 5, 50, 51], [6, 7, 8, 9, 0, 50, 51]]
    assert call(Base(), num_return_sequences=2)[:, 0].tolist() == [1, 1, 6, 6]


def test_setting_prefers_the_call_then_its_config_then_the_models() -> None:
    base = Base(num_beams=4, top_k=7)
    config = GenerationConfig(num_beams=3)
    assert setting(base, {"num_beams": 2, "generation_config": config}, "num_beams") == 2
    assert setting(base, {"generation_config": config}, "num_beams") == 3
    assert setting(base, {}, "num_beams") == 4
    assert setting(base, {"num_beams": None}, "num_beams") == 4
    assert setting(base, {}, "unheard_of") is None


def test_limits_that_count_the_prompt_shrink_with_it() -> None:
    base = Base()
    call(base, max_length=9, min_length=6)
    assert (base.kwargs["max_length"], base.kwargs["min_length"]) == (7, 4)
    call(base, max_length=9, max_new_tokens=2)
    assert base.kwargs["max_length"] == 9  # not used by generate then
    config = GenerationConfig(max_length=9)
    call(base, generation_config=config)
    assert base.kwargs["generation_config"].max_length == 7
    assert config.max_length == 9
    call(own := Base(max_length=8))
    assert own.kwargs["max_length"] == 6


@each("name", REFUSED)
def test_refused_settings(name: str) -> None:
    for base, kwargs in ((Base(), {name: 3}), (Base(**{name: 3}), {}), (Base(), {name: object()})):
        with pytest.raises(ValueError, match=f"{name} can't be used while tokens are dropped: .*mode='full'"):
            refuse_settings(base, kwargs)
    refuse_settings(Base(**{name: None}), {})
    refuse_settings(Base(**{name: False}), {})


def test_neutral_guidance_and_paged_caches() -> None:
    refuse_settings(Base(), {"guidance_scale": 1.0, "cache_implementation": "static"})
    with pytest.raises(ValueError, match="paged cache"):
        refuse_settings(Base(), {"cache_implementation": "paged"})


SEVERAL = [("Which one?", [picture(0, (97, 36)), picture(50, (24, 36))]), ("Where?", [picture(2, (40, 56))])]


@pytest.mark.parametrize("family", [*apart([one for one in KINDS if one != "glm4v"]), "glm4v"])
@each("way", [{"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}], ids=str)
def test_every_copy_of_a_prompt_reads_all_of_its_images(family: str, way: dict) -> None:
    """Of several in one prompt: `generate` of some families and releases repeats them one by one."""
    model, inputs, less = compacted(family, SEVERAL)
    more = {"max_new_tokens": 1, "output_logits": True, "return_dict_in_generate": True}
    alone = generate_whole(model, inputs, less, do_sample=False, **more).logits[0]
    model, inputs, less = compacted(family, SEVERAL)  # what is handed over is expanded in place
    copies = generate_whole(model, inputs, less, **more, **way).logits[0]
    expected = alone.repeat_interleave(len(copies) // len(alone), dim=0)
    assert (copies - expected).abs().max() < 1e-3


# ---- callbacks -------------------------------------------------------------------------------------------


class StopAfter(StoppingCriteria):
    """Stops when a row has `count` new tokens, by the usual idiom `ids[:, n:]`."""

    def __init__(self, prompt: int, count: int) -> None:
        self.prompt, self.count, self.ids = prompt, count, []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.ids.append(input_ids.clone())
        return torch.full((len(input_ids),), input_ids[:, self.prompt :].shape[1] >= self.count)


class OnlyAfter(LogitsProcessor):
    """Allows one token alone as soon as a row has a new token."""

    def __init__(self, prompt: int, token: int) -> None:
        self.prompt, self.token, self.ids = prompt, token, []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.ids.append(input_ids.clone())
        if not input_ids[:, self.prompt :].shape[1]:
            return scores
        only = torch.full_like(scores, float("-inf"))
        only[:, self.token] = 0.0
        return only


WAYS = [
    {"do_sample": False},
    {"do_sample": False, "num_beams": 3},
    {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
    {"do_sample": True, "num_return_sequences": 3},
    {"generation_config": GenerationConfig(num_beams=2, pad_token_id=0)},
    {"generation_config": GenerationConfig(do_sample=True, num_return_sequences=2, pad_token_id=0)},
]


@each("way", WAYS, ids=str)
class TestCallbacks:
    def test_a_stopping_criterion_gets_the_whole_prompt(self, way: dict) -> None:
        model, inputs, less = compacted("qwen3_vl", ROWS)
        ids = inputs["input_ids"]
        criterion = StopAfter(ids.shape[1], 2)
        out = generate_whole(model, inputs, less, stopping_criteria=[criterion], max_new_tokens=6, **way)
        assert out.shape[1] == ids.shape[1] + 2
        for seen in criterion.ids:
            assert torch.equal(seen[:, : ids.shape[1]], ids.repeat_interleave(len(seen) // 2, dim=0))

    def test_a_logits_processor_gets_the_whole_prompt(self, way: dict) -> None:
        model, inputs, less = compacted("qwen3_vl", ROWS)
        ids = inputs["input_ids"]
        processor = OnlyAfter(ids.shape[1], 77)
        out = generate_whole(model, inputs, less, logits_processor=[processor], max_new_tokens=4, **way)
        assert (out[:, ids.shape[1] + 1 :] == 77).all()
        assert [seen.shape[1] - ids.shape[1] for seen in processor.ids] == [0, 1, 2, 3]
        for seen in processor.ids:
            assert torch.equal(seen[:, : ids.shape[1]], ids.repeat_interleave(len(seen) // 2, dim=0))

    def test_a_prefix_function_gets_the_whole_prompt(self, way: dict) -> None:
        model, inputs, less = compacted("qwen3_vl", ROWS)
        ids, stock, rows = inputs["input_ids"], set(), set()

        def recorded(row: int, so_far: Tensor) -> list[int]:
            stock.add(row)
            return [60, 70]

        model.generate(**inputs, prefix_allowed_tokens_fn=recorded, max_new_tokens=1, **way)

        def allowed(row: int, so_far: Tensor) -> list[int]:
            rows.add(row)
            assert torch.equal(so_far[: ids.shape[1]], ids[row * len(ids) // len(stock)])
            new = so_far[ids.shape[1] :]
            return [60 + len(new), 70 + len(new)]

        out = generate_whole(model, inputs, less, prefix_allowed_tokens_fn=allowed, max_new_tokens=3, **way)
        new = out[:, ids.shape[1] :]
        assert torch.isin(new - torch.arange(3), torch.tensor([60, 70])).all()
        assert rows == stock


class TestCallbacksOfTransformers:
    """Its own classes take the place of what the settings say, as in stock `generate`."""

    def test_criteria_that_count_the_prompt_count_the_whole_one(self) -> None:
        model, inputs, less = compacted("qwen3_vl", ROWS)
        length = inputs["input_ids"].shape[1]
        limit = MaxLengthCriteria(max_length=length + 5)
        out = generate_whole(model, inputs, less, stopping_criteria=[limit], max_new_tokens=2)
        stock = model.generate(**inputs, stopping_criteria=[limit], max_new_tokens=2)
        assert out.shape == stock.shape == (2, length + 5)
        assert limit.max_length == length + 5

    def test_processors_that_count_the_prompt_count_the_whole_one(self) -> None:
        model, inputs, less = compacted("qwen3_vl", ROWS)
        length = inputs["input_ids"].shape[1]
        first = generate_whole(model, inputs, less, do_sample=False, max_new_tokens=1)[:, -1]
        more = {"do_sample": False, "max_new_tokens": 4, "eos_token_id": first.tolist()}
        assert generate_whole(model, inputs, less, **more).shape[1] == length + 1
        later = MinNewTokensLengthLogitsProcessor(length, 3, first.tolist())
        assert generate_whole(model, inputs, less, logits_processor=[later], **more).shape[1] >= length + 3

    def test_one_takes_the_place_of_the_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, inputs, less = compacted("qwen3_vl", ROWS[:1])
        monkeypatch.setattr(model.generation_config, "repetition_penalty", 0.01)  # asks for repetition
        more = {"do_sample": False, "max_new_tokens": 6}
        with_settings = generate_whole(model, inputs, less, **more)
        none = [RepetitionPenaltyLogitsProcessor(1.0, prompt_ignore_length=inputs["input_ids"].shape[1])]
        without = generate_whole(model, inputs, less, logits_processor=none, **more)
        monkeypatch.setattr(model.generation_config, "repetition_penalty", None)
        assert torch.equal(without, generate_whole(model, inputs, less, **more))
        assert not torch.equal(without, with_settings)


def test_a_streamer_gets_every_row_of_the_whole_prompt() -> None:
    class Collect(BaseStreamer):
        def __init__(self) -> None:
            self.values: list[Tensor] = []

        def put(self, value: Tensor) -> None:
            self.values.append(value)

        def end(self) -> None:
            pass

    model, inputs, less = compacted("qwen3_vl", ROWS)
    collect = Collect()
    more = {"do_sample": True, "num_return_sequences": 2, "max_new_tokens": 2}
    generate_whole(model, inputs, less, streamer=collect, **more)
    assert torch.equal(collect.values[0], inputs["input_ids"].repeat_interleave(2, dim=0))
    assert [len(value) for value in collect.values[1:]] == [4, 4]


# ---- arguments as stock takes them -----------------------------------------------------------------------


def test_positional_arguments_get_their_names() -> None:
    model, ids = tiny("qwen3_vl").model, torch.ones(1, 3, dtype=torch.long)
    config = GenerationConfig(max_new_tokens=2)
    assert named_arguments(model.generate, (ids, config), {"do_sample": False}) == {
        "input_ids": ids,
        "generation_config": config,
        "do_sample": False,
    }
    assert named_arguments(model.generate, (), {"inputs": ids}) == {"input_ids": ids}
    assert named_arguments(model.generate, (None,), {"input_ids": ids}) == {"input_ids": ids}
    assert named_arguments(model.forward, (ids,), {"use_cache": False}) == {
        "input_ids": ids,
        "use_cache": False,
    }
    for args, kwargs, word in (
        ((ids,), {"input_ids": ids}, "both given"),
        ((), {"inputs": ids, "input_ids": ids}, "both given"),
        ((ids, config), {"generation_config": config}, "generation_config was given twice"),
        ((None,) * 40, {}, "40 positional arguments"),
    ):
        with pytest.raises(ValueError, match=word):
            named_arguments(model.generate, args, kwargs)


def test_a_missing_mask_is_inferred_as_in_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, _ = compacted("qwen3_vl", ROWS)
    mask = inputs.pop("attention_mask")
    assert (mask == 0).any()
    assert torch.equal(with_inferred_mask(model, inputs)["attention_mask"], mask)
    ones = torch.ones_like(mask)
    assert with_inferred_mask(model, inputs | {"attention_mask": ones})["attention_mask"] is ones
    pad = model.generation_config.pad_token_id
    for eos in (pad, [5, pad]):  # a padding token that ends sequences may be text
        assert "attention_mask" not in with_inferred_mask(model, inputs | {"eos_token_id": eos})
    assert "attention_mask" not in with_inferred_mask(model, inputs | {"input_ids": ones})
    monkeypatch.setattr(model.generation_config, "pad_token_id", None)
    assert "attention_mask" not in with_inferred_mask(model, inputs)
    assert torch.equal(with_inferred_mask(model, inputs | {"pad_token_id": pad})["attention_mask"], mask)


def test_chunked_prefill_is_refused_where_stock_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed in ("5.18.0", "5.22.1"):
        monkeypatch.setattr(transformers, "__version__", installed)
        refuse_settings(Base(), {})
        for base, kwargs in ((Base(), {"prefill_chunk_size": 8}), (Base(prefill_chunk_size=8), {})):
            with pytest.raises(ValueError, match=f"prefill_chunk_size 8 .*{installed}.*transformers >= 5.23"):
                refuse_settings(base, kwargs)
    for installed in ("5.23.0", "5.24.0"):
        monkeypatch.setattr(transformers, "__version__", installed)
        refuse_settings(Base(), {"prefill_chunk_size": 8})


def test_a_length_is_a_whole_number() -> None:
    for count in (1, np.int64(32)):
        check_length(count)
    for count in ("3", 1.5, 0, True, None, np.float32(2)):
        with pytest.raises(ValueError, match=r"max_new_tokens .* is no count of tokens: use a whole number"):
            check_length(count)


# ---- caches ----------------------------------------------------------------------------------------------

CACHED = [("What is the number on the door?", [picture(1, (48, 40))]), ("Where?", [picture(2, (40, 72))])]


def test_name_in_this_release() -> None:
    renamed = Version(transformers.__version__) >= Version("5.24")
    assert CACHE == ("cache" if renamed else "past_key_values")


def test_either_name_is_read() -> None:
    own = DynamicCache()
    assert cache_of({CACHE: own}) is own
    assert cache_of({"past_key_values": own}) is own
    assert cache_of({}) is None
    assert cache_of({CACHE: None}) is None


def test_caches() -> None:
    refuse_cache(None)
    cache = DynamicCache()
    refuse_cache(cache)
    cache.update(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), 0)
    with pytest.raises(ValueError, match=f"{CACHE} can't be continued"):
        refuse_cache(cache)


def test_a_cache_that_lacks_tokens_is_refused_in_full_mode_too() -> None:
    model, inputs, less = compacted("qwen3_vl", CACHED)
    own = DynamicCache()
    more = {"max_new_tokens": 2, "return_dict_in_generate": True}
    out = generate_whole(model, inputs, less, **{CACHE: own}, **more)
    for cache in (own, out[CACHE]):
        with pytest.raises(ValueError, match=rf"{CACHE} comes from a call that dropped.*mode='full'"):
            refuse_pruned_cache(cache)
    with torch.no_grad():
        in_a_tuple = model(**less.kwargs, return_dict=False)
    mark_caches(in_a_tuple, None, less.columns, inputs)
    with pytest.raises(ValueError, match=f"{CACHE} comes from a call that dropped"):
        refuse_pruned_cache(next(part for part in in_a_tuple if isinstance(part, DynamicCache)))
    own.reset()
    refuse_pruned_cache(own)  # nothing is lacking in an emptied one
    everything = Compacted(
        {name: value for name, value in inputs.items() if name != CACHE},
        torch.arange(inputs["input_ids"].shape[1]).expand(2, -1),
    )
    out = generate_whole(model, inputs, everything, **more)
    assert out[CACHE].get_seq_length() > 0
    refuse_pruned_cache(out[CACHE])
    refuse_pruned_cache(None)
    refuse_pruned_cache(DynamicCache())


@torch.no_grad()
def test_padding_is_no_column_and_none_that_is_lacking() -> None:
    """With every cell kept, as with some dropped; a dropped first column of a shorter row is one."""
    built = tiny("qwen3_vl")
    inputs = prompts(built, CACHED)
    assert not bool(inputs["attention_mask"].all())
    adapter = adapter_for(built.model, built.processor)
    features = adapter.features(inputs)
    whole = adapter.compact(inputs, features, [torch.arange(len(cells)) for cells in features.cells])
    assert torch.equal(whole.columns == PAD, inputs["attention_mask"] == 0)
    cache = DynamicCache()
    mark_caches((cache,), None, whole.columns, inputs)
    assert not hasattr(cache, DROPPED_MARK)
    lacking = whole.columns.clone()
    lacking[0, inputs["attention_mask"][0].argmax()] = PAD
    mark_caches((cache,), None, lacking, inputs)
    assert hasattr(cache, DROPPED_MARK)
