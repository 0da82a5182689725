"""What a step of each recipe costs in the shape of a 2B model: memory and time.

    python bench/recipes.py --out bench/results/recipes-2b.json
    python bench/recipes.py --recipes answers,partial --size 768 --questions 2 --out ...
    python bench/recipes.py --recipes answers --change lora=8 --change checkpointing=true --out ...

Random weights in the shape of Qwen/Qwen3-VL-2B-Instruct (`bench/prefill.py`), in bfloat16, but for the
vocabulary, which is the bundled tokenizer's: the published one adds 0.6 GiB. A drawn page of --size px in
square with its evidence boxes, so many --questions about it, in the recipes as they are but for `init`: what
is to learn is new. A step is a forward pass, the way back and an optimizer's step. Each recipe has a process
of its own, forked from the one that made the model, so that its peak is its own: resident memory, with the
model in it. Seconds are those of the clock and those that its thread computed; where other work runs beside
it, the second is what it costs. `layers` is the share of a model's weights, the published vocabulary among
them, that processes divide among them where they are launched with FSDP (`arr_coc.train.sharding`).

Finished recipes are in OUT and are not run again. --depth cuts both halves of the model to so many layers: a
smoke test, whose figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from prefill import SHAPES, random_base, random_model

from arr_coc.model import ARRCOCModel
from arr_coc.train.learner import Learner
from arr_coc.train.parts import PartsLearner
from arr_coc.train.recipe import LayerRecipe, load_recipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc.train.sharding import outermost
from arr_coc_lab.evaluate.work import processor_name
from arr_coc_lab.world import draw_page

RECIPES = ("relevance", "answers", "partial", "coarse", "tower")
VOCABULARY = 151_936
"""Of the published models; its embeddings are the head's weights too."""
FRESH = {"init": None, "precision": "bfloat16", "steps": 1, "warmup": 0}


def peak() -> float:
    """Most resident memory of this process so far, in GiB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on a Mac
    return round(most / (2**30 if sys.platform == "darwin" else 2**20), 2)


def measure(model: ARRCOCModel, name: str, args: argparse.Namespace, out: Any) -> None:
    """Send the cost of a step of one recipe through a pipe."""
    recipe = load_recipe(name, FRESH | dict(pair.split("=") for pair in args.change))
    torch.manual_seed(recipe.seed)
    learner = (Learner if isinstance(recipe, LayerRecipe) else PartsLearner)(model, recipe)
    learner.train()
    learned = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=recipe.lr)
    page = draw_page(0, (args.size, args.size), "train")
    rows = [Row(q.text, (q.answer,), q.evidence, q.family, 1.0, "page 0") for q in page.questions]
    item = ImageRows(page.image, tuple(rows[: args.questions]), "page 0", number=0)
    before, clock, computed = peak(), [], []
    for _ in range(args.steps):
        begin = time.perf_counter(), time.process_time()
        loss, _ = learner([item])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.append(round(time.perf_counter() - begin[0], 1))
        computed.append(round(time.process_time() - begin[1], 1))
    row = {
        "recipe": name,
        "changes": args.change,
        "learned": sum(parameter.numel() for parameter in learned),
        "GiB with the model alone": before,
        "peak GiB": peak(),
        "seconds": clock,
        "seconds computed": computed,
        "loss is finite": bool(loss.isfinite()),
    }
    out.send(row)


def layers(shape: str) -> dict[str, Any]:
    """How many parameters a published shape has, and the share of them in layers that FSDP divides."""
    with torch.device("meta"):
        base = random_base(shape, None, torch.bfloat16, vocabulary=VOCABULARY)
    whole = sum(parameter.numel() for parameter in base.parameters())
    inside = sum(parameter.numel() for layer in outermost(base) for parameter in layer.parameters())
    return {"parameters": whole, "in layers": inside, "share": round(inside / whole, 3)}


def circumstances(args: argparse.Namespace) -> dict[str, Any]:
    """What all figures of a file share."""
    return {
        "command": "python bench/recipes.py",
        "shape": args.shape,
        "depth": args.depth,
        "dtype": "bfloat16",
        "image": [args.size, args.size],
        "questions": args.questions,
        "batch": 1,
        "cpu": processor_name(torch.device("cpu")),
        "threads": 1,
        "layers": {shape: layers(shape) for shape in SHAPES},
        "beside": args.beside,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--shape", default="2B", choices=("2B", "4B"))
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--questions", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--change", action="append", default=[], help="KEY=VALUE of the recipes")
    parser.add_argument("--beside", default="nothing", help="what else ran on the machine, for the record")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    facts, rows = circumstances(args), []
    if args.out and args.out.is_file():
        was = json.loads(args.out.read_text(encoding="utf-8"))
        if was["circumstances"] != facts:
            raise SystemExit(f"{args.out} was measured otherwise: choose another file, or remove it")
        rows = was["recipes"]
    model = random_model(args.shape, args.depth, "cpu", torch.bfloat16)
    model.compressors.clear()
    fork = multiprocessing.get_context("fork")
    for name in args.recipes.split(","):
        if any(row["recipe"] == name and row["changes"] == args.change for row in rows):
            continue
        here, there = fork.Pipe(duplex=False)
        child = fork.Process(target=measure, args=(model, name, args, there))
        child.start()
        there.close()
        rows.append(here.recv())
        child.join()
        print(json.dumps(rows[-1]), flush=True)
        if args.out:
            result = {"circumstances": facts, "recipes": rows}
            args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
