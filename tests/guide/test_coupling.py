"""Couplings: any grid, any size, the place of every word; the same again each time."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from arr_coc.files.pixels import image_pixels
from arr_coc.guide.coupling import (
    ENLARGED,
    ENLARGED_PIXELS,
    LIKELY,
    MAX_PIXELS,
    MAX_SIDE,
    Coupling,
    Match,
    couple,
    encoded_size,
    fitted,
    is_form,
    read_together,
    readable,
    scope,
    view,
)
from arr_coc.guide.guide import Guide, GuidePage, cell_logits, load_guide, prepared
from arr_coc.guide.question import terms
from arr_coc.guide.wording import is_overview
from each import each


@cache
def guide() -> Guide:
    return prepared(Guide(), torch.float32)


def picture(height: int, width: int) -> Tensor:
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(height))


def test_a_picture_goes_to_where_the_guide_is(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = copy.deepcopy(guide()).to("meta")
    places, encode = list[str](), Guide.encode

    def noted(self: Guide, pictures: Tensor) -> GuidePage:
        places.append(pictures.device.type)
        return encode(guide(), torch.zeros(pictures.shape))

    monkeypatch.setattr(Guide, "encode", noted)
    view(elsewhere, picture(64, 96))
    assert places == ["meta"]


@each("size", [(96, 160), (101, 333), (5, 7), (17, 1), (640, 32)])
def test_any_picture_and_grid(size: tuple[int, int]) -> None:
    page = view(guide(), picture(*size))
    for grid in ((3, 5), (1, 1), (24, 24), (7, 2)):
        one, again = (couple(guide(), page, "What is the total?", grid) for _ in range(2))
        assert one.logits.shape == grid
        assert one.logits.isfinite().all()
        assert torch.equal(one.logits, again.logits)
        shares = (one.confidence, one.overview, one.unusual)
        shares += tuple(share for match in one.matches for share in (match.likeness, *match.place))
        assert all(0 <= share <= 1 for share in shares)


@pytest.mark.slow
def test_a_large_picture_is_scaled_down() -> None:
    page = view(guide(), torch.zeros(3, 64, 2 * MAX_SIDE))
    assert page.size == (64, 2 * MAX_SIDE)
    assert page.encoded == (32, MAX_SIDE)


@each(
    ("size", "expected"),
    [
        ((1366, 2900), (1366, 2900)),
        ((5000, 300), (5000, 300)),
        ((2048, 2048), (2048, 2048)),
        ((1, 1), (1, 1)),
    ],
)
def test_what_is_long_and_not_large_is_looked_at_as_it_is(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert fitted(*size) == expected


@each("size", [(600, 600), (921, 921), (320, 240), (1000, 100), (64, 64)])
def test_a_small_picture_is_encoded_larger(size: tuple[int, int]) -> None:
    width, height = encoded_size(*size)
    assert width / size[0] == pytest.approx(
        min(ENLARGED, (ENLARGED_PIXELS / (size[0] * size[1])) ** 0.5), abs=0.02
    )
    assert width * height <= 1.001 * ENLARGED_PIXELS
    assert width / height == pytest.approx(size[0] / size[1], rel=0.02)


@each("size", [(1024, 1024), (930, 930), (1366, 768), (8192, 20), (2048, 2048), (4000, 3000)])
def test_a_large_one_is_not(size: tuple[int, int]) -> None:
    assert encoded_size(*size) == fitted(*size)


def test_a_view_has_the_size_of_its_picture() -> None:
    for height, width in ((64, 96), (300, 200)):
        page = view(guide(), torch.rand(3, height, width))
        assert page.size == (height, width)
        assert page.encoded == encoded_size(width, height)[::-1]


@each("size", [(1366, 4500), (4096, 4096), (3, 40_000), (40_000, 9_000)])
def test_what_is_large_keeps_its_shape(size: tuple[int, int]) -> None:
    width, height = fitted(*size)
    assert width * height <= 1.001 * MAX_PIXELS
    assert max(width, height) <= MAX_SIDE
    assert width / height == pytest.approx(size[0] / size[1], rel=1 / min(width, height))


def test_cells_hold_the_mean_odds_of_their_places() -> None:
    places = torch.full((4, 6), -3.0)  # a page of 64 x 192 px, of which 64 x 160 are the picture
    places[0, 1] = 2.0
    places[:, 5] = 9.0  # outside of it
    cells = cell_logits(places, (64, 160), (2, 5))
    expected = torch.full((2, 5), -3.0)
    expected[0, 1] = torch.tensor([2.0, -3.0]).exp().mean().log()
    assert torch.allclose(cells, expected, atol=1e-5)
    assert torch.allclose(cell_logits(places, (64, 160), (4, 5)), places[:, :5], atol=1e-5)
    assert torch.allclose(
        cell_logits(places, (64, 160), (4, 10)), places[:, :5].repeat_interleave(2, 1), atol=1e-5
    )
    whole = cell_logits(places, (64, 160), (1, 1))
    assert torch.allclose(whole[0, 0], places[:, :5].exp().mean().log(), atol=1e-5)


def test_words_and_what_stands_for_them() -> None:
    page = view(guide(), picture(96, 160))
    listed = couple(guide(), page, "Who is the vendor of it?", (3, 5)).matches
    assert {match.word for match in listed} == {"vendor"}
    assert listed[0].term == "vendor"
    assert {"seller", "vendors"} <= {match.term for match in listed}


def test_the_best_of_each_word() -> None:
    listed = (
        Match("due", "due", 0.6, (0, 0)),
        Match("due", "pay", 0.9, (0, 0)),
        Match("tax", "tax", 0.4, (0, 0)),
    )
    coupling = Coupling(torch.zeros(1, 1), 0.5, 0.0, 0.0, listed)
    assert [match.term for match in coupling.best()] == ["pay"]
    assert [match.term for match in coupling.best(0.3)] == ["pay", "tax"]


def test_a_word_that_is_printed_is_told_before_a_likelier_related_one() -> None:
    """ "March" stands above its column; "January" beside it is no better an answer to "in March?"."""
    listed = (Match("march", "march", 0.98, (0, 0.7)), Match("march", "january", 0.99, (0, 0.4)))
    for matches in (listed, listed[::-1]):
        assert [match.term for match in Coupling(torch.zeros(1, 1), 0.5, matches=matches).best()] == ["march"]


@each("text", ["Valenzuela?", "What is the tP-802?", "What is number 78?", "7945?", "What does Adult say?"])
def test_a_name_is_no_question_about_everything(text: str) -> None:
    """Each of these shares a row of the table of words with one that is."""
    assert max(scope(load_guide(), text)) < 0.3


@each(
    ("text", "place"),
    [
        ("Describe the image.", 0),
        ("Summarise this page.", 0),
        ("What is shown here?", 0),
        ("Describe the invoice.", 0),
        ("What is unusual here?", 1),
        ("What stands out?", 1),
    ],
)
def test_the_scope_of_a_question(text: str, place: int) -> None:
    verdicts = scope(load_guide(), text)
    assert verdicts[place] > 0.5 > 0.3 > verdicts[1 - place]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (1, 1), (40, 90)])
def test_thin_pictures_stay_finite(size: tuple[int, int]) -> None:
    red = torch.zeros(3, *size)
    red[0] = 1
    for _ in range(8):  # memory that nobody wrote holds other numbers each time
        page = view(load_guide(), red)
        assert couple(load_guide(), page, "What is the title?", (2, 2)).logits.isfinite().all()


@each(
    "text",
    [
        "Describe the logo.",
        "Describe the table.",
        "Describe Anna's invoice total.",
        "Read the note.",
        "Read it.",
        "What is shown on the left?",
        "What does the sign show?",
        "What does the invoice show as its total?",
        "What is the letter?",
        "What does the chart show?",
    ],
)
def test_a_part_to_describe_is_not_everything(text: str) -> None:
    assert not is_overview(terms(text).words)


@each(
    "text",
    [
        "Describe the invoice.",
        "Read the page aloud.",
        "Read this receipt.",
        "What is shown here?",
        "What does the picture show?",
        "What can be seen in this picture?",
        "What do you see?",
    ],
)
def test_a_whole_picture_by_its_name_is_everything(text: str) -> None:
    assert is_overview(terms(text).words)


def test_scripts_that_cant_be_read() -> None:
    page = view(guide(), picture(96, 160))
    for question in ("这是什么？", "Что это такое?", "ما هذا؟", "?!", "..."):
        assert couple(guide(), page, question, (3, 5)).confidence == 0
    assert readable(["ürün", "total"])
    assert not readable(["the", "什么"])
    assert readable(["how", "much"])


def test_forms_of_a_word_are_the_word() -> None:
    for term, word in (
        ("forward", "forwarded"),
        ("sync", "synced"),
        ("sends", "sending"),
        ("total", "total"),
    ):
        assert is_form(term, word)
    assert not is_form("vendor", "seller")


@pytest.mark.slow
def test_a_form_of_a_word_is_found_as_the_word_is() -> None:
    """At any size and place: the word of the question in another form stands on the page."""
    taught = load_guide(dtype="float32")
    for number, (label, question, word) in enumerate((
        ("Forward alerts to   ops@acme.io", "Where are alerts forwarded?", "forwarded"),
        ("Last synced   14:05", "When was the data last synced?", "synced"),
        ("Linked accounts   3", "Which account is linked?", "account"),
        ("Ships from   Oslo", "Where was it shipped from?", "shipped"),
    )):  # fmt: skip
        image = Image.new("RGB", (900, 600), "white")
        font = ImageFont.load_default(20 + 4 * number)
        ImageDraw.Draw(image).text((60 + 90 * number, 300 - 60 * number), label, "black", font)
        page = view(taught, image_pixels(image)[0])
        best = {match.word: match for match in couple(taught, page, question, (12, 18)).best()}
        assert word in best, question


def test_words_that_are_read_side_by_side_are_both_there() -> None:
    near = [Match("last", "last", 0.66, (0.5, 0.20)), Match("synced", "synced", 0.62, (0.5, 0.28))]
    far = [near[0], near[1]._replace(place=(0.9, 0.9))]
    doubted = [near[0], near[1]._replace(likeness=0.3)]
    size = (640, 1024)
    assert all(match.likeness >= LIKELY for match in read_together(near, size))
    assert read_together(far, size) == tuple(far)
    assert read_together(doubted, size) == tuple(doubted)
