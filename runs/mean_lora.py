"""The mean of LoRAs in weight space, in bfloat16: `python runs/mean_lora.py FIRST [SECOND ...] --out FOLDER`.

Of one allocator it is its LoRAs in bfloat16. Of two, the second begun with the first: their weights lie in one
basin, and their mean reads fonts that neither was taught better than either does (Wortsman et al. 2022, "Robust
fine-tuning of zero-shot models"). docs/log/2026-11-21.md has the figures.
"""

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "adapter_model.safetensors"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folders", type=Path, nargs="+")
parser.add_argument("--out", type=Path, required=True)
args = parser.parse_args()
for name in ("partial", "coarse"):
    weights = [load_file(folder / name / WEIGHTS) for folder in args.folders]
    if any(one.keys() != weights[0].keys() for one in weights):
        parser.error(f"{', '.join(map(str, args.folders))} hold other {name} weights than one another")
    mean = {key: torch.stack([one[key].float() for one in weights]).mean(0).bfloat16() for key in weights[0]}
    (args.out / name).mkdir(parents=True, exist_ok=True)
    save_file(mean, args.out / name / WEIGHTS, {"format": "pt"})
    config = args.folders[0] / name / "adapter_config.json"
    if config.resolve() != (args.out / name / config.name).resolve():
        shutil.copy(config, args.out / name)
