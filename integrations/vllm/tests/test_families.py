"""Every family that the plugin serves, beside the same small model by way of transformers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor
from vllm.transformers_utils.config import uses_mrope

from arr_coc import ARRCOCModel
from arr_coc_vllm import ARCHITECTURES, register
from arr_coc_vllm.models import ARRCOCQwen3VL, check_family
from checkpoints import write
from conftest import engine, prompt
from parity import agrees, as_gemma_reads, by_transformers, distance, run

OTHERS = [name for name in ARCHITECTURES if name != "ARRCOCQwen3VL"]


@pytest.mark.parametrize("name", OTHERS)
def test_answers_are_those_of_transformers(name, pages, tmp_path, monkeypatch) -> None:
    """Qwen3.5 in bfloat16, which its recurrent layers need on a CPU, the others in float32.

    Gemma 4's images are encoded whole and then chosen from, which is what mode "prune" does.
    """
    folder = write(ARCHITECTURES[name], tmp_path)
    dtype, within = ("bfloat16", 0.1) if "3_5" in name else ("float32", 2e-3)
    llm = engine(str(folder), hf_overrides={"architectures": [name], "arr_coc": {"budget": 64}}, dtype=dtype)
    base = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager", dtype=dtype)
    mode = "prune" if name == "ARRCOCGemma4" else "sparse"
    wrapped = ARRCOCModel.wrap(
        base.eval(), AutoProcessor.from_pretrained(folder), mode=mode, budget=64, relevance="guide"
    )
    read = [as_gemma_reads(page.image, 280) if mode == "prune" else page.image for page in pages]
    for i, budget in ((0, 64), (1, 40), (3, 1024)):
        assert agrees(llm, wrapped, pages[i].questions[0].text, [read[i]], budget, within)
    question, images = pages[1].questions[0].text, read[:2]
    assert agrees(llm, wrapped, question, images, 50, within)
    if mode == "sparse":
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
    with pytest.raises(ValueError, match="is for glm4v, not for 'glm46v': arr-coc serves"):
        check_family("ARRCOCGlm4v", "glm46v")
    config = SimpleNamespace(model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="qwen2_vl")))
    with pytest.raises(ValueError, match="write ARRCOCQwen2VL"):
        ARRCOCQwen3VL(vllm_config=config)


def test_what_vllm_settles_by_the_name_of_an_architecture_is_settled_for_ours() -> None:
    """Of Qwen3.5 the precision of its recurrent state, of Gemma 4 the kernels of attention."""
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP, Gemma4Config

    register()
    for name in ("Qwen3_5", "Qwen3_5Moe"):
        assert MODELS_CONFIG_MAP[f"ARRCOC{name}"] is MODELS_CONFIG_MAP[f"{name}ForConditionalGeneration"]
    assert issubclass(MODELS_CONFIG_MAP["ARRCOCGemma4"], Gemma4Config)
    config = SimpleNamespace()
    MODELS_CONFIG_MAP["ARRCOCGemma4"].verify_and_update_model_config(SimpleNamespace(hf_config=config))
    assert uses_mrope(SimpleNamespace(**vars(config), get_text_config=SimpleNamespace))
