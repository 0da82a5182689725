"""MiniCPM-V 4.6, from transformers 5.24 on: a view of the whole, then slices, on a recurrent model."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, ids, mrope, siglip_tower, template, text, words


def settings(**more: str) -> dict[str, Any]:
    """Settings of the model, which are those of MiniCPM-V 4.7 too."""
    layers = text(
        model_type="qwen3_5_text",
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        rope_parameters=mrope(mrope_interleaved=True, partial_rotary_factor=1.0),
    )
    return {
        "text_config": layers,
        "vision_config": siglip_tower(image_size=48, patch_size=2),
        "insert_layer_id": 1,
        **ids(image_token_id="<|image_pad|>", video_token_id="<|video_pad|>", **more),
    }


def processor(kind: Any) -> Any:
    """Its processor: slices of 48 px a side, cells of 8 px."""
    from transformers import MiniCPMV4_6ImageProcessor, MiniCPMV4_6VideoProcessor

    tokens = words(
        image_start_token="<|begin_of_image|>",
        image_end_token="<|end_of_image|>",
        slice_start_token="<img>",
        slice_end_token="</img>",
        image_id_start_token="<|vision_start|>",
        image_id_end_token="<|vision_end|>",
    )
    sizes: dict[str, Any] = {"patch_size": 2, "scale_resolution": 48, "max_slice_nums": 6}
    pictures = MiniCPMV4_6ImageProcessor(**sizes, **HALVES)
    clips = MiniCPMV4_6VideoProcessor(**sizes)
    return kind(pictures, clips, tokens, chat_template=template("<|image_pad|>", "<|video_pad|>"))


def make() -> tuple[Any, Any]:
    from transformers import MiniCPMV4_6Config, MiniCPMV4_6Processor

    return MiniCPMV4_6Config(**settings()), processor(MiniCPMV4_6Processor)
