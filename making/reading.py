"""The bundled model's eyes learn to read browser-rendered text, beside drawn pages.

    loss = on windows of rendered pages: CE of the piece at each place of a cell's word, and of its counts,
           + distance to the sum of all that the cell says
         + on drawn pages and sheets: the dense loss of stage 1
         + on both: CE of the character under each half patch and of its place (throw-away heads)

Run as `python -m making.reading OUT --pages FOLDER --init MODEL`; killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from arr_coc_lab.teaching.page import adapted, opened
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.cache import CachedPages
from making.bundled import CELL, DIM, StillPatchEmbed, build_model, image_tensor, patchify
from making.curve import Curve
from making.optimizers import Optimizers, Saver, load_checkpoint
from making.printed import CHARACTERS, END, FIRST_BYTE, ORDERS, PLACES, RANKS, ROUNDS, UNSURE, Labels, labels
from making.sheet import draw_sheet
from making.targets import cell_targets
from making.vision import dense_loss
from making.windows import windows
from making.words import ROLES, RoleSpace, build_embeddings, build_roles, build_tokenizer, turns

SHARPNESS = 20.0
"""Of pieces: more of them than of a drawn page's words have to stay below "nothing"."""
LETTER_LAYER, RANK_LAYER = 3, 4
LETTER_WEIGHT, RANK_WEIGHT = 4.0, 2.0
SHAPES_OF_WINDOWS = ((5, 13), (6, 10), (8, 8), (8, 16), (12, 16), (16, 32))
"""Height and width in cells of windows; the larger ones are rarer, as there are fewer of them in a batch."""
SIDES_OF_PAGES = (256, 384, 512, 768, 1024)
"""Sides in px of drawn pages."""


class Reader(nn.Module):
    """The vision tower and throw-away heads for the character under each half patch and its place."""

    def __init__(self, model: Qwen3VLForConditionalGeneration) -> None:
        super().__init__()
        self.visual = model.model.visual
        width = self.visual.config.hidden_size
        self.letters = nn.Linear(width, 2 * (len(CHARACTERS) + 1))
        self.ranks = nn.Linear(width, 2 * RANKS)

    def forward(self, patches: Tensor, grid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Patches [4N, 1536] -> tokens [N, D], letter logits [4N, 2, C], place logits [4N, 2, RANKS]."""
        out = self.visual(patches, grid_thw=grid, return_dict=True, output_hidden_states=True)
        letters = self.letters(out.hidden_states[LETTER_LAYER]).unflatten(-1, (2, -1))
        ranks = self.ranks(out.hidden_states[RANK_LAYER]).unflatten(-1, (2, -1))
        return out.pooler_output, letters, ranks


class Spelling(NamedTuple):
    """Fixed read-out directions of printed text.

    `places` [PLACES, 257, D] of pieces; `counts`: [ROUNDS, D] and [ORDERS, D] of the two counts of `Labels`.
    """

    places: Tensor
    counts: tuple[Tensor, Tensor]


def build_spelling(tokenizer: PreTrainedTokenizerFast, embeddings: Tensor) -> Spelling:
    """The words' own directions: place k of a printed word is turned as piece k of a drawn value is."""
    start = ROLES.index("value1")
    *own, rounds, orders = turns(DIM, start + PLACES + 2)[start:]
    ends = torch.tensor([*range(FIRST_BYTE, FIRST_BYTE + END), tokenizer.eos_token_id])
    digits = embeddings[tokenizer.convert_tokens_to_ids([str(i + 1) for i in range(max(ROUNDS, ORDERS))])]
    places = torch.stack([embeddings[ends] @ turn.T for turn in own])
    return Spelling(places, (digits[:ROUNDS] @ rounds.T, digits[:ORDERS] @ orders.T))


def build_parts(
    tokenizer: PreTrainedTokenizerFast,
) -> tuple[Qwen3VLForConditionalGeneration, RoleSpace, Spelling]:
    """The untrained model on a tokenizer's words, and the spaces that its dense losses are told in."""
    embeddings = build_embeddings(tokenizer, DIM)
    roles, spelling = build_roles(tokenizer, embeddings), build_spelling(tokenizer, embeddings)
    return build_model(tokenizer, embeddings), roles, spelling


class Texts(Dataset):
    """Batch i: windows of rendered pages, or drawn pages and sheets; as many cells in each batch."""

    def __init__(self, folder: Path, split: str, cells: int, first: int, last: int, drawn: float) -> None:
        self.pages, self.cells = CachedPages(folder, split), cells
        self.first, self.last, self.drawn = first, last, drawn

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        step = self.first + index
        rng = random.Random(1_000_003 * step)
        return self.draw(rng, step) if rng.random() < self.drawn else self.cut(rng)

    def cut(self, rng: random.Random, plain: float = 0.5) -> dict[str, Tensor]:
        """A batch of windows, up to four of a page."""
        h, w = rng.choice(SHAPES_OF_WINDOWS)
        count = max(1, self.cells // (h * w))
        pixels, marks = [], []
        while len(pixels) < count:
            page = opened(self.pages[rng.randrange(len(self.pages))])
            if len(page.words) < 3:
                continue
            for window in windows(page, (h, w), min(4, count - len(pixels)), rng, plain=plain):
                pixels.append(window.pixels)
                marks.append(labels(window.words, h, w))
        batch = _batch(pixels, marks)
        places = [torch.from_numpy(m.places).flatten(1) for m in marks]
        counts = [torch.from_numpy(m.counts).flatten(1) for m in marks]
        return batch | {"places": torch.cat(places, 1).long(), "counts": torch.cat(counts, 1).long()}

    def draw(self, rng: random.Random, step: int) -> dict[str, Tensor]:
        """A batch of drawn pages, half of the time of study sheets."""
        sheet = rng.random() < 0.5
        side = (256 if sheet else rng.choice(SIDES_OF_PAGES)) // CELL
        h, w = (max(3, round(side * np.exp(rng.uniform(-0.25, 0.25)))) for _ in range(2))
        pixels, marks, words = [], [], []
        for i in range(max(1, self.cells // (h * w))):
            page = (draw_sheet if sheet else draw_page)(100_000_000 + step * 64 + i, (w * CELL, h * CELL))
            pixels.append(image_tensor(page.image))
            marks.append(labels(adapted(page).words, h, w))
            words.append(torch.from_numpy(cell_targets(page)).flatten(1))
        return _batch(pixels, marks) | {"words": torch.cat(words, 1).long()}


def _batch(pixels: list[Tensor], marks: list[Labels]) -> dict[str, Tensor]:
    """Pictures of one size as patches, with what is printed under their half patches."""
    _, height, width = pixels[0].shape
    h, w = height // CELL, width // CELL

    def halves(rows: np.ndarray) -> Tensor:
        # In merge-block order, as patches are: 2 x 2 patches of a cell together.
        return torch.from_numpy(rows).reshape(h, 2, w, 2, 2).permute(0, 2, 1, 3, 4).reshape(-1, 2).long()

    return {
        "pixels": torch.cat([patchify(picture) for picture in pixels]),
        "grid": torch.tensor([[1, 2 * h, 2 * w]] * len(pixels)),
        "letters": torch.cat([halves(mark.halves) for mark in marks]),
        "ranks": torch.cat([halves(mark.ranks) for mark in marks]),
    }


def print_loss(
    tokens: Tensor, places: Tensor, counts: Tensor, spelling: Spelling
) -> tuple[Tensor, dict[str, float]]:
    """Read every token at every place.

    Args:
        tokens: [N, D].
        places: long [PLACES, N], pieces, NOTHING or UNSURE.
        counts: long [2, N], the same of the two counts.
        spelling: the read-out directions.

    Returns:
        The loss, and the shares of pieces and of cells with print that are said right.
    """
    keep = places[0] != UNSURE
    scores = torch.einsum("nd,kpd->nkp", tokens, spelling.places)
    logits = SHARPNESS * F.pad(scores, (1, 0), value=0.5)  # nothing = 0.5
    target = (places.T + 1).clamp_min(0)
    loss = F.cross_entropy(logits.transpose(1, 2), target, reduction="none") * keep[:, None]
    there = (places.T >= 0) & keep[:, None]
    total = 4 * (loss * there).sum() / there.sum().clamp_min(1)
    total = total + 4 * (loss * ~there).sum() / keep.sum().clamp_min(1)
    spot, cell = there.nonzero(as_tuple=True)[::-1]
    wanted = torch.zeros_like(tokens)
    wanted.index_add_(0, cell, spelling.places[spot, places[spot, cell]])
    for count, directions in zip(counts, spelling.counts, strict=True):
        counted = count >= 0
        if counted.any():
            near = SHARPNESS * tokens[counted] @ directions.T
            total = total + F.cross_entropy(near, count[counted])
        wanted[counted] += directions[count[counted]]
    sure = keep & (counts != UNSURE).all(0)
    total = total + 2 * ((tokens - wanted).square().sum(-1) * sure).sum() / sure.sum().clamp_min(1)
    right = logits.argmax(-1) == target
    printed = there.any(1)
    return total, {
        "piece": right[there].float().mean().item(),
        "cell": right.all(1)[printed].float().mean().item(),
        "blank": right.all(1)[keep & ~printed].float().mean().item(),
    }


def head_loss(letters: Tensor, ranks: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
    """Cross-entropy of the characters under half patches and of their places; the shares of right ones."""
    printed, placed = batch["letters"] >= 0, batch["ranks"] >= 0
    if not printed.any() or not placed.any():
        return letters.new_zeros(()), {}
    loss = LETTER_WEIGHT * F.cross_entropy(letters[printed], batch["letters"][printed])
    loss = loss + RANK_WEIGHT * F.cross_entropy(ranks[placed], batch["ranks"][placed])
    return loss, {
        "letter": (letters.argmax(-1) == batch["letters"])[printed].float().mean().item(),
        "rank": (ranks.argmax(-1) == batch["ranks"])[placed].float().mean().item(),
    }


@torch.no_grad()
def measure(reader: Reader, data: Texts, spelling: Spelling, batches: int = 12) -> dict[str, float]:
    """Mean figures of `print_loss` and `head_loss` over windows of a data set, none of them changed."""
    rows = []
    for number in range(batches):
        batch = data.cut(random.Random(number), plain=1.0)
        with torch.autocast("cpu", torch.bfloat16):
            tokens, letters, ranks = (x.float() for x in reader(batch["pixels"], batch["grid"]))
        figures = print_loss(tokens, batch["places"], batch["counts"], spelling)[1]
        rows.append(figures | head_loss(letters, ranks, batch)[1])
    return {name: round(float(np.nanmean([row.get(name, np.nan) for row in rows])), 3) for name in rows[0]}


def train(
    out: Path,
    pages: Path,
    held_out: Path | None,
    init: Path,
    steps: int,
    cells: int,
    lr: float,
    drawn: float,
    threads: int,
) -> None:
    """Train (or go on training) and write `out`; a line of JSON per 50 steps goes to `out`.jsonl."""
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    model, roles, spelling = build_parts(tokenizer)
    load_checkpoint(init, model)
    model.model.visual.patch_embed = StillPatchEmbed(model.model.visual.patch_embed)
    reader = Reader(model)
    for name, parameter in reader.named_parameters():
        parameter.requires_grad_("deepstack" not in name)
    optimizer = Optimizers(reader.named_parameters(), lr)
    first = load_checkpoint(out, reader, optimizer)
    data = Texts(pages, "train", cells, first, steps, drawn)
    loader = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=4)
    tests = Texts(held_out, "test", cells, 0, 0, 0.0) if held_out else None
    curve, saver = Curve(out), Saver(out, reader, optimizer)
    for step, batch in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 100) * max(0.02, 1 - step / steps)
        with torch.autocast("cpu", torch.bfloat16):
            tokens, letters, ranks = (x.float() for x in reader(batch["pixels"], batch["grid"]))
        loss, figures = head_loss(letters, ranks, batch)
        if "words" in batch:
            dense, accuracy = dense_loss(tokens, batch["words"], roles)
            loss = 0.3 * loss + dense  # as in stage 1, or what was learned there is drowned
            for name, value in (accuracy | figures).items():
                curve.add(f"drawn.{name}", value)
        else:
            dense, accuracy = print_loss(tokens, batch["places"], batch["counts"], spelling)
            loss = loss * (1 + 2 * max(0.0, 1 - step / 2000))  # characters first
            loss = loss + min(1.0, max(0.1, (step - 300) / 1500)) * dense
            for name, value in ({"loss": loss.item()} | accuracy | figures).items():
                curve.add(name, value)
        optimizer.step(loss, rate)
        curve.end_step(step + 1, step + 1 == steps)
        saver.end_step(step + 1, step + 1 == steps)
        if tests is not None and ((step + 1) % 1000 == 0 or step + 1 == steps):
            curve.write({"step": step + 1, "held out": measure(reader, tests, spelling)})


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pages", type=Path, required=True, help="cache of `arr-coc world`, split train")
    parser.add_argument("--held-out", type=Path, help="another one, split test, measured every 1,000 steps")
    parser.add_argument("--init", type=Path, required=True, help="model.safetensors of an earlier model")
    parser.add_argument("--steps", type=int, default=30000)
    parser.add_argument("--cells", type=int, default=512, help="cells a batch")
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--drawn", type=float, default=0.3, help="share of batches of drawn pages and sheets")
    parser.add_argument("--threads", type=int, default=1)
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
