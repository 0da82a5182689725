"""The fingerprint of weights: one for a base model, whatever was put into it or around it."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from arr_coc.choose.stem import Familiarity, Stem
from arr_coc.model import ARRCOCModel
from arr_coc.store.allocator import fingerprint
from tiny import picture, prompts, tiny


def stock() -> Any:
    return copy.deepcopy(tiny("qwen3_vl").model)


@pytest.fixture(scope="module")
def expected() -> str:
    """By names and values alone, as version 0.1 did."""
    digest = hashlib.sha256()
    for name, values in sorted(tiny("qwen3_vl").model.state_dict().items()):
        flat = values.flatten()
        some = flat[:: max(1, len(flat) // 64)][:64]
        digest.update(name.encode() + some.double().numpy().tobytes())
    return digest.hexdigest()[:16]


def test_a_model_as_it_comes(expected: str) -> None:
    assert fingerprint(stock()) == expected


@torch.no_grad()
def test_wrapped_used_and_unwrapped(expected: str) -> None:
    base = stock()
    model = ARRCOCModel.wrap(base, tiny("qwen3_vl").processor, budget=4)
    model.loras.add("own", 2)
    model.loras.add("partial", 2)
    inputs = prompts(tiny("qwen3_vl"), [("What?", [picture(1)])])
    model(**inputs)  # an untrained layer watches attention
    assert fingerprint(model.base) == expected
    assert fingerprint(model.adapter_for("sparse").model) == expected
    assert fingerprint(model.unwrap()) == expected


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft reads it
@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}])
def test_with_adapters_of_the_user(expected: str, options: dict[str, Any]) -> None:
    wrapped = get_peft_model(stock(), LoraConfig(r=2, target_modules=["q_proj", "up_proj"], **options))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.add_(1.0)
    assert fingerprint(wrapped) == expected
    assert fingerprint(wrapped.get_base_model()) == expected
    assert fingerprint(ARRCOCModel.wrap(wrapped).base) == expected


@pytest.mark.slow
def test_compiled(expected: str) -> None:
    base = stock()
    base.model.language_model = torch.compile(base.model.language_model)
    assert fingerprint(base) == expected


def test_other_weights_have_another() -> None:
    one, other, renamed = nn.Linear(3, 3), nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3))
    renamed[0].load_state_dict(one.state_dict())
    assert len({fingerprint(module) for module in (one, other, renamed)}) == 3
    with torch.no_grad():
        before = fingerprint(one)
        one.weight[0, 0] += 1
    assert fingerprint(one) != before


@torch.no_grad()
def test_a_stem_has_one_whether_familiarity_was_fitted_to_it_or_not() -> None:
    stem = Stem(8, 16, 1)
    before = fingerprint(stem)
    stem.familiarity = Familiarity(8)
    stem.familiarity.bias += 1
    assert fingerprint(stem) == before
    stem.patch.up.weight[0, 0] += 1
    assert fingerprint(stem) != before
