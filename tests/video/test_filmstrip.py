"""The filmstrip of a clip."""

from __future__ import annotations

import torch
from PIL import Image

from arr_coc.relevance.deciding import best_kept
from arr_coc.video import FrameSource, open_clip
from arr_coc.video.filmstrip import COLUMNS, GAP, LINE, MOST, WIDTH, filmstrip, most_kept


def clip(frames: int) -> FrameSource:
    return open_clip([Image.new("RGB", (64, 32), (10 * (i % 25), 200, 60)) for i in range(frames)], fps=2.0)


def test_every_step_has_its_place() -> None:
    scores = torch.zeros(8, 2, 4)
    scores[3] = 1.0
    strip = filmstrip(clip(16), best_kept((8, 2, 4), scores, 8))
    height = WIDTH // 2
    assert strip.size == (COLUMNS * (WIDTH + GAP) + GAP, 2 * (height + LINE + GAP) + GAP)
    kept, faded = (strip.getpixel((GAP + i * (WIDTH + GAP) + 60, GAP + 60)) for i in (3, 4))
    assert kept[1] > 190
    assert max(faded) - min(faded) < 12  # gray


def test_of_many_steps_those_with_most_are_drawn_in_order() -> None:
    masks = torch.zeros(100, 2, 4, dtype=torch.bool)
    masks[70], masks[5, 0] = True, True
    steps = most_kept(masks)
    assert len(steps) == MOST
    assert steps == sorted(steps)
    assert {5, 70} <= set(steps)


def test_a_clip_of_one_step() -> None:
    strip = filmstrip(clip(1), best_kept((1, 2, 4), torch.rand(8), 3))
    assert strip.width == WIDTH + 2 * GAP
