"""Gemma 4 without a vision tower: patches go into the language model, from transformers 5.24 on."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, ids, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Gemma4UnifiedAudioFeatureExtractor,
        Gemma4UnifiedConfig,
        Gemma4UnifiedImageProcessor,
        Gemma4UnifiedProcessor,
        Gemma4UnifiedTextConfig,
        Gemma4UnifiedVideoProcessor,
        Gemma4UnifiedVisionConfig,
    )

    layers = text(
        sliding_window=4096,
        layer_types=["sliding_attention", "full_attention"],
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        use_bidirectional_attention="vision",
    )
    config = Gemma4UnifiedConfig(
        text_config=Gemma4UnifiedTextConfig(**layers),
        vision_config=Gemma4UnifiedVisionConfig(
            patch_size=4, mm_embed_dim=32, mm_posemb_size=128, output_proj_dims=WIDTH, initializer_range=0.2
        ),
        audio_config=None,
        **ids(
            image_token_id="<|image|>",
            video_token_id="<|video_pad|>",
            audio_token_id="<|audio_pad|>",
            boi_token_id="<|begin_of_image|>",
            eoi_token_id="<|end_of_image|>",
        ),
    )
    processor = Gemma4UnifiedProcessor(
        Gemma4UnifiedAudioFeatureExtractor(),
        Gemma4UnifiedImageProcessor(patch_size=4, max_soft_tokens=70),
        words(image_token="<|image|>"),
        Gemma4UnifiedVideoProcessor(patch_size=4, max_soft_tokens=70),
        chat_template=template("<|image|>"),
        image_seq_length=70,
    )
    return config, processor
