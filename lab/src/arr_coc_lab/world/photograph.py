"""Photo effects on pages: tilt, uneven light, blur, noise, compression; evidence boxes follow.

    image, boxes = photograph(image, boxes, rng)            all effects, at random strengths
    image, boxes = rotate(image, boxes, 5)                  one effect at a given strength

Boxes become the hull of their moved corners. Only `resize` changes the picture's size: a moved page is drawn
smaller where it must be, so that all of it stays in.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in px."""
Points = NDArray[np.float64]
"""Rows of x, y."""
FIELD = 24  # px: side of the coarse picture of the light, enlarged over the page


def photograph(
    image: Image.Image, boxes: Sequence[Box], rng: random.Random, strength: float = 1.0
) -> tuple[Image.Image, list[Box]]:
    """Photograph a page by hand: every effect at a random strength.

    `strength` 0 leaves nearly everything as it is, 1 is an ordinary photo, 2 a bad one.
    """
    if rng.random() < 0.85:
        degrees = rng.gauss(0, 4) * strength
        corners = _turned(_corners(image.size), degrees)
        corners = _tilted(corners, rng, rng.uniform(0, 0.1) * strength)
        corners = _framed(corners, image.size, rng.uniform(0, 0.05) * strength)
        image, boxes = _moved(image, boxes, corners, table(image.size, rng))
    if rng.random() < 0.8:
        image = shade(image, rng.uniform(0.1, 0.5) * strength, rng.random())
    scale = max(image.size) / 1024
    if rng.random() < 0.6:
        image = blur(image, rng.uniform(0, 0.9) * strength * scale)
    if rng.random() < 0.6:
        image = noise(image, rng.uniform(1, 9) * strength, rng.randrange(2**32))
    if rng.random() < 0.7:
        image = jpeg(image, round(95 - rng.uniform(0, 45) * min(1.8, strength)))
    return image, list(boxes)


def rotate(
    image: Image.Image, boxes: Sequence[Box], degrees: float, seed: int = 0
) -> tuple[Image.Image, list[Box]]:
    """Turn a page and its boxes clockwise by `degrees` on a table; `seed` is of the table's colours."""
    corners = _framed(_turned(_corners(image.size), degrees), image.size, 0)
    return _moved(image, boxes, corners, table(image.size, random.Random(seed)))


def perspective(
    image: Image.Image, boxes: Sequence[Box], share: float, seed: int = 0
) -> tuple[Image.Image, list[Box]]:
    """View a page from the side: each corner moves by at most `share` of the sides.

    Raises:
        ValueError: the share is out of range: 0 to below 0.5.
    """
    if not 0 <= share < 0.5:
        raise ValueError(f"share {share} is out of range; use 0 to below 0.5")
    rng = random.Random(seed)
    corners = _framed(_tilted(_corners(image.size), rng, share), image.size, 0)
    return _moved(image, boxes, corners, table(image.size, rng))


def resize(image: Image.Image, boxes: Sequence[Box], factor: float) -> tuple[Image.Image, list[Box]]:
    """Scale a page and its boxes; the only effect that changes the size."""
    width, height = (max(1, round(side * factor)) for side in image.size)
    across, down = width / image.width, height / image.height
    scaled = [(x0 * across, y0 * down, x1 * across, y1 * down) for x0, y0, x1, y1 in boxes]
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0), scaled


def jpeg(image: Image.Image, quality: int) -> Image.Image:
    """Return the page after JPEG compression with a quality from 1 to 95."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=max(1, min(95, quality)))
    return Image.open(file).convert("RGB")


def blur(image: Image.Image, radius: float) -> Image.Image:
    """Return the page out of focus: a box blur of a radius in px."""
    return image.filter(ImageFilter.BoxBlur(radius)) if radius > 0 else image


def noise(image: Image.Image, sigma: float, seed: int = 0) -> Image.Image:
    """Return the page with grain of a standard deviation in grey levels (of 255)."""
    grain = np.random.default_rng(seed).standard_normal((image.height, image.width, 1), dtype=np.float32)
    pixels = np.asarray(image, dtype=np.int16) + np.rint(grain * sigma).astype(np.int16)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def shade(image: Image.Image, strength: float, turn: float = 0.1) -> Image.Image:
    """Return the page in uneven light: falling off to one side, a soft shadow's edge, a tint.

    `strength` is how much of the light is missing where it is darkest, 0 to 1; `turn` is where the light
    comes from, in turns, and decides shadow and tint too.
    """
    strength = max(0.0, min(0.95, strength))
    angle = 2 * math.pi * turn
    y, x = np.mgrid[0 : 1 : FIELD * 1j, 0 : 1 : FIELD * 1j] - 0.5
    along = x * math.cos(angle) + y * math.sin(angle)
    across = y * math.cos(angle + 1) - x * math.sin(angle + 1)
    fall = 0.6 * (along + 0.7) / 1.4
    edge = 0.4 / (1 + np.exp(-14 * (across + 0.3 * math.sin(7 * angle))))
    light = 1 - strength * (fall + edge)
    tint = 1 - 0.15 * strength * (1 + np.sin(angle * 3 + np.array([0.0, 2.1, 4.2])))
    field = np.rint(255 * light[..., None] * tint).clip(0, 255).astype(np.uint8)
    return ImageChops.multiply(image, Image.fromarray(field).resize(image.size, Image.Resampling.BICUBIC))


def table(size: tuple[int, int], rng: random.Random) -> Image.Image:
    """Return the background under a page: two shades of a dull colour, sometimes grained like wood."""
    tint = np.array([rng.uniform(-25, 35), rng.uniform(-15, 15), rng.uniform(-40, 20)])
    low = tint + rng.uniform(20, 210)
    high = low * rng.uniform(0.6, 1.3)
    ramp = np.linspace(0, 1, FIELD)
    share = ramp[:, None] * rng.random() + ramp[None] * rng.random()
    if rng.random() < 0.5:
        waves = np.sin(np.linspace(0, rng.uniform(20, 200), FIELD * 8)) * 0.1
        share = np.repeat(share, 8, axis=0) + waves[:, None]
    field = low + (high - low) * share[..., None] / 2
    coarse = Image.fromarray(field.clip(0, 255).astype(np.uint8))
    return coarse.resize(size, Image.Resampling.BICUBIC)


def _corners(size: tuple[int, int]) -> Points:
    """Return the corners of a picture, clockwise from the upper left."""
    width, height = size
    return np.array([[0, 0], [width, 0], [width, height], [0, height]], float)


def _turned(corners: Points, degrees: float) -> Points:
    """Corners turned clockwise about their middle."""
    angle = math.radians(degrees)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    middle = corners.mean(0)
    return (corners - middle) @ turn + middle


def _tilted(corners: Points, rng: random.Random, share: float) -> Points:
    """Corners that each move inwards by up to a share of the sides."""
    sides = np.ptp(corners, axis=0)
    inwards = np.sign(corners.mean(0) - corners)
    moves = np.array([[rng.random(), rng.random()] for _ in corners])
    return corners + inwards * moves * share * sides


def _framed(corners: Points, size: tuple[int, int], margin: float) -> Points:
    """Corners shrunk, if they must be, into the middle of a frame with a margin (a share of it)."""
    frame = np.array(size, float)
    low, high = corners.min(0), corners.max(0)
    factor = min(1.0, float(((1 - 2 * margin) * frame / (high - low)).min()))
    return (corners - (low + high) / 2) * factor + frame / 2


def _moved(
    image: Image.Image, boxes: Sequence[Box], corners: Points, ground: Image.Image
) -> tuple[Image.Image, list[Box]]:
    """Return a page drawn with its corners elsewhere on a ground of its size, and its boxes."""
    if np.allclose(corners, _corners(image.size)):
        return image, list(boxes)
    there = _homography(_corners(image.size), corners)
    back = np.linalg.inv(there)
    coefficients = (back / back[2, 2]).ravel()[:8].tolist()
    method = Image.Transform.PERSPECTIVE
    page = image.transform(image.size, method, coefficients, Image.Resampling.BILINEAR)
    mask = Image.new("L", image.size, 0)
    middle = corners.mean(0)  # a pixel further in: at the very edge the page is mixed with nothing
    inner = middle + (corners - middle) * (1 - 3 / np.ptp(corners, axis=0))
    ImageDraw.Draw(mask).polygon([tuple(corner) for corner in inner.tolist()], fill=255)
    ground.paste(page, mask=mask)
    return ground, [_hull(box, there, image.size) for box in boxes]


def _homography(source: Points, target: Points) -> NDArray[np.float64]:
    """Return the projective map, 3 x 3, that takes four points to four others."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    solution = np.linalg.solve(np.array(rows), target.ravel())
    return np.append(solution, 1.0).reshape(3, 3)


def _hull(box: Box, there: NDArray[np.float64], size: tuple[int, int]) -> Box:
    """Return the upright box around a mapped box, inside a picture of a size."""
    x0, y0, x1, y1 = box
    points = np.array([[x0, y0, 1], [x1, y0, 1], [x1, y1, 1], [x0, y1, 1]]) @ there.T
    points = (points[:, :2] / points[:, 2:]).clip(0, size)
    (left, top), (right, bottom) = points.min(0).tolist(), points.max(0).tolist()
    return left, top, right, bottom
