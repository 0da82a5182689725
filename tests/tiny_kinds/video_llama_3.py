"""VideoLLaMA 3: pictures of any size, a token for each patch; plain positions."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, QWEN, ids, siglip_tower, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Qwen2Config,
        VideoLlama3Config,
        VideoLlama3ImageProcessor,
        VideoLlama3Processor,
        VideoLlama3VideoProcessor,
    )

    config = VideoLlama3Config(
        text_config=Qwen2Config(**text()),
        vision_config=siglip_tower(),
        **ids(image_token_id="<|image_pad|>", video_token_id="<|video_pad|>"),
    )
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 48 * 48}
    pictures = VideoLlama3ImageProcessor(patch_size=4, merge_size=1, size=sizes, **HALVES)
    clips = VideoLlama3VideoProcessor(patch_size=4, merge_size=2, size=sizes, **HALVES)
    return config, VideoLlama3Processor(pictures, words(), clips, chat_template=QWEN)
