"""Relevance "boxes": score cells by boxes that you have already, with scores or texts.

    BoxSource([{"box": [10, 20, 90, 40], "text": "Total"}, {"box": [100, 20, 160, 40], "score": 0.9}])
    open_relevance("boxes:page.json")       the same list from a file

Boxes may come from a DOM, an accessibility tree, a detector or a layout model. Texts are matched with the
words of a question; scores are probabilities that hold for every question.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from arr_coc.choose.boxes import Box
from arr_coc.files.paths import input_file
from arr_coc.files.validation import parse_json
from arr_coc.guide.coupling import Calibration, Coupling, Finding
from arr_coc.guide.lexicon import STOP_WORDS, answers, expand, stem
from arr_coc.guide.question import split_words
from arr_coc.relevance.source import PictureView, cells_from_boxes, log_odds

MAX_BOXES = 100_000  # of a picture
FARTHEST = 1e9  # px, of a box's side from the picture
FOUND = 5  # the most boxes that a coupling names
LISTED = 0.7  # how much a word counts that the lexicon lists for one of the question
LITERAL = (
    4.0  # log odds that a box holds what is asked for, from 0 for none to this for all words of the question
)
UNMATCHED = -5.0  # log odds of a box with a text and no word of the question


class GivenBox(NamedTuple):
    """A box in px of the picture, with a text, a score, or both."""

    box: Box
    text: str = ""
    score: float | None = None  # probability in [0, 1] that it is needed, whatever the question


class BoxView(NamedTuple):
    """The boxes of one picture."""

    size: tuple[int, int]
    boxes: tuple[GivenBox, ...]
    note: str | None = None

    @property
    def nbytes(self) -> int:
        return 64 * len(self.boxes)


Boxes = Sequence[GivenBox] | Callable[[Tensor], Sequence[GivenBox]]


class BoxSource:
    """Scores cells by the boxes that a caller gives: by their scores, or by how their texts match a question.

    Args:
        boxes: of the picture, or a function from a picture, float [3, h, w] in [0, 1], to its boxes.
    """

    name = "boxes"
    calibration: Calibration | None = Calibration(1.0)

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes
        # A function's boxes are known with a picture alone.
        self.version = f"{zlib.crc32(repr(list(boxes)).encode()):08x}" if isinstance(boxes, Sequence) else "1"

    def view(self, picture: Tensor) -> PictureView:
        boxes = tuple(self.boxes) if isinstance(self.boxes, Sequence) else tuple(self.boxes(picture))
        height, width = picture.shape[-2:]
        return BoxView((height, width), *_on_picture(boxes, (width, height)))

    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        assert isinstance(view, BoxView)
        words = split_words(question)
        own = {stem(word) for word in words if word not in STOP_WORDS}
        listed = {stem(word) for word, _ in (*expand(words), *answers(words))} - own
        logits = [_logit(one, own, listed) for one in view.boxes]
        best = sorted(range(len(logits)), key=lambda i: -logits[i])[:FOUND]
        height, width = view.size
        findings = []
        for i in best:
            x0, y0, x1, y1 = view.boxes[i].box
            probability = 1 / (1 + math.exp(-logits[i]))
            shares = (x0 / width, y0 / height, x1 / width, y1 / height)
            findings.append(Finding(self.name, view.boxes[i].text, probability, shares))
        cells = cells_from_boxes([one.box for one in view.boxes], logits, grid, view.size)
        confidence = 1 / (1 + math.exp(-max(logits))) if logits else 0.0
        return Coupling(cells, confidence, findings=tuple(findings), note=view.note)


def _on_picture(boxes: Sequence[GivenBox], size: tuple[int, int]) -> tuple[tuple[GivenBox, ...], str | None]:
    """Return boxes cut to a picture of `size`, and a note on those outside; raise ValueError for bad ones."""
    width, height = size
    remedy = f"give px of the upright picture, which is {width}x{height}"
    inside = []
    for one in boxes:
        x0, y0, x1, y1 = one.box
        if not (all(map(math.isfinite, one.box)) and x0 < x1 and y0 < y1):
            raise ValueError(f"box {_short(one)} has no area: give x0, y0, x1, y1 with x0 < x1 and y0 < y1")
        box = (max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1))
        if box[0] < box[2] and box[1] < box[3]:
            inside.append(one._replace(box=box))
    if boxes and all(max(one.box) <= 1 for one in boxes):
        raise ValueError(f"the boxes, such as {_short(boxes[0])}, are in shares of 1: {remedy}")
    if boxes and not inside:
        raise ValueError(f"the boxes, such as {_short(boxes[0])}, all lie outside of the picture: {remedy}")
    outside = len(boxes) - len(inside)
    note = f"{outside} of {len(boxes)} boxes lie outside of the picture: {remedy}" if outside else None
    return tuple(inside), note


def _short(one: GivenBox) -> str:
    return f"[{', '.join(f'{side:g}' for side in one.box)}]"


def _logit(one: GivenBox, own: set[str], listed: set[str]) -> float:
    """Return the log odds that a box is needed by a question with stems `own`; `listed` are related stems."""
    held = {stem(word) for word in split_words(one.text)}
    logit = 0.0
    if one.text:
        share = (len(held & own) + LISTED * len(held & listed)) / max(1, len(own))
        logit = UNMATCHED + (LITERAL - UNMATCHED) * min(1.0, share)
    return logit + (0.0 if one.score is None else log_odds(one.score))


def parse_boxes(value: Any, name: str) -> tuple[GivenBox, ...]:
    """Return boxes from a list of {"box": [x0, y0, x1, y1], "text": ..., "score": ...}, or raise
    ValueError.
    """
    remedy = 'give a list of {"box": [x0, y0, x1, y1], "text": "...", "score": 0.9}'
    if not isinstance(value, list) or len(value) > MAX_BOXES:
        raise ValueError(f"{name} is no list of at most {MAX_BOXES} boxes: {remedy}")
    made = []
    for number, one in enumerate(value):
        box = one.get("box") if isinstance(one, Mapping) else None
        score, text = (one.get("score"), one.get("text", "")) if isinstance(one, Mapping) else (None, "")
        sound = isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))
        if not sound or not isinstance(text, str) or box[0] >= box[2] or box[1] >= box[3]:
            raise ValueError(f"box {number} of {name} is {one!s:.80}: {remedy}")
        if score is not None and not (_is_number(score) and 0 <= score <= 1):
            raise ValueError(f"box {number} of {name} has score {score!r}: give a probability in [0, 1]")
        x0, y0, x1, y1 = map(float, box)
        made.append(GivenBox((x0, y0, x1, y1), text, None if score is None else float(score)))
    return tuple(made)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= FARTHEST


def open_boxes(argument: str = "") -> BoxSource:
    """Open the source "boxes:FILE", a JSON file with the list of a picture's boxes."""
    if not argument:
        raise ValueError("relevance 'boxes' needs a file: boxes:FILE.json, or a BoxSource in Python")
    path = input_file(argument)
    return BoxSource(parse_boxes(_read(path), repr(str(path))))


def _read(path: Path) -> Any:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"boxes {str(path)!r} can't be read ({error}): give a JSON file") from error
    return parse_json(content, f"boxes {str(path)!r}", "give a JSON file with a list of boxes")
