"""Every family that the plugin serves, beside the same small model by way of transformers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc import ARRCOCModel
from arr_coc_vllm import ARCHITECTURES
from arr_coc_vllm.models import ARRCOCQwen3VL, check_family
from checkpoints import write
from conftest import engine, prompt
from parity import agrees, by_transformers, distance, run

OTHERS = [name for name in ARCHITECTURES if name != "ARRCOCQwen3VL"]


@pytest.mark.parametrize("name", OTHERS)
def test_answers_are_those_of_transformers(name, pages, tmp_path, monkeypatch) -> None:
    """Qwen3.5 in bfloat16, which its recurrent layers need on a CPU, the others in float32."""
    folder = write(ARCHITECTURES[name], tmp_path)
    dtype, within = ("bfloat16", 0.1) if "3_5" in name else ("float32", 2e-3)
    llm = engine(str(folder), hf_overrides={"architectures": [name], "arr_coc": {"budget": 64}}, dtype=dtype)
    base = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager", dtype=dtype)
    wrapped = ARRCOCModel.wrap(
        base.eval(), AutoProcessor.from_pretrained(folder), mode="sparse", budget=64, relevance="guide"
    )
    for page, budget in ((pages[0], 64), (pages[1], 40), (pages[3], 1024)):
        assert agrees(llm, wrapped, page.questions[0].text, [page.image], budget, within)
    question, images = pages[1].questions[0].text, [pages[0].image, pages[1].image]
    assert agrees(llm, wrapped, question, images, 50, within)
    monkeypatch.setattr(llm.llm_engine.renderer.get_mm_processor(), "in_worker", True)
    for page, budget in ((pages[2], 64), (pages[4], 40)):  # whose cells the model chooses
        assert agrees(llm, wrapped, page.questions[0].text, [page.image], budget, within)
    assert llm.apply_model(lambda model: len(model.worker._kept)) == [2]
    other = run(llm, prompt(wrapped.processor, (2, question)), images, budget=200)
    assert distance(by_transformers(wrapped, question, images, 50)[0], other) > within, "not noticed"


def test_an_architecture_for_another_checkpoint_is_refused_by_name() -> None:
    check_family("ARRCOCQwen2VL", "qwen2_vl")
    with pytest.raises(ValueError, match="is for qwen3_vl, not for 'qwen2_5_vl': write ARRCOCQwen2_5VL"):
        check_family("ARRCOCQwen3VL", "qwen2_5_vl")
    with pytest.raises(ValueError, match="not for 'llava': arr-coc serves qwen2_vl, qwen2_5_vl"):
        check_family("ARRCOCQwen3VL", "llava")
    config = SimpleNamespace(model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="qwen2_vl")))
    with pytest.raises(ValueError, match="write ARRCOCQwen2VL"):
        ARRCOCQwen3VL(vllm_config=config)
