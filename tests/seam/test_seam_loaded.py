"""Where a loaded model's calls run, and how far its windows reach."""

from __future__ import annotations

import copy

import pytest
import torch
from accelerate import cpu_offload
from transformers import LlamaConfig, LlavaConfig, MistralConfig, PreTrainedModel, Qwen2Config

from arr_coc.seam.assembly import attention_window
from arr_coc.seam.loaded import execution_device
from tiny import FAMILIES, tiny


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
