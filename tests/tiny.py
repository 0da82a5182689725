"""Tiny random models of every supported family, with real processors, for tests. No downloads.

`tiny(family)` builds (once) a model of some 30,000 parameters and its processor; `prompts(...)` makes
ordinary processor inputs of any number of rows and images. Weights are drawn wide, so that logits depend
visibly on every token and on its position: an error of the route shows as an error of 0.01 to 1, not of
1e-6.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf  # classes by attribute: each imports its own files, and most runs need few
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import tiny_families
from arr_coc.families import FAMILIES as TABLE
from arr_coc.families import adapter_for
from arr_coc.seam import Compacted

QWEN_FAMILIES = ("qwen3_vl", "qwen2_5_vl", "qwen2_vl", "qwen3_5")
LLAVA_FAMILIES = ("llava", "llava_next", "llava_onevision")
FAMILIES = QWEN_FAMILIES + LLAVA_FAMILIES
EVERY = FAMILIES + tuple(tiny_families.BUILDERS)
"""All model types that a tiny model is at hand of: the laws of the seam run over them."""
ALIKE = (
    "qwen3_vl_moe",
    "cosmos3_omni",
    "qwen3_5_moe",
    "qwen2_5_omni_thinker",
    "glm46v",
    "glm_ocr",
    "glm4v_moe",
    "glmga",
    "smolvlm",
    "qianfan_ocr",  # as internvl
    "mistral_large4",  # as mistral3
    "muse_spark",  # as muse_glimmer
    "minicpmv4_7",  # as minicpmv4_6
)
"""Those with the adapter class and the prompt of another one: longer tests leave them out."""
KINDS = tuple(family for family in EVERY if family not in ALIKE)
MASKABLE = tuple(family for family in EVERY if TABLE[family].trait("recurrent") is not True)
"""Those without recurrent layers: in them a dropped token is as a masked one."""
APART = ("qwen3_vl", "qwen2_5_vl", "qwen3_5", "llava", "llava_next", "gemma3", "internvl", "idefics3")
"""One of each way to lay pictures in a prompt: the longest tests take the others only where slow ones run."""
POSITIONLESS = ("glm5_next",)
"""Those whose language model reads no positions, so that none can be wrong."""
WIDTH = 32


def apart(families: Sequence[str]) -> list[Any]:
    """Families as parameters of a long test: those that aren't in `APART` are marked slow."""
    slow = pytest.mark.slow
    return [name if name in APART else pytest.param(name, marks=slow) for name in families]


SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<image>",
    "<video>",
)

_CONTENT = (
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}IMAGE{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}"
)
QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    + _CONTENT.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    + "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for m in messages %}{{ m.role | upper }}: "
    + _CONTENT.replace("IMAGE", "<image>\n")
    + " {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


@dataclass(frozen=True)
class Tiny:
    """A tiny model and its processor."""

    family: str
    model: PreTrainedModel
    processor: Any


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges: any text is legal, one token per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    built = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        additional_special_tokens=list(SPECIAL),
    )
    return built


def _text(**more: Any) -> dict[str, Any]:
    words = tokenizer()
    return {
        "vocab_size": len(words),
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "initializer_range": 0.35,
        "pad_token_id": words.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": words.eos_token_id,
        **more,
    }


def _ids() -> dict[str, int]:
    words = tokenizer()
    names = ("image_pad", "video_pad", "vision_start", "vision_end")
    keys = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    return {key: words.convert_tokens_to_ids(f"<|{name}|>") for key, name in zip(keys, names, strict=True)}


def _mrope(sections: Sequence[int], **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections), **more}


def _qwen(family: str) -> tuple[PreTrainedModel, Any]:
    halves = {"mean": [0.5] * 3, "std": [0.5] * 3} if family in ("qwen3_vl", "qwen3_5") else {}
    pictures = hf.Qwen2VLImageProcessor(
        patch_size=4,
        temporal_patch_size=2,
        merge_size=2,
        size={"shortest_edge": 16 * 16, "longest_edge": 96 * 96},
        **{f"image_{name}": value for name, value in halves.items()},
    )
    words = tokenizer()
    if family == "qwen3_vl":
        config = hf.Qwen3VLConfig(
            text_config=_text(head_dim=8, rope_parameters=_mrope([2, 1, 1], mrope_interleaved=True)),
            vision_config=tiny_families.qwen_tower(
                deepstack_visual_indexes=[0, 1], num_position_embeddings=64
            ),
            **_ids(),
        )
        model: PreTrainedModel = hf.Qwen3VLForConditionalGeneration(config)
        return model, hf.Qwen3VLProcessor(
            pictures, words, hf.Qwen3VLVideoProcessor(), chat_template=QWEN_TEMPLATE
        )
    if family == "qwen2_5_vl":
        vision = tiny_families.qwen_tower(window_size=16, fullatt_block_indexes=[1], tokens_per_second=2)
        config = hf.Qwen2_5_VLConfig(
            text_config=_text(rope_parameters=_mrope([2, 1, 1])), vision_config=vision, **_ids()
        )
        model = hf.Qwen2_5_VLForConditionalGeneration(config)
        return model, hf.Qwen2_5_VLProcessor(
            pictures, words, hf.Qwen2VLVideoProcessor(), chat_template=QWEN_TEMPLATE
        )
    if family == "qwen2_vl":
        vision = tiny_families.qwen_tower(embed_dim=32, hidden_size=WIDTH, mlp_ratio=2)
        del vision["intermediate_size"], vision["out_hidden_size"]
        config = hf.Qwen2VLConfig(
            text_config=_text(rope_parameters=_mrope([2, 1, 1])), vision_config=vision, **_ids()
        )
        model = hf.Qwen2VLForConditionalGeneration(config)
        return model, hf.Qwen2VLProcessor(
            pictures, words, hf.Qwen2VLVideoProcessor(), chat_template=QWEN_TEMPLATE
        )
    text = _text(
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        rope_parameters=_mrope([2, 1, 1], mrope_interleaved=True, partial_rotary_factor=1.0),
    )
    config = hf.Qwen3_5Config(
        text_config=text, vision_config=tiny_families.qwen_tower(num_position_embeddings=64), **_ids()
    )
    model = hf.Qwen3_5ForConditionalGeneration(config)
    return model, hf.Qwen3VLProcessor(
        pictures, words, hf.Qwen3VLVideoProcessor(), chat_template=QWEN_TEMPLATE
    )


def _llava(family: str) -> tuple[PreTrainedModel, Any]:
    words = tokenizer()
    image_id, video_id = words.convert_tokens_to_ids(["<image>", "<video>"])
    tower = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": 24,
        "patch_size": 4,
        "initializer_range": 0.2,
    }
    square = {"height": 24, "width": 24}
    resized = {"size": {"shortest_edge": 24}, "crop_size": square, "patch_size": 4}
    common = {
        "patch_size": 4,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }
    pinpoints = [[24, 48], [48, 24], [48, 48], [72, 24], [24, 72]]
    if family == "llava":
        config = hf.LlavaConfig(
            text_config=hf.LlamaConfig(**_text()),
            vision_config=hf.CLIPVisionConfig(**tower),
            image_token_index=image_id,
        )
        model: PreTrainedModel = hf.LlavaForConditionalGeneration(config)
        pictures = hf.CLIPImageProcessor(size={"shortest_edge": 24}, crop_size=square)
        return model, hf.LlavaProcessor(pictures, words, chat_template=LLAVA_TEMPLATE, **common)
    if family == "llava_next":
        config = hf.LlavaNextConfig(
            text_config=hf.LlamaConfig(**_text()),
            vision_config=hf.CLIPVisionConfig(**tower),
            image_token_index=image_id,
            image_grid_pinpoints=pinpoints,
        )
        model = hf.LlavaNextForConditionalGeneration(config)
        resized.pop("patch_size")
        pictures = hf.LlavaNextImageProcessor(image_grid_pinpoints=pinpoints, **resized)
        return model, hf.LlavaNextProcessor(pictures, words, chat_template=LLAVA_TEMPLATE, **common)
    config = hf.LlavaOnevisionConfig(
        text_config=hf.Qwen2Config(**_text()),
        vision_config=hf.SiglipVisionConfig(**tower, vision_use_head=False),
        image_token_index=image_id,
        video_token_index=video_id,
        image_grid_pinpoints=[[24 * i, 24 * j] for i in range(1, 5) for j in range(1, 5)],
        vision_aspect_ratio="anyres_max_4",
    )
    model = hf.LlavaOnevisionForConditionalGeneration(config)
    pictures = hf.LlavaOnevisionImageProcessor(
        image_grid_pinpoints=config.image_grid_pinpoints,
        size=square,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    processor = hf.LlavaOnevisionProcessor(
        pictures,
        words,
        hf.LlavaOnevisionVideoProcessor(),
        num_image_tokens=36,
        vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_4",
        chat_template=LLAVA_TEMPLATE,
    )
    return model, processor


@cache
def tiny(family: str) -> Tiny:
    """The tiny model of a family (built once, in evaluation mode, float32) and its processor."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        if family in QWEN_FAMILIES:
            model, processor = _qwen(family)
        elif family in LLAVA_FAMILIES:
            model, processor = _llava(family)
        else:
            model, processor = tiny_families.build(family)
        with torch.no_grad():  # every weight moves, also those that start as zeros or ones
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    model.generation_config.eos_token_id = None  # random text should not stop by chance
    model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    model.requires_grad_(False)
    return Tiny(family, model.eval(), processor)


def in_bfloat16(family: str) -> Tiny:
    """A copy of a family's tiny model in bfloat16: a cast of `tiny`'s own would reach every other test."""
    built = tiny(family)
    return Tiny(family, copy.deepcopy(built.model).bfloat16(), built.processor)


@cache
def in_float64(family: str) -> Tiny:
    """A copy of a family's tiny model in float64, where what is equal in exact arithmetic differs by 1e-14.

    In float32 the same sums in another order (a batch beside one row) differ by what the release of torch
    makes of them: logits by 5e-6 with 2.14, by 2.4e-5 with 2.6.
    """
    built = tiny(family)
    model = copy.deepcopy(built.model).double()
    model.set_experts_implementation("eager")  # torch's grouped product knows no float64
    return Tiny(family, model, built.processor)


def save_tiny(family: str, folder: Any) -> None:
    """Save a tiny model and its processor as an ordinary model folder."""
    built = tiny(family)
    built.model.save_pretrained(folder)
    built.processor.save_pretrained(folder)
    hf.AutoProcessor.from_pretrained(folder)


def picture(seed: int, size: tuple[int, int] = (48, 48)) -> Image.Image:
    """A random but smooth picture, (width, height) px."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, 256, (6, 6, 3), generator=generator, dtype=torch.uint8)
    return Image.fromarray(coarse.numpy()).resize(size, Image.Resampling.BICUBIC)


def prompts(built: Tiny, rows: Sequence[tuple[str, Sequence[Image.Image]]]) -> dict[str, Any]:
    """Ordinary processor inputs for rows of (question, its images), left-padded."""
    texts, pictures = [], []
    for question, images in rows:
        content = [{"type": "image"} for _ in images] + [{"type": "text", "text": question}]
        turns = [{"role": "user", "content": content}]
        texts.append(built.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
        pictures.append(list(images))
    given = {"images": pictures} if any(pictures) else {}
    if given and built.family in LLAVA_FAMILIES and not all(pictures):  # their processors take no empty row
        given = {"images": [[image] for row in pictures for image in row]}
    if built.family in ("llava", "got_ocr2") and given:  # theirs take no nested images
        given = {"images": [image for row in given["images"] for image in row]}
    inputs = dict(built.processor(text=texts, padding=True, return_tensors="pt", **given))
    inputs.pop("labels", None)  # PaliGemma's, of no answer
    return inputs


def with_next_kinds(family: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs whose kinds of tokens go on with one that was generated: text; to PaliGemma, no prompt."""
    names = [name for name in ("mm_token_type_ids", "token_type_ids") if inputs.get(name) is not None]
    kind = int(family == "paligemma")
    return inputs | {name: torch.nn.functional.pad(inputs[name], (0, 1), value=kind) for name in names}


def some_cells(total: int, count: int, seed: int = 0) -> torch.Tensor:
    """`count` of `total` cells, drawn from a seed, ascending."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(total, generator=generator)[:count].sort().values


def compacted(family: str, rows: list) -> tuple[Any, dict[str, Any], Compacted]:
    """A tiny model, ordinary inputs, and what is left of them with some cells dropped."""
    built = tiny(family)
    inputs = prompts(built, rows)
    adapter = adapter_for(built.model, built.processor)
    with torch.no_grad():
        features = adapter.features(inputs)
    keep = [some_cells(len(cells), 5 + 4 * i, seed=i) for i, cells in enumerate(features.cells)]
    return built.model, inputs, adapter.compact(inputs, features, keep)
