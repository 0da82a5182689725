"""A fingerprint of learned weights, by which a result file names the weights it was measured with."""

from __future__ import annotations

import hashlib
import re

from torch import nn

from arr_coc.choose.familiarity import Familiarity

WRAPPERS = re.compile(r"^base_model\.model\.|_orig_mod\.|base_layer\.|original_module\.")
"""What peft and torch.compile put into the names of a base model's weights."""
ADAPTERS = re.compile(r"\.(lora_\w+|modules_to_save)\.")
"""Weights that peft puts beside them."""


def fingerprint(module: nn.Module) -> str:
    """Sixteen hex digits that tell apart weights of the same names and shapes, by up to 64 values of each.

    Adapters of peft in a model don't count, nor how they and torch.compile rename its weights: a base model
    has one fingerprint, whatever was put into it. Nor does familiarity, which is fitted to a stem afterwards
    and changes no answer: a stem has one fingerprint before and after.
    """
    verdicts = tuple(f"{name}." for name, part in module.named_modules() if isinstance(part, Familiarity))
    weights = {
        WRAPPERS.sub("", name): values
        for name, values in module.state_dict().items()
        if not ADAPTERS.search(name) and not name.startswith(verdicts)
    }
    digest = hashlib.sha256()
    for name, values in sorted(weights.items()):
        flat = values.flatten()
        some = flat[:: max(1, len(flat) // 64)][:64]
        digest.update(name.encode() + some.double().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
