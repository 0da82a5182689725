"""The measurement of the guide, on pages made by hand: no browser, no weights."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc.choose.attending import TokenAllocator
from arr_coc.choose.budget import enough_cells
from arr_coc.guide import coupling
from arr_coc.guide.head import Judgement
from arr_coc.guide.print_encoder import PLACE
from arr_coc_lab.evaluate.guide import (
    FOREIGN,
    GUIDE,
    METHODS,
    ORACLE,
    Sample,
    auc,
    auto_cells,
    budgets_of,
    by_axis,
    by_kind,
    calibration,
    kept_by,
    kept_by_null,
    measure,
    summarise,
)
from arr_coc_lab.evaluate.guide_pages import EFFECTS, drawn_samples, misspelt
from arr_coc_lab.rivals.nulls import ink_density
from arr_coc_lab.world.browser.chromium import Word
from arr_coc_lab.world.browser.page import Inquired


@pytest.fixture(autouse=True)
def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures are read as they are: a `Pointer` counts in cells of 32 px."""
    monkeypatch.setattr(coupling, "ENLARGED", 1.0)


class Pointer:
    """In place of a guide: it looks where the question says ("x y" in cells), or nowhere."""

    def page(self, pixels):
        size = pixels.shape[-2] // PLACE[0], pixels.shape[-1] // PLACE[1]
        return SimpleNamespace(size=size, runs=torch.zeros(1, *size, dtype=torch.long).repeat(1, 1, 8))

    def judge(self, page, texts):
        logits = torch.full((len(texts), *page.size), -8.0)
        for i, text in enumerate(texts):
            if text[0].isdigit():
                x, y = map(int, text.split())
                logits[i, 2 * y : 2 * y + 2, x] = 8.0
        present = torch.tensor([4.0 if text[0].isdigit() else -4.0 for text in texts])
        whole = torch.tensor([3.0 if text == "everything" else -3.0 for text in texts])
        return Judgement(logits, present, whole, -whole.abs())


def cell(x: int, y: int):
    """The box of a cell."""
    return (32.0 * x, 32.0 * y, 32.0 * x + 32, 32.0 * y + 32)


def question(x: int, y: int, kind: str = "value", *more) -> Inquired:
    return Inquired(kind, f"{x} {y}", "", (cell(x, y), *more))


def page(*questions: Inquired, size=(512, 512), **more) -> Sample:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((100, 100), "print", fill="black")
    return Sample("made", image, questions, **more)


NOTHING = Inquired("unanswerable", "nothing", "", ())
ALL = Inquired("global", "everything", "", ())


def test_a_ranking_keeps_exactly_what_its_best_cells_hold():
    scores = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    evidence = torch.tensor([True, False, True, False, False, True])
    kept = kept_by(scores, evidence, {"1": 1, "3": 3, "6": 6})
    assert [round(each.recall, 3) for each in kept.values()] == [0.333, 0.667, 1.0]
    assert [each.whole for each in kept.values()] == [0.0, 0.0, 1.0]
    assert [each.cells for each in kept.values()] == [1, 3, 6]


def test_what_is_pointed_at_is_kept_and_what_is_not_counts_as_missed():
    far = cell(15, 15)  # of the cells without a score of their own the first are taken
    scored = list(measure(Pointer(), [page(question(3, 4), question(1, 1, "crossing", far))]))
    first, second = (one.kept[GUIDE]["64"] for one in scored)
    assert (first.recall, first.whole, first.cells) == (1.0, 1.0, 64)
    assert (second.recall, second.whole) == (0.5, 0.0)
    assert summarise(scored)[GUIDE]["64"] == {"questions": 2, "recall": 0.75, "whole": 0.5, "cells": 64}


def test_another_pages_question_points_elsewhere():
    samples = [page(question(0, 15)), page(question(15, 15))]
    one, other = measure(Pointer(), samples, [GUIDE, FOREIGN])
    assert other.kept[GUIDE]["64"].recall == 1.0
    assert other.kept[FOREIGN]["64"].recall == 0.0
    assert one.kept[GUIDE]["64"].recall == 1.0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_question_is_another_pages_on_its_own_page(count):
    """Every one of the first page is of the same place: asked of its own page, it would be kept."""
    first = page(*(question(0, 15) for _ in range(count)))
    scored = list(measure(Pointer(), [page(NOTHING), first, page(question(15, 15))], [GUIDE, FOREIGN]))
    assert [set(one.kept) for one in scored] == [set(), *[{GUIDE}] * count, {GUIDE, FOREIGN}]
    assert summarise(scored)[FOREIGN]["64"] == {"questions": 1, "recall": 0.0, "whole": 0.0, "cells": 64}


def test_counts_are_left_out_where_a_page_has_no_more_cells():
    assert budgets_of(1024) == {
        "64": 64,
        "128": 128,
        "273": 273,
        "64/1024": 64,
        "128/1024": 128,
        "273/1024": 273,
    }
    assert budgets_of(128) == {"64": 64, "64/1024": 8, "128/1024": 16, "273/1024": 34}
    assert set(budgets_of(16)) == {"64/1024", "128/1024", "273/1024"}


@pytest.mark.parametrize("needed", [1, 3])
def test_nulls_are_what_chance_and_the_best_choice_are(needed):
    evidence = torch.zeros(256, dtype=torch.bool)
    evidence[5 : 5 + needed] = True
    oracle = kept_by_null(ORACLE, evidence, (16, 16), {"2": 2, "64": 64})
    assert oracle["64"][:2] == (1.0, 1.0)
    assert oracle["2"].recall == pytest.approx(min(1, 2 / needed))
    random = kept_by_null("random", evidence, (16, 16), {"2": 2, "64": 64, "256": 256})
    assert random["64"].recall == 0.25
    drawn = [bool(evidence[torch.randperm(256)[:64]].sum() == needed) for _ in range(2000)]
    assert random["64"].whole == pytest.approx(sum(drawn) / 2000, abs=0.04)
    assert random["2"].whole == (0.0 if needed == 3 else pytest.approx(2 / 256))
    assert random["256"].whole == pytest.approx(1.0)


def test_every_method_is_measured_by_every_budget():
    _, one, *_ = measure(Pointer(), [page(question(0, 0)), page(question(3, 4), NOTHING)])
    assert set(one.kept) == set(METHODS)
    assert all(set(budgets_of(256)) <= set(each) for each in one.kept.values())
    assert "auto" in one.kept[GUIDE]
    with pytest.raises(ValueError, match="unknown"):
        list(measure(Pointer(), [page(question(3, 4))], ["dowsing"]))


def test_another_method_is_measured_by_what_it_chooses():
    def choose(sample, text, budget):
        mask = torch.zeros(sample.grid, dtype=torch.bool).flatten()
        mask[: 16 if budget == "auto" else budget] = True
        return mask

    first, last = measure(Pointer(), [page(question(0, 0), question(0, 15))], [GUIDE], others={"top": choose})
    assert (first.kept["top"]["64"].recall, last.kept["top"]["64"].recall) == (1.0, 0.0)
    assert first.kept["top"]["auto"].cells == 16


def test_a_padded_image_has_whole_cells():
    sample = page(size=(500, 300))
    image = sample.padded_image()
    assert image.size == sample.padded == (512, 320)
    assert image.crop((0, 0, 500, 300)).tobytes() == sample.image.tobytes()
    assert image.getpixel((511, 319)) == sample.image.getpixel((499, 299))


def test_ink_is_where_print_is():
    sample = page(question(0, 0))
    ink = ink_density(sample.pixels(), sample.grid)
    assert int(ink.argmax()) // 16 == 3
    assert ink[0, 0] == pytest.approx(0, abs=1e-5)


def test_auto_is_what_the_product_spends():
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(3, 20, 20, generator=generator) - torch.tensor([0.0, 6.0, 12.0])[:, None, None]
    spent = [len(chosen.keep) for chosen in TokenAllocator()(logits, "auto", needed=enough_cells(logits))]
    assert auto_cells(logits).tolist() == spent


def test_groups_hold_their_kinds_and_leave_out_what_has_no_evidence():
    questions = (question(1, 1), question(2, 2, "paraphrase"), question(3, 3, "colour"), NOTHING, ALL)
    parts = by_kind(list(measure(Pointer(), [page(*questions)], [GUIDE])))
    assert {name: len(part) for name, part in parts.items()} == {
        "all": 3, "fields": 1, "paraphrases": 1, "looks and sections": 1,
        "kind: value": 1, "kind: paraphrase": 1, "kind: colour": 1,
    }  # fmt: skip


def test_axes_are_the_pages_and_the_size_of_the_print():
    words = (Word("small", (34, 34, 60, 44), 9.0), Word("large", (320, 320, 350, 350), 30.0))
    sample = page(question(1, 1), question(10, 10), question(5, 5), words=words, axes={"paper": "dark"})
    axes = by_axis(list(measure(Pointer(), [sample], [GUIDE])))
    assert {name: len(part) for name, part in axes["print"].items()} == {"8-11 px": 1, "20 px and more": 1}
    assert len(axes["paper"]["dark"]) == 3


def test_verdicts_are_told_apart():
    scored = list(measure(Pointer(), [page(question(1, 1), question(2, 2), NOTHING, ALL)], [GUIDE]))
    figures = calibration(scored)
    assert figures["present"] == {"yes": 2, "no": 1, "auc": 1.0, "yes above 0": 1.0, "no above 0": 0.0}
    assert figures["whole"]["auc"] == 1.0
    assert "odd" not in figures


def test_the_area_under_the_curve_counts_ties_by_half():
    assert auc([2.0, 3.0], [0.0, 1.0]) == 1.0
    assert auc([0.0], [1.0]) == 0.0
    assert auc([1.0, 1.0], [1.0]) == 0.5
    assert auc([0.0, 2.0], [1.0]) == 0.5


@pytest.mark.parametrize("name", EFFECTS)
def test_effects_keep_the_questions_and_their_evidence(name):
    sample = page(question(3, 4), NOTHING, size=(500, 520))
    after = EFFECTS[name](sample)
    assert [len(q.evidence) for q in after.questions] == [1, 0]
    (one, _) = measure(Pointer(), [after], [GUIDE])
    assert one.needed >= 1
    assert one.cells == after.grid[0] * after.grid[1]


def test_one_letter_of_every_longer_word_is_wrong():
    text = "What is the invoice number of 2024?"
    wrong = misspelt(text)
    assert wrong == misspelt(text)
    pairs = list(zip(text.split(), wrong.split(), strict=True))
    assert all(len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) <= 1 for a, b in pairs)
    assert [a != b for a, b in pairs] == [True, False, False, True, True, False, False]


def test_drawn_pages_bring_their_families():
    (sample,) = drawn_samples(1, size=256)
    assert sample.image.size == (256, 256)
    assert all(q.kind and q.text for q in sample.questions)
