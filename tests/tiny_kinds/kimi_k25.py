"""Kimi K2.5: a language model of DeepSeek V3's kind, latent attention and experts; patches row by row."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, QWEN, ids, text, words

LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
"""Settings of latent attention, and of experts after a dense layer."""


def make() -> tuple[Any, Any]:
    from transformers import Kimi_K25Config, Kimi_K25ImageProcessor, Kimi_K25Processor, Kimi_K25VideoProcessor

    experts = {"n_group": 2, "topk_group": 1, "n_shared_experts": 1, "num_key_value_heads": 4}
    config = Kimi_K25Config(
        text_config=text(model_type="deepseek_v3", **LATENT, **experts),
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "patch_size": 4,
            "pos_emb_height": 8,
            "pos_emb_width": 8,
            "initializer_range": 0.2,
        },
        projection_hidden_size=32,
        tie_word_embeddings=False,
        **ids(
            image_token_id="<|image_pad|>",
            video_token_id="<|video_pad|>",
            vision_start_token_id="<|vision_start|>",
            vision_end_token_id="<|vision_end|>",
        ),
    )
    sizes: dict[str, Any] = {"patch_size": 4, "merge_size": 2, "max_patches": 24 * 24}
    pictures = Kimi_K25ImageProcessor(**sizes, **HALVES)
    return config, Kimi_K25Processor(pictures, words(), Kimi_K25VideoProcessor(**sizes), chat_template=QWEN)
