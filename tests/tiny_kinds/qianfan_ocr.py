"""Qianfan-OCR: square tiles with a view of the whole, as InternVL's."""

from __future__ import annotations

from typing import Any

from tiny_families import IMAGENET, ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        GotOcr2ImageProcessor,
        QianfanOCRConfig,
        QianfanOCRProcessor,
        QianfanOCRVisionConfig,
        Qwen3Config,
    )

    tower = siglip_tower() | {"image_size": [24, 24], "patch_size": [4, 4], "drop_path_rate": 0.0}
    config = QianfanOCRConfig(
        text_config=Qwen3Config(**text()),
        vision_config=QianfanOCRVisionConfig(**tower),
        image_seq_length=9,
        **ids(image_token_id="<IMG_CONTEXT>"),
    )
    pictures = GotOcr2ImageProcessor(
        size={"height": 24, "width": 24}, crop_to_patches=True, max_patches=6, **IMAGENET
    )
    processor = QianfanOCRProcessor(
        pictures, words(), image_seq_length=9, chat_template=template("<image>\n")
    )
    return config, processor
