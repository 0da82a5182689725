"""Dots 3 Note, from transformers 5.24 on: Qwen's patches, experts in the tower, layers that pick columns."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, siglip_tower, template, text, words

MARKS = ("<|imgpad|>", "<|audio_comp_pad|>")


def make() -> tuple[Any, Any]:
    from transformers import (
        Dots3NoteConfig,
        Dots3NoteFeatureExtractor,
        Dots3NoteProcessor,
        Qwen2VLImageProcessor,
        Qwen3VLVideoProcessor,
    )

    tokens = words()
    tokens.add_special_tokens({"additional_special_tokens": list(MARKS)}, replace_extra_special_tokens=False)
    image, clip, sound = tokens.convert_tokens_to_ids([MARKS[0], "<|video_pad|>", MARKS[1]])
    latent = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}
    config = Dots3NoteConfig(
        text_config=text(
            vocab_size=len(tokens),
            num_key_value_heads=4,
            head_dim=16,
            v_head_dim=8,
            layer_types=["indexed_attention", "sliding_attention"],
            mlp_layer_types=["dense", "sparse"],
            per_layer_config={1: {"num_attention_heads": 2, "num_key_value_heads": 2, **latent}},
            moe_intermediate_size=16,
            shared_experts_intermediate_size=16,
            n_routed_experts=4,
            num_experts_per_tok=2,
            sliding_window=4096,
            index_head_dim=16,
            index_n_heads=2,
            **latent,
        ),
        vision_config=siglip_tower(
            mlp_layer_types=["dense", "sparse", "sparse"],
            moe_intermediate_size=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            adapter_in_dim=32,
            adapter_out_dim=WIDTH,
        ),
        audio_config={
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "feature_size": 16,
            "downsample_hidden_size": 8,
            "adapter_input_size": 32,
            "adapter_out_dim": WIDTH,
        },
        image_token_id=image,
        video_token_id=clip,
        audio_token_id=sound,
    )
    cut = {"patch_size": 4, "temporal_patch_size": 1, "merge_size": 2}
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    processor = Dots3NoteProcessor(
        Qwen2VLImageProcessor(size=sizes, **cut),
        tokens,
        Qwen3VLVideoProcessor(**cut),
        Dots3NoteFeatureExtractor(),
        chat_template=template(
            *("<|vision_start|>" + mark + "<|vision_end|>" for mark in (MARKS[0], "<|video_pad|>"))
        ),
    )
    return config, processor
