"""LoRAs of the base model, kept beside the layer (Hu et al. 2021).

`OWN`      of the language model, trained with the layer: at work in every mode but "full"
`PARTIAL`  of both halves, for reading what was encoded in part: at work in "sparse" and "saccade" alone

By transformers' own adapter methods over peft; the base model's weights stay as they are, and without an
adapter the model is the stock one to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import PreTrainedModel

CONFIG_NAME = "adapter_config.json"
TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"
"""What `OWN` adapts: the projections of the language model's attention, never the vision tower."""
PARTIAL_TARGETS = (
    r".*(visual|vision_tower|language_model).*\.(qkv|attn\.proj|q_proj|k_proj|v_proj|o_proj|out_proj"
    r"|linear_fc1|linear_fc2|fc1|fc2|gate_proj|up_proj|down_proj)"
)
"""What `PARTIAL` adapts: attention and feed-forward layers of both halves."""
OWN, PARTIAL = "default", "partial"
PARTIAL_MODES = ("sparse", "saccade")
REST = "prune"
"""The mode whose adapters are at work outside of every block."""


def has_lora(base: PreTrainedModel, name: str | None = None) -> bool:
    """Whether an adapter (of this name) sits in the model."""
    if not getattr(base, "_hf_peft_config_loaded", False):
        return False
    return name is None or name in base.peft_config


def add_lora(base: PreTrainedModel, rank: int) -> None:
    """Put a new `OWN` adapter of this rank into the model; it changes nothing until it has learned."""
    _add(base, rank, OWN, TARGETS)


def add_partial(base: PreTrainedModel, rank: int) -> None:
    """Put a new `PARTIAL` adapter of this rank into the model; it changes nothing until it has learned."""
    _add(base, rank, PARTIAL, PARTIAL_TARGETS)


def _add(base: PreTrainedModel, rank: int, name: str, targets: str) -> None:
    from peft import LoraConfig

    base.add_adapter(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets), name)


def save_lora(base: PreTrainedModel, folder: Path) -> None:
    """Write what adapters there are, as peft does: safetensors and `adapter_config.json`.

    `OWN` goes to the folder itself, `PARTIAL` to the folder `partial` in it.
    """
    places = [
        (name, place) for name, place in ((OWN, folder), (PARTIAL, folder / PARTIAL)) if has_lora(base, name)
    ]
    active = base.active_adapters() if places else []
    for name, place in places:
        base.set_adapter(name)
        base.save_pretrained(place)
        (place / "generation_config.json").unlink(missing_ok=True)  # the base model's own
        path = place / CONFIG_NAME  # peft notes where the base model lay on this disk
        settings = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": None}
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if places:
        base.set_adapter(active)


def load_lora(base: PreTrainedModel, folder: Path) -> None:
    """Load the adapters of an allocator folder into the model, if there are any.

    Raises:
        ValueError: peft is missing, or an adapter can't be read or doesn't fit. Load the model anew then:
            parts of the adapter may be in it.
    """
    for name, place in ((OWN, folder), (PARTIAL, folder / PARTIAL)):
        if (place / CONFIG_NAME).is_file():
            _load(base, place, name)
    if has_lora(base):
        base.requires_grad_(False)
        _use(base, REST)


def _load(base: PreTrainedModel, folder: Path, name: str) -> None:
    try:
        report = base.load_adapter(str(folder), adapter_name=name)
        unfit = sorted(report.missing_keys | report.unexpected_keys)
        if unfit:  # peft itself would leave these out
            raise ValueError(f"{len(unfit)} weights are missing or left over, first {unfit[0]}")
    except (ImportError, RuntimeError, OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        detail = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the LoRA in {str(folder)!r} can't be loaded ({detail}); use the base model it was trained for"
        ) from error


@contextmanager
def lora_for(base: PreTrainedModel, mode: str) -> Generator[None, None, None]:
    """The adapters of a mode inside the block; nothing changes where there is none.

    "full" is the stock model. `PARTIAL_MODES` have `PARTIAL`, or `OWN` where it is missing; all others have
    `OWN`, or none. Afterwards the model is as for `REST`.
    """
    if not has_lora(base):
        yield
        return
    _use(base, mode)
    try:
        yield
    finally:
        _use(base, REST)


def _use(base: PreTrainedModel, mode: str) -> None:
    wanted = () if mode == "full" else (PARTIAL, OWN) if mode in PARTIAL_MODES else (OWN,)
    chosen = next((name for name in wanted if has_lora(base, name)), None)
    if chosen is None:
        base.disable_adapters()
        return
    base.enable_adapters()
    if base.active_adapters() != [chosen]:  # peft would let it learn
        learns = any(p.requires_grad for name, p in base.named_parameters() if "lora_" in name)
        base.set_adapter(chosen)
        if not learns:
            base.requires_grad_(False)


@contextmanager
def without_lora(base: PreTrainedModel, off: bool = True) -> Generator[None, None, None]:
    """The stock model inside the block, if `off`; else the model as it is."""
    if not off:
        yield
        return
    with lora_for(base, "full"):
        yield
