"""EXAONE 4.5: Qwen2.5-VL's tower with fewer keys than queries, on a language model with sliding windows."""

from __future__ import annotations

from typing import Any

from tiny_families import QWEN, ids, qwen_pictures, qwen_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import Exaone4_5_Config, Exaone4_5_Processor, Exaone4Config, Qwen2VLVideoProcessor

    layers = text(sliding_window=4096, layer_types=["sliding_attention", "full_attention"])
    config = Exaone4_5_Config(
        text_config=Exaone4Config(**layers),
        vision_config=qwen_tower(window_size=16, fullatt_block_indexes=[1], num_key_value_heads=1),
        **ids(image_token_id="<|image_pad|>", video_token_id="<|video_pad|>"),
    )
    clips = Qwen2VLVideoProcessor(patch_size=4, temporal_patch_size=2, merge_size=2)
    return config, Exaone4_5_Processor(qwen_pictures(), words(), clips, chat_template=QWEN)
