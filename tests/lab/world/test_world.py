"""The bundled world: deterministic, full, honest about its evidence."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from arr_coc_lab.world import draw_page, page_seed
from arr_coc_lab.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS
from arr_coc_lab.world.layout import HELD_OUT_TEMPLATES, TRAIN_TEMPLATES
from arr_coc_lab.world.vocabulary import ALPHABET, COLOURS, FAMILIES, SHAPES, plural

CELL = 32
COUNTED = re.compile(
    r"(?:[Hh]ow many|Count the|number of) ([a-z ]+?)(?: are there| can you see| there are|\.|\?)"
)


def cells(boxes, height, width):
    mask = np.zeros((height, width), bool)
    for x0, y0, x1, y1 in boxes:
        mask[max(0, y0) // CELL : (y1 - 1) // CELL + 1, max(0, x0) // CELL : (x1 - 1) // CELL + 1] = True
    return mask


def test_same_seed_same_page_and_other_seed_another():
    a, b, c = draw_page(5, (320, 256)), draw_page(5, (320, 256)), draw_page(6, (320, 256))
    assert a.image.tobytes() == b.image.tobytes()
    assert a.questions == b.questions
    assert a.image.tobytes() != c.image.tobytes()


def test_splits_share_no_seed():
    seeds = {split: {page_seed(i, split) for i in range(500)} for split in ("train", "validation", "test")}
    assert not seeds["train"] & seeds["validation"]
    assert not seeds["train"] & seeds["test"]
    assert not seeds["validation"] & seeds["test"]


@pytest.mark.slow
def test_test_split_has_templates_and_fonts_never_trained_on():
    assert not set(TRAIN_TEMPLATES) & set(HELD_OUT_TEMPLATES)
    assert not set(TRAIN_FONTS) & set(HELD_OUT_FONTS)
    train = {draw_page(i, (400, 400)).template for i in range(40)}
    test = {draw_page(i, (400, 400), "test").template for i in range(40)}
    assert train <= set(TRAIN_TEMPLATES)
    assert test & set(HELD_OUT_TEMPLATES)


@pytest.mark.parametrize("size", [(256, 256), (2048, 300), (333, 777), (64, 64), (1024, 640)])
def test_any_size_and_aspect_ratio(size):
    page = draw_page(3, size)
    assert page.image.size == size
    assert page.image.mode == "RGB"


@pytest.mark.slow
def test_pages_are_full_and_evidence_is_small():
    ink, share = [], []
    for seed in range(12):
        page = draw_page(seed, (1024, 1024), "test", void=False)
        grey = np.asarray(page.image.convert("L"), float).reshape(32, CELL, 32, CELL)
        ink.append((grey.std(axis=(1, 3)) > 4).sum())
        share += [cells(q.evidence, 32, 32).mean() for q in page.questions if q.evidence]
    assert min(ink) >= 500
    assert np.mean(share) < 0.05


@pytest.mark.slow
def test_every_family_is_asked_and_answered_from_the_page():
    seen = Counter()
    for seed in range(15):
        page = draw_page(seed, (1024, 1024), void=False)
        texts = {f.label: "".join(f.value) for f in page.facts}
        for q in page.questions:
            seen[q.family] += 1
            assert q.answer == "".join(q.pieces)
            if q.family in ("value", "table", "gray", "small"):
                assert 2 <= len(q.answer) <= 5
                assert set(q.answer) <= set(ALPHABET)
                assert q.answer in texts.values()
            if q.family == "count":
                what = COUNTED.search(q.text)
                assert what is not None, q.text
                words = what[1].split()
                hits = [
                    t
                    for t in page.things
                    if (words[0] == t.colour if len(words) == 2 else words[0] == plural(t.shape))
                ]
                assert int(q.answer) == len(hits) <= 6
                assert len(q.evidence) == len(hits)
            if q.family == "presence":
                colour, shape = re.search(r"\ban? (\w+) (\w+)", q.text).groups()
                there = any((t.colour, t.shape) == (colour, shape) for t in page.things)
                assert q.answer == ("yes" if there else "no")
    assert set(seen) == set(FAMILIES)


@pytest.mark.slow
def test_colour_and_shape_questions_have_one_answer():
    for seed in range(20):
        page = draw_page(seed, (768, 768))
        for q in page.questions:
            if q.family == "colour":
                shape = next(s for s in SHAPES if s in q.text)
                assert {t.colour for t in page.things if t.shape == shape} == {q.answer}
            if q.family == "shape":
                colour = next(c for c in COLOURS if c in q.text)
                assert {t.shape for t in page.things if t.colour == colour} == {q.answer}


def test_void_page_has_nothing_to_read():
    page = draw_page(1, (512, 512), void=True)
    assert not page.facts
    assert not page.things
    assert {q.answer for q in page.questions} <= {"no", "0"}


def test_facts_do_not_lie_outside_the_page():
    for seed in range(10):
        page = draw_page(seed, (512, 384))
        for box in [b for f in page.facts for b in f.boxes] + [t.box for t in page.things]:
            assert -2 <= box[0] < box[2] <= 514, box
            assert -2 <= box[1] < box[3] <= 386, box


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"seed": -1}, "seed -1"),
        ({"seed": 0, "size": (32, 400)}, "32x400"),
        ({"seed": 0, "split": "holdout"}, "'holdout'"),
    ],
)
def test_bad_arguments_are_named(kwargs, message):
    with pytest.raises(ValueError, match=message):
        draw_page(**kwargs)
