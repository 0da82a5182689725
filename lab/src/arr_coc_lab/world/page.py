"""Pages drawn from a seed.

    draw_page(seed, size, split) -> Page(image, questions, facts, things)

The same arguments give the same page. The three splits never share a seed. `train` and `validation` use the
training templates and fonts; `test` also uses templates and fonts that the other two don't.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from PIL import Image

from arr_coc_lab.world import blocks
from arr_coc_lab.world.canvas import Canvas, Fact, Rect, Thing, blank_canvas
from arr_coc_lab.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS
from arr_coc_lab.world.layout import HELD_OUT_TEMPLATES, TRAIN_TEMPLATES, divide
from arr_coc_lab.world.questions import Question, ask_all
from arr_coc_lab.world.vocabulary import COLOURS, LABELS, SHAPES

__all__ = ["PAGES", "Fact", "Page", "Question", "Thing", "draw_page", "page_seed", "pages_of"]

SPLITS: tuple[str, ...] = ("train", "validation", "test")
PAGES = 1_000_000  # the most pages of one run; another seed's follow behind them
MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class Page:
    """A drawn page with its questions and annotations.

    Attributes:
        image: the picture, RGB.
        questions: questions with answers and evidence.
        facts: the texts that can be asked for.
        things: the coloured shapes.
        glyphs: the characters with their boxes in px.
        template: name of the layout.
        seed: the seed of `draw_page`.
    """

    image: Image.Image
    questions: tuple[Question, ...]
    facts: tuple[Fact, ...]
    things: tuple[Thing, ...]
    glyphs: tuple[tuple[str, Rect], ...]
    template: str
    seed: int


def check_size(size: tuple[int, int], least: int, most: int = 4096) -> None:
    """Raise a ValueError unless both sides of (width, height) in px are within least and most."""
    if not all(least <= side <= most for side in size):
        raise ValueError(f"size {size[0]}x{size[1]} is out of range; both sides must be {least} to {most} px")


def page_seed(seed: int, split: str) -> int:
    """Return the random generator's seed for a page: different in each split (they differ modulo 3)."""
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown; use one of {', '.join(SPLITS)}")
    if seed < 0:
        raise ValueError(f"seed {seed} is negative; use 0 or more")
    return 3 * seed + SPLITS.index(split)


def pages_of(seed: int) -> range:
    """Return the pages that a run with a seed draws, as seeds of `draw_page`: no two runs share one.

    Raises:
        ValueError: the seed is out of range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed {seed} is out of range; use 0 to {MAX_SEED}")
    return range(seed * PAGES, (seed + 1) * PAGES)


def wanted_things(rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Random pairs (colour, shape): some words once, others up to six times, for every family."""

    def plan(words: list[str]) -> list[str]:
        rng.shuffle(words)
        plan: list[str] = []
        for i, word in enumerate(words[: rng.randint(5, len(words))]):
            plan += [word] * (1 if i < 2 else rng.randint(1, 6))
        while len(plan) < count:
            plan.append(rng.choice(words[2:]))
        head, tail = plan[:2], plan[2:]
        rng.shuffle(tail)
        plan = (head + tail)[:count]
        rng.shuffle(plan)
        return plan

    return list(zip(plan(list(COLOURS)), plan(list(SHAPES)), strict=True))


def _kinds(rng: random.Random, count: int, void: bool) -> list[str]:
    """Return the kind of each of `count` blocks; those whose questions name no label occur at most once."""
    if void:
        return ["texture"] * count
    rest = ["fields", "scene", "fields", "scene", "table", "note", "faint", "small", "stacked", "paragraph"]
    rest += rng.choices(
        ("fields", "scene", "paragraph", "table", "texture", "scene"), k=max(0, count - len(rest))
    )
    if count < 6:
        return rng.sample(rest[:9], count)
    kinds = rest[:count]
    rng.shuffle(kinds)
    return kinds


def draw_page(
    seed: int, size: tuple[int, int] = (1024, 1024), split: str = "train", void: bool | None = None
) -> Page:
    """Draw one page, fixed by `seed`, `size` and `split`.

    Args:
        seed: 0 or more.
        size: width and height in pixels, each 64 to 4096.
        split: "train", "validation" or "test".
        void: True: texture alone, without texts or shapes; None: decided by the seed (about 1 page in 40).

    Raises:
        ValueError: an unknown split, a negative seed, a size out of range.
    """
    width, height = size
    check_size(size, 64)
    rng = random.Random(page_seed(seed, split))
    new = split == "test"
    template = rng.choice(TRAIN_TEMPLATES + HELD_OUT_TEMPLATES if new else TRAIN_TEMPLATES)
    fonts = HELD_OUT_FONTS if new and rng.random() < 0.3 else TRAIN_FONTS
    if void is None:
        void = rng.random() < 0.025

    dark = rng.random() < 0.12
    canvas = blank_canvas(size, rng, fonts, dark)

    margin = rng.randint(4, 16) if min(size) < 400 else rng.randint(10, 28)
    top, bottom = margin, height - margin
    # In the test split alone a page may have its title at the bottom.
    below = new and rng.random() < 0.25
    if not void and height > 150 and rng.random() < (0.85 if min(size) >= 400 else 0.35):
        start = bottom - 64 if below else top
        blocks.title(canvas, (margin, start, width - margin, start + 64))
        top, bottom = (top, bottom - 78) if below else (top + 78, bottom)
    rects = [
        r
        for r in divide(rng, (margin, top, width - margin, bottom), template)
        if r[2] - r[0] > 40 and r[3] - r[1] > 40
    ]

    labels = rng.sample(LABELS, len(LABELS))
    per_block = 2 + len(LABELS) // max(4, len(rects))
    kinds = _kinds(rng, len(rects), void)
    scenes = [r for r, k in zip(rects, kinds, strict=True) if k == "scene"]
    room = sum((r[2] - r[0]) * (r[3] - r[1]) for r in scenes)
    things = wanted_things(rng, min(26, max(len(scenes) * 2, room // 14000)))
    for i, (rect, kind) in enumerate(zip(rects, kinds, strict=True)):
        _draw_block(
            canvas, rect, kind, labels, per_block, things, last=not any(k == "scene" for k in kinds[i + 1 :])
        )
    questions = ask_all(rng, canvas.facts, canvas.things, width)
    return Page(
        canvas.image,
        tuple(questions),
        tuple(canvas.facts),
        tuple(canvas.things),
        tuple(canvas.glyphs),
        template,
        seed,
    )


def _draw_block(
    canvas: Canvas,
    rect: Rect,
    kind: str,
    labels: list[str],
    per_block: int,
    things: list[tuple[str, str]],
    last: bool,
) -> None:
    """Draw a block of one of `_kinds`; labels and (colour, shape) pairs are removed from their lists as used.

    The `last` scene gets all pairs that are left; a block has at most `per_block` labels.
    """
    if kind in ("fields", "stacked", "table"):
        mine = [labels.pop() for _ in range(min(per_block, len(labels)))]
        if kind == "table":
            lowest = blocks.table(canvas, rect, mine)
        else:
            lowest = blocks.fields(canvas, rect, mine, stacked=kind == "stacked")
        labels += mine  # those that did not fit are left for the next block
        rest = (rect[0], lowest + 10, rect[2], rect[3])
        if rest[3] - rest[1] > 24:
            (blocks.paragraph if canvas.rng.random() < 0.6 else blocks.texture)(canvas, rest)
    elif kind == "scene":
        share = len(things) if last else max(2, len(things) // 2)
        mine = [things.pop() for _ in range(min(share, len(things)))]
        blocks.scene(canvas, rect, mine)
        things += mine
    elif kind == "note":
        if canvas.rng.random() < 0.5:
            blocks.texture(canvas, rect)
        blocks.note(canvas, rect)
    elif kind == "faint":
        blocks.faint(canvas, rect)
    elif kind == "small":
        blocks.paragraph(canvas, (rect[0], rect[1] + 58, rect[2], rect[3]))
        blocks.small(canvas, (rect[0], rect[1], rect[2], rect[1] + 56))
    elif kind == "paragraph":
        blocks.paragraph(canvas, rect)
    else:
        blocks.texture(canvas, rect)
