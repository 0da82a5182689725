"""Eyes and language model together, on questions about rendered pages and about drawn ones.

    loss = answers + hints + a little of the dense loss, as in `making.together`

Run as `python -m making.rendered OUT --eyes FILE --mind FILE --pages FOLDER --folder MODEL`; killed, it goes
on where it was. With `--steps 0` it only puts eyes and mind together in MODEL.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import Qwen3VLForConditionalGeneration

from making.answers import Mind
from making.bundled import StillPatchEmbed, build_processor, save
from making.curve import Curve
from making.inquiry import AskedWindows
from making.language import answer_loss, exact
from making.optimizers import Optimizers, Saver, load_checkpoint
from making.packing import IGNORED
from making.reading import Reader, build_parts, print_loss
from making.together import AskedPages, answer_logits
from making.vision import dense_loss
from making.words import build_tokenizer, spelling_tokenizer

SIDES = [256, 512, 768, 1024]
"""Typical sides in px of drawn pages."""


class Questions(Dataset[dict[str, Any]]):
    """Batch i: windows of rendered pages, or drawn pages."""

    def __init__(self, windows: AskedWindows, drawn: AskedPages, first: int, last: int, share: float) -> None:
        self.windows, self.drawn, self.first, self.last, self.share = windows, drawn, first, last, share

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> dict[str, Any]:
        step = self.first + index
        drawn = torch.rand((), generator=torch.Generator().manual_seed(step)) < self.share
        return self.drawn[step] if drawn else self.windows[step]


def put_together(
    model: Qwen3VLForConditionalGeneration, base: Path, eyes: Path | None, mind: Path | None
) -> None:
    """Load an earlier model, and over it what its eyes and its language model have learned since.

    Raises:
        FileNotFoundError: a checkpoint is missing.
    """
    for path, module in ((base, model), (eyes, Reader(model)), (mind, Mind(model))):
        if path is not None:
            if not path.is_file():
                raise FileNotFoundError(f"checkpoint {path} is missing")
            load_checkpoint(path, module)


def train(
    out: Path,
    base: Path,
    eyes: Path | None,
    mind: Path | None,
    pages: Path,
    folder: Path,
    steps: int,
    lr: float,
    drawn: float,
    dense: float,
    threads: int,
) -> None:
    """Train (or go on training), write `out` and, at the end, the folder of the finished model."""
    torch.set_num_threads(threads)
    tokenizer = spelling_tokenizer(build_tokenizer())
    model, roles, spelling = build_parts(tokenizer)
    put_together(model, base, eyes, mind)
    model.get_input_embeddings().weight.requires_grad_(False)
    embed = model.model.visual.patch_embed
    model.model.visual.patch_embed = StillPatchEmbed(embed)
    optimizer = Optimizers(model.named_parameters(), lr)
    first = load_checkpoint(out, model, optimizer)
    windows = AskedWindows(tokenizer, pages, "train", 0, steps, pixels=True)
    data = Questions(windows, AskedPages(tokenizer, SIDES, 512, 0, steps), first, steps, drawn)
    loader = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=4)
    curve, saver = Curve(out, every=25), Saver(out, model, optimizer)
    for step, batch in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 50) * max(0.03, 1 - step / steps)
        with torch.autocast("cpu", torch.bfloat16):
            wanted = (batch["labels"] != IGNORED) | (batch["hints"] != IGNORED)
            logits, tokens = answer_logits(model, batch, wanted)
        answers = answer_loss(logits, batch, 0.2)
        if "words" in batch:
            reading, prefix = dense_loss(tokens, batch["words"], roles)[0], "drawn."
        else:
            reading, figures = print_loss(tokens, batch["places"].T, batch["counts"].T, spelling)
            prefix = ""
            for name, value in figures.items():
                curve.add(f"eyes.{name}", value)
        optimizer.step(answers + dense * reading, rate)
        curve.add(f"{prefix}loss", answers.item())
        for family, hits in exact(logits, batch, batch["families"]).items():
            curve.add(prefix + family, *hits)
        curve.end_step(step + 1, step + 1 == steps)
        saver.end_step(step + 1, step + 1 == steps)
    model.model.visual.patch_embed = embed
    save(model, build_processor(tokenizer), folder)


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="model.safetensors that both began with")
    parser.add_argument("--eyes", type=Path, help="checkpoint of making.reading")
    parser.add_argument("--mind", type=Path, help="checkpoint of making.answers")
    parser.add_argument("--pages", type=Path, required=True, help="cache of `arr-coc world`, split train")
    parser.add_argument("--folder", type=Path, required=True, help="write the finished model folder here")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--drawn", type=float, default=0.4, help="share of batches of drawn pages")
    parser.add_argument("--dense", type=float, default=0.1, help="weight of the dense loss")
    parser.add_argument("--threads", type=int, default=1)
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
