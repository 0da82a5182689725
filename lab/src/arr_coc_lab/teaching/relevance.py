"""Relevance training of the guide: its head learns which cells a question needs, from evidence boxes.

Kinds of questions are mixed from the first step: trained on labels and values alone, a head forgets to find
a word. Cells compete for each question (a softmax whose target is even over the evidence), each cell is also
classified alone, so that a probability means the same on every page, and questions that the page does not
answer train the guide to reject them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.guide import Guide, GuidePage, cell_logits
from arr_coc.guide.print_encoder import PLACE
from arr_coc.guide.question import normal, split_words, terms
from arr_coc_lab.teaching.names import EVERY, names_of
from arr_coc_lab.teaching.page import OpenPage
from arr_coc_lab.teaching.spotting import distort, moved
from arr_coc_lab.teaching.wording import as_typed, layout_questions
from arr_coc_lab.world.browser.chromium import Box, Word
from arr_coc_lab.world.browser.page import Inquired
from arr_coc_lab.world.browser.phrases import phrase
from arr_coc_lab.world.photograph import photograph

SHOWN_NAMES, OTHER_NAMES = 24, 8  # names of a window's things, and of others
LOOK_QUESTIONS = (
    "what colour is the {}", "where is the {}", "which picture shows a {}", "what is the {} icon called",
    "which button shows the {}", "{}", "how many {} are there", "find the {} icon", "what is next to the {}",
)  # fmt: skip
NONE, PART = -1, -2  # places without a thing; with a part of one, or with one whose name is not asked


class Named(NamedTuple):
    """The words of a question, of which `words[first:last]` name a thing."""

    words: tuple[str, ...]
    first: int
    last: int


class Looks(NamedTuple):
    """Names, and the index of the one that is drawn at each place, long [H, W], or NONE or PART."""

    names: tuple[Named, ...]
    places: Tensor


def make_looks(things: Sequence[tuple[str, Box]], size: tuple[int, int], rng: random.Random) -> Looks | None:
    """Names of things in a window of `size` (width, height) px, with their places; None without things."""
    width, height = size
    inside = [
        (name, box)
        for name, box in things
        if 0 <= (box[0] + box[2]) / 2 < width and 0 <= (box[1] + box[3]) / 2 < height
    ]
    if not inside:
        return None
    names = sorted({name for name, _ in inside})
    chosen = rng.sample(names, min(SHOWN_NAMES, len(names)))
    others = [name for name in EVERY if name not in names]
    numbers = {name: number for number, name in enumerate(chosen)}
    places = torch.full((height // PLACE[0], width // PLACE[1]), NONE)
    for partly in (True, False):
        for name, box in inside:
            rows, columns = (_covered(box, axis, partly, places.shape[axis]) for axis in (0, 1))
            places[rows, columns] = PART if partly else numbers.get(name, PART)
    every = [*chosen, *rng.sample(others, min(OTHER_NAMES, len(others)))]
    return Looks(tuple(_named(name, rng) for name in every), places)


def _covered(box: Box, axis: int, partly: bool, count: int) -> slice:
    """Places along an axis that a box touches (`partly`), or that have their middle in it, at least one."""
    low, high = (edge / PLACE[axis] for edge in (box[1 - axis], box[3 - axis]))
    middle = int((low + high) / 2)
    first, last = (int(low), int(high)) if partly else (round(low), round(high) - 1)
    return slice(max(0, min(first, middle)), min(count - 1, max(last, middle)) + 1)


def _named(name: str, rng: random.Random) -> Named:
    """Return a name of a thing in a question."""
    before, after = (split_words(part) for part in rng.choice(LOOK_QUESTIONS).split("{}"))
    own = split_words(rng.choice(names_of(name)))
    return Named((*before, *own, *after), len(before), len(before) + len(own))


def looks_loss(guide: Guide, page: GuidePage, lesson: Looks) -> Tensor:
    """Loss of named things: which name each place shows (softmax), and whether it shows it at all."""
    reading = guide.read([name.words for name in lesson.names])
    every = guide.head.appearance(page.features, reading.tokens).float()  # (names, words, H, W)
    # The best matching word of a name.
    looks = [one[first:last].amax(0) for one, (_, first, last) in zip(every, lesson.names, strict=True)]
    logits, places = torch.stack(looks), lesson.places.to(page.features.device)
    here = places >= 0
    elsewhere = F.softplus(logits[:, places == NONE]).mean()
    if not bool(here.any()):
        return elsewhere
    mine, right = logits[:, here].T, places[here]
    yes = F.softplus(-mine.gather(1, right[:, None])).mean()
    return F.cross_entropy(mine, right) + yes + elsewhere


CELL = 32  # side in px of the evidence's cells
SIDES = (512, 768, 1024, 1024, 1280)  # longest sides in px of windows
# All sides in px of windows, few, since a CPU compiles kernels for each size, which takes as long as
# running them. They stretch a window by an eighth at most (below 256 px by more).
LENGTHS = (32, *range(64, 512, 64), *range(512, 1281, 128))
QUESTIONS = 6  # questions of a page in a step
# Kinds of questions that a window does not answer once all of their evidence is cut off.
POINTED = frozenset(
    (
        "value",
        "crossing",
        "price",
        "switch",
        "term",
        "word",
        "implied",
        "chart",
        "paraphrase",
        "button",
        "table",
        "label",
    )
)
LAYOUT = 0.4  # share of windows with questions about the layout of print
SMALLEST = 8.5  # print in px is made hardly smaller than this: only by the rounding to LENGTHS


class Lesson(NamedTuple):
    """A question with its evidence, bool [H, W] cells, and whether the page answers it."""

    text: str
    kind: str
    evidence: Tensor
    present: bool


class Aside(NamedTuple):
    """A question that trains the scope alone: whether it is about the whole image, or about an anomaly."""

    text: str
    whole: float
    odd: float


class PageWindow(NamedTuple):
    """A part of a page in its px, and the (width, height) in px to which it is resized."""

    part: Box
    size: tuple[int, int]

    @property
    def scale(self) -> tuple[float, float]:
        """Px of the window per px of the page, in x and y."""
        x0, y0, x1, y1 = self.part
        return self.size[0] / (x1 - x0), self.size[1] / (y1 - y0)

    def placed(self, box: Box) -> Box:
        return moved(box, self.part[:2], self.scale)

    def words(self, words: Sequence[Word]) -> list[Word]:
        """Return the words of the page that are at least partly in the window, in its px."""
        here = [Word(word.text, self.placed(word.box), word.size * self.scale[1]) for word in words]
        return [word for word in here if _touches(word.box, self.size)]


class WindowExample(NamedTuple):
    """A window, float [3, h, w] in [0, 1] with sides multiples of 32, its questions and named things."""

    pixels: Tensor
    lessons: list[Lesson]
    asides: list[Aside]
    looks: Looks | None


def make_example(page: OpenPage, foreign: Sequence[Inquired], rng: random.Random) -> WindowExample | None:
    """Return a random window of a page at a random scale with questions of mixed kinds; None without
    questions.

    `foreign` are questions of another page, of which one may be asked here as unanswerable.
    """
    if not page.questions:
        return None
    image, boxes = page.image, [box for question in page.questions for box in question.evidence]
    count = len(boxes)
    boxes += [box for _, box in page.things]
    flat = rng.random() >= 0.15
    if not flat:
        image, boxes = photograph(image, boxes, rng)
    sizes = sorted(word.size for word in page.words) or [16.0]
    floor = min(1.0, SMALLEST / sizes[len(sizes) // 10])
    scale = max(floor, min(1.6, 0.55 * 3.2 ** rng.random()))
    scale = max(scale, 256 / max(image.size))
    window = _window(image, boxes[:count], scale, rng)
    pixels = _pixels(image, window)
    height, width = pixels.shape[1:]
    grid = (height // CELL, width // CELL)
    lessons: dict[str, list[Lesson]] = defaultdict(list)
    absent: list[str] = []
    place = 0
    for question in page.questions:
        mine = boxes[place : place + len(question.evidence)]
        place += len(question.evidence)
        placed = [window.placed(box) for box in mine]
        if all(x0 >= -2 and y0 >= -2 and x1 <= width + 2 and y1 <= height + 2 for x0, y0, x1, y1 in placed):
            cells = evidence_cells(placed, grid, (width, height))
            text = phrase(rng, "title") if question.kind == "title" and rng.random() < 0.5 else question.text
            lessons[question.kind].append(Lesson(as_typed(text, rng), question.kind, cells, bool(mine)))
        elif question.kind in POINTED and not any(_touches(box, (width, height)) for box in placed):
            absent.append(question.text)
    if flat and page.words and rng.random() < LAYOUT:
        for question in layout_questions(window.words(page.words), window.size, rng):
            cells = evidence_cells(question.evidence, grid, (width, height))
            lessons[question.kind].append(Lesson(as_typed(question.text, rng), question.kind, cells, True))
    nothing = torch.zeros(grid, dtype=torch.bool)
    printed = {normal(word.text) for word in page.words}
    strangers = [q.text for q in foreign if q.evidence and not _answers(q, printed)]
    for vain, share in ((strangers, 0.6), (absent, 0.4)):
        if vain and rng.random() < share:
            text = as_typed(rng.choice(vain), rng)
            lessons["unanswerable"].append(Lesson(text, "unanswerable", nothing, False))
    chosen = _even(lessons, rng)
    asides = [
        Aside(as_typed(phrase(rng, "anomaly"), rng), 0.0, 1.0),
        Aside(as_typed(phrase(rng, "global"), rng), 1.0, 0.0),
    ]
    asides += [Aside(q.text, 0.0, 0.0) for q in foreign[:6] if q.kind not in ("anomaly", "global")]
    pixels = distort(pixels, rng) if rng.random() < 0.5 else pixels
    placed = [window.placed(box) for box in boxes[count:]]
    things = [(name, box) for (name, _), box in zip(page.things, placed, strict=True)]
    return WindowExample(pixels, chosen, asides, make_looks(things, (width, height), rng)) if chosen else None


def _window(image: Image.Image, boxes: Sequence[Box], scale: float, rng: random.Random) -> PageWindow:
    """Return a window around some evidence, with a longest side of at most one of SIDES."""
    longest = rng.choice(SIDES)
    width, height = (min(side, longest / scale) for side in image.size)
    x0, y0, x1, y1 = rng.choice(boxes) if boxes else (0.0, 0.0, image.width, image.height)
    left = max(0.0, min((x0 + x1) / 2 - width * rng.uniform(0.2, 0.8), image.width - width))
    top = max(0.0, min((y0 + y1) / 2 - height * rng.uniform(0.2, 0.8), image.height - height))
    return PageWindow(
        (left, top, left + width, top + height), (_length(width * scale), _length(height * scale))
    )


def _length(side: float) -> int:
    """Return the nearest of LENGTHS, by ratio."""
    return min(LENGTHS, key=lambda length: max(length / side, side / length))


def _pixels(image: Image.Image, window: PageWindow) -> Tensor:
    """Return a window of an image, float [3, h, w] in [0, 1]."""
    part = image.resize(window.size, Image.Resampling.BICUBIC, box=window.part)
    return torch.from_numpy(np.asarray(part).copy()).permute(2, 0, 1).float() / 255


def _touches(box: Box, size: tuple[int, int]) -> bool:
    """Return whether a box is at least partly in a window of (width, height)."""
    x0, y0, x1, y1 = box
    return x1 > 0 and y1 > 0 and x0 < size[0] and y0 < size[1]


def _answers(question: Inquired, printed: set[str]) -> bool:
    """Return whether a page may answer another page's question: a rare word of it is printed."""
    return any(len(word) > 3 and word in printed for word in split_words(question.text))


def _even(lessons: dict[str, list[Lesson]], rng: random.Random) -> list[Lesson]:
    """At most QUESTIONS questions, drawn evenly over their kinds."""
    chosen: list[Lesson] = []
    pools = {kind: rng.sample(each, len(each)) for kind, each in lessons.items()}
    while pools and len(chosen) < QUESTIONS:
        kind = rng.choice(sorted(pools))
        chosen.append(pools[kind].pop())
        if not pools[kind]:
            del pools[kind]
    return chosen


def relevance_loss(guide: Guide, example: WindowExample) -> tuple[Tensor, dict[str, float]]:
    """Loss of a window with questions, and its parts.

    "twice" is the share of evidence among twice as many best cells. The print and word encoders are frozen.
    """
    device = guide.threshold.device
    pixels = example.pixels.to(device)
    with torch.no_grad():
        scales = guide.encode_print(pixels[None])
    page = guide.compose(pixels[None], scales)
    # Float32: nothing learns here, and in bfloat16 oneDNN compiles kernels for every number of words.
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        search = guide.search(page, [lesson.text for lesson in example.lessons])
    judged = guide.weigh(page, search)
    height, width = pixels.shape[1:]
    cells = cell_logits(judged.logits, (height, width), (height // CELL, width // CELL)).flatten(1)  # (Q, N)
    target = torch.stack([lesson.evidence for lesson in example.lessons]).flatten(1).to(device).float()
    count = target.sum(1)
    kinds = [lesson.kind for lesson in example.lessons]
    whole = torch.tensor([float(kind == "global") for kind in kinds], device=device)
    odd = torch.tensor([float(kind == "anomaly") for kind in kinds], device=device)
    present = torch.tensor([float(lesson.present) for lesson in example.lessons], device=device)
    pointed = count > 0
    log = cells.log_softmax(1)  # over the N cells of a page
    compete = -(log * target).sum(1) / count.clamp_min(1)
    compete = compete - count.clamp_min(1).log() * pointed  # less the target's entropy: the minimum is 0
    # by evidence cells, not all: a large page weighs no more; at least 8, for questions without evidence
    alone = F.binary_cross_entropy_with_logits(cells, target, reduction="none").sum(1) / count.clamp_min(8)
    judged_present = F.binary_cross_entropy_with_logits(judged.present, present, reduction="none") * (
        1 - whole
    )
    scope = F.binary_cross_entropy_with_logits(judged.overview, whole) + F.binary_cross_entropy_with_logits(
        judged.unusual, odd
    )
    scope = scope + _aside_loss(guide, example.asides)
    local = 1 - whole
    looks = cells.new_zeros(()) if example.looks is None else looks_loss(guide, page, example.looks)
    loss = (compete * pointed).mean() + 0.5 * (alone * local).mean() + 0.5 * judged_present.mean()
    loss = loss + 0.3 * scope + 0.3 * looks
    parts = {"loss": loss.item(), "compete": (compete * pointed).sum().item() / max(1, int(pointed.sum()))}
    parts |= {"present": judged_present.mean().item(), "scope": scope.item()}
    parts |= {} if example.looks is None else {"looks": looks.item()}
    if pointed.any():
        rank = cells.argsort(dim=1, descending=True, stable=True)
        kept = target.gather(1, rank).cumsum(1)
        at = (count.long() * 2).clamp(1, cells.shape[1]) - 1
        parts["twice"] = (kept.gather(1, at[:, None])[:, 0] / count.clamp_min(1))[pointed].mean().item()
    return loss, parts


def _aside_loss(guide: Guide, asides: Sequence[Aside]) -> Tensor:
    """Loss of the scope of questions that are not asked of the page at hand."""
    every = [terms(aside.text).words for aside in asides]
    pooled = guide.read(every).pooled
    target = torch.tensor([(aside.whole, aside.odd) for aside in asides], device=pooled.device)
    return F.binary_cross_entropy_with_logits(guide.head.scope(pooled).float(), target)
