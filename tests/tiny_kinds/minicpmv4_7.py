"""MiniCPM-V 4.7, from transformers 5.24 on: as 4.6, with positions on a canvas."""

from __future__ import annotations

from typing import Any

from tiny_kinds.minicpmv4_6 import processor, settings


def make() -> tuple[Any, Any]:
    from transformers import MiniCPMV4_7Config, MiniCPMV4_7Processor

    marks = {
        "image_start_id": "<|begin_of_image|>",
        "image_end_id": "<|end_of_image|>",
        "slice_start_id": "<img>",
        "slice_end_id": "</img>",
        "newline_id": "Ċ",
    }
    return MiniCPMV4_7Config(**settings(**marks)), processor(MiniCPMV4_7Processor)
