"""A server's parts on the bundled model, in one process, and the same model by way of transformers."""

from __future__ import annotations

import gc
import os

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc import ARRCOCModel
from arr_coc.files.saved import BUNDLED
from arr_coc_lab.world.page import Page, draw_page

FOLDER = str(BUNDLED / "model")
SIZES = ((512, 512), (448, 640), (640, 384), (608, 608), (512, 768))
OVERRIDES = {"architectures": ["ARRCOCQwen3VL"], "arr_coc": {"budget": 64}}


def engine(folder: str = FOLDER, **settings):
    """An engine on a model in float32; one that the process had before can't be used any more."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    gc.collect()  # or the end of an engine nobody holds any more comes in the middle of the next one's start
    cleanup_dist_env_and_memory()
    return LLM(
        folder,
        **(
            dict(
                hf_overrides=OVERRIDES,
                dtype="float32",
                max_model_len=4096,
                block_size=32,
                enforce_eager=True,
                seed=0,
                limit_mm_per_prompt={"image": 4, "video": 0},
            )
            | settings
        ),
    )


@pytest.fixture(scope="session")
def llm():
    """The plugin's engine."""
    return engine()


@pytest.fixture(scope="session")
def wrapped() -> ARRCOCModel:
    """The same model and the same guide by way of transformers, with nothing trained for it."""
    processor = AutoProcessor.from_pretrained(FOLDER)
    base = AutoModelForImageTextToText.from_pretrained(FOLDER, attn_implementation="eager")
    return ARRCOCModel.wrap(base.eval(), processor, mode="sparse", budget=64, relevance="guide")


@pytest.fixture(scope="session")
def pages() -> list[Page]:
    """Drawn pages whose sides are whole cells, so that nothing is resized."""
    return [draw_page(seed, SIZES[seed % len(SIZES)], "test") for seed in range(10)]


def prompt(processor, *turns) -> str:
    """A prompt of turns: a user's with (images, text), an assistant's with a text."""
    messages = []
    for turn in turns:
        if isinstance(turn, str):
            messages.append({"role": "assistant", "content": [{"type": "text", "text": turn}]})
        else:
            images, text = turn
            content = [{"type": "image"}] * images + ([{"type": "text", "text": text}] if text else [])
            messages.append({"role": "user", "content": content})
    return processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
