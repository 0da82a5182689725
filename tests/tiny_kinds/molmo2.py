"""Molmo 2: overlapping crops whose patches are pooled, bidirectional attention among the image's tokens."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, WIDTH, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import Molmo2Config, Molmo2ImageProcessor, Molmo2Processor, Molmo2VideoProcessor

    tokens = words()
    marks = ["<im_patch>", "<im_col>", "<im_start>", "<low_res_im_start>", "<im_end>", "<im_low>"]
    tokens.add_tokens([*marks, "<frame_start>", "<frame_end>"], special_tokens=True)
    named = dict(zip(marks, tokens.convert_tokens_to_ids(marks), strict=True))
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.2}
    layers = text(
        vocab_size=len(tokens),
        additional_vocab_size=8,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )
    config = Molmo2Config(
        text_config=layers,
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "image_size": [24, 24],
            "patch_size": 4,
            **heads,
        },
        adapter_config={
            "vision_feature_layer": [-1, -2],
            "hidden_size": 32,
            "text_hidden_size": WIDTH,
            "intermediate_size": 48,
            **heads,
        },
        image_patch_id=named["<im_patch>"],
        image_start_token_id=named["<im_start>"],
        low_res_image_start_token_id=named["<low_res_im_start>"],
        image_end_token_id=named["<im_end>"],
    )
    sizes: dict[str, Any] = {"size": {"height": 24, "width": 24}, "patch_size": 4}
    pictures = Molmo2ImageProcessor(**sizes, max_crops=8, overlap_margins=[1, 1], **HALVES)
    processor = Molmo2Processor(
        pictures, Molmo2VideoProcessor(**sizes), tokens, chat_template=template("<|image_pad|>")
    )
    return config, processor
