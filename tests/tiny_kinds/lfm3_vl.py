"""LFM3-VL: convolutions in the tower and, with windows, in the language model; from transformers 5.24 on."""

from __future__ import annotations

from typing import Any

from tiny_families import QWEN, ids, qwen_pictures, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Lfm3Config,
        Lfm3VlConfig,
        Lfm3VlProcessor,
        Lfm3VlVisionConfig,
        Qwen3VLVideoProcessor,
    )

    layers = text(
        num_hidden_layers=3, layer_types=["conv", "full_attention", "sliding_attention"], sliding_window=4096
    )
    tower = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "patch_size": 4,
        "initializer_range": 0.2,
    }
    config = Lfm3VlConfig(
        text_config=Lfm3Config(**layers),
        vision_config=Lfm3VlVisionConfig(**tower),
        projector_hidden_size=32,
        tie_word_embeddings=False,
        **ids(
            image_token_id="<|image_pad|>",
            video_token_id="<|video_pad|>",
            vision_start_token_id="<|vision_start|>",
            vision_end_token_id="<|vision_end|>",
        ),
    )
    pictures = qwen_pictures()
    return config, Lfm3VlProcessor(pictures, words(), Qwen3VLVideoProcessor(), chat_template=QWEN)
