"""Aria: a picture in queries of its projector, which are no cells."""

from __future__ import annotations

from typing import Any

from tiny_families import ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import AriaConfig, AriaImageProcessor, AriaProcessor, AriaTextConfig

    config = AriaConfig(
        text_config=AriaTextConfig(**text(moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1)),
        vision_config=siglip_tower(image_size=980, patch_size=70, model_type="idefics3_vision"),
        projector_patch_to_query_dict={49: 16, 196: 36},
        image_token_index=ids(image="<image>")["image"],
    )
    processor = AriaProcessor(
        AriaImageProcessor(max_image_size=490, min_image_size=336),
        words(image_token="<image>"),
        chat_template=template("<image>"),
        size_conversion={490: 16, 980: 36},
    )
    return config, processor
