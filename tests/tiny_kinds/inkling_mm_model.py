"""Inkling, from transformers 5.24 on: a token for each piece of a picture, distances counted in columns."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, template, text, words

MARKS = ("<|unused_200054|>", "<|unused_200053|>", "<|content_image|>", "<|content_audio_input|>")
LAYERS: dict[str, Any] = {
    "num_hidden_layers": 3,
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid"],
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "d_rel": 4,
    "rel_extent": 64,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}


def make() -> tuple[Any, Any]:
    from transformers import InklingConfig, InklingFeatureExtractor, InklingImageProcessor, InklingProcessor

    tokens = words(image_token=MARKS[0], audio_token=MARKS[1])
    tokens.add_special_tokens({"additional_special_tokens": list(MARKS)}, replace_extra_special_tokens=False)
    image, sound, *begin = tokens.convert_tokens_to_ids(list(MARKS))
    config = InklingConfig(
        text_config=text(vocab_size=len(tokens), mlp_layer_types=["dense", "sparse", "sparse"], **LAYERS),
        vision_config={"patch_size": 8, "hidden_size": 32, "num_hidden_layers": 3, "text_hidden_size": WIDTH},
        audio_config={"n_mel_bins": 8, "mel_vocab_size": 8, "text_hidden_size": WIDTH},
        image_token_id=image,
        audio_token_id=sound,
        image_bos_token_id=begin[0],
        audio_bos_token_id=begin[1],
    )
    processor = InklingProcessor(
        InklingFeatureExtractor(),
        InklingImageProcessor(size={"height": 8, "width": 8}),
        tokens,
        chat_template=template(MARKS[2] + MARKS[0]),
    )
    return config, processor
