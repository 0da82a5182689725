"""Step 3.7: windows of a picture ahead of the view of the whole, a tower that shrinks by convolutions."""

from __future__ import annotations

from typing import Any

from tiny_families import siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import Step3p7Config, Step3p7ImageProcessor, Step3p7Processor

    tokens = words()
    marks = ["<im_patch>", "<patch_start>", "<patch_end>", "<patch_newline>", "<im_start>", "<im_end>"]
    tokens.add_tokens(marks, special_tokens=True)
    layers = text(
        vocab_size=len(tokens),
        layer_types=["full_attention", "sliding_attention"],
        mlp_layer_types=["dense", "sparse"],
        num_sliding_attention_heads=2,
        sliding_window=4096,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        share_expert_dim=16,
        rope_theta=[10000.0, 1000.0],
        partial_rotary_factors=[0.5, 1.0],
    )
    config = Step3p7Config(
        text_config=layers,
        vision_config=siglip_tower(image_size=48, patch_size=2, mlp_ratio=1.5),
        image_token_id=tokens.convert_tokens_to_ids("<im_patch>"),
    )
    pictures = Step3p7ImageProcessor(
        size={"height": 48, "width": 48}, patch_size=32, vision_patch_size=2, max_image_size=144
    )
    return config, Step3p7Processor(pictures, tokens, chat_template=template("<im_patch>"))
