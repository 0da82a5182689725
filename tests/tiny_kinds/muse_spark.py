"""Muse Spark, from transformers 5.24 on: as Muse Glimmer, with experts and sound."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, template, text
from tiny_kinds.muse_glimmer import MARKS, PROJECTOR, TOWER, WINDOWS, pictures, tokenizer

SOUND = ("<|audio|>", "<|soft_audio_start|>", "<|soft_audio_end|>")


def make() -> tuple[Any, Any]:
    from transformers import MuseSparkConfig, MuseSparkFeatureExtractor, MuseSparkProcessor

    tokens = tokenizer(*SOUND)
    image, clip, sound = tokens.convert_tokens_to_ids([*MARKS[:2], SOUND[0]])
    config = MuseSparkConfig(
        text_config=text(
            vocab_size=len(tokens),
            mlp_layer_types=["dense", "sparse"],
            moe_intermediate_size=16,
            moe_hidden_size=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            **WINDOWS,
        ),
        vision_config=TOWER,
        audio_config={
            "patch_sizes": [4, 4],
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_hidden_layers": 2,
            "out_hidden_size": WIDTH,
        },
        image_token_id=image,
        video_token_id=clip,
        audio_token_id=sound,
        **PROJECTOR,
    )
    processor = MuseSparkProcessor(
        *pictures(), tokens, MuseSparkFeatureExtractor(), chat_template=template(*MARKS[:2])
    )
    return config, processor
