"""LoRAs of the base model, kept beside the layer (Hu et al. 2021).

`OWN`      of the language model, trained with the layer: at work in every mode but "full"
`PARTIAL`  of the vision tower, for encoding some cells alone: at work in "sparse" and "saccade"
`COARSE`   of the language model, for reading a gestalt before fine tokens: in "saccade", in place of `OWN`

By transformers' own adapter methods over peft; the base model's weights stay as they are, and without an
adapter the model is the stock one to the last bit.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

CONFIG_NAME = "adapter_config.json"
TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"
"""What `OWN` adapts: the projections of the language model's attention, never the vision tower."""
PARTIAL_TARGETS = (
    r".*(visual|vision_tower).*\.(qkv|attn\.proj|q_proj|k_proj|v_proj|out_proj|linear_fc1|linear_fc2|fc1|fc2"
    r"|gate_proj|up_proj|down_proj)"
)
"""What `PARTIAL` adapts: attention and feed-forward layers, and mergers, of the vision tower."""
COARSE_TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""What `COARSE` adapts: attention and feed-forward layers of the language model."""
OWN, PARTIAL, COARSE = "default", "partial", "coarse"
ADAPTERS = (OWN, PARTIAL, COARSE)
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
    """Put new `PARTIAL` and `COARSE` adapters of this rank into the model, both at work."""
    _add(base, rank, PARTIAL, PARTIAL_TARGETS)
    _add(base, rank, COARSE, COARSE_TARGETS)
    base.set_adapter([PARTIAL, COARSE])


def _add(base: PreTrainedModel, rank: int, name: str, targets: str) -> None:
    from peft import LoraConfig

    base.add_adapter(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets), name)


def save_lora(base: PreTrainedModel, folder: Path) -> None:
    """Write what adapters there are, as peft does: safetensors and `adapter_config.json`.

    `OWN` goes to the folder itself, the others to folders of their names in it.
    """
    places = [(name, place(folder, name)) for name in ADAPTERS if has_lora(base, name)]
    active = base.active_adapters() if places else []
    for name, where in places:
        with _as_learning(base):
            base.set_adapter(name)
        base.save_pretrained(where)
        (where / "generation_config.json").unlink(missing_ok=True)  # the base model's own
        path = where / CONFIG_NAME  # peft notes where the base model lay on this disk
        settings = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": None}
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if places:
        with _as_learning(base):
            base.set_adapter(active)


def place(folder: Path, name: str) -> Path:
    """Where an adapter lies in an allocator folder."""
    return folder if name == OWN else folder / name


def load_lora(base: PreTrainedModel, folder: Path) -> None:
    """Load the adapters of an allocator folder into the model, if there are any.

    Raises:
        ValueError: peft is missing, or an adapter can't be read or doesn't fit. Load the model anew then:
            parts of the adapter may be in it.
    """
    for name in ADAPTERS:
        if (place(folder, name) / CONFIG_NAME).is_file():
            _load(base, place(folder, name), name)
    if has_lora(base):
        base.requires_grad_(False)
        _use(base, adapters_of(base, REST))


def _load(base: PreTrainedModel, folder: Path, name: str) -> None:
    try:
        with _quiet():
            report = base.load_adapter(str(folder), adapter_name=name)
        missing = {key for key in report.missing_keys if f".{name}." in key}  # not those of another adapter
        unfit = sorted(missing | report.unexpected_keys)
        if unfit:  # peft itself would leave these out
            raise ValueError(f"{len(unfit)} weights are missing or left over, first {unfit[0]}")
    except (ImportError, RuntimeError, OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        detail = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the LoRA in {str(folder)!r} can't be loaded ({detail}); use the base model it was trained for"
        ) from error


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """No report of a second adapter, which calls the weights of the first one missing."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            yield
    finally:
        transformers_logging.set_verbosity(before)


@contextmanager
def lora_for(base: PreTrainedModel, mode: str) -> Generator[None, None, None]:
    """The adapters of a mode inside the block, and afterwards those of before."""
    if not has_lora(base):
        yield
        return
    before, wanted = _at_work(base), adapters_of(base, mode)
    _use(base, wanted)
    try:
        yield
    finally:
        _use(base, before)


def adapters_of(base: PreTrainedModel, mode: str) -> list[str]:
    """The adapters of a mode, of those that the model has."""
    reader = COARSE if mode == "saccade" and has_lora(base, COARSE) else OWN
    wanted = {"full": (), "sparse": (PARTIAL, reader), "saccade": (PARTIAL, reader)}.get(mode, (reader,))
    return [name for name in wanted if has_lora(base, name)]


def _at_work(base: PreTrainedModel) -> list[str]:
    """The adapters that are at work."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layer = next(module for module in base.modules() if isinstance(module, BaseTunerLayer))
    return [] if layer.disable_adapters else list(layer.active_adapters)


def _use(base: PreTrainedModel, names: list[str]) -> None:
    """Put these adapters to work and no others; going through all layers is saved where they are."""
    if _at_work(base) == names:
        return
    with _as_learning(base):
        if not names:
            base.disable_adapters()
            return
        base.enable_adapters()
        base.set_adapter(names)


@contextmanager
def _as_learning(base: PreTrainedModel) -> Generator[None, None, None]:
    """What learns goes on learning and nothing else begins to: peft lets learn whatever it puts to work."""
    parts = [(p, p.requires_grad) for name, p in base.named_parameters() if "lora_" in name]
    yield
    for parameter, learns in parts:
        parameter.requires_grad_(learns)


@contextmanager
def without_lora(base: PreTrainedModel, off: bool = True) -> Generator[None, None, None]:
    """The stock model inside the block, if `off`; else the model as it is."""
    if not off:
        yield
        return
    with lora_for(base, "full"):
        yield
