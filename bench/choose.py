"""What choosing costs: operators, waits, arithmetic and time of a page, of a question and of batches.

    python bench/choose.py --out bench/results/choose.json       some six minutes; nothing else may run
    python bench/choose.py --counts                              the counts alone, at once
    python bench/choose.py --device cuda --out FILE              on another device

A page is a picture of 1,024 x 1,024 px (and of 2,048) of which nothing is kept, a question a new one about a
picture that is; `Selector` is all from an opened picture to the kept cells, `many` batches of 1, 8 and 32 of
them. Counted are operators that compute (each about one kernel on a GPU), those that only make views, and
those whose result the host waits for, as the guide runs on a device that isn't the CPU (it then reads every
place of a page, see `MeaningEncoder.dense`; the waits of the texture are checks of a CPU's inputs). Times are
medians of `--rounds`, the thread counts in turn, `cpu` the processor time of all threads.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image

from arr_coc import Selector
from arr_coc.choose.texture import generate_texture_array
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.question import terms
from arr_coc_lab.evaluate.operators import count_operators, floating_operations

SAMPLE = Path(__file__).parents[1] / "src" / "arr_coc" / "bundled" / "sample.png"
SHORT, LONG = (
    "Total?",
    "Which of the signatures on the second page of the invoice is that of the person who ordered the goods?",
)
SIDES = (1024, 2048)
BATCHES = (1, 8, 32)
BUDGET = 64


def picture(side: int, number: int = 0) -> Image.Image:
    """The built-in sample at a size, another picture for every number."""
    image = Image.open(SAMPLE).convert("RGB").resize((side, side))
    image.putpixel((number % side, number // side), (number % 256, 0, 255))
    return image


@torch.no_grad()
def counts() -> dict[str, Any]:
    """Operators, waits and arithmetic of each part, as on a device that isn't the CPU."""
    selector = Selector.from_pretrained()
    guide, pixels = selector.guide, image_pixels(picture(1024))
    guide.glossary.dense = True
    page = guide.encode(pixels)
    short, long = (guide.tensors([terms(text)]) for text in (SHORT, LONG))
    both = guide.tensors([terms(text) for text in (SHORT, LONG)] * 16)
    parts: dict[str, Callable[[], object]] = {
        "page": lambda: guide.encode(pixels),
        "texture": lambda: generate_texture_array(pixels, (32, 32), selector.layer.config.channels),
        f"question of {len(terms(SHORT).words)} word": lambda: guide.question(page, short, (32, 32)),
        f"question of {len(terms(LONG).words)} words": lambda: guide.question(page, long, (32, 32)),
        "32 questions about a page": lambda: guide.question(page, both, (32, 32)),
    }
    rows = {}
    for name, function in parts.items():
        rows[name] = {
            **count_operators(function)._asdict(),
            "GFLOP": round(floating_operations(function) / 1e9, 2),
        }
        print(f"{name}: {rows[name]}", flush=True)
    guide.glossary.dense = None
    return rows


def timed(function: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Milliseconds of a call, by the clock and of all processors."""
    start, cpu = time.perf_counter(), time.process_time()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return {"ms": 1000 * (time.perf_counter() - start), "cpu": 1000 * (time.process_time() - cpu)}


@torch.no_grad()
def times(device: str, threads: list[int], rounds: int) -> dict[str, Any]:
    """Milliseconds of each part, by the number of threads."""
    selector = Selector.from_pretrained(device=device)
    guide, where = selector.guide, selector.device
    images = {side: picture(side) for side in SIDES}
    pages = {side: guide.encode(image_pixels(image, where)) for side, image in images.items()}
    batch = [picture(1024, number) for number in range(max(BATCHES))]
    parts: dict[str, Callable[[int], object]] = {}
    for side, image in images.items():
        parts[f"page of {side} px"] = lambda n, image=image: guide.encode(image_pixels(image, where))
        parts[f"question about {side} px"] = lambda n, side=side: guide.question(
            pages[side], guide.tensors([terms(f"{LONG} {n}")]), (side // 32, side // 32)
        )

    def fresh(count: int, number: int) -> object:
        selector._records.clear()
        return selector.many(batch[:count], f"{LONG} {number}", BUDGET)

    def later(number: int) -> object:
        return selector(images[1024], f"{LONG} {number}", BUDGET)

    for count in BATCHES:
        parts[f"Selector.many, {count} pictures"] = lambda n, count=count: fresh(count, n)
    parts["Selector, another question"] = later
    rows: dict[tuple[str, int], list[dict[str, float]]] = {}
    for number in range(rounds + 1):
        for count in threads[:: -1 if number % 2 else 1]:
            torch.set_num_threads(count)
            for name, function in parts.items():
                if name.startswith("Selector, another"):
                    selector(images[1024], SHORT, BUDGET)  # so that the picture is kept
                row = timed(partial(function, number * 97 + count), where)
                if number:  # the first round makes what is kept
                    rows.setdefault((name, count), []).append(row)
        print(f"round {number} of {rounds}", flush=True)
    return {
        f"{count} thread{'s' * (count > 1)}": {
            name: {key: round(median(row[key] for row in rows[name, count]), 1) for key in ("ms", "cpu")}
            for name in parts
        }
        for count in threads
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--counts", action="store_true", help="no times")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, torch {torch.__version__}",
        "bfloat16 in hardware": bool(torch.cpu._is_avx512_bf16_supported()),
        "counts": counts(),
    }
    if not arguments.counts:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = [n for n in (1, 2) if n <= cores]
        result |= {
            "device": arguments.device,
            "load": round(os.getloadavg()[0], 2),
            "rounds": arguments.rounds,
            "times": times(arguments.device, threads, arguments.rounds),
        }
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
