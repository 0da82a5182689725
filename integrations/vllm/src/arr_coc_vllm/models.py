"""The models' half of the plugin: patches of chosen cells are encoded, at their places in the whole image.

The vision tower is told of the kept patches what it would compute from whole grids (`towers`). In the
language model every token has the position of its cell, and what follows an image goes on after the *whole*
grid, as if all were there. Where the API server chose nothing, cells are chosen here (`worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import vllm
from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.models import qwen2_5_vl, qwen2_vl, qwen3_5, qwen3_vl, qwen3_vl_moe
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.multimodal.processing import BaseMultiModalProcessor, InputProcessingContext

from arr_coc.seam.pixels import patch_rows
from arr_coc_vllm import ARCHITECTURES
from arr_coc_vllm.processor import Qwen2_5Processor, Qwen2Processor, Qwen3Processor
from arr_coc_vllm.settings import KEY, read_settings
from arr_coc_vllm.towers import qwen2_5_metadata, qwen2_metadata, qwen3_metadata
from arr_coc_vllm.worker import COUNT, KEEP, NAME, QUESTION, Item, WorkerChooser, check_worker, in_worker

if TYPE_CHECKING:
    Base = qwen3_vl.Qwen3VLForConditionalGeneration
else:
    Base = object


class Selecting(Base):
    """What these models do in another way than vLLM's own; mixed in before one of them.

    Attributes:
        tower_metadata: what the tower needs to know of chosen patches, one of `towers`.

    Raises:
        ValueError: a checkpoint of another family, wrong settings, a split encoder, pruned videos, or a
            worker that can't choose.
    """

    tower_metadata: Callable[..., dict[str, Any]] = staticmethod(qwen3_metadata)

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "model") -> None:
        checkpoint = vllm_config.model_config.hf_config
        check_family(type(self).__name__, checkpoint.model_type)
        settings = read_settings(getattr(checkpoint, KEY, None))
        check_worker(settings, vllm_config)
        media = vllm_config.model_config.get_multimodal_config()
        if media.mm_encoder_tp_mode == "data":
            raise ValueError("arr-coc can't split the encoder by data: drop --mm-encoder-tp-mode data")
        if media.is_multimodal_pruning_enabled():
            raise ValueError("arr-coc takes no videos, so it prunes none: drop --video-pruning-rate")
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.worker = WorkerChooser(settings, self.config.vision_config, self.visual.device)
        if in_worker(settings, vllm_config.model_config):
            self.worker.open()

    def embed_multimodal(self, **kwargs: object) -> Any:
        """Encode the kept patches: per image [K, width of all levels]."""
        if not isinstance(kwargs.get(COUNT), Tensor):
            return super().embed_multimodal(**kwargs)
        grids, sizes = kwargs["image_grid_thw"].tolist(), kwargs[COUNT].flatten().tolist()
        pixels, keep = self._kept_patches(grids, sizes, kwargs)
        metadata = self.tower_metadata(self.visual, grids, keep)
        return self.encode(pixels, grids, metadata).split(sizes)

    def encode(self, pixels: Any, grids: Any, metadata: dict[str, Any]) -> Tensor:
        """The tower's tokens of some patches, told by `metadata` where these stand: [K of all images, D]."""
        return self.visual(pixels, grids, encoder_metadata=metadata)

    def _kept_patches(
        self, grids: list[list[int]], sizes: list[int], fields: dict[str, Any]
    ) -> tuple[Tensor, list[Tensor]]:
        """The patches of the kept cells of all images, and the kept cells of each."""
        unit = self.config.vision_config.spatial_merge_size**2
        each = zip(fields[NAME], fields[QUESTION], fields[COUNT], strict=True)
        items = [Item.read(*one) for one in each]
        # The cells of an image are either in the fields, with their patches alone, or still to be chosen.
        known = [0 if item else size for item, size in zip(items, sizes, strict=True)]
        keep = list(fields[KEEP].flatten().cpu().split(known))
        if not any(items):
            return fields["pixel_values"], keep
        counts = [h * w if item else n * unit for item, n, (_, h, w) in zip(items, known, grids, strict=True)]
        parts = list(fields["pixel_values"].split(counts))
        for i, (item, (_, h, w)) in enumerate(zip(items, grids, strict=True)):
            if item:
                keep[i] = self.worker.keep(item, parts[i], (h, w))
                parts[i] = parts[i][patch_rows(keep[i], unit).to(parts[i].device)]
        return torch.cat(parts), keep

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
            keep, item = data[KEEP].data, Item.read(*(data[name].data for name in (NAME, QUESTION, COUNT)))
            if item:
                rows = data["pixel_values"].data if "pixel_values" in data else None
                keep = self.worker.keep(item, rows, (h, w))
            cells = keep.flatten().cpu().numpy()
            images.append((feature.mm_position.offset, cells, (h // merge, w // merge)))
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


def registered(processor: type, info: Callable[..., Any], dummy_inputs: Any) -> Callable[[type], type]:
    """A decorator that gives a model its processor, as vLLM's, for checkpoints of its family alone."""

    def register(model: type) -> type:
        def checked(context: InputProcessingContext) -> Any:
            check_family(model.__name__, context.model_config.hf_config.model_type)
            return info(context)

        put = MULTIMODAL_REGISTRY.register_processor(processor, info=checked, dummy_inputs=dummy_inputs)
        return put(model)

    return register


def check_family(name: str, family: str) -> None:
    """Check that an architecture of --hf-overrides is the one for a checkpoint, and vLLM new enough.

    Raises:
        ValueError: it is not; names the one that is, if there is one.
    """
    if not hasattr(BaseMultiModalProcessor, "_get_mm_hashes"):  # results would be cached without the question
        raise ValueError(f"arr-coc needs vLLM 0.32 or newer, and this is {vllm.__version__}: update it")
    if family == ARCHITECTURES[name]:
        return
    fitting = [other for other, its in ARCHITECTURES.items() if its == family]
    remedy = f"write {fitting[0]}" if fitting else f"arr-coc serves {', '.join(ARCHITECTURES.values())} alone"
    raise ValueError(f"{name} of --hf-overrides is for {ARCHITECTURES[name]}, not for {family!r}: {remedy}")


@registered(Qwen2Processor, qwen2_vl.Qwen2VLProcessingInfo, qwen2_vl.Qwen2VLDummyInputsBuilder)
class ARRCOCQwen2VL(Selecting, qwen2_vl.Qwen2VLForConditionalGeneration):
    """Qwen2-VL."""

    tower_metadata = staticmethod(qwen2_metadata)


@registered(Qwen2_5Processor, qwen2_5_vl.Qwen2_5_VLProcessingInfo, qwen2_5_vl.Qwen2_5_VLDummyInputsBuilder)
class ARRCOCQwen2_5VL(Selecting, qwen2_5_vl.Qwen2_5_VLForConditionalGeneration):
    """Qwen2.5-VL."""

    tower_metadata = staticmethod(qwen2_5_metadata)


@registered(Qwen3Processor, qwen3_vl.Qwen3VLProcessingInfo, qwen3_vl.Qwen3VLDummyInputsBuilder)
class ARRCOCQwen3VL(Selecting, qwen3_vl.Qwen3VLForConditionalGeneration):
    """Qwen3-VL, dense."""


@registered(Qwen3Processor, qwen3_vl_moe.Qwen3VLMoeProcessingInfo, qwen3_vl.Qwen3VLDummyInputsBuilder)
class ARRCOCQwen3VLMoe(Selecting, qwen3_vl_moe.Qwen3VLMoeForConditionalGeneration):
    """Qwen3-VL with a mixture of experts."""


@registered(Qwen3Processor, qwen3_5.Qwen3_5ProcessingInfo, qwen3_vl.Qwen3VLDummyInputsBuilder)
class ARRCOCQwen3_5(Selecting, qwen3_5.Qwen3_5ForConditionalGeneration):
    """Qwen3.5, dense."""


@registered(Qwen3Processor, qwen3_5.Qwen3_5MoeProcessingInfo, qwen3_vl.Qwen3VLDummyInputsBuilder)
class ARRCOCQwen3_5Moe(Selecting, qwen3_5.Qwen3_5MoeForConditionalGeneration):
    """Qwen3.5 with a mixture of experts."""
