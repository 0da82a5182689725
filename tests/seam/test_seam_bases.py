"""Bases in the shapes in which other people load them, each in every mode and with LoRAs of ours put in.

Weights that accelerate keeps elsewhere, half precision, adapters that were merged or disabled, quantised
layers, compiled parts, training mode, the kinds of caches.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from torch import Tensor
from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

import tiny as tiny_module
from arr_coc import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.seam.lora import KINDS
from near import KERNELS, near
from tiny import apart, picture, prompts, tiny

CPU = torch.device("cpu")
GREEDY = {"do_sample": False, "max_new_tokens": 2}
QUESTION = "What is it?"


def base() -> Any:
    return copy.deepcopy(tiny("qwen3_vl").model)


def wrapped(model: Any, family: str = "qwen3_vl") -> ARRCOCModel:
    return ARRCOCModel.wrap(model, tiny(family).processor, budget=9, strict=True)


def with_loras(model: Any) -> ARRCOCModel:
    """A wrapped model in which every kind of LoRA has learned something."""
    ours, generator = wrapped(model), torch.Generator().manual_seed(0)
    for kind in KINDS:
        ours.loras.add(kind, 2)
    with torch.no_grad():
        for parameter in ours.loras.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return ours


@torch.no_grad()
def outputs(ours: ARRCOCModel) -> dict[str, Tensor]:
    """By mode the logits of a call; `generate` and `ask` must go through, too."""
    inputs, logits = prompts(tiny("qwen3_vl"), [(QUESTION, [picture(1)])]), {}
    for mode in MODES:
        logits[mode] = ours(**inputs, mode=mode).logits.float()
        assert not ours.generate(**inputs, mode=mode, **GREEDY, return_allocation=True).fallback
        assert not ours.ask(picture(1), QUESTION, mode=mode, max_new_tokens=2).fallback
    return logits


@cache
def expected() -> dict[str, Tensor]:
    """Of the base as it is, with our LoRAs."""
    return outputs(with_loras(base()))


def assert_close(now: dict[str, Tensor], wanted: dict[str, Tensor], share: float = KERNELS) -> None:
    for mode in MODES:
        assert near(now[mode], wanted[mode], share), mode


# ---- weights elsewhere ---------------------------------------------------------------------------------


def in_memory(model: Any, folder: Path) -> None:
    cpu_offload(model, execution_device=CPU)


def with_buffers(model: Any, folder: Path) -> None:
    cpu_offload(model, execution_device=CPU, offload_buffers=True)


def on_disk(model: Any, folder: Path) -> None:
    disk_offload(model, str(folder), execution_device=CPU)


def in_places(model: Any, folder: Path) -> None:
    """As `device_map="auto"` does where there is little room: some parts loaded, some on the disk."""
    text = "model.language_model"
    places = {"model.visual": "disk", f"{text}.layers.0": "cpu", f"{text}.layers.1": "disk"}
    places |= {f"{text}.{name}": "cpu" for name in ("embed_tokens", "norm", "rotary_emb")}
    dispatch_model(model, places | {"lm_head": "cpu"}, main_device="cpu", offload_dir=str(folder))


@pytest.mark.slow
@pytest.mark.parametrize("offload", [in_memory, with_buffers, on_disk, in_places])
def test_weights_elsewhere(offload: Callable[[Any, Path], None], tmp_path: Path) -> None:
    model = base()
    offload(model, tmp_path)
    ours = with_loras(model)
    assert ours.device == CPU
    assert {parameter.device for parameter in ours.loras.parameters()} == {CPU}
    assert_close(outputs(ours), expected())


# ---- half precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", apart(tiny_module.KINDS))
def test_bfloat16(family: str) -> None:
    ours = wrapped(copy.deepcopy(tiny(family).model).bfloat16(), family)
    session = ours.session(picture(1))
    for mode in MODES:
        assert not session.ask(QUESTION, mode=mode, max_new_tokens=1).fallback


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_half_precision(dtype: torch.dtype) -> None:
    ours = with_loras(base().to(dtype))
    assert {parameter.dtype for parameter in ours.loras.parameters()} == {dtype}
    assert all(logits.isfinite().all() for logits in outputs(ours).values())


# ---- the user's own adapters ---------------------------------------------------------------------------


def with_own(model: Any) -> Any:
    targets = r".*language_model.*\.(q_proj|v_proj)"
    torch.manual_seed(0)
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False))


@cache
def expected_with_own() -> dict[str, Tensor]:
    return outputs(with_loras(with_own(base()).merge_and_unload()))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft reads it
class TestOwnAdapters:
    @pytest.mark.slow
    def test_merged_ones_stay_merged(self) -> None:
        """Putting ours in takes them out neither of the base nor of what it says."""
        model = with_own(base())
        model.merge_adapter()
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        now = outputs(with_loras(model))
        assert_close(now, expected_with_own())
        assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())

    @pytest.mark.slow
    def test_disabled_ones_stay_disabled(self) -> None:
        model = with_own(base())
        model.base_model.disable_adapter_layers()
        assert_close(outputs(with_loras(model)), expected())

    @pytest.mark.slow
    @torch.no_grad()
    def test_what_is_changed_later_counts(self) -> None:
        model, inputs = with_own(base()), prompts(tiny("qwen3_vl"), [(QUESTION, [picture(1)])])
        ours = with_loras(model)

        def check(wanted: dict[str, Tensor]) -> None:
            for mode in ("prune", "full", "prune"):
                assert near(ours(**inputs, mode=mode).logits, wanted[mode]), mode

        check(expected_with_own())
        model.merge_adapter()
        check(expected_with_own())
        with model.disable_adapter():  # peft unmerges them, and leaves them so
            check(expected())
        check(expected_with_own())

    @pytest.mark.parametrize("kind", ["PrefixTuningConfig", "PromptEncoderConfig"])
    def test_prompt_learning_is_refused(self, kind: str) -> None:
        sizes = {"num_virtual_tokens": 4, "num_layers": 2, "token_dim": 32, "num_attention_heads": 4}
        config = getattr(peft, kind)(task_type="CAUSAL_LM", **sizes)
        with pytest.raises(ValueError, match="adds tokens to the prompt"):
            wrapped(peft.get_peft_model(base(), config))


# ---- quantised -----------------------------------------------------------------------------------------


def test_torchao_int8() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = base()
    quantization.quantize_(model.model.language_model, quantization.Int8WeightOnlyConfig())
    with torch.no_grad():
        stock = model(**prompts(tiny("qwen3_vl"), [(QUESTION, [picture(1)])])).logits
    now = outputs(with_loras(model))
    assert torch.equal(now["full"], stock)
    assert all(logits.isfinite().all() for logits in now.values())


def in_wide_layers() -> Any:
    """A tiny Qwen3-VL whose layers are 64 wide: the 4-bit kernels of CPUs take no narrower ones."""
    config = copy.deepcopy(tiny("qwen3_vl").model.config)
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 8}
    for part, more in ((config.text_config, heads), (config.vision_config, {"out_hidden_size": 64})):
        for name, value in {"hidden_size": 64, "intermediate_size": 64, **more}.items():
            setattr(part, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return AutoModelForImageTextToText.from_config(config)


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes(bits: int, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    in_wide_layers().save_pretrained(tmp_path)
    config = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    model = AutoModelForImageTextToText.from_pretrained(
        tmp_path, quantization_config=config, dtype=torch.bfloat16
    ).eval()
    inputs = prompts(tiny("qwen3_vl"), [(QUESTION, [picture(1)])])
    with torch.no_grad():
        stock = model(**inputs).logits
        assert torch.equal(wrapped(model)(**inputs, mode="prune", budget=1.0).logits, stock)
    now = outputs(with_loras(model))
    assert torch.equal(now["full"], stock.float())
    assert all(logits.isfinite().all() for logits in now.values())


# ---- compiled, in training, another attention, other caches ---------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", ["language_model", "visual"])
@pytest.mark.parametrize("in_place", [True, False])
@torch.no_grad()
def test_a_compiled_part(part: str, in_place: bool) -> None:
    """LoRAs and what watches attention see the modules that were compiled; the base is left alone."""
    model, inner = base(), prompts(tiny("qwen3_vl"), [(QUESTION, [picture(1)])])
    if in_place:
        getattr(model.model, part).compile(backend="eager")
    else:
        setattr(model.model, part, torch.compile(getattr(model.model, part), backend="eager"))
    names = [name for name, _ in model.named_modules()]
    ours = with_loras(model)
    for mode in ("prune", "sparse"):
        assert near(ours(**inner, mode=mode).logits, expected()[mode]), mode
    assert [name for name, _ in model.named_modules()] == names


@pytest.mark.slow
def test_training_mode_and_checkpointing() -> None:
    model = base().train()
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    ours = with_loras(model)
    assert_close(outputs(ours), expected())
    assert ours.unwrap().training


@pytest.mark.slow
def test_eager_attention() -> None:
    model = base()
    model.set_attn_implementation("eager")
    assert_close(outputs(with_loras(model)), expected())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_cache_of_the_generation_config(kind: str) -> None:
    model = base()
    model.generation_config.cache_implementation = kind
    ours = with_loras(model)
    assert_close(outputs(ours), expected())
    session, plain = ours.session(picture(1), keep_image_after=1), wrapped(base()).session(picture(1))
    for _ in range(2):  # the second answers from the whole image, which other caches would have kept
        answer = session.ask(QUESTION, max_new_tokens=3)
    assert answer.text == plain.ask(QUESTION, mode="full", max_new_tokens=3).text
