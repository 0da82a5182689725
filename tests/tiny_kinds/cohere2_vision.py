"""Command A Vision: square tiles with a break behind each, the last a view of the whole."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Cohere2Config,
        Cohere2VisionConfig,
        Cohere2VisionImageProcessor,
        Cohere2VisionProcessor,
        SiglipVisionConfig,
    )

    layers = text(sliding_window=4096, layer_types=["sliding_attention", "full_attention"])
    config = Cohere2VisionConfig(
        text_config=Cohere2Config(**layers),
        vision_config=SiglipVisionConfig(**siglip_tower(image_size=24), vision_use_head=False),
        downsample_factor=2,
        alignment_intermediate_size=48,
        **ids(image_token_id="<|image_pad|>"),
    )
    # What the image processor calls a patch size is the cells along each side of a tile.
    pictures = Cohere2VisionImageProcessor(
        size={"height": 24, "width": 24}, max_patches=6, patch_size=3, **HALVES
    )
    tokens = words(
        boi_token="<|vision_start|>",
        eoi_token="<|vision_end|>",
        img_line_break_token="[IMG_BREAK]",
        image_token="<|image_pad|>",
    )
    return config, Cohere2VisionProcessor(pictures, tokens, chat_template=template("<|image_pad|>"))
