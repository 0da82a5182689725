"""FastVLM: a square of cells for each picture, read by a tower of timm's with convolutions."""

from __future__ import annotations

from typing import Any

from tiny_families import template, text, words


def make() -> tuple[Any, Any]:
    from transformers import CLIPImageProcessor, FastVlmConfig, LlavaProcessor, Qwen2Config, TimmWrapperConfig

    tokens = words(image_token="<image>")
    tower = TimmWrapperConfig(
        architecture="fastvit_mci3",
        do_pooling=False,
        model_args={"layers": (1,) * 5, "embed_dims": (16, 16, 32, 32, 32), "inference_mode": True},
        hidden_size=64,
    )
    config = FastVlmConfig(
        text_config=Qwen2Config(**text()),
        vision_config=tower,
        image_seq_length=36,
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
    )
    side = 64 * 6  # a cell is 64 px
    pictures = CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    processor = LlavaProcessor(
        pictures,
        tokens,
        patch_size=64,
        vision_feature_select_strategy="full",
        chat_template=template("<image>"),
    )
    return config, processor
