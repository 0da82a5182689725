"""What the form keeps and shows without a model."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

import gradio as gr

from arr_coc.app import handlers, samples
from arr_coc.app.asking import Refused, about
from arr_coc.app.handlers import WorstCases
from arr_coc_lab.world import draw_page

FORM = ("Where?", 273, False, "", True, "1")


class TestKeptByTheBrowser:
    def test_the_form_comes_back(self) -> None:
        form = ["What?", 12, True, "prune", False, "auto"]
        kept = json.loads(json.dumps(handlers.on_remember(*form)))
        assert handlers.on_restore(kept, *FORM) == form

    @pytest.mark.parametrize(
        "kept",
        [
            None,
            "text",
            [],
            {},
            {"question": 3, "tokens": "6", "auto": "yes", "mode": "nope", "compare": None, "magnify": 9},
            {"question": " ", "tokens": 10**9, "mode": ["prune"], "magnify": ["2"]},
            {"tokens": float("nan")},
            {"tokens": True, "percent": 6},
        ],
    )
    def test_whatever_else_a_browser_sends_is_left_out(self, kept: Any) -> None:
        *restored, compare, magnify = handlers.on_restore(kept, *FORM)
        assert [*restored, magnify] == [gr.skip()] * 5
        assert compare in (gr.skip(), True, False)

    def test_what_stays_is_not_written_again(self) -> None:
        """An answer that arrives late would undo what a user has set meanwhile."""
        kept = handlers.on_remember("What?", *FORM[1:])
        assert handlers.on_restore(kept, *FORM) == ["What?", *[gr.skip()] * 5]
        assert handlers.on_restore(None, *FORM) == [gr.skip()] * 6

    def test_a_long_question_is_cut(self) -> None:
        assert len(handlers.on_remember("x" * 9999, *FORM[1:])["question"]) == handlers.MAX_KEPT


class TestSamples:
    def test_a_chip_has_the_picture_and_the_question_as_text(self) -> None:
        made = samples.chip(samples.AppSample(Image.new("RGB", (300, 100), (200, 30, 30)), "<b>Where?</b>"))
        assert "&lt;b&gt;Where?&lt;/b&gt;" in made
        data = re.search(r"data:image/jpeg;base64,([^\"]+)", made)
        assert data is not None
        picture = Image.open(io.BytesIO(base64.b64decode(data[1])))
        assert picture.size == samples.THUMBNAIL
        assert all(abs(a - b) < 12 for a, b in zip(picture.getpixel((48, 48)), (200, 30, 30), strict=True))

    def test_true_answers_are_those_of_the_drawn_pages(self) -> None:
        seed = json.loads(samples.SAMPLE.read_text(encoding="utf-8"))["seed"]
        page = draw_page(seed, (1024, 1024), "test", void=False)
        answers = {question.text: question.answer for question in page.questions}
        first, counted = samples.bundled_sample(), samples.picture_samples()[-1]
        assert first.true_answers == (answers[first.question],)
        assert (first.group, counted.group, counted.true_answers) == (*[samples.READ_BY_BUNDLED] * 2, ("4",))


class TestWorstCases:
    @pytest.mark.parametrize(
        ("count", "title"),
        [
            (0, "No answer of run.jsonl is wrong."),
            (1, "The answer of run.jsonl where most was lost against all tokens: choose it"),
            (2, "The 2 answers of run.jsonl where most was lost against all tokens: choose one"),
        ],
    )
    def test_title(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, title: str) -> None:
        case = {"question": "Why?", "answer": "a", "right": "b"}
        monkeypatch.setattr("arr_coc_lab.evaluate.worst.worst_cases", lambda *_, **__: [case] * count)
        image = Image.new("RGB", (32, 32))
        monkeypatch.setattr("arr_coc_lab.evaluate.worst.case_images", lambda _, cases: [image] * len(cases))
        text, gallery = handlers.on_gallery(WorstCases(tmp_path / "run.jsonl"))
        assert text.startswith(title)
        assert (len(gallery["value"]), gallery["visible"]) == (count, count > 0)


def test_a_refusal_names_its_field() -> None:
    with pytest.raises(Refused, match="too much") as refusal, about("budget"):
        raise ValueError("too much")
    assert refusal.value.field == "budget"
    with pytest.raises(Refused) as refusal, about("image"), about("question"):
        raise ValueError("empty")
    assert refusal.value.field == "question"
