"""The relevance stage: teach the scorers and the balancer where the evidence is. The base model is frozen.

    loss = BCE(logits, evidence cells) + listwise: -mean log softmax(logits) over the evidence cells

The continuous map is supervised, never the selection: what is learned does not depend on a budget.

Run as `python -m arr_coc.training.relevance OUT --model FOLDER --steps 800 --allocator FOLDER`; killed, it
goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerBase, Qwen3VLForConditionalGeneration

from arr_coc.checkpoint import load_base, save_layer
from arr_coc.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.texture import generate_texture_array
from arr_coc.training.bundled import CELL, image_tensor, patchify
from arr_coc.training.checkpoint import Optimizers, load_checkpoint, save_checkpoint
from arr_coc.training.language import choose
from arr_coc.training.targets import evidence_mask
from arr_coc.world import draw_page


class EvidencePages(Dataset):
    """Page i: the image, its questions as padded ids, and the evidence cells of each question."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        sizes: list[int],
        first: int,
        last: int,
        split: str = "train",
    ) -> None:
        self.tokenizer, self.sizes, self.first, self.last, self.split = tokenizer, sizes, first, last, split

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        step = self.first + index
        rng = random.Random(step)
        side, stretch = rng.choice(self.sizes) // CELL, rng.uniform(-0.25, 0.25)
        h, w = max(4, round(side * np.exp(stretch))), max(4, round(side * np.exp(-stretch)))
        page = draw_page(90_000_000 + step, (w * CELL, h * CELL), self.split, void=False)
        asked = choose(rng, list(page.questions), 16)
        ids = [torch.tensor(self.tokenizer.encode(q.text, add_special_tokens=False)) for q in asked]
        longest = max((len(i) for i in ids), default=1)
        evidence = np.array([evidence_mask(q.evidence, h, w) for q in asked])
        return {
            "image": image_tensor(page.image),
            "ids": torch.stack([F.pad(i, (0, longest - len(i))) for i in ids])
            if ids
            else torch.zeros(0, 1).long(),
            "mask": torch.tensor([[j < len(i) for j in range(longest)] for i in ids]).view(len(ids), longest),
            "evidence": torch.tensor(evidence).view(-1, h, w),
        }


def relevance_loss(logits: Tensor, evidence: Tensor) -> Tensor:
    """Loss of a relevance map.

    Args:
        logits: [B, H, W] before the sigmoid.
        evidence: bool [B, H, W]; a row without any asks for something absent, and has only the BCE term.
    """
    truth = evidence.float()
    bce = F.binary_cross_entropy_with_logits(logits, truth, pos_weight=torch.tensor(8.0))
    share = truth.flatten(1).sum(1)
    listwise = -(logits.flatten(1).log_softmax(1) * truth.flatten(1)).sum(1)
    return 4 * bce + listwise.sum() / share.sum().clamp_min(1)


def recall(logits: Tensor, evidence: Tensor, count: int) -> list[float]:
    """Per row with evidence, the share of its evidence cells among the `count` best."""
    top = logits.flatten(1).topk(min(count, logits[0].numel())).indices
    there = evidence.flatten(1)
    hits = there.gather(1, top).sum(1)
    return [(h / n).item() for h, n in zip(hits, there.sum(1), strict=True) if n > 0]


def maps(layer: ARRCOCLayer, base: Qwen3VLForConditionalGeneration, page: dict[str, Tensor]) -> Tensor:
    """Relevance logits [Q, H, W] of all questions of a page."""
    count, h, w = page["evidence"].shape
    with torch.no_grad():
        grid = torch.tensor([[1, 2 * h, 2 * w]])
        tokens = base.model.visual(patchify(page["image"]), grid_thw=grid, return_dict=True).pooler_output
        texture = generate_texture_array(page["image"][None], (h, w), layer.config.channels)
        query = base.get_input_embeddings()(page["ids"])
    expand = (count, -1, -1, -1)
    return layer.relevance(
        texture.expand(expand), query, page["mask"], tokens[None].expand(expand[:3])
    ).logits


def train(
    out: Path,
    model: Path,
    allocator: Path,
    sizes: list[int],
    steps: int,
    lr: float,
    threads: int,
    init: Path | None = None,
) -> None:
    """Train (or go on training), write `out` and the allocator folder."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    loaded, processor = load_base(str(model))
    base = cast(Qwen3VLForConditionalGeneration, loaded)
    layer = ARRCOCLayer(ARRCOCConfig(dim=base.config.get_text_config().hidden_size))
    if init is not None:
        load_checkpoint(init, layer)
    optimizer = Optimizers(layer.named_parameters(), lr)
    first = load_checkpoint(out, layer, optimizer)
    loader = DataLoader(
        EvidencePages(processor.tokenizer, sizes, first, steps),
        batch_size=None,
        num_workers=1,
        prefetch_factor=4,
    )
    since, mean = time.time(), dict[str, list[float]]()
    for step, page in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 30) * max(0.03, 1 - step / steps)
        if page["ids"].shape[0]:
            logits = maps(layer, base, page)
            loss = relevance_loss(logits, page["evidence"])
            optimizer.step(loss, rate)
            mean.setdefault("loss", []).append(loss.item())
            cells = logits[0].numel()
            for share in (16, 4):
                mean.setdefault(f"recall 1/{share}", []).extend(
                    recall(logits, page["evidence"], cells // share)
                )
        if (step + 1) % 25 == 0 and mean:
            line = {"step": step + 1, "seconds": round(time.time() - since, 1)}
            line |= {k: round(float(np.mean(v)), 4) for k, v in mean.items()}
            with out.with_suffix(".jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            mean = {}
        if (step + 1) % 100 == 0 or step + 1 == steps:
            save_checkpoint(out, layer, optimizer, step + 1)
    layer.trained = True
    name = {"base_model": "bundled", "base_model_type": base.config.model_type, "base_dim": layer.config.dim}
    save_layer(layer, allocator, name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--allocator", type=Path, required=True, help="write the trained allocator here")
    parser.add_argument("--init", type=Path, help="arr_coc.safetensors of an earlier allocator to start from")
    parser.add_argument("--sizes", default="512,768,1024", help="typical sides of a page in px, one a page")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    sides = [int(s) for s in a.sizes.split(",")]
    train(a.out, a.model, a.allocator, sides, a.steps, a.lr, a.threads, a.init)
