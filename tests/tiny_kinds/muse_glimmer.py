"""Muse Glimmer, from transformers 5.24 on: patches row by row, windows in tower and language model."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerFast

from tiny_families import template, text, words

MARKS = (
    "<|patch|>",
    "<|video|>",
    "<|image_start|>",
    "<|vid_frame_separator|>",
    "<|vid_start|>",
    "<|vid_end|>",
)
WINDOWS: dict[str, Any] = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4096,
    "layer_rope_theta": [10000.0, 0],
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "output_multiplier": 1.0,
}
"""Settings of a language model whose last layer reads no positions."""
TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 4,
    "pos_emb_height": 8,
    "pos_emb_width": 8,
    "layer_types": ["window_attention", "full_attention", "window_attention"],
}
PROJECTOR = {"out_hidden_size": 4 * 32, "projector_hidden_size": 48}


def tokenizer(*more: str) -> PreTrainedTokenizerFast:
    """A tokenizer with the special tokens of Muse, and more."""
    tokens = words(image_token="<|patch|>", video_token="<|video|>")
    marks = [*MARKS, *more]
    tokens.add_special_tokens({"additional_special_tokens": marks}, replace_extra_special_tokens=False)
    return tokens


def pictures() -> tuple[Any, Any]:
    """Processors of images and of clips."""
    from transformers import MuseGlimmerImageProcessor, MuseGlimmerVideoProcessor

    cut = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2}
    return MuseGlimmerImageProcessor(max_image_tokens=144, **cut), MuseGlimmerVideoProcessor(**cut)


def make() -> tuple[Any, Any]:
    from transformers import MuseGlimmerConfig, MuseGlimmerProcessor

    tokens = tokenizer()
    image, clip = tokens.convert_tokens_to_ids(list(MARKS[:2]))
    config = MuseGlimmerConfig(
        text_config=text(vocab_size=len(tokens), **WINDOWS),
        vision_config=TOWER,
        image_token_id=image,
        video_token_id=clip,
        **PROJECTOR,
    )
    return config, MuseGlimmerProcessor(*pictures(), tokens, chat_template=template(*MARKS[:2]))
