"""Stage 2 of the bundled model: its language model, on symbolic pages. No picture is drawn.

A symbolic page is what perfect eyes would say of a page (`words.py`), plus noise: cheap enough to ask
hundreds of questions a second. Embeddings stay fixed, so what is learned here fits what the eyes learn in
stage 1.

Run as `python -m making.language OUT --steps 12000`; killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from arr_coc_lab.world import Fact, Thing
from arr_coc_lab.world.blocks import code
from arr_coc_lab.world.page import wanted_things
from arr_coc_lab.world.questions import ask_all
from arr_coc_lab.world.training_pages import sample_questions
from arr_coc_lab.world.vocabulary import LABELS, TITLE_FIRST, TITLE_SECOND
from making.bundled import CELL, DIM, build_model
from making.curve import Curve
from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from making.packing import IGNORED, Packed, attention, pack
from making.targets import clues, fact_words, thing_words
from making.words import (
    ROLE_WORDS,
    ROLES,
    RoleSpace,
    build_embeddings,
    build_roles,
    build_tokenizer,
)


def symbolic_page(
    rng: random.Random, most_facts: int, most_things: int
) -> tuple[list[Fact], list[Thing], tuple[int, int]]:
    """Facts and things without a picture, and the (H, W) of the page they could be on."""
    side = rng.randint(6, 40)
    grid = (side, max(4, min(48, round(side * rng.uniform(0.6, 1.6)))))
    facts = []
    for label in rng.sample(LABELS, rng.randint(max(1, most_facts // 2), most_facts)):
        facts.append(Fact("value", label, tuple(code(rng)), ()))
    for label, likely in (("title", 0.6), ("note", 0.5), ("gray", 0.6), ("small", 0.6)):
        if rng.random() < likely * min(1, most_facts / 4):
            if label in ("title", "note"):
                value = (rng.choice(TITLE_FIRST), " " + rng.choice(TITLE_SECOND))
            else:
                value = tuple(code(rng))
            facts.append(Fact(label, label, value, ()))
    width = grid[1] * CELL
    things = [
        Thing(c, s, rng.randrange(width), 0, int(42 * 2 ** rng.uniform(0, 1.35)))
        for c, s in wanted_things(rng, rng.randint(2, most_things))
    ]
    return facts, things, grid


def spread(rng: random.Random, fact: Fact) -> list[dict[str, int]]:
    """The cells of a text: some with its label alone, each piece of the value in one or two of the others."""
    cells = [fact_words(fact)] * rng.choice((0, 1, 1, 2))
    pieces = list(range(len(fact.value)))
    while pieces:
        count = rng.choice((1, 1, 2, 2, 3)) if len(fact.value[0]) == 1 else 1
        cells += [fact_words(fact, pieces[:count])] * rng.choice((1, 1, 1, 2))
        # A piece may lie on the border and be seen in the next cell too.
        pieces = pieces[count - (count > 1 and rng.random() < 0.3) :]
    return cells


class SymbolicPages(Dataset):
    """Batch i of packed symbolic pages: what `collate` gives, and the words of the visual tokens."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, first: int, last: int, batch: int, total: int
    ) -> None:
        self.tokenizer, self.first, self.last, self.batch, self.total = tokenizer, first, last, batch, total

    def __len__(self) -> int:
        return self.last - self.first

    def _label(self, row: dict[str, int]) -> int:
        """The id of a cell's label, or IGNORED."""
        if "label" not in row:
            return IGNORED
        return self.tokenizer.encode(ROLE_WORDS["label"][row["label"]])[0]

    def _own_word(self, row: dict[str, int]) -> int:
        """The id of the first piece of a value in a cell, or IGNORED."""
        for role in ROLES:
            if role.startswith("value") and role in row:
                return self.tokenizer.encode(ROLE_WORDS[role][row[role]])[0]
        return IGNORED

    def __getitem__(self, index: int) -> dict[str, Tensor | list[list[str]]]:
        step = self.first + index
        # Nearly empty pages come first and stay in the mix: from them characters are learned. (With full
        # pages from the start titles were read after a while, but no character ever: none stood out.)
        grown = min(1.0, step / (0.5 * self.total))
        simple = max(0.35, 1 - step / (0.4 * self.total))
        often = {"value": round(5 - 3 * grown), "larger": 3, "left": 2, "count": 2}
        pages, words, names, weights, families = [], [], [], [], []
        for i in range(self.batch):
            rng = random.Random(step * 1000 + i)
            easy = rng.random() < simple
            most = (rng.randint(1, 3), 3) if easy else (round(22 ** rng.random()), 6 + round(grown * 20))
            facts, things, grid = symbolic_page(rng, *most)
            if rng.random() < 0.5 - 0.3 * grown:
                things = []  # texts take longest: at first half of the pages hold nothing else
            rows, cells = [], []
            used = rng.sample(
                range(grid[0] * grid[1]), min(grid[0] * grid[1], 7 * len(facts) + 3 * len(things) + 40)
            )
            for fact in facts:
                rows += spread(rng, fact)
            for thing in things:
                cell = thing_words(thing, grid[1] * CELL)
                rows += [cell | {"centre": 0}] + [cell] * rng.choice((0, 1, 1, 2))
            empty = rng.randint(1, 6) if easy else rng.randint(6, 16)
            rows = rows[: len(used) - 1] + [{}] * empty
            cells = sorted(used[: len(rows)])
            rows = rows[: len(cells)]
            rng.shuffle(rows)
            # An empty token stands for many; so does a token of a text.
            many = [
                rng.uniform(10, 60) if not r else (rng.uniform(1, 2) if "label" in r else 1.0) for r in rows
            ]
            drown = 0.0 if easy else grown * rng.random()
            weight = [w**drown for w in many]
            questions = sample_questions(rng, ask_all(rng, facts, things, grid[1] * CELL), 12, often)
            at = torch.tensor([(c // grid[1], c % grid[1]) for c in cells])
            hints = [clues(q, things, grid[1] * CELL) for q in questions]
            packed = pack(self.tokenizer, at, grid, questions, hints)
            # A cell with a piece of a value says it by itself: what a question then copies is a plain word.
            packed.hints[packed.visual] = torch.tensor([self._own_word(r) for r in rows])
            pages.append(packed)
            names.append(torch.tensor([self._label(r) for r in rows]))
            words.append(torch.tensor([[r.get(role, -1) for role in ROLES] for r in rows]))
            weights.append(torch.tensor(weight))
            families.append([q.family for q in questions])
        return collate(pages, self.tokenizer.pad_token_id, weights) | {
            "words": torch.cat(words),
            "names": torch.cat(names),
            "families": families,
        }


def collate(pages: list[Packed], pad: int, weights: list[Tensor] | None = None) -> dict[str, Tensor]:
    """Right-pad packed pages: ids, positions [3, B, S], mask [B, 1, S, S], labels, hints, block, visual."""
    longest = max(len(p.ids) for p in pages)

    def fill(x: Tensor, value: int) -> Tensor:
        return F.pad(x, (0, longest - x.shape[-1]), value=value)

    masks, visual = [], []
    for i, p in enumerate(pages):
        block = fill(p.block, -1)
        weight = None
        if weights is not None:
            weight = torch.ones(longest)
            weight[p.visual] = weights[i]
        masks.append(attention(block, weight))
        there = torch.zeros(longest, dtype=torch.bool)
        there[p.visual] = True
        visual.append(there)
    return {
        "ids": torch.stack([fill(p.ids, pad) for p in pages]),
        "positions": torch.stack([fill(p.positions, 0) for p in pages], 1),
        "mask": torch.stack(masks),
        "labels": torch.stack([fill(p.labels, IGNORED) for p in pages]),
        "hints": torch.stack([fill(p.hints, IGNORED) for p in pages]),
        "block": torch.stack([fill(p.block, -1) for p in pages]),
        "visual": torch.stack(visual),
    }


def sum_of_words(words: Tensor, roles: RoleSpace, noise: float = 0.45) -> Tensor:
    """What the eyes would say: words [M, R] -> tokens [M, D], with uneven strengths and noise."""
    tokens = torch.zeros(len(words), DIM)
    for r, role in enumerate(ROLES):
        there = words[:, r] >= 0
        strength = torch.empty(int(there.sum()), 1).uniform_(0.75, 1.1)
        tokens[there] += strength * roles.directions[roles.spans[role][0] + words[there, r]]
    level = torch.rand(len(words), 1) * noise
    return tokens + level * F.normalize(torch.randn_like(tokens), dim=-1)


def read_pages(
    model: Any, batch: dict[str, Any], tokens: Tensor, levels: Sequence[Tensor], wanted: Tensor
) -> Tensor:
    """Let the language model read packed pages.

    Args:
        model: the bundled model.
        batch: of `collate`.
        tokens: [N, D], the visual tokens of all pages in order.
        levels: per deepstack level [N, D].
        wanted: bool [B, S], where logits are needed.

    Returns:
        Logits [B, S, V], zero where not `wanted`.
    """
    mind = model.model.language_model
    embeds = mind.embed_tokens(batch["ids"]).clone()
    embeds[batch["visual"]] = tokens.to(embeds.dtype)
    states = mind(
        inputs_embeds=embeds,
        position_ids=batch["positions"],
        attention_mask=batch["mask"],
        visual_pos_masks=batch["visual"],
        deepstack_visual_embeds=list(levels),
        use_cache=False,
    ).last_hidden_state
    logits = torch.zeros(*wanted.shape, model.config.get_text_config().vocab_size)
    logits[wanted] = model.lm_head(states[wanted]).float()
    return logits


def answer_loss(logits: Tensor, batch: dict[str, Tensor], hint_weight: float) -> Tensor:
    """Cross-entropy of the answers plus `hint_weight` times that of the early hints; logits [B, S, V]."""
    flat = logits.flatten(0, 1)
    loss = F.cross_entropy(flat, batch["labels"].flatten(), ignore_index=IGNORED)
    if hint_weight:
        loss = loss + hint_weight * F.cross_entropy(flat, batch["hints"].flatten(), ignore_index=IGNORED)
    return loss


def exact(logits: Tensor, batch: dict[str, Tensor], families: list[list[str]]) -> dict[str, list[float]]:
    """Per family, 1.0 for every question whose whole answer is right given its own beginning."""
    right = (logits.argmax(-1) == batch["labels"]) | (batch["labels"] == IGNORED)
    matches: dict[str, list[float]] = {}
    for row, names in enumerate(families):
        for number, family in enumerate(names, start=1):
            here = batch["block"][row] == number
            matches.setdefault(family, []).append(float(right[row][here].all()))
    return matches


def lesson(model: Any, packed: dict[str, Any], roles: RoleSpace) -> tuple[Tensor, dict[str, list[float]]]:
    """The loss of a batch of symbolic pages, and its figures."""
    mind = model.model.language_model
    embeds = mind.embed_tokens(packed["ids"])
    embeds[packed["visual"]] = sum_of_words(packed["words"], roles)
    with torch.autocast("cpu", torch.bfloat16):
        states = mind(
            inputs_embeds=embeds,
            position_ids=packed["positions"],
            attention_mask=packed["mask"],
            use_cache=False,
        ).last_hidden_state
    states = states.float()
    wanted = (packed["labels"] != IGNORED) | (packed["hints"] != IGNORED)
    logits = torch.zeros(*wanted.shape, len(mind.embed_tokens.weight))
    logits[wanted] = model.lm_head(states[wanted])
    loss = answer_loss(logits, packed, hint_weight=0.5)
    # The cells of a text say their label beside their piece: a question finds them by the same word.
    label_logits = model.lm_head(states[packed["visual"]])
    loss = loss + 0.25 * F.cross_entropy(label_logits, packed["names"], ignore_index=IGNORED)
    figures = {"loss": [loss.item()], **exact(logits, packed, packed["families"])}
    hinted = packed["hints"] != IGNORED
    right = logits.argmax(-1) == packed["hints"]
    for name, where in (("cells", packed["visual"]), ("hints", ~packed["visual"])):
        figures[name] = [right[hinted & where].float().mean().item()]
    return loss, figures


def train(
    out: Path,
    steps: int,
    batch: int,
    lr: float,
    threads: int,
    init: Path | None = None,
    start: int = 0,
) -> None:
    """Train (or go on training) and write `out`; a line of JSON per 50 steps goes to `out`.jsonl."""
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    embeddings = build_embeddings(tokenizer, DIM)
    roles = build_roles(tokenizer, embeddings)
    model: Qwen3VLForConditionalGeneration = build_model(tokenizer, embeddings)
    if init is not None:
        load_checkpoint(init, model)
    mind = model.model.language_model
    mind.embed_tokens.weight.requires_grad_(False)
    optimizer = Optimizers(mind.named_parameters(), lr)
    first = load_checkpoint(out, mind, optimizer) or start
    data = SymbolicPages(tokenizer, first, steps, batch, steps)
    loader = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=8)
    curve = Curve(out)
    for step, packed in enumerate(loader, start=first):
        rate = lr * min(1, (step + 1) / 100) * max(0.02, 1 - step / steps)
        torch.manual_seed(step)
        loss, figures = lesson(model, packed, roles)
        optimizer.step(loss, rate)
        for name, values in figures.items():
            curve.add(name, *values)
        curve.end_step(step + 1)
        if (step + 1) % 250 == 0 or step + 1 == steps:
            save_checkpoint(out, mind, optimizer, step + 1)


def command_line() -> argparse.ArgumentParser:
    """The options of `train`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12000)
    parser.add_argument("--batch", type=int, default=8, help="pages a batch")
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--init", type=Path, help="model.safetensors of an earlier model to start from")
    parser.add_argument("--start", type=int, default=0, help="step of the schedule at which --init goes on")
    return parser


if __name__ == "__main__":
    train(**vars(command_line().parse_args()))
