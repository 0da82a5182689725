"""Whether a reader of print finds the answer on the pictures that `arr_coc.pixels` packs, beside nulls.

    samples = answered_in_folder(Path("pictures"))
    rows = list(read_packed(samples, PACKERS, (64, 128, 256), rapid_ocr()))
    summarise_packed(rows)["all"]["arr-coc"]["64"]      {"questions": 60, "read": 0.9, ...}

A budget is a number of 1,024 tokens of 32 x 32 px, scaled to each picture. The answer is found if its letters
and digits stand in the print that the reader gives, whatever the spaces, case and accents. Questions whose
answer the reader doesn't find on the picture as it is are left out. Nulls spend as
many pixels: the picture shrunk, crops for another picture's question, a crop at random, of the middle, and of
the densest print; the oracle's crops hold the evidence, and "whole" is the picture as the reader, or an
engine that shrinks it, would see it.
"""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import TENSIONS, Allocation, Reason, grid_positions
from arr_coc.choose.boxes import Box
from arr_coc.data.evidence import evidence_cells
from arr_coc.files.images import open_image
from arr_coc.files.pixels import image_pixels
from arr_coc.pixels import pack, pack_for
from arr_coc.pixels.rules import find_rule
from arr_coc.relevance.ocr import Read
from arr_coc.selector import Selector, Sizing
from arr_coc_lab.evaluate.guide_pages import page_samples
from arr_coc_lab.evaluate.sources import questions_of
from arr_coc_lab.pictures.labels import Split, pictures
from arr_coc_lab.rivals.nulls import ink_density

SIDE = 32  # px of a token's side
OF = 1024  # tokens that budgets are shares of
SHORTEST = 3  # letters and digits of an answer that is looked for: a shorter one stands everywhere
LONGEST = 60


@dataclass(frozen=True)
class AnsweredPicture:
    """A picture with questions whose answers are printed on it.

    `questions` are (question, kind of question, answer, evidence boxes in px).
    """

    name: str
    kind: str
    image: Callable[[], Image.Image]
    questions: tuple[tuple[str, str, str, tuple[Box, ...]], ...]


class ReadRow(NamedTuple):
    """One question by one method at one budget."""

    method: str
    budget: int
    picture: str
    kind: str
    ask: str
    question: str
    tokens: int  # spent: px of what was sent over SIDE x SIDE
    layout: str
    read: bool  # the answer was found


class Task(NamedTuple):
    """What a method packs: a picture, its question, another picture's, the evidence, and the tokens
    allowed.
    """

    image: Image.Image
    question: str
    other: str
    boxes: tuple[Box, ...]
    tokens: int
    selector: Selector


class Sent(NamedTuple):
    """Pictures that a method sends, and their layout."""

    pictures: tuple[Image.Image, ...]
    layout: str


def ours(task: Task) -> Sent:
    """Chosen and packed for the question."""
    return _packed(task, task.question, "auto")


def crops(task: Task) -> Sent:
    """Return the same, never the whole picture."""
    return _packed(task, task.question, "crops")


def another_question(task: Task) -> Sent:
    """Crops for another picture's question."""
    return _packed(task, task.other, "crops")


def shrunk(task: Task) -> Sent:
    """Return the whole picture, shrunk."""
    return _packed(task, task.question, "shrunk")


def oracle(task: Task) -> Sent:
    """Crops of the evidence."""
    grid = Sizing().grid(task.image.height, task.image.width)
    cells = evidence_cells(task.boxes, grid, task.image.size)
    made = pack(task.image, chosen(cells), task.tokens, SIDE, layout="crops")
    return Sent(made.pictures, made.layout)


def random_crop(task: Task) -> Sent:
    """Return a part of the picture at random, as it is."""
    seed = int(hashlib.sha1(task.question.encode()).hexdigest()[:8], 16)
    rng = random.Random(seed)
    return _cut(task, rng.random(), rng.random())


def centre_crop(task: Task) -> Sent:
    """Return the middle of the picture, as it is."""
    return _cut(task, 0.5, 0.5)


def densest_crop(task: Task) -> Sent:
    """Return the part of the picture with most ink, as it is."""
    width, height = _window(task)
    rows, columns = max(1, task.image.height // 8), max(1, task.image.width // 8)
    ink = ink_density(image_pixels(task.image)[0], (rows, columns)).view(1, 1, rows, columns)
    size = max(1, min(rows, height // 8)), max(1, min(columns, width // 8))
    mean = torch.nn.functional.avg_pool2d(ink, size, 1)[0, 0]
    y, x = divmod(int(mean.argmax()), mean.shape[1])
    down, across = (place / max(1, count - 1) for place, count in zip((y, x), mean.shape, strict=True))
    return _cut(task, across, down)


def whole(task: Task) -> Sent:
    """Return all of the picture."""
    return Sent((task.image,), "whole")


Packer = Callable[[Task], Sent]
PACKERS: dict[str, Packer] = {
    "arr-coc": ours,
    "arr-coc crops": crops,
    "shrunk": shrunk,
    "crops of another question": another_question,
    "random crop": random_crop,
    "centre crop": centre_crop,
    "densest print": densest_crop,
    "oracle's crops": oracle,
    "whole": whole,
}


def chosen(cells: Tensor) -> Allocation:
    """Return the record of a choice that was made elsewhere: cells bool [H, W], at least one."""
    grid = (1, cells.shape[0], cells.shape[1])
    keep = cells.flatten().nonzero().flatten()
    scores = cells[None].float()
    ones = torch.full_like(keep, int(Reason.RELEVANT))
    return Allocation(
        grid, keep, keep, grid_positions(keep, grid), scores, scores, scores, scores, torch.zeros(3),
        dict.fromkeys(TENSIONS, 0.5), len(keep), ones, False,
    )  # fmt: skip


def _packed(task: Task, question: str, layout: str) -> Sent:
    made = pack_for(task.image, question, task.tokens, SIDE, layout=layout, selector=task.selector)
    return Sent(made.pictures, made.layout)


def _window(task: Task) -> tuple[int, int]:
    """Return the sides in px of a crop of about the picture's shape that spends the tokens."""
    width, height = task.image.size
    part = min(1.0, (task.tokens * SIDE**2 / (width * height)) ** 0.5)
    columns = max(1, int(width * part / SIDE))
    rows = max(1, min(task.tokens // columns, -(-height // SIDE)))
    return min(width, SIDE * columns), min(height, SIDE * rows)


def _cut(task: Task, across: float, down: float) -> Sent:
    """Return a crop at a share of the way from the left and from the top."""
    width, height = _window(task)
    x, y = round(across * (task.image.width - width)), round(down * (task.image.height - height))
    return Sent((task.image.crop((x, y, x + width, y + height)),), "crop")


# ---- the reader ------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Return the letters and digits of a text, without accents and case."""
    parts = unicodedata.normalize("NFKD", text).casefold()
    return re.sub(r"[\W_]+", "", "".join(c for c in parts if not unicodedata.combining(c)))


def print_of(read: Read, picture: Image.Image) -> str:
    """Return all that a reader finds on a picture, `plain`."""
    return plain("".join(line.text for line in read(np.asarray(picture.convert("RGB")))))


def holds(read: Read, sent: Sequence[Image.Image], answer: str) -> bool:
    """Return whether a reader finds an answer on one of some pictures."""
    looked_for = plain(answer)
    return any(looked_for in print_of(read, picture) for picture in sent)


def read_packed(
    samples: Iterable[AnsweredPicture],
    packers: dict[str, Packer],
    budgets: Sequence[int],
    read: Read,
    selector: Selector | None = None,
    shrinks_to: int | None = None,
) -> Iterator[ReadRow]:
    """Pack each picture for each question by each method, and have what is sent read.

    Questions whose answer isn't read on the picture as it is are left out.

    `shrinks_to`: an engine shrinks a whole picture to so many tokens before its model sees it; budgets are
    then counts, and what is packed is cut from the original. None: the picture is seen as it is.
    """
    selector, rule = Selector() if selector is None else selector, find_rule(SIDE)
    before: tuple[str, ...] = ()
    for sample in samples:
        image = sample.image()
        full = max(1, round(image.width * image.height / SIDE**2))
        printed = print_of(read, image)
        for number, (question, ask, answer, boxes) in enumerate(sample.questions):
            other = before[number % len(before)] if before else "What is the weather like?"
            if plain(answer) not in printed:
                continue
            every, on_whole = Sent((image,), "whole"), True
            if shrinks_to is not None:
                every = shrunk(Task(image, question, other, boxes, min(shrinks_to, full), selector))
                on_whole = holds(read, every.pictures, answer)
            for budget in budgets:
                tokens = max(1, round(budget / OF * full) if shrinks_to is None else min(budget, full))
                task = Task(image, question, other, boxes, tokens, selector)
                for method, packer in packers.items():
                    sent = every if method == "whole" else packer(task)
                    right = on_whole if method == "whole" else holds(read, sent.pictures, answer)
                    spent = sum(rule.tokens(*picture.size) for picture in sent.pictures)
                    yield ReadRow(
                        method, budget, sample.name, sample.kind, ask, question, spent, sent.layout, right
                    )
        before = tuple(question for question, *_ in sample.questions)


def summarise_packed(rows: Sequence[ReadRow]) -> dict[str, dict[str, Any]]:
    """By group (all, a kind of picture), method and budget: share of answers read, questions, mean tokens.

    For "arr-coc" also how often the whole picture is shrunk.
    """
    groups: dict[str, dict[tuple[str, int], list[ReadRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for group in ("all", row.kind):
            groups[group][row.method, row.budget].append(row)
    made: dict[str, dict[str, Any]] = {}
    for group, by_method in groups.items():
        made[group] = {}
        for (method, budget), own in by_method.items():
            facts: dict[str, Any] = {
                "questions": len(own),
                "read": fmean(row.read for row in own),
                "tokens": fmean(row.tokens for row in own),
            }
            if method == "arr-coc":
                facts["shrunk"] = fmean(row.layout == "shrunk" for row in own)
            made[group].setdefault(method, {})[str(budget)] = facts
    return made


# ---- pictures ----------------------------------------------------------------------------------------------


def _asked_for(answer: str, boxes: Sequence[Box]) -> bool:
    return bool(boxes) and SHORTEST <= len(plain(answer)) <= LONGEST


def answered_in_folder(folder: Path) -> Iterator[AnsweredPicture]:
    """Pictures of a folder with `questions.jsonl`: image, kind, ask, question, answer and boxes, a question a
    line.
    """
    for name, rows in questions_of(folder).items():
        questions = tuple(
            (row["question"], row["ask"], row["answer"], tuple(map(tuple, row["boxes"])))
            for row in rows
            if _asked_for(row["answer"] or "", row["boxes"])
        )
        if questions:
            yield AnsweredPicture(
                name, rows[0]["kind"], lambda path=folder / name: open_image(path), questions
            )


def answered_labelled(split: Split, folder: Path) -> Iterator[AnsweredPicture]:
    """Yield the project's own labelled pictures of a split, in a folder that `pictures.fetch` filled."""
    for one in pictures(split):
        path = folder / one.file
        questions = tuple(
            (q.text, q.ask, q.answer, q.boxes) for q in one.questions if _asked_for(q.answer, q.boxes)
        )
        if questions and path.is_file():
            yield AnsweredPicture(one.file, one.kind, lambda path=path: open_image(path), questions)


def answered_rendered(folder: Path, split: str, limit: int, each: int) -> Iterator[AnsweredPicture]:
    """At most `limit` rendered pages of `arr-coc world`, with at most `each` questions of a page."""
    for sample in page_samples(folder, split, limit, each):
        questions = tuple(
            (q.text, q.kind, q.answer, q.evidence)
            for q in sample.questions
            if _asked_for(q.answer, q.evidence)
        )
        if questions:
            yield AnsweredPicture(sample.name, "rendered", lambda one=sample: one.image, questions)
