"""A LoRA that a request asks for, beside the same LoRA by way of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForImageTextToText
from vllm import SamplingParams
from vllm.lora.request import LoRARequest

from arr_coc import ARRCOCModel
from conftest import FOLDER, engine, prompt
from parity import by_transformers, distance

LANGUAGE = r".*language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
TOWER = r".*visual\.blocks\.\d+\.(attn\.(qkv|proj)|mlp\.linear_fc[12])"


def base_model() -> torch.nn.Module:
    return AutoModelForImageTextToText.from_pretrained(FOLDER, attn_implementation="eager").eval()


def write_lora(folder: Path, targets: str, seed: int) -> Path:
    """A LoRA of rank 8 with random weights."""
    torch.manual_seed(seed)
    model = get_peft_model(base_model(), LoraConfig(r=8, lora_alpha=16, target_modules=targets))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.05)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("targets", [LANGUAGE, TOWER], ids=["language", "tower"])
def test_a_lora_answers_as_by_transformers(pages, wrapped, tmp_path, targets) -> None:
    folder = write_lora(tmp_path, targets, seed=1)
    llm = engine(enable_lora=True, max_lora_rank=8, enable_tower_connector_lora=targets == TOWER)
    merged = PeftModel.from_pretrained(base_model(), str(folder)).merge_and_unload()
    learned = ARRCOCModel.wrap(merged, wrapped.processor, mode="sparse", budget=64, relevance="guide")
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=20)
    request = LoRARequest("own", 1, str(folder))
    for page in pages[:3]:
        question = page.questions[0].text
        asked = {
            "prompt": prompt(wrapped.processor, (1, question)),
            "multi_modal_data": {"image": [page.image]},
        }
        expected, plain = (
            by_transformers(model, question, [page.image], 64)[0] for model in (learned, wrapped)
        )
        with_lora = llm.generate(asked, sampling, lora_request=request, use_tqdm=False)[0]
        without = llm.generate(asked, sampling, use_tqdm=False)[0]
        assert distance(expected, with_lora) < 2e-3
        assert distance(plain, without) < 2e-3
        assert distance(plain, with_lora) > 2e-2
