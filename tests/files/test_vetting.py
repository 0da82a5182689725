"""What is vetted in a model folder: which settings are refused by name, and which ordinary ones are not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version

from arr_coc.files.saved import BUNDLED
from arr_coc.files.vetting import READ, vetted, weight_names
from arr_coc.store import checkpoint
from tiny import tiny


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "model"))


def change(folder: Path, name: str, changes: dict[str, Any], *parts: str) -> None:
    """Change settings of a JSON file of a folder, or of an object in it."""
    path = folder / name
    settings = json.loads(path.read_text()) if path.exists() else {}
    inner = settings
    for part in parts:
        inner = inner.setdefault(part, {})
    inner.update(changes)
    path.write_text(json.dumps(settings))


def test_the_release_of_transformers_was_read() -> None:
    """Of a newer one nobody has looked at what its files can make it do: read it, then raise READ."""
    assert Version(transformers.__version__).release[:2] <= Version(READ).release


REPOSITORY = "someone/some-repo"
REFUSED = [
    ("config.json", {"attn_implementation": REPOSITORY}, (), "attn_implementation is .*code of a repository"),
    ("config.json", {"_attn_implementation": REPOSITORY}, (), "_attn_implementation is 'someone/some-repo'"),
    ("config.json", {"_attn_implementation_internal": REPOSITORY}, (), "_attn_implementation_internal is"),
    ("config.json", {"attn_implementation": REPOSITORY}, ("text_config",), "attn_implementation is"),
    ("config.json", {"attn_implementation": REPOSITORY}, ("vision_config",), "attn_implementation is"),
    ("config.json", {"attn_implementation": {"vision_config": REPOSITORY}}, (), "attn_implementation is"),
    ("config.json", {"attn_implementation": "paged|" + REPOSITORY}, (), "attn_implementation is"),
    ("config.json", {"experts_implementation": REPOSITORY}, ("text_config",), "experts_implementation is"),
    ("config.json", {"experts_implementation": "sonicmoe"}, (), "experts_implementation is 'sonicmoe'"),
    ("config.json", {"quantization_config": {"quant_method": "fp8"}}, (), "quantization_config.*wrap"),
    ("config.json", {"quantization_config": {"quant_method": "fp8"}}, ("text_config",), "quantization_con"),
    ("config.json", {"configuration_files": ["config.4.0.0.json"]}, (), "it has configuration_files"),
    ("config.json", {"transformers_weights": "adapter_model.bin"}, (), "it has transformers_weights"),
    ("config.json", {"fusion_config": {"a": True}}, (), "it has fusion_config"),
    (
        "config.json",
        {"num_hidden_layers": 10**6},
        ("text_config",),
        "num_hidden_layers is 1000000, more",
    ),
    ("config.json", {"depth": 10**6}, ("vision_config",), "depth is 1000000, more than"),
    ("config.json", {"num_experts": 10**6}, ("text_config",), "num_experts is 1000000, more than"),
    ("config.json", {"n_input_layers": 10**6}, ("text_config",), "n_input_layers is 1000000, more than"),
    ("config.json", {"n_routed_experts": 10**6}, ("text_config",), "n_routed_experts is 1000000, more"),
    (
        "config.json",
        {"n_recurrent_loops": 10**6},
        ("text_config",),
        "n_recurrent_loops is 1000000, more",
    ),
    ("config.json", {"loop_num_passes": 10**6}, ("text_config",), "loop_num_passes is 1000000, more"),
    (
        "config.json",
        {"intermediate_size": 10**9},
        ("text_config",),
        "a model of .* billion numbers, which",
    ),
    ("config.json", {"vocab_size": 10**9}, ("text_config",), "a model of .* billion numbers, which"),
    (
        "config.json",
        {"deepstack_visual_indexes": [0] * 2_000_000},
        ("vision_config",),
        "deepstack_visual_indexes has 2000000 entries, more than 4096",
    ),
    ("config.json", {"image_grid_pinpoints": [[24, 10**9]]}, (), "image_grid_pinpoints is 1000000000, more"),
    ("config.json", {"window_size": 100_000}, ("vision_config",), "window_size is 100000, more than 8192"),
    ("generation_config.json", {"num_beams": 10**6}, (), "num_beams is 1000000, more than 64"),
    ("generation_config.json", {"max_new_tokens": 10**9}, (), "max_new_tokens is 1000000000, more than"),
    ("generation_config.json", {"bad_words_ids": [[1]] * 10_000}, (), "bad_words_ids has 10000 entries"),
    ("generation_config.json", {"eos_token_id": "x"}, (), "eos_token_id is 'x', which no generation can use"),
    ("generation_config.json", {"guidance_scale": False}, (), "guidance_scale is False, which no generation"),
    ("generation_config.json", {"temperature": "hot"}, (), "temperature is 'hot', which no generation"),
    ("generation_config.json", {"top_p": float("nan")}, (), "top_p is nan, which no generation can use"),
    ("generation_config.json", {"use_cache": "yes"}, (), "use_cache is 'yes', which no generation can use"),
    (
        "generation_config.json",
        {"do_sample": True, "temperature": 0},
        (),
        "do_sample is true and temperature",
    ),
    ("processor_config.json", {"audio_tokenizer": {"a": REPOSITORY}}, (), "audio_tokenizer names a model"),
    (
        "processor_config.json",
        {"processor_class": "BertModel"},
        (),
        "processor_class is 'BertModel', which",
    ),
    (
        "processor_config.json",
        {"image_processor_type": "os.Evil"},
        ("image_processor",),
        "image_processor_ty",
    ),
    (
        "processor_config.json",
        {"shortest_edge": 10**12},
        ("image_processor", "size"),
        "shortest_edge is 1000",
    ),
    ("preprocessor_config.json", {"max_pixels": 10**12}, (), "max_pixels is 1000000000000, more than"),
    ("preprocessor_config.json", {"min_pixels": 2**28}, (), "min_pixels is 268435456, more than 4194304"),
    ("preprocessor_config.json", {"temporal_patch_size": 10**5}, (), "temporal_patch_size is 100000, more"),
    ("preprocessor_config.json", {"image_mean": [0.5] * 5000}, (), "image_mean has 5000 entries, more than"),
    ("preprocessor_config.json", {"max_patches": 10**9}, (), "max_patches is 1000000000, more than 16384"),
    ("tokenizer_config.json", {"tokenizer_class": "evil.Evil"}, (), "tokenizer_class is 'evil.Evil'"),
    (
        "tokenizer_config.json",
        {"vocab_file": "/etc/passwd"},
        (),
        "vocab_file names '/etc/passwd', which is out",
    ),
    ("audio_tokenizer_config.json", {"audio_tokenizer_class": "DacModel"}, (), "it names a model elsewhere"),
]
ORDINARY = [
    ("config.json", {"attn_implementation": "eager"}, ()),
    ("config.json", {"_attn_implementation": "flash_attention_2"}, ("text_config",)),  # not installed here
    ("config.json", {"_attn_implementation_autoset": True, "_name_or_path": "someone/else"}, ()),
    ("config.json", {"attn_implementation": {"text_config": "eager", "vision_config": None}}, ()),
    (
        "config.json",
        {"auto_map": {"AutoConfig": "evil.C", "AutoModelForImageTextToText": "evil.M"}},
        (),
    ),
    ("config.json", {"quantization_config": None, "max_position_embeddings": 10**7}, ()),
    ("generation_config.json", {"custom_generate": REPOSITORY, "temperature": 0.3, "num_beams": 4}, ()),
    ("generation_config.json", {"temperature": 0, "pad_token_id": -1, "eos_token_id": [1, 2]}, ()),
    ("generation_config.json", {"temperature": None, "top_k": 0, "early_stopping": "never"}, ()),
    ("processor_config.json", {"auto_map": {"AutoProcessor": "evil.Processor"}}, ()),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}, ()),
    ("tokenizer_config.json", {"special_tokens_map_file": "/root/.cache/x.json", "vocab_file": None}, ()),
    ("tokenizer_config.json", {"tokenizer_file": "/nowhere/tokenizer.json", "name_or_path": REPOSITORY}, ()),
]


@pytest.mark.parametrize(("name", "changes", "parts", "match"), REFUSED)
def test_refused(
    folder: Path, name: str, changes: dict[str, Any], parts: tuple[str, ...], match: str
) -> None:
    change(folder, name, changes, *parts)
    with pytest.raises(ValueError, match=match) as error:
        checkpoint.load_base(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "changes", "parts"), ORDINARY)
def test_ordinary(folder: Path, name: str, changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    change(folder, name, changes, *parts)
    model, processor = checkpoint.load_base(folder)
    expected = tiny("qwen3_vl").model.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())
    assert type(processor).__module__.startswith("transformers.")
    assert model.config._attn_implementation in ("eager", "sdpa")


@pytest.mark.slow
def test_a_model_is_loaded_as_transformers_loads_it(folder: Path) -> None:
    from transformers import AutoModelForImageTextToText

    change(folder, "generation_config.json", {"temperature": 0.25, "do_sample": True, "eos_token_id": [3, 4]})
    for _ in range(2):
        stock = AutoModelForImageTextToText.from_pretrained(folder)
        model, _ = checkpoint.load_base(folder)
        assert type(model) is type(stock)
        assert model.config.to_dict() == stock.config.to_dict()
        assert model.name_or_path == stock.name_or_path == str(folder)
        assert model.generation_config.to_dict() == stock.generation_config.to_dict()
        ours, theirs = (dict(m.named_parameters()) | dict(m.named_buffers()) for m in (model, stock))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) and value.dtype == theirs[name].dtype
                   for name, value in ours.items())  # fmt: skip
        (folder / "generation_config.json").unlink(missing_ok=True)


def test_weights_are_named_before_they_are_there(tmp_path: Path) -> None:
    assert weight_names(tmp_path) == ["model.safetensors"]
    table = {
        "a": "model-1-of-2.safetensors",
        "b": "model-2-of-2.safetensors",
        "c": "model-1-of-2.safetensors",
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    assert weight_names(tmp_path) == ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]


def test_the_bundled_model() -> None:
    files = vetted(BUNDLED / "model")
    assert [path.name for path in files.weights] == ["model.safetensors"]
    assert files.size == (BUNDLED / "model" / "model.safetensors").stat().st_size
    assert files.config["model_type"] == "qwen3_vl"
    assert files.generation is not None
