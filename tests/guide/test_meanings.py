"""The table of meanings: near words are related, none of a word's own stem, unknown words have nothing."""

from __future__ import annotations

import pytest
import torch

from arr_coc.guide.coupling import couple, view
from arr_coc.guide.guide import load_guide
from arr_coc.guide.lexicon import (
    MAX_RELATED,
    MEANING_WIDTH,
    inflections,
    meaning,
    meanings,
    related,
    stem,
    text_meaning,
)
from arr_coc.guide.question import terms
from each import each


@each(
    ("word", "other"),
    [("salary", "wages"), ("cyclists", "bicycle"), ("luggage", "baggage"), ("writer", "novelist"),
     ("prix", "price"), ("precio", "cost"), ("schreiben", "writer")],
)  # fmt: skip
def test_words_of_one_matter_are_related(word: str, other: str) -> None:
    assert other in dict(related(word))


def test_related_words_are_few_near_and_of_other_stems() -> None:
    for word in ("pay", "breakfast", "doctor", "stroll"):
        pairs = related(word)
        strengths = [strength for _, strength in pairs]
        assert 0 < len(pairs) <= MAX_RELATED
        assert strengths == sorted(strengths, reverse=True)
        assert all(0 < strength <= 1 for strength in strengths)
        keys = [stem(other) for other, _ in pairs]
        assert stem(word) not in keys
        assert len(set(keys)) == len(keys)
    assert len(related("pay", most=3)) == 3
    assert related("pay", least=0.9999) == ()


def test_a_text_means_what_its_words_do_the_telling_ones_most() -> None:
    assert torch.allclose(text_meaning(["salary"]), meaning("salary"), atol=1e-5)
    both = text_meaning(["salary", "bicycle"])
    assert float(both.norm()) == pytest.approx(1, abs=1e-5)
    assert min(float(both @ meaning(word)) for word in ("salary", "bicycle")) > 0.4
    assert torch.allclose(both, text_meaning(["bicycle", "salary", "xqzzv"]), atol=1e-5)
    for nothing in ([], ["xqzzv", "inv-204"]):
        assert not text_meaning(nothing).any()
    weights = meanings().weights
    assert weights.shape == (len(meanings().words),)
    assert weights.isfinite().all()
    assert float(weights[meanings().rows["bicycle"]]) > float(weights[meanings().rows["time"]])


def test_vectors_are_of_unit_length_and_zero_for_what_has_no_row() -> None:
    assert torch.allclose(meanings().vectors.norm(dim=1), torch.ones(len(meanings().words)), atol=1e-5)
    assert meaning("salary").shape == (MEANING_WIDTH,)
    assert torch.equal(meaning("cyclist"), meaning("cyclists"))
    for nothing in ("inv-204", "xqzzv", "", "%"):
        assert not meaning(nothing).any()
        assert related(nothing) == ()


@each(
    ("word", "form"),
    [("rooms", "room"), ("room", "rooms"), ("prices", "price"), ("sharing", "share"), ("cities", "city"),
     ("fees", "fee"), ("label", "labels"), ("photographs", "photograph"), ("forwarded", "forward"),
     ("synced", "sync"), ("resynced", "resync")],
)  # fmt: skip
def test_a_word_is_looked_for_in_its_other_forms(word: str, form: str) -> None:
    assert form in inflections(word)
    asked = terms(f"What about the {word}?")
    place = asked.others.index(form)
    assert asked.words[asked.stands_for[place]] == word
    assert asked.strengths[place] == 1


@each("word", ["news", "xqzzv", "inv-204", "", "of"])
def test_a_word_without_other_forms(word: str) -> None:
    assert inflections(word) == ()


def test_a_question_looks_for_related_words_beside_listed_ones() -> None:
    question = terms("How much luggage may the author of it carry?")
    bonds = dict(zip(question.others, zip(question.stands_for, question.strengths, strict=True), strict=True))
    assert len(question.others) == len(question.stands_for) == len(question.strengths) == len(bonds)
    assert bonds["writer"][0] == question.words.index("author")
    assert not set(question.others) & set(question.words)
    assert 0 < min(question.strengths) < 1 == max(question.strengths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_guide_in_any_dtype_looks_for_related_words(dtype: torch.dtype) -> None:
    guide = load_guide(dtype=dtype)
    page = view(guide, torch.rand(3, 96, 160))
    coupling = couple(guide, page, "Which salary does the author get?", (3, 5))
    assert coupling.logits.isfinite().all()
    assert min(match.strength for match in coupling.matches) < 1
