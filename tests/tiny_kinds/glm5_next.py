"""GLM-5 Next: recurrent layers, and layers without positions that pick the blocks that they read."""

from __future__ import annotations

from typing import Any

from tiny_families import GLM, glm_settings, qwen_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Glm5NextConfig,
        Glm5NextImageProcessor,
        Glm5NextProcessor,
        Glm5NextVideoProcessor,
    )

    layers = text(
        num_key_value_heads=4,
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        mlp_layer_types=["dense", "sparse"],
        layer_types=["linear_attention", "indexed_attention"],
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        v_head_dim=8,
        index_head_dim=8,
        index_n_heads=2,
        linear_head_dim=8,
        linear_num_heads=4,
        hc_mult=2,
    )
    tower = qwen_tower(projection_intermediate_size=48)
    config = Glm5NextConfig(**glm_settings() | {"text_config": layers, "vision_config": tower})
    cut = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2}
    pictures = Glm5NextImageProcessor(min_image_tokens=4, max_image_tokens=144, **cut)
    clips = Glm5NextVideoProcessor(**cut)
    tokens = words(image_token="<|image|>")
    return config, Glm5NextProcessor(pictures, tokens, clips, chat_template=GLM)
