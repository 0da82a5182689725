"""The curve of a training stage: means of its figures over some steps, appended to a file as JSON lines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np


class Curve:
    """Writes a line with `step`, `seconds` since this start and the mean of each figure, every few steps.

    Args:
        out: checkpoint of the stage; the curve stands beside it, with the suffix .jsonl.
        every: steps of a line.
    """

    def __init__(self, out: Path, every: int = 50) -> None:
        self.path, self.every, self.start = out.with_suffix(".jsonl"), every, time.monotonic()
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, *values: float) -> None:
        """Note values of a figure."""
        self.values.setdefault(name, []).extend(values)

    def end_step(self, steps: int, last: bool = False) -> None:
        """Write a line after `steps` steps, if it is time or the last one."""
        if steps % self.every and not last:
            return
        line = {"step": steps, "seconds": round(time.monotonic() - self.start, 1)}
        self.write(line | {name: round(float(np.mean(v)), 3) for name, v in self.values.items() if v})
        self.values = {}

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
