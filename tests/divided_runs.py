"""One process of several that divide the base model: runs of recipes, for `test_training_sharding.py`.

    python divided_runs.py RUNS.json

The file has a list of runs: name, recipe, and at which step to stop. Each goes into a folder of its name
beside the file; `NAME.RANK.json` says what `train` returned, and how much of the divided layers was held.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arr_coc.train import sharding
from arr_coc.train.processes import ended_group
from arr_coc.train.trainer import train
from learning import recipe_of


def main() -> None:
    """Train each run of the file, one after the other."""
    torch.set_num_threads(1)
    path, held = Path(sys.argv[1]), {}
    check = sharding.check_divided

    def noted(base: nn.Module, layers: Iterable[nn.Module]) -> None:
        layers = list(layers)
        check(base, layers)
        held["layers"] = len(layers)
        for name, count in (("held", lambda p: p.to_local().numel()), ("all", torch.Tensor.numel)):
            held[name] = sum(count(p) for layer in layers for p in layer.parameters())

    sharding.check_divided = noted
    for run in json.loads(path.read_text()):
        out, recipe = path.parent / run["name"], recipe_of(**run["recipe"])
        result: dict[str, Any] = train(recipe, out, progress=False, device="cpu", stop_at=run["stop_at"])
        place = path.parent / f"{run['name']}.{os.environ['RANK']}.json"
        place.write_text(json.dumps(result | held | {"launched": os.environ.get(sharding.FSDP)}))


if __name__ == "__main__":
    with ended_group():
        main()
