"""Granite Docling, from transformers 5.24 on: square tiles, then a view of the whole; deepstack levels."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import GraniteDoclingConfig, GraniteDoclingImageProcessor, GraniteDoclingProcessor

    config = GraniteDoclingConfig(
        text_config=text(
            embedding_multiplier=1.0,
            logits_scaling=1.0,
            residual_multiplier=1.0,
            attention_multiplier=0.35,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        vision_config=siglip_tower(
            image_size=24,
            patch_size=2,
            scale_factor=4,
            out_hidden_size=WIDTH,
            deepstack_visual_indexes=[0, 1],
        ),
        **ids(image_token_id="<image>"),
    )
    processor = GraniteDoclingProcessor(
        GraniteDoclingImageProcessor(size={"height": 24, "width": 24}, max_patches=6),
        words(image_token="<image>"),
        image_seq_len=9,
        chat_template=template("<image>"),
    )
    return config, processor
