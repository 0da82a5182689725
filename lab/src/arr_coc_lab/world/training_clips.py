"""Training rows of drawn clips: the data of a recipe that names `clips`, one frame of each clip.

A row is a frame, questions about the entire clip, and the boxes of their evidence in this frame. A question
whose evidence is elsewhere trains the layer to find none here, as the modes score a clip frame by frame.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from torch.utils.data import Dataset

from arr_coc.train.recipe import Recipe, RelevanceRecipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc_lab.world.clips import draw_clip
from arr_coc_lab.world.training_pages import PAGES

FIRST_CLIP = 190_000_000
"""Where the seeds of drawn clips begin."""
STEP = 32
"""Sides of frames are multiples of this, in px."""
LARGEST = 768
"""The longest side of a frame in px; larger sizes of a recipe are for pages."""


class ClipRows(Dataset[ImageRows]):
    """Frames of drawn clips of the training split; item i is fixed by the seed and i.

    `length` frames, each of its own clip, with a side of `sizes` (px, at most `LARGEST`) and at most
    `questions` each, at least half of them with evidence in the frame where there are as many. Clips of two
    seeds differ.
    """

    shuffled = False
    """The rows in order of their numbers, which are random already."""

    def __init__(
        self, length: int, sizes: Sequence[int] = (448,), questions: int = 16, seed: int = 0
    ) -> None:
        self.length, self.images, self.sizes, self.questions = length, length, sizes, questions
        self.first = seed * PAGES

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> ImageRows:
        if not 0 <= index < self.length:
            raise IndexError(index)
        rng = random.Random(f"clip {self.first + index}")
        side = max(128, min(rng.choice(self.sizes), LARGEST) // STEP * STEP)
        seed = self.first + FIRST_CLIP + index
        clip = draw_clip(seed, (side, side), split="train")
        frame = rng.randrange(len(clip.frames))
        if clip.questions:
            item = rng.choice(rng.choice(clip.questions).evidence)
            frame = rng.choice(item.frames)
        where = f"frame {frame} of world clip {seed}"
        here, elsewhere = [], []
        for question in clip.questions:
            boxes = tuple(item.box(frame) for item in question.evidence if frame in item.frames)
            row = Row(question.text, (question.answer,), boxes, question.family, 1.0, where)
            (here if boxes else elsewhere).append(row)
        rows = here[: self.questions]
        rows += elsewhere[: min(self.questions - len(rows), len(rows))]
        return ImageRows(clip.frames[frame], tuple(rows), where)


def open_clips(recipe: Recipe, length: int) -> tuple[ClipRows, frozenset[str]]:
    """Return the frames of drawn clips of a run; no family is named.

    Raises:
        ValueError: the recipe trains more than the place of evidence.
    """
    if not isinstance(recipe, RelevanceRecipe) or recipe.target != "boxes":
        raise ValueError(
            "data 'clips' has one frame of a clip at a time, which can't answer its questions: "
            "use stage=relevance target=boxes"
        )
    return ClipRows(length, recipe.sizes, recipe.questions, recipe.seed), frozenset()
