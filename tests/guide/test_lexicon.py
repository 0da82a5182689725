"""The guide's lexicon, and the table of meanings."""

from __future__ import annotations

import tracemalloc

import pytest
import torch

from arr_coc.guide.coupling import couple, view
from arr_coc.guide.guide import load_guide
from arr_coc.guide.lexicon import (
    MAX_EXPANSIONS,
    MAX_PHRASE_WORDS,
    MAX_RELATED,
    MEANING_WIDTH,
    STOP_WORDS,
    answers,
    content_words,
    expand,
    hints,
    inflections,
    lexicon,
    meaning,
    meanings,
    names,
    plain_word,
    related,
    stem,
    stems,
    synonyms,
    text_meaning,
)
from arr_coc.guide.question import terms
from each import each

# ---- guide lexicon ---------------------------------------------------------------------------------------


@each(
    ("question", "label"),
    [
        ("seller", "Vendor"),
        ("total", "Amount due"),
        ("PO", "purchase order"),
        ("passengers", "traveller"),
        ("flight mode", "Airplane mode"),
        ("GP", "Doctor"),
    ],
)
def test_synonyms_go_both_ways(question, label):
    assert label.lower() in [other.lower() for other in synonyms(question)]
    assert question.lower().rstrip("s") in [other.lower() for other in synonyms(label)]


@each("printed", ["Vendor", "VENDOR:", "vendors", "(Vendor)", "Vendor's", "vendor."])
def test_case_punctuation_and_plurals_do_not_count(printed):
    assert synonyms(printed) == synonyms("vendor") != ()


def test_strokes_part_words_but_not_abbreviations():
    assert "serial number" in synonyms("s/n")
    assert dict(expand(["the", "S/N"]))["serial"] == 1
    assert stems("Date/Time") == stems("date time")


def test_a_phrase_is_no_synonym_of_itself_and_an_unlisted_one_has_none():
    assert "vendor" not in synonyms("Vendors")
    assert synonyms("quokka enclosure") == ()


def test_a_word_of_several_senses_has_no_other_name():
    assert {"category", "cabin"} <= set(synonyms("Class"))
    assert names("Class") == ()


def test_what_is_only_asked_is_not_printed_and_verbs_are_not_askable():
    assert "sold by" in synonyms("vendor")
    assert "sold by" not in names("vendor")
    assert "supplier" in names("Vendor:")
    assert "weight" in synonyms("how heavy")
    assert "how heavy" not in synonyms("weight")


@each(
    ("forms", "root"),
    [
        (("notes", "note", "noted", "noting"), "note"),
        (("plans", "planned", "planning"), "plan"),
        (("cities", "city"), "city"),
        (("leaves", "leaving"), "leave"),
        (("cancelled", "cancels"), "cancel"),
        (("boxes",), "box"),
        (("addresses",), "address"),
    ],
)
def test_forms_of_a_word_share_a_stem(forms, root):
    assert {stem(form) for form in forms} == {stem(root)}


@each(
    ("one", "other"), [("plan", "plane"), ("not", "note"), ("car", "care"), ("add", "ad"), ("speed", "spe")]
)
def test_short_words_keep_their_stems_apart(one, other):
    assert stem(one) != stem(other)


def test_normal_strips_punctuation_and_keeps_lone_signs():
    words = ("“Total:”", "%", "ACME's", "12.50", "")
    assert [plain_word(word) for word in words] == [
        "total",
        "%",
        "acme",
        "12.50",
        "",
    ]


@each(
    ("question", "hint"),
    [
        ("When is it due?", "deadline"),
        ("Who wrote it?", "author"),
        ("where do we meet", "location"),
        ("How much is it?", "price"),
        ("How many are left?", "quantity"),
        ("how long does it take", "duration"),
        ("At what time does it open?", "hour"),
    ],
)
def test_question_words_hint(question, hint):
    assert hint in hints(question)


def test_longer_question_words_win_and_others_give_nothing():
    assert "distance" in hints("How far is it?")
    assert hints("How far is it?") != hints("How is it?")
    assert hints("Total?") == ()


@pytest.mark.slow
def test_questions_are_not_kept():
    for cached in (stem, stems):
        cached.cache_clear()
    assert "deadline" in hints("When is it due?")
    kept, words = stems.cache_info().currsize, stem.cache_info().currsize
    tracemalloc.start()
    for number in range(40):
        assert "deadline" in hints(f"When is it due? {'so ' * 3_000}{number}{'x' * 10_000}")
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert stems.cache_info().currsize == kept
    assert stem.cache_info().currsize <= words + 42  # a word of each, but not all of its letters
    assert held < 100_000


def test_expansion_names_the_word_it_stands_for():
    words = "Who is the seller of flight LH123 ?".split()
    pairs = dict(expand(words))
    assert pairs["vendor"] == 3
    assert pairs["plane"] == 5


def test_expansion_takes_the_longest_phrase():
    words = "What is the amount due?".split()
    pairs = dict(expand(words))
    assert pairs["total"] == 3
    assert "total" not in dict(expand(["due"]))


@each(
    "question",
    [
        "What is the amount due and the due date of the invoice from the vendor?",
        "total price cost fee date time day start end name address city phone mail order number item",
        "?",
        "",
        "what is of the",
        "ÄÖÜ 東京 — ’s '' 12.50 %",
    ],
)
def test_expansions_are_few_new_single_words(question):
    words = question.split()
    pairs = expand(words)
    keys = [stem(word) for word, _ in pairs]
    assert len(pairs) <= MAX_EXPANSIONS
    assert len(set(keys)) == len(keys)
    assert not set(keys) & {stem(word) for word in words}
    assert all(" " not in word and 0 <= place < len(words) for word, place in pairs)
    assert pairs == expand(words)


@each(
    ("question", "said", "printed"),
    [
        ("How much do I owe?", "owe", "balance"),
        ("Which number do I dial?", "dial", "telephone"),
        ("Is there anything for people allergic to eggs?", "allergic", "contains"),
        ("How do I get there?", "get", "directions"),
        ("What does she earn?", "earn", "salary"),
        ("Which surname is it?", "surname", "nachname"),
        ("What is the invoice number?", "invoice", "rechnungsnummer"),
    ],
)
def test_what_is_said_is_bound_to_what_answers_it(question, said, printed):
    words = question.rstrip("?").split()
    assert dict(answers(words)).get(printed) == words.index(said)


def test_bonds_go_one_way_and_name_nothing():
    assert "owe" not in dict(answers(["the", "balance"]))
    assert "owe" not in names("balance") + synonyms("balance")
    assert not {"quokka"} & dict(answers(["quokka"])).keys()


def test_accents_do_not_count():
    assert plain_word("Größe:") == "grosse"
    assert stem("Fälligkeit") == stem("falligkeit")
    assert dict(answers(["the", "size"]))["grosse"] == 1
    assert all(word.isascii() or not word.isalpha() for word, _ in answers("the due date on it".split()))


def test_a_question_looks_for_answers_as_for_synonyms():
    owed = terms("How much do I owe?")
    bonds = dict(zip(owed.others, zip(owed.stands_for, owed.strengths, strict=True), strict=True))
    assert bonds["outstanding"] == (4, 1.0)


@each("question", ["", "?", "pay earn owe call ring get leave start end rent book order ship"])
def test_answers_are_few_new_single_words(question):
    words = question.split()
    pairs = answers(words)
    assert len(pairs) <= MAX_EXPANSIONS
    assert not {stem(word) for word, _ in pairs} & {stem(word) for word in words}
    assert all(" " not in word and 0 <= place < len(words) for word, place in pairs)


def test_every_line_can_be_met():
    for key in (*lexicon().bonds, *lexicon().questions):
        assert 0 < len(key.split()) <= MAX_PHRASE_WORDS, key
    for key in lexicon().bonds:
        assert " " in key or key not in map(stem, STOP_WORDS), key
    assert len(lexicon().bonds) >= 1500
    assert len(lexicon().questions) >= 2000


def test_content_words_mean_something():
    assert content_words("What is the Total of it?") == ("total",)
    assert not {"total", "date", "name"} & STOP_WORDS


def test_the_file_is_large_and_tidy():
    groups = lexicon().groups
    assert len(groups) >= 700
    assert sum(map(len, groups)) >= 3000
    for group in groups:
        keys = [entry.key for entry in group]
        assert len(keys) > 1
        assert len(set(keys)) == len(keys), f"twice the same in {[entry.text for entry in group]}"
        assert all(keys)
    assert all(lexicon().questions.values())


# ---- meanings --------------------------------------------------------------------------------------------


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


def test_the_words_of_a_stem_are_all_that_have_it() -> None:
    table, by_stem = meanings(), dict[str, list[int]]()
    for row, word in enumerate(table.words):
        by_stem.setdefault(stem(word), []).append(row)
    assert all(table.of_stem(key) == rows for key, rows in by_stem.items())
    assert table.of_stem("zzyzx") == []
