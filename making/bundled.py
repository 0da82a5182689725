"""The bundled base model: an ordinary Qwen3-VL folder of some four million parameters, built from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

PATCH, MERGE = 16, 2
CELL = PATCH * MERGE
DIM = 192


def build_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLConfig:
    """The shape of the bundled model; every name is transformers' own."""
    names = ("image_pad", "video_pad", "vision_start", "vision_end", "im_end", "endoftext")
    ids = {name: cast(int, tokenizer.convert_tokens_to_ids(f"<|{name}|>")) for name in names}
    return Qwen3VLConfig(
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
        tie_word_embeddings=True,
        dtype="float32",
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": DIM,
            "intermediate_size": 512,
            "num_hidden_layers": 5,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "max_position_embeddings": 32768,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_interleaved": True,  # transformers always does; vLLM believes the file
                "mrope_section": [12, 10, 10],
            },
            "tie_word_embeddings": True,
            "eos_token_id": ids["im_end"],
            "pad_token_id": ids["endoftext"],
        },
        vision_config={
            "depth": 5,
            "hidden_size": 160,
            "intermediate_size": 480,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": DIM,
            "num_position_embeddings": 1024,
            "deepstack_visual_indexes": [2],
        },
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, embeddings: Tensor, seed: int = 0
) -> Qwen3VLForConditionalGeneration:
    """Random weights, the given embeddings, DeepStack starting at zero."""
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(build_config(tokenizer))
    with torch.no_grad():
        model.model.language_model.embed_tokens.weight.copy_(embeddings)
        for merger in model.model.visual.deepstack_merger_list:
            merger.linear_fc2.weight.zero_()
            merger.linear_fc2.bias.zero_()
        # The default 0.02 is for widths of thousands; at this width signals would die out.
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "embed" not in name and "deepstack" not in name:
                torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5 * 0.7)
                # Word embeddings have unit norm: what layers add must not drown them at the start.
                if "language_model" in name and name.endswith(("o_proj.weight", "down_proj.weight")):
                    weight.mul_(0.1)
        positions = model.model.visual.pos_embed.weight
        positions.copy_(_waves(32, positions.shape[1]))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def _waves(side: int, width: int) -> Tensor:
    """A smooth start for the learned positions [side^2, width]: sines of y and of x, from half a wave up."""
    at = torch.arange(side) / side
    waves = torch.pi * at[:, None] * torch.logspace(0, 3, width // 4, base=2.0)  # (side, width / 4)
    one = torch.cat([waves.sin(), waves.cos()], 1)
    both = torch.cat([one[:, None].expand(-1, side, -1), one[None].expand(side, -1, -1)], -1)
    return 0.3 * both.reshape(side * side, width)


def build_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLProcessor:
    """A complete processor; images keep their size up to 2048 x 2048 px."""
    half = [0.5, 0.5, 0.5]
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            size={"shortest_edge": CELL * CELL * 4, "longest_edge": 2048 * 2048},
            patch_size=PATCH,
            merge_size=MERGE,
            temporal_patch_size=2,
            image_mean=half,
            image_std=half,
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(
            patch_size=PATCH,
            merge_size=MERGE,
            temporal_patch_size=2,
            image_mean=half,
            image_std=half,
        ),
        chat_template=tokenizer.chat_template,
    )


class StillPatchEmbed(nn.Module):
    """The patch embedding of a vision tower for still images: half of the arithmetic.

    Both frames of a still image's patch are the same, so the two halves of the kernel can be added first.
    Takes the place of `visual.patch_embed` during training (same parameters under the same names).
    """

    def __init__(self, embed: nn.Module) -> None:
        super().__init__()
        self.proj = cast(nn.Conv3d, embed.proj)

    def forward(self, patches: Tensor) -> Tensor:
        """Patches [N, 3 * 2 * 16 * 16] -> [N, width]."""
        kernel = self.proj.weight.sum(2).flatten(1)
        frame = patches.unflatten(1, (3, 2, -1))[:, :, 0].flatten(1)
        return F.linear(frame, kernel, self.proj.bias)


def save(model: Qwen3VLForConditionalGeneration, processor: Qwen3VLProcessor, folder: Path) -> None:
    """Write the folder that `AutoModelForImageTextToText` and `AutoProcessor` load."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def image_tensor(image: Image.Image) -> Tensor:
    """An RGB image -> float [3, h, w] in [0, 1]."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def patchify(image: Tensor) -> Tensor:
    """Image [3, h, w] in [0, 1], sides multiples of 32 -> `pixel_values` [4 N, 1536] in merge-block order.

    The processor's own arithmetic, without its resizing: for training on images that already fit.
    """
    _, height, width = image.shape
    x = (image * 2 - 1).reshape(3, height // CELL, MERGE, PATCH, width // CELL, MERGE, PATCH)
    x = x.permute(1, 4, 2, 5, 0, 3, 6)  # (H, W, 2, 2, 3, 16, 16)
    x = x.reshape(-1, 3, 1, PATCH, PATCH).expand(-1, -1, 2, -1, -1)
    return x.reshape(-1, 3 * 2 * PATCH * PATCH)


def sides(text: str) -> list[int]:
    """Sides of pages in px, from a text such as "256,512"."""
    return [int(side) for side in text.split(",")]
