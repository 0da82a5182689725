"""A LoRA of the base model's language model, trained with the layer and kept beside it (Hu et al. 2021).

By transformers' own adapter methods over peft (extra `train`); the base model's weights stay as they are, and
without the adapter the model is the stock one to the last bit.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import PreTrainedModel

CONFIG_NAME = "adapter_config.json"
TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"
"""What is adapted: the projections of the language model's attention, never the vision tower."""


def has_lora(base: PreTrainedModel) -> bool:
    """Whether an adapter sits in the model."""
    return bool(getattr(base, "_hf_peft_config_loaded", False))


def add_lora(base: PreTrainedModel, rank: int) -> None:
    """Put a new adapter of this rank into the model; it changes nothing until it has learned."""
    from peft import LoraConfig

    base.add_adapter(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS))


def save_lora(base: PreTrainedModel, folder: Path) -> None:
    """Write the adapter, if there is one, as peft does: safetensors and `adapter_config.json`."""
    if has_lora(base):
        base.save_pretrained(folder)


def load_lora(base: PreTrainedModel, folder: Path) -> None:
    """Load the adapter of an allocator folder into the model, if there is one.

    Raises:
        ValueError: peft is missing, or the adapter can't be read or doesn't fit. Load the model anew then:
            parts of the adapter may be in it.
    """
    if not (folder / CONFIG_NAME).is_file():
        return
    try:
        report = base.load_adapter(str(folder))
        unfit = sorted(report.missing_keys | report.unexpected_keys)
        if unfit:  # peft itself would leave these out
            raise ValueError(f"{len(unfit)} weights are missing or left over, first {unfit[0]}")
    except (ImportError, RuntimeError, OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        detail = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the LoRA in {str(folder)!r} can't be loaded ({detail}); install arr-coc[train], "
            "and use the base model it was trained for"
        ) from error


@contextmanager
def without_lora(base: PreTrainedModel, off: bool = True) -> Generator[None, None, None]:
    """The stock model inside the block, if `off`; nothing changes where there is no adapter."""
    if not (off and has_lora(base)):
        yield
        return
    base.disable_adapters()
    try:
        yield
    finally:
        base.enable_adapters()
