"""Idefics2: a picture in latents of a resampler, which are no cells."""

from __future__ import annotations

from typing import Any

from transformers import MistralConfig

from tiny_families import WIDTH, ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import Idefics2Config, Idefics2ImageProcessor, Idefics2Processor

    perceiver = {
        "hidden_size": WIDTH,
        "resampler_n_latents": 16,
        "resampler_depth": 1,
        "resampler_n_heads": 2,
        "resampler_head_dim": 16,
        "num_key_value_heads": 1,
        "initializer_range": 0.2,
    }
    config = Idefics2Config(
        text_config=MistralConfig(**text(), sliding_window=None),
        vision_config=siglip_tower(image_size=48),
        perceiver_config=perceiver,
        **ids(image_token_id="<image>"),
    )
    pictures = Idefics2ImageProcessor(size={"shortest_edge": 24, "longest_edge": 48})
    tokens = words(image_token="<image>", image_boundary_token="<fake_token_around_image>")
    return config, Idefics2Processor(pictures, tokens, image_seq_len=16, chat_template=template("<image>"))
