"""Dense labels of cells, study sheets and hints."""

from __future__ import annotations

import numpy as np
import torch

from arr_coc_lab.world import Question, Thing, draw_page
from making import packing
from making.sheet import draw_sheet
from making.targets import IGNORE, NONE, cell_targets, clues, evidence_mask, glyph_targets
from making.words import ROLES


def test_a_sheet_holds_more_characters_of_values_than_a_page():
    def share(draw):
        places = [glyph_targets(draw(seed, (256, 256)))[1] for seed in range(12)]
        return np.mean([(p > 0).mean() for p in places])

    assert share(draw_sheet) > 1.5 * share(draw_page)
    first, again = (draw_sheet(5, (256, 192)) for _ in range(2))
    assert first.image.tobytes() == again.image.tobytes()
    assert not first.questions


def test_targets_lie_under_what_was_drawn():
    page = draw_page(4, (512, 512))
    words, (glyphs, places) = cell_targets(page), glyph_targets(page)
    assert words.shape == (len(ROLES), 16, 16)
    assert glyphs.shape == (32, 32)
    label = words[ROLES.index("label")]
    text = evidence_mask(tuple(b for f in page.facts for b in f.boxes), 16, 16)
    assert (label >= 0).any()
    assert text[label >= 0].all()
    assert set(np.unique(words[:, label == IGNORE])) <= {IGNORE}
    centre = words[ROLES.index("centre")]
    assert (centre >= 0).sum() == len({(t.y // 32, t.x // 32) for t in page.things})
    # Every piece of every value belongs to some cell of its text, unless its cells are cut too finely.
    for fact in page.facts:
        here = evidence_mask(fact.boxes, 16, 16)
        for i in range(len(fact.value)):
            pieces = words[ROLES.index(f"value{i + 1}")][here]
            assert ((pieces >= 0) | (pieces == IGNORE)).any(), (fact, i)
    assert (glyphs == NONE).any()
    assert ((glyphs == NONE) == (places == NONE)).all()
    assert set(range(4)) <= set(np.unique(places))  # labels, and the first three characters of codes


def test_clues_name_what_a_comparison_looks_up(tokenizer):
    things = [Thing("red", "star", 10, 10, 120), Thing("blue", "ring", 500, 10, 40)]
    wide = Question(
        "Which is larger, the red star or the blue ring?", "red star", "larger", (), ("red", " star")
    )
    assert clues(wide, things, 512) == [(" red star", "7"), (" blue ring", "0")]
    left = Question(
        "Of the red star and the blue ring, which is further left?", "", "left", (), ("red", " star")
    )
    assert clues(left, things, 512) == []  # what to look up is not known yet
    colour = Question("What colour is the star?", "red", "colour", (), ("red",))
    assert clues(colour, things, 512) == []
    packed = packing.pack(tokenizer, torch.zeros(1, 2).long(), (1, 1), [wide], [clues(wide, things, 512)])
    for mention, word in ((" star", "7"), (" ring", "0")):
        at = next(i for i, x in enumerate(packed.ids.tolist()) if tokenizer.decode([x]) == mention)
        assert tokenizer.decode([int(packed.hints[at])]) == word
