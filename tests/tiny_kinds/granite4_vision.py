"""Granite 4 Vision: tiles as LLaVA-NeXT's, whose tokens are queries of windows for inner layers alone."""

from __future__ import annotations

from typing import Any

from tiny_families import ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import Granite4VisionConfig, Granite4VisionProcessor, LlavaNextImageProcessor

    pinpoints = [[24, 48], [48, 24], [48, 48]]
    config = Granite4VisionConfig(
        text_config=text(num_hidden_layers=6),
        vision_config=siglip_tower(model_type="clip_vision_model", hidden_size=64, image_size=24),
        image_token_index=ids(image="<image>")["image"],
        image_grid_pinpoints=pinpoints,
        downsample_rate="1/2",
        deepstack_layer_map=[[-2, 0], [-1, 1]],
        spatial_target_layers=[2, 3, 4, 5],
    )
    square = {"height": 24, "width": 24}
    processor = Granite4VisionProcessor(
        LlavaNextImageProcessor(image_grid_pinpoints=pinpoints, size={"shortest_edge": 24}, crop_size=square),
        words(image_token="<image>"),
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        downsample_rate="1/2",
        chat_template=template("<image>"),
    )
    return config, processor
