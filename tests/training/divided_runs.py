"""Runs of recipes in a process of several, for `test_training_sharding.py`: which divide the base model.

    python divided_runs.py RUNS.json

The file has the runs: where each goes, and its recipe; beside it come `NAME.RANK.json` with the losses, and
how much of the divided layers this process held.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arr_coc.training import sharding
from arr_coc.training.recipe import Recipe
from arr_coc.training.trainer import train


def main() -> None:
    """Train each run of the file, one after the other."""
    torch.set_num_threads(1)
    path, rank = Path(sys.argv[1]), os.environ["RANK"]
    held: dict[str, Any] = {}
    check = sharding.check_divided

    def watched(base: nn.Module, layers: list[nn.Module]) -> None:
        check(base, layers)
        parts = [p.to_local().numel() for layer in layers for p in layer.parameters()]
        held.update(layers=len(layers), held=sum(parts), all=sum(map(sharding._all, layers)))

    sharding.check_divided = watched
    for name, run in json.loads(path.read_text()).items():
        held.clear()
        facts = train(
            Recipe(**run["recipe"]), path.parent / name, progress=False, device="cpu", stop_at=run.get("stop_at")
        )
        (path.parent / f"{name}.{rank}.json").write_text(json.dumps(facts | held))


if __name__ == "__main__":
    main()
