"""Cosmos 3, the part that reads: Qwen3-VL under another name."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, QWEN, mrope, qwen_ids, qwen_pictures, qwen_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import Cosmos3OmniConfig, Qwen3VLProcessor, Qwen3VLVideoProcessor

    config = Cosmos3OmniConfig(
        text_config=text(model_type="qwen3_vl_text", rope_parameters=mrope(mrope_interleaved=True)),
        vision_config=qwen_tower(
            model_type="qwen3_vl_vision", deepstack_visual_indexes=[0, 1], num_position_embeddings=64
        ),
        **qwen_ids(),
    )
    pictures = qwen_pictures(**HALVES)
    return config, Qwen3VLProcessor(pictures, words(), Qwen3VLVideoProcessor(), chat_template=QWEN)
