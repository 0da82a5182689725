"""Every page type: deterministic, answerable and unambiguous questions, boxes inside the picture."""

import os
import random
import re
import shutil
import subprocess
import sys
import zlib
from collections import defaultdict
from dataclasses import replace
from functools import cache
from html import unescape

import pytest

from arr_coc_lab.world.browser import page
from arr_coc_lab.world.browser.chromium import NAMES, Chromium
from arr_coc_lab.world.browser.page import render_page, write_page
from arr_coc_lab.world.browser.phrases import KINDS, TEMPLATES
from arr_coc_lab.world.browser.sheet import MARK
from arr_coc_lab.world.browser.style import draw_style
from arr_coc_lab.world.browser.types import page_types
from each import each

TYPES = [kind.name for kind in page_types("test")]
SEEDS = range(3)
FIELDS = {"invoice", "form", "profile", "spec_sheet", "ticket", "receipt"}
"""Types of labels with values."""
FREE = {"global", "unanswerable", "presence", "anomaly"}
"""Kinds that may go without evidence."""
NEEDED = os.environ.get("ARR_COC_BROWSER") == "required"
browser = pytest.mark.skipif(
    not NEEDED and not any(map(shutil.which, NAMES)),
    reason="no browser; ARR_COC_BROWSER=required fails instead",
)


@cache
def written(name, seed):
    """The HTML and the sheet of a page."""
    return write_page(seed, "train", name)[:2]


@each("name", TYPES)
@each("split", ["train", "test"])
def test_the_same_seed_gives_the_same_page(name, split):
    html, sheet, kind = write_page(3, split, name)
    again, twin, _ = write_page(3, split, name)
    assert kind == name
    assert html == again
    assert sheet.inquiries == twin.inquiries
    assert html != write_page(4, split, name)[0]


@pytest.mark.slow
def test_no_page_hangs_on_the_order_of_a_set():
    code = (
        "import zlib; from arr_coc_lab.world.browser.page import write_page, page_types;"
        "print([zlib.crc32(write_page(1, 'train', t.name)[0].encode()) for t in page_types('test')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == str([zlib.crc32(written(name, 1)[0].encode()) for name in TYPES])


@each("name", TYPES)
def test_questions_have_answers_on_the_page(name):
    for seed in SEEDS:
        html, sheet = written(name, seed)
        marks = set(map(int, re.findall(rf'{MARK}="(\d+)"', html)))
        assert len(sheet.inquiries) >= 3
        for kind, text, answer, pieces, _ in sheet.inquiries:
            assert kind in KINDS
            assert text.strip()
            assert "{" not in text
            assert set(pieces) <= marks, f"{text!r} needs a piece that is not in the HTML"
            assert pieces or kind in FREE
            assert answer or kind in {"global", "section"}


@each("name", TYPES)
def test_no_question_has_two_answers(name):
    for seed in SEEDS:
        answers = defaultdict(set)
        for kind, text, _, pieces, _ in written(name, seed)[1].inquiries:
            if kind != "paraphrase":
                answers[text.casefold()].add(frozenset(pieces))
        double = [text for text, evidence in answers.items() if len(evidence) > 1]
        assert not double


@each("name", TYPES)
def test_a_label_without_context_stands_once(name):
    for seed in SEEDS:
        html, sheet = written(name, seed)
        labels = defaultdict(set)
        for kind, question, _, pieces, _ in sheet.inquiries:
            text = re.search(rf'{MARK}="{pieces[0]}"[^>]*>(.*?)</', html, re.DOTALL) if pieces else None
            label = unescape(text[1]).rstrip(" :") if text else ""
            if kind == "value" and question.casefold() in {
                template.format(label=label, Label=label).casefold() for template in TEMPLATES["value"]
            }:
                labels[label.casefold()].add(pieces[0])
        assert labels or name not in FIELDS
        assert [label for label, numbers in labels.items() if len(numbers) > 1] == []


@pytest.fixture(scope="module")
def chromium():
    with Chromium() as opened:
        yield opened


@pytest.mark.slow
@browser
@pytest.mark.parametrize("name", TYPES)
def test_questions_keep_their_evidence_on_a_desktop(name, chromium, monkeypatch):
    def desktop(rng: random.Random, split, families):
        return replace(draw_style(rng, split, families), width=1280, height=800, scale=1.0, size=15.0)

    monkeypatch.setattr(page, "draw_style", desktop)
    kept = count = 0
    for seed in range(2):
        count += len(write_page(seed, "train", name)[1].inquiries)
        rendered = render_page(chromium, seed, "train", name)
        kept += len(rendered.questions)
        assert rendered.image.size == (1280, 800)
        for question in rendered.questions:
            for x0, y0, x1, y1 in question.evidence:
                assert 0 <= x0 < x1 <= 1281
                assert 0 <= y0 < y1 <= 801
    assert kept >= count / 2
