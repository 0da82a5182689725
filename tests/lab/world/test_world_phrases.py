"""Wordings of questions: templates fill, splits keep apart, paraphrases name no label."""

from __future__ import annotations

import random
from string import Formatter

import pytest

from arr_coc.guide.lexicon import answers, content_words, expand, names, stem, stems
from arr_coc_lab.world.browser.phrases import (
    HELD_OUT_PARAPHRASES,
    KINDS,
    PARAPHRASES,
    TEMPLATES,
    held_out_pair,
    held_out_wordings,
    paraphrases,
    phrase,
    unlisted,
    wordings,
)
from each import each

PARTS = {
    "label": "Due date",
    "within": "Summary",
    "row": "Bread",
    "column": "Price",
    "other": "Tea",
    "value": "ACME",
}
LABELS = sorted({label for label, _ in PARAPHRASES} | {"Serial number", "Screen timeout", "Wi-Fi", "Colour"})


def fields(template):
    return {name.lower() for _, name, _, _ in Formatter().parse(template) if name}


def content(label):
    return {stem(word) for word in content_words(label) or label.split()}


def shares(label, question):
    return content(label) & set(stems(question).split())


def needed(kind):
    return set().union(*(fields(template) for template in TEMPLATES[kind]))


@each("kind", TEMPLATES)
def test_every_template_fills(kind):
    assert len(TEMPLATES[kind]) >= 8
    assert len(set(TEMPLATES[kind])) == len(TEMPLATES[kind])
    assert needed(kind) <= set(PARTS)
    for template in TEMPLATES[kind]:
        assert fields(template) == needed(kind)


def test_kinds_have_wordings_of_their_own_or_by_others():
    borrowed = {"paraphrase", "paraphrase-unlisted", "unanswerable", "implied"}
    assert set(KINDS) - borrowed <= set(TEMPLATES)


@each("kind", TEMPLATES)
def test_a_fifth_of_the_wordings_is_of_the_test_split_alone(kind):
    out = set(held_out_wordings(kind))
    assert 0.19 <= len(out) / len(TEMPLATES[kind]) <= 0.3
    for split in ("train", "validation"):
        assert set(wordings(kind, split)) == set(TEMPLATES[kind]) - out
    assert set(wordings(kind, "test")) == set(TEMPLATES[kind])


def test_train_never_puts_a_held_out_wording():
    rng = random.Random(3)
    out = {text.format(**PARTS) for text in held_out_wordings("title")}
    assert not out & {phrase(rng, "title") for _ in range(300)}
    assert out <= {phrase(rng, "title", split="test") for _ in range(300)}


def test_phrases_are_fixed_by_the_seed_and_know_their_sort():
    def draw():
        return [phrase(random.Random(seed), "value", "price", label="Total") for seed in range(40)]

    one = draw()
    assert one == draw()
    assert any("cost" in text for text in one)
    assert all("total" in text.lower() for text in one)
    assert "Basket" in phrase(random.Random(0), "value", label="Total", within="Basket")


def test_sums_that_are_not_for_sale_have_no_price():
    drawn = {phrase(random.Random(i), "value", "amount", label="Opening balance") for i in range(200)}
    assert any("amount" in text.lower() for text in drawn)
    assert any("how much" in text.lower() for text in drawn)
    assert not any(word in text for text in drawn for word in ("price", "cost", "expensive", "charge"))


def test_compounds_are_not_renamed_part_by_part():
    for label in ("Account type", "Order type", "Minimum payment", "Card number", "Statement date"):
        whole = {text for key, text in PARAPHRASES if stems(key) == stems(label)}
        drawn = {text for seed in range(20) for text in paraphrases(random.Random(seed), label)}
        assert names(label) or drawn <= whole


def test_labels_with_braces_are_text():
    assert "{x}" in phrase(random.Random(0), "value", label="{x}")


@pytest.mark.parametrize("split", ["train", "test"])
def test_paraphrases_share_no_content_word_with_the_label(split):
    for label in LABELS:
        for seed in range(6):
            texts = paraphrases(random.Random(seed), label, split=split)
            assert len(texts) <= 2
            assert texts == paraphrases(random.Random(seed), label, split=split)
            assert [text for text in texts if shares(label, text)] == []


def test_written_paraphrases_share_no_content_word_with_their_label():
    pairs = PARAPHRASES + HELD_OUT_PARAPHRASES
    assert [(label, text) for label, text in pairs if shares(label, text)] == []


def test_a_seventh_of_the_pairs_is_of_the_test_split_alone():
    out = {text for label, text in PARAPHRASES if held_out_pair(label, text)}
    assert 0.08 < len(out) / len(PARAPHRASES) < 0.21
    train = {t for label in LABELS for seed in range(12) for t in paraphrases(random.Random(seed), label)}
    allowed = {text for label, text in PARAPHRASES if not held_out_pair(label, text)}
    assert not train & (out - allowed)


def test_train_never_asks_by_a_held_out_synonym():
    for label in LABELS:
        held = [name for name in names(label) if held_out_pair(label, name)]
        out = {t.format(label=name, Label=name) for name in held for t in TEMPLATES["value"]}
        assert not out & {t for seed in range(20) for t in paraphrases(random.Random(seed), label)}


def test_most_labels_are_paraphrased_and_random_ones_are_not():
    have = [label for label in LABELS if paraphrases(random.Random(1), label)]
    assert len(have) > 0.9 * len(LABELS)
    assert paraphrases(random.Random(1), "zzyzx quokka") == []
    assert paraphrases(random.Random(1), "") == []


def test_a_paraphrase_within_a_section_names_the_section():
    texts = [t for seed in range(9) for t in paraphrases(random.Random(seed), "Vendor", "Order 7")]
    assert texts
    assert all("order 7" in text.lower() for text in texts)


def test_unlisted_paraphrases_are_not_in_the_lexicon():
    assert len(HELD_OUT_PARAPHRASES) >= 80
    for label, text in HELD_OUT_PARAPHRASES:
        assert text in unlisted(label)
        words = text.split()
        assert not content(label) & {stem(word) for word, _ in (*expand(words), *answers(words))}
        assert (label, text) not in PARAPHRASES
