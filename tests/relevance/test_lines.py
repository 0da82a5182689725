"""The head that judges lines of print: order is nothing to it, and odd lines are no danger."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from arr_coc.relevance.lines import (
    FACTS,
    HASHED,
    MATCHES,
    MAX_LINES,
    PAIR,
    LineHead,
    PrintedLine,
    likeliest,
    line_facts,
    line_matches,
    pair_facts,
    word_rows,
)
from near import near
from printed_lines import ODD, PAGE, SIZE, vectors

QUESTIONS = ("What is the total?", "How much is the paper?", "Which number has the invoice?")


@pytest.fixture(scope="module")
def head() -> LineHead:
    """Untrained, with every part of it at work."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = LineHead(dropout=0.5).eval()
        torch.nn.init.normal_(made.last.weight, std=0.5)
    return made.requires_grad_(False)


def judged(
    head: LineHead, lines: Sequence[PrintedLine], questions: Sequence[str] = QUESTIONS
) -> tuple[Tensor, Tensor]:
    own, wanted = vectors([line.text for line in lines]), vectors(questions)
    matches = torch.stack([line_matches(q, lines, own @ v) for q, v in zip(questions, wanted, strict=True)])
    boxes = torch.tensor([line.box for line in lines])
    return head(own, line_facts(lines, SIZE), boxes, wanted, matches, [word_rows(q) for q in questions])


def test_every_line_has_two_logits_for_each_question(head: LineHead) -> None:
    logits, present = judged(head, PAGE)
    assert logits.shape == (3, len(PAGE), 2)
    assert present.shape == (3,)
    assert logits.isfinite().all()
    assert logits.std(1).min() > 0.01, "lines differ"
    assert logits.std(0).max() > 0.01, "questions differ"


def test_the_order_of_lines_is_nothing(head: LineHead) -> None:
    logits, present = judged(head, PAGE)
    order = torch.randperm(len(PAGE), generator=torch.Generator().manual_seed(1))
    other, also = judged(head, [PAGE[i] for i in order])
    assert near(other, logits[:, order])
    assert near(also, present)


def test_questions_are_judged_alone_as_together(head: LineHead) -> None:
    logits, present = judged(head, PAGE)
    for number, question in enumerate(QUESTIONS):
        alone, one = judged(head, PAGE, [question])
        assert near(alone[0], logits[number])
        assert near(one[0], present[number])


def test_where_other_lines_stand_and_what_they_say_matters(head: LineHead) -> None:
    logits, _ = judged(head, PAGE)
    for other in (PrintedLine("Total:", (40.0, 300.0, 100.0, 318.0)), PrintedLine("Discount", PAGE[5].box)):
        changed, _ = judged(head, [*PAGE[:5], other, *PAGE[6:]])
        assert (changed[:, 6] - logits[:, 6]).abs().max() > 1e-4, "a line sees the one beside it"


def test_facts_are_finite_numbers_of_a_fair_size() -> None:
    boxes = (
        (40.0, 100.0, 90.0, 118.0),
        (0.0, 0.0, 800.0, 600.0),
        (799.0, 599.0, 799.5, 599.5),
        (5.0, 5.0, 5.0, 5.0),
    )
    lines = [PrintedLine(text, box) for text in ODD for box in boxes]
    facts = line_facts(lines, SIZE)
    assert facts.shape == (len(lines), FACTS)
    assert facts.isfinite().all()
    assert facts.abs().max() < 10
    assert line_facts([], SIZE).shape == (0, FACTS)
    assert line_facts(lines[:1], (1, 1)).isfinite().all()


def test_facts_tell_kinds_of_text_apart() -> None:
    facts = line_facts(PAGE, SIZE)
    assert len({tuple(row) for row in facts.tolist()}) == len(PAGE)
    moved = line_facts([PrintedLine(line.text, PAGE[0].box) for line in PAGE], SIZE)
    kinds = {line.text: row for line, row in zip(PAGE, moved.tolist(), strict=True)}
    for one, other in (("Total:", "Item"), ("$ 42.10", "Invoice 2041"), ("Save as...", "Paper, A4")):
        assert kinds[one] != kinds[other]


def test_matches_find_the_words_of_a_question() -> None:
    own = vectors([line.text for line in PAGE])
    matches = line_matches(QUESTIONS[0], PAGE, own @ vectors(QUESTIONS[:1])[0])
    assert matches.shape == (len(PAGE), MATCHES)
    assert int(matches[:, 2].argmax()) == 5
    assert float(matches[5, 6]) == 1, "all that it says is asked for"
    plural = line_matches("totals?", PAGE, own @ vectors(QUESTIONS[:1])[0])
    assert int(plural[:, 2].argmax()) == 5
    assert not line_matches("What is it?", PAGE, own @ vectors(QUESTIONS[:1])[0])[:, 2].any()
    assert line_matches("total", [], torch.zeros(0)).shape == (0, MATCHES)


def test_pairs_say_how_lines_lie() -> None:
    boxes = torch.tensor([line.box for line in PAGE])
    pairs = pair_facts(boxes)
    rows, columns, right, left, down, up = pairs[..., :6].unbind(-1)
    total, amount, price = 5, 6, 2
    assert pairs.shape == (len(PAGE), len(PAGE), PAIR)
    assert rows[total, amount] == 1 > rows[total, price]
    assert columns[amount, price] > 0.9
    assert columns[amount, total] == 0
    assert right[total, amount] > 0 == left[total, amount]
    assert up[amount, 4] > 0 == down[amount, 4]
    assert torch.equal(right, left.T)
    assert torch.equal(down, up.T)
    assert torch.equal(pairs[..., -1], torch.eye(len(PAGE)))
    assert near(pair_facts(boxes + 100), pairs), "where on the page is nothing to it"
    assert near(pair_facts(boxes * 3)[:, :, :2], pairs[:, :, :2])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_pairs_of_few_lines_are_finite(count: int) -> None:
    assert pair_facts(torch.tensor([line.box for line in PAGE[:count]]).view(-1, 4)).isfinite().all()
    flat = torch.zeros(count, 4)
    assert pair_facts(flat).isfinite().all()


def test_hostile_texts_and_questions_are_judged(head: LineHead) -> None:
    lines = [PrintedLine(text, (10.0, 20.0 * n, 300.0, 20.0 * n + 15)) for n, text in enumerate(ODD)]
    logits, present = judged(head, lines, [*QUESTIONS, *ODD[2:]])
    assert logits.isfinite().all()
    assert present.isfinite().all()
    for question in ODD:
        rows = word_rows(question)
        assert len(rows) > 0
        assert 0 <= int(rows.min()) <= int(rows.max()) < HASHED


def test_pairs_of_neighbouring_words_count() -> None:
    assert set(word_rows("due date").tolist()) != set(word_rows("date due").tolist())
    assert torch.equal(word_rows("What is the Total?"), word_rows("what is the total"))


def test_of_many_lines_the_likeliest_are_judged_with_their_neighbours() -> None:
    matches = torch.zeros(3 * MAX_LINES, MATCHES)
    best = torch.arange(2, 3 * MAX_LINES, 30)
    matches[best, 0], matches[best, 2] = 0.5, 1.0
    rows = likeliest(matches)
    assert len(rows) == MAX_LINES
    assert torch.equal(rows, rows.unique())
    for step in (-2, -1, 0, 1, 2):
        assert torch.isin(best + step, rows).all()
