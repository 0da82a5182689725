"""The LoRA beside the layer: it starts as nothing, comes back as saved, and steps aside for the stock model.

Run: pytest tests/test_lora.py
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForImageTextToText, PreTrainedModel

from arr_coc.lora import CONFIG_NAME, add_lora, has_lora, load_lora, save_lora, without_lora
from tiny import FAMILIES, picture, prompts, tiny

WEIGHTS = "adapter_model.safetensors"


def stock(family: str = "qwen3_vl") -> PreTrainedModel:
    """A tiny model of its own: an adapter stays in the model it is put into."""
    return copy.deepcopy(tiny(family).model)


@torch.no_grad()
def logits(model: PreTrainedModel, family: str = "qwen3_vl") -> Tensor:
    return model(**prompts(tiny(family), [("What?", [picture(1)])])).logits


def learned(family: str = "qwen3_vl", rank: int = 2) -> PreTrainedModel:
    """A tiny model whose adapter has learned something, the same every time."""
    model = stock(family)
    add_lora(model, rank)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    save_lora(learned(), folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    def test_a_new_adapter_changes_nothing_and_alone_learns(self, family: str) -> None:
        model = stock(family)
        add_lora(model, 2)
        assert has_lora(model)
        assert torch.equal(logits(model, family), logits(tiny(family).model, family))
        free = {name for name, p in model.named_parameters() if p.requires_grad}
        assert free == {name for name, _ in model.named_parameters() if "lora_" in name}
        assert free
        assert all("language_model" in name for name in free)  # never the vision tower

    def test_without_it_the_model_is_stock_to_the_last_bit(self, family: str) -> None:
        model, plain = learned(family), logits(tiny(family).model, family)
        adapted = logits(model, family)
        assert (adapted - plain).abs().max() > 0.01
        with without_lora(model):
            assert torch.equal(logits(model, family), plain)
        with without_lora(model, off=False):
            assert torch.equal(logits(model, family), adapted)
        with pytest.raises(KeyError), without_lora(model):
            raise KeyError("inside")
        assert torch.equal(logits(model, family), adapted)  # it came back, also after an error

    def test_it_comes_back_as_saved(self, family: str, tmp_path: Path) -> None:
        model, again = learned(family), stock(family)
        save_lora(model, tmp_path)
        load_lora(again, tmp_path)
        assert torch.equal(logits(again, family), logits(model, family))
        assert not any(p.requires_grad for p in again.parameters())
        weights = load_file(tmp_path / WEIGHTS)
        assert sum(w.numel() for w in weights.values()) == sum(
            p.numel() for name, p in model.named_parameters() if "lora_" in name
        )
        assert all("lora_" in name for name in weights)  # never the base


def test_rank_is_as_asked() -> None:
    for rank in (1, 4):
        model = stock()
        add_lora(model, rank)
        assert all(
            rank in p.shape and p.numel() == rank * max(p.shape)
            for name, p in model.named_parameters()
            if "lora_" in name
        )


class TestWithoutAnAdapter:
    def test_nothing_is_saved(self, tmp_path: Path) -> None:
        save_lora(stock(), tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_loaded_from_a_folder_that_has_none(self, tmp_path: Path) -> None:
        model = stock()
        load_lora(model, tmp_path)
        load_lora(model, tmp_path / "no such folder")
        assert not has_lora(model)
        assert torch.equal(logits(model), logits(tiny("qwen3_vl").model))

    def test_without_is_legal(self) -> None:
        model = stock()
        with without_lora(model):
            assert not has_lora(model)


class TestRefusals:
    @staticmethod
    def refused(model: PreTrainedModel, folder: Path, message: str) -> None:
        with pytest.raises(ValueError, match=rf"{folder.name}' can't be loaded .*{message}") as caught:
            load_lora(model, folder)
        assert "\n" not in str(caught.value)
        assert "use the base model it was trained for" in str(caught.value)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_size": 64}, "mismatched"),
            ({"num_hidden_layers": 1}, "8 weights are missing or left over, first .*layers.1.self_attn"),
            ({"num_hidden_layers": 3}, "8 weights are missing or left over, first .*layers.2.self_attn"),
        ],
    )
    def test_another_base_model(self, saved: Path, changes: dict[str, int], message: str) -> None:
        config = copy.deepcopy(tiny("qwen3_vl").model.config)
        for name, value in changes.items():
            setattr(config.text_config, name, value)
        config.vision_config.out_hidden_size = config.text_config.hidden_size
        self.refused(AutoModelForImageTextToText.from_config(config), saved, message)

    def test_broken_weights(self, saved: Path, tmp_path: Path) -> None:
        (tmp_path / CONFIG_NAME).write_bytes((saved / CONFIG_NAME).read_bytes())
        self.refused(stock(), tmp_path, WEIGHTS)
        whole = (saved / WEIGHTS).read_bytes()
        (tmp_path / WEIGHTS).write_bytes(whole[: len(whole) // 2])
        self.refused(stock(), tmp_path, "incomplete")

    def test_pickled_weights_are_never_loaded(self, saved: Path, tmp_path: Path) -> None:
        (tmp_path / CONFIG_NAME).write_bytes((saved / CONFIG_NAME).read_bytes())
        torch.save(load_file(saved / WEIGHTS), tmp_path / "adapter_model.bin")
        self.refused(stock(), tmp_path, WEIGHTS)

    @pytest.mark.parametrize("change", [None, [], {}, {"peft_type": "WHAT"}, {"target_modules": "nothing"}])
    def test_broken_settings(self, saved: Path, tmp_path: Path, change: object) -> None:
        settings = json.loads((saved / CONFIG_NAME).read_text())
        broken = "{" if change is None else json.dumps(settings | change if change else change)
        (tmp_path / CONFIG_NAME).write_text(broken)
        (tmp_path / WEIGHTS).write_bytes((saved / WEIGHTS).read_bytes())
        self.refused(stock(), tmp_path, "")
