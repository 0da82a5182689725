"""The models' half of the plugin: patches of chosen cells are encoded, at their places in the whole image.

The vision tower computes positions for whole grids; here they are computed for the whole grid and indexed by
the kept rows, and each image attends to its own kept patches. In the language model every token has the
position of its cell, and what follows an image goes on after the *whole* grid, as if all were there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention
from vllm.model_executor.models.qwen3_5 import (
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3_5MoeProcessingInfo,
    Qwen3_5ProcessingInfo,
)
from vllm.model_executor.models.qwen3_vl import (
    Qwen3VLDummyInputsBuilder,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessingInfo,
)
from vllm.model_executor.models.qwen3_vl_moe import (
    Qwen3VLMoeForConditionalGeneration,
    Qwen3VLMoeProcessingInfo,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFeatureSpec

from arr_coc.seam.partial import patch_rows
from arr_coc_vllm.processor import COUNT, KEEP, SelectingProcessor
from arr_coc_vllm.settings import KEY, read_settings

if TYPE_CHECKING:
    Base = Qwen3VLForConditionalGeneration
else:
    Base = object


class Selecting(Base):
    """What these models do in another way than vLLM's own; mixed in before one of them.

    Raises:
        ValueError: the server's settings are wrong, or its encoder is split by data.
    """

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "model") -> None:
        read_settings(getattr(vllm_config.model_config.hf_config, KEY, None))
        if vllm_config.model_config.get_multimodal_config().mm_encoder_tp_mode == "data":
            raise ValueError("arr-coc can't split the encoder by data: drop --mm-encoder-tp-mode data")
        super().__init__(vllm_config=vllm_config, prefix=prefix)

    def embed_multimodal(self, **kwargs: object) -> Any:
        """Encode the kept patches: per image [K, width of all levels]."""
        keep, counts = kwargs.get(KEEP), kwargs.get(COUNT)
        if not isinstance(keep, Tensor) or not isinstance(counts, Tensor):
            return super().embed_multimodal(**kwargs)
        pixels, grids = kwargs["pixel_values"], kwargs["image_grid_thw"]
        sizes = counts.flatten().tolist()
        features = self._encode(pixels, grids.tolist(), keep.flatten().cpu().split(sizes))
        return features.split(sizes)

    def _encode(self, pixels: Tensor, grids: list[list[int]], keep: Sequence[Tensor]) -> Tensor:
        """Encode kept patches, `pixels` [rows, values], of images with grids (1, h, w) of patches."""
        visual = self.visual
        unit = visual.spatial_merge_unit
        starts = np.cumsum([0, *(t * h * w for t, h, w in grids)])
        rows = torch.cat(
            [patch_rows(cells, unit) + int(start) for cells, start in zip(keep, starts, strict=False)]
        )
        cos, sin = visual.rot_pos_emb(grids)
        bounds = np.cumsum([0, *(len(cells) * unit for cells in keep)], dtype=np.int32)
        backend, device = visual.attn_backend, visual.device
        rows = rows.to(device)
        metadata = {
            "pos_embeds": visual.fast_pos_embed_interpolate(grids)[rows],
            "rotary_pos_emb_cos": cos[rows],
            "rotary_pos_emb_sin": sin[rows],
            "sequence_lengths": MMEncoderAttention.maybe_compute_seq_lens(backend, bounds, device),
            "max_seqlen": torch.tensor(
                MMEncoderAttention.compute_max_seqlen(backend, bounds), dtype=torch.int32
            ),
            "cu_seqlens": MMEncoderAttention.maybe_recompute_cu_seqlens(
                backend,
                bounds,
                visual.hidden_size,
                visual.tp_size,
                device,
                fp8_padded_hidden_size=visual.fp8_padded_hidden_size,
            ),
        }
        return visual(pixels, grids, encoder_metadata=metadata)

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[Tensor, int]:
        """Positions [3, tokens] of a prompt, and by how much the next one is ahead of their number."""
        merge = self.config.vision_config.spatial_merge_size
        images = []
        for feature in sorted(mm_features, key=lambda one: one.mm_position.offset):
            data = feature.data
            if data is None or KEEP not in data:
                return super().get_mrope_input_positions(input_tokens, mm_features)
            _, h, w = data["image_grid_thw"].data.tolist()
            keep = data[KEEP].data.flatten().cpu().numpy()
            images.append((feature.mm_position.offset, keep, (h // merge, w // merge)))
        positions = prompt_positions(len(input_tokens), images)
        return torch.from_numpy(positions), int(positions.max()) + 1 - len(input_tokens)

    def get_encoder_cudagraph_config(self) -> Any:
        """No graphs of the encoder: they are captured for whole grids."""
        return replace(super().get_encoder_cudagraph_config(), modalities=[])


def prompt_positions(tokens: int, images: Sequence[tuple[int, np.ndarray, tuple[int, int]]]) -> np.ndarray:
    """Positions of a prompt's tokens in time, down and across: int64 [3, tokens].

    Args:
        tokens: how many.
        images: in order, each the place of its first token, its kept cells [K], and its grid (H, W).
    """
    parts, place, following = [], 0, 0
    for start, keep, (height, width) in images:
        text = np.arange(following, following + start - place)
        parts.append(np.broadcast_to(text, (3, len(text))))
        corner = following + len(text)
        parts.append(corner + np.stack([np.zeros_like(keep), keep // width, keep % width]))
        place, following = start + len(keep), corner + max(height, width)
    text = np.arange(following, following + tokens - place)
    parts.append(np.broadcast_to(text, (3, len(text))))
    return np.concatenate(parts, axis=1).astype(np.int64)


@MULTIMODAL_REGISTRY.register_processor(
    SelectingProcessor, info=Qwen3VLProcessingInfo, dummy_inputs=Qwen3VLDummyInputsBuilder
)
class ARRCOCQwen3VL(Selecting, Qwen3VLForConditionalGeneration):
    """Qwen3-VL, dense."""


@MULTIMODAL_REGISTRY.register_processor(
    SelectingProcessor, info=Qwen3VLMoeProcessingInfo, dummy_inputs=Qwen3VLDummyInputsBuilder
)
class ARRCOCQwen3VLMoe(Selecting, Qwen3VLMoeForConditionalGeneration):
    """Qwen3-VL with a mixture of experts."""


@MULTIMODAL_REGISTRY.register_processor(
    SelectingProcessor, info=Qwen3_5ProcessingInfo, dummy_inputs=Qwen3VLDummyInputsBuilder
)
class ARRCOCQwen3_5(Selecting, Qwen3_5ForConditionalGeneration):
    """Qwen3.5, dense."""


@MULTIMODAL_REGISTRY.register_processor(
    SelectingProcessor, info=Qwen3_5MoeProcessingInfo, dummy_inputs=Qwen3VLDummyInputsBuilder
)
class ARRCOCQwen3_5Moe(Selecting, Qwen3_5MoeForConditionalGeneration):
    """Qwen3.5 with a mixture of experts."""
