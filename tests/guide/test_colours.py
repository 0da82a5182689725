"""Colours by name: a hue has its name, a thing's colour shows where it stands, the ground shows nowhere."""

from __future__ import annotations

import pytest
import torch
from PIL import ImageColor
from torch import Tensor

from arr_coc.guide.colours import NAMES, colour_maps, colours_of, unnamed_by_colour
from arr_coc.guide.coupling import couple, view
from arr_coc.guide.guide import load_guide
from arr_coc.guide.question import normal, split_words
from arr_coc.guide.trust import SURE
from arr_coc_lab.world.vocabulary import COLOURS
from each import each


def card(*patches: tuple[str, int, int, int]) -> Tensor:
    """A white picture of 128 x 256 px with squares of CSS colours: (colour, top, left, side) in px."""
    picture = torch.full((3, 128, 256), 0.97)
    for name, top, left, side in patches:
        rgb = torch.tensor(ImageColor.getrgb(name)[:3]) / 255
        picture[:, top : top + side, left : left + side] = rgb[:, None, None]
    return picture


@each(
    ("css", "name"),
    [("#d32f2f", "red"), ("#2563eb", "blue"), ("#16a34a", "green"), ("#f59e0b", "orange"),
     ("#facc15", "yellow"), ("#7c3aed", "purple"), ("#ec4899", "pink"), ("#06b6d4", "cyan"),
     ("#78350f", "brown"), ("#6b7280", "grey"), ("#111827", "black")],
)  # fmt: skip
def test_colours_that_pages_use_have_their_names(css: str, name: str) -> None:
    (maps,) = colour_maps(card((css, 32, 64, 32))[None])
    assert maps.shape == (len(NAMES), 8, 8)
    assert NAMES[int(maps.amax((1, 2)).argmax())] == name
    assert maps[NAMES.index(name)].nonzero().tolist() == [[2, 2], [3, 2]]


@each("name", COLOURS)
def test_colours_of_drawn_pages_have_their_names(name: str) -> None:
    red, green, blue = COLOURS[name]
    (maps,) = colour_maps(card((f"rgb({red},{green},{blue})", 32, 64, 32))[None])
    assert NAMES[int(maps.amax((1, 2)).argmax())] == name


def test_what_most_of_a_picture_is_shows_nowhere() -> None:
    assert not colour_maps(card(("red", 32, 64, 32))[None])[0, NAMES.index("white")].any()
    assert colour_maps(torch.zeros(1, 3, 128, 256)).any().logical_not()


def test_little_of_a_colour_shows_less() -> None:
    maps = colour_maps(card(("red", 32, 64, 32), ("red", 64, 128, 4))[None])[0, NAMES.index("red")]
    assert maps[2, 2] == 1
    assert 0 < maps[4, 4] < 1


@each(
    ("word", "names"),
    [("red", {"red"}), ("Grün", {"green"}), ("violet", {"purple"}), ("gray", {"grey"}),
     ("magenta", {"purple", "pink"}), ("grünen", {"green"}), ("weiße", {"white"}), ("verte", {"green"}),
     ("bianca", {"white"}), ("rotate", set()), ("invoice", set())],
)  # fmt: skip
def test_words_for_colours(word: str, names: set[str]) -> None:
    assert {NAMES[i] for i in colours_of(normal(word))} == names


def test_the_colour_that_is_asked_for_leads() -> None:
    picture = card(("#d32f2f", 32, 32, 32), ("#2563eb", 32, 160, 32))
    page = view(load_guide(), picture)
    for question, column, other in (("What is red?", 1, 5), ("What is blue?", 5, 1)):
        coupling = couple(load_guide(), page, question, (4, 8))
        assert coupling.logits[1, column] > coupling.logits[1, other]
        (best,) = coupling.best()
        assert best.term == f"the colour {best.word}"
        assert int(best.place[1] * 8) == column


def test_what_a_colour_does_not_say() -> None:
    for question, things in {
        "Where is the red bicycle?": ("bicycle",),
        "Where is the large dark-red mountain bicycle in the picture?": ("bicycle",),
        "Which bicycle is red?": ("bicycle",),
        "Wo ist das rote Fahrrad?": ("fahrrad",),
        "Where is the large red circle?": (),
        "What does the blue line mean?": (),
        "What is red?": (),
        "Where is the bicycle?": (),
    }.items():
        words = split_words(question.replace("dark-red mountain", "red"))
        assert unnamed_by_colour(words) == things, question


@pytest.mark.slow
def test_a_colour_that_is_there_is_no_object() -> None:
    guide = load_guide(dtype="float32")
    for number, (css, colour) in enumerate({"#dc1414": "red", "#1e9e3c": "green", "#1a5fd0": "blue"}.items()):
        picture = torch.ones(3, 384, 512)
        side = (24, 48, 90)[number]
        rows, columns = torch.meshgrid(torch.arange(384), torch.arange(512), indexing="ij")
        disc = (rows - 190).square() + (columns - 260).square() < side**2
        paint = torch.tensor(ImageColor.getrgb(css)) / 255
        page = view(guide, torch.where(disc, paint[:, None, None], picture))
        for thing in ("bicycle", "umbrella", "dog", "small car"):
            assert couple(guide, page, f"Where is the {colour} {thing}?", (12, 16)).confidence < SURE
        for thing in ("circle", "dot", "shape"):
            assert couple(guide, page, f"Where is the large {colour} {thing}?", (12, 16)).confidence >= SURE
