"""The filmstrip: a clip's steps side by side, with the cells that were not kept faded.

filmstrip(clip, allocation) -> PIL image
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import ceil

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.files.drawing import kept_picture
from arr_coc.video import FrameSource

MOST = 24  # steps in one picture; of more the ones of which most is kept
COLUMNS = 6
WIDTH, GAP, LINE = 240, 8, 22  # px: of a step, between steps, and of the line of text below
PAPER, INK, PALE, MARK = "#ffffff", "#1f2430", "#8a90a0", "#2f6fde"


def filmstrip(clip: FrameSource, allocation: Allocation) -> Image.Image:
    """Return a picture of a clip's steps with their times and how many cells are kept of each.

    The clip has the frames that the allocation, on a grid of (steps, H, W), was made from.
    """
    steps, masks = allocation.grid[0], allocation.mask()
    pictures = ceil(len(clip) / steps)  # frames of a step
    chosen = most_kept(masks)
    columns = min(COLUMNS, len(chosen))
    height = max(1, round(WIDTH * clip.size[1] / clip.size[0]))
    rows = ceil(len(chosen) / columns)
    size = (columns * (WIDTH + GAP) + GAP, rows * (height + LINE + GAP) + GAP)
    strip = Image.new("RGB", size, PAPER)
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(14)
    for place, (step, picture) in enumerate(_steps(clip, pictures, chosen)):
        x = GAP + place % columns * (WIDTH + GAP)
        y = GAP + place // columns * (height + LINE + GAP)
        kept = int(masks[step].sum())
        strip.paste(kept_picture(picture.resize((WIDTH, height)), masks[step : step + 1]), (x, y))
        draw.rectangle((x - 2, y - 2, x + WIDTH + 1, y + height + 1), outline=MARK if kept else PALE, width=2)
        text = f"{clip.times[step * pictures]:.1f} s   {kept:,} of {masks[step].numel():,} cells"
        draw.text((x, y + height + 4), text, fill=INK if kept else PALE, font=font)
    return strip


def most_kept(masks: Tensor) -> list[int]:
    """Return the steps of a filmstrip, rising, from masks [T, H, W]: all, or those of which most is kept."""
    kept = masks.flatten(1).sum(1)
    order = kept.argsort(descending=True, stable=True)[:MOST]
    return sorted(order.tolist())


def _steps(clip: FrameSource, pictures: int, chosen: Sequence[int]) -> Iterator[tuple[int, Image.Image]]:
    wanted = set(chosen)
    for number, frame in enumerate(islice(iter(clip), 0, None, pictures)):
        if number in wanted:
            yield number, frame
