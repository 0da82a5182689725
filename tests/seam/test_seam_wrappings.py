"""What others put around a model: torch.compile, peft, and arr-coc itself."""

from __future__ import annotations

import copy
import logging
from typing import Any

import peft
import pytest
import torch

from arr_coc import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.seam import plain_model
from near import near
from tiny import picture, prompts, tiny


def base() -> Any:
    return copy.deepcopy(tiny("qwen3_vl").model)


@torch.no_grad()
def logits(model: Any, **options: Any) -> torch.Tensor:
    return model(**prompts(tiny("qwen3_vl"), [("What?", [picture(1)])]), **options).logits


def wrapped(model: Any) -> ARRCOCModel:
    return ARRCOCModel.wrap(model, tiny("qwen3_vl").processor)


def with_lora(model: Any) -> Any:
    config = peft.LoraConfig(
        r=2, target_modules=r".*language_model.*\.(q_proj|v_proj)", init_lora_weights=False
    )
    torch.manual_seed(0)
    return peft.get_peft_model(model, config)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft reads it
class TestPeft:
    @pytest.mark.slow
    def test_the_users_adapter_stays_at_work_in_every_mode(self) -> None:
        model = with_lora(base())
        expected, stock = logits(model), logits(tiny("qwen3_vl").model)
        ours = wrapped(model)
        assert torch.equal(logits(ours, mode="full"), expected)
        assert (expected - stock).abs().max() > 1e-3
        whole = logits(ours, mode="prune", budget=1.0)
        assert torch.equal(whole, expected)
        for mode in MODES:
            assert logits(ours, mode=mode).isfinite().all()

    def test_it_can_be_built_around_directly(self) -> None:
        model = with_lora(base())
        ours = ARRCOCModel(model, tiny("qwen3_vl").processor)
        assert ours.base is model.get_base_model()
        assert torch.equal(logits(ours, mode="full"), logits(model))

    def test_tokens_before_the_prompt_are_refused(self) -> None:
        model = base()
        config = peft.PromptTuningConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=4, num_layers=2, token_dim=32, num_attention_heads=4
        )
        with pytest.raises(ValueError, match="adds tokens to the prompt, which dropping tokens can't honour"):
            wrapped(peft.get_peft_model(model, config))


class TestCompiled:
    def test_the_model_inside_is_used_and_a_warning_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        model = base()
        with caplog.at_level(logging.WARNING, logger="arr_coc"):
            ours = wrapped(torch.compile(model, backend="eager"))
        assert "runs uncompiled; compile its parts instead" in caplog.text
        assert ours.base is model
        assert torch.equal(logits(ours, mode="full"), logits(tiny("qwen3_vl").model))

    @pytest.mark.slow
    def test_a_compiled_part_stays_compiled(self) -> None:
        model = base()
        model.model.visual = torch.compile(model.model.visual, backend="eager")
        ours = wrapped(model)
        assert near(logits(ours, mode="prune", budget=1.0), logits(tiny("qwen3_vl").model))


class TestTwice:
    def test_a_wrapped_model_is_wrapped_anew_around_the_same_base(self) -> None:
        model = base()
        first = wrapped(model)
        second = ARRCOCModel.wrap(first, tiny("qwen3_vl").processor)
        assert second.base is first.base is model
        assert torch.equal(logits(second, budget=2), logits(first, budget=2))
        assert second.unwrap() is model

    def test_what_was_learned_is_kept(self) -> None:
        first = wrapped(base())
        first.loras.add("own", 2)
        second = ARRCOCModel.wrap(first)
        assert second.layer is first.layer
        assert second.loras is first.loras
        assert second.processor is first.processor

    def test_what_is_no_model_is_refused(self) -> None:
        with pytest.raises(ValueError, match="Linear is no transformers model"):
            ARRCOCModel.wrap(torch.nn.Linear(2, 2))  # ty: ignore[invalid-argument-type]

    @pytest.mark.slow
    def test_a_copy_is_a_model_of_its_own(self) -> None:
        first = wrapped(base())
        first.loras.add("own", 2)
        with torch.no_grad():
            for parameter in first.loras.parameters():
                parameter.copy_(0.3 * torch.randn_like(parameter))
        before = logits(first, budget=2)
        second = copy.deepcopy(first)
        assert torch.equal(logits(second, budget=2), before)
        with torch.no_grad():
            second.base.get_output_embeddings().weight.zero_()
        assert torch.equal(logits(first, budget=2), before)
        assert (logits(second, budget=2) == 0).all()

    def test_a_plain_model_is_itself(self) -> None:
        model = base()
        assert plain_model(model) is model


class TestChangedLater:
    def test_resized_embeddings_reach_the_twins(self) -> None:
        model = base()
        ours = wrapped(model)
        ours.loras.add("own", 2)
        with torch.no_grad():
            for parameter in ours.loras.parameters():
                parameter.copy_(0.3 * torch.randn_like(parameter))
        before = logits(ours, budget=2)
        model.resize_token_embeddings(model.get_input_embeddings().num_embeddings + 7, mean_resizing=False)
        after = logits(ours, budget=2)
        assert after.shape[-1] == before.shape[-1] + 7
        assert near(after[..., : before.shape[-1]], before)

    def test_other_weights_reach_the_twins(self) -> None:
        model = base()
        ours = wrapped(model)
        ours.loras.add("own", 2)
        before = logits(ours, budget=2)
        with torch.no_grad():
            model.get_output_embeddings().weight.mul_(2.0)
        assert near(logits(ours, budget=2), 2 * before)


@pytest.mark.parametrize("options", [{"mode": "nonsense"}, {"budget": 0}, {"allocator": "no-such-folder"}])
def test_a_refused_model_is_as_it_came(options: dict[str, Any]) -> None:
    model = base().train().requires_grad_(True)
    with pytest.raises(ValueError, match=r"nonsense|budget 0|no-such-folder"):
        ARRCOCModel.wrap(model, tiny("qwen3_vl").processor, **options)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(module.training for module in model.modules())
