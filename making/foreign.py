"""Foreign pictures: all that the drawn world is not, for the stem to be told apart from.

    draw_foreign(seed) -> RGB picture

Plain text on paper, plots, flat shapes, photograph-like noise and gradients, of any size: drawn from a seed
with Pillow, NumPy and matplotlib. They are no world to be read, and nobody is taught to read them.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable

import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from arr_coc.files.images import open_image

SIDES = (256, 384, 512, 768, 1024, 1024)
"""Typical sides of a picture in px; each is stretched by up to a half in either direction."""
WORDS = (
    "alpha total value house river 12 47% price $9.99 2024-03-01 the of and to in is it report user error "
    "page open file save cancel name street city phone date"
).split()


def draw_foreign(seed: int) -> Image.Image:
    """The picture of a seed."""
    rng = random.Random(seed)
    return rng.choice(KINDS)(rng, *_size(rng))


def _size(rng: random.Random) -> tuple[int, int]:
    """Width and height in px."""
    side, stretch = rng.choice(SIDES), math.exp(rng.uniform(-0.5, 0.5))
    return max(64, round(side * stretch)), max(64, round(side / stretch))


def _colour(rng: random.Random, low: int = 0, high: int = 255) -> tuple[int, int, int]:
    return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)


def plot(rng: random.Random, width: int, height: int) -> Image.Image:
    """Lines, bars, a pie, points or a heat map with a title."""
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    count = rng.choice((1, 1, 2))
    numbers = np.random.default_rng(rng.getrandbits(32))
    for place in range(count):
        axes = figure.add_subplot(1, count, place + 1)
        match rng.choice(("lines", "bars", "pie", "points", "map")):
            case "lines":
                for _ in range(rng.randint(1, 4)):
                    axes.plot(numbers.normal(size=40).cumsum())
            case "bars":
                axes.bar(range(6), numbers.random(6), color=[np.array(_colour(rng)) / 255 for _ in range(6)])
            case "pie":
                axes.pie(numbers.random(5) + 0.1, labels=[word.strip("$") for word in rng.sample(WORDS, 5)])
            case "points":
                axes.scatter(*numbers.random((2, 60)), c=numbers.random(60))
            case "map":
                axes.imshow(numbers.random((9, 9)))
        axes.set_title(" ".join(rng.sample(WORDS, 3)).replace("$", ""))
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return open_image(stream.getvalue())


def shapes(rng: random.Random, width: int, height: int) -> Image.Image:
    """A few flat shapes on a flat ground, or the ground alone."""
    grounds = ((255, 255, 255), (0, 0, 0), _colour(rng), _colour(rng, low=200), _colour(rng, high=60))
    image = Image.new("RGB", (width, height), rng.choice(grounds))
    pen = ImageDraw.Draw(image)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        x, y, half = rng.randrange(width), rng.randrange(height), rng.uniform(0.02, 0.25) * min(width, height)
        draw = rng.choice((pen.ellipse, pen.rectangle))
        draw((x - half, y - half, x + half, y + half), _colour(rng), rng.choice((None, (0, 0, 0))))
    return image


def text(rng: random.Random, width: int, height: int) -> Image.Image:
    """Lines of text in all sizes, light or dark, with rules, frames and buttons, as on an ordinary screen."""
    dark = rng.random() < 0.3
    paper = _colour(rng, high=40) if dark else rng.choice(((255, 255, 255), _colour(rng, low=225)))
    ink = _colour(rng, low=180) if dark else rng.choice(((0, 0, 0), _colour(rng, high=110)))
    image = Image.new("RGB", (width, height), paper)
    pen, y, margin = ImageDraw.Draw(image), rng.randint(4, 60), rng.randint(4, 80)
    last = height * rng.choice((0.4, 0.95, 0.95))
    while y < last:
        size = rng.choice((11, 12, 13, 14, 16, 16, 18, 22, 30))
        letters = ImageFont.truetype(rng.choice(_fonts()), size)
        pen.text((margin, y), " ".join(rng.choices(WORDS, k=rng.randint(1, 14))), ink, letters)
        if rng.random() < 0.15:
            pen.line((margin, y - 3, max(margin, width - margin), y - 3), (200, 200, 200))
        if rng.random() < 0.08:
            pen.rectangle((margin, y, max(margin, width - margin), y + 3 * size), outline=(190, 190, 190))
        if rng.random() < 0.06:
            pen.rounded_rectangle((margin, y + size, margin + 120, y + size + 30), 8, _colour(rng))
            y += 40
        y += int(size * rng.choice((1.2, 1.5, 2.2)))
    return image


def photograph(rng: random.Random, width: int, height: int) -> Image.Image:
    """Noise with the spectrum of photographs, sometimes with soft-coloured bodies in it."""
    numbers, fall = np.random.default_rng(rng.getrandbits(32)), rng.uniform(0.8, 2.2)
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    amplitude = (across**2 + down**2 + 1e-6) ** (-fall / 2)

    def layer() -> np.ndarray:
        phase = np.exp(2j * np.pi * numbers.random(amplitude.shape))
        return np.fft.irfft2(amplitude * phase, (height, width))

    light, channels = layer(), []
    for _ in range(3):
        values = light + 0.4 * layer()
        values = (values - values.mean()) / values.std()
        channels.append(128 + rng.uniform(-40, 40) + rng.uniform(25, 60) * values)
    image = Image.fromarray(np.stack(channels, -1).clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(rng.choice((0, rng.randint(1, 5)))):
        x, y, half = rng.randrange(width), rng.randrange(height), rng.uniform(0.1, 0.4) * min(width, height)
        pen.ellipse((x - half, y - 0.7 * half, x + half, y + 0.7 * half), _colour(rng))
    return image


def gradient(rng: random.Random, width: int, height: int) -> Image.Image:
    """A gradient between three colours, smooth or with noise."""
    first, right, below = (np.array(_colour(rng), float) for _ in range(3))
    u, v = np.linspace(0, 1, width)[None, :, None], np.linspace(0, 1, height)[:, None, None]
    values = first + (right - first) * u + (below - first) * v
    noise = np.random.default_rng(rng.getrandbits(32)).normal(size=values.shape)
    return Image.fromarray((values + rng.choice((0, 0, 5, 60)) * noise).clip(0, 255).astype(np.uint8))


def _fonts() -> list[str]:
    """The fonts that matplotlib ships, which every machine has alike."""
    entries = font_manager.fontManager.ttflist
    return sorted(
        {e.fname for e in entries if "mpl-data" in e.fname and e.name.startswith(("DejaVu", "STIXG"))}
    )


KINDS: tuple[Callable[[random.Random, int, int], Image.Image], ...] = (
    plot,
    shapes,
    text,
    text,
    photograph,
    gradient,
)
"""What a picture is drawn by; text twice as often."""
