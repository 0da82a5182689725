"""Gemma 3n: per-layer embeddings, layers that share keys and values, and a stand-in for its tower, timm's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tiny_families import ids, template, text, words


class Tower(nn.Module):
    """A tower that gives a map of features, as those of timm do without pooling."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, 8, 8)
        self.mix = nn.Conv2d(width, width, 3, padding=1)
        for layer in (self.cut, self.mix):
            nn.init.normal_(layer.weight, std=0.2)

    def forward(self, pixel_values: Tensor, **more: Any) -> BaseModelOutputWithPooling:
        return BaseModelOutputWithPooling(last_hidden_state=self.mix(torch.tanh(self.cut(pixel_values))))


def make() -> tuple[Any, Any]:
    from transformers import (
        Gemma3nAudioConfig,
        Gemma3nAudioFeatureExtractor,
        Gemma3nConfig,
        Gemma3nForConditionalGeneration,
        Gemma3nProcessor,
        Gemma3nTextConfig,
        Gemma3nVisionConfig,
        SiglipImageProcessor,
    )
    from transformers.models.gemma3n import modeling_gemma3n

    tokens = {"image_token_id": "<|image|>", "audio_token_id": "<row_2_col_1>"}
    numbers = ids(boi_token_id="<|begin_of_image|>", eoi_token_id="<|end_of_image|>", **tokens)
    seen, heard = numbers["image_token_id"], numbers["audio_token_id"]
    config = Gemma3nConfig(
        text_config=Gemma3nTextConfig(
            **text(
                num_hidden_layers=4,
                layer_types=["sliding_attention", "full_attention"] * 2,
                num_kv_shared_layers=2,
                sliding_window=4096,
                vocab_size_per_layer_input=seen,  # so placeholders have none
                hidden_size_per_layer_input=8,
                altup_num_inputs=2,
                laurel_rank=8,
                activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
            )
        ),
        vision_config=Gemma3nVisionConfig(hidden_size=32, vocab_offset=seen, vocab_size=heard - seen),
        audio_config=Gemma3nAudioConfig(
            vocab_offset=heard,
            vocab_size=len(words()) + 2 - heard,
            hidden_size=32,
            input_feat_size=16,
            conf_num_attention_heads=2,
            conf_num_hidden_layers=1,
            sscp_conv_channel_size=(8, 8),
        ),
        vision_soft_tokens_per_image=36,
        **numbers,
    )
    auto = modeling_gemma3n.AutoModel.from_config

    vision = config.vision_config

    def from_config(config: Any) -> nn.Module:
        return Tower(config.hidden_size) if config is vision else auto(config)

    with mock.patch.object(modeling_gemma3n, "AutoModel", SimpleNamespace(from_config=from_config)):
        model = Gemma3nForConditionalGeneration(config)
    square = {"height": 48, "width": 48}
    processor = Gemma3nProcessor(
        Gemma3nAudioFeatureExtractor(feature_size=16),
        SiglipImageProcessor(size=square, do_normalize=False),
        words(image_token="<|image|>", audio_token="<row_2_col_1>"),
        chat_template=template("<|image|>"),
        image_seq_length=36,
    )
    return model, processor
