"""Stage 1 of the bundled model: its vision tower, on dense labels of what each cell holds.

    loss = CE over (words of the role, "nothing") for each role and cell
         + distance to the sum of the cell's words
         + CE of the character under each 16-px patch and of its place in its value (throw-away heads)

Run as `python -m making.vision OUT --sizes 256,384 --steps 8000`; killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import Qwen3VLForConditionalGeneration

from arr_coc_lab.world import draw_page
from making.bundled import CELL, DIM, StillPatchEmbed, build_model, image_tensor, patchify, sides
from making.curve import Curve
from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from making.sheet import draw_sheet
from making.targets import GLYPHS, IGNORE, NONE, cell_targets, glyph_targets
from making.words import (
    ROLES,
    VALUE_LENGTH,
    RoleSpace,
    build_embeddings,
    build_roles,
    build_tokenizer,
)

SHARPNESS = 12.0
GLYPH_WEIGHT = 10.0
ROLE_WEIGHT = {"shape": 3.0, "size": 2.0, "column": 2.0, "label": 2.0}  # 1 for the others
GLYPH_LAYER = 3  # characters are read half-way up; the layers above put words and fields together
PLACE_WEIGHT, PLACE_LAYER = 6.0, 4  # which character of its value: counted in the next layer


class Eyes(nn.Module):
    """The vision tower and throw-away heads that name the character under each patch and its place."""

    def __init__(self, model: Qwen3VLForConditionalGeneration) -> None:
        super().__init__()
        self.visual = model.model.visual
        self.glyphs = nn.Linear(self.visual.config.hidden_size, len(GLYPHS))
        self.places = nn.Linear(self.visual.config.hidden_size, VALUE_LENGTH + 1)

    def forward(self, patches: Tensor, grid_thw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Patches [4N, 1536] -> tokens [N, D], glyph logits [4N, G], place logits [4N, 6]."""
        out = self.visual(patches, grid_thw=grid_thw, return_dict=True, output_hidden_states=True)
        letters = self.glyphs(out.hidden_states[GLYPH_LAYER])
        return out.pooler_output, letters, self.places(out.hidden_states[PLACE_LAYER])


class Pages(Dataset):
    """Batch i of pages: sides vary round one of `sizes` (px), at a constant number of cells a batch.

    A share `sheets` of the batches shows study sheets of the least size instead.
    """

    def __init__(self, sizes: list[int], cells: int, first: int, last: int, sheets: float = 0.0) -> None:
        self.sizes, self.cells, self.first, self.last, self.sheets = sizes, cells, first, last, sheets

    def __len__(self) -> int:
        return max(0, self.last - self.first)  # a resumed run may be past `until` already

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        step = self.first + index
        rng = np.random.default_rng(step)
        sheet = rng.random() < self.sheets
        side = (min(self.sizes) if sheet else int(rng.choice(self.sizes))) // CELL
        h, w = (max(3, round(side * np.exp(rng.uniform(-0.25, 0.25)))) for _ in range(2))
        count = max(1, self.cells // (h * w))
        pixels, words, glyphs, places = [], [], [], []
        for i in range(count):
            page = (draw_sheet if sheet else draw_page)(step * 64 + i, (w * CELL, h * CELL))
            pixels.append(patchify(image_tensor(page.image)))
            words.append(torch.from_numpy(cell_targets(page)).flatten(1))
            # Patches come in merge-block order: 2 x 2 patches of a cell together.
            for rows, labels in zip((glyphs, places), glyph_targets(page), strict=True):
                rows.append(torch.from_numpy(labels).reshape(h, 2, w, 2).permute(0, 2, 1, 3).flatten())
        grid = torch.tensor([[1, 2 * h, 2 * w]] * count)
        return (
            torch.cat(pixels),
            grid,
            torch.cat(words, 1).long(),
            torch.cat(glyphs).long(),
            torch.cat(places).long(),
        )


def dense_loss(
    tokens: Tensor, words: Tensor, roles: RoleSpace, text: float = 1.0
) -> tuple[Tensor, dict[str, float]]:
    """Read every token in every role.

    Args:
        tokens: [N, D].
        words: long [R, N], word index, NONE or IGNORE.
        roles: the read-out directions.
        text: weight of the values of texts; low until characters are read, as no value can be learned before.

    Returns:
        The loss, and per role the accuracy over cells where the role holds.
    """
    scores = roles.scores(tokens)  # (N, M)
    keep = words[0] != IGNORE
    target = torch.zeros_like(tokens)
    total, accuracy = tokens.new_zeros(()), {}
    for r, role in enumerate(ROLES):
        start, stop = roles.spans[role]
        there = words[r] >= 0
        target[there] += roles.directions[start + words[r][there]]
        logits = SHARPNESS * F.pad(scores[:, start:stop], (1, 0), value=0.5)  # nothing = 0.5
        loss = F.cross_entropy(logits, (words[r] + 1).clamp_min(0), reduction="none")
        weight = torch.where(there, 1.0, 0.25) * keep
        share = text if role.startswith("value") else ROLE_WEIGHT.get(role, 1.0)
        total = total + share * (loss * weight).sum() / weight.sum().clamp_min(1) * 3
        total = total + share * (loss * (there & keep)).sum() / (there & keep).sum().clamp_min(1)
        if (there & keep).any():
            accuracy[role] = (logits.argmax(-1) - 1 == words[r])[there & keep].float().mean().item()
    distance = (tokens - target).square().sum(-1)
    total = total + 2.0 * (distance * keep).sum() / keep.sum()
    return total, accuracy


def train(
    out: Path,
    sizes: list[int],
    steps: int,
    cells: int,
    lr: float,
    threads: int,
    init: Path | None = None,
    start: int = 0,
    sheets: float = 0.0,
    until: int | None = None,
) -> None:
    """Train (or go on training) and write `out`; a line of JSON per 50 steps goes to `out`.jsonl.

    Stops at step `until`, where another call may go on in other sizes, on the same schedule of `steps`.
    """
    last = min(steps, until or steps)
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    embeddings = build_embeddings(tokenizer, DIM)
    roles = build_roles(tokenizer, embeddings)
    model = build_model(tokenizer, embeddings)
    if init is not None:
        load_checkpoint(init, model)
    model.model.visual.patch_embed = StillPatchEmbed(model.model.visual.patch_embed)
    eyes = Eyes(model)
    for name, parameter in eyes.named_parameters():
        parameter.requires_grad_("deepstack" not in name)
    optimizer = Optimizers(eyes.named_parameters(), lr)
    first = load_checkpoint(out, eyes, optimizer) or start
    loader = DataLoader(
        Pages(sizes, cells, first, last, sheets), batch_size=None, num_workers=1, prefetch_factor=4
    )
    curve = Curve(out)
    for step, (patches, grid, words, glyphs, places) in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 100) * max(0.02, 1 - step / steps)
        with torch.autocast("cpu", torch.bfloat16):
            tokens, letters, spots = (x.float() for x in eyes(patches, grid))
        loss, accuracy = dense_loss(tokens, words, roles, text=min(1.0, max(0.05, (step - 500) / 1500)))
        printed = glyphs != NONE
        if printed.any():
            emphasis = GLYPH_WEIGHT * (1 + 2 * max(0.0, 1 - step / 2000))  # characters first
            loss = loss + emphasis * F.cross_entropy(letters[printed], glyphs[printed])
            loss = loss + PLACE_WEIGHT * F.cross_entropy(spots[printed], places[printed])
            accuracy["place"] = (spots.argmax(-1) == places)[printed].float().mean().item()
            accuracy["glyph"] = (letters.argmax(-1) == glyphs)[printed].float().mean().item()
        optimizer.step(loss, rate)
        for name, value in {"loss": loss.item(), "pages a batch": len(grid), **accuracy}.items():
            curve.add(name, value)
        curve.end_step(step + 1)
        if (step + 1) % 200 == 0 or step + 1 == last:
            save_checkpoint(out, eyes, optimizer, step + 1)


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--init", type=Path, help="model.safetensors of an earlier model to start from")
    parser.add_argument("--start", type=int, default=0, help="step of the schedule at which --init goes on")
    parser.add_argument(
        "--sizes", type=sides, default="256", help="typical sides of a page in px, one a batch"
    )
    parser.add_argument("--sheets", type=float, default=0.0, help="share of batches that show study sheets")
    parser.add_argument("--cells", type=int, default=1024, help="cells a batch")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--until", type=int, help="stop here, part of the way")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
