"""Settings, limits and refusals on hand-made cases; whole generations are in test_model.py.

Run: pytest tests/test_decoding.py
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GenerationConfig

from arr_coc.decoding import REFUSED, generate_whole, refuse_cache, refuse_settings, setting
from arr_coc.seam import Compacted


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
    compacted = Compacted({"input_ids": torch.tensor([[1, 4, 5], [99, 6, 0]])}, columns)
    return generate_whole(base, {"input_ids": ids}, compacted, **more)


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


@pytest.mark.parametrize("name", REFUSED)
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


def test_caches() -> None:
    refuse_cache(None)
    cache = DynamicCache()
    refuse_cache(cache)
    cache.update(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), 0)
    with pytest.raises(ValueError, match="past_key_values can't be continued"):
        refuse_cache(cache)
