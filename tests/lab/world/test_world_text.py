"""Pages of long text: one answer a question, values at their boxes, filler as named."""

from __future__ import annotations

import numpy as np
import pytest

from arr_coc_lab.world import FILLERS, draw_text_page, transcript
from arr_coc_lab.world.vocabulary import ALPHABET, PARAPHRASES
from each import each


@each("filler", FILLERS)
class TestPages:
    def test_a_seed_fixes_the_page_and_another_changes_it(self, filler):
        a, b, c = (draw_text_page(seed, (600, 512), filler=filler) for seed in (5, 5, 6))
        assert a.image.tobytes() == b.image.tobytes()
        assert a.questions == b.questions
        assert a.image.tobytes() != c.image.tobytes()

    @each("size", [(512, 512), (1024, 1024), (2048, 700)])
    def test_a_question_has_one_answer_in_a_wording_that_was_taught(self, filler, size):
        page = draw_text_page(3, size, filler=filler)
        texts = [question.text for question in page.questions]
        assert len(texts) == len(set(texts)) >= 3
        taught = {
            p.format(label=f.label, Label=f.label.capitalize())
            for f in page.facts
            for p in PARAPHRASES[f.family]
        }
        assert set(texts) <= taught
        values = [question for question in page.questions if question.family == "value"]
        assert values
        assert all(set(question.answer) <= set(ALPHABET) for question in values)

    def test_the_evidence_is_where_the_ink_is(self, filler):
        page = draw_text_page(8, filler=filler)
        gray = np.asarray(page.image.convert("L"), float)
        for question in page.questions:
            for x0, y0, x1, y1 in question.evidence:
                assert gray[y0:y1, x0:x1].std() > 20, question

    def test_the_transcript_has_every_labelled_value_once(self, filler):
        page = draw_text_page(4, filler=filler)
        lines = transcript(page).splitlines()
        values = {f"{fact.label} {''.join(fact.value)}" for fact in page.facts if fact.family == "value"}
        assert len(lines) == len(values)
        assert set(lines) == values


@pytest.mark.slow
def test_pages_between_the_values_are_full_of_text_but_for_lists():
    ink = {}
    for filler in FILLERS:
        pages = [np.asarray(draw_text_page(i, filler=filler).image.convert("L"), float) for i in range(3)]
        ink[filler] = np.mean([(np.abs(page - np.median(page)) > 60).mean() for page in pages])
    assert min(ink["words"], ink["strings"]) > 1.4 * ink["none"]


def test_lists_hold_all_labels_in_reading_order():
    page = draw_text_page(1, filler="none")
    places = [fact.boxes[0] for fact in page.facts]
    assert len(places) == 26
    half = page.image.width // 2
    assert places == sorted(places, key=lambda box: (box[0] // half, box[1]))


@each(
    ("arguments", "words"),
    [
        ({"filler": "poems"}, "'poems' is unknown"),
        ({"size": (300, 600)}, "300x600 is out of range"),
        ({"split": "dev"}, "'dev' is unknown"),
        ({"seed": -1}, "-1 is negative"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        draw_text_page(**{"seed": 0} | arguments)
