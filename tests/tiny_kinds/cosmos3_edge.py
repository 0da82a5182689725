"""Cosmos 3 Edge: a SigLIP tower of patches cell by cell, the colours of a pixel side by side."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, QWEN, mrope, qwen_ids, siglip_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Cosmos3EdgeConfig,
        Cosmos3EdgeImageProcessor,
        Cosmos3EdgeProcessor,
        Cosmos3EdgeVideoProcessor,
    )

    config = Cosmos3EdgeConfig(
        text_config=text(rope_parameters=mrope()),
        vision_config=siglip_tower(spatial_merge_size=2, num_patches=64),
        projector_hidden_size=48,
        **qwen_ids(),
    )
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    pictures = Cosmos3EdgeImageProcessor(patch_size=4, merge_size=2, size=sizes, **HALVES)
    clips = Cosmos3EdgeVideoProcessor(patch_size=4, merge_size=2, size=sizes, **HALVES)
    processor = Cosmos3EdgeProcessor(pictures, words(), clips, chat_template=QWEN)
    processor.return_mm_token_type_ids = True  # without which the stock model computes no positions
    return config, processor
