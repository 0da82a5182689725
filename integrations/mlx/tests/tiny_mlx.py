"""Small models of MLX-VLM with random weights of every family that is served, with a real processor.

The tokenizer and the chat template are those of the bundled model. Weights are drawn wide, so that an error
of the route shows in the logits. `Drawn` chooses in the place of a selector: at random, by a seed.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import math
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np
import torch
from mlx.utils import tree_map
from mlx_vlm import load
from PIL import Image

from arr_coc.choose.budget import budget_count, budget_of
from arr_coc.files.saved import BUNDLED
from arr_coc.relevance.deciding import Decision, best_kept
from arr_coc.seam.prompt import chat_prompt
from arr_coc_mlx.wrapped import WrappedModel

IMAGE, VIDEO, START, END, SOUND, VOCABULARY = 5, 6, 3, 4, 7, 734
FAMILIES = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "glm4v",
    "glm4v_moe",
    "glm_ocr",
    "cohere_compass",
    "qwen3_omni_moe",
)
PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "glm4v": 14, "glm4v_moe": 14, "glm_ocr": 14}
VISION = {"cohere_compass": "cohere_compass_vision", "qwen3_omni_moe": "qwen3_omni_moe_vision_encoder"}


SMALL_SOUND = {
    "d_model": 32,
    "encoder_layers": 1,
    "num_hidden_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "num_mel_bins": 16,
    "downsample_hidden_size": 16,
}


@cache
def bundled_folder() -> str:
    """The bundled model as a folder for MLX-VLM, which wants settings of positions under older names."""
    folder = Path(mkdtemp()) / "bundled"
    shutil.copytree(BUNDLED / "model", folder)
    config = json.loads((folder / "config.json").read_text())
    rotary = config["text_config"]["rope_parameters"]
    config["text_config"]["rope_theta"] = rotary["rope_theta"]
    names = ("mrope_section", "mrope_interleaved")
    config["text_config"]["rope_scaling"] = {"type": "default"} | {name: rotary[name] for name in names}
    config["vision_config"]["model_type"] = "qwen3_vl"
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@cache
def bundled() -> tuple[Any, Any]:
    """The bundled model and its processor, loaded by MLX-VLM."""
    return load(bundled_folder())


def made(kind: Any, **values: Any) -> Any:
    """An instance of a configuration, of those values that it knows."""
    return kind(**{k: v for k, v in values.items() if k in inspect.signature(kind).parameters})


@cache
def tiny(family: str, seed: int = 0, muted: bool = True) -> SimpleNamespace:
    """A model of a family, `.model`, and its processor, `.processor`; the same object each time.

    A recurrent layer has no way to hide a token from those behind it, so that dropping it can be compared
    with nothing: `muted` ones add nothing.
    """
    width = 64
    module = importlib.import_module(f"mlx_vlm.models.{family}")
    config = importlib.import_module(f"mlx_vlm.models.{family}.config")
    side = PATCH.get(family, 16)
    rotary = {
        "type": "default",
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
        "rope_theta": 1e4,
        "partial_rotary_factor": 1.0,
    }
    if family.startswith("glm"):
        rotary |= {"mrope_interleaved": False}
    windows = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 256}
    text = made(
        config.TextConfig,
        **(windows if family == "cohere_compass" else {}),
        partial_rotary_factor=1.0,
        attention_bias=False,
        use_qk_norm=False,
        n_group=1,
        topk_group=1,
        n_shared_experts=1,
        n_routed_experts=4,
        routed_scaling_factor=1.0,
        first_k_dense_replace=1,
        norm_topk_prob=True,
        eos_token_id=[2],
        model_type=f"{family}_text",
        rope_style="interleave",
        num_hidden_layers=4,
        hidden_size=width,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rms_norm_eps=1e-6,
        vocab_size=VOCABULARY,
        max_position_embeddings=4096,
        rope_theta=1e4,
        rope_scaling={name: rotary[name] for name in ("type", "mrope_section", "mrope_interleaved")},
        rope_parameters=rotary,
        tie_word_embeddings=False,
        num_experts=4,
        num_experts_per_tok=2,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        linear_conv_kernel_dim=4,
        full_attention_interval=2,
    )
    vision = made(
        config.VisionConfig,
        model_type=VISION.get(family, family),
        depth=4,
        embed_dim=32,
        hidden_size=width if family == "qwen2_vl" else 32,
        intermediate_size=64,
        out_hidden_size=width,
        num_heads=2,
        patch_size=side,
        spatial_patch_size=side,
        spatial_merge_size=2,
        temporal_patch_size=2,
        in_channels=3,
        num_position_embeddings=64,
        image_size=side * 8,
        window_size=side * 4,
        fullatt_block_indexes=[1, 3],
        deepstack_visual_indexes=[] if family.startswith("qwen3_5") else [1, 2],
    )
    omni = family == "qwen3_omni_moe"
    whole = made(
        config.ThinkerConfig if omni else config.ModelConfig,
        text_config=text,
        vision_config=vision,
        model_type=family,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=END,
        audio_token_id=SOUND,
        vocab_size=VOCABULARY,
        eos_token_id=[2],
        **({"audio_config": config.AudioConfig(**SMALL_SOUND, output_dim=width)} if omni else {}),
    )
    if omni:
        whole = config.ModelConfig(whole, None, None, enable_audio_output=False, eos_token_id=2)
    mx.random.seed(seed)
    model = module.Model(whole)

    def widened(values: mx.array) -> mx.array:
        return values if values.ndim < 2 else values * 3

    model.update(tree_map(widened, model.parameters()))
    for layer in model.language_model.model.layers if muted else []:
        if getattr(layer, "is_linear", False):
            layer.linear_attn.out_proj.weight = mx.zeros_like(layer.linear_attn.out_proj.weight)
    model.eval()
    mx.eval(model.parameters())
    return SimpleNamespace(model=model, processor=processor_of(side), family=family)


def processor_of(side: int) -> Any:
    """The bundled model's processor, for patches of another size."""
    from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLImageProcessor

    processor = copy.copy(bundled()[1])
    processor.image_processor = Qwen3VLImageProcessor(patch_size=side, max_pixels=side**2 * 4 * 400)
    return processor


class Drawn:
    """Chooses at random, by the picture's size, the question and a seed; `more` cells with each word."""

    def __init__(self, seed: int = 0, more: int = 0) -> None:
        self.seed, self.more, self.asked = seed, more, []

    def decide(self, picture: torch.Tensor, question: str, budget: Any, grid: tuple[int, int]) -> Decision:
        self.asked.append((tuple(picture.shape), question, budget, grid))
        drawn = np.random.default_rng([self.seed, *question.encode()[:64], *grid])
        scores = torch.from_numpy(drawn.random(grid).astype(np.float32))
        total = math.prod(grid)
        count = min(
            budget_count(budget_of(budget, None, total), total) + self.more * len(question.split()), total
        )
        return Decision([best_kept((1, *grid), scores, count)])


def wrapped(built: Any, budget: Any = 10, mode: str = "prune", **how: Any) -> WrappedModel:
    """A tiny model whose cells are drawn."""
    strict = how.pop("strict", True)
    return WrappedModel(built.model, built.processor, Drawn(**how), budget, mode, strict)


def picture(seed: int, cells: tuple[int, int], patch_size: int) -> Image.Image:
    """A picture of noise, of (rows, columns) cells."""
    rows, columns = (count * patch_size * 2 for count in cells)
    drawn = np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    return Image.fromarray(drawn)


def reader_of(model: Any) -> Any:
    """The part of a model that reads pictures."""
    return getattr(model, "thinker", model)


def patch_size(model: Any) -> int:
    """The pixels along a side of a model's patches."""
    return reader_of(model).config.vision_config.patch_size


def inputs_of(built: Any, question: str, *cells: tuple[int, int]) -> dict[str, Any]:
    """What the processor makes of a question about pictures of these cells."""
    from mlx_vlm.utils import prepare_inputs

    side = patch_size(built.model)
    images = [picture(i, sides, side) for i, sides in enumerate(cells)]
    text = chat_prompt(built.processor, question, len(cells))
    return dict(prepare_inputs(built.processor, images=images, prompts=text))


def embedded(model: Any, inputs: dict[str, Any]) -> Any:
    """The embeddings of a prompt, by a model or a wrapped one."""
    grids = inputs["image_grid_thw"]
    features = model.get_input_embeddings(
        inputs["input_ids"], inputs["pixel_values"], mask=inputs["attention_mask"], image_grid_thw=grids
    )
    if features.position_ids is None:  # GLM's: the language model has kept them
        features.position_ids = model.language_model._position_ids
        features.rope_deltas = model.language_model._rope_deltas
    return features


def hidden_logits(model: Any, ids: mx.array, features: Any, hidden: np.ndarray | None = None) -> mx.array:
    """Logits [1, L, V] of a whole prompt by the inner language model, some columns hidden from all others."""
    length = ids.shape[1]
    mask = np.tril(np.ones((length, length), dtype=bool))
    if hidden is not None:
        mask &= ~hidden[None] | np.eye(length, dtype=bool)
    language = model.language_model
    known = inspect.signature(type(language.model).__call__).parameters
    names = ("position_ids", "visual_pos_masks", "deepstack_visual_embeds")
    more = {name: getattr(features, name) for name in names if name in known}
    if hasattr(more.get("deepstack_visual_embeds"), "embeddings"):  # Compass's record
        more["deepstack_visual_embeds"] = more["deepstack_visual_embeds"].embeddings
    bias = mx.array(mask)[None, None]
    scope = type(language.model).__call__.__globals__
    own = {name: lambda *_: bias for name in ("_create_qwen3_5_attention_mask",) if name in scope}
    with patch.dict(scope, own):  # these take no mask
        out = language.model(
            ids, inputs_embeds=features.inputs_embeds, **({} if own else {"mask": bias}), **more
        )
    return language.lm_head(out)


def kept_logits(model: WrappedModel, inputs: dict[str, Any]) -> mx.array:
    """Logits [1, L', V] of the columns that stay, by a wrapped model."""
    out = model(
        inputs["input_ids"],
        inputs["pixel_values"],
        mask=inputs["attention_mask"],
        image_grid_thw=inputs["image_grid_thw"],
    )
    return out.logits


def dropped(model: WrappedModel, inputs: dict[str, Any]) -> np.ndarray:
    """The columns of a prompt that are dropped, bool [L], by choices that are drawn again."""
    row = np.array(inputs["input_ids"][0])
    choices, _ = model.choices([row], inputs["pixel_values"], inputs["image_grid_thw"])
    columns = np.flatnonzero(row == IMAGE)
    starts = np.cumsum([0, *(choice.allocation.total for choice in choices)])
    kept = np.concatenate([c.keep + s for c, s in zip(choices, starts, strict=False)])
    gone = np.zeros(len(row), dtype=bool)
    gone[np.delete(columns, kept)] = True
    return gone


def near(a: mx.array, b: mx.array, tolerance: float = 2e-5) -> bool:
    """Whether two arrays agree, relative to the largest value."""
    return float(mx.abs(a - b).max()) <= tolerance * float(mx.abs(b).max())
