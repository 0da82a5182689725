"""Training of the bundled stem: to find, in pixels alone, the cells that a question about a page needs.

    loss = CE of the label, colour, shape and middle of each cell (as stage 1 teaches the eyes)
         + CE of the character under each 16-px patch (a throw-away head)
         + relevance loss of the map that the bundled, frozen allocator makes of the stem's cells

A quarter of the batches lay the encoded gestalt under the cells, the others don't: one stem serves `sparse`
and `saccade`.

Run as `python -m making.stem OUT --steps 6000`; killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.stem import Stem, save_stem
from arr_coc.choose.texture import generate_texture_array
from arr_coc.store import checkpoint
from arr_coc.train.losses import recall, relevance_loss
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.training_pages import sample_questions
from making.bundled import CELL, DIM, sides
from making.curve import Curve
from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from making.sheet import draw_sheet
from making.targets import GLYPHS, IGNORE, NONE, cell_targets, evidence_mask, glyph_targets
from making.vision import SHARPNESS
from making.words import ROLES, RoleSpace, build_embeddings, build_roles, build_tokenizer

QUESTION_ROLES = ("label", "colour", "shape", "centre")
"""The roles of a cell that a question can name."""
FIRST_PAGE = 90_000_000
QUESTIONS = 16


class Sight(nn.Module):
    """The stem, and a throw-away head that names the character under each patch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem(DIM)
        self.glyphs = nn.Linear(self.stem.patch.look.in_channels, len(GLYPHS))

    def forward(
        self, pictures: Tensor, grid: tuple[int, int], gestalt: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tokens [B, N, D] and glyph logits [B, 2H, 2W, G]."""
        letters: list[Tensor] = []
        hook = self.stem.patch.register_forward_hook(
            lambda module, args, features: letters.append(self.glyphs(features.movedim(1, -1)))
        )
        tokens = self.stem(pictures, grid, gestalt)
        hook.remove()
        return tokens, letters[0]


class StemPages(Dataset):
    """Batch i of pages of one size, with what their cells hold and where their questions point."""

    def __init__(self, sizes: list[int], cells: int, first: int, last: int, sheets: float) -> None:
        self.sizes, self.cells, self.first, self.last, self.sheets = sizes, cells, first, last, sheets

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> dict[str, Any]:
        step = self.first + index
        rng = random.Random(step)
        sheet = rng.random() < self.sheets
        side = (min(self.sizes) if sheet else rng.choice(self.sizes)) // CELL
        h, w = (max(4, round(side * np.exp(rng.uniform(-0.25, 0.25)))) for _ in range(2))
        pictures, words, glyphs, texts, masks = [], [], [], [], []
        for i in range(max(1, self.cells // (h * w))):
            page = (draw_sheet if sheet else draw_page)(FIRST_PAGE + step * 64 + i, (w * CELL, h * CELL))
            pictures.append(torch.from_numpy(np.array(page.image)).permute(2, 0, 1))
            words.append(torch.from_numpy(cell_targets(page)).flatten(1))
            glyphs.append(torch.from_numpy(glyph_targets(page)[0]))
            questions = [] if sheet else sample_questions(rng, page.questions, QUESTIONS)
            texts.append([q.text for q in questions])
            masks.append(torch.from_numpy(np.array([evidence_mask(q.evidence, h, w) for q in questions])))
        return {
            "pictures": torch.stack(pictures),
            "grid": (h, w),
            "words": torch.cat(words, 1).long(),
            "glyphs": torch.stack(glyphs).long(),
            "texts": texts,
            "evidence": masks,
        }


def role_loss(tokens: Tensor, words: Tensor, roles: RoleSpace) -> tuple[Tensor, dict[str, float]]:
    """Cross-entropy of what cells are found by.

    Args:
        tokens: [N, D] of the stem.
        words: long [R, N], as `cell_targets`.
        roles: the read-out directions.
    """
    scores, keep = roles.scores(tokens), words[0] != IGNORE
    total, accuracy = tokens.new_zeros(()), {}
    for role in QUESTION_ROLES:
        there = words[ROLES.index(role)]
        start, stop = roles.spans[role]
        logits = SHARPNESS * F.pad(scores[:, start:stop], (1, 0), value=0.5)  # nothing = 0.5
        loss = F.cross_entropy(logits, (there + 1).clamp_min(0), reduction="none")
        some = (there >= 0) & keep
        total = total + 2 * (loss * keep).sum() / keep.sum() + (loss * some).sum() / some.sum().clamp_min(1)
        if some.any():
            accuracy[role] = (logits.argmax(-1) - 1 == there)[some].float().mean().item()
    return total, accuracy


def relevance_terms(
    layer: ARRCOCLayer,
    embed: nn.Embedding,
    tokenizer: Any,
    batch: dict[str, Any],
    tokens: Tensor,
    gestalt: Tensor | None,
) -> tuple[list[Tensor], list[float]]:
    """The relevance loss of each page, and per question the recall in a sixteenth of the cells."""
    terms, recalls = [], []
    for i, texts in enumerate(batch["texts"]):
        if not texts:
            continue
        picture, page_tokens, masks = batch["pictures"][i], tokens[i], batch["evidence"][i]
        texture = generate_texture_array(picture[None] / 255, batch["grid"], layer.config.channels)
        ids = [torch.tensor(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
        query = nn.utils.rnn.pad_sequence([embed(row) for row in ids], batch_first=True).detach()
        lengths = torch.tensor([len(row) for row in ids])
        mask = torch.arange(query.shape[1]) < lengths[:, None]
        rows = len(texts)
        mean = None if gestalt is None else gestalt[i].flatten(1).mean(1).expand(rows, -1)
        relevance = layer.relevance(
            texture.expand(rows, -1, -1, -1), query, mask, page_tokens[None].expand(rows, -1, -1), mean
        )
        terms.append(relevance_loss(relevance.logits, masks))
        recalls += recall(relevance.logits, masks, max(1, masks[0].numel() // 16))
    return terms, recalls


def train(
    out: Path,
    sizes: list[int],
    steps: int,
    cells: int,
    lr: float,
    sheets: float,
    threads: int,
    weight: float,
    glyph: float,
    init: Path | None,
    folder: Path | None = None,
) -> None:
    """Train (or go on training) and write `out`; a line of JSON per 50 steps goes to `out`.jsonl."""
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    roles = build_roles(tokenizer, build_embeddings(tokenizer, DIM))
    base, _ = checkpoint.load_base(checkpoint.BUNDLED_NAME)
    layer = checkpoint.load_layer(checkpoint.BUNDLED_ALLOCATOR, base).requires_grad_(False)
    visual: Any = base.model.visual
    embed: Any = base.get_input_embeddings()
    sight = Sight()
    if init is not None and not out.exists():
        load_checkpoint(init, sight.stem)
    optimizer = Optimizers(sight.named_parameters(), lr)
    first = load_checkpoint(out, sight, optimizer)
    loader = DataLoader(
        StemPages(sizes, cells, first, steps, sheets),
        batch_size=None,
        num_workers=1,
        prefetch_factor=4,
    )
    curve = Curve(out)
    for step, batch in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 100) * max(0.02, 1 - step / steps)
        pictures, (h, w) = batch["pictures"] / 255, batch["grid"]
        with torch.autocast("cpu", torch.bfloat16):
            gestalt = coarse_tokens(visual, pictures, (h, w)) if step % 4 == 0 else None
            tokens, letters = (x.float() for x in sight(pictures, (h, w), gestalt))
        loss, figures = role_loss(tokens.flatten(0, 1), batch["words"], roles)
        there = batch["glyphs"] != NONE
        if there.any():
            loss = loss + glyph * F.cross_entropy(letters[there], batch["glyphs"][there])
            right = letters[there].argmax(-1) == batch["glyphs"][there]
            figures |= {"glyph": right.float().mean().item()}
        terms, recalls = relevance_terms(layer, embed, tokenizer, batch, tokens, gestalt)
        if terms:
            relevance = torch.stack(terms).mean()
            loss = loss + weight * relevance
            figures |= {"relevance": float(relevance.detach())}
            name = "recall 1/16" if gestalt is None else "recall 1/16 on a gestalt"
            curve.add(name, *recalls)
        optimizer.step(loss, rate)
        for name, value in {"loss": float(loss.detach()), **figures}.items():
            curve.add(name, value)
        curve.end_step(step + 1)
        if (step + 1) % 100 == 0 or step + 1 == steps:
            save_checkpoint(out, sight, optimizer, step + 1)
    if folder is not None:
        save_stem(sight.stem, folder)


@torch.no_grad()
def coarse_tokens(visual: Any, pictures: Tensor, grid: tuple[int, int]) -> Tensor:
    """The encoded half-size views of some pictures of one size, [B, D, H / 2, W / 2] (rounded)."""
    h, w = (max(1, side // 2) for side in grid)
    small = F.interpolate(pictures, size=(h * CELL, w * CELL), mode="bicubic", antialias=True).clamp(0, 1)
    p, m = CELL // 2, 2
    blocks = (2 * small - 1).reshape(len(small), 3, h, m, p, w, m, p).permute(0, 2, 5, 3, 6, 1, 4, 7)
    patches = blocks.reshape(-1, 3, 1, p, p).expand(-1, -1, 2, -1, -1).reshape(-1, 3 * 2 * p * p)
    grids = torch.tensor([[1, m * h, m * w]] * len(small))
    tokens = visual(patches, grid_thw=grids, return_dict=True).pooler_output
    return tokens.float().view(len(small), h, w, -1).movedim(-1, 1)


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--sizes", type=sides, default="384,512,768,1024", help="typical sides of a page in px"
    )
    parser.add_argument("--cells", type=int, default=1024, help="cells a batch")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--sheets", type=float, default=0.25, help="share of batches: study sheets")
    parser.add_argument("--weight", type=float, default=0.5, help="of the relevance loss")
    parser.add_argument("--glyph", type=float, default=5.0, help="of the characters")
    parser.add_argument("--init", type=Path, help="checkpoint of a stem alone to start from")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="write the finished stem here")
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
