"""Learning to read rendered pages: windows, questions, and the three stages in a row on tiny pages."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rendered_pages import FIELDS, fill

from arr_coc_lab.teaching.page import OpenPage, opened
from arr_coc_lab.world.browser.cache import CachedPages
from making import answers, reading, rendered
from making.inquiry import AskedWindows, enciphered, inquiries, least_print
from making.packing import IGNORED
from making.printed import labels
from making.words import spelling_tokenizer
from muon import needs_muon

ROOT = Path(__file__).parents[2]
BASE = ROOT / "src/arr_coc/bundled/model/model.safetensors"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    return fill(tmp_path_factory.mktemp("pages"))


def test_perfect_eyes_have_no_loss(pages, tokenizer, embeddings):
    spelling = reading.build_spelling(tokenizer, embeddings)
    batch = reading.Texts(pages, "train", 128, 0, 1, 0.0).cut(random.Random(0))
    eyes = answers.sum_of_pieces(batch["places"].T, batch["counts"].T, spelling, noise=0.0)
    good, figures = reading.print_loss(eyes, batch["places"], batch["counts"], spelling)
    bad, _ = reading.print_loss(torch.zeros_like(eyes), batch["places"], batch["counts"], spelling)
    assert float(good) < 0.3 * float(bad)
    assert figures["piece"] > 0.9
    assert figures["blank"] > 0.95


def test_an_answer_lies_in_the_cells_that_spell_it(pages, tokenizer):
    page = opened(CachedPages(pages, "train")[0])
    words = [word._replace(size=20.0) for word in page.words]
    marks = labels(words, 5, 10)
    questions = list(inquiries(page.questions, words, marks))
    assert [tokenizer.decode(q.tokens) for q in questions] == [value for _, value in FIELDS]
    for inquiry in questions:
        assert len(inquiry.cells) == len(inquiry.tokens) + 1
        for cell, token in zip(inquiry.cells, inquiry.tokens, strict=False):
            assert token - 7 in marks.places[:, *cell]
    assert least_print(page.questions[0], page.words) == 16.0
    assert least_print(page.questions[-1], page.words) == 0.0


def test_other_letters_change_page_and_question_alike(pages):
    page = opened(CachedPages(pages, "train")[0])
    other = enciphered(page, random.Random(1))
    assert isinstance(other, OpenPage)
    for before, after in zip(page.questions, other.questions, strict=True):
        assert len(before.answer) == len(after.answer)
        printed = " ".join(word.text for word in other.words)
        assert after.answer in printed
        if before.kind == "value":
            assert after.text.startswith("What is the ")
            assert after.text.removeprefix("What is the ").rstrip("?") in printed


@pytest.mark.parametrize("pixels", [False, True])
def test_windows_are_asked_with_every_answer_in_sight(pages, tokenizer, pixels):
    fast = spelling_tokenizer(tokenizer)
    batch = AskedWindows(fast, pages, "train", 0, 4, batch=2, pixels=pixels)[1]
    numbers = [number for row in batch["pointers"] for cells in row for number in cells]
    assert len(numbers) == int((batch["labels"] != IGNORED).sum())
    assert min(numbers) >= 0
    assert len(batch["places"]) == (len(batch["kept"]) if pixels else int(batch["kept"].sum()))
    assert int(batch["visual"].sum()) == int(batch["kept"].sum())


@pytest.mark.slow
@needs_muon
def test_stages_run_end_to_end_and_are_measured(pages, tmp_path):
    eyes, mind, both = (tmp_path / f"{name}.safetensors" for name in ("eyes", "mind", "both"))
    for steps in (1, 2):  # the second call goes on
        reading.train(eyes, pages, pages, BASE, steps, 96, 1e-4, 0.5, 1)
        answers.train(mind, pages, BASE, steps, 1, 1e-4, 0.5, 1)
    assert "held out" in json.loads(eyes.with_suffix(".jsonl").read_text().splitlines()[-1])
    folder = tmp_path / "model"
    rendered.train(both, BASE, eyes, mind, pages, folder, 1, 1e-4, 0.0, 0.1, 1)
    out = tmp_path / "reading.json"
    command = [sys.executable, "runs/reading.py", str(folder), str(out), "--pages", str(pages)]
    subprocess.run([*command, "--questions", "2", "--drawn", "1"], cwd=ROOT, check=True, capture_output=True)
    result = json.loads(out.read_text())
    assert result["rendered"]["labelled"]["questions"] == 2
    assert result["drawn"]["all"]["questions"] == 1


def test_a_missing_checkpoint_is_named(tmp_path, model):
    with pytest.raises(FileNotFoundError, match="nothing"):
        rendered.put_together(model, tmp_path / "nothing.safetensors", None, None)
