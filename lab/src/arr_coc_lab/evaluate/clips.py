"""How much of a question's evidence in a clip each method keeps, at shares of the clip's tokens.

methods, notes = registered(samples, scores=guide_scores)     rivals and nulls of `rivals.clips`
scored = list(measure(samples, {"arr-coc": ours, **methods}))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from arr_coc_lab.rivals.clips import CLIP_METHODS, ClipView, CoarseFrames, find_clip_method
from arr_coc_lab.rivals.clips.keeping import lowest

SHARES = (0.25, 0.10, 0.05)  # of a clip's tokens that a method may spend
COVERED, READ = "covered", "readable"


@dataclass(frozen=True, eq=False)
class EvidenceItem:
    """One thing that the answer needs: `cells` Bool [T, H, W], at least one true.

    One of its time steps is enough, unless it needs `every` one (something that changes). `height` is that of
    its smallest print in px of the full-size clip; None: the height of the rows that it spans, never less.
    """

    cells: Tensor
    every: bool = False
    height: float | None = None

    def __post_init__(self) -> None:
        if self.cells.dtype != torch.bool or self.cells.ndim != 3 or not bool(self.cells.any()):
            raise ValueError(
                f"cells are {self.cells.dtype} of shape {tuple(self.cells.shape)}, {int(self.cells.sum())} "
                "of them evidence: pass booleans [T, H, W], at least one of them true"
            )

    @property
    def rows(self) -> list[int]:
        """Rows of cells that the item spans in each time step; 0 where it is absent."""
        # per step the rows that hold the item
        rows = [step.any(1).nonzero().flatten().tolist() for step in self.cells]
        return [each[-1] - each[0] + 1 if each else 0 for each in rows]


@dataclass(frozen=True)
class ClipInquiry:
    """A question about a clip with everything that its answer needs; not measured where `items` is empty."""

    text: str
    kind: str
    items: Sequence[EvidenceItem] = ()


@dataclass(frozen=True, eq=False)
class ClipSample:
    """A clip to measure on, of `grid` (T, H, W) cells with a side of `cell` px, and what methods may read of
    it.

    Methods may read `features` [T, H * W, D], the `attention` [T, H * W] that cells receive in the encoder,
    and `frames`, a picture per time step or [T, 3, h, w].

    Raises:
        ValueError: evidence, features or attention do not fit the grid.
    """

    name: str
    grid: tuple[int, int, int]
    questions: Sequence[ClipInquiry]
    features: Tensor | None = None
    frames: Sequence[Image.Image] | Tensor | None = None
    attention: Tensor | None = None
    cell: int = 32

    def __post_init__(self) -> None:
        t, h, w = self.grid
        for question in self.questions:
            for item in question.items:
                if item.cells.shape != self.grid:
                    raise ValueError(
                        f"evidence of {question.text!r} in {self.name!r} has shape "
                        f"{tuple(item.cells.shape)}, the grid is {self.grid}: pass cells of the grid"
                    )
        for name, values in (("features", self.features), ("attention", self.attention)):
            if values is not None and tuple(values.shape[:2]) != (t, h * w):
                raise ValueError(
                    f"{name} of {self.name!r} have shape {tuple(values.shape)}, the grid is {self.grid}: "
                    f"pass {t}, {h * w} first"
                )

    @property
    def tokens(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


Choose = Callable[[ClipSample, str, int], Tensor | CoarseFrames]
"""(clip, question, tokens to spend) -> Bool [T, H * W] or [T, H, W], or frames encoded at fewer pixels."""
FrameScores = Callable[[ClipSample, str], Tensor]
"""(clip, question) -> [T], how well each time step fits the question."""


class KeptOfClip(NamedTuple):
    """What is kept of a question's evidence, with the tokens spent and time steps used.

    `recall`: the mean over items of the share of cells kept in an item's best time step (over all its steps,
    if it needs `every` one). `whole`: 1 if that is 1, else 0. `strict`: the share of all evidence cells kept.
    """

    recall: float
    whole: float
    strict: float
    tokens: int
    steps: int


@dataclass(frozen=True)
class ScoredClip:
    """A measured question: `kept` by method and budget, empty where it has no evidence."""

    clip: str
    kind: str
    kept: Mapping[str, Mapping[str, KeptOfClip]] = field(default_factory=dict)


def budgets_of(tokens: int, shares: Sequence[float] = SHARES) -> dict[str, int]:
    """Counts of tokens by name, such as {"25 %": 512}; ValueError unless a share is above 0 and at most 1."""
    for share in shares:
        if not 0 < share <= 1:
            raise ValueError(f"{share} is no share of a clip's tokens: use numbers above 0, at most 1")
    return {f"{100 * share:g} %": max(1, round(share * tokens)) for share in shares}


def measure(
    samples: Iterable[ClipSample], methods: Mapping[str, Choose], shares: Sequence[float] = SHARES
) -> Iterator[ScoredClip]:
    """Measure methods on clips, question by question.

    Methods that encode frames at fewer pixels (`CoarseFrames`) are reported twice: "NAME, covered" counts
    every cell of an encoded frame, "NAME, readable" only print still at least `READABLE` px high.

    Raises:
        ValueError: two clips have one name, or a method returns no mask of the clip or exceeds its budget.
    """
    names: set[str] = set()
    for sample in samples:
        if sample.name in names:
            raise ValueError(f"two clips are called {sample.name!r}: give each a name of its own")
        names.add(sample.name)
        for question in sample.questions:
            kept: dict[str, dict[str, KeptOfClip]] = {}
            if question.items:
                for name, choose in methods.items():
                    for label, budget in budgets_of(sample.tokens, shares).items():
                        choice = choose(sample, question.text, budget)
                        for title, each in _kept(name, choice, sample, question, budget).items():
                            kept.setdefault(title, {})[label] = each
            yield ScoredClip(sample.name, question.kind, kept)


def _kept(
    name: str, choice: Tensor | CoarseFrames, sample: ClipSample, question: ClipInquiry, budget: int
) -> dict[str, KeptOfClip]:
    """Return what a choice keeps of a question's evidence, by reported name."""
    items = list(question.items)
    if isinstance(choice, CoarseFrames):
        if choice.grid != sample.grid:
            raise ValueError(f"method {name!r} returns frames of {choice.grid}, the grid is {sample.grid}")
        _check_spent(name, choice.tokens, budget)
        present = [choice.covered(t) for t in range(sample.grid[0])]  # per time step
        masks = {
            COVERED: [torch.tensor(present) for _ in items],
            READ: [torch.tensor(readable_steps(choice, item, sample.cell)) for item in items],
        }
        return {
            f"{name}, {what}": kept_of(
                [each[:, None, None].expand(sample.grid) for each in steps],
                items,
                choice.tokens,
                sum(present),
            )
            for what, steps in masks.items()
        }
    if choice.dtype != torch.bool or choice.numel() != sample.tokens:
        raise ValueError(
            f"method {name!r} returns {choice.dtype} of shape {tuple(choice.shape)} for a clip of "
            f"{sample.grid}: return booleans, one for each cell"
        )
    mask = choice.detach().cpu().reshape(sample.grid)  # (T, H, W)
    tokens = int(mask.sum())
    _check_spent(name, tokens, budget)
    return {name: kept_of([mask] * len(items), items, tokens, int(mask.flatten(1).any(1).sum()))}


def _check_spent(name: str, tokens: int, budget: int) -> None:
    if tokens > budget:
        raise ValueError(
            f"method {name!r} spends {tokens} tokens of a budget of {budget}: return at most that"
        )


def readable_steps(frames: CoarseFrames, item: EvidenceItem, cell: int) -> list[bool]:
    """Return whether an item's print is readable in each time step of frames encoded at fewer pixels."""
    heights = [item.height if item.height is not None else rows * cell for rows in item.rows]
    return [frames.readable(t, height) for t, height in enumerate(heights)]


def kept_of(masks: Sequence[Tensor], items: Sequence[EvidenceItem], tokens: int, steps: int) -> KeptOfClip:
    """Return what `masks` (Bool [T, H, W], one per item) keep of the items, at the cost of `tokens` and
    `steps`.
    """
    recalls, hits, total = [], 0, 0
    for mask, item in zip(masks, items, strict=True):
        kept, needed = (mask & item.cells).flatten(1).sum(1), item.cells.flatten(1).sum(1)  # (T,) each
        hits, total = hits + int(kept.sum()), total + int(needed.sum())
        # one share per time step that shows the item
        shares = [k / n for k, n in zip(kept.tolist(), needed.tolist(), strict=True) if n]
        recalls.append(fmean(shares) if item.every else max(shares))
    recall = fmean(recalls)
    return KeptOfClip(recall, float(all(one == 1 for one in recalls)), hits / total, tokens, steps)


def registered(
    samples: Sequence[ClipSample],
    names: Sequence[str] | None = None,
    scores: FrameScores | None = None,
    seed: int = 0,
) -> tuple[dict[str, Choose], dict[str, str]]:
    """Return the registered methods that can run on clips, by name, and why each other one is left out.

    `scores` is for methods that choose frames by it. ValueError for an unknown name.
    """
    wanted = [find_clip_method(name) for name in (CLIP_METHODS if names is None else names)]
    methods: dict[str, Choose] = {}
    notes: dict[str, str] = {}
    for method in sorted(wanted, key=lambda one: list(CLIP_METHODS).index(one.name)):
        lacks = {"scores"} & method.needs if scores is None else set()
        lacks |= {
            name for name in method.needs - {"scores"} if any(getattr(one, name) is None for one in samples)
        }
        if lacks:
            notes[method.name] = f"it needs {' and '.join(sorted(lacks))} of every clip"
        else:
            methods[method.name] = _chooser(method.name, scores, seed)
    return methods, notes


def _chooser(name: str, scores: FrameScores | None, seed: int) -> Choose:
    """Return a registered method as a function of a sample."""
    method = CLIP_METHODS[name]
    last: list[ClipSample] = []  # what ignores the question chooses once per clip
    chosen: dict[int, Tensor | CoarseFrames] = {}

    def choose(sample: ClipSample, text: str, budget: int) -> Tensor | CoarseFrames:
        if not last or last[0] is not sample:
            last[:] = [sample]
            chosen.clear()
        if budget in chosen:
            return chosen[budget]
        fit = scores(sample, text) if scores is not None and "scores" in method.needs else None
        view = ClipView(sample.grid, sample.features, sample.attention, fit, f"{sample.name}/{text}", seed)
        choice = method.choose(view, budget)
        if not method.by_question:
            chosen[budget] = choice
        return choice

    return choose


def with_foreign_question(choose: Choose, samples: Sequence[ClipSample]) -> Choose:
    """Return the control of a method that reads the question: it gets the next clip's, with a text not asked
    here.

    Raises:
        ValueError: fewer than two clips have questions.
    """
    pointed = [sample for sample in samples if sample.questions]
    if len(pointed) < 2:
        raise ValueError(f"{len(pointed)} clips have questions: pass at least 2 to exchange them")
    following = {one.name: pointed[(i + 1) % len(pointed)].questions for i, one in enumerate(pointed)}

    def choose_foreign(sample: ClipSample, text: str, budget: int) -> Tensor | CoarseFrames:
        own = [question.text for question in sample.questions]
        others = [question.text for question in following[sample.name]]
        fresh = [other for other in others if other not in own] or others
        return choose(sample, fresh[own.index(text) % len(fresh)], budget)

    return choose_foreign


def oracle(sample: ClipSample, text: str, budget: int) -> Tensor:
    """Return the upper bound: the cells that hold the answer, Bool [T, H * W].

    First every item's time step with the fewest cells (or all its steps, if it needs every one), then all
    other evidence, then the first cells of the clip.
    """
    tier = torch.full(sample.grid, 2)  # 0: first choice, 1: other evidence, 2: the rest
    for question in sample.questions:
        for item in question.items if question.text == text else ():
            counts = item.cells.flatten(1).sum(1)  # (T,)
            best = int(counts.masked_fill(counts == 0, sample.tokens).argmin())
            first = item.cells.clone()
            if not item.every:
                first[torch.arange(len(first)) != best] = False
            tier[item.cells & (tier == 2)] = 1
            tier[first] = 0
    return lowest(torch.zeros(sample.tokens), budget, tier.flatten()).view(sample.grid[0], -1)
