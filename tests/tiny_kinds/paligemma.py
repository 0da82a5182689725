"""PaliGemma: the picture and the question attend to each other, both ways, and positions begin at 1."""

from __future__ import annotations

from typing import Any

from tiny_families import CONTENT, WIDTH, ids, siglip_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Gemma2Config,
        PaliGemmaConfig,
        PaliGemmaProcessor,
        SiglipImageProcessor,
        SiglipVisionConfig,
    )

    tokens = words(image_token="<image>")
    tokens.bos_token = "<|im_start|>"
    layers = text(
        vocab_size=len(tokens) + 1200,  # the processor adds places and segments
        sliding_window=4096,
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=8,
    )
    config = PaliGemmaConfig(
        text_config=Gemma2Config(**layers),
        vision_config=SiglipVisionConfig(**siglip_tower(image_size=24), vision_use_head=False),
        projection_dim=WIDTH,
        hidden_size=WIDTH,
        image_token_index=ids(image="<image>")["image"],
    )
    pictures = SiglipImageProcessor(size={"height": 24, "width": 24})
    pictures.image_seq_length = 36
    turns = "{% for m in messages %}" + CONTENT.replace("IMAGE", "<image>") + "{% endfor %}"
    return config, PaliGemmaProcessor(pictures, tokens, chat_template=turns)
