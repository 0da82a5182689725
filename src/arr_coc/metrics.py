"""The metrics and intervals under the name that they had before `data.metrics` and `results.intervals`."""

from __future__ import annotations

from arr_coc.data.metrics import anls, exact_match, loose_match, relaxed_accuracy, vqa_accuracy
from arr_coc.results.intervals import bootstrap_interval, paired_interval

__all__ = [
    "anls", "exact_match", "loose_match", "relaxed_accuracy", "vqa_accuracy",
    "bootstrap_interval", "paired_interval",
]  # fmt: skip
