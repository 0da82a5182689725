"""Files of a LoRA in peft's format, read as settings and matrices and as nothing else.

    config, weights = read_lora(folder)

    adapter_config.json           which layers, which rank, which scale
    adapter_model.safetensors     the matrices A and B of each layer

A file may come from anybody, and peft's settings can do much more than choose layers (looked up in peft
0.21): `megatron_core` is a module that is imported, `init_lora_weights` may write into the base model's
weights ("pissa", "olora") or take hours ("eva"), `layer_replication` and `trainable_token_indices` change the
model, `target_modules` as one text is a regular expression, as are `exclude_modules` and the keys of
`rank_pattern` and `alpha_pattern`. So every setting but those of an ordinary LoRA must have its default, and
patterns have names, a few `.*` and a few choices between names, which take no text long.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from arr_coc.files.saved import MOST_BYTES, check_finite

CONFIG_NAME = "adapter_config.json"
WEIGHTS_NAME = "adapter_model.safetensors"
FILES = (CONFIG_NAME, WEIGHTS_NAME)
PREFIX = "base_model.model."
"""The prefix of peft before the names of modules in its files."""

PATTERNS = ("target_modules", "exclude_modules", "layers_pattern", "rank_pattern", "alpha_pattern")
ORDINARY = (
    *("auto_mapping", "base_model_name_or_path", "fan_in_fan_out", "inference_mode", "layers_to_transform"),
    *("lora_alpha", "lora_dropout", "megatron_core", "peft_type", "peft_version", "qalora_group_size", "r"),
    *("revision", "runtime_config", "task_type", "use_rslora", *PATTERNS),
)
"""Settings that may differ from peft's defaults. Some name a repository or a module: those that read them are
not called, or only with another setting that may not differ."""
PLAIN = re.compile(r"(?:[\w-]|\\?\.(?!\*)|\(|\)|\||\.\*)*")
CHOICE = re.compile(r"\(([^()]*)\)")
MOST_STARS, MOST_CHOICES, MOST_LENGTH = 3, 2, 2000


def read_lora(folder: Path) -> tuple[Any, dict[str, Tensor]]:
    """Read a LoRA.

    Returns:
        Its `peft.LoraConfig`, and its matrices by the name of the layer and ".lora_A.weight" or
        ".lora_B.weight".

    Raises:
        ImportError: peft is missing.
        ValueError: settings of more than an ordinary LoRA.
        Exception: whatever a damaged file leads to.
    """
    from peft import LoraConfig

    path = folder / CONFIG_NAME
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{CONFIG_NAME} is larger than {MOST_BYTES / 1e6:g} MB")
    settings = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
        raise ValueError(f"{CONFIG_NAME} is not of a LoRA")
    stock = LoraConfig().to_dict()
    for name, value in settings.items():
        plain = value in (None, False, "none") or value in ([], {}) or name in ORDINARY
        if name == "init_lora_weights":
            plain = isinstance(value, bool) or value == "gaussian"
        if not plain and value != stock.get(name):
            raise ValueError(f"{name} is {str(value)[:60]!r}, which an ordinary LoRA hasn't")
    check_patterns(settings)
    weights = {key.removeprefix(PREFIX): value for key, value in load_file(folder / WEIGHTS_NAME).items()}
    check_finite(weights)
    ranks = [settings.get("r", stock["r"]), *(settings.get("rank_pattern") or {}).values()]
    most = max((min(value.shape, default=0) for value in weights.values()), default=0)
    if not all(type(rank) is int and 0 < rank <= most for rank in ranks):
        raise ValueError(f"its ranks are {str(ranks)[:60]}, and its matrices' {most}")
    names = {field.name for field in dataclasses.fields(LoraConfig) if field.init}
    config = LoraConfig(**{name: value for name, value in settings.items() if name in names})
    return config, weights


def check_patterns(settings: dict[str, Any]) -> None:
    """Refuse patterns that could take long, or that are none.

    Args:
        settings: of an adapter_config.json.

    Raises:
        ValueError: names the setting.
    """
    for name in PATTERNS:
        value = settings.get(name)
        texts: Iterable[Any] = value if isinstance(value, list | dict) else [value]
        for text in texts:
            if text is None:
                continue
            if not isinstance(text, str) or len(text) > MOST_LENGTH or not PLAIN.fullmatch(text):
                raise ValueError(f"{name} has {str(text)[:60]!r}: list the names of its layers instead")
            choices = [choice.split("|") for choice in CHOICE.findall(text)]
            if (
                text.count(".*") > MOST_STARS
                or text.count("(") > MOST_CHOICES
                or any(len(set(names)) < len(names) for names in choices)
            ):
                raise ValueError(f"{name} has {text[:60]!r}: list the names of its layers instead")
            re.compile(text)
