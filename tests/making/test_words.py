"""Tokenizer, embeddings and roles of the bundled model."""

from __future__ import annotations

import torch

from making import language
from making.words import ROLE_WORDS, ROLES, build_roles


def test_any_text_is_legal_and_comes_back(tokenizer):
    for text in ("What is the invoice number?", "ça va? 数字 🙂\n\t~", "Z9K QQ7", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_codes_are_cut_into_single_characters(tokenizer):
    assert [tokenizer.decode([i]) for i in tokenizer.encode("WHAT7K2")] == list("WHAT7K2")


def test_role_words_are_orthonormal_and_variants_are_near(tokenizer, embeddings):
    words = sorted({w for words in ROLE_WORDS.values() for w in words})
    rows = embeddings[[tokenizer.encode(w)[0] for w in words]]
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(words)), atol=1e-5, rtol=0)
    a, b = (embeddings[tokenizer.encode(w)[0]] for w in ("red", " red"))
    assert 0.6 < float(a @ b) < 0.99


def test_a_sum_of_words_can_be_read_back_in_every_role(tokenizer, embeddings):
    roles = build_roles(tokenizer, embeddings)
    torch.manual_seed(0)
    words = torch.stack([torch.randint(len(ROLE_WORDS[r]), (40,)) for r in ROLES], 1)
    words[:, 5:] = -1  # a shape: colour, shape, centre, size, column
    scores = roles.scores(language.sum_of_words(words, roles, noise=0.0))
    for r, role in enumerate(ROLES[:5]):
        start, stop = roles.spans[role]
        assert (scores[:, start:stop].argmax(1) == words[:, r]).all(), role
