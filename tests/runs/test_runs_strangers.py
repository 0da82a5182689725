"""The pages of another author: every question is whole, and its evidence is in the picture."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from arr_coc_lab.evaluate.guide_pages import page_samples
from arr_coc_lab.world.browser.cache import write
from arr_coc_lab.world.browser.chromium import NAMES, Chromium
from arr_coc_lab.world.browser.phrases import KINDS
from each import each

sys.path.insert(0, str(Path(__file__).parents[2] / "runs"))

import strangers

PAGES = strangers.read_pages()
GENERIC = ("serif", "sans-serif", "monospace", "cursive")
SOME = (1, 22, 61)
"""A page of tables, and two whose evidence is shapes too, one of them drawn larger."""
NEEDED = os.environ.get("ARR_COC_BROWSER") == "required"
browser = pytest.mark.skipif(
    not NEEDED and not any(map(shutil.which, NAMES)),
    reason="no browser; ARR_COC_BROWSER=required fails instead",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as each:
        yield each


def test_every_file_is_a_page() -> None:
    files = sorted(path.name for path in strangers.PAGES.glob("*.html"))
    assert [page.file for page in PAGES] == files
    assert all(page.file.startswith(f"{page.number:03d}-") for page in PAGES)
    assert (len(PAGES), sum(len(page.queries) for page in PAGES)) == (61, 364)


@each("page", PAGES, ids=lambda page: page.file)
class TestPages:
    def test_questions_are_whole(self, page: strangers.Page) -> None:
        assert page.queries
        assert len({query.text for query in page.queries}) == len(page.queries)
        for query in page.queries:
            assert query.kind in KINDS
            assert query.text.strip()
            assert all(query.evidence)
            assert (not query.evidence) == (query.kind == "unanswerable")

    def test_a_page_needs_nothing_but_its_file(self, page: strangers.Page) -> None:
        html = (strangers.PAGES / page.file).read_text(encoding="utf-8")
        assert not re.search(r"<script|<link|<img|@import|url\(|://", html)
        fonts = re.findall(r"font(?:-family)?:([^;}]*)", html)
        assert fonts
        assert all(
            font == "inherit" or font.endswith(tuple(f",{name}" for name in GENERIC)) for font in fonts
        )


@browser
@each("number", SOME)
def test_evidence_is_in_the_picture(number: int, chromium: Chromium, tmp_path: Path) -> None:
    page = PAGES[number - 1]
    rendered = strangers.render(chromium, page)
    (tmp_path / "test").mkdir()
    write(tmp_path / "test" / str(number), rendered)
    (sample,) = page_samples(tmp_path)
    width, height = sample.image.size
    assert width == round(page.width * page.scale)
    assert [q.text for q in sample.questions] == [q.text for q in page.queries]
    assert len(sample.words) > 20
    for question, query in zip(sample.questions, page.queries, strict=True):
        assert bool(question.evidence) == bool(query.evidence)
        for x0, y0, x1, y1 in question.evidence:
            assert 0 <= x0 < x1 <= width
            assert 0 <= y0 < y1 <= height


@browser
def test_evidence_is_where_its_text_stands(chromium: Chromium) -> None:
    page = PAGES[0]
    rendered = strangers.render(chromium, page)
    label, date = rendered.questions[0].evidence
    assert page.queries[0].evidence == ("Payable by", "11 April 2025")
    for (x0, y0, x1, y1), text in ((label, "Payable by"), (date, "11 April 2025")):
        inside = [
            word.text
            for word in rendered.words
            if x0 - 1 <= word.box[0]
            and word.box[2] <= x1 + 1
            and y0 - 1 <= word.box[1]
            and word.box[3] <= y1 + 1
        ]
        assert " ".join(inside) == text


@browser
@each(
    ("spec", "message"),
    [
        ("Nowhere", "0 places"),
        ("£", "places"),
        ("~td", "elements"),
        ("x:Nowhere||Rate", "0 cells read Nowhere"),
    ],
)
def test_evidence_that_is_not_one_thing_is_refused(spec: str, message: str, chromium: Chromium) -> None:
    page = PAGES[0]
    query = replace(page.queries[0], evidence=(spec,))
    with pytest.raises(ValueError, match=f"{page.file}.*{message}"):
        strangers.render(chromium, replace(page, queries=(query,)))
