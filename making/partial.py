"""Training of the LoRAs of modes `sparse` and `saccade`: the bundled model reads a page encoded in part.

A tower that encodes some cells alone has lost their surroundings, and a language model that was shown one
view knows nothing of a coarse one before it. Some steps show parts of a page (64 to 273 cells, a kept
set for each few questions), some the gestalt and 273 saccades of a page of up to 2048 px. A kept set holds
the evidence of its questions, some of its surroundings, and cells that have nothing to do with it, as those
of an allocator do. Each step has the adapters at work that its mode will have, and no others.

Beside the answers, the whole tower teaches: what it makes of a cell among all others of the page is what the
tower with the adapter is to make of it among the kept ones (`echo_loss`, self-distillation; Hinton et al.
2015 on features). The base model is frozen: `full` and `prune` don't know of the adapters.

Run as `python -m making.partial OUT --folder DIR`; killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from arr_coc.modes import MODES
from arr_coc.seam.gestalt import middles
from arr_coc.seam.lora import COARSE, PARTIAL, LoRAs
from arr_coc.seam.partial import patch_rows
from arr_coc.seam.patching import coarse_grid, shrink
from arr_coc.store import checkpoint
from arr_coc.training.drawn import sample_questions
from arr_coc.world import draw_page
from making.bundled import CELL, DIM, MERGE, PATCH, StillPatchEmbed, image_tensor
from making.curve import Curve
from making.language import answer_loss, collate, exact, read_pages
from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from making.packing import IGNORED, pack
from making.targets import cell_targets, clues, evidence_mask
from making.vision import dense_loss
from making.words import build_embeddings, build_roles, build_tokenizer

FIRST_PAGE = 70_000_000
GESTALT = 256
SACCADES = 273
PACKS = ((64, 4), (96, 5), (160, 8), (273, 14))
"""Kept cells and questions of a row, in sparse steps."""
ROW_CELLS = 420
"""Cells of a sparse step in all."""
SIDES, LARGE = (512, 768, 1024, 1024), (1024, 1536, 2048, 2048)
"""Sides of pages in px, in sparse and in saccade steps."""
HARD = {"count": 4, "gray": 3, "small": 3, "value": 2, "table": 2}
"""Families that lose most when their surroundings are gone are asked more."""


def kept_cells(rng: random.Random, evidence: np.ndarray, others: np.ndarray, count: int) -> np.ndarray:
    """A kept set of at most `count` cells: the evidence, what lies round it, what is like it, the rest.

    Args:
        rng: draws the shares.
        evidence: bool [H, W], what the questions of the row need.
        others: bool [H, W], what other questions of the page need.
        count: cells to keep, fewer only where the grid has fewer.

    Returns:
        Long [K], rising.
    """
    noise = np.random.default_rng(rng.randrange(2**31)).random(evidence.shape)
    reach = 2 * rng.choice((1, 1, 2, 3)) + 1
    near = F.max_pool2d(torch.from_numpy(evidence)[None].float(), reach, 1, reach // 2)[0].numpy()
    weights = [rng.random() for _ in range(3)]
    score = 10 * evidence + weights[0] * near + weights[1] * others + weights[2] * noise + 1e-3 * noise
    best = score.ravel().argsort()[::-1][: min(count, score.size)]
    return np.sort(best)


def cell_patches(image: Tensor, cells: np.ndarray) -> Tensor:
    """The rows of some cells in a processor's pixel_values: [3, H, W] normalised, K cells -> [4 K, 1536]."""
    h, w = image.shape[1] // CELL, image.shape[2] // CELL
    blocks = image.view(3, h, MERGE, PATCH, w, MERGE, PATCH).permute(1, 4, 2, 5, 0, 3, 6)
    some = blocks[torch.from_numpy(cells // w), torch.from_numpy(cells % w)]  # (K, m, m, 3, P, P)
    return some[:, :, :, :, None].expand(-1, -1, -1, -1, 2, -1, -1).reshape(-1, 3 * 2 * PATCH * PATCH)


class Parts(Dataset):
    """Batch i: rows of one page, each with a kept set and the questions that it answers."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        first: int,
        last: int,
        saccades: float,
        split: str = "train",
        page: int = FIRST_PAGE,
    ) -> None:
        self.tokenizer, self.first, self.last = tokenizer, first, last
        self.saccades, self.split, self.page = saccades, split, page

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> dict[str, Any]:
        step = self.first + index
        rng = random.Random(step)
        saccade = rng.random() < self.saccades
        side = rng.choice(LARGE if saccade else SIDES) // CELL
        stretch = rng.choice((0.0, rng.uniform(-0.25, 0.25)))
        h, w = round(side * np.exp(stretch)), round(side * np.exp(-stretch))
        page = draw_page(self.page + step, (w * CELL, h * CELL), self.split, void=False)
        image = 2 * image_tensor(page.image) - 1
        questions = sample_questions(rng, page.questions, 14 if saccade else 20, HARD)
        rng.shuffle(questions)
        masks = [evidence_mask(q.evidence, h, w) for q in questions]
        every = np.any(masks, axis=0) if masks else np.zeros((h, w), bool)
        targets = torch.from_numpy(cell_targets(page)).flatten(1).long()
        grid = torch.tensor([[1, MERGE * h, MERGE * w]])
        taps, weights = get_vision_interpolation_indices_and_weights(
            grid, 32, align_corners=True, spatial_merge_size=MERGE
        )
        places = get_vision_position_ids(grid, MERGE)
        out: dict[str, list[Any]] = {
            k: []
            for k in ("pixels", "taps", "weights", "places", "lengths", "words", "packs", "families", "cells")
        }

        def encode(pixels: Tensor, a: Tensor, b: Tensor, c: Tensor, words: Tensor) -> None:
            parts = (("pixels", pixels), ("taps", a), ("weights", b), ("places", c), ("words", words))
            for name, value in parts:
                out[name].append(value)
            out["lengths"].append(len(pixels))

        def show(cells: np.ndarray, questions: list[Any], coarse: tuple[int, int] | None) -> None:
            at = torch.from_numpy(np.stack(np.divmod(cells, w), 1)).float()
            if coarse is not None:
                at = torch.cat([middles((1, h, w), (1, *coarse)), at])
            looked_up = [clues(q, page.things, w * CELL) for q in questions]
            out["packs"].append(pack(self.tokenizer, at, (h, w), questions, looked_up))
            out["families"].append([q.family for q in questions])
            rows = patch_rows(torch.from_numpy(cells), MERGE**2)
            encode(cell_patches(image, cells), taps[rows], weights[rows], places[rows], targets[:, cells])
            out["cells"].append(torch.from_numpy(cells))

        if saccade:
            coarse = coarse_grid(h, w, GESTALT)
            small = shrink(image, (coarse[0] * CELL, coarse[1] * CELL))
            small_grid = torch.tensor([[1, MERGE * coarse[0], MERGE * coarse[1]]])
            a, b = get_vision_interpolation_indices_and_weights(
                small_grid, 32, align_corners=True, spatial_merge_size=MERGE
            )
            whole = np.arange(coarse[0] * coarse[1])
            nothing = torch.full((len(targets), len(whole)), -2)
            encode(cell_patches(small, whole), a, b, get_vision_position_ids(small_grid, MERGE), nothing)
            show(kept_cells(rng, every, every, GESTALT + SACCADES - len(whole)), questions, coarse)
        else:
            count, row_questions = rng.choice(PACKS)
            for start in range(0, len(questions), row_questions):
                if start and (start // row_questions + 1) * count > ROW_CELLS:
                    break
                mine = np.any(masks[start : start + row_questions], axis=0)
                show(kept_cells(rng, mine, every, count), questions[start : start + row_questions], None)
        packs: dict[str, Any] = {**collate(out.pop("packs"), self.tokenizer.pad_token_id)}
        if not saccade:
            whole = np.arange(h * w)
            packs["page"] = {
                "pixels": cell_patches(image, whole),
                "taps": taps,
                "weights": weights,
                "places": places,
                "segments": torch.tensor([0, MERGE**2 * h * w]).int(),
                "grid": grid,
            }
            packs["cells"] = torch.cat(out["cells"])
        return packs | {
            "pixels": torch.cat(out["pixels"]),
            "taps": torch.cat(out["taps"]),
            "weights": torch.cat(out["weights"]),
            "places": torch.cat(out["places"]),
            "segments": F.pad(torch.tensor(out["lengths"]).cumsum(0), (1, 0)).int(),
            "grid": grid,
            "words": torch.cat(out["words"], 1),
            "families": out["families"],
            "kind": "saccade" if saccade else "sparse",
        }


def look(model: Any, batch: dict[str, Any]) -> list[Tensor]:
    """The vision tower's output for some patches: tokens [N, D], then each deepstack level [N, D]."""
    vision = model.model.visual(
        batch["pixels"],
        grid_thw=batch["grid"],
        interp_indices=batch["taps"],
        interp_weights=batch["weights"],
        position_ids=batch["places"],
        cu_seqlens=batch["segments"],
        return_dict=True,
    )
    return [vision.pooler_output, *vision.deepstack_features]


def echo_loss(levels: Sequence[Tensor], whole: Sequence[Tensor]) -> Tensor:
    """How far tokens are from those of the whole page: the share of their variance that is missed.

    Args:
        levels: per level [N, D], of the kept cells encoded alone.
        whole: per level [N, D], of the same cells encoded with all others.

    Returns:
        The mean over levels; 0 where nothing differs, about 1 where nothing is known.
    """
    missed = [
        (ours.float() - theirs.float()).square().mean() / theirs.float().var(0).mean().clamp_min(1e-6)
        for ours, theirs in zip(levels, whole, strict=True)
    ]
    return torch.stack(missed).mean()


def train(
    out: Path,
    steps: int,
    lr: float,
    rank: int,
    hint: float,
    dense: float,
    echo: float,
    saccades: float,
    threads: int,
    folder: Path | None,
    init: Path | None = None,
    page: int = FIRST_PAGE,
    until: int | None = None,
) -> None:
    """Train (or go on training), write `out` and the adapters; `until`: stop there, before the last step."""
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    roles = build_roles(tokenizer, build_embeddings(tokenizer, DIM))
    base, _ = checkpoint.load_base(checkpoint.BUNDLED)
    model: Any = base.requires_grad_(False)
    model.model.visual.patch_embed = StillPatchEmbed(model.model.visual.patch_embed)
    torch.manual_seed(0)
    loras = LoRAs(model)
    if init is not None:
        loras.load(init)
    else:
        loras.add(PARTIAL, rank)
        loras.add(COARSE, rank)
    loras.float().requires_grad_(True)
    # By AdamW, all of them: Muon's equal singular values make little sense for factors of a product.
    optimizer = Optimizers([(f"lora {i}", p) for i, p in enumerate(loras.parameters())], lr)
    first = load_checkpoint(out, loras, optimizer)
    loader = DataLoader(
        Parts(tokenizer, first, until or steps, saccades, page=page),
        batch_size=None,
        num_workers=1,
        prefetch_factor=4,
    )
    curve = Curve(out)
    for step, batch in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 50) * max(0.03, 1 - step / steps)
        wanted = (batch["labels"] != IGNORED) | (batch["hints"] != IGNORED)
        kind = batch["kind"]
        with torch.autocast("cpu", torch.bfloat16):
            adapted = loras.model_for(MODES[kind].kinds(loras.kinds))
            levels = look(adapted, batch)
            logits = read_pages(adapted, batch, levels[0], levels[1:], wanted)
            if "page" in batch and echo:
                with torch.no_grad():
                    whole = [level[batch["cells"]] for level in look(model, batch["page"])]
        answers = answer_loss(logits, batch, hint)
        cell_loss, _ = dense_loss(levels[0].float(), batch["words"], roles)
        loss = answers + dense * cell_loss
        if "page" in batch and echo:
            missed = echo_loss(levels, whole)
            loss = loss + echo * missed
            curve.add(f"{kind} missed", missed.item())
        optimizer.step(loss, rate)
        curve.add(f"{kind} loss", answers.item())
        curve.add(f"{kind} seen", cell_loss.item())
        for family, hits in exact(logits, batch, batch["families"]).items():
            curve.add(f"{kind} {family}", *hits)
            curve.add(f"{kind} all", *hits)
        curve.end_step(step + 1)
        if (step + 1) % 100 == 0 or step + 1 == (until or steps):
            save_checkpoint(out, loras, optimizer, step + 1)
            if folder is not None:
                loras.save(folder)


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--lr", type=float, default=1.2e-3)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--hint", type=float, default=0.2, help="weight of the early hints")
    parser.add_argument("--dense", type=float, default=0.02, help="weight of the dense loss of stage 1")
    parser.add_argument("--echo", type=float, default=1.0, help="weight of the whole tower's lesson")
    parser.add_argument("--saccades", type=float, default=0.3, help="share of saccade steps")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="write the adapters here")
    parser.add_argument("--init", type=Path, help="a folder with adapters to begin with")
    parser.add_argument(
        "--page", type=int, default=FIRST_PAGE, help="the first page; another one for more pages"
    )
    parser.add_argument("--until", type=int, help="stop there; the same line without it goes on")
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
