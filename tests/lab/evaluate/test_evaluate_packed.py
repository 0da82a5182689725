"""The study of packed pictures: a reader whose print is known finds what was sent, and only that."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc.relevance.lines import PrintedLine
from arr_coc_lab.evaluate.packed import (
    PACKERS,
    AnsweredPicture,
    chosen,
    holds,
    plain,
    read_packed,
    summarise_packed,
)

RED = (200, 30, 30)


def page() -> Image.Image:
    """A white page with a red square of 32 px, which stands for the answer "alpha"."""
    image = Image.new("RGB", (640, 640), "white")
    ImageDraw.Draw(image).rectangle((480, 480, 511, 511), fill=RED)
    return image


def read(pixels: np.ndarray) -> list[PrintedLine]:
    """Reads "Al pha" where 200 px are as red as the square."""
    near = (np.abs(pixels.astype(int) - np.array(RED)) < 40).all(-1)
    return [PrintedLine("Al phà!", (0.0, 0.0, 1.0, 1.0))] if near.sum() >= 200 else []


def test_answers_are_compared_by_letters_and_digits() -> None:
    assert plain("Straße, n.º 5") == plain("STRASSE n.o5")
    assert holds(read, [page()], "alpha")
    assert not holds(read, [page()], "beta")
    assert not holds(read, [Image.new("RGB", (64, 64))], "alpha")


def test_a_choice_made_elsewhere_is_a_record() -> None:
    cells = torch.zeros(4, 5, dtype=torch.bool)
    cells[1, 2] = cells[3, 4] = True
    record = chosen(cells)
    assert record.grid == (1, 4, 5)
    assert record.keep.tolist() == [7, 19]


@pytest.fixture(scope="module")
def rows():
    sample = AnsweredPicture(
        "red", "drawn", page, (("Where is the red square?", "colour", "alpha", ((480, 480, 512, 512),)),)
    )
    return list(read_packed([sample], PACKERS, (32, 1024), read))


def test_what_holds_the_answer_is_read(rows) -> None:
    outcome = {(row.method, row.budget): row.read for row in rows}
    assert outcome["whole", 32]
    assert outcome["oracle's crops", 32]
    assert not outcome["centre crop", 32]
    assert not outcome["shrunk", 32], "of 1,024 px a thirty-second is left"
    assert all(outcome[method, 1024] for method in PACKERS if "another" not in method)


def test_nothing_spends_more_than_it_may(rows) -> None:
    for row in rows:
        if row.method != "whole":
            assert row.tokens <= (round(32 / 1024 * 400) if row.budget == 32 else 400), row


def test_shares_are_of_what_the_whole_picture_gives(rows) -> None:
    table = summarise_packed(rows)
    assert table["all"]["whole"]["32"]["read"] == 1.0
    assert table["drawn"]["centre crop"]["32"] == {
        "questions": 1, "read": 0.0, "tokens": pytest.approx(12, abs=4)
    }  # fmt: skip


def test_an_answer_that_the_whole_picture_does_not_give_is_left_out() -> None:
    questions = (("Where is the red square?", "colour", "omega", ((480.0, 480.0, 512.0, 512.0),)),)
    assert not list(read_packed([AnsweredPicture("red", "drawn", page, questions)], PACKERS, (32,), read))


def test_an_engine_that_shrinks_sees_less_of_a_whole_picture() -> None:
    sample = AnsweredPicture(
        "red", "drawn", page, (("Where is the red square?", "colour", "alpha", ((480, 480, 512, 512),)),)
    )
    some = {name: PACKERS[name] for name in ("whole", "oracle's crops")}
    (whole, oracle) = read_packed([sample], some, (16,), read, shrinks_to=16)
    assert not whole.read
    assert oracle.read
