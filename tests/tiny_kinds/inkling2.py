"""Inkling 2, from transformers 5.24 on: a tower with positions, distances counted in columns."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, ids, siglip_tower, template, text, words
from tiny_kinds.inkling_mm_model import LAYERS


def settings() -> dict[str, Any]:
    """Settings of a model, by the names of its configuration."""
    size = len(words()) + 2
    return {
        "text_config": text(
            vocab_size=size, unpadded_vocab_size=size, n_layers_per_attn_res_block=1, **LAYERS
        ),
        "vision_config": siglip_tower(
            spatial_merge_size=2, posemb_grid_size=8, projection_hidden_dim=32, text_hidden_size=WIDTH
        ),
        **ids(image_token_id="<image>"),
    }


def processor() -> Any:
    from transformers import Inkling2ImageProcessor, Inkling2Processor

    pictures = Inkling2ImageProcessor(size={"height": 8, "width": 8})
    return Inkling2Processor(pictures, words(image_token="<image>"), chat_template=template("<image>"))


def make() -> tuple[Any, Any]:
    from transformers import Inkling2Config

    return Inkling2Config(**settings()), processor()
