"""Training of the bundled conv compressors: on answers, through the frozen language model.

Each page is encoded once, by frozen eyes; both compressors make their gestalt of it, and its questions are
asked of each gestalt, coarse tokens at their fractional places. The loss is the cross-entropy of the answers
and nothing else. Nothing of the base model changes.

Run as `python -m making.compressor OUT --steps 800 --folder ALLOCATOR`; killed, it goes on where it
was. One core: about 2 s a step.
"""

from __future__ import annotations

import argparse
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast

from arr_coc.seam import Grid, VisualFeatures
from arr_coc.seam.gestalt import CONVS, ConvCompressor, Convs, middles, pooled, save_convs
from arr_coc.store import checkpoint
from arr_coc.training.drawn import sample_questions
from arr_coc.world import Question, draw_page
from arr_coc.world.vocabulary import FAMILIES
from making.bundled import CELL, DIM, StillPatchEmbed, image_tensor, patchify, sides
from making.curve import Curve
from making.language import answer_loss, collate, exact, read_pages
from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from making.packing import IGNORED, pack
from making.together import OFTEN

FIRST_PAGE = 60_000_000
QUESTIONS = 24


class WholePages(Dataset):
    """Batch i: pages of one size near one of `sizes` (px), at most `cells` cells, and their questions."""

    def __init__(self, sizes: list[int], cells: int, first: int, last: int, split: str = "train") -> None:
        self.sizes, self.cells, self.first, self.last, self.split = sizes, cells, first, last, split

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> dict[str, Any]:
        step = self.first + index
        rng = random.Random(step)
        side, stretch = rng.choice(self.sizes) // CELL, np.exp(rng.uniform(-0.25, 0.25))
        h, w = max(4, round(side * stretch)), max(4, round(side / stretch))
        pages = [
            draw_page(FIRST_PAGE + step * 64 + i, (w * CELL, h * CELL), self.split)
            for i in range(max(1, self.cells // (h * w)))
        ]
        return {
            "pixels": torch.cat([patchify(image_tensor(page.image)) for page in pages]),
            "grids": [(1, h, w)] * len(pages),
            "asked": [sample_questions(rng, page.questions, QUESTIONS, OFTEN) for page in pages],
        }


@torch.no_grad()
def encode(visual: Any, pixels: Tensor, grids: list[Grid]) -> VisualFeatures:
    """The encoded tokens of pages, float32."""
    patches = torch.tensor([[t, 2 * h, 2 * w] for t, h, w in grids])
    vision = visual(pixels, grid_thw=patches, return_dict=True)
    sizes = [t * h * w for t, h, w in grids]
    tokens, *levels = (
        list(x.float().split(sizes)) for x in (vision.pooler_output, *vision.deepstack_features)
    )
    return VisualFeatures(tokens, levels, grids, [torch.arange(n) for n in sizes], type(vision))


def ask(
    base: Any,
    tokenizer: PreTrainedTokenizerFast,
    gestalt: VisualFeatures,
    grids: list[Grid],
    page_questions: list[list[Question]],
) -> tuple[Tensor, dict[str, Any]]:
    """Ask the questions of gestalts.

    Args:
        base: the bundled model.
        tokenizer: its own.
        gestalt: of every page.
        grids: the pages' fine grids, in whose coordinates everything stands.
        page_questions: the questions of every page.

    Returns:
        Logits [B, S, V] (zero where there is no label), and the batch as `collate` packs it.
    """
    packs = [
        pack(tokenizer, middles(fine, coarse), fine[1:], questions)
        for fine, coarse, questions in zip(grids, gestalt.grids, page_questions, strict=True)
    ]
    batch = collate(packs, tokenizer.pad_token_id)
    wanted = batch["labels"] != IGNORED
    levels = [torch.cat(level) for level in gestalt.levels]
    logits = read_pages(base, batch, torch.cat(gestalt.tokens), levels, wanted)
    return logits, batch


@torch.no_grad()
def measure(
    base: Any, tokenizer: PreTrainedTokenizerFast, convs: Convs, data: WholePages
) -> dict[str, dict[str, float]]:
    """Exact match with all tokens, with pooled and with convolved ones: per family and over all questions."""
    pools = {f"pool{factor}": partial(pooled, factor=factor) for factor in CONVS.values()}
    matches: dict[str, dict[str, list[float]]] = {}
    for page in (data[i] for i in range(len(data))):
        with torch.autocast("cpu", torch.bfloat16):
            features = encode(base.model.visual, page["pixels"], page["grids"])
            for name, look in {"full": lambda x: x, **pools, **dict(convs.items())}.items():
                logits, batch = ask(base, tokenizer, look(features), page["grids"], page["asked"])
                families = [[q.family for q in questions] for questions in page["asked"]]
                for family, hits in exact(logits, batch, families).items():
                    matches.setdefault(name, {}).setdefault(family, []).extend(hits)
                    matches[name].setdefault("all", []).extend(hits)
    order = [*FAMILIES, "all"]
    return {
        name: {family: round(float(np.mean(hits[family])), 3) for family in order if family in hits}
        for name, hits in matches.items()
    }


def train(out: Path, folder: Path, sizes: list[int], cells: int, steps: int, lr: float, threads: int) -> None:
    """Train (or go on training), write `out` and, at the end, conv4 and conv16 into `folder`."""
    torch.set_num_threads(threads)
    loaded, processor = checkpoint.load_base(checkpoint.BUNDLED)
    base: Any = loaded.requires_grad_(False)
    tokenizer = processor.tokenizer
    visual = base.model.visual
    visual.patch_embed = StillPatchEmbed(visual.patch_embed)
    levels = len(base.config.vision_config.deepstack_visual_indexes)
    convs = nn.ModuleDict({name: ConvCompressor(DIM, factor, levels) for name, factor in CONVS.items()})
    optimizer = Optimizers(convs.named_parameters(), lr)
    first = load_checkpoint(out, convs, optimizer)
    data = WholePages(sizes, cells, first, steps)
    loader = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=4)
    curve = Curve(out, every=25)
    for step, page in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 30) * max(0.02, 1 - step / steps)
        losses = []
        with torch.autocast("cpu", torch.bfloat16):
            features = encode(visual, page["pixels"], page["grids"])
            for name, conv in convs.items():
                logits, batch = ask(base, tokenizer, conv(features), page["grids"], page["asked"])
                losses.append(answer_loss(logits, batch, hint_weight=0.0))
                families = [[q.family for q in questions] for questions in page["asked"]]
                hits = [hit for row in exact(logits, batch, families).values() for hit in row]
                curve.add(name, float(losses[-1].detach()))
                curve.add(name + " exact", *hits)
        optimizer.step(torch.stack(losses).mean(), rate)
        curve.end_step(step + 1, last=step + 1 == steps)
        if (step + 1) % 50 == 0 or step + 1 == steps:
            save_checkpoint(out, convs, optimizer, step + 1)
    save_convs(convs, folder)
    held_out = WholePages([max(sizes)], 0, 10**6, 10**6 + 24, split="validation")
    curve.write({"validation": measure(base, tokenizer, convs, held_out), "size": max(sizes)})


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="write conv4 and conv16 here at the end")
    parser.add_argument(
        "--sizes", type=sides, default="512,768,1024", help="typical sides of a page in px, one a batch"
    )
    parser.add_argument("--cells", type=int, default=1024, help="cells a batch")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
