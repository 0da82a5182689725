"""What the texture arrays cost in operations, beside the prefill that choosing saves in the 2B shape.

    python runs/texture_flops.py        -> runs/results/texture-flops.json

operations  of every call that torch makes, inside of generate_texture_array on a drawn page of 1024 x 1024 px and
            1,024 cells: two to a multiplication of matrix products and convolutions (torch's own count), 5 n log2 n of
            a Fourier transform of n values, 40 a point of a resampling, else one for each value that is read or
            written, whichever are more. So copies and comparisons count as operations, too: an upper bound
saved       operations of the stock model less those of a mode, up to the first token of a page of that size
            (`bench/results/2b-1024.json`)

Clip: with the eight frames before, their relevance and earlier questions, all that "full20" can read.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from arr_coc.choose.texture import generate_texture_array
from arr_coc_lab.world import draw_page

ROOT = Path(__file__).parents[1]
SIDE, GRID, FRAMES = 1024, (32, 32), 8
PRESETS = ("mvp13", "fast13", "full20")
TARGET = 0.02
"""The plan's bound on the share of what is saved."""


class Operations(TorchDispatchMode):
    """Counts the operations of all calls in a `with` block but those that torch's own counter knows."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._overloadpacket
        if name not in flop_registry and "view" not in str(name) and "empty" not in str(name):
            values = [x.numel() for x in tree_leaves((args, kwargs, result)) if isinstance(x, Tensor)]
            most = max(values, default=0)
            factor = (
                5 * math.log2(max(2, most)) if "fft" in str(name) else 40 if "grid_sampl" in str(name) else 1
            )
            self.total += factor * most
        return result


def counted(image: Tensor, preset: str, **inputs: Tensor) -> float:
    """Operations of one texture array."""
    with FlopCounterMode(display=False) as products, Operations() as others:
        generate_texture_array(image, GRID, preset, **inputs)
    return products.get_total_flops() + others.total


def main() -> None:
    """Count, and compare with what is saved."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs/results/texture-flops.json")
    args = parser.parse_args()
    page = draw_page(0, (SIDE, SIDE), "test").image
    image = torch.from_numpy(np.asarray(page).copy()).permute(2, 0, 1)[None].float() / 255
    frames = torch.stack([image.roll(8 * (FRAMES - i), 2) for i in range(FRAMES)], 1)
    maps = torch.rand(1, FRAMES, *GRID, generator=torch.Generator().manual_seed(0))
    clip = {"previous_frames": frames, "relevance_history": maps, "attention_history": maps}
    gflop = {name: counted(image, name) / 1e9 for name in PRESETS}
    gflop["full20, clip"] = counted(image, "full20", **clip) / 1e9
    rows = json.loads((ROOT / "bench/results/2b-1024.json").read_text(encoding="utf-8"))["rows"]
    tflop = {row["mode"]: row["tflop"] for row in rows}
    shares = {
        mode: {
            "saved TFLOP": round(tflop["stock"] - tflop[mode], 3),
            **{name: float(f"{x / 1e3 / (tflop['stock'] - tflop[mode]):.2g}") for name, x in gflop.items()},
        }
        for mode in ("prune@273", "sparse@273", "sparse@64", "saccade")
    }
    result = {
        "command": "python runs/texture_flops.py",
        "GFLOP": {name: round(x, 3) for name, x in gflop.items()},
        "share of what is saved in the 2B shape": shares,
        "target": TARGET,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
