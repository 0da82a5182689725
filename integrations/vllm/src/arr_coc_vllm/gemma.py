"""Gemma 4 in the plugin: an image is encoded whole, and of its tokens those of chosen cells are kept.

    --mm-processor-kwargs '{"max_soft_tokens": 1120}'      an image is read at up to 1,120 tokens
    --hf-overrides '{..., "arr_coc": {"budget": 280}}'     and 280 of them are kept

Its tower attends over the whole image and makes a token of 3 x 3 patches at its end, so what is saved is all
that follows: the language model and the KV cache. A kept token has the position that it has in the whole
image, and the text behind an image goes on after the whole of it (`gemma_config`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BatchFeature
from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size
from vllm.config import VllmConfig
from vllm.model_executor.models import gemma4_mm
from vllm.model_executor.models.interfaces import SupportsMRoPE
from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalFieldConfig, MultiModalKwargsItems
from vllm.multimodal.parse import ImageProcessorItems, MultiModalDataItems
from vllm.multimodal.processing import PromptReplacement, PromptUpdate, PromptUpdateDetails

from arr_coc_vllm.models import Selecting, registered
from arr_coc_vllm.processor import Processed, SelectingProcessor, parted
from arr_coc_vllm.settings import KEY, read_settings
from arr_coc_vllm.worker import COUNT, KEEP, NAME, NAME_BYTES, NUMBER, QUESTION

GRID = "image_grid_thw"
"""Field beside the kept cells of an image, under its name in other families: its patches (1, h, w)."""

SOFT_TOKENS = (70, 140, 280, 560, 1120)
"""Tokens at which an image may be read, at most."""


class Gemma4Processor(SelectingProcessor, gemma4_mm.Gemma4MultiModalProcessor):
    """For Gemma 4."""

    turn = ("<|turn>", "<turn|>")
    media = ("video_token_id", "boi_token_id", "eoi_token_id")
    in_worker = False

    def picture(self, image: Any, processed: Processed) -> Any:
        """The request's own picture, as with transformers: in the enlarged one, print has another size."""
        return image

    def _grid(self, images: ImageProcessorItems, i: int, kwargs: Mapping[str, object]) -> tuple[int, int]:
        width, height = images.get_image_size(i)
        vision = self.info.get_hf_config().vision_config
        patch, pool = vision.patch_size, vision.pooling_kernel_size
        merged: Any = self.info.ctx.get_merged_mm_kwargs(kwargs)
        inner, most = merged.get("images_kwargs"), merged.get("max_soft_tokens")
        if most is None and isinstance(inner, Mapping):
            most = inner.get("max_soft_tokens")
        if most is None:
            most = self.info.get_hf_processor().image_processor.max_soft_tokens
        if most not in SOFT_TOKENS:
            listed = ", ".join(map(str, SOFT_TOKENS))
            raise ValueError(f"mm_processor_kwargs has max_soft_tokens {most!r:.80}: use one of {listed}")
        size = get_aspect_ratio_preserving_size(height, width, patch, most * pool**2, pool)
        return size[0] // (patch * pool), size[1] // (patch * pool)

    def _apply_hf_processor_main(
        self, mm_items: MultiModalDataItems, hf_kwargs: Mapping[str, object]
    ) -> BatchFeature:
        plain, choices = parted(hf_kwargs)
        processed = super(SelectingProcessor, self)._apply_hf_processor_main(mm_items, plain)
        images = mm_items.get("image")
        if "pixel_values" not in processed or not isinstance(images, ImageProcessorItems):
            return processed
        pool = self.info.get_hf_config().vision_config.pooling_kernel_size
        corners = [places.amax(0).tolist() for places in processed["pixel_position_ids"]]  # (x, y), last
        patches = [(1, y + 1, x + 1) for x, y in corners]
        looked = self._looked_at(images, plain) if choices is None else choices.images
        readings = [
            one.reading.on((h // pool, w // pool)) for one, (_, h, w) in zip(looked, patches, strict=True)
        ]
        chosen = self.chooser.each(self.chooser.choose, readings)
        processed[KEEP] = torch.cat([choice.keep for choice in chosen])
        processed[COUNT] = torch.tensor([len(choice.keep) for choice in chosen])
        processed[NUMBER] = torch.tensor([choice.number for choice in chosen])
        processed[GRID] = torch.tensor(patches)
        processed[QUESTION] = [
            torch.empty(0, dtype=torch.uint8) for _ in chosen
        ]  # none is left to the worker
        processed[NAME] = torch.zeros(len(chosen), NAME_BYTES, dtype=torch.uint8)
        return processed

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        plain, _ = parted(hf_processor_mm_kwargs)
        fields = dict(super(SelectingProcessor, self)._get_mm_fields_config(hf_inputs, plain))
        if COUNT in hf_inputs:
            fields[KEEP] = MultiModalFieldConfig.flat_from_sizes("image", hf_inputs[COUNT], keep_on_cpu=True)
            for name in (COUNT, NUMBER, GRID, QUESTION, NAME):
                fields[name] = MultiModalFieldConfig.batched("image", keep_on_cpu=True)
        return fields

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, Any],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        plain, _ = parted(hf_processor_mm_kwargs)
        updates = super(SelectingProcessor, self)._get_prompt_updates(mm_items, plain, out_mm_kwargs)
        config = self.info.get_hf_config()
        token, begin, end = config.image_token_id, config.boi_token_id, config.eoi_token_id

        def placeholders(i: int) -> PromptUpdateDetails:
            kept = [token] * int(out_mm_kwargs["image"][i][COUNT].data)
            return PromptUpdateDetails.select_token_id([begin, *kept, end], token)

        items = out_mm_kwargs.get("image") or []
        if not all(COUNT in item for item in items):
            return updates
        others = [update for update in updates if update.modality != "image"]
        return [PromptReplacement(modality="image", target=[token], replacement=placeholders), *others]


@registered(Gemma4Processor, gemma4_mm.Gemma4ProcessingInfo, gemma4_mm.Gemma4DummyInputsBuilder)
class ARRCOCGemma4(Selecting, gemma4_mm.Gemma4ForConditionalGeneration, SupportsMRoPE):
    """Gemma 4.

    Raises:
        ValueError: also for a choice in the worker, and for LoRA of the tower or its projection, which would
            be applied to whole images.
    """

    @property
    def visual(self) -> Any:
        """The tower, under its name in other families."""
        return self.vision_tower

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        lora = vllm_config.lora_config
        if lora is not None and lora.enable_tower_connector_lora:
            raise ValueError(
                "arr-coc drops Gemma 4's tokens behind its projection: drop --enable-tower-connector-lora"
            )
        settings = read_settings(getattr(vllm_config.model_config.hf_config, KEY, None))
        if settings.choose == "worker":
            raise ValueError(
                "arr-coc chooses Gemma 4's cells in the API server, from the request's own picture: drop "
                '"choose": "worker" from arr_coc in --hf-overrides'
            )
        super().__init__(vllm_config=vllm_config, prefix=prefix)

    def embed_multimodal(self, **kwargs: object) -> Any:
        """Encode whole images, and keep the tokens of chosen cells: per image [K, D]."""
        keep, counts = kwargs.pop(KEEP, None), kwargs.pop(COUNT, None)
        embedded = gemma4_mm.Gemma4ForConditionalGeneration.embed_multimodal(self, **kwargs)
        if not isinstance(keep, Tensor) or not isinstance(counts, Tensor):
            return embedded
        kept = keep.flatten().split(counts.flatten().tolist())
        return [tokens[cells.to(tokens.device)] for tokens, cells in zip(embedded, kept, strict=True)]

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[Tensor, int]:
        """Positions [3, tokens] of a prompt, all rows the same, and by how much the next one is ahead."""
        unit, images = self.config.vision_config.pooling_kernel_size**2, []
        for feature in sorted(mm_features, key=lambda one: one.mm_position.offset):
            data = feature.data
            if feature.modality == "image" and data is not None and KEEP in data:
                start = feature.mm_position.extract_embeds_range()[0][0]  # behind the begin token
                cells = int(data[GRID].data.prod()) // unit
                images.append((start, data[KEEP].data.flatten().cpu().numpy(), cells))
        positions = line_positions(len(input_tokens), images)
        rows = torch.from_numpy(np.stack([positions] * 3))
        return rows, int(positions[-1]) + 1 - len(input_tokens)

    def forward(self, input_ids: Tensor, positions: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As vLLM's, which takes positions [tokens]; here they come in three rows."""
        return super().forward(input_ids, positions[0], *args, **kwargs)


def line_positions(tokens: int, images: Sequence[tuple[int, np.ndarray, int]]) -> np.ndarray:
    """Positions of a prompt's tokens, counted as if all cells were there: int64 [tokens].

    Args:
        tokens: how many.
        images: in order, each the place of its first token, its kept cells [K], and how many cells it has.
    """
    parts, place, following = [], 0, 0
    for start, keep, count in images:
        first = following + start - place
        parts += [np.arange(following, first), first + keep]
        place, following = start + len(keep), first + count
    parts.append(np.arange(following, following + tokens - place))
    return np.concatenate(parts).astype(np.int64)
