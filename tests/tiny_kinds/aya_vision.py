"""Aya Vision: square tiles behind their names, then a view of the whole."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        AyaVisionConfig,
        AyaVisionProcessor,
        Cohere2Config,
        GotOcr2ImageProcessor,
        SiglipVisionConfig,
    )

    layers = text(sliding_window=4096, layer_types=["sliding_attention", "full_attention"])
    config = AyaVisionConfig(
        text_config=Cohere2Config(**layers),
        vision_config=SiglipVisionConfig(**siglip_tower(image_size=24), vision_use_head=False),
        downsample_factor=2,
        alignment_intermediate_size=48,
        **ids(image_token_index="<|image_pad|>"),
    )
    pictures = GotOcr2ImageProcessor(
        size={"height": 24, "width": 24}, crop_to_patches=True, max_patches=6, **HALVES
    )
    processor = AyaVisionProcessor(
        pictures,
        words(),
        patch_size=4,
        img_size=24,
        downsample_factor=2,
        start_of_img_token="<|vision_start|>",
        end_of_img_token="<|vision_end|>",
        img_patch_token="<|image_pad|>",
        chat_template=template("<image>"),
    )
    return config, processor
