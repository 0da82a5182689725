"""What a worker makes of one picture: the forms in which it may come, and the files in its place."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arr_coc.pixels import Packed, Place
from arr_coc.pixels.lines import line_heights
from arr_coc.pixels.naming import guess_rule
from arr_coc.pixels.packing import READABLE
from arr_coc.pixels.page import find_page
from arr_coc.proxy import packing
from arr_coc.proxy.packing import Dial, Outcome, Packer, Picture, digest_of
from arr_coc_lab.world import draw_page
from chat_servers import SelectorDouble, encoded, pack_double
from image_files import encoded as file_of


@pytest.fixture(scope="module")
def packer() -> Iterator[Packer]:
    made = Packer(1, seconds=60)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "pack_for", pack_double)


def outcome_of(packer: Packer, data: str, tokens: int = 400, question: str = "What is red?") -> Outcome:
    return asyncio.run(packer.pack(Picture(data, digest_of(data), question), Dial(tokens)))


def noise(kind: str, size: tuple[int, int] = (640, 480), **options: object) -> str:
    """A picture of noise, as a photograph is in its pixels, as a file in base64."""
    pixels = np.random.default_rng(0).normal(128, 25, (size[1], size[0], 1)).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.repeat(3, 2)).save(file, kind, **options)
    return base64.b64encode(file.getvalue()).decode()


def formats(outcome: Outcome) -> set[str | None]:
    return {Image.open(io.BytesIO(base64.b64decode(data))).format for _, data in outcome.parts}


def test_every_form_of_base64_that_servers_read(packer: Packer, screenshot: str) -> None:
    plain = outcome_of(packer, screenshot)
    assert plain.reason == "packed"
    lines = "\r\n".join(screenshot[i : i + 76] for i in range(0, len(screenshot), 76))
    urlsafe = screenshot.replace("+", "-").replace("/", "_")
    escaped = screenshot.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    for form in (lines, " " + screenshot, screenshot + "\n", urlsafe, screenshot.rstrip("="), escaped):
        assert outcome_of(packer, form).parts == plain.parts
    for spoilt in (screenshot[:-9] + "*" * 9, "AAAAA", "%", ""):
        assert outcome_of(packer, spoilt).reason == "unreadable"


def test_a_photograph_stays_one(packer: Packer) -> None:
    for kind, options, expected in (
        ("JPEG", {"quality": 75}, "JPEG"), ("WEBP", {"quality": 75}, "JPEG"), ("PNG", {}, "PNG"),
    ):  # fmt: skip
        data = noise(kind, **options)
        outcome = outcome_of(packer, data, 150)
        assert formats(outcome) == {expected}
        assert sum(len(one) for _, one in outcome.parts) <= len(data)


def test_nothing_is_larger_than_apis_take(packer: Packer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_LETTERS", 7_000)
    for kind, seed in (("PNG", 1), ("JPEG", 2)):
        outcome = outcome_of(packer, noise(kind, (640 + seed, 480)), 150)
        assert "JPEG" in formats(outcome)
        assert max(len(one) for _, one in outcome.parts) <= 7_000
    monkeypatch.setattr(packing, "MAX_LETTERS", 900)
    assert outcome_of(packer, noise("PNG", (650, 480)), 150).reason == "larger"


def test_what_is_larger_costs_no_less_and_shows_no_more_goes_whole(
    packer: Packer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = noise("JPEG", (640, 480), quality=5)  # a small file, of which any other is larger
    for number, (tokens, magnification, reason) in enumerate(
        ((300, 1.0, "larger"), (299, 1.0, "packed"), (300, 1.2, "packed"))
    ):

        def double(picture: Image.Image, *more: Any, **settings: Any) -> Packed:
            box = (0.0, 0.0, *map(float, picture.size))
            place = Place(0, box, box, magnification)  # noqa: B023
            return Packed((picture,), ("All.",), (place,), picture.size, tokens, 300, "crops", "32", 0.9)  # noqa: B023

        monkeypatch.setattr(packing, "pack_for", double)
        assert outcome_of(packer, data, 300, f"What is red, {number}?").reason == reason


def test_the_rule_of_the_first_name_that_says_one() -> None:
    assert guess_rule("my-deployment", "gpt-4o") == "gpt-4o"
    assert guess_rule("gpt-4o", "claude-opus-5") == "gpt-4o"
    assert guess_rule("", "") == guess_rule() == "32"


def test_an_unsure_page_stays_legible(packer: Packer) -> None:
    """And says that it is unsure; a photograph without print goes as it came."""
    image = draw_page(3, (1280, 1024), "test", void=False).image
    data, question = file_of(image, "PNG"), "What is purple?"
    outcome = outcome_of(packer, base64.b64encode(data).decode(), 150, question)
    assert (outcome.reason, outcome.layout, outcome.confidence) == ("unsure", "shrunk", 0.1)
    assert 150 < outcome.after < outcome.before
    (((_, file),), ((box, _),)) = outcome.parts, outcome.places
    assert box == (0, 0, *image.size)
    sent = Image.open(io.BytesIO(base64.b64decode(file)))
    heights = line_heights([one for one in find_page(image).lines if one[2] - one[0] > 2 * (one[3] - one[1])])
    assert min(heights[heights >= READABLE]) * sent.height / image.height >= READABLE
    photograph = outcome_of(packer, noise("JPEG", quality=75), 150, question)
    assert (photograph.reason, photograph.layout, photograph.parts) == ("unsure", "whole", ())


def test_what_is_forgotten_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of which the guide was unsure, and parts for later questions, too."""
    monkeypatch.setattr(packing, "MAX_KEPT", 1)
    monkeypatch.setattr(packing, "Selector", SelectorDouble)
    packer = Packer(1, seconds=60)
    data = encoded(1280, 801)
    picture = Picture(data, digest_of(data), "What is green?")
    shown = ((((0.0, 0.0, 9.0, 9.0), 1.0)),)
    made = [asyncio.run(packer.cut(picture, Dial(), shown)) for _ in range(2)]
    assert made[0]._replace(ms=0) == made[1]._replace(ms=0)
    assert made[0].parts
    assert made[1].ms > 0
    assert [asyncio.run(packer.judge_all([picture]))[0].confidence for _ in range(2)] == [
        pytest.approx(0.9)
    ] * 2
    assert len(packer._selectors[0].asked) == 1  # a verdict is remembered
    packer.close()


def test_parts_for_a_later_question_are_counted_without_those_sent_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boxes = [(0.0, 100.0 * number, 400.0, 100.0 * number + 50) for number in range(3)]

    def double(picture: Image.Image, *more: Any, **settings: Any) -> Packed:
        places = tuple(Place(number, (0, 0, 400, 50), box, 1.0) for number, box in enumerate(boxes))
        captions = tuple(f"Part {number} of 3 of the picture." for number in (1, 2, 3))
        pictures = (Image.new("RGB", (400, 50)),) * 3
        return Packed(pictures, captions, places, picture.size, 60, 1000, "crops", "32", 0.9)

    monkeypatch.setattr(packing, "pack_for", double)
    monkeypatch.setattr(packing, "Selector", SelectorDouble)
    packer = Packer(1, seconds=60)
    data = encoded(1280, 801)
    picture = Picture(data, digest_of(data), "What is green?")

    def captions(*sent: int) -> list[str]:
        monkeypatch.setattr(packing, "is_shown", lambda box, *more: box in [boxes[one] for one in sent])
        shown = tuple((boxes[one], 1.0) for one in sent)
        return [caption for caption, _ in asyncio.run(packer.cut(picture, Dial(), shown)).parts]

    assert captions() == [f"Part {number} of 3 of the picture." for number in (1, 2, 3)]
    assert captions(0) == ["Part 1 of 2 of the picture.", "Part 2 of 2 of the picture."]
    assert captions(0, 2) == ["A part of the picture."]
    packer.close()
