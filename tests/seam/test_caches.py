"""Key/value caches: their name, their marks, and what refuses them."""

from __future__ import annotations

import pytest
import torch
import transformers
from packaging.version import Version
from transformers import DynamicCache

from arr_coc.families import adapter_for
from arr_coc.seam import PAD, Compacted
from arr_coc.seam.decoding import (
    CACHE,
    DROPPED_MARK,
    cache_of,
    generate_whole,
    mark_caches,
    refuse_cache,
    refuse_pruned_cache,
)
from tiny import compacted, picture, prompts, tiny

ROWS = [("What is the number on the door?", [picture(1, (48, 40))]), ("Where?", [picture(2, (40, 72))])]


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
    model, inputs, less = compacted("qwen3_vl", ROWS)
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
    inputs = prompts(built, ROWS)
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
