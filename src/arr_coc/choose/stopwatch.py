"""The time of a question, stage by stage: texture, scoring, encoding, ..., in milliseconds."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import torch

# The stages of a call whose time is taken, in order; all add up to the last.
STAGES = (
    "prompt",
    "texture",
    "scoring",  # with balancing and allocating
    "gestalt",
    "encode",
    "prefill",
    "decode",
    "other",
    "total",
)
CHOOSING = ("texture", "scoring")  # the stages that choosing cells consists of


class Stopwatch:
    """Milliseconds per stage, summed; it waits for all work on the device."""

    def __init__(self, device: torch.device) -> None:
        self.ms = dict.fromkeys(STAGES, 0.0)
        self._device = device
        accelerator = torch.accelerator.current_accelerator()  # CUDA, MPS, XPU, ...
        self._waits = accelerator is not None and accelerator.type == device.type

    def now(self) -> float:
        if self._waits:
            torch.accelerator.synchronize(self._device)
        return time.perf_counter()

    def choosing(self) -> float:
        return sum(self.ms[stage] for stage in CHOOSING)

    def settle(self) -> None:
        """Count the time of "total" that no stage has as "other"."""
        self.ms["other"] = 0.0
        self.ms["other"] = max(0.0, 2 * self.ms["total"] - sum(self.ms.values()))

    @contextmanager
    def __call__(self, stage: str) -> Generator[None, None, None]:
        """Add the time of a block to a stage."""
        start = self.now()
        try:
            yield
        finally:
            self.ms[stage] += 1000.0 * (self.now() - start)
