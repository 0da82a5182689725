"""Stage 3 of the bundled model: vision tower and language model together, on questions about drawn pages.

DeepStack starts at zero and learns here; the dense loss of stage 1 stays on at a low weight; on some pages
only part of the tokens is shown (always the evidence), so that the model is at ease with fewer; some batches
are study sheets, for the dense loss alone. Embeddings stay fixed.

Run as `python -m making.together OUT --eyes FILE --mind FILE --sizes 256,384,512 --steps 1500`;
killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from arr_coc_lab.world import draw_page
from arr_coc_lab.world.training_pages import sample_questions
from arr_coc_lab.world.vocabulary import FAMILIES
from making.bundled import (
    CELL,
    DIM,
    StillPatchEmbed,
    build_model,
    build_processor,
    image_tensor,
    patchify,
    save,
    sides,
)
from making.curve import Curve
from making.language import answer_loss, collate, exact, read_pages
from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from making.packing import IGNORED, pack
from making.targets import cell_targets, clues, evidence_mask
from making.vision import Eyes, Pages, dense_loss
from making.words import build_embeddings, build_roles, build_tokenizer

OFTEN = {"count": 4, "value": 3, "table": 2}  # what is learned last is asked more


class AskedPages(Dataset):
    """Batch i of drawn pages with packed questions; the size of batch i is drawn from `sizes` (px)."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        sizes: list[int],
        cells: int,
        first: int,
        last: int,
        drop: float = 0.35,
        split: str = "train",
        sheets: float = 0.0,
    ) -> None:
        self.tokenizer, self.sizes, self.cells, self.sheets = tokenizer, sizes, cells, sheets
        self.first, self.last, self.drop, self.split = first, last, drop, split

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> dict:
        step = self.first + index
        rng = random.Random(step)
        if rng.random() < self.sheets:
            pixels, grid, words, _, _ = Pages([min(self.sizes)], self.cells, step, step + 1, sheets=1.0)[0]
            return {"pixels": pixels, "grid": grid, "words": words, "families": []}
        side = rng.choice(self.sizes) // CELL
        stretch = rng.uniform(-0.25, 0.25)
        h, w = max(3, round(side * np.exp(stretch))), max(3, round(side * np.exp(-stretch)))
        pixels, words, packs, kept, families = [], [], [], [], []
        for i in range(max(1, self.cells // (h * w))):
            page = draw_page(50_000_000 + step * 64 + i, (w * CELL, h * CELL), self.split)
            questions = sample_questions(rng, page.questions, 20, OFTEN)
            if rng.random() < self.drop:
                keep = np.random.default_rng(step).random((h, w)) < rng.uniform(0.05, 0.7)
                for question in questions:
                    keep |= evidence_mask(question.evidence, h, w)
                keep[0, 0] |= not keep.any()
            else:
                keep = np.ones((h, w), bool)
            cells = torch.from_numpy(np.argwhere(keep))
            pixels.append(patchify(image_tensor(page.image)))
            words.append(torch.from_numpy(cell_targets(page)).flatten(1))
            kept.append(torch.from_numpy(keep).flatten())
            looked_up = [clues(q, page.things, w * CELL) for q in questions]
            packs.append(pack(self.tokenizer, cells, (h, w), questions, looked_up))
            families.append([q.family for q in questions])
        return collate(packs, self.tokenizer.pad_token_id) | {
            "pixels": torch.cat(pixels),
            "grid": torch.tensor([[1, 2 * h, 2 * w]] * len(pixels)),
            "words": torch.cat(words, 1).long(),
            "kept": torch.cat(kept),
            "families": families,
        }


def answer_logits(
    model: Qwen3VLForConditionalGeneration, batch: dict, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    """Eyes and language model on a batch: logits [B, S, V] (zero where not `wanted`), tokens [N, D]."""
    vision = model.model.visual(batch["pixels"], grid_thw=batch["grid"], return_dict=True)
    tokens, kept = vision.pooler_output, batch["kept"]
    levels = [level[kept] for level in vision.deepstack_features]
    return read_pages(model, batch, tokens[kept], levels, wanted), tokens.float()


@torch.no_grad()
def measure(model: Qwen3VLForConditionalGeneration, data: AskedPages) -> dict[str, float]:
    """Exact match per family and over all questions of a data set, all tokens shown."""
    matches: dict[str, list[float]] = {}
    for batch in (data[i] for i in range(len(data))):
        logits, _ = answer_logits(model, batch, batch["labels"] != IGNORED)
        for family, hits in exact(logits, batch, batch["families"]).items():
            matches.setdefault(family, []).extend(hits)
    every = [hit for hits in matches.values() for hit in hits]
    rows = {family: round(float(np.mean(matches[family])), 3) for family in FAMILIES if family in matches}
    return rows | {"all": round(float(np.mean(every)), 4), "questions": len(every)}


def train(
    out: Path,
    eyes_file: Path,
    mind_file: Path,
    sizes: list[int],
    cells: int,
    steps: int,
    lr: float,
    hint: float,
    dense: float,
    threads: int,
    init: Path | None,
    folder: Path | None,
    sheets: float = 0.0,
) -> None:
    """Train (or go on training), write `out` and, at the end, the folder of the finished model."""
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    embeddings = build_embeddings(tokenizer, DIM)
    roles = build_roles(tokenizer, embeddings)
    model = build_model(tokenizer, embeddings)
    if not out.exists():
        if init is not None:
            load_checkpoint(init, model)
        else:
            load_checkpoint(eyes_file, Eyes(model))
            load_checkpoint(mind_file, model.model.language_model)
    model.get_input_embeddings().weight.requires_grad_(False)
    model.model.visual.patch_embed = StillPatchEmbed(model.model.visual.patch_embed)
    optimizer = Optimizers(model.named_parameters(), lr)
    first = load_checkpoint(out, model, optimizer)
    data = AskedPages(tokenizer, sizes, cells, first, steps, sheets=sheets)
    loader = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=4)
    curve = Curve(out, every=25)
    for step, batch in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 50) * max(0.03, 1 - step / steps)
        with torch.autocast("cpu", torch.bfloat16):
            if "ids" in batch:
                wanted = (batch["labels"] != IGNORED) | (batch["hints"] != IGNORED)
                logits, tokens = answer_logits(model, batch, wanted)
            else:  # a study sheet asks nothing
                logits = None
                eyes = model.model.visual(batch["pixels"], grid_thw=batch["grid"], return_dict=True)
                tokens = eyes.pooler_output.float()
        cell_loss, accuracy = dense_loss(tokens, batch["words"], roles)
        loss = dense * cell_loss
        if logits is not None:
            answers = answer_loss(logits, batch, hint)
            loss = loss + answers
            curve.add("loss", answers.item())
            curve.add("seen", cell_loss.item())
            for role, value in accuracy.items():
                curve.add("eyes." + role, value)
            for family, hits in exact(logits, batch, batch["families"]).items():
                curve.add(family, *hits)
        optimizer.step(loss, rate)
        curve.end_step(step + 1)
        if (step + 1) % 100 == 0 or step + 1 == steps:
            save_checkpoint(out, model, optimizer, step + 1)
    held_out = AskedPages(tokenizer, [max(sizes)], 0, 10**6, 10**6 + 12, drop=0.0, split="validation")
    curve.write({"validation": measure(model, held_out), "size": max(sizes)})
    if folder is not None:
        save(model, build_processor(tokenizer), folder)


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--eyes", dest="eyes_file", type=Path, help="checkpoint of stage 1")
    parser.add_argument("--mind", dest="mind_file", type=Path, help="checkpoint of stage 2")
    parser.add_argument(
        "--init", type=Path, help="checkpoint of an earlier run of this stage, instead of the two"
    )
    parser.add_argument(
        "--sizes", type=sides, default="256,384,512", help="typical sides of a page in px, one a batch"
    )
    parser.add_argument(
        "--sheets", type=float, default=0.0, help="share of batches: dense loss on study sheets"
    )
    parser.add_argument("--cells", type=int, default=512, help="cells a batch")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--hint", type=float, default=0.2, help="weight of the early hints")
    parser.add_argument("--dense", type=float, default=0.05, help="weight of the dense loss of stage 1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="write the finished model folder here")
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
