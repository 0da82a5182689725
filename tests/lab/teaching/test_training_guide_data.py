"""What the guide is taught by: slots lie on their words, windows keep evidence, kinds are even."""

import json
import random

import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc.guide.print_encoder import PLACE
from arr_coc.guide.question import ALPHABET, normal
from arr_coc_lab.teaching import relevance, spotting
from arr_coc_lab.teaching.page import OpenPage, adapted, drawn_page, easy_page, open_pages
from arr_coc_lab.teaching.relevance import CELL, LENGTHS, NONE, QUESTIONS, _pixels, _window, make_example
from arr_coc_lab.teaching.spotting import crop_page
from arr_coc_lab.teaching.stages import Crops, Examples, stream
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.chromium import Word
from arr_coc_lab.world.browser.page import Inquired
from arr_coc_lab.world.browser.phrases import KINDS

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet")


@pytest.fixture
def plain(monkeypatch):
    """Nothing is inverted, blurred or photographed."""
    monkeypatch.setattr(spotting, "distort", lambda pixels, rng: pixels)
    monkeypatch.setattr(relevance, "distort", lambda pixels, rng: pixels)
    monkeypatch.setattr(relevance, "photograph", lambda image, boxes, rng: (image, boxes))


def inked(pixels, row, column, wide):
    """Whether there is print in or just beside a cell of 8 px height."""
    part = pixels[:, max(0, 8 * row - 2) : 8 * row + 10, max(0, wide * column - 2) : wide * (column + 1) + 2]
    return float(part.amax() - part.amin()) > 0.2


def test_slots_and_characters_lie_on_print_and_empty_slots_do_not(plain):
    rng, empty = random.Random(1), []
    for _ in range(6):
        crop = crop_page(easy_page(rng, WORDS, 256), 192, rng)
        assert set(crop.words) <= {normal(word) for word in WORDS}
        on = [inked(crop.pixels, row, column, 16) for row, column, _ in crop.slots.tolist()]
        empty += [inked(crop.pixels, row, column, 16) for row, column in crop.empty.tolist()]
        spelled = [inked(crop.pixels, row, column, 8) for _, row, column in crop.letters.nonzero().tolist()]
        assert sum(on) / len(on) > 0.95
        assert sum(spelled) / len(spelled) > 0.9
    assert sum(empty) < 0.05 * len(empty)


def test_a_word_is_spelled_by_the_characters_in_its_row(plain):
    rng = random.Random(2)
    crop = crop_page(easy_page(rng, ("zebra",), 256), 192, rng)
    named = {ALPHABET[place] for place in crop.letters.any((1, 2)).nonzero()[:, 0].tolist()}
    assert named == set("zebra")
    assert crop.words == ["zebra"]


def test_windows_keep_the_evidence_of_what_they_ask(plain):
    image = Image.new("RGB", (900, 700), "white")
    box = (400.0, 300.0, 560.0, 330.0)
    ImageDraw.Draw(image).rectangle(box, fill="red")
    page = OpenPage(image, (), (Inquired("word", "Where is red?", "red", (box,)),))
    examples = [make_example(page, (), random.Random(seed)) for seed in range(16)]
    whole = [
        example for example in examples if example is not None
    ]  # of a large part of it, nothing is asked
    assert len(whole) > 8
    for example in whole:
        red = (example.pixels[0] > 0.6) & (example.pixels[1] < 0.4)
        inside = red.unfold(0, CELL, CELL).unfold(1, CELL, CELL).float().sum((2, 3))
        (lesson,) = example.lessons
        assert lesson.present
        assert inside[lesson.evidence].sum() > 0.6 * inside.sum()  # a sliver makes no cell
        assert (inside[lesson.evidence] > 0).all()


@pytest.mark.slow
def test_windows_have_few_sizes_and_boxes_go_with_them():
    image = Image.new("RGB", (999, 631), "white")
    image.paste("black", (400, 300, 480, 330))
    for seed in range(40):
        scale = 0.4 + seed / 40
        window = _window(image, [(400.0, 300.0, 480.0, 330.0)], scale, random.Random(seed))
        assert set(window.size) <= set(LENGTHS)
        assert all(0.7 < own / scale < 1.42 for own in window.scale)
        dark = _pixels(image, window)[0] < 0.5
        assert dark.shape == window.size[::-1]
        x0, y0, x1, y1 = window.placed((400.0, 300.0, 480.0, 330.0))
        (top, left), (low, right) = dark.nonzero().amin(0).tolist(), dark.nonzero().amax(0).tolist()
        assert (left, top) == pytest.approx((max(x0, 0), max(y0, 0)), abs=1.5)
        assert (right + 1, low + 1) == pytest.approx(
            (min(x1, window.size[0]), min(y1, window.size[1])), abs=1.5
        )


def test_kinds_are_even_and_nothing_is_asked_of_what_was_cut_off(plain):
    image = Image.new("RGB", (500, 400), "white")
    often = [Inquired("word", f"Where is {i}?", "", ((10.0, 10.0 + i, 30.0, 20.0 + i),)) for i in range(40)]
    rare = [Inquired("title", "Title?", "", ((10.0, 5.0, 90.0, 20.0),)), Inquired("global", "All?", "", ())]
    page = OpenPage(image, (), (*often, *rare))
    kinds = [
        lesson.kind for seed in range(12) for lesson in make_example(page, (), random.Random(seed)).lessons
    ]
    assert kinds.count("global") == 12
    assert kinds.count("title") > 6
    assert len(kinds) <= 12 * QUESTIONS


def test_a_page_without_words_is_asked_nothing_in_vain(pages, tmp_path):
    Image.new("RGB", (300, 200), "white").save(tmp_path / "a.png")
    boxless = {"image": "a.png", "question": "Who?", "answer": "me"}
    row = boxless | {"question": "Where?", "family": "card", "boxes": [[5, 5, 90, 40]]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(boxless))
    draw = open_pages([f"jsonl:{tmp_path}"])
    page = draw(random.Random(0))
    assert page.questions == (Inquired("card", "Where?", "me", ((5.0, 5.0, 90.0, 40.0),)),)
    item = Examples(open_pages([str(pages), f"jsonl:{tmp_path}"]), batch=6, seed=0)[0]
    lessons = [example.lessons for step in item for example in step]
    alone = [each for each in lessons if any(lesson.kind == "card" for lesson in each)]
    assert alone
    assert all(len(each) == 1 for each in alone)


def test_data_without_boxes_is_refused(tmp_path):
    Image.new("RGB", (300, 200)).save(tmp_path / "a.png")
    (tmp_path / "questions.jsonl").write_text(
        json.dumps({"image": "a.png", "question": "Who?", "answer": "me"})
    )
    with pytest.raises(ValueError, match="has no boxes"):
        open_pages([f"jsonl:{tmp_path}"])


def test_things_move_with_the_window(plain):
    image = Image.new("RGB", (900, 700), "white")
    box = (400.0, 300.0, 496.0, 396.0)
    ImageDraw.Draw(image).rectangle(box, fill="red")
    page = OpenPage(image, (), (Inquired("colour", "What?", "red", (box,)),), (("square", box),))
    examples = [example for seed in range(12) if (example := make_example(page, (), random.Random(seed)))]
    assert len(examples) > 6
    for example in examples:
        red = ((example.pixels[0] > 0.6) & (example.pixels[1] < 0.4)).nonzero()
        (words, first, last), *_ = example.looks.names
        assert words[first:last] == ("square",)
        height, width = PLACE
        touched = example.looks.places[red[:, 0] // height, red[:, 1] // width]
        assert (touched != NONE).all()
        middles = (example.looks.places == 0).nonzero() * torch.tensor(PLACE) + torch.tensor(PLACE) // 2
        assert len(middles)
        assert (middles >= red.amin(0) - 2).all()
        assert (middles <= red.amax(0) + 2).all()


def test_drawn_pages_are_pages_like_others():
    drawn = draw_page(5, (768, 512), "train", void=False)
    page = adapted(drawn)
    assert "".join(word.text for word in page.words) == "".join(letter for letter, _ in drawn.glyphs)
    labels = {part for fact in drawn.facts for part in fact.label.lower().split()}
    assert labels & {word.text.lower().strip(":") for word in page.words}
    assert all(len(word.edges) == len(word.text) + 1 for word in page.words)
    assert {question.kind for question in page.questions} <= set(KINDS)
    assert [q.text for q in page.questions] == [q.text for q in drawn.questions]
    assert [name for name, _ in page.things] == [thing.shape for thing in drawn.things] != []
    assert make_example(drawn_page(random.Random(3)), (), random.Random(3)) is not None


@pytest.mark.slow
def test_items_follow_from_seed_and_number(pages):
    draw = open_pages([str(pages)])
    data = Crops(draw, batch=2, size=128, seed=4, easy=0)
    twin = Crops(draw, batch=2, size=128, seed=4, easy=0)
    for (one,), (two,) in zip(data[1], twin[1], strict=True):
        assert all(torch.equal(a.pixels, b.pixels) for a, b in zip(one, two, strict=True))
        assert [crop.words for crop in one] == [crop.words for crop in two]
    later = next(stream(data, 4, workers=0))
    assert later.step == 4
    assert torch.equal(later.lesson[0].pixels, data[1][1][0][0].pixels)
    examples = Examples(draw, batch=1, seed=4)
    assert torch.equal(next(stream(examples, 3, workers=1)).lesson.pixels, examples[1][1][0].pixels)


def test_pages_with_nothing_to_teach_are_named(tmp_path):
    empty = OpenPage(Image.new("RGB", (64, 64)), (), ())
    with pytest.raises(ValueError, match="hardly one has words"):
        Crops(lambda rng: empty, batch=1, size=64, seed=0, easy=0)[0]
    with pytest.raises(ValueError, match="hardly one has questions"):
        Examples(lambda rng: empty, batch=1, seed=0)[0]


def header():
    """A line of four words."""
    boxes = ((10.0 + 60 * i, 10.0, 50.0 + 60 * i, 26.0) for i in range(4))
    return tuple(Word(word, box, 16.0) for word, box in zip(WORDS, boxes, strict=False))


def test_things_lie_in_the_middle_of_their_boxes_and_leave_no_empty_slots(plain):
    image = Image.new("RGB", (256, 256), "white")
    boxes = [(x, y, x + 30.0, y + 30.0) for x in (20.0, 100.0, 180.0) for y in (60.0, 150.0)]
    for box in boxes:
        x0, y0, x1, y1 = box
        ImageDraw.Draw(image).rectangle((x0 + 1, y0 + 1, x1 - 2, y1 - 2), fill="blue")
    words = header()
    page = OpenPage(image, words, (), tuple(("cart", box) for box in boxes))
    shown = 0
    crops_of_it = (crop_page(page, 256, random.Random(seed)) for seed in range(30))
    for crop in filter(None, crops_of_it):
        blue = crop.pixels[0] < 0.5
        for thing in crop.things:
            assert {"cart", "trolley"} <= set(thing.words)
            for row, column in thing.slots.tolist():
                assert blue[8 * row : 8 * row + 8, 16 * column : 16 * column + 16].float().mean() > 0.4
        for row, column in crop.empty.tolist():
            assert not blue[8 * row : 8 * row + 8, 16 * column : 16 * column + 16].any()
        shown += len(crop.things)
    assert shown > 16


def test_things_too_small_to_tell_are_not_named(plain):
    image = Image.new("RGB", (256, 256), "white")
    words = header()
    for side in (3.0, 240.0):
        page = OpenPage(image, words, (), (("cart", (4.0, 8.0, 4 + side, 8 + side)),))
        for seed in range(8):
            crop = crop_page(page, 256, random.Random(seed))
            assert crop is None or not crop.things
