"""A tiny random ColModernVBERT, a retriever with late interaction, and classes of newer releases."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from tiny_families import HALVES, siglip_tower, words


def of_transformers(name: str) -> Any:
    """A class of transformers; skips the test where the installed one lacks it."""
    try:
        return getattr(transformers, name)
    except (AttributeError, ImportError):
        pytest.skip(f"transformers {transformers.__version__} has no {name}")


def colmodernvbert() -> tuple[Any, Any]:
    """A model of vectors of 16 numbers and its processor, which cuts pictures in tiles of 3 x 3 patches."""
    model = of_transformers("ColModernVBertForRetrieval")
    tokens = words(image_token="<image>")
    end = tokens.eos_token_id
    text = {
        "model_type": "modernbert",
        "vocab_size": len(tokens) + 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        **dict.fromkeys(
            ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), end
        ),
    }
    tower = {"model_type": "siglip_vision_model", "vision_use_head": False, **siglip_tower(image_size=24)}
    base = transformers.ModernVBertConfig(
        text_config=text,
        vision_config=tower,
        pixel_shuffle_factor=2,
        image_token_id=tokens.convert_tokens_to_ids("<image>"),
    )
    tiles = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 72}, max_image_size={"longest_edge": 24}, **HALVES
    )
    processor = transformers.ColModernVBertProcessor(tiles, tokens, image_seq_len=9)
    config = transformers.ColModernVBertConfig(vlm_config=base.to_dict(), embedding_dim=16)
    return model(config), processor
