"""Gemma 4 in the plugin: read at 1,120 tokens with 280 kept, positions, and what attends to what."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

import arr_coc_vllm.gemma as gemma
from arr_coc import ARRCOCModel
from arr_coc.selector import Selector
from arr_coc_vllm.choosing import Pictured, chooser_for
from arr_coc_vllm.gemma import line_positions
from arr_coc_vllm.settings import Settings
from checkpoints import write
from conftest import engine, prompt
from live import body, data_url, server
from parity import agrees, as_gemma_reads, by_transformers, distance, run

OVERRIDES = {"architectures": ["ARRCOCGemma4"], "arr_coc": {"budget": 280}}


def test_positions_are_those_of_the_whole_prompt() -> None:
    keep = np.array([1, 5])
    assert line_positions(4, []).tolist() == [0, 1, 2, 3]
    assert line_positions(6, [(2, keep, 9)]).tolist() == [0, 1, 3, 7, 11, 12]
    two = [(1, np.array([0, 2]), 3), (4, np.array([3]), 4)]
    assert line_positions(6, two).tolist() == [0, 1, 3, 4, 8, 9]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    return str(write("gemma4", tmp_path_factory.mktemp("gemma4")))


@pytest.fixture(scope="module")
def pruned(checkpoint) -> ARRCOCModel:
    """The same model by way of transformers, with images read at 1,120 tokens."""
    processor = AutoProcessor.from_pretrained(checkpoint)
    processor.image_processor.max_soft_tokens = 1120
    base = AutoModelForImageTextToText.from_pretrained(checkpoint, attn_implementation="sdpa")
    return ARRCOCModel.wrap(base.eval(), processor, mode="prune", budget=280, relevance="guide")


def test_280_of_1120_tokens_are_kept(checkpoint, pruned, pages, monkeypatch) -> None:
    """In one engine, whose prefill is cut into pieces: answers, attention ranges, a negative control."""
    llm = engine(
        checkpoint,
        hf_overrides=OVERRIDES,
        mm_processor_kwargs={"max_soft_tokens": 1120},
        max_num_batched_tokens=96,
        max_num_seqs=4,
        enable_prefix_caching=False,
    )
    image, other, third = (as_gemma_reads(page.image, 1120) for page in pages[:3])
    question = pages[0].questions[0].text
    assert agrees(llm, pruned, question, [image], 280)
    assert agrees(llm, pruned, question, [image, other], 50)

    mapper, text = llm.llm_engine.renderer.get_mm_processor(), prompt(pruned.processor, (1, question))
    inputs = mapper(llm.get_tokenizer().encode(text), mapper.info.parse_mm_data({"image": [image]}))
    (place,), (item,) = inputs["mm_placeholders"]["image"], inputs["mm_kwargs"]["image"]
    assert item[gemma.GRID].data.tolist() == [
        1,
        99,
        99,
    ]  # patches of 33 * 33 cells, the largest square of at most 1,120
    assert place.length == 280 + 2
    expected = Selector()(image, question, 280, (33, 33)).keep
    assert item["arr_coc_keep"].data.tolist() == expected.tolist()
    # Of tokens that attend to each other, where a checkpoint has it so: the kept ones.
    assert place.extract_embeds_range() == [(place.offset + 1, place.offset + 280)]

    monkeypatch.setattr(gemma, "line_positions", lambda tokens, images: np.arange(tokens))
    first = by_transformers(pruned, question, [third], 280)[0]
    assert distance(first, run(llm, prompt(pruned.processor, (1, question)), [third])) > 2e-2


def test_cells_are_those_of_transformers(pruned, pages) -> None:
    """Up to one in 64: texture is of the request's own picture, with transformers of the enlarged one."""
    for seed in range(4):
        image = pages[seed].image.resize((500, 333), Image.Resampling.BICUBIC)
        question = pages[seed].questions[0].text
        expected = pruned.session([image]).plan(question, budget=64).allocations[0]
        picture = Pictured(f"{question} {image.size}", expected.grid[1:], lambda image=image: image)
        record = chooser_for(Settings()).decide(picture, question, 64)
        assert len({*record.allocation.keep.tolist()} & {*expected.keep.tolist()}) >= 63


def test_a_server_traces_what_it_keeps(checkpoint, pages, tmp_path) -> None:
    """By way of HTTP and the chat template."""
    log, options = tmp_path / "log", ("--mm-processor-kwargs", '{"max_soft_tokens": 560}')
    overrides = OVERRIDES | {"arr_coc": {"budget": 70}}
    with server(checkpoint, overrides, log, *options, VLLM_PLUGINS="arr_coc") as url:
        request = body("What is the total?", data_url(pages[0].image))
        (image,) = httpx.post(url + "/arr_coc/trace", json=request, timeout=120).json()["images"]
        assert (image["grid"], image["kept"], image["total"]) == ([23, 23], 70, 529)
        assert image["question"] == "What is the total?"
        reply = httpx.post(url + "/v1/chat/completions", json=request, timeout=120).json()
        assert reply["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 72}  # begin and end


def test_what_gemma_refuses(checkpoint) -> None:
    with pytest.raises(ValueError, match="enable-tower-connector-lora"):
        engine(checkpoint, hf_overrides=OVERRIDES, enable_lora=True, enable_tower_connector_lora=True)
    there = OVERRIDES | {"arr_coc": {"choose": "worker"}}
    with pytest.raises(ValueError, match="Gemma 4's cells in the API server"):
        engine(checkpoint, hf_overrides=there)
