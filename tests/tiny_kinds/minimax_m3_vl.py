"""MiniMax-M3: experts, and layers that pick blocks of columns; patches of three-axis positions."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        MiniMaxM3VLConfig,
        MiniMaxM3VLImageProcessor,
        MiniMaxM3VLProcessor,
        MiniMaxM3VLVideoProcessor,
    )

    marks = [f"]<]{name}[>[" for name in ("image", "video", "start of image", "end of image")]
    tokens = words()
    tokens.add_special_tokens({"additional_special_tokens": marks}, replace_extra_special_tokens=False)
    image, clip = tokens.convert_tokens_to_ids(marks[:2])
    config = MiniMaxM3VLConfig(
        text_config=text(
            vocab_size=len(tokens),
            layer_types=["full_attention", "minimax_m3_sparse"],
            mlp_layer_types=["dense", "sparse"],
            dense_intermediate_size=48,
            shared_intermediate_size=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            rotary_dim=8,
            index_n_heads=2,
            index_head_dim=8,
            index_block_size=16,
        ),
        vision_config=siglip_tower(hidden_size=48, image_size=96, spatial_merge_size=2),
        projector_hidden_size=WIDTH,
        image_token_index=image,
        video_token_index=clip,
    )
    cut = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2}
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    pictures = MiniMaxM3VLImageProcessor(size=sizes, **cut)
    clips = MiniMaxM3VLVideoProcessor(size=sizes, **cut)
    return config, MiniMaxM3VLProcessor(pictures, tokens, clips, chat_template=template(marks[0]))
