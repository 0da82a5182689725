"""The training of the head over lines: what is a line, and which lines a question needs."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F

from arr_coc.guide.lexicon import MEANING_WIDTH
from arr_coc.relevance.lines import SENTENCE_WIDTH, LineHead, PrintedLine, line_matches
from arr_coc.relevance.ocr import OcrSource, judge, table_meanings
from arr_coc_lab.teaching.lines import (
    LinePage,
    LineQuestion,
    closest_map,
    joined_lines,
    learn_map,
    lines_loss,
    mapped,
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


def test_a_map_from_meanings_brings_texts_near_their_vectors_and_then_finds_lines() -> None:
    texts = ["Total", "Due date", "4 May", "$ 42.00", "What is the total?", "When is it due?", "§"]
    near = closest_map(texts, vectors(texts))
    assert near.shape == (MEANING_WIDTH + 1, SENTENCE_WIDTH)
    assert float(F.cosine_similarity(table_meanings(texts) @ near, vectors(texts)).mean()) > 0.8
    source = OcrSource(read=lambda pixels: [], sentences=vectors, head=LineHead())
    view = source.of_lines(LINES, (80, 280))
    boxes = torch.tensor([line.box for line in LINES])
    questions = [
        LineQuestion(text, "value", vectors([text])[0], torch.zeros(4, 7), needed_lines(boxes, [box]), True)
        for text, box in (("What is the total?", LINES[1].box), ("When is it due?", LINES[3].box))
    ]
    page = LinePage(view, questions)
    own = mapped(page, near)
    assert torch.allclose(own.view.vectors.norm(dim=1), torch.ones(4), atol=1e-5)
    assert torch.allclose(own.questions[0].matches[:, 0], own.view.vectors @ own.questions[0].vector)
    head = source.head.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    learned = learn_map(head, [page], near, steps=40)
    assert learned.isfinite().all()
    assert not torch.equal(learned, near)
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())
    lost = [
        sum(float(lines_loss(head, mapped(page, one), page, random.Random(i))) for i in range(8))
        for one in (learned, near)
    ]
    assert lost[0] < lost[1]
