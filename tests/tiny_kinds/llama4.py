"""Llama 4: chunks of attention in most layers, experts, and square tiles with a view of the whole."""

from __future__ import annotations

from typing import Any

from tiny_families import siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Llama4Config,
        Llama4ImageProcessor,
        Llama4Processor,
        Llama4TextConfig,
        Llama4VisionConfig,
    )

    names = ("image_start", "image_end", "patch", "tile_x_separator", "tile_y_separator")
    tokens = words(**{f"{name}_token": f"<|{name}|>" for name in names})
    layers = text(
        vocab_size=len(tokens),
        num_local_experts=4,
        intermediate_size_mlp=48,
        moe_layers=[1],
        no_rope_layers=[1, 0],
        attention_chunk_size=4096,
    )
    tower = siglip_tower(
        image_size=24,
        hidden_size=32,
        intermediate_size=128,
        projector_input_dim=48,
        projector_output_dim=48,
        vision_output_dim=48,
    )
    config = Llama4Config(
        text_config=Llama4TextConfig(**layers),
        vision_config=Llama4VisionConfig(**tower),
        image_token_index=tokens.convert_tokens_to_ids("<|patch|>"),
        boi_token_index=tokens.convert_tokens_to_ids("<|image_start|>"),
        eoi_token_index=tokens.convert_tokens_to_ids("<|image_end|>"),
    )
    pictures = Llama4ImageProcessor(size={"height": 24, "width": 24}, max_patches=6, do_normalize=False)
    return config, Llama4Processor(pictures, tokens, patch_size=4, chat_template=template("<|image|>"))
