"""Hunyuan 4 VL, from transformers 5.24 on."""

from __future__ import annotations

from typing import Any

from tiny_families import QWEN, WIDTH, ids, mrope, siglip_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import HYV4VLConfig, HYV4VLImageProcessor, HYV4VLProcessor, HYV4VLVideoProcessor

    config = HYV4VLConfig(
        text_config=text(
            moe_intermediate_size=16,
            n_routed_experts=4,
            num_experts_per_tok=2,
            rope_parameters=mrope(),
            q_lora_rank=16,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=8,
            v_head_dim=8,
            index_head_dim=16,
            index_n_heads=2,
        ),
        vision_config=siglip_tower(out_hidden_size=WIDTH, spatial_merge_size=2, max_image_size=128),
        **ids(image_token_id="<|image_pad|>", video_token_id="<|video_pad|>"),
    )
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    pictures = HYV4VLImageProcessor(patch_size=4, merge_size=2, size=sizes)
    return config, HYV4VLProcessor(pictures, words(), HYV4VLVideoProcessor(), chat_template=QWEN)
