"""How much of the evidence of clips is kept: recall and whole evidence at shares of a clip's tokens.

    methods, notes = registered(samples, scores=guide_scores)     rivals and nulls of `rivals.clips`
    scored = list(measure(samples, {"arr-coc": ours, **methods})) summary = summarise(scored,
    reference="arr-coc")              JSON: `clips_report`, which has the table too

A question has items of evidence, each a set of cells in time steps. Recall is the mean over a question's
items of the share of cells kept in the step where most of them are, for one view of a thing is enough to read
it; of an item that is marked `every` it is the mean over its steps. Strict recall is the share of all
evidence cells of all items over all steps. Whole is the share of questions whose recall is 1.

A method is a function of a sample, the text of a question and a budget. A frame that is encoded at fewer
pixels (`CoarseFrames`) is measured twice: "NAME, covered" counts every cell of a frame that is there at all,
"NAME, readable" only print that is at least `READABLE` px high after shrinking.
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

SHARES = (0.25, 0.10, 0.05)
"""Of a clip's tokens, that are spent."""
COVERED, READ = "covered", "readable"


@dataclass(frozen=True, eq=False)
class EvidenceItem:
    """One thing that a question needs, and where it is to be seen.

    Attributes:
        cells: Bool [T, H, W], at least one; any one of its time steps is enough.
        every: all of its time steps are needed, as for what changes.
        height: of its smallest print in px of the clip at full size; None where it has none, or that is
            unknown: then what it spans counts, the rows of its cells, which is never less.

    Raises:
        ValueError: cells are not boolean, not [T, H, W] or none.
    """

    cells: Tensor
    every: bool = False
    height: float | None = None

    def __post_init__(self) -> None:
        """Check what everything else relies on."""
        if self.cells.dtype != torch.bool or self.cells.ndim != 3 or not bool(self.cells.any()):
            raise ValueError(
                f"cells are {self.cells.dtype} of shape {tuple(self.cells.shape)}, {int(self.cells.sum())} "
                "of them evidence: pass booleans [T, H, W], at least one of them true"
            )

    @property
    def rows(self) -> list[int]:
        """How many rows of cells the item spans in each time step; 0 where it is not."""
        rows = [step.any(1).nonzero().flatten().tolist() for step in self.cells]
        return [each[-1] - each[0] + 1 if each else 0 for each in rows]


@dataclass(frozen=True)
class ClipInquiry:
    """A question to a clip, with its evidence.

    Attributes:
        text: the question.
        kind: what it is reported by.
        items: what the answer needs, all of them; () where there is no evidence, which is not measured.
    """

    text: str
    kind: str
    items: Sequence[EvidenceItem] = ()


@dataclass(frozen=True, eq=False)
class ClipSample:
    """A clip to measure on.

    Attributes:
        name: of the clip, of no other.
        grid: (T, H, W) cells.
        questions: with their evidence.
        features: Float [T, H * W, D], the encoded cells; None where nothing that reads them is measured.
        frames: what is shown at each time step, for methods that choose before the encoder: pictures, or
            [T, 3, h, w].
        attention: Float [T, H * W], that the cells receive in the encoder.
        cell: side of the cells in px.

    Raises:
        ValueError: evidence, features or attention are not of the grid.
    """

    name: str
    grid: tuple[int, int, int]
    questions: Sequence[ClipInquiry]
    features: Tensor | None = None
    frames: Sequence[Image.Image] | Tensor | None = None
    attention: Tensor | None = None
    cell: int = 32

    def __post_init__(self) -> None:
        """Check that everything is of the grid."""
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
        """Cells of all time steps."""
        return self.grid[0] * self.grid[1] * self.grid[2]


Choose = Callable[[ClipSample, str, int], Tensor | CoarseFrames]
"""(clip, question, tokens to spend) -> Bool [T, H * W] or [T, H, W], or the sizes of smaller frames."""
FrameScores = Callable[[ClipSample, str], Tensor]
"""(clip, question) -> [T], how well each time step fits the question."""


class Kept(NamedTuple):
    """What is kept of a question's evidence: shares, whether all, and with how many tokens and time steps."""

    recall: float
    whole: float
    strict: float
    tokens: int
    steps: int


@dataclass(frozen=True)
class Scored:
    """A question, measured.

    Attributes:
        clip: the name of its sample.
        kind: of the question.
        kept: by method and budget; empty without evidence.
    """

    clip: str
    kind: str
    kept: Mapping[str, Mapping[str, Kept]] = field(default_factory=dict)


def budgets_of(tokens: int, shares: Sequence[float] = SHARES) -> dict[str, int]:
    """The budgets of a clip of some tokens by name, {"25 %": 512, ...}: rounded, at least 1.

    Raises:
        ValueError: a share is not above 0 and at most 1.
    """
    for share in shares:
        if not 0 < share <= 1:
            raise ValueError(f"{share} is no share of a clip's tokens: use numbers above 0, at most 1")
    return {f"{100 * share:g} %": max(1, round(share * tokens)) for share in shares}


def measure(
    samples: Iterable[ClipSample], methods: Mapping[str, Choose], shares: Sequence[float] = SHARES
) -> Iterator[Scored]:
    """Measure methods on clips; yields every question.

    Args:
        samples: clips.
        methods: by name.
        shares: of a clip's tokens to spend.

    Raises:
        ValueError: two clips have one name, or a method returns no mask of the clip or spends more than its
            budget.
    """
    names: set[str] = set()
    for sample in samples:
        if sample.name in names:
            raise ValueError(f"two clips are called {sample.name!r}: give each a name of its own")
        names.add(sample.name)
        for question in sample.questions:
            kept: dict[str, dict[str, Kept]] = {}
            if question.items:
                for name, choose in methods.items():
                    for label, budget in budgets_of(sample.tokens, shares).items():
                        choice = choose(sample, question.text, budget)
                        for title, each in _kept(name, choice, sample, question, budget).items():
                            kept.setdefault(title, {})[label] = each
            yield Scored(sample.name, question.kind, kept)


def _kept(
    name: str, choice: Tensor | CoarseFrames, sample: ClipSample, question: ClipInquiry, budget: int
) -> dict[str, Kept]:
    """What a choice keeps of a question, by the name that it is reported by."""
    items = list(question.items)
    if isinstance(choice, CoarseFrames):
        if choice.grid != sample.grid:
            raise ValueError(f"method {name!r} returns frames of {choice.grid}, the grid is {sample.grid}")
        _check_spent(name, choice.tokens, budget)
        present = [choice.covered(t) for t in range(sample.grid[0])]
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
    mask = choice.detach().cpu().reshape(sample.grid)
    tokens = int(mask.sum())
    _check_spent(name, tokens, budget)
    return {name: kept_of([mask] * len(items), items, tokens, int(mask.flatten(1).any(1).sum()))}


def _check_spent(name: str, tokens: int, budget: int) -> None:
    """Raises ValueError where a method has spent more than it may."""
    if tokens > budget:
        raise ValueError(
            f"method {name!r} spends {tokens} tokens of a budget of {budget}: return at most that"
        )


def readable_steps(frames: CoarseFrames, item: EvidenceItem, cell: int) -> list[bool]:
    """In which time steps an item's print can be read in frames that are encoded smaller."""
    heights = [item.height if item.height is not None else rows * cell for rows in item.rows]
    return [frames.readable(t, height) for t, height in enumerate(heights)]


def kept_of(masks: Sequence[Tensor], items: Sequence[EvidenceItem], tokens: int, steps: int) -> Kept:
    """What is kept of a question's items.

    Args:
        masks: Bool [T, H, W] for each item, the cells that are kept.
        items: the evidence, at least one.
        tokens: that were spent.
        steps: time steps of which anything is kept.
    """
    recalls, hits, total = [], 0, 0
    for mask, item in zip(masks, items, strict=True):
        kept, needed = (mask & item.cells).flatten(1).sum(1), item.cells.flatten(1).sum(1)
        hits, total = hits + int(kept.sum()), total + int(needed.sum())
        shares = [k / n for k, n in zip(kept.tolist(), needed.tolist(), strict=True) if n]
        recalls.append(fmean(shares) if item.every else max(shares))
    recall = fmean(recalls)
    return Kept(recall, float(all(one == 1 for one in recalls)), hits / total, tokens, steps)


def registered(
    samples: Sequence[ClipSample],
    names: Sequence[str] | None = None,
    scores: FrameScores | None = None,
    seed: int = 0,
) -> tuple[dict[str, Choose], dict[str, str]]:
    """The methods of the table that can run on clips.

    Args:
        samples: the clips.
        names: wanted methods; None: all.
        scores: how well time steps fit a question, for those that choose frames by it.
        seed: of those that draw.

    Returns:
        The methods by name, in the order of the table; and by name why another one is left out.

    Raises:
        ValueError: an unknown name.
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
    """A method of the table as a function of a sample; what ignores the question chooses once for a clip."""
    method = CLIP_METHODS[name]
    last: list[ClipSample] = []
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
    """The control of a method that reads the question: it is asked one of the next clip instead.

    A text that the clip itself is asked is passed over, so far as the next clip has another.

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
    """The bound: the cells that hold the answer, Bool [T, H * W]; about the most that a choice can keep.

    Of every item the time step with the fewest cells comes first (of one that needs every step, all), then
    all other evidence, then the first cells of the clip.
    """
    tier = torch.full(sample.grid, 2)
    for question in sample.questions:
        for item in question.items if question.text == text else ():
            counts = item.cells.flatten(1).sum(1)
            best = int(counts.masked_fill(counts == 0, sample.tokens).argmin())
            first = item.cells.clone()
            if not item.every:
                first[torch.arange(len(first)) != best] = False
            tier[item.cells & (tier == 2)] = 1
            tier[first] = 0
    return lowest(torch.zeros(sample.tokens), budget, tier.flatten()).view(sample.grid[0], -1)
