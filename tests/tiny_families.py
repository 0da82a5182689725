"""Tiny random models of the families beside those of `tiny.py`, with real processors. No downloads.

`build(family)` gives a model and its processor as `tiny.tiny` does, which calls it. Every family is one entry
of `BUILDERS`, or a file of `tiny_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import transformers as hf  # classes by attribute: each imports its own files, and most runs need few
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import tiny_kinds
from arr_coc.families.registry import FAMILIES, is_served

WIDTH = 32
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}

MARKS = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "audio_token": "<|audio_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
    "boi_token": "<|begin_of_image|>",
    "eoi_token": "<|end_of_image|>",
    "boa_token": "<|begin_of_audio|>",
    "eoa_token": "<|end_of_audio|>",
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "fake_image_token": "<fake_token_around_image>",
    "global_image_token": "<global-img>",
    "image_break_token": "<|vision_pad|>",
    "image_end_token": "<|image_end|>",
}
"""Special tokens by the names by which processors ask a tokenizer for them."""
MORE = (
    "<|endoftext|>",
    "<|im_end|>",
    "<video>",
    "<|im_start|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
    "<image>",
    "<end_of_utterance>",
    "[IMG]",
    "[IMG_BREAK]",
    "[IMG_END]",
    "<|image|>",
    *(f"<row_{row + 1}_col_{column + 1}>" for row in range(6) for column in range(6)),
)

CONTENT = (
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}IMAGE{% elif c.type == 'video' %}VIDEO{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %}"
)


def template(image: str, video: str = "") -> str:
    """A chat template that writes so for an image and for a clip."""
    content = CONTENT.replace("IMAGE", image).replace("VIDEO", video)
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n" + content + "<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def words(**marks: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges, which knows the special tokens by name."""
    vocabulary = (*sorted(pre_tokenizers.ByteLevel.alphabet()), *MARKS.values(), *MORE)
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    built = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        extra_special_tokens=MARKS | marks,
    )
    built.add_special_tokens({"additional_special_tokens": list(MORE)}, replace_extra_special_tokens=False)
    return built


def text(**more: Any) -> dict[str, Any]:
    """Settings of a tiny language model."""
    tokens = words()
    return {
        "vocab_size": len(tokens) + 2,  # of a processor that adds one of its own
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 4096,
        "initializer_range": 0.35,
        "pad_token_id": tokens.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokens.eos_token_id,
        **more,
    }


def ids(**names: str) -> dict[str, int]:
    """Token ids by the settings that hold them."""
    tokens = words()
    return {name: tokens.convert_tokens_to_ids(token) for name, token in names.items()}


def mrope(**more: Any) -> dict[str, Any]:
    """Settings of three-row rotary positions."""
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], **more}


def qwen_ids() -> dict[str, int]:
    return ids(
        image_token_id="<|image_pad|>",
        video_token_id="<|video_pad|>",
        vision_start_token_id="<|vision_start|>",
        vision_end_token_id="<|vision_end|>",
    )


def qwen_tower(**more: Any) -> dict[str, Any]:
    return {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": WIDTH,
        "initializer_range": 0.2,
        **more,
    }


def siglip_tower(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "patch_size": 4,
        "initializer_range": 0.2,
        **more,
    }


def qwen_pictures(**more: Any) -> Any:
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    return hf.Qwen2VLImageProcessor(patch_size=4, temporal_patch_size=2, merge_size=2, size=sizes, **more)


HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
QWEN = template("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>")


def qwen3_vl_moe() -> tuple[Any, Any]:
    config = hf.Qwen3VLMoeConfig(
        text_config=text(**EXPERTS, rope_parameters=mrope(mrope_interleaved=True)),
        vision_config=qwen_tower(deepstack_visual_indexes=[0, 1], num_position_embeddings=64),
        **qwen_ids(),
    )
    pictures = qwen_pictures(**HALVES)
    return config, hf.Qwen3VLProcessor(pictures, words(), hf.Qwen3VLVideoProcessor(), chat_template=QWEN)


def qwen3_5_moe() -> tuple[Any, Any]:
    layers = text(
        **EXPERTS,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        shared_expert_intermediate_size=16,
        rope_parameters=mrope(mrope_interleaved=True, partial_rotary_factor=1.0),
    )
    config = hf.Qwen3_5MoeConfig(
        text_config=layers, vision_config=qwen_tower(num_position_embeddings=64), **qwen_ids()
    )
    pictures = qwen_pictures(**HALVES)
    return config, hf.Qwen3VLProcessor(pictures, words(), hf.Qwen3VLVideoProcessor(), chat_template=QWEN)


def omni_ids(**more: str) -> dict[str, int]:
    return ids(
        audio_token_id="<|audio_pad|>",
        image_token_id="<|image_pad|>",
        video_token_id="<|video_pad|>",
        vision_start_token_id="<|vision_start|>",
        audio_start_token_id="<|audio_start|>",
        audio_end_token_id="<|audio_end|>",
        **more,
    )


SOUND = {
    "d_model": 32,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "output_dim": WIDTH,
    "num_mel_bins": 16,
}


def qwen2_5_omni_thinker() -> tuple[Any, Any]:
    config = hf.Qwen2_5OmniThinkerConfig(
        text_config=text(rope_parameters=mrope()),
        vision_config=qwen_tower(window_size=16, fullatt_block_indexes=[1], tokens_per_second=2),
        audio_config=SOUND,
        **omni_ids(vision_end_token_id="<|vision_end|>"),
    )
    processor = hf.Qwen2_5OmniProcessor(
        qwen_pictures(),
        hf.Qwen2VLVideoProcessor(),
        hf.WhisperFeatureExtractor(),
        words(),
        chat_template=QWEN,
    )
    return hf.Qwen2_5OmniThinkerForConditionalGeneration(config), processor


def qwen3_omni_moe_thinker() -> tuple[Any, Any]:
    config = hf.Qwen3OmniMoeThinkerConfig(
        text_config=text(**EXPERTS, rope_parameters=mrope(mrope_interleaved=True)),
        vision_config=qwen_tower(deepstack_visual_indexes=[0, 1], num_position_embeddings=64),
        audio_config=SOUND | {"downsample_hidden_size": 16},
        **omni_ids(),
    )
    processor = hf.Qwen3OmniMoeProcessor(
        qwen_pictures(**HALVES),
        hf.Qwen2VLVideoProcessor(),
        hf.WhisperFeatureExtractor(),
        words(),
        chat_template=QWEN,
    )
    return hf.Qwen3OmniMoeThinkerForConditionalGeneration(config), processor


GLM = template(
    "<|begin_of_image|><|image|><|end_of_image|>", "<|begin_of_video|><|video_pad|><|end_of_video|>"
)


def glm_settings(**more: Any) -> dict[str, Any]:
    tower = qwen_tower(image_size=48, attention_bias=False)
    return {
        "text_config": text(rope_parameters=mrope(partial_rotary_factor=1.0), **more),
        "vision_config": tower,
        **ids(
            image_token_id="<|image|>",
            video_token_id="<|video_pad|>",
            image_start_token_id="<|begin_of_image|>",
            image_end_token_id="<|end_of_image|>",
            video_start_token_id="<|begin_of_video|>",
            video_end_token_id="<|end_of_video|>",
        ),
    }


def glm_processor(kind: str = "Glm4vProcessor") -> Any:
    sizes = {"shortest_edge": 16 * 16 * 2, "longest_edge": 96 * 96 * 2}
    pictures = hf.Glm4vImageProcessor(patch_size=4, temporal_patch_size=2, merge_size=2, size=sizes)
    clips = hf.Glm4vVideoProcessor(patch_size=4, temporal_patch_size=2, merge_size=2, size=sizes)
    return getattr(hf, kind)(pictures, words(image_token="<|image|>"), clips, chat_template=GLM)


def glm4v() -> tuple[Any, Any]:
    return hf.Glm4vForConditionalGeneration(hf.Glm4vConfig(**glm_settings())), glm_processor()


def glm46v() -> tuple[Any, Any]:
    return hf.Glm46VConfig(**glm_settings()), glm_processor("Glm46VProcessor")


def glm_ocr() -> tuple[Any, Any]:
    return hf.GlmOcrConfig(**glm_settings()), glm_processor("Glm46VProcessor")


def glm4v_moe() -> tuple[Any, Any]:
    experts = {
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    }
    return hf.Glm4vMoeConfig(**glm_settings(**experts)), glm_processor()


def paddleocr_vl() -> tuple[Any, Any]:
    config = hf.PaddleOCRVLConfig(
        text_config=text(rope_parameters=mrope()),
        vision_config=siglip_tower(image_size=48, spatial_merge_size=2),
        **ids(
            image_token_id="<|image_pad|>",
            video_token_id="<|video_pad|>",
            vision_start_token_id="<|vision_start|>",
            vision_end_token_id="<|vision_end|>",
        ),
    )
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    pictures = hf.PaddleOCRVLImageProcessor(patch_size=4, temporal_patch_size=1, merge_size=2, size=sizes)
    return config, hf.PaddleOCRVLProcessor(pictures, words(), chat_template=QWEN)


def gemma3() -> tuple[Any, Any]:
    layers = text(sliding_window=4096, layer_types=["sliding_attention", "full_attention"])
    config = hf.Gemma3Config(
        text_config=hf.Gemma3TextConfig(**layers),
        vision_config=hf.SiglipVisionConfig(**siglip_tower(image_size=48), vision_use_head=False),
        mm_tokens_per_image=36,
        **ids(
            image_token_id="<|image|>",
            boi_token_id="<|begin_of_image|>",
            eoi_token_id="<|end_of_image|>",
        ),
    )
    pictures = hf.Gemma3ImageProcessor(size={"height": 48, "width": 48}, **HALVES)
    processor = hf.Gemma3Processor(
        pictures,
        words(image_token="<|image|>"),
        chat_template=template("<|begin_of_image|>"),
        image_seq_length=36,
    )
    return config, processor


def gemma4() -> tuple[Any, Any]:
    layers = text(
        sliding_window=4096,
        layer_types=["sliding_attention", "full_attention"],
        hidden_size_per_layer_input=0,
        global_head_dim=8,
        num_global_key_value_heads=2,
        num_kv_shared_layers=0,
        vocab_size_per_layer_input=len(words()) + 2,
    )
    tower = siglip_tower(
        head_dim=16,
        pooling_kernel_size=3,
        position_embedding_size=128,
        num_key_value_heads=2,
        standardize=True,
        default_output_length=70,
        global_head_dim=16,
    )
    config = hf.Gemma4Config(
        text_config=hf.Gemma4TextConfig(**layers),
        vision_config=hf.Gemma4VisionConfig(**tower),
        audio_config=None,
        **ids(
            image_token_id="<|image|>",
            video_token_id="<|video_pad|>",
            audio_token_id="<|audio_pad|>",
            boi_token_id="<|begin_of_image|>",
            eoi_token_id="<|end_of_image|>",
        ),
    )
    pictures = hf.Gemma4ImageProcessor(patch_size=4, max_soft_tokens=70)
    processor = hf.Gemma4Processor(
        hf.WhisperFeatureExtractor(),
        pictures,
        words(image_token="<|image|>"),
        hf.Gemma4VideoProcessor(patch_size=4, max_soft_tokens=70),
        chat_template=template("<|image|>"),
        image_seq_length=70,
    )
    return config, processor


def internvl() -> tuple[Any, Any]:
    tower = siglip_tower(image_size=24)
    tower |= {"image_size": [24, 24], "patch_size": [4, 4]}
    config = hf.InternVLConfig(
        text_config=hf.Qwen2Config(**text()),
        vision_config=hf.InternVLVisionConfig(**tower),
        image_seq_length=9,
        **ids(image_token_id="<IMG_CONTEXT>"),
    )
    pictures = hf.GotOcr2ImageProcessor(
        size={"height": 24, "width": 24}, crop_to_patches=True, max_patches=6, **IMAGENET
    )
    processor = hf.InternVLProcessor(
        pictures,
        words(video_token="<video>"),
        hf.InternVLVideoProcessor(size={"height": 24, "width": 24}),
        image_seq_length=9,
        chat_template=template("<IMG_CONTEXT>\n"),
    )
    return config, processor


def idefics(kind: Any) -> Any:
    return kind(
        text_config=hf.LlamaConfig(**text()),
        vision_config=siglip_tower(image_size=24),
        scale_factor=2,
        **ids(image_token_id="<image>"),
    )


def idefics3() -> tuple[Any, Any]:
    pictures = hf.Idefics3ImageProcessor(
        size={"longest_edge": 72}, max_image_size={"longest_edge": 24}, **HALVES
    )
    return idefics(hf.Idefics3Config), hf.Idefics3Processor(
        pictures, words(image_token="<image>"), image_seq_len=9, chat_template=template("<image>")
    )


def smolvlm() -> tuple[Any, Any]:
    pictures = hf.SmolVLMImageProcessor(
        size={"longest_edge": 72}, max_image_size={"longest_edge": 24}, **HALVES
    )
    clips = hf.SmolVLMVideoProcessor(size={"longest_edge": 24}, max_image_size={"longest_edge": 24})
    return idefics(hf.SmolVLMConfig), hf.SmolVLMProcessor(
        pictures, words(image_token="<image>"), clips, image_seq_len=9, chat_template=template("<image>")
    )


def mistral3() -> tuple[Any, Any]:
    config = hf.Mistral3Config(
        text_config=hf.MistralConfig(**text(), sliding_window=None),
        vision_config=hf.PixtralVisionConfig(**siglip_tower(image_size=96)),
        image_token_index=words().convert_tokens_to_ids("[IMG]"),
    )
    pictures = hf.PixtralImageProcessor(
        size={"longest_edge": 96}, patch_size={"height": 8, "width": 8}, do_convert_rgb=True
    )
    processor = hf.PixtralProcessor(
        pictures, words(), patch_size=4, spatial_merge_size=2, chat_template=template("[IMG]")
    )
    return config, processor


def lighton_ocr() -> tuple[Any, Any]:
    config = hf.LightOnOcrConfig(
        text_config=text(model_type="qwen3"),
        vision_config=siglip_tower(image_size=96, model_type="pixtral"),
        **ids(image_token_id="<|image_pad|>"),
    )
    pictures = hf.PixtralImageProcessor(
        size={"longest_edge": 96}, patch_size={"height": 8, "width": 8}, do_convert_rgb=True
    )
    processor = hf.LightOnOcrProcessor(
        pictures, words(), patch_size=4, spatial_merge_size=2, chat_template=template("<|image_pad|>")
    )
    return config, processor


def vipllava() -> tuple[Any, Any]:
    """Of a family without an adapter: a square of cells for each picture, features as one tensor."""
    config = hf.VipLlavaConfig(
        text_config=hf.LlamaConfig(**text()),
        vision_config=hf.CLIPVisionConfig(**siglip_tower(image_size=24)),
        vision_feature_layers=[-1, -2],
        image_token_index=words().convert_tokens_to_ids("<image>"),
    )
    square = {"height": 24, "width": 24}
    pictures = hf.CLIPImageProcessor(size={"shortest_edge": 24}, crop_size=square)
    processor = hf.LlavaProcessor(
        pictures,
        words(image_token="<image>"),
        chat_template=template("<image>"),
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return config, processor


_MAKERS: tuple[Callable[[], tuple[Any, Any]], ...] = (
    qwen3_vl_moe,
    qwen3_5_moe,
    qwen2_5_omni_thinker,
    qwen3_omni_moe_thinker,
    glm4v,
    glm46v,
    glm_ocr,
    glm4v_moe,
    paddleocr_vl,
    gemma3,
    gemma4,
    internvl,
    idefics3,
    smolvlm,
    mistral3,
    lighton_ocr,
)


MADE = (*(make.__name__ for make in _MAKERS), *(name for name in tiny_kinds.NAMES if name in FAMILIES))
"""The families that arr-coc has an adapter of, whatever the installed transformers serves."""
_MORE = {name: partial(tiny_kinds.make, name) for name in tiny_kinds.NAMES if is_served(name)}
BUILDERS = {make.__name__: make for make in _MAKERS if is_served(make.__name__)}
BUILDERS |= {name: make for name, make in _MORE.items() if name in FAMILIES}
"""Families by name, those that the installed transformers serves."""
UNREGISTERED = {make.__name__: make for make in (vipllava,)}
UNREGISTERED |= {name: make for name, make in _MORE.items() if name not in {*FAMILIES, *tiny_kinds.REFUSED}}
"""Families that arr-coc has no adapter of, for the generic one."""
REFUSED = {name: tiny_kinds.REFUSED[name] for name in _MORE if name in tiny_kinds.REFUSED}
"""Families that the generic one doesn't fit either, with what is said of them."""


def build(family: str) -> tuple[PreTrainedModel, Any]:
    """A model of a family, its weights just drawn, and its processor."""
    made, processor = (BUILDERS | UNREGISTERED | _MORE)[family]()
    model = made if isinstance(made, PreTrainedModel) else hf.AutoModelForImageTextToText.from_config(made)
    return model, processor
