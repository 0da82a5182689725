"""What a first token costs: every mode and the rivals beside the stock model, over several runs of a process.

    python bench/prefill.py --runs 3 --out bench/results/2b-1024.json
    python bench/prefill.py --size 2048 --rounds 1 --modes stock,prune@273,sparse@273,saccade --out ...
    python bench/prefill.py --batch 4 --device cuda --compile --out ...
    python bench/prefill.py --merge A.json B.json --out bench/results/2b-1024.json
    python bench/prefill.py --memory --out bench/results/memory-2b-1024.json

Random weights in the shape of Qwen/Qwen3-VL-2B-Instruct or -4B-, but for the vocabulary (the bundled
tokenizer's), in bfloat16; real inputs, a drawn page through the bundled processor. What is measured and
how: `evaluate.speed` of the lab; what is counted: `evaluate.work`. Layer and stem are random too,
and taken for trained; a way with " gaze" is that of a checkpoint without them.

A process keeps its speed more or less from its first round to its last, and another one has another: so a
figure is the range over the medians of several processes. With --runs each is one of its own, one after
the other, and its file is left in runs/ beside OUT; killed, the same line goes on with the run that is
missing. --merge makes the range of files that are there, of one machine or of several, all of which it
then names.

With --memory no time is measured but memory, each way in a process of its own, beyond what that holds with
the model loaded: on the CPU resident memory (torch's own allocations are the column "peak MiB" without
--memory), on CUDA those of torch. The way's first question is in it, with all that it loads (the guide, say).
A way's file is left in runs/ beside OUT, as above.

At 2048 px stock alone takes over a minute a round on two CPU cores: one round, after the unmeasured one,
is enough. Rivals choose for one image, so larger batches leave them out. 2B needs 6 GiB, 4B 11. With
--depth both halves are cut to so many layers: a smoke test, whose figures mean nothing.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image
from transformers import AutoConfig, AutoProcessor, Qwen3VLForConditionalGeneration

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.model import ARRCOCModel
from arr_coc.seam.tower_compressor import TOWERS, TowerCompressor
from arr_coc.store import checkpoint
from arr_coc_lab.cli.bench import print_bench
from arr_coc_lab.evaluate.speed import Inputs, SpeedRow, Way, bench, circumstances, find_way, prompt
from arr_coc_lab.evaluate.timing import memory_of_process
from arr_coc_lab.evaluate.ways import STOCK
from arr_coc_lab.rivals import QueryBlindScorer
from arr_coc_lab.world import draw_page

TEXT = {"num_key_value_heads": 8, "head_dim": 128}
VISION = {
    "hidden_size": 1024, "depth": 24, "num_heads": 16, "intermediate_size": 4096,
    "deepstack_visual_indexes": [5, 11, 17], "num_position_embeddings": 2304,
}  # fmt: skip
SHAPES = {
    "2B": {
        "hidden_size": 2048,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "intermediate_size": 6144,
    },
    "4B": {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "intermediate_size": 9728,
    },
}
ROTARY = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20]}
OURS = "stock,full,prune@273,prune@64,sparse@273,sparse@64,sparse gaze@273,saccade,saccade gaze,compress"
RIVALS = "fastv@273,fastv:3@64,visionzip@273,divprune@273,cdpruner+@273,scope@273,visionselector@273"
SAME = ("shape", "model", "parameters", "dtype", "image", "visual tokens", "text tokens", "batch", "compiled")
"""What runs must share to be one result; machine, threads and versions may differ, and are then all named."""
RANGED = ("ms", "speed", "of_limit", "select_share")
LEAN = "stock,prune@273,prune@64,sparse@273,sparse@64,saccade"
"""The ways whose memory is measured."""


def random_base(
    shape: str, depth: int | None, dtype: torch.dtype, vocabulary: int | None = None
) -> Qwen3VLForConditionalGeneration:
    """Random weights in a published shape; None: the bundled tokenizer's vocabulary."""
    config = AutoConfig.from_pretrained(checkpoint.BUNDLED_MODEL)
    text: dict[str, Any] = TEXT | SHAPES[shape] | {"rope_parameters": ROTARY}
    text |= {} if vocabulary is None else {"vocab_size": vocabulary}
    vision = VISION | {"out_hidden_size": text["hidden_size"]}
    if depth is not None:
        text["num_hidden_layers"] = vision["depth"] = depth
        vision["deepstack_visual_indexes"] = list(range(min(3, depth - 1)))
    for part, values in ((config.text_config, text), (config.vision_config, vision)):
        for name, value in values.items():
            setattr(part, name, value)
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    base = Qwen3VLForConditionalGeneration(config)
    torch.set_default_dtype(torch.float32)
    return base.eval()


def random_model(shape: str, depth: int | None, device: str, dtype: torch.dtype) -> ARRCOCModel:
    """Random weights in a published shape, with the bundled processor, a random layer and stem."""
    base = random_base(shape, depth, dtype).to(device)
    dim = base.config.get_text_config().hidden_size
    layer = ARRCOCLayer(ARRCOCConfig(dim=dim))
    layer.trained = True  # as if: an untrained one would look by gaze
    processor = AutoProcessor.from_pretrained(checkpoint.BUNDLED_MODEL)
    tower = base.model.visual
    compressors = {name: TowerCompressor.of(tower, factor) for name, factor in TOWERS.items()}
    stem = Stem(dim)
    return ARRCOCModel(base, processor, layer, stem=stem, compressors=compressors, strict=True)


def page_and_question(size: int) -> tuple[Image.Image, str]:
    """The drawn page of a side in px, and a question of some thirty tokens with the template."""
    page = draw_page(0, (size, size), "test")
    return page.image, f"{page.questions[0].text} Answer with one word."


def shape_name(args: argparse.Namespace) -> str:
    return f"Qwen3-VL-{args.shape}" + (f" cut to {args.depth} layers" if args.depth else "")


def measured(args: argparse.Namespace) -> tuple[dict[str, Any], list[SpeedRow]]:
    """One run: its circumstances, and a row per way."""
    dtype = getattr(torch, args.dtype)
    model = random_model(args.shape, args.depth, args.device, dtype)
    dim = model.layer.config.dim
    scorer = QueryBlindScorer(dim, dim // 2).requires_grad_(False).to(args.device, dtype)
    image, question = page_and_question(args.size)
    modes = (args.modes or (OURS if args.batch > 1 else f"{OURS},{RIVALS}")).split(",")
    if args.compile:  # while it is counted, a function runs uncompiled
        model.layer.relevance = torch.compile(model.layer.relevance)
        with torch.no_grad():
            for mode in ("prune@64", "sparse@64"):
                inputs = prompt(model, image, question, args.batch)
                find_way(model, mode)(inputs, Stopwatch(model.device))
    started = time.monotonic()
    rows = bench(
        model, image, question, modes, args.rounds,
        batch=args.batch, scorer=scorer, progress=lambda what: print(what, file=sys.stderr),
    )  # fmt: skip
    facts = {
        "shape": shape_name(args),
        **circumstances(model, image, question, args.batch),
        "rounds": args.rounds,
        "compiled": args.compile,
        "seconds": round(time.monotonic() - started),
    }
    return facts, rows


@torch.no_grad()
def memory_row(name: str, way: Way, start: Callable[[], Inputs], device: torch.device) -> dict[str, Any]:
    """What the first question of this process takes by a way, in MiB.

    `loaded`: held before it, by the model and all else; `peak`: the most held during it, beyond `loaded`;
    `stays`: the part of that which is still held after it, such as the guide and torch's compiled kernels.
    """
    tokens: list[float] = []
    held = memory_of_process(lambda: tokens.append(way(start(), Stopwatch(device)).tokens), device)
    figures = {
        "loaded": held.before,
        "peak": held.peak - held.before,
        "stays": held.after - held.before,
    }
    return {"way": name, "tokens": tokens[0]} | {key: round(value, 1) for key, value in figures.items()}


def memory_result(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """The circumstances and the one row of a way, whose first question this process has."""
    model = random_model(args.shape, args.depth, args.device, getattr(torch, args.dtype))
    image, question = page_and_question(args.size)
    way = find_way(model, name)
    row = memory_row(name, way, lambda: prompt(model, image, question, args.batch), model.device)
    facts = {"shape": shape_name(args), **circumstances(model, image, question, args.batch)}
    return {"circumstances": facts, "rows": [row]}


def one_memory(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of several ways in one result, with how many times less than stock each takes.

    A ValueError where two are of different machines, models or inputs.
    """
    first = results[0]["circumstances"]
    for facts in (result["circumstances"] for result in results):
        if different := [name for name in facts if facts[name] != first.get(name)]:
            name = different[0]
            raise ValueError(
                f"ways differ in {name}: {first.get(name)!r} and {facts[name]!r}; remove the files of "
                "earlier runs"
            )
    rows = [row for result in results for row in result["rows"]]
    stock = next((row["peak"] for row in rows if row["way"] == STOCK), None)
    for row in rows:
        row["fewer"] = None if stock is None else round(stock / row["peak"], 2)
    return {"circumstances": first, "rows": rows}


def merged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The range over several runs, each a result of its own.

    Figures of a way are the medians over the runs that have it; "runs" says how many those are, and "range"
    gives [lowest, highest] of the figures in `RANGED`.

    Raises:
        ValueError: there are none, one is a range already, or two are of different models or inputs.
    """
    if not results:
        raise ValueError("there is no run to merge: name the files of some")
    first = results[0]["circumstances"]
    for result in results:
        facts = result["circumstances"]
        if "runs" in facts:
            raise ValueError(
                "one of the files is a range over runs already: merge the files of the runs themselves"
            )
        if different := [name for name in SAME if facts.get(name) != first.get(name)]:
            name = different[0]
            raise ValueError(
                f"runs differ in {name}: {first.get(name)!r} and {facts.get(name)!r} are no one result"
            )
    rows = []
    for mode in dict.fromkeys(row["mode"] for result in results for row in result["rows"]):
        own = [row for result in results for row in result["rows"] if row["mode"] == mode]
        figures = {
            name: [row[name] for row in own]
            for name in RANGED
            if all(row.get(name) is not None for row in own)
        }
        row = own[0] | {name: median(values) for name, values in figures.items()}
        row["stages"] = {stage: median(one["stages"][stage] for one in own) for stage in own[0]["stages"]}
        row["select"] = median(one["select"] for one in own)
        row["rounds"] = [ms for one in own for ms in one["rounds"]]
        rows.append(
            row | {"runs": len(own), "range": {name: [min(v), max(v)] for name, v in figures.items()}}
        )
    machine = ("device", "cores", "threads", "versions")
    machines = [{name: result["circumstances"].get(name) for name in machine} for result in results]
    facts = {name: value for name, value in first.items() if name not in (*machine, "seconds")}
    facts |= {"runs": len(results), "seconds": sum(result["circumstances"]["seconds"] for result in results)}
    facts["machines"] = [one for i, one in enumerate(machines) if one not in machines[:i]]
    return {"circumstances": facts, "rows": rows}


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result file with its command."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"command": " ".join(["python", *sys.argv])} | result, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def run_each(args: argparse.Namespace) -> list[Path]:
    """The files of `--runs` processes, or of one for each way's memory; those that are missing run now."""
    folder, names = args.out.parent / "runs", ("shape", "size", "batch", "rounds", "device", "dtype", "depth")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    words += ["--compile"] * args.compile
    if args.memory:
        ways = args.modes.split(",")
        each = {folder / f"{args.out.stem}-{way}.json": ["--memory", "--modes", way] for way in ways}
    else:
        modes = ["--modes", args.modes] if args.modes else []
        each = {folder / f"{args.out.stem}-{i + 1}.json": modes for i in range(args.runs)}
    for path, more in each.items():
        if not path.is_file():
            subprocess.run([sys.executable, sys.argv[0], *words, *more, "--out", str(path)], check=True)
    return list(each)


def print_memory(result: dict[str, Any]) -> None:
    """The figures of each way's memory, a line each."""
    for row in result["rows"]:
        fewer = "" if row.get("fewer") is None else f", {row['fewer']:.1f}x fewer than stock"
        print(
            f"{row['way']:14} {row['tokens']:7,.0f} tokens {row['peak']:9,.0f} MiB beyond the "
            f"{row['loaded']:,.0f} of the model, {row['stays']:,.0f} of them stay{fewer}"
        )


def memory(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Measure the memory of one way here, or of several in a process each."""
    try:
        if "," not in args.modes:
            result = memory_result(args, args.modes)
        elif args.out is None:
            parser.error("several ways need a file: give --out")
        else:
            result = one_memory([json.loads(path.read_text(encoding="utf-8")) for path in run_each(args)])
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print_memory(result)
    if args.out:
        write(args.out, result)


def main() -> None:
    """Measure, or put runs together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="2B")
    parser.add_argument("--size", type=int, default=1024, help="side of the page in px")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", help="ours and the rivals if not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--depth", type=int, help="layers of both halves, for a smoke test")
    parser.add_argument("--compile", action="store_true", help="torch.compile the scorers and the balancer")
    parser.add_argument("--runs", type=int, default=1, help="processes, one after the other")
    parser.add_argument(
        "--merge", type=Path, nargs="+", help="files of runs to put together; nothing is measured"
    )
    parser.add_argument("--memory", action="store_true", help="memory alone, each way in its own process")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.memory:
        args.modes = args.modes or LEAN
        if args.merge or args.compile or args.runs > 1:
            parser.error("--memory measures each way once: leave out --merge, --compile and --runs")
        memory(args, parser)
        return
    if (args.merge or args.runs > 1) and args.out is None:
        parser.error("several runs need a file for their range: give --out")
    if args.merge or args.runs > 1:
        paths = args.merge or run_each(args)
        try:
            result = merged([json.loads(path.read_text(encoding="utf-8")) for path in paths])
        except (OSError, ValueError) as error:
            parser.error(str(error))
        write(args.out, result)
        for row in result["rows"]:
            low, high = row["range"].get("speed", (float("nan"),) * 2)
            print(f"{row['mode']:24} {row['ms']:10,.0f} ms  {low:6.2f} to {high:6.2f} x stock")
        return
    facts, rows = measured(args)
    print_bench(facts, rows)
    if args.out:
        write(args.out, {"circumstances": facts, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
