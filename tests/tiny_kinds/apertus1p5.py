"""Apertus 1.5, from transformers 5.24 on."""

from __future__ import annotations

from typing import Any

from tiny_families import ids, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Apertus1p5Config,
        Apertus1p5ImageProcessor,
        Apertus1p5Processor,
        WavTokenizerFeatureExtractor,
    )

    first, codes, sounds = len(words()) + 2, 64, 8
    config = Apertus1p5Config(
        text_config=text(
            vocab_size=first + codes + sounds,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        vision_config={
            "codebook_size": codes,
            "embed_dim": 16,
            "latent_channels": 16,
            "base_channels": 32,
            "channel_multiplier": (1, 1, 1, 1),
            "num_res_blocks": 1,
            "attn_resolutions": (),
        },
        audio_config={
            "model_type": "wavtokenizer_encoder",
            "num_filters": 2,
            "hidden_size": 32,
            "codebook_dim": 32,
            "codebook_size": sounds,
        },
        image_token_offset=first,
        audio_token_offset=first + codes,
        **ids(image_token_id="<|image_pad|>", audio_token_id="<|audio_pad|>"),
    )
    sizes = {"min_pixels": 16 * 16, "max_pixels": 96 * 96}
    pictures = Apertus1p5ImageProcessor(spatial_factor=8, size=sizes)
    tokens = words(image_wrapper_token="<|image|>", eol_token="[IMG_BREAK]")
    processor = Apertus1p5Processor(
        pictures, WavTokenizerFeatureExtractor(), tokens, chat_template=template("<|image_pad|>")
    )
    return config, processor
