"""Written scenes: the format, what stands in the files, and which of them are of the test split alone."""

import random
import re

import pytest

from arr_coc_lab.world.browser.page import write_page
from arr_coc_lab.world.browser.phrases import KINDS
from arr_coc_lab.world.browser.sheet import MARK, Sheet
from arr_coc_lab.world.browser.style import draw_style
from arr_coc_lab.world.browser.vocabulary import Vocabulary
from arr_coc_lab.world.browser.written import SLOT, TEXT, parse, scenes, write
from each import each

TEXTS = """== a ticket
<p>[gate|Gate] [value|{A/B}{10-12}] for <b>{name:who}</b>, [again|{name:who}] & [price|{price}]</p>
<pre>const x = { y: 1 / 2 }</pre>
<p>[[lamp|@on]] [label|Lamp &amp; more]</p>
<svg><text data-id="t" x="1">Fri</text><rect data-id="bar" width="3"/></svg>
? value | gate value | Where do I board? | gate of {name:who}
? switch | label lamp -> on | Is {=label} on?
? chart | t bar | How long is the bar of Friday?
? unanswerable | | How long is the flight?
"""


def sheet(seed=0, split="train"):
    rng = random.Random(seed)
    return Sheet(rng, Vocabulary(rng, split), draw_style(rng, split, ["DejaVu Sans"]))


def written(seed=0, text=TEXTS):
    page = sheet(seed)
    return write(page, parse(text)[0]), page


def test_slots_are_filled_the_same_for_a_key_and_code_keeps_its_braces():
    body, page = written()
    who = re.search(r"<b>(.+?)</b>", body)[1]
    texts = set(page.plain.values())
    assert who in texts
    assert "const x = { y: 1 / 2 }" in body
    assert any(re.fullmatch("[AB]1[0-2]", text) for text in texts)
    wordings = {page.text for seed in range(9) for page in written(seed)[1].inquiries}
    assert any(re.fullmatch(r"gate of \S.+", wording) for wording in wordings)
    assert not any("{" in wording for wording in wordings)


def test_a_key_is_of_a_sort():
    text = "== a card\n<p>[a|{name:x}] [b|{phone:x}] [c|{name:x}]</p>\n? value | a | Who?\n"
    for seed in range(5):
        body = written(seed, text)[0]
        name, phone, again = (
            re.sub("<.*?>", "", part) for part in re.findall(r"<span[^>]*>.*?</span>", body)
        )
        assert name == again != phone


def test_values_are_escaped_and_read_plain():
    body, page = written()
    assert "Lamp &amp; more" in body
    assert "Is Lamp & more on?" in [inquiry.text for inquiry in page.inquiries]


def test_evidence_are_the_pieces_that_a_line_names():
    body, page = written()
    marks = set(map(int, re.findall(rf'{MARK}="(\d+)"', body)))
    by_kind = {inquiry.kind: inquiry for inquiry in page.inquiries}
    assert page.plain[by_kind["value"].pieces[0]] == "Gate"
    assert by_kind["switch"].answer == "on"
    assert [page.plain[number] for number in by_kind["chart"].pieces] == ["Fri", ""]
    assert by_kind["unanswerable"].pieces == ()
    assert {number for inquiry in page.inquiries for number in inquiry.pieces} <= marks


def test_the_same_seed_writes_the_same_and_another_another():
    assert written(1)[0] == written(1)[0] != written(2)[0]


@each(
    ("line", "message"),
    [
        ("? value | nosuch | What?", "nosuch"),
        ("? value | gate |", "no wording"),
        ("? value | gate", "no wording"),
    ],
)
def test_a_wrong_line_is_named(line, message):
    with pytest.raises(ValueError, match=message) as error:
        parse(TEXTS + line)
    assert "a ticket" in str(error.value)


def test_scenes_are_many_and_have_names_of_their_own():
    names = [scene.name for scene in scenes()]
    assert len(names) > 200
    assert len(names) == len(set(names))
    for split in ("validation", "test"):
        assert 0.08 < sum(scene.split == split for scene in scenes()) / len(names) < 0.18


@each("scene", scenes(), ids=lambda scene: scene.name.replace(" ", "-"))
def test_a_scene_is_whole(scene):
    page = sheet()
    body = write(page, scene)
    assert not TEXT.search(body), "a mark is left over"
    assert not any(sign in body for sign in ("[[", "]]", "data-id="))
    assert len(scene.questions) >= 4
    for question in scene.questions:
        assert question.kind in KINDS
        assert (question.kind == "unanswerable") == (not question.pieces)
    for inquiry in page.inquiries:
        assert inquiry.text
        assert not SLOT.search(inquiry.text)
        assert "{=" not in inquiry.text


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_scene_is_of_one_split_alone(split):
    bodies = "\n".join(write_page(seed, split, "scene")[0] for seed in range(12))
    runs = {True: set(), False: set()}
    for scene in scenes():
        runs[scene.split == split] |= set(_runs(scene.html))
    assert any(run in bodies for run in runs[True])
    assert not any(run in bodies for run in runs[False] - runs[True])


def _runs(body):
    """Long runs of text between tags and marks: those of a scene alone."""
    parts = (part.strip() for part in re.split(r"<[^<>]*>|\[\w+\||[\[\]]", body))
    return [part for part in parts if len(part) > 45 and "{" not in part]
