"""Small checkpoints with random weights of every family that the plugin serves, as ordinary model folders.

They have the tokenizer of the bundled model, Qwen's with its image processor, others with special tokens, an
image processor and a chat template of their own. Weights are drawn wide, so that an error of the route shows
in the log-probabilities.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    Gemma4AudioFeatureExtractor,
    Gemma4Config,
    Gemma4ImageProcessor,
    Gemma4Processor,
    Gemma4VideoProcessor,
    Glm4vConfig,
    Glm4vImageProcessor,
    Glm4vMoeConfig,
    Glm4vProcessor,
    Glm4vVideoProcessor,
    Glm46VProcessor,
    GlmOcrConfig,
    PreTrainedConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3_5Config,
    Qwen3_5MoeConfig,
    Qwen3VLMoeConfig,
)

from arr_coc.files.saved import BUNDLED

HIDDEN, HEAD = 128, 64
ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [12, 10, 10]}
EXPERTS = {"num_experts": 4, "norm_topk_prob": True, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
RECURRENT = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
}
GLM_TOKENS = (
    *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<|begin_of_image|>", "<|image|>", "<|end_of_image|>"),
    *("<|begin_of_video|>", "<|video|>", "<|end_of_video|>"),
)
GLM_TEMPLATE = (
    "[gMASK]<sop>{% for m in messages %}\n<|{{ m.role }}|>\n"
    "{% for part in m.content %}{% if part.type == 'image' %}<|begin_of_image|><|image|><|end_of_image|>"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}\n<|assistant|>\n{% endif %}"
)
GEMMA_TOKENS = {
    "image_token": "<|image|>",
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
    "sot_token": "<|turn>",
    "eot_token": "<turn|>",
}
GEMMA_TEMPLATE = (
    "{% for m in messages %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{% for part in m.content %}{% if part.type == 'image' %}<|image|>"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<turn|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn>model\n{% endif %}"
)


def _text(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 734,
        "hidden_size": HIDDEN,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 32768,
        "initializer_range": 0.15,
        "pad_token_id": 0,
        "eos_token_id": 2,
        "rope_parameters": ROTARY,
        "tie_word_embeddings": False,
        **more,
    }


def _vision(**more: Any) -> dict[str, Any]:
    return {
        "depth": 3,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_heads": 2,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": HIDDEN,
        "initializer_range": 0.1,
        **more,
    }


def _tokenizer(*tokens: str) -> Any:
    """The bundled model's tokenizer with other special tokens, numbered from 734 on."""
    tokenizer = AutoProcessor.from_pretrained(BUNDLED / "model").tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    return tokenizer


def _glm(family: str) -> PreTrainedConfig:
    number = {token: 734 + place for place, token in enumerate(GLM_TOKENS)}
    ids = {f"{kind}_token_id": number[f"<|{kind}|>"] for kind in ("image", "video")}
    for kind, (edge, word) in product(("image", "video"), (("start", "begin"), ("end", "end"))):
        ids[f"{kind}_{edge}_token_id"] = number[f"<|{word}_of_{kind}|>"]
    rotary = ROTARY | {"partial_rotary_factor": 0.5, "mrope_section": [4, 6, 6]}
    # Three times its width is how wide vLLM takes GLM-OCR's merger to be.
    text = _text(vocab_size=768, rope_parameters=rotary, intermediate_size=3 * HIDDEN)
    vision = _vision(image_size=256)
    if family == "glm_ocr":
        return GlmOcrConfig(text_config=text, vision_config=vision, **ids)
    text["attention_bias"] = True
    if family == "glm4v_moe":
        text |= EXPERTS | {"n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1}
        text |= {"head_dim": HEAD, "use_qk_norm": False}
        return Glm4vMoeConfig(text_config=text, vision_config=vision, **ids)
    return Glm4vConfig(text_config=text, vision_config=vision, **ids)


def _glm_processor(family: str) -> Any:
    sizes = {"shortest_edge": 2 * 4096, "longest_edge": 2 * 4194304}
    kind = Glm4vProcessor if family == "glm4v" else Glm46VProcessor
    return kind(
        Glm4vImageProcessor(patch_size=16, size=sizes),
        _tokenizer(*GLM_TOKENS),
        Glm4vVideoProcessor(patch_size=16, size=sizes),
        chat_template=GLM_TEMPLATE,
    )


def _gemma() -> PreTrainedConfig:
    tokenizer = _gemma_processor().tokenizer
    text = _text(
        vocab_size=768,
        vocab_size_per_layer_input=768,
        hidden_size_per_layer_input=16,
        head_dim=HEAD,
        global_head_dim=HEAD,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        sliding_window=128,
    )
    del text["rope_parameters"]
    vision = _vision(
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        pooling_kernel_size=3,
        position_embedding_size=512,
        default_output_length=280,
        standardize=True,
    )
    for name in ("depth", "num_heads", "spatial_merge_size", "temporal_patch_size", "out_hidden_size"):
        del vision[name]
    names = {
        "image": "image_token",
        "video": None,
        "audio": "audio_token",
        "boi": "boi_token",
        "eoi": "eoi_token",
    }
    tokens = {kind: "<|video|>" if name is None else GEMMA_TOKENS[name] for kind, name in names.items()}
    ids = {f"{kind}_token_id": tokenizer.convert_tokens_to_ids(token) for kind, token in tokens.items()}
    ids["tie_word_embeddings"] = False
    return Gemma4Config(text_config=text, vision_config=vision, audio_config=None, **ids)


def _gemma_processor() -> Any:
    return Gemma4Processor(
        Gemma4AudioFeatureExtractor(),
        Gemma4ImageProcessor(),
        AutoTokenizer.from_pretrained(BUNDLED / "model", extra_special_tokens=GEMMA_TOKENS),
        Gemma4VideoProcessor(),
        chat_template=GEMMA_TEMPLATE,
    )


def config_of(family: str) -> PreTrainedConfig:
    """The configuration of a family's small model."""
    if family == "gemma4":
        return _gemma()
    if family.startswith("glm"):
        return _glm(family)
    ids = {
        "image_token_id": 5,
        "video_token_id": 6,
        "vision_start_token_id": 3,
        "vision_end_token_id": 4,
        "tie_word_embeddings": False,
    }
    if family == "qwen2_vl":
        vision = _vision(embed_dim=128, hidden_size=HIDDEN, mlp_ratio=2)
        del vision["out_hidden_size"], vision["intermediate_size"]
        return Qwen2VLConfig(text_config=_text(), vision_config=vision, **ids)
    if family == "qwen2_5_vl":
        vision = _vision(window_size=128, fullatt_block_indexes=[1], tokens_per_second=2)
        return Qwen2_5_VLConfig(text_config=_text(), vision_config=vision, **ids)
    interleaved = ROTARY | {"mrope_interleaved": True}
    learned = _vision(num_position_embeddings=1024)
    if family == "qwen3_vl_moe":
        text = _text(head_dim=HEAD, rope_parameters=interleaved, **EXPERTS)
        return Qwen3VLMoeConfig(
            text_config=text, vision_config=learned | {"deepstack_visual_indexes": [0, 1]}, **ids
        )
    rotary = interleaved | {"partial_rotary_factor": 1.0}
    text = _text(head_dim=HEAD, rope_parameters=rotary, **RECURRENT)
    if family == "qwen3_5_moe":
        text |= EXPERTS | {"shared_expert_intermediate_size": 64}
        return Qwen3_5MoeConfig(text_config=text, vision_config=learned, **ids)
    return Qwen3_5Config(text_config=text, vision_config=learned, **ids)


def _as_published(file: Path) -> None:
    """Put the experts' weights the other way round, as published checkpoints have them."""
    weights = load_file(file)
    turned = {name: w.mT.contiguous() if ".experts." in name else w for name, w in weights.items()}
    save_file(turned, file, {"format": "pt"})


def write(family: str, folder: Path) -> Path:
    """A folder with a family's small model."""
    torch.manual_seed(7)
    model = AutoModelForImageTextToText.from_config(config_of(family))
    with torch.no_grad():  # every weight moves, also those that start as zeros or ones
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    if family == "qwen3_vl_moe":
        _as_published(folder / "model.safetensors")
    processor_of(family).save_pretrained(folder)
    return folder


def processor_of(family: str) -> Any:
    """The processor of a family's small model."""
    if family == "gemma4":
        return _gemma_processor()
    if family.startswith("glm"):
        return _glm_processor(family)
    processor = AutoProcessor.from_pretrained(BUNDLED / "model")
    kinds = {"qwen2_vl": Qwen2VLProcessor, "qwen2_5_vl": Qwen2_5_VLProcessor}
    if family in kinds:
        processor = kinds[family](
            processor.image_processor,
            processor.tokenizer,
            Qwen2VLVideoProcessor(patch_size=16),
            chat_template=processor.chat_template,
        )
    return processor
