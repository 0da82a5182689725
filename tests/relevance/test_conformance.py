"""The laws of sources of relevance: sound ones keep all of them, and each law catches a broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.guide.coupling import Calibration, Coupling, GuideSource
from arr_coc.relevance.boxes import BoxSource, GivenBox
from arr_coc.relevance.conformance import (
    LAWS,
    PLACES,
    SQUARES,
    WORDS,
    SourceScene,
    check_source,
    rolled_scene,
    square_scene,
)
from arr_coc.relevance.patches import IndexSource

COLOURS = {"red": (0, -1, -1), "blue": (-1, -1, 0), "yellow": (0, 0, -1), "green": (-1, -0.5, -1)}


def ink(picture: Tensor) -> tuple[int, int, int, int] | None:
    """The box (x0, y0, x1, y1) of all that is not white."""
    places = (picture < 0.99).any(0).nonzero()
    if not len(places):
        return None
    (y0, x0), (y1, x1) = places.amin(0).tolist(), (places.amax(0) + 1).tolist()
    return x0, y0, x1, y1


def crop(picture: Tensor) -> bytes:
    x0, y0, x1, y1 = ink(picture) or (0, 0, 0, 0)
    return picture[:, y0:y1, x0:x1].contiguous().numpy().tobytes()


LINES = ("TOTAL 42.10", "CASHIER Mary", "TABLE 17", "INVOICE 9038")
PRINTED = {crop(scene.picture): line for scene, line in zip(WORDS, LINES, strict=True)}


def read(picture: Tensor) -> list[GivenBox]:
    """An OCR that knows four lines by heart."""
    box, text = ink(picture), PRINTED.get(crop(picture))
    return [] if box is None or text is None else [GivenBox(tuple(map(float, box)), text)]


def stain(picture: Tensor) -> Tensor:
    """What each patch takes from white."""
    return F.adaptive_avg_pool2d(picture - 1, (12, 16)).permute(1, 2, 0)


def hue(question: str) -> Tensor:
    return torch.tensor([COLOURS[next(name for name in COLOURS if name in question)]]).float()


def sees() -> IndexSource:
    return IndexSource(stain, hue, "colours")


def test_scenes_show_one_thing_each_in_its_box() -> None:
    for scene in (*WORDS, *SQUARES):
        for one in (scene, rolled_scene(scene)):
            x0, y0, x1, y1 = ink(one.picture) or (0, 0, 0, 0)
            assert one.box[0] <= x0 < x1 <= one.box[2]
            assert one.box[1] <= y0 < y1 <= one.box[3]
        assert crop(rolled_scene(scene).picture) == crop(scene.picture)
        x0, y0, x1, y1 = rolled_scene(scene).box
        assert (x0 + scene.box[2], y0 + scene.box[3]) == pytest.approx((512, 384), abs=0.5)  # opposite


def test_sound_sources_break_no_law() -> None:
    assert check_source(BoxSource(read)) == []
    assert check_source(sees(), SQUARES) == []


def test_sources_without_the_sense_are_told_so() -> None:
    assert check_source(BoxSource(read), SQUARES)
    assert any(what.startswith("finds places: ") for what in check_source(BoxSource(lambda picture: ())))


@pytest.mark.slow
@pytest.mark.parametrize("scenes", [WORDS, SQUARES], ids=["words", "squares"])
def test_the_guide_breaks_no_law(scenes: tuple[SourceScene, ...]) -> None:
    assert check_source(GuideSource(), scenes) == []


class Altered:
    """The sound source of colours with one thing changed."""

    version = "1"
    calibration: Calibration | None = None

    def __init__(self, alter: Callable[[Coupling], Coupling] | None = None) -> None:
        self.name, self.inner, self.alter = "altered", sees(), alter

    def view(self, picture: Tensor) -> Any:
        return self.inner.view(picture)

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        one = self.inner.couple(view, question, grid)
        return one if self.alter is None else self.alter(one)


class Seen:
    """A view with more on it."""

    def __init__(self, inner: Any, **fields: Any) -> None:
        self.inner, self.size, self.nbytes = inner, inner.size, inner.nbytes
        self.__dict__.update(fields)


class Viewing(Altered):
    """Changes views."""

    def __init__(self, wrap: Callable[[Any], Seen]) -> None:
        super().__init__()
        self.wrap = wrap

    def view(self, picture: Tensor) -> Any:
        return self.wrap(self.inner.view(picture))

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        one = self.inner.couple(view.inner, question, grid)
        return replace(one, logits=one.logits + getattr(view, "more", 0))


class Normalising(Altered):
    """Subtracts the mean of all maps so far."""

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        one = super().couple(view, question, grid)
        self.means = [*getattr(self, "means", ()), float(one.logits.mean())]
        return replace(one, logits=one.logits - sum(self.means) / len(self.means))


class Deaf(Altered):
    """Ignores the question in its map."""

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        one = super().couple(view, question, grid)
        return replace(one, logits=sum(self.inner.couple(view, name, grid).logits for name in COLOURS))


class Trusting(Altered):
    """Is sure of all pictures that show something."""

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        one = super().couple(view, question, grid)
        return replace(one, confidence=0.9 if view.vectors.any() else 0.1)


def with_field(**fields: Any) -> Altered:
    one = Altered()
    one.__dict__.update(fields)
    return one


def transposed(one: Coupling) -> Coupling:
    logits = F.interpolate(one.logits.T[None, None], one.logits.shape)[0, 0]
    return replace(one, logits=logits)


def numbered() -> Altered:
    numbers = count()
    return Viewing(lambda inner: Seen(inner, more=next(numbers) * 1e-3))


BROKEN: list[tuple[str, str, Callable[[], Altered]]] = [
    ("is described", "name is '' and no text", lambda: with_field(name="")),
    ("is described", "version is 3 and no text", lambda: with_field(version=3)),
    ("is described", "calibration is 2.0, neither", lambda: with_field(calibration=2.0)),
    ("is described", "neither a finite", lambda: with_field(calibration=Calibration(float("nan")))),
    ("is described", "has scale -1", lambda: with_field(calibration=Calibration(-1.0))),
    ("keeps views", "has size (384, 512)", lambda: Viewing(lambda v: Seen(v, size=(384, 512)))),
    ("keeps views", "has size (320, 64)", lambda: Viewing(lambda v: Seen(v, size=v.size[::-1]))),
    ("keeps views", "has nbytes None", lambda: Viewing(lambda v: Seen(v, nbytes=None))),
    ("fills grids", "torch.float32 [7, 3]", lambda: Altered(lambda c: replace(c, logits=c.logits.T))),
    ("fills grids", "torch.int64", lambda: Altered(lambda c: replace(c, logits=(c.logits * 999).long()))),
    (
        "fills grids",
        "aren't finite on the grid (1, 1)",
        lambda: Altered(lambda c: replace(c, logits=c.logits / (c.logits.numel() > 1))),
    ),
    (
        "fills grids",
        "confidence is 1.89",
        lambda: Altered(lambda c: replace(c, confidence=c.confidence + 0.9)),
    ),
    ("repeats", "another view of the same picture gave something else", numbered),
    ("remembers nothing", "'Where is the red square?' gives something else after", Normalising),
    ("reads questions", "have the same logits", Deaf),
    ("abstains", "confidence 1 on a blank", lambda: Altered(lambda c: replace(c, confidence=1.0))),
    ("abstains", "on a blank", lambda: Altered(lambda c: replace(c, confidence=1 - c.confidence))),
    ("tells pictures apart", "blind to what a picture lacks", Trusting),
    ("finds places", "and the best cell of", lambda: Altered(lambda c: replace(c, logits=c.logits.flip(0)))),
    ("finds places", "and the best cell of", lambda: Altered(lambda c: replace(c, logits=c.logits.flip(1)))),
    ("finds places", "and the best cell of", lambda: Altered(lambda c: replace(c, logits=-c.logits))),
    ("finds places", "and the best cell of", lambda: Altered(transposed)),
    ("finds places", "the same logit", lambda: Altered(lambda c: replace(c, logits=c.logits * 0))),
]
ALSO = {  # laws that such a source can't but break, too
    "fills grids": {"finds places"},
    "abstains": {"tells pictures apart"},
    "finds places": {"reads questions"},
    "remembers nothing": {"repeats"},
}


@pytest.mark.parametrize(("law", "what", "made"), BROKEN, ids=[f"{law}: {what}" for law, what, _ in BROKEN])
def test_each_law_catches_a_source_that_breaks_it(law: str, what: str, made: Callable[[], Altered]) -> None:
    broken = check_source(made(), SQUARES)
    assert any(one.startswith(f"{law}: ") and what in one for one in broken), broken
    assert {one.split(": ")[0] for one in broken} <= {law} | ALSO.get(law, set())


def test_each_law_is_broken_by_one_here() -> None:
    assert {law for law, _, _ in BROKEN} == set(LAWS)
    assert all(law.__doc__ for law in LAWS.values())


def test_what_a_source_raises_is_reported() -> None:
    def fail(question: str) -> Tensor:
        raise KeyError("no such question")

    broken = check_source(IndexSource(stain, fail), SQUARES)
    assert "repeats: KeyError: 'no such question'" in broken
    assert not any(one.startswith(("is described", "keeps views")) for one in broken)
    one = with_field()
    del one.name
    assert check_source(one, SQUARES) == ["is described: name is None and no text"]


def test_one_scene_compares_with_nothing() -> None:
    with pytest.raises(ValueError, match="two scenes or more to compare, and was given 1"):
        check_source(sees(), SQUARES[:1])


def test_scenes_of_ones_own() -> None:
    """On other pictures and places, with a box that no grid divides."""
    scenes = [
        square_scene(colour, f"Is there {colour}?", corner)
        for colour, corner in (("red", (1, 1)), ("green", (0, 0)))
    ]
    scenes = [
        SourceScene(
            one.picture[:, 20:, 7:],
            one.question,
            (one.box[0] - 7, one.box[1] - 20, one.box[2] - 7, one.box[3] - 20),
        )
        for one in scenes
    ]
    assert check_source(sees(), scenes) == []
    assert PLACES[0] != PLACES[1], "or a transposed map would pass"
