"""Mistral Large 4: Pixtral's tower, latent attention that picks what it reads, layers that share a cache."""

from __future__ import annotations

from typing import Any

from tiny_families import siglip_tower, template, text, words
from tiny_kinds.kimi_k25 import LATENT


def make() -> tuple[Any, Any]:
    from transformers import MistralLarge4Config, PixtralImageProcessor, PixtralProcessor, PixtralVisionConfig

    layers = text(
        num_hidden_layers=4,
        num_key_value_heads=4,
        index_head_dim=16,
        index_n_heads=2,
        no_rope_layers=[1, 1, 1, 0],
        kv_source_layers=[0, 1, 1, 3],
        indexer_types=["full", "full", "shared", "full"],
        **LATENT,
    )
    config = MistralLarge4Config(
        text_config=layers,
        vision_config=PixtralVisionConfig(**siglip_tower(image_size=96)),
        image_token_index=words().convert_tokens_to_ids("[IMG]"),
    )
    pictures = PixtralImageProcessor(
        size={"longest_edge": 96}, patch_size={"height": 8, "width": 8}, do_convert_rgb=True
    )
    processor = PixtralProcessor(
        pictures, words(), patch_size=4, spatial_merge_size=2, chat_template=template("[IMG]")
    )
    return config, processor
