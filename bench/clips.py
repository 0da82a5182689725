"""What a clip costs: time to the first token beside stock, and choosing in ten minutes of film.

    python bench/clips.py --rounds 3 --out bench/results/clips-2b.json
    python bench/clips.py --rounds 0 --minutes 10 --out bench/results/clips-2b.json
    python bench/clips.py --rounds 1 --steps 4 --depth 2                 a smoke test, figures mean nothing

Random weights in the shape of Qwen3-VL-2B (`prefill.random_model`); real inputs: drawn frames in memory
through the bundled processor with the published limits of size, and the prompt with its times.

first token   from decoded frames and question to the logits of the first token, its key/value cache filled:
              scaling frames, choosing, encoding and prefill; decoding a file is not in it, the same for all.
              Rounds go through all ways in turn forwards and backwards; a ratio is the median over rounds of
              stock's time over a way's in the same round: "speed" by the clock, "CPU speed" by the processor
              seconds of all threads, which other work on the machine hardly touches. "sparse" chooses by a
              random stem and layer, as a trained checkpoint does; "guide" by the bundled guide, as a model
              does that nobody trained.
film          a clip of --minutes and one of a tenth of that are written as H.264, and cells are chosen in
              them by the guide alone (`Selector.decide_clip`) and by the model in mode "sparse" at a tenth,
              with one token of answer; decoding included. Each in a process of its own; "MB" is the memory
              that it held beyond the most before the clip was opened, "CPU seconds" those of all its threads.
              --rounds 0 measures films alone and adds them to the file that is there.

What is counted and how: `arr_coc_lab.evaluate.speed` and `arr_coc_lab.evaluate.work`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin would count as work; before torch

import numpy as np
import torch
from PIL import Image
from prefill import random_model, write

from arr_coc import ARRCOCModel
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.seam.prompt import VisualPrompt, chat_prompt
from arr_coc.selector import Selector
from arr_coc.video import FrameSource, open_clip, write_clip
from arr_coc_lab.evaluate.speed import (
    Arrival,
    Inputs,
    SpeedRow,
    circumstances,
    compare,
    count,
    find_way,
    measure,
    summarise,
)
from arr_coc_lab.world import draw_page

PUBLISHED = {"shortest_edge": 4096, "longest_edge": 25_165_824}
"""Px of a whole clip that Qwen3-VL's processor allows as it is published; the bundled one allows less."""
WAYS = ("stock", "sparse@0.25", "sparse@0.1", "sparse@0.05", "guide@0.1")
CELL = 32
QUESTION = "Which town is named in the title? Answer with one word."
FILM_RATE, FILM_SIZE = 5, (640, 360)


def film(count: int, size: tuple[int, int], every: int) -> Iterator[Image.Image]:
    """Drawn pages in turn, `every` frames each, that scroll by 4 px a frame."""
    tall = None
    for number in range(count):
        if tall is None or number % every == 0:
            tall = draw_page(number // every % 12, (size[0], size[1] + 4 * every), "test").image
        top = 4 * (number % every)
        yield tall.crop((0, top, size[0], top + size[1]))


def drawn(steps: int, side: int) -> FrameSource:
    """A clip in memory of so many steps of side x side cells, two frames each."""
    frames = [np.asarray(frame) for frame in film(2 * steps, (CELL * side,) * 2, 4)]
    return open_clip(np.stack(frames), fps=2.0)


def model_of(args: argparse.Namespace) -> ARRCOCModel:
    """The model, whose processor has the published limits."""
    model = random_model(args.shape, args.depth, args.device, getattr(torch, args.dtype))
    model.processor.video_processor.size = PUBLISHED
    model.processor.video_processor.cap_pixels_per_frame = False
    return model


# ---- first token ----------------------------------------------------------------------------------------


def stock_inputs(model: ARRCOCModel, clip: FrameSource) -> Inputs:
    """What the processor makes of all frames at once."""
    about = {"fps": clip.rate, "total_num_frames": clip.total, "frames_indices": list(clip.numbers)}
    made = model.processor(
        text=[chat_prompt(model.processor, QUESTION, ["video"])],
        videos=[np.stack(list(clip.arrays()))],
        videos_kwargs={"do_sample_frames": False, "video_metadata": [about]},
        return_tensors="pt",
    )
    return {k: v.to(model.device) if isinstance(v, torch.Tensor) else v for k, v in made.items()}


def our_inputs(model: ARRCOCModel, clip: FrameSource) -> Inputs:
    """What a session makes of the clip."""
    made = VisualPrompt(model.processor, [clip]).inputs(QUESTION)
    return {k: v.to(model.device) if hasattr(v, "to") else v for k, v in made.items()}


def stock(model: ARRCOCModel, inputs: Inputs, watch: Stopwatch) -> Arrival:
    """The stock model, with its own count of visual tokens."""
    arrival = find_way(model, "stock")(inputs, watch)
    return replace(arrival, tokens=int((inputs["input_ids"] == model.config.video_token_id).sum()))


def first_tokens(
    args: argparse.Namespace, model: ARRCOCModel, clip: FrameSource
) -> Iterator[list[dict[str, Any]]]:
    """After each round a row per way."""
    untaught = ARRCOCModel(model.base, model.processor, strict=True, relevance="guide")
    ways, starts = {}, {}
    for name in args.ways.split(","):
        owner, _, budget = name.partition("@")
        starts[name] = partial(stock_inputs if name == "stock" else our_inputs, model, clip)
        ours = untaught if owner == "guide" else model
        ways[name] = partial(stock, model) if name == "stock" else find_way(ours, f"sparse@{budget}")
    counts, times, own = {}, {name: [] for name in ways}, {name: [] for name in ways}
    for name, way in ways.items():
        print(f"{name}: counting", file=sys.stderr, flush=True)
        counts[name] = count(way, starts[name], model.device)
    for number in range(args.rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            begun = time.process_time()
            times[name].append(measure(ways[name], starts[name], model.device))
            own[name].append(time.process_time() - begun)
            taken = sum(times[name][-1].values()) / 1000
            print(
                f"round {number + 1}: {name} {taken:.1f} s, CPU {own[name][-1]:.1f} s",
                file=sys.stderr,
                flush=True,
            )
        yield rows_of([summarise(name, 1, counts[name], times[name]) for name in ways], own)


def rows_of(summaries: list[SpeedRow], own: dict[str, list[float]]) -> list[dict[str, Any]]:
    """The rows with what they are to stock in each round, by the clock and by processor seconds."""
    rows = [asdict(row) for row in compare(summaries)]
    against = next((row["rounds"] for row in rows if row["mode"] == "stock"), None)
    for row in rows:
        pairs = zip(against or [], row["rounds"], strict=False)
        row["ratios"] = [ms / own for ms, own in pairs]
        row["speed"] = median(row["ratios"]) if row["ratios"] else None
        limit = max(row["flop_ratio"] or 0, row["byte_ratio"] or 0)
        row["CPU seconds"] = own[row["mode"]]
        pairs = zip(own.get("stock", []), own[row["mode"]], strict=False)
        ratios = [stock / seconds for stock, seconds in pairs]
        row["CPU speed"] = median(ratios) if ratios else None
        row["of_limit"] = row["speed"] / limit if row["speed"] and limit else None
    return rows


def clip_facts(model: ARRCOCModel, clip: FrameSource) -> dict[str, Any]:
    """What the figures depend on."""
    facts = circumstances(model, next(iter(clip)), QUESTION, 1)
    inputs = our_inputs(model, clip)
    visual = int((inputs["input_ids"] == model.config.video_token_id).sum())
    t, h, w = inputs["video_grid_thw"][0].tolist()
    text = inputs["input_ids"].shape[1] - visual
    return facts | {
        "image": None, "frames": len(clip), "frame": list(clip.size), "grid": [t, h // 2, w // 2],
        "visual tokens": visual, "text tokens": text,
    }  # fmt: skip


# ---- film -----------------------------------------------------------------------------------------------


def peak_mb() -> float:
    """The most resident memory of this process so far, in MB; getrusage would begin with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def choosing(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The guide alone, in a file."""
    selector = Selector.from_pretrained()
    selector.decide_clip([frame for frame in film(4, FILM_SIZE, 4)], QUESTION)
    before, start = peak_mb(), (time.perf_counter(), time.process_time())
    clip = open_clip(path, fps=args.fps)
    decision = selector.decide_clip(clip, QUESTION, budget=0.1)
    return film_figures(args, start, before, len(clip), decision.allocations[0].grid)


def answering(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The model, which answers about a file with one token."""
    model = model_of(args)
    model.ask(open_clip(np.stack([np.asarray(f) for f in film(4, FILM_SIZE, 4)])), QUESTION, 0.1, "sparse", 1)
    before, start = peak_mb(), (time.perf_counter(), time.process_time())
    clip = open_clip(path, fps=args.fps)
    answer = model.ask(clip, QUESTION, budget=0.1, mode="sparse", max_new_tokens=1)
    stages = {name: round(ms / 1000, 2) for name, ms in answer.ms.items()}
    figures = film_figures(args, start, before, len(clip), answer.grid)
    return figures | {"kept": answer.kept, "of": answer.total, "seconds of stages": stages}


def film_figures(
    args: argparse.Namespace,
    start: tuple[float, float],
    before: float,
    frames: int,
    grid: tuple[int, ...],
) -> dict[str, Any]:
    """What a film took, from a start by the clock and by the processor."""
    seconds, own = time.perf_counter() - start[0], time.process_time() - start[1]
    return {
        "frames": frames,
        "grid": list(grid),
        "seconds": round(seconds, 1),
        "seconds per minute": round(seconds / args.minutes, 2),
        "CPU seconds per minute": round(own / args.minutes, 2),
        "MB before": round(before),
        "MB": round(peak_mb() - before),
    }


def films(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """Both in processes of their own, on one film and on a tenth of it, whose memory tells what grows.

    What is measured is added to the file at once.
    """
    table = result.setdefault("film", {})
    table["film"] = f"{FILM_SIZE[0]} x {FILM_SIZE[1]} px, {FILM_RATE} frames a second, H.264"
    table["threads"] = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        for minutes in (args.minutes, args.minutes / 10):
            path = Path(folder) / f"{minutes:g}.mp4"
            write_clip(film(round(60 * minutes * FILM_RATE), FILM_SIZE, 50), path, FILM_RATE)
            for what in args.films.split(","):
                words = ["--film", str(path), "--what", what, "--minutes", str(minutes)]
                words += ["--fps", str(args.fps), "--shape", args.shape]
                words += ["--dtype", args.dtype, "--device", args.device]
                words += ["--depth", str(args.depth)] if args.depth else []
                run = subprocess.run([sys.executable, sys.argv[0], *words], capture_output=True, text=True)
                if run.returncode:
                    raise SystemExit(run.stderr)
                table[f"{what}, {minutes:g} min"] = json.loads(run.stdout.splitlines()[-1])
                print(what, minutes, run.stdout.splitlines()[-1], file=sys.stderr, flush=True)
                args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def films_of(path: Path) -> dict[str, Any]:
    """What a file holds of films, as it is there."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {"film": before["film"]} if "film" in before else {}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="2B")
    parser.add_argument("--depth", type=int, help="layers of both halves, for a smoke test")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--side", type=int, default=16, help="cells along each side of a step")
    parser.add_argument("--minutes", type=float, default=10, help="of film")
    parser.add_argument("--films", default="choosing,answering", help="what is measured of films")
    parser.add_argument("--fps", type=float, default=2.0, help="frames of the film that are sampled")
    parser.add_argument("--beside", default="nothing else", help="what else the machine does meanwhile")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--film", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--what", choices=("choosing", "answering"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.film:
        print(json.dumps({"choosing": choosing, "answering": answering}[args.what](args, args.film)))
        return
    started = time.monotonic()
    if not args.rounds:
        films(args, json.loads(args.out.read_text(encoding="utf-8")))
        return
    model, clip = model_of(args), drawn(args.steps, args.side)
    facts = {
        "shape": f"Qwen3-VL-{args.shape}" + (f" cut to {args.depth} layers" if args.depth else ""),
        **clip_facts(model, clip),
        "beside": args.beside,
    }
    rows: list[dict[str, Any]] = []
    for number, rows in enumerate(first_tokens(args, model, clip), start=1):
        facts |= {"rounds": number, "seconds": round(time.monotonic() - started)}
        if args.out:  # a run that is stopped leaves the rounds that it has made
            write(args.out, {"circumstances": facts, "rows": rows} | films_of(args.out))
    for row in rows:
        ratio = ""
        if row["speed"]:
            ratio = f"{row['speed']:6.2f} x stock, by CPU {row['CPU speed']:6.2f} x"
            ratio += f", {row['flop_ratio']:6.2f} x fewer FLOPs"
        print(f"{row['mode']:14} {row['tokens']:7,.0f} tokens {row['ms'] / 1000:8.1f} s {ratio}")


if __name__ == "__main__":
    main()
