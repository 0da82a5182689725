"""What it costs that the base model is never changed: twins, built once, and calls through them.

    python bench/twins.py --out bench/results/twins.json

A twin (`arr_coc.seam.loaded`) is a second tree of modules over the same weights; LoRAs and watched
attention live in twins. Built: milliseconds for a Qwen3-VL of transformers' default shape (weights on
"meta") and for the bundled one, and the same with the bundled LoRAs put in. Called: one forward over 320
words of text by the base, by a bare twin and by a twin with LoRAs, in turn, the median of `--rounds`; the
ratio to the base is what counts. Memory: bytes of parameters that a twin has and the base has not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from arr_coc import ARRCOCModel
from arr_coc.seam.loaded import twin


def seconds(run: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def own_bytes(model: Any, base: Any) -> int:
    """Bytes of the parameters of a model that are none of another's."""
    others = {id(parameter) for parameter in base.parameters()}
    return sum(p.numel() * p.element_size() for p in model.parameters() if id(p) not in others)


@torch.no_grad()
def measure(rounds: int) -> dict[str, Any]:
    """All figures."""
    with torch.device("meta"):
        large = Qwen3VLForConditionalGeneration(Qwen3VLConfig())
    model = ARRCOCModel.from_pretrained(device="cpu")
    base, kinds = model.base, ("partial", "coarse")
    built = {"default shape": [], "bundled": [], "bundled with LoRAs": []}
    for _ in range(rounds):
        built["default shape"].append(seconds(lambda: twin(large)))
        built["bundled"].append(seconds(lambda: twin(base)))
        model.loras._twins.clear()
        built["bundled with LoRAs"].append(seconds(lambda: model.loras.model_for(kinds)))
    plain, adapted = twin(base), model.loras.model_for(kinds)
    ids = torch.randint(20, 200, (1, 320))
    calls: dict[str, list[float]] = {"base": [], "twin": [], "twin with LoRAs": []}
    for number in range(rounds + 2):
        for name, one in (("base", base), ("twin", plain), ("twin with LoRAs", adapted)):
            taken = seconds(lambda one=one: one(input_ids=ids))
            if number >= 2:  # the first ones pay for caches
                calls[name].append(taken)
    medians = {name: statistics.median(values) for name, values in calls.items()}
    return {
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, torch {torch.__version__}",
        "rounds": rounds,
        "modules": {"default shape": len(list(large.modules())), "bundled": len(list(base.modules()))},
        "built_ms": {name: round(1000 * statistics.median(v), 2) for name, v in built.items()},
        "call_ms": {name: round(1000 * value, 3) for name, value in medians.items()},
        "call_ratio": {name: round(value / medians["base"], 3) for name, value in medians.items()},
        "own_bytes": {"twin": own_bytes(plain, base), "twin with LoRAs": own_bytes(adapted, base)},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.rounds), indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
