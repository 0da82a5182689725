"""Inkling 2 with layers that run several times, from transformers 5.24 on."""

from __future__ import annotations

from typing import Any

from tiny_kinds.inkling2 import processor, settings


def make() -> tuple[Any, Any]:
    from transformers import Inkling2LoopConfig

    loop = {"loop_layer_index_start": 1, "loop_layer_index_end": 2, "loop_num_passes": 2, "loop_gate_rank": 4}
    made = settings()
    made["text_config"] |= loop
    return Inkling2LoopConfig(**made), processor()
