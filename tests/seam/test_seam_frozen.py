"""Freezing of a base model that several wrappers share: the last of them gives it back as it came."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest

from arr_coc import ARRCOCModel
from tiny import picture, prompts, tiny


def base() -> Any:
    return copy.deepcopy(tiny("qwen3_vl").model).requires_grad_(True).train()


def wrapped(model: Any) -> ARRCOCModel:
    return ARRCOCModel.wrap(model, tiny("qwen3_vl").processor, budget=6)


def is_frozen(model: Any) -> bool:
    """Whether all of it is, where none of it was when it came.

    Raises:
        AssertionError: a part of it is.
    """
    flags = {not module.training for module in model.modules()}
    flags |= {not parameter.requires_grad for parameter in model.parameters()}
    assert len(flags) == 1
    return flags.pop()


@pytest.mark.parametrize("through", ["the base", "a wrapper"])
def test_it_stays_frozen_under_the_other_wrapper(through: str) -> None:
    model = base()
    first = wrapped(model)
    second = wrapped(first if through == "a wrapper" else model)
    for _ in range(2):  # once more changes nothing
        assert first.unwrap() is model
        assert is_frozen(model)
    inputs = prompts(tiny("qwen3_vl"), [("What?", [picture(1)])])
    assert not second(**inputs, mode="full").logits.requires_grad
    assert second.unwrap() is model
    assert not is_frozen(model)


@pytest.mark.slow
def test_a_wrapper_that_is_deleted_needs_nothing() -> None:
    model = base()
    first, second = wrapped(model), wrapped(model)
    del second
    gc.collect()
    assert is_frozen(model)
    first.unwrap()
    assert not is_frozen(model)
    del first
    third = wrapped(model)
    del third
    gc.collect()
    wrapped(model).unwrap()
    assert not is_frozen(model)


def test_it_can_be_wrapped_again_by_the_same_rule() -> None:
    model = base()
    wrapped(model).unwrap()
    model.eval().requires_grad_(False)
    model.get_output_embeddings().requires_grad_(True)
    first, second = wrapped(model), wrapped(model)
    first.unwrap()
    second.unwrap()
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["lm_head.weight"]
    assert not model.training


@pytest.mark.slow
def test_neither_base_nor_wrapper_is_kept_alive() -> None:
    model = base()
    first, second = wrapped(model), wrapped(model)
    alive = [weakref.ref(one) for one in (model, first, second)]
    first.unwrap()
    del model, first, second
    gc.collect()
    assert [one() for one in alive] == [None] * 3
