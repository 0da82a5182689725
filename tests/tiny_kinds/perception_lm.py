"""PerceptionLM: a view of the whole, then square tiles, in one run; a tower of timm's, its cells pooled."""

from __future__ import annotations

from typing import Any

from tiny_families import ids, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        LlamaConfig,
        PerceptionLMConfig,
        PerceptionLMImageProcessor,
        PerceptionLMProcessor,
        PerceptionLMVideoProcessor,
        TimmWrapperConfig,
    )

    tower = TimmWrapperConfig(
        architecture="vit_pe_core_base_patch16_224",
        do_pooling=False,
        model_args={
            "embed_dim": 32,
            "depth": 2,
            "num_heads": 2,
            "img_size": (24, 24),
            "patch_size": 4,
            "ref_feat_shape": (6, 6),
            "global_pool": "",
            "use_post_transformer_norm": False,
            "init_values": 0.1,
        },
        hidden_size=32,
    )
    config = PerceptionLMConfig(
        text_config=LlamaConfig(**text()),
        vision_config=tower,
        projector_pooling_ratio=2,
        **ids(image_token_id="<image>", video_token_id="<video>"),
    )
    processor = PerceptionLMProcessor(
        PerceptionLMVideoProcessor(size={"height": 24, "width": 24}),
        PerceptionLMImageProcessor(tile_size=24, max_num_tiles=6),
        words(image_token="<image>", video_token="<video>"),
        patch_size=4,
        pooling_ratio=2,
        chat_template=template("<image>"),
    )
    return config, processor
