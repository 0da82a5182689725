"""Memory and time of self-distillation for Qwen3-VL-2B, on random weights in its published shape.

    python runs/distill_cost.py OUT.json [--device cuda] [--steps 1] [--questions 1]

The shape is that of Qwen/Qwen3-VL-2B-Instruct but for the vocabulary (the bundled tokenizer's), which has no part in
selection. One page of 1024 x 1024 px (1024 visual tokens), bfloat16. Each step: encode, answer with all tokens, gradient
of the answer, one step of the allocator. On one CPU core a minute and a half and 7 GiB (the real
vocabulary adds 0.6); on a GPU not measured.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoProcessor, Qwen3VLForConditionalGeneration

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.model import ARRCOCModel
from arr_coc.store import checkpoint
from arr_coc.train.learner import Learner
from arr_coc.train.recipe import make_recipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc_lab.world import draw_page

TEXT = {
    "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 6144,
}  # fmt: skip
VISION = {
    "hidden_size": 1024, "depth": 24, "num_heads": 16, "intermediate_size": 4096, "out_hidden_size": 2048,
    "deepstack_visual_indexes": [5, 11, 17], "num_position_embeddings": 2304,
}  # fmt: skip

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--questions", type=int, default=1)
args = parser.parse_args()

config = AutoConfig.from_pretrained(checkpoint.BUNDLED_MODEL)
for part, values in ((config.text_config, TEXT), (config.vision_config, VISION)):
    for name, value in values.items():
        setattr(part, name, value)
config.text_config.rope_parameters = {
    "rope_type": "default",
    "rope_theta": 5e6,
    "mrope_section": [24, 20, 20],
}
torch.set_default_dtype(torch.bfloat16)
base = Qwen3VLForConditionalGeneration(config).to(args.device).eval()
torch.set_default_dtype(torch.float32)
layer = ARRCOCLayer(ARRCOCConfig(dim=TEXT["hidden_size"]))
recipe = make_recipe(stage="relevance", target="gradient", steps=args.steps, precision="bfloat16")
learner = Learner(
    ARRCOCModel(base, AutoProcessor.from_pretrained(checkpoint.BUNDLED_MODEL), layer), recipe
).to(args.device)
optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
page = draw_page(0, (1024, 1024), "train")
rows = tuple(Row(q.text, (q.answer,), None, "", 1.0, "page 0") for q in page.questions[: args.questions])
seconds = []
for _ in range(args.steps):
    start = time.monotonic()
    loss, _ = learner([ImageRows(page.image, rows, "page 0")])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if args.device.startswith("cuda"):
        torch.cuda.synchronize()
    seconds.append(round(time.monotonic() - start, 2))
cuda = args.device.startswith("cuda")
peak = (
    torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
)
result = {
    "command": f"python runs/distill_cost.py {args.out} --device {args.device} --steps {args.steps} --questions {args.questions}",
    "parameters": sum(p.numel() for p in base.parameters()),
    "allocator parameters": sum(p.numel() for p in layer.parameters()),
    "device": torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} thread(s)",
    "visual tokens": 1024,
    "questions a step": len(rows),
    "seconds a step": seconds,
    "peak GiB": round(peak / 2**30, 2),
    "loss is finite": bool(loss.isfinite()),
}
args.out.write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result, indent=1))
