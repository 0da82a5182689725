"""Families whose prompts and images aren't as Qwen's: beside the stock model, and in conversations."""

from __future__ import annotations

import gc

import pytest
from PIL import Image
from transformers import AutoProcessor

from arr_coc_vllm import ARCHITECTURES, QWEN
from checkpoints import write
from conftest import engine, prompt
from parity import GREEDY, run
from test_engine import hashes

OTHERS = [name for name in ARCHITECTURES if name not in QWEN]


def tokens(llm, text, images, **more) -> tuple[list[int], list[int]]:
    """The prompt and the answer."""
    output = run(llm, text, images, **more)
    return list(output.prompt_token_ids), list(output.outputs[0].token_ids)


@pytest.mark.parametrize("name", OTHERS)
def test_a_whole_image_is_stocks_and_caches_know_the_question(name, pages, tmp_path) -> None:
    folder = str(write(ARCHITECTURES[name], tmp_path))
    processor = AutoProcessor.from_pretrained(folder)
    page, odd = pages[0].image, pages[1].image.resize((500, 333), Image.Resampling.BICUBIC)
    cases = [(prompt(processor, (1, "What is the total?")), [page]), (prompt(processor, (1, "Who?")), [odd])]
    cases.append((prompt(processor, (2, "Who paid?")), [page, odd]))
    cases.append((prompt(processor, (1, "What is the total?"), "12", (1, "Who paid?")), [page, odd]))
    stock = engine(folder, hf_overrides=None)
    stocks = [tokens(stock, *case) for case in cases]
    del stock
    gc.collect()

    llm = engine(folder, hf_overrides={"architectures": [name], "arr_coc": {"budget": 64}})
    assert [tokens(llm, *case, mode="full") for case in cases] == stocks
    assert [tokens(llm, *case, budget=4096) for case in cases] == stocks
    assert [len(tokens(llm, *case)[0]) for case in cases] != [len(ids) for ids, _ in stocks]

    mapper = llm.llm_engine.renderer.get_mm_processor()
    for image in (page, odd):  # or a decision about an image would be made twice
        items = mapper.info.parse_mm_data({"image": [image]})
        text = prompt(processor, (1, "What is the total?"))
        data = mapper(llm.get_tokenizer().encode(text), items)["mm_kwargs"]["image"][0]
        assert data["arr_coc_number"].data > 0
        record = mapper.chooser.record(int(data["arr_coc_number"].data))
        assert record.allocation.grid[1:] == mapper._grid(items["image"], 0, {})
        assert record.question == "What is the total?"

    # A model ignores what it has no use for.
    glm = "Glm" in name
    sizes = (
        [{"size": 5}, {"size": {"longest_edge": 9}}]
        if glm
        else [{"max_soft_tokens": one} for one in ("a", 99)]
    )
    for wrong in (*sizes, {"images_kwargs": "x"}):
        wanted = {"prompt": cases[0][0], "multi_modal_data": {"image": [page]}, "mm_processor_kwargs": wrong}
        with pytest.raises(ValueError, match=r"mm_processor_kwargs|Failed to apply"):
            llm.generate(wanted, GREEDY, use_tqdm=False)

    (first,) = hashes(llm, cases[0][0], [page])
    assert hashes(llm, cases[0][0], [page]) == [first]
    assert hashes(llm, prompt(processor, (1, "Who paid?")), [page]) != [first]
    assert hashes(llm, cases[0][0], [page], budget=100) != [first]
    assert hashes(llm, cases[3][0], [page, odd], follow="first")[0] == first
    assert hashes(llm, cases[3][0], [page, odd], follow="last")[0] != first
