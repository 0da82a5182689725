"""Relevance "docqa": LayoutLM answers a question from the words that an OCR reads; cells follow its answer.

    open_relevance("docqa:impira/layoutlm-document-qa")
    DocqaSource(model, tokenizer, read=my_ocr)     any function from an RGB array [h, w, 3] to PrintedLines

For documents, scans and forms. A word counts by the probability that it is part of the answer; where the
model finds no answer, the confidence is low. A sum refuses the source until `source.calibrate` has given it a
calibration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from arr_coc.choose.boxes import Box
from arr_coc.guide.coupling import Calibration, Coupling, Finding
from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.native import load_native, model_place, native_version, to_image
from arr_coc.relevance.ocr import Read, rapid_ocr
from arr_coc.relevance.source import PictureView, cells_from_boxes, log_odds

READERS = {"layoutlm": "LayoutLMForQuestionAnswering"}  # by model type, the class of transformers
EXAMPLE = "impira/layoutlm-document-qa"  # MIT
SIDE = 1000  # the largest coordinate of a box as the model takes it
MAX_QUESTION = 64  # words of a question that are read
STRIDE = 128  # tokens that two parts of a long page share
FOUND = 5  # the most words that a coupling names


class WordView(NamedTuple):
    """The words of print on a picture."""

    size: tuple[int, int]  # (height, width) of the picture in px
    words: tuple[PrintedLine, ...]

    @property
    def nbytes(self) -> int:
        return 64 * len(self.words)


class DocqaSource:
    """Scores cells by which words LayoutLM takes for a question's answer.

    Args:
        model: a `LayoutLMForQuestionAnswering`, on any device.
        tokenizer: its tokenizer, a fast one, with `add_prefix_space=True` if it is byte-level.
        read: an OCR; None: RapidOCR.
        calibration: of the logits, from `source.calibrate`; None: not known.
    """

    name = "docqa"

    def __init__(
        self, model: Any, tokenizer: Any, read: Read | None = None, calibration: Calibration | None = None
    ) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.read = rapid_ocr() if read is None else read
        self.version = native_version(model, tokenizer)
        self.calibration: Calibration | None = calibration

    def view(self, picture: Tensor) -> PictureView:
        lines = self.read(np.asarray(to_image(picture)))
        return WordView((picture.shape[-2], picture.shape[-1]), tuple(words_of(lines)))

    @torch.no_grad()
    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        assert isinstance(view, WordView)
        words = self._asked(question)
        if not view.words or not words:
            return Coupling(cells_from_boxes((), (), grid, view.size), 0.0)
        chances, confidence = self._answer(view, words)
        best = chances.argsort(descending=True, stable=True)[:FOUND].tolist()
        height, width = view.size
        findings = []
        for i in best:
            x0, y0, x1, y1 = view.words[i].box
            shares = (x0 / width, y0 / height, x1 / width, y1 / height)
            findings.append(Finding(self.name, view.words[i].text, float(chances[i]), shares))
        logits = [log_odds(chance) for chance in chances.tolist()]
        cells = cells_from_boxes([word.box for word in view.words], logits, grid, view.size)
        return Coupling(cells, confidence, findings=tuple(findings), printed=True)

    @property
    def _most(self) -> int:
        """The tokens of a question and a part of a page together."""
        return min(self.tokenizer.model_max_length, self.model.config.max_position_embeddings)

    def _asked(self, question: str) -> list[str]:
        """Return a question's first words, which leave half of the tokens to the page."""
        kept, room = list[str](), self._most // 2
        for word in (one[: self._most // 8] for one in question.split()[:MAX_QUESTION]):
            room -= len(self.tokenizer.tokenize(word))
            if room < 0 and kept:
                break
            kept.append(word)
        return kept

    def _answer(self, view: WordView, question: Sequence[str]) -> tuple[Tensor, float]:
        """Return the probability that each word is part of the answer, [W], and that there is an answer."""
        most = self._most
        parts = self.tokenizer(
            list(question), [word.text for word in view.words], is_split_into_words=True, return_tensors="pt",
            truncation="only_second", max_length=most, stride=min(STRIDE, most // 4), padding=True,
            return_overflowing_tokens=True, return_token_type_ids=True,
        )  # fmt: skip
        height, width = view.size
        sides = torch.tensor([word.box for word in view.words])
        places = (SIDE * sides / torch.tensor([width, height, width, height])).clamp(0, SIDE).long()
        boxes, owners = torch.zeros(*parts["input_ids"].shape, 4, dtype=torch.long), []
        boxes[parts["input_ids"] == self.tokenizer.sep_token_id] = SIDE
        for row in range(len(boxes)):
            sides_of, numbers = parts.sequence_ids(row), parts.word_ids(row)
            owners.append([word if side == 1 else -1 for side, word in zip(sides_of, numbers, strict=True)])
            inside = torch.tensor(owners[-1]) >= 0
            boxes[row, inside] = places[torch.tensor(owners[-1])[inside]]
        inputs = {name: parts[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
        inputs = {name: value.to(self.model.device) for name, value in (inputs | {"bbox": boxes}).items()}
        outputs = self.model(**inputs)
        chances, confidence = torch.zeros(len(view.words)), 0.0
        for own, start, end in zip(
            torch.tensor(owners),
            outputs.start_logits.float().cpu(),
            outputs.end_logits.float().cpu(),
            strict=True,
        ):
            chosen = own >= 0
            chosen[0] = True  # the first token stands for no answer
            first, last = (one[chosen].softmax(0) for one in (start, end))
            confidence = max(confidence, float(1 - first[0] * last[0]))
            # A token is in the answer if that starts no later and ends no earlier.
            within = first[1:].cumsum(0) * last[1:].flip(0).cumsum(0).flip(0)
            chances.scatter_reduce_(0, own[own >= 0], within, "amax")
        return chances.clamp(0, 1), confidence


def words_of(lines: Sequence[PrintedLine]) -> list[PrintedLine]:
    """Return the words of lines of print; each gets the share of its line's box that its letters have."""
    made = []
    for text, (x0, y0, x1, y1) in lines:
        at = 0
        for word in text.split():
            at = text.index(word, at)
            left, right = (x0 + (x1 - x0) * end / len(text) for end in (at, at + len(word)))
            box: Box = (left, y0, right, y1)
            made.append(PrintedLine(word, box))
            at += len(word)
    return made


def open_docqa(argument: str = "") -> DocqaSource:
    """Open the source "docqa:NAME", a model folder or a name on the Hub."""
    place = model_place("docqa", argument, EXAMPLE)
    return DocqaSource(*load_native(*place, READERS, add_prefix_space=True))
