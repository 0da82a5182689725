"""The training of the head over lines: what is a line, and which lines a question needs."""

from __future__ import annotations

import torch

from arr_coc.relevance.lines import LineHead, PrintedLine, line_matches
from arr_coc.relevance.ocr import OcrSource, judge
from arr_coc_lab.teaching.lines import (
    LinePage,
    LineQuestion,
    joined_lines,
    needed_lines,
    train_lines,
)
from arr_coc_lab.world.browser.chromium import Word
from printed_lines import vectors

LINES = (
    PrintedLine("Total", (10, 10, 60, 30)),
    PrintedLine("$ 42.00", (200, 10, 260, 30)),
    PrintedLine("Due date", (10, 50, 90, 70)),
    PrintedLine("4 May", (200, 50, 250, 70)),
)


def test_words_side_by_side_are_a_line_and_columns_are_not() -> None:
    words = [
        Word("Grand", (10, 10, 50, 24), 14.0),
        Word("total", (55, 11, 90, 25), 14.0),
        Word("42", (200, 10, 220, 24), 14.0),
        Word("Net", (10, 30, 40, 44), 14.0),
    ]
    assert joined_lines(words) == [
        PrintedLine("Grand total", (10, 10, 90, 25)),
        PrintedLine("42", (200, 10, 220, 24)),
        PrintedLine("Net", (10, 30, 40, 44)),
    ]


def test_a_line_is_needed_if_evidence_lies_in_it_or_just_left_of_it() -> None:
    boxes = torch.tensor([line.box for line in LINES])
    assert needed_lines(boxes, [(198, 8, 262, 32)]).tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]
    tick = needed_lines(boxes, [(182, 52, 196, 68)])  # left of "4 May"
    assert tick.tolist() == [[0, 0], [0, 0], [0, 0], [0, 1]]
    assert not needed_lines(boxes, []).any()


def test_a_head_learns_which_line_a_question_needs() -> None:
    source = OcrSource(read=lambda pixels: [], sentences=vectors, head=LineHead())
    view = source.of_lines(LINES, (80, 280))
    boxes = torch.tensor([line.box for line in LINES])
    questions = []
    for text, box in (("What is the total?", LINES[1].box), ("When is it due?", LINES[3].box)):
        (vector,) = vectors([text])
        matches = line_matches(text, view.lines, view.vectors @ vector)
        questions.append(LineQuestion(text, "value", vector, matches, needed_lines(boxes, [box]), True))
    page = LinePage(view, questions)
    head = train_lines([page], steps=90)
    texts = [question.text for question in questions]
    logits, _ = judge(head, view, texts, vectors(texts))
    assert logits[..., 0].argmax(1).tolist() == [1, 3]
