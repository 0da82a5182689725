"""The open vocabulary: one seed, one text; held-out words stay out of training; every sort has a value."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib

import pytest

from each import each

pytest.importorskip("wordfreq")
pytest.importorskip("faker")

from arr_coc_lab.world.browser.vocabulary import (
    LANGUAGES,
    SORTS,
    Vocabulary,
    barred,
    common_words,
    held_out,
)

OTHERS = ("amount", "address", "company", "job", "country")


def sample(seed, split="test"):
    words = Vocabulary(random.Random(seed), split)
    return [words.of(sort) for sort in SORTS + OTHERS] + [words.title(), words.sentence(), words.paragraph()]


@each("language", sorted(set(LANGUAGES)))
def test_held_out_words_are_of_the_test_split_alone(language):
    train, test = common_words(language, "train"), common_words(language, "test")
    assert len(set(train)) > 5_000
    assert not any(map(held_out, train))
    assert set(train) == set(common_words(language, "validation"))
    out = set(test) - set(train)
    assert 0.1 < len(out) / len(set(test)) < 0.15
    assert all(map(held_out, out))


VULGAR = {
    "en": 0xF9835DCC, "de": 0x24DCF749, "fr": 0x38AFC9B0, "es": 0xF123EC79, "it": 0xCA916AD5,
    "pt": 0x2C7C0603, "nl": 0x780D9066, "sv": 0x1B228099, "pl": 0x799FE32E,
}  # fmt: skip
"""A hash of a vulgar word of each language."""


@each("language", VULGAR)
def test_vulgar_words_are_left_out(language):
    from wordfreq import top_n_list

    def has(words):
        return VULGAR[language] in {zlib.crc32(word.encode()) for word in words}

    assert has(top_n_list(language, 30_000))
    assert not any(has(common_words(language, split)) for split in ("train", "test"))
    assert not any(map(barred, common_words(language, "test")))


def test_training_texts_have_no_held_out_word():
    words = Vocabulary(random.Random(4), "train")
    assert not any(held_out(words.word()) for _ in range(500))


def test_half_of_the_words_of_the_test_split_may_be_held_out_ones():
    words = Vocabulary(random.Random(4), "test")
    assert 100 < sum(held_out(words.word()) for _ in range(500)) < 400


def test_a_seed_fixes_every_text():
    assert sample(5) == sample(5)
    assert sample(5) != sample(6)


@pytest.mark.slow
def test_texts_are_the_same_in_every_process():
    code = (
        "import random; from arr_coc_lab.world.browser.vocabulary import Vocabulary;"
        "print([Vocabulary(random.Random(i), 'test').of(s) for i in range(25) for s in ('place', 'name')])"
    )
    outputs = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, "-c", code]
        outputs.add(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)
    assert len(outputs) == 1


def test_every_sort_has_a_value():
    words = Vocabulary(random.Random(7), "train")
    for sort in SORTS + OTHERS:
        for _ in range(20):
            text = words.of(sort)
            assert text == text.strip() != ""
            assert "\n" not in text
    drawn = {words.value()[0] for _ in range(400)}
    assert drawn == set(SORTS)


def test_an_unknown_sort_is_refused_by_name():
    with pytest.raises(ValueError, match="'colour' is unknown"):
        Vocabulary(random.Random(0), "train").of("colour")
