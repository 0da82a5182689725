"""DeepSeek-VL: a square of cells for each picture, which is padded to a square."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        DeepseekVLConfig,
        DeepseekVLImageProcessor,
        DeepseekVLProcessor,
        LlamaConfig,
        SiglipVisionConfig,
    )

    config = DeepseekVLConfig(
        text_config=LlamaConfig(**text()),
        vision_config=SiglipVisionConfig(**siglip_tower(image_size=24), vision_use_head=False),
        **ids(image_token_id="<image>"),
    )
    pictures = DeepseekVLImageProcessor(size={"height": 24, "width": 24}, min_size=4, **HALVES)
    tokens = words(image_token="<image>")
    return config, DeepseekVLProcessor(
        pictures, tokens, chat_template=template("<image>"), num_image_tokens=36
    )
