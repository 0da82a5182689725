"""Documents rendered by a browser: questions whose evidence really holds the answer."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from arr_coc_lab.world.browser.documents import draw_look, headings, render_document
from arr_coc_lab.world.browser.facts import Facts, Text, inquire
from arr_coc_lab.world.browser.packages import PACKAGES, SKIPPED, Package, pages

WORDS = (
    "a paragraph that says how kettles, ladders and lanterns are kept dry over winter, with twine and wax, "
    "then why each shelf carries its number in chalk"
).split()


def prose(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count)).capitalize() + "."


def manual(seed):
    rng = random.Random(seed)
    sections = "".join(
        f"<div><h2>{i}.{seed} Keeping {name}</h2><p>{prose(rng, 24)}</p><p>{prose(rng, 18)}</p></div>"
        for i, name in enumerate(("ropes", "barrels", "candles", "anchors"), 1)
    )
    things = [(thing, rng.randint(10, 99), rng.randint(2, 9)) for thing in ("Hawser", "Capstan", "Mizzen")]
    rows = "".join(
        f"<tr><td>{thing}{seed}</td><td>{kg} kg</td><td>{m} m</td></tr>" for thing, kg, m in things
    )
    names = ("reef", "belay", "splice")
    terms = "".join(f"<dt><code>{name}{seed}()</code></dt><dd>{prose(rng, 14)}</dd>" for name in names)
    bar = "position:fixed;top:0;left:0;right:0;height:40px;background:#ddd"
    return (
        f"<html><body><div style='{bar}'>Harbour manual</div><h1>Manual {seed}</h1><dl>{terms}</dl>"
        f"<table><tr><th>Thing</th><th>Weight</th><th>Length</th></tr>{rows}</table>{sections}"
        f"<table><tr><td>Maker</td><td>Yard {seed}</td></tr><tr><td>Colour</td><td>Tar</td></tr></table>"
        f"<script>document.body.append('scripted')</script><p>{prose(rng, 300)}</p></body></html>"
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("share")
    for folder in ("rigging", "lamps"):
        (root / folder).mkdir()
        for i in range(4):
            (root / folder / f"{i}.html").write_text(manual(i + (10 if folder == "lamps" else 0)))
    (root / "rigging" / "genindex.html").write_text(manual(7))
    packages = (Package("rigging", "train", "hand", "rigging"), Package("lamps", "test", "hand", "lamps"))
    return (root,), packages


@pytest.fixture(scope="module")
def rendered(chromium, shelf):
    return [render_document(chromium, seed, "train", *shelf) for seed in range(8)]


def test_splits_share_no_package_and_the_test_split_has_looks_of_its_own():
    names = Counter(package.name for package in PACKAGES)
    assert max(names.values()) == 1
    looks = {
        split: {p.look for p in PACKAGES if p.split == split} for split in ("train", "validation", "test")
    }
    assert len(looks["test"] - looks["train"]) >= 8
    assert len(looks["test"] & looks["train"]) >= 2
    assert not looks["validation"] & looks["test"]


def test_pages_are_listed_by_split_in_order_without_indexes(shelf):
    assert list(pages("train", *shelf)) == ["rigging"]
    assert [path.name for path in pages("test", *shelf)["lamps"]] == ["0.html", "1.html", "2.html", "3.html"]
    assert all(not SKIPPED.search(path.as_posix()) for path in pages("train", *shelf)["rigging"])
    with pytest.raises(ValueError, match="split 'all' is unknown"):
        pages("all", *shelf)


def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path):
    with pytest.raises(RuntimeError, match=r"apt-get install --no-install-recommends .*git-doc"):
        pages("train", (tmp_path,))


def test_headings_of_a_file(shelf):
    (root,), _ = shelf
    assert {"1.2 Keeping ropes", "reef2()"} <= set(headings(root / "rigging" / "2.html"))


@pytest.mark.slow
def test_same_seed_same_page(chromium, shelf, rendered):
    again = render_document(chromium, 3, "train", *shelf)
    assert again.questions == rendered[3].questions
    assert again.words == rendered[3].words
    assert again.source == rendered[3].source
    assert np.array_equal(np.asarray(again.image), np.asarray(rendered[3].image))
    assert len({page.image.size for page in rendered}) > 3


def test_every_kind_is_asked(rendered):
    kinds = {question.kind for page in rendered for question in page.questions}
    assert kinds >= {"word", "crossing", "term", "section", "presence", "unanswerable", "global"}


def test_evidence_is_in_the_picture_and_holds_the_words_of_the_answer(rendered):
    for page in rendered:
        width, height = page.image.size
        for question in page.questions:
            for x0, y0, x1, y1 in question.evidence:
                assert 0 <= x0 < x1 <= width + 1
                assert 0 <= y0 < y1 <= height + 1
            if question.kind in ("global", "unanswerable"):
                assert question.evidence == ()
            elif question.kind != "presence":
                held = " ".join(
                    w.text for w in page.words if any(within(w.box, e) for e in question.evidence)
                )
                assert set(question.answer[:380].split()[:-1]) <= set(held.split()) | {question.answer}, (
                    question
                )


def within(box, evidence):
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return evidence[0] <= x <= evidence[2] and evidence[1] <= y <= evidence[3]


def test_a_crossing_needs_row_column_and_cell(rendered):
    crossings = [q for page in rendered for q in page.questions if q.kind == "crossing"]
    assert crossings
    for question in crossings:
        row, column, cell = question.evidence[:1], question.evidence[1:2], question.evidence[2:]
        assert row[0][3] > column[0][3]
        assert abs(row[0][1] - cell[0][1]) < 12
        assert question.answer[-2:] in ("kg", " m")


def test_scripts_do_not_run_and_covered_text_is_no_word(rendered):
    for page in rendered:
        assert "scripted" not in {word.text for word in page.words}
        tops = [word for word in page.words if word.text == "Harbour"]
        for word in page.words:
            for bar in tops:
                apart = word.box[0] >= bar.box[2] or word.box[2] <= bar.box[0] or word is bar
                assert apart or word.box[1] >= bar.box[3] - 1 or word.box[3] <= bar.box[1] + 1


def test_what_occurs_in_the_viewport_is_not_unanswerable():
    facts = Facts((), "here is belay and more", (), (), (), (), ())
    assert not [q for q in inquire(random.Random(0), facts, ["Belay"]) if q.kind == "unanswerable"]
    assert [q for q in inquire(random.Random(0), facts, ["Belay", "Splice"]) if q.kind == "unanswerable"]


def test_a_long_section_is_asked_for_by_its_first_paragraph():
    heading, start = Text("Knots", ((0, 0, 50, 10),)), Text("How to tie them", ((0, 20, 90, 30),))
    facts = Facts((), "knots", (), ((heading, None, start),), (), (), ())
    (question,) = [q for q in inquire(random.Random(0), facts, []) if q.kind == "section"]
    assert question.evidence == heading.boxes + start.boxes
    assert question.answer == start.plain


def test_terms_of_the_same_name_are_not_asked_for():
    first, second = (Text("Page.next()", ((0, y, 50, y + 10),)) for y in (0, 50))
    meaning = Text("the page after it", ((0, 20, 90, 30),))
    terms = (("next:", first, meaning), ("next", second, meaning), ("last", second, meaning))
    facts = Facts((), "", (), (), terms, (), ())
    (question,) = [q for q in inquire(random.Random(0), facts, []) if q.kind == "term"]
    assert "last" in question.text


def test_looks_vary_within_bounds():
    looks = [draw_look(random.Random(i), "train") for i in range(60)]
    assert len({look.css for look in looks}) > 20
    assert len({(look.width, look.height) for look in looks}) > 20
    assert all(look.width * look.height * look.scale**2 <= 2_100_000 for look in looks)
