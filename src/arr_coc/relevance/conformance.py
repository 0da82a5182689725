"""Checks for a source of relevance of your own: the laws that callers rely on.

    check_source(MySource())                    [] or the laws that are broken, a sentence each
    check_source(MySource(), scenes=SQUARES)    for a source that sees colours and reads no print

Pictures are drawn: print in a corner, or a coloured square. A learned source may break a law on one picture
and still be useful; the sentences name the law and what happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from arr_coc.choose.boxes import Box, box_cells
from arr_coc.files.drawing import load_font
from arr_coc.guide.coupling import Calibration, Coupling
from arr_coc.relevance.source import RelevanceSource

SIZE = (512, 384)  # (width, height) in px of the drawn pictures
MARGIN = 24  # px from a corner to what stands in it
PRINT = 28  # px, the size of the letters
SIDE = 96  # px of a square
GRIDS = ((1, 1), (4, 4), (3, 7), (32, 32), (1, 19))  # that are asked for
ASPECTS = ((384, 512), (64, 320), (320, 64), (97, 101))  # (height, width) in px of the pictures for them
PLACES = (6, 8)  # the grid on which the best cell has to be near what is asked for
PAPER = (255, 255, 255)


class SourceScene(NamedTuple):
    """A test picture that shows one thing, with a question for it and the box that holds it."""

    picture: Tensor  # float [3, h, w] in [0, 1]
    question: str
    box: Box  # (x0, y0, x1, y1) in px, what the question needs


Law = Callable[[RelevanceSource, Sequence[SourceScene]], Iterator[str]]


def check_source(source: RelevanceSource, scenes: Sequence[SourceScene] | None = None) -> list[str]:
    """Check a source against the laws; return a sentence for each that it breaks, [] if none.

    A source that reads no print fails the laws about what it finds on `WORDS`, in several sentences.

    Args:
        source: the source to check.
        scenes: two pictures or more, each with a question that needs one place in it; None: `WORDS`, print in
            corners. `SQUARES` is for a source that reads none.

    Raises:
        ValueError: fewer than two scenes.
    """
    scenes = WORDS if scenes is None else scenes
    if len(scenes) < 2:
        raise ValueError(f"check_source needs two scenes or more to compare, and was given {len(scenes)}")
    broken = []
    for name, law in LAWS.items():
        try:
            broken += [f"{name}: {what}" for what in law(source, scenes)]
        except Exception as error:
            broken.append(f"{name}: {type(error).__name__}: {error}")
    if scenes is WORDS and any(one.startswith("finds places") for one in broken):
        broken.append("a source that reads no print is checked with check_source(source, SQUARES)")
    return broken


def is_described(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """A source has a name, a version, and a calibration that may be None."""
    for field in ("name", "version"):
        value = getattr(source, field, None)
        if not isinstance(value, str) or not value:
            yield f"{field} is {value!r} and no text"
    if not hasattr(source, "calibration"):
        yield "it has no calibration: None says that it isn't known"
        return
    fit = source.calibration
    if fit is not None and not (isinstance(fit, Calibration) and all(map(math.isfinite, fit))):
        yield f"calibration is {fit!r}, neither a finite Calibration nor None"
    elif fit is not None and fit.scale <= 0:
        yield f"calibration has scale {fit.scale:g}: higher logits have to mean more relevance"


def keeps_views(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """A view knows the size of its picture, and the memory that it takes."""
    for height, width in ASPECTS:
        view = source.view(_resized(scenes[0].picture, height, width))
        if tuple(view.size) != (height, width):
            yield f"a view of {height} x {width} px (height x width) has size {tuple(view.size)}"
        if not isinstance(view.nbytes, int) or view.nbytes < 0:
            yield f"a view has nbytes {view.nbytes!r}"


def fills_grids(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """Logits are finite and of any grid, for pictures of any shape; the confidence is a probability."""
    for height, width in ASPECTS:
        view = source.view(_resized(scenes[0].picture, height, width))
        for grid in GRIDS:
            one = source.couple(view, scenes[0].question, grid)
            where = f"on the grid {grid} of a picture of {height} x {width} px"
            if tuple(one.logits.shape) != grid or not one.logits.is_floating_point():
                yield f"logits are {one.logits.dtype} {list(one.logits.shape)} {where}"
            elif not one.logits.isfinite().all():
                yield f"logits aren't finite {where}"
            if not 0 <= one.confidence <= 1:
                yield f"confidence is {one.confidence!r} {where}"


def repeats(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """The same picture and question give the same, to the last bit."""
    picture, question, _ = scenes[0]
    view = source.view(picture)
    first = source.couple(view, question, PLACES)
    if not _same(first, source.couple(view, question, PLACES)):
        yield "the same view and question gave something else the second time"
    elif not _same(first, source.couple(source.view(picture.clone()), question, PLACES)):
        yield "another view of the same picture gave something else"


def remembers_nothing(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """What was asked or seen before changes nothing: no state, no normalising over what has been seen."""
    for (picture, question, _), other in ((scenes[0], scenes[1]), (scenes[1], scenes[0])):
        view = source.view(picture)
        alone = source.couple(view, question, PLACES)
        source.couple(view, other.question, PLACES)
        if not _same(alone, source.couple(view, question, PLACES)):
            yield f"{question!r} gives something else after {other.question!r}"
            return
        source.couple(source.view(other.picture), other.question, PLACES)
        if not _same(alone, source.couple(view, question, PLACES)):
            yield f"{question!r} gives something else after another picture"
            return


def reads_questions(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """Two questions about one picture give different maps."""
    for scene, other in zip(scenes, (*scenes[1:], scenes[0]), strict=True):
        view = source.view(scene.picture)
        maps = [source.couple(view, one.question, PLACES).logits for one in (scene, other)]
        if torch.equal(*maps):
            yield f"{scene.question!r} and {other.question!r} have the same logits"


def abstains(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """A blank picture has less confidence than one that holds what is asked for."""
    for picture, question, _ in scenes:
        own = _confidence(source, picture, question)
        blank = _confidence(source, torch.ones_like(picture), question)
        if not blank < own:
            yield f"{question!r} has confidence {blank:.3g} on a blank picture and {own:.3g} on its own"


def tells_pictures_apart(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """A question has more confidence on its own picture than on one that shows something else.

    A source whose confidence never changes claims none, which `abstains` says.
    """
    blank = _confidence(source, torch.ones_like(scenes[0].picture), scenes[0].question)
    views = [source.view(one.picture) for one in scenes]
    table = [[source.couple(view, one.question, PLACES).confidence for one in scenes] for view in views]
    if len({blank, *(value for row in table for value in row)}) == 1:
        return
    for number, scene in enumerate(scenes):
        others = [row[number] for other, row in enumerate(table) if other != number]
        if not max(others) < table[number][number]:
            yield (
                f"{scene.question!r} has confidence {table[number][number]:.3g} on its own picture and "
                f"{max(others):.3g} on another's: it is blind to what a picture lacks"
            )


def finds_places(source: RelevanceSource, scenes: Sequence[SourceScene]) -> Iterator[str]:
    """The best cell is where the thing is, and moves with it to the opposite corner.

    So rows and columns are in order. Each scene is checked as it is and rolled; a cell beside those of the
    box will do.
    """
    for scene in scenes:
        for picture, question, box in (scene, rolled_scene(scene)):
            logits = source.couple(source.view(picture), question, PLACES).logits
            y, x = divmod(int(logits.flatten().argmax()), PLACES[1])
            cells = box_cells(box, PLACES, (picture.shape[-1], picture.shape[-2]))
            near = F.max_pool2d(cells[None].float(), 3, 1, 1)[0].bool()
            if logits.max() == logits.min():
                yield f"{question!r} has the same logit in all cells"
            elif not near[y, x]:
                at = ", ".join(f"{side:g}" for side in box)
                yield f"{question!r} is at ({at}) px, and the best cell of {PLACES} is row {y}, column {x}"


def rolled_scene(scene: SourceScene) -> SourceScene:
    """Return a scene whose picture is shifted, wrapping around, until its box is in the opposite corner."""
    height, width = scene.picture.shape[-2:]
    x0, y0, x1, y1 = scene.box
    right, down = round(width - x1 - x0), round(height - y1 - y0)
    picture = scene.picture.roll((down, right), (-2, -1))
    return SourceScene(picture, scene.question, (x0 + right, y0 + down, x1 + right, y1 + down))


LAWS: dict[str, Law] = {
    "is described": is_described,
    "keeps views": keeps_views,
    "fills grids": fills_grids,
    "repeats": repeats,
    "remembers nothing": remembers_nothing,
    "reads questions": reads_questions,
    "abstains": abstains,
    "tells pictures apart": tells_pictures_apart,
    "finds places": finds_places,
}


def _same(one: Coupling, other: Coupling) -> bool:
    return torch.equal(one.logits, other.logits) and one.confidence == other.confidence


def _confidence(source: RelevanceSource, picture: Tensor, question: str) -> float:
    return source.couple(source.view(picture), question, PLACES).confidence


def _resized(picture: Tensor, height: int, width: int) -> Tensor:
    resized = F.interpolate(picture[None], (height, width), mode="bilinear", antialias=True)[0]
    return resized.clamp(0, 1)


# Scenes.


def word_scene(text: str, question: str, corner: tuple[int, int]) -> SourceScene:
    """Return a page with print in a corner: (0, 0) top left, (1, 0) top right, (0, 1) bottom left."""
    page = Image.new("RGB", SIZE, PAPER)
    draw, font = ImageDraw.Draw(page), load_font("DejaVuSans.ttf", PRINT)
    x0, y0, x1, y1 = draw.textbbox((0, 0), text, font)
    left, top = _corner(x1 - x0, y1 - y0, corner)
    draw.text((left - x0, top - y0), text, (20, 20, 20), font)
    return SourceScene(_tensor(page), question, (left, top, left + x1 - x0, top + y1 - y0))


def square_scene(colour: str, question: str, corner: tuple[int, int]) -> SourceScene:
    """Return a page with a square of a colour in a corner, (0, 0) to (1, 1) as in `word_scene`."""
    page = Image.new("RGB", SIZE, PAPER)
    left, top = _corner(SIDE, SIDE, corner)
    box = (left, top, left + SIDE, top + SIDE)
    ImageDraw.Draw(page).rectangle((left, top, left + SIDE - 1, top + SIDE - 1), colour)
    return SourceScene(_tensor(page), question, box)


def _corner(width: float, height: float, corner: tuple[int, int]) -> tuple[float, float]:
    (right, bottom), (x, y) = SIZE, corner
    return (right - MARGIN - width if x else MARGIN), (bottom - MARGIN - height if y else MARGIN)


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


WORDS = (
    word_scene("TOTAL 42.10", "What is the total?", (1, 0)),
    word_scene("CASHIER Mary", "Who is the cashier?", (0, 1)),
    word_scene("TABLE 17", "What is the number of the table?", (0, 0)),
    word_scene("INVOICE 9038", "What is the invoice number?", (1, 1)),
)
SQUARES = (
    square_scene("red", "Where is the red square?", (1, 0)),
    square_scene("blue", "Where is the blue square?", (0, 1)),
    square_scene("yellow", "Where is the yellow square?", (0, 0)),
    square_scene("green", "Where is the green square?", (1, 1)),
)
