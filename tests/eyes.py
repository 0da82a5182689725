"""Tiny models with eyes for choosing before the encoder, for the tests of the modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.model import ARRCOCModel
from arr_coc.modes import route
from arr_coc.modes.call import Prepared
from arr_coc.seam import Compacted, gestalt
from tiny import LLAVA_FAMILIES, QWEN_FAMILIES, WIDTH, picture, prompts, tiny

KINDS = ("guide", "gaze", "covering", "stem")
"""By what cells are known before the encoder: what the guide says, where an untrained model looks, the
gestalt token that covers them, or what a stem sees."""
IMAGES = [picture(1, (48, 40)), picture(2, (40, 72))]  # 30 and 45 cells
ROWS = [("What is the number on the door?", IMAGES[:1]), ("Where?", IMAGES[1:])]
every_kind = pytest.mark.parametrize("kind", KINDS)
sparse_families = pytest.mark.parametrize("family", QWEN_FAMILIES)
llava_families = pytest.mark.parametrize("family", LLAVA_FAMILIES)
TOTAL, COARSE = 40, 9
"""Small stand-ins for 529 and 256: the first image keeps all of its cells, the second has a gestalt of 8."""


def set_constants(monkeypatch: pytest.MonkeyPatch, total: int = TOTAL, coarse: int = COARSE) -> None:
    """Visual tokens in mode "saccade", and the most of a gestalt."""
    monkeypatch.setattr(route, "SACCADE_TOKENS", total)
    monkeypatch.setattr(gestalt, "CELLS", coarse)


def moved(module: nn.Module, seed: int = 1) -> Any:
    """A module away from its start, as if it were trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return module


def build(family: str = "qwen3_vl", kind: str = "stem", **more: Any) -> ARRCOCModel:
    """A model of its own around the shared base, strict and with a budget of 7."""
    built, parts = tiny(family), {}
    if kind == "gaze":
        parts["relevance"] = "gaze"
    elif kind != "guide":
        parts["layer"] = moved(ARRCOCLayer(ARRCOCConfig(dim=WIDTH)))
        parts["layer"].trained = True
    if kind == "stem":
        parts["stem"] = moved(Stem(WIDTH, width=16, blocks=1))
    return ARRCOCModel(built.model, built.processor, **({"budget": 7, "strict": True} | parts | more))


@cache
def wrapped(family: str = "qwen3_vl", kind: str = "stem") -> ARRCOCModel:
    """`build` once, for tests that change nothing."""
    return build(family, kind)


def inputs_of(family: str = "qwen3_vl", rows: list = ROWS) -> dict[str, Any]:
    """Processor inputs."""
    return prompts(tiny(family), rows)


@contextmanager
def patches_seen(model: ARRCOCModel) -> Iterator[list[int]]:
    """How many patches each call of the vision tower gets."""
    seen: list[int] = []
    tower = model.base.model.visual
    hook = tower.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    try:
        yield seen
    finally:
        hook.remove()


@contextmanager
def calls_of(modules: Sequence[nn.Module], *, begun: bool = False) -> Iterator[list[int]]:
    """Which of some modules are called, by index, whether in their own tree or in that of a twin.

    Args:
        modules: of a model's own tree; a module and its twin hold the same dictionary of parameters.
        begun: count calls that begin; else those that end.
    """
    indices = {id(module._parameters): index for index, module in enumerate(modules)}
    calls: list[int] = []

    def note(module: nn.Module, *_: Any) -> None:
        if id(module._parameters) in indices:
            calls.append(indices[id(module._parameters)])

    register = nn.modules.module.register_module_forward_hook
    if begun:
        register = nn.modules.module.register_module_forward_pre_hook
    hook = register(note)
    try:
        yield calls
    finally:
        hook.remove()


@torch.no_grad()
def prepared_for(model: ARRCOCModel, inputs: dict, mode: str, **more: Any) -> Prepared:
    return model.prepare(inputs, mode=mode, **more)


def assert_same(found: Compacted, expected: Compacted) -> None:
    """The same call of the base model, to the last bit."""
    assert torch.equal(found.columns, expected.columns)
    one, other = dict(found.kwargs), dict(expected.kwargs)
    seen = [kwargs.pop("mm_encoder_outputs")["image"] for kwargs in (one, other)]
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert same(seen[0].pooler_output, seen[1].pooler_output)
    levels = [getattr(output, "deepstack_features", None) or [] for output in seen]
    assert len(levels[0]) == len(levels[1])
    assert all(same(*pair) for pair in zip(*levels, strict=True))


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))
