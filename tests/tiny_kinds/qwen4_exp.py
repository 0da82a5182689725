"""Qwen4-Exp: recurrent layers with n-grams of the prompt's ids, and layers that pick the blocks they read."""

from __future__ import annotations

from typing import Any

from tiny_families import EXPERTS, HALVES, QWEN, mrope, qwen_ids, qwen_pictures, qwen_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import Qwen3VLProcessor, Qwen3VLVideoProcessor, Qwen4ExpConfig

    layers = text(
        **EXPERTS,
        layer_types=["linear_attention", "indexed_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        shared_expert_intermediate_size=16,
        hc_lowrank=8,
        ple_layer_ids=[1],
        heads_per_ngram=2,
        ngram_vocab_size_base=200,
        make_ngram_vocab_size_divisible_by=8,
        split_ngram_parts=2,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=8,
        indexer_budget=2048,
        indexer_compress_ratio=4,
        rope_parameters=mrope(mrope_interleaved=True, partial_rotary_factor=1.0),
    )
    config = Qwen4ExpConfig(
        text_config=layers, vision_config=qwen_tower(num_position_embeddings=64), **qwen_ids()
    )
    pictures = qwen_pictures(**HALVES)
    return config, Qwen3VLProcessor(pictures, words(), Qwen3VLVideoProcessor(), chat_template=QWEN)
