"""What a first token costs in Qwen3-VL's published shapes: every mode and the rivals beside the stock model.

    python bench/prefill.py --out bench/results/2b-1024.json
    python bench/prefill.py --size 2048 --rounds 1 --modes stock,prune@273,sparse@273,saccade --out ...
    python bench/prefill.py --batch 4 --device cuda --compile --out ...

Random weights in the shape of Qwen/Qwen3-VL-2B-Instruct or -4B-, but for the vocabulary (the bundled
tokenizer's), in bfloat16; real inputs, a drawn page through the bundled processor. What is measured and how:
`arr_coc.evaluate.speed`. Layer and stem are random too, and taken for trained; a way with " gaze" is that of
a checkpoint without them.

At 2048 px stock alone takes over a minute a round on two CPU cores: one round, after the unmeasured one, is
enough. Rivals choose for one image, so larger batches leave them out. 2B needs 6 GiB, 4B 11. With --depth
both halves are cut to so many layers: a smoke test, whose figures mean nothing.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import AutoConfig, AutoProcessor, Qwen3VLForConditionalGeneration

from arr_coc.cli.bench import print_bench
from arr_coc.core.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.core.realizing import Stopwatch
from arr_coc.core.stem import Stem
from arr_coc.evaluate.speed import bench, circumstances, find_way, prompt
from arr_coc.model import ARRCOCModel
from arr_coc.rivals import QueryBlindScorer
from arr_coc.store import checkpoint
from arr_coc.world import draw_page

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
RIVALS = "fastv@273,visionzip@273,divprune@273,cdpruner+@273,scope@273,visionselector@273"


def random_model(shape: str, depth: int | None, device: str, dtype: torch.dtype) -> ARRCOCModel:
    """Random weights in a published shape, with the bundled processor, a random layer and stem."""
    config = AutoConfig.from_pretrained(checkpoint.BUNDLED_MODEL)
    text = TEXT | SHAPES[shape] | {"rope_parameters": ROTARY}
    vision = VISION | {"out_hidden_size": text["hidden_size"]}
    if depth is not None:
        text["num_hidden_layers"] = vision["depth"] = depth
        vision["deepstack_visual_indexes"] = list(range(min(3, depth - 1)))
    for part, values in ((config.text_config, text), (config.vision_config, vision)):
        for name, value in values.items():
            setattr(part, name, value)
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    base = Qwen3VLForConditionalGeneration(config).to(device).eval()
    torch.set_default_dtype(torch.float32)
    layer = ARRCOCLayer(ARRCOCConfig(dim=text["hidden_size"]))
    layer.trained = True  # as if: an untrained one would look by gaze
    processor = AutoProcessor.from_pretrained(checkpoint.BUNDLED_MODEL)
    return ARRCOCModel(base, processor, layer, stem=Stem(text["hidden_size"]), strict=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--shape", choices=SHAPES, default="2B")
parser.add_argument("--size", type=int, default=1024, help="side of the page in px")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--modes", help="ours and the rivals if not given")
parser.add_argument("--device", default="cpu")
parser.add_argument("--dtype", default="bfloat16")
parser.add_argument("--depth", type=int, help="layers of both halves, for a smoke test")
parser.add_argument("--compile", action="store_true", help="torch.compile the scorers and the balancer")
parser.add_argument("--out", type=Path)
args = parser.parse_args()

dtype = getattr(torch, args.dtype)
model = random_model(args.shape, args.depth, args.device, dtype)
dim = model.layer.config.dim
scorer = QueryBlindScorer(dim, dim // 2).requires_grad_(False).to(args.device, dtype)
page = draw_page(0, (args.size, args.size), "test")
question = f"{page.questions[0].text} Answer with one word."  # some thirty tokens of text with the template
modes = (args.modes or (OURS if args.batch > 1 else f"{OURS},{RIVALS}")).split(",")
if args.compile:  # while it is counted, a function runs uncompiled
    model.layer.relevance = torch.compile(model.layer.relevance)
    with torch.no_grad():
        for mode in ("prune@64", "sparse@64"):
            inputs = prompt(model, page.image, question, args.batch)
            find_way(model, mode)(inputs, Stopwatch(model.device))
started = time.monotonic()
rows = bench(
    model, page.image, question, modes, args.rounds,
    batch=args.batch, scorer=scorer, progress=lambda what: print(what, file=sys.stderr),
)  # fmt: skip
facts = {
    "shape": f"Qwen3-VL-{args.shape}" + (f" cut to {args.depth} layers" if args.depth else ""),
    **circumstances(model, page.image, question, args.batch),
    "rounds": args.rounds,
    "compiled": args.compile,
    "seconds": round(time.monotonic() - started),
}
print_bench(facts, rows)
if args.out:
    result = {"command": " ".join(["python", *sys.argv]), "circumstances": facts}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result | {"rows": [asdict(row) for row in rows]}, indent=1)
    args.out.write_text(text + "\n", encoding="utf-8")
