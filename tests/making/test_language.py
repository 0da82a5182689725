"""Symbolic pages for the language model."""

from __future__ import annotations

import random

from making import language


def test_pieces_of_a_value_are_all_shown_somewhere():
    rng = random.Random(0)
    for _ in range(200):
        facts, _, _ = language.symbolic_page(rng, 5, 5)
        for fact in facts:
            cells = language.spread(rng, fact)
            for i in range(len(fact.value)):
                assert any(f"value{i + 1}" in cell for cell in cells), (fact, cells)
