"""Photographed pages: boxes follow what they mark."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PIL import Image, ImageDraw

from arr_coc_lab.world.photograph import blur, jpeg, noise, perspective, photograph, resize, rotate, shade
from each import each

SIZE = (480, 360)
BOXES = [
    (20.0, 30.0, 80.0, 50.0),
    (300.0, 200.0, 420.0, 216.0),
    (440.0, 330.0, 478.0, 358.0),
    (2.0, 300.0, 30.0, 310.0),
]


def page(box):
    image = Image.new("RGB", SIZE, "white")
    ImageDraw.Draw(image).rectangle(box, fill=(255, 0, 255))
    return image


def magenta(image):
    r, g, b = np.asarray(image, dtype=int).transpose(2, 0, 1)
    ys, xs = np.nonzero((r - g > 60) & (b - g > 60))
    return xs.min(), ys.min(), xs.max() + 1, ys.max() + 1


MOVES = {
    "rotate": lambda image, boxes: rotate(image, boxes, 7),
    "rotate-back": lambda image, boxes: rotate(image, boxes, -31),
    "upright": lambda image, boxes: rotate(image, boxes, 90),
    "perspective": lambda image, boxes: perspective(image, boxes, 0.2, seed=3),
    "smaller": lambda image, boxes: resize(image, boxes, 0.6),
    "larger": lambda image, boxes: resize(image, boxes, 1.7),
    **{f"photo-{i}": lambda image, boxes, i=i: photograph(image, boxes, random.Random(i)) for i in range(8)},
    "bad-photo": lambda image, boxes: photograph(image, boxes, random.Random(5), 1.6),
}


@each("move", MOVES)
@each("box", BOXES)
def test_boxes_follow_what_they_mark(move, box):
    image, (moved,) = MOVES[move](page(box), [box])
    assert np.abs(np.subtract(moved, magenta(image))).max() <= 4, (moved, magenta(image))


@each("move", MOVES)
def test_boxes_stay_inside_and_one_for_one(move):
    image, moved = MOVES[move](page(BOXES[0]), BOXES)
    assert len(moved) == len(BOXES)
    for x0, y0, x1, y1 in moved:
        assert 0 <= x0 < x1 <= image.width
        assert 0 <= y0 < y1 <= image.height


def test_only_resize_changes_the_size():
    for name, move in MOVES.items():
        image, _ = move(page(BOXES[0]), BOXES)
        assert image.mode == "RGB"
        assert (image.size == SIZE) is (name not in ("smaller", "larger"))


def test_a_moved_page_lies_on_a_table_and_not_on_black():
    image, _ = rotate(page(BOXES[0]), [], 20)
    corner = np.asarray(image)[:12, :12].reshape(-1, 3)
    assert 0 < corner.mean() < 250
    plain, _ = rotate(page(BOXES[0]), [], 0)
    assert np.array_equal(np.asarray(plain), np.asarray(page(BOXES[0])))


def test_same_seed_same_photo_and_another_seed_another():
    first, second, third = (photograph(page(BOXES[0]), BOXES, random.Random(i)) for i in (1, 1, 2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1] == second[1]
    assert first[0].tobytes() != third[0].tobytes()


def test_doses_grow():
    image = page(BOXES[1])
    plain = np.asarray(image, dtype=float)

    def change(changed):
        return np.abs(np.asarray(changed, dtype=float) - plain).mean()

    for light, heavy in (
        (jpeg(image, 90), jpeg(image, 8)),
        (blur(image, 0.7), blur(image, 4)),
        (noise(image, 2), noise(image, 20)),
        (shade(image, 0.1), shade(image, 0.7)),
    ):
        assert 0 < change(light) < change(heavy)
    assert change(blur(image, 0)) == 0


def test_a_share_that_folds_the_page_is_refused():
    with pytest.raises(ValueError, match="out of range"):
        perspective(page(BOXES[0]), BOXES, 0.5)
