"""Ovis2: a view of the whole, then tiles; indicator tokens whose embeddings come with the features."""

from __future__ import annotations

from typing import Any

from transformers import Qwen2Config

from tiny_families import WIDTH, siglip_tower, template, text, words

MARKS = ("<IMG_ATOM>", "<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")


def make() -> tuple[Any, Any]:
    from transformers import Ovis2Config, Ovis2ImageProcessor, Ovis2Processor, Ovis2VisionConfig

    tokens = words(image_token="<image>")
    tokens.add_special_tokens({"additional_special_tokens": list(MARKS)}, replace_extra_special_tokens=False)
    atom, *others = tokens.convert_tokens_to_ids(list(MARKS))
    size = len(tokens) + 3  # with weights whose random text has no placeholder
    config = Ovis2Config(
        text_config=Qwen2Config(**text(vocab_size=size)),
        vision_config=Ovis2VisionConfig(
            **siglip_tower(image_size=24, vocab_size=40, hidden_stride=2, num_visual_indicator_tokens=5)
        ),
        image_token_id=atom,
        visual_indicator_token_ids=others,
        vocab_size=size,
        hidden_size=WIDTH,
        tie_word_embeddings=False,
    )
    pictures = Ovis2ImageProcessor(size={"height": 24, "width": 24}, crop_to_patches=True, max_patches=6)
    return config, Ovis2Processor(pictures, tokens, chat_template=template("<image>"), image_seq_length=9)
