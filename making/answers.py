"""The bundled model's language model learns to answer about rendered pages, as perfect eyes see them.

    loss = answers + hints, as in `making.language`
         + CE of the cell that holds the next piece, from half-way up (a throw-away head)

No picture is drawn: the words of cached pages and the ends of their characters are enough. On most pages
letters are changed for others, so that an answer can't be remembered. Symbolic drawn pages stay among them.

Run as `python -m making.answers OUT --pages FOLDER --init MODEL`; killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from making.bundled import DIM
from making.curve import Curve
from making.inquiry import AskedWindows
from making.language import SymbolicPages, answer_loss, exact, lesson
from making.optimizers import Optimizers, Saver, load_checkpoint
from making.packing import IGNORED
from making.printed import UNSURE
from making.reading import Spelling, build_parts
from making.words import build_tokenizer, spelling_tokenizer

POINTING_LAYER, POINTING_WIDTH = 3, 64
DRAWN_SCHEDULE = 6000
"""Steps of the schedule of `making.language`, whose last part the drawn pages are from."""


class Mind(nn.Module):
    """The language model, and throw-away heads that point from an answer's token to the cell of the next."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.language = model.model.language_model
        self.ask = nn.Linear(DIM, POINTING_WIDTH, bias=False)
        self.offer = nn.Linear(DIM, POINTING_WIDTH, bias=False)


class Lessons(Dataset[dict[str, Any]]):
    """Batch i: of rendered pages, or of symbolic drawn ones."""

    def __init__(
        self, windows: AskedWindows, drawn: SymbolicPages, first: int, last: int, share: float
    ) -> None:
        self.windows, self.drawn, self.first, self.last, self.share = windows, drawn, first, last, share

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> dict[str, Any]:
        step = self.first + index
        if np.random.default_rng(step).random() < self.share:
            return self.drawn[10**6 + step]
        return self.windows[step]


def sum_of_pieces(places: Tensor, counts: Tensor, spelling: Spelling, noise: float = 0.45) -> Tensor:
    """What eyes would say of cells: pieces [M, PLACES] and counts [M, 2] -> tokens [M, D].

    With uneven strengths and noise; now and then a piece is missing or another one, and what can't be read is
    noise alone.
    """
    places = places.clone()
    cell, spot = (places >= 0).nonzero(as_tuple=True)
    wrong = torch.rand(len(cell)) < 0.03 * torch.rand(())
    places[cell[wrong], spot[wrong]] = torch.randint(0, 256, (int(wrong.sum()),))
    cell, spot = (places >= 0).nonzero(as_tuple=True)
    strength = torch.empty(len(cell), 1).uniform_(0.75, 1.1) * (torch.rand(len(cell), 1) > 0.01)
    tokens = torch.zeros(len(places), DIM)
    tokens.index_add_(0, cell, strength * spelling.places[spot, places[cell, spot]])
    for count, directions in zip(counts.T, spelling.counts, strict=True):
        tokens[count >= 0] += directions[count[count >= 0]]
    level = torch.rand(len(places), 1) * noise
    level[places[:, 0] == UNSURE] = 1.5
    return tokens + level * F.normalize(torch.randn_like(tokens), dim=-1)


def pointing_loss(mind: Mind, states: Tensor, batch: dict[str, Any]) -> tuple[Tensor, list[float]]:
    """How well the cell of each answer's next piece is found, from states [B, S, D]; and the hits of each."""
    losses, hits = [], []
    for row, questions in enumerate(batch["pointers"]):
        offered = mind.offer(states[row][batch["visual"][row]])
        asking = batch["labels"][row] != IGNORED
        scores = mind.ask(states[row][asking]) @ offered.T / POINTING_WIDTH**0.5
        target = torch.tensor([cell for question in questions for cell in question])
        losses.append(F.cross_entropy(scores, target, reduction="sum"))
        hits.extend((scores.argmax(-1) == target).float().tolist())
    return torch.stack(losses).sum() / len(hits), hits


def spelled_lesson(
    model: Any, mind: Mind, batch: dict[str, Any], spelling: Spelling
) -> tuple[Tensor, dict[str, list[float]]]:
    """The loss of a batch about rendered pages, and its figures."""
    embeds = mind.language.embed_tokens(batch["ids"])
    embeds[batch["visual"]] = sum_of_pieces(batch["places"], batch["counts"], spelling)
    with torch.autocast("cpu", torch.bfloat16):
        out = mind.language(
            inputs_embeds=embeds,
            position_ids=batch["positions"],
            attention_mask=batch["mask"],
            use_cache=False,
            output_hidden_states=True,
        )
    wanted = (batch["labels"] != IGNORED) | (batch["hints"] != IGNORED)
    logits = torch.zeros(*wanted.shape, len(mind.language.embed_tokens.weight))
    logits[wanted] = model.lm_head(out.last_hidden_state.float()[wanted])
    pointing, hits = pointing_loss(mind, out.hidden_states[POINTING_LAYER].float(), batch)
    loss = answer_loss(logits, batch, hint_weight=0.3) + pointing
    answered = batch["labels"] != IGNORED
    figures = {"loss": [loss.item()], "pointing": hits}
    figures["piece"] = (logits.argmax(-1) == batch["labels"])[answered].float().tolist()
    figures["first"] = _firsts(logits, batch)
    return loss, figures | exact(logits, batch, batch["families"])


def _firsts(logits: Tensor, batch: dict[str, Any]) -> list[float]:
    """For every question, whether its answer's first token is right."""
    begins = batch["labels"] != IGNORED
    begins[:, 1:] &= ~(begins[:, :-1] & (batch["block"][:, 1:] == batch["block"][:, :-1]))
    return (logits.argmax(-1) == batch["labels"])[begins].float().tolist()


def train(
    out: Path, pages: Path, init: Path, steps: int, batch: int, lr: float, drawn: float, threads: int
) -> None:
    """Train (or go on training) and write `out`; a line of JSON per 50 steps goes to `out`.jsonl."""
    torch.set_num_threads(threads)
    tokenizer = spelling_tokenizer(build_tokenizer())
    model, roles, spelling = build_parts(tokenizer)
    load_checkpoint(init, model)
    mind = Mind(model)
    mind.language.embed_tokens.weight.requires_grad_(False)
    optimizer = Optimizers(mind.named_parameters(), lr)
    first = load_checkpoint(out, mind, optimizer)
    windows = AskedWindows(tokenizer, pages, "train", 0, steps, batch)
    symbols = SymbolicPages(tokenizer, 0, 10**9, batch, DRAWN_SCHEDULE)
    loader = DataLoader(
        Lessons(windows, symbols, first, steps, drawn), batch_size=None, num_workers=1, prefetch_factor=4
    )
    curve, saver = Curve(out), Saver(out, mind, optimizer)
    for step, packed in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 100) * max(0.02, 1 - step / steps)
        torch.manual_seed(step)
        if "words" in packed:
            loss, figures = lesson(model, packed, roles)
            figures = {f"drawn.{name}": values for name, values in figures.items()}
        else:
            loss, figures = spelled_lesson(model, mind, packed, spelling)
        optimizer.step(loss, rate)
        for name, values in figures.items():
            curve.add(name, *values)
        curve.end_step(step + 1, step + 1 == steps)
        saver.end_step(step + 1, step + 1 == steps)


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pages", type=Path, required=True, help="cache of `arr-coc world`, split train")
    parser.add_argument("--init", type=Path, required=True, help="model.safetensors of an earlier model")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--batch", type=int, default=8, help="windows a batch")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--drawn", type=float, default=0.25, help="share of batches of drawn pages")
    parser.add_argument("--threads", type=int, default=1)
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
