"""Loaded models: where their calls run, twins over the same weights, and freezing that is given back."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from peft import LoraConfig
from torch import Tensor, nn
from transformers import LlamaConfig, LlavaConfig, MistralConfig, PreTrainedModel, Qwen2Config

from arr_coc import ARRCOCModel
from arr_coc.seam.assembly import attention_window
from arr_coc.seam.loaded import (
    CHECKPOINTING,
    SHARED,
    adapter_state,
    execution_device,
    refresh,
    twin,
    with_configs,
)
from tiny import FAMILIES, picture, prompts, tiny

# ---- seam loaded -----------------------------------------------------------------------------------------


@pytest.fixture
def offloaded() -> PreTrainedModel:
    """A model whose weights accelerate keeps elsewhere."""
    model = copy.deepcopy(tiny("qwen3_vl").model)
    cpu_offload(model, execution_device=torch.device("cpu"))
    return model


def test_execution_device() -> None:
    assert execution_device(tiny("qwen3_vl").model) == torch.device("cpu")


def test_execution_device_of_an_offloaded_model(offloaded: PreTrainedModel) -> None:
    assert offloaded.device.type == "meta"
    assert execution_device(offloaded) == torch.device("cpu")


def test_a_model_without_weights_is_nowhere() -> None:
    stock = tiny("qwen3_vl").model
    with torch.device("meta"):
        model = type(stock)(stock.config)
    assert execution_device(model).type == "meta"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_window(family: str) -> None:
    assert attention_window(tiny(family).model.config) is None


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (MistralConfig(sliding_window=16), 16),
        (MistralConfig(sliding_window=None), None),
        (Qwen2Config(use_sliding_window=True, sliding_window=32, max_window_layers=1), 32),
        (Qwen2Config(use_sliding_window=True, sliding_window=32, max_window_layers=99), None),
        (Qwen2Config(sliding_window=32), None),
        (LlamaConfig(attention_chunk_size=64), 64),
        (LlamaConfig(attention_chunk_size=64, layer_types=["full_attention"], num_hidden_layers=1), None),
        (LlamaConfig(attention_chunk_size=64, layer_types=["chunked_attention"], num_hidden_layers=1), 64),
    ],
)
def test_window(text: object, window: int | None) -> None:
    assert attention_window(LlavaConfig(text_config=text)) == window


# ---- seam twin -------------------------------------------------------------------------------------------

ENABLE = "activation_checkpointing_enable"
"""How later versions of transformers call `gradient_checkpointing_enable`."""
every_family = pytest.mark.parametrize("family", FAMILIES)


@torch.no_grad()
def logits(model: nn.Module, family: str) -> Tensor:
    inputs = prompts(tiny(family), [("What?", [picture(1)])])
    dtype = next(model.parameters()).dtype
    return model(**inputs | {"pixel_values": inputs["pixel_values"].to(dtype)}).logits


def state(model: Any) -> dict[str, Any]:
    """By which a change of a model would show."""
    return {
        "class": type(model),
        "modules": [(name, type(module), id(module)) for name, module in model.named_modules()],
        "attributes": [
            {name: id(value) for name, value in vars(module).items()} for module in model.modules()
        ],
        "children": [list(module._modules.items()) for module in model.modules()],
        "weights": {name: (value.data_ptr(), value._version) for name, value in model.state_dict().items()},
        "config": model.config.to_dict(),
        "hooks": [dict(m._forward_hooks) | dict(m._forward_pre_hooks) for m in model.modules()],
        "forward": [vars(module).get("forward") for module in model.modules()],
    }


@every_family
def test_it_computes_the_same_and_the_model_is_as_before(family: str) -> None:
    model = tiny(family).model
    stock, before = logits(model, family), state(model)
    other = twin(model)
    assert state(model) == before
    assert type(other) is type(model)
    assert torch.equal(logits(other, family), stock)
    assert state(model) == before
    names = [name for name, _ in model.named_modules()]
    assert [name for name, _ in other.named_modules()] == names
    assert {id(module) for module in other.modules()}.isdisjoint(id(module) for module in model.modules())
    assert other.config is model.config


@every_family
def test_weights_are_shared(family: str) -> None:
    model = copy.deepcopy(tiny(family).model)
    other = twin(model)
    for one, two in zip(model.modules(), other.modules(), strict=True):
        assert all(vars(one)[name] is vars(two)[name] for name in SHARED if name in vars(one))
    for values in ("named_parameters", "named_buffers"):
        ours, theirs = (dict(getattr(part, values)()) for part in (model, other))
        assert ours.keys() == theirs.keys()
        assert all(ours[name] is theirs[name] for name in ours)
    before = logits(other, family)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)
    assert not torch.equal(logits(other, family), before)
    assert torch.equal(logits(other, family), logits(model, family))
    for dtype in (torch.bfloat16, torch.float64):
        model.to(dtype)
        assert {parameter.dtype for parameter in other.parameters()} == {dtype}
        assert [b.dtype for b in other.buffers()] == [b.dtype for b in model.buffers()]
        assert torch.equal(logits(other, family), logits(model, family))
    weights = {name: value.clone() + 0.1 for name, value in model.state_dict().items()}
    model.load_state_dict(weights)
    assert torch.equal(logits(other, family), logits(model, family))


@every_family
def test_what_is_done_to_a_twin_is_not_done_to_the_model(family: str) -> None:
    model = tiny(family).model
    stock, before = logits(model, family), state(model)
    other = twin(model)
    for module in list(other.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, nn.Identity())
        module.mine = 1
        module.train()
        module.register_forward_hook(lambda *_: None)
        module.forward = None
    other.get_decoder().layers = nn.ModuleList()
    assert state(model) == before
    assert not model.training
    assert torch.equal(logits(model, family), stock)


def test_an_adapter_in_a_twin_is_not_in_the_model() -> None:
    model = tiny("qwen3_vl").model
    stock, before = logits(model, "qwen3_vl"), state(model)
    other = twin(model)
    other.add_adapter(LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False), "mine")
    assert (logits(other, "qwen3_vl") - stock).abs().max() > 1e-3
    assert state(model) == before
    assert torch.equal(logits(model, "qwen3_vl"), stock)
    assert adapter_state(model) == ()
    assert adapter_state(other) == (("mine",), ("mine",), False, ())


def test_it_costs_no_memory_to_speak_of() -> None:
    model = tiny("qwen3_vl").model
    pointers = {parameter.data_ptr() for parameter in model.parameters()}
    assert {parameter.data_ptr() for parameter in twin(model).parameters()} == pointers


class Part(nn.Module):
    """A module with attributes of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.names = ["a"]
        self.table = {"a": 1}
        self.set = {"a"}
        self.config = {"depth": [1]}
        self.nested = {"a": ["b"]}
        self.pair = (1, 2)
        self.scale = 2.0
        self.missing = None
        self.register_buffer("offset", torch.ones(3), persistent=False)
        self.register_module("nothing", None)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.scale + self.offset


class TestAttributes:
    def test_collections_are_copies_and_the_rest_is_shared(self) -> None:
        part = Part()
        other = twin(part)
        for name in ("names", "table", "set", "config", "nested"):
            one, two = getattr(part, name), getattr(other, name)
            assert one == two
            assert one is not two
            assert type(one) is type(two)
        assert other.nested["a"] is part.nested["a"]  # copies are not deep
        assert other.pair is part.pair
        assert other.nothing is None
        other.names.append("b")
        other.table["b"] = 2
        other.set.add("b")
        other.scale = 3.0
        del other.missing
        assert (part.names, part.table, part.set, part.scale, part.missing) == (
            ["a"],
            {"a": 1},
            {"a"},
            2.0,
            None,
        )

    def test_a_buffer_that_is_replaced_is_replaced_in_both(self) -> None:
        part = Part()
        other = twin(part)
        part.offset = torch.zeros(3)
        assert other.offset is part.offset
        part.linear.weight = nn.Parameter(torch.ones(3, 3))
        assert other.linear.weight is part.linear.weight

    def test_modules_that_stand_twice_do_so_in_the_twin(self) -> None:
        shared = Part()
        tree = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})
        other: Any = twin(tree)
        assert other["a"] is other["b"][0]
        assert other["a"] is not shared

    def test_a_module_that_refers_to_its_parent(self) -> None:
        tree = nn.Sequential(Part())
        object.__setattr__(tree[0], "parent", tree)  # beside the tree, as some adapters do
        other: Any = twin(tree)
        assert other[0].parent is other

    def test_a_twin_of_a_twin(self) -> None:
        part = Part()
        second = twin(twin(part))
        assert second.linear.weight is part.linear.weight
        assert torch.equal(second(torch.ones(3)), part(torch.ones(3)))

    @pytest.mark.slow
    def test_the_model_does_not_hold_its_twin(self) -> None:
        part = Part()
        other = twin(part)
        alive = weakref.ref(other)
        del other
        gc.collect()
        assert alive() is None


class TestRebinding:
    """What is bound to a module of the first tree is bound to its twin in the second."""

    def test_a_forward_of_the_instance(self) -> None:
        """As accelerate does it: the old forward is kept, and a partial of the module is put in its place."""
        tree = nn.Sequential(Part())
        part: Any = tree[0]
        calls: list[nn.Module] = []

        def hooked(module: Any, *args: Any, **kwargs: Any) -> Tensor:
            calls.append(module)
            return module._old_forward(*args, **kwargs)

        part._old_forward = part.forward
        part.forward = functools.partial(hooked, part)
        other: Any = twin(tree)
        other[0].scale = 5.0
        x = torch.ones(3)
        assert torch.equal(other(x), 5.0 * part.linear(x) + 1)
        assert torch.equal(tree(x), 2.0 * part.linear(x) + 1)
        assert calls == [other[0], part]
        assert other[0]._old_forward.__self__ is other[0]
        assert part._old_forward.__self__ is part

    def test_accelerates_own_hooks(self) -> None:
        hooks = pytest.importorskip("accelerate.hooks")

        class Counting(hooks.ModelHook):
            def __init__(self) -> None:
                self.calls: list[nn.Module] = []

            def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
                self.calls.append(module)
                return args, kwargs

        part, hook = Part(), Counting()
        hooks.add_hook_to_module(part, hook)
        other = twin(part)
        other.scale = 5.0
        x = torch.ones(3)
        assert torch.equal(other(x), 5.0 * part.linear(x) + 1)
        assert torch.equal(part(x), 2.0 * part.linear(x) + 1)
        assert hook.calls == [other, part]

    def test_methods_of_other_objects_stay(self) -> None:
        part, elsewhere = Part(), Part()
        part.measure = elsewhere.forward
        assert twin(part).measure.__self__ is elsewhere

    @pytest.mark.slow
    def test_compiled_modules_are_twins_of_what_was_compiled(self) -> None:
        """Compiled code runs its own modules: what is put into a twin would never be called."""
        tree = nn.Sequential(torch.compile(Part(), backend="eager"), Part(), Part())
        tree[1].compile(backend="eager")
        tree[2].forward = torch.compile(tree[2].forward, backend="eager")
        x, other = torch.randn(2, 3), twin(tree)
        expected = tree(x)
        assert torch.equal(other(x), expected)
        assert type(other[0]) is Part
        for part in other:
            part.linear = nn.Identity()
        assert not torch.equal(other(x), expected)
        assert torch.equal(tree(x), expected)


class TestConfigs:
    def test_one_changed_copy_for_each(self) -> None:
        model = tiny("qwen3_vl").model
        before = model.config.to_dict()
        other: Any = twin(model)

        def change(config: Any) -> None:
            config.mine = 1

        decoder = other.get_decoder()
        with_configs(decoder, change)
        own = {id(module.config) for module in model.modules() if hasattr(module, "config")}
        theirs = {id(module.config) for module in decoder.modules() if hasattr(module, "config")}
        assert theirs.isdisjoint(own)
        assert len(theirs) == len(
            {id(m.config) for m in model.get_decoder().modules() if hasattr(m, "config")}
        )
        assert all(module.config.mine == 1 for module in decoder.modules() if hasattr(module, "config"))
        assert model.config.to_dict() == before
        assert not any(hasattr(m.config, "mine") for m in model.modules() if hasattr(m, "config"))
        assert other.config is model.config  # outside of what was changed


@pytest.mark.filterwarnings("ignore:Already found a `peft_config`")
def test_the_state_of_the_users_adapters() -> None:
    model = copy.deepcopy(tiny("llava").model)
    states = [adapter_state(model)]
    for name in ("one", "two"):
        model.add_adapter(LoraConfig(r=2, target_modules=["q_proj"]), name)
        states.append(adapter_state(model))
    model.set_adapter("one")
    states.append(adapter_state(model))
    model.disable_adapters()
    states.append(adapter_state(model))
    assert len(set(states)) == len(states)
    model.enable_adapters()
    assert adapter_state(model) in states[:-1]


@every_family
def test_gradient_checkpointing_reaches_a_twin_that_was_there_before(family: str) -> None:
    def marks(root: Any) -> list[bool]:
        return [layer.gradient_checkpointing for layer in root.modules() if hasattr(layer, CHECKPOINTING[0])]

    model = copy.deepcopy(tiny(family).model)
    other = twin(model)
    assert not any(marks(other))
    getattr(model, ENABLE, model.gradient_checkpointing_enable)()
    assert any(marks(model))
    assert marks(refresh(other)) == marks(model)
    getattr(model, ENABLE.replace("enable", "disable"), model.gradient_checkpointing_disable)()
    assert not any(marks(refresh(other)))


# ---- seam frozen -----------------------------------------------------------------------------------------


def bare() -> Any:
    return copy.deepcopy(tiny("qwen3_vl").model).requires_grad_(True).train()


def around(model: Any) -> ARRCOCModel:
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
    model = bare()
    first = around(model)
    second = around(first if through == "a wrapper" else model)
    for _ in range(2):  # once more changes nothing
        assert first.unwrap() is model
        assert is_frozen(model)
    inputs = prompts(tiny("qwen3_vl"), [("What?", [picture(1)])])
    assert not second(**inputs, mode="full").logits.requires_grad
    assert second.unwrap() is model
    assert not is_frozen(model)


@pytest.mark.slow
def test_a_wrapper_that_is_deleted_needs_nothing() -> None:
    model = bare()
    first, second = around(model), around(model)
    del second
    gc.collect()
    assert is_frozen(model)
    first.unwrap()
    assert not is_frozen(model)
    del first
    third = around(model)
    del third
    gc.collect()
    around(model).unwrap()
    assert not is_frozen(model)


def test_it_can_be_wrapped_again_by_the_same_rule() -> None:
    model = bare()
    around(model).unwrap()
    model.eval().requires_grad_(False)
    model.get_output_embeddings().requires_grad_(True)
    first, second = around(model), around(model)
    first.unwrap()
    second.unwrap()
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["lm_head.weight"]
    assert not model.training


@pytest.mark.slow
def test_neither_base_nor_wrapper_is_kept_alive() -> None:
    model = bare()
    first, second = around(model), around(model)
    alive = [weakref.ref(one) for one in (model, first, second)]
    first.unwrap()
    del model, first, second
    gc.collect()
    assert [one() for one in alive] == [None] * 3
