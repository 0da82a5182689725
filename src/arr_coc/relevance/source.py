"""Sources of relevance: the protocol, sums of several, and their calibration.

source = SumSource([GuideSource(), OcrSource()])   a RelevanceSource; `relevance.sums` opens one by name
view = source.view(picture)                        once per picture, float [3, h, w] in [0, 1]
source.couple(view, "What is the total?", grid)    Coupling: logits [H, W] for any grid (H, W)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.boxes import Box, box_cells
from arr_coc.guide import GUIDE
from arr_coc.guide.coupling import Calibration, Coupling, Finding, SourcePart, question_vector, scope
from arr_coc.guide.guide import Guide, GuidePage, load_guide
from arr_coc.guide.lexicon import stem
from arr_coc.guide.question import split_words, terms
from arr_coc.guide.wording import names_print

FLOOR = -7.0  # logit of a cell that no box of a source covers
RIDGE = 1e-3  # weight of the squared scale in a calibration's loss
PRIOR = -4.0  # log odds that a cell is evidence before anything is known of it: about one in fifty is


class PictureView(Protocol):
    """What a source computes about a picture once, for all questions."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the picture in px."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes, for caches."""
        ...


@runtime_checkable
class RelevanceSource(Protocol):
    """Anything that scores how much a question needs each cell of a picture (a protocol).

    A source that is faster with several pictures at once may also have `view_all` and `couple_all`, as
    `GuideSource` does (functions of these names call them or go one by one).

    Attributes:
        name: shown in traces, cache names and tables.
        version: changes whenever the same picture and question may give other logits.
        calibration: of its logits; None: not known, so that it can't be added to others.
    """

    name: str
    version: str
    calibration: Calibration | None

    def view(self, picture: Tensor) -> PictureView:
        """Encode a picture, float [3, h, w] in [0, 1] of any size, before any question."""
        ...

    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        """Score the cells of a grid (H, W) that divides the picture evenly.

        A confidence of exactly 0 says that the source has nothing to judge by: no print, no word that it
        knows. Sums leave it out.
        """
        ...


@runtime_checkable
class CompletingSource(RelevanceSource, Protocol):
    """A source that judges nothing itself and completes what the others of a sum find (a protocol)."""

    def complete(self, view: PictureView, logits: Tensor) -> Tensor:
        """Return the sum's logits [H, W], none lower, with cells that belong to found ones raised."""
        ...


def view_all(source: RelevanceSource, pictures: Sequence[Tensor]) -> list[PictureView]:
    """Return a source's views of pictures: from its method `view_all` if it has one, else one by one."""
    at_once = getattr(source, "view_all", None)
    return [source.view(picture) for picture in pictures] if at_once is None else at_once(pictures)


def couple_all(
    source: RelevanceSource,
    views: Sequence[PictureView],
    questions: Sequence[str],
    grids: Sequence[tuple[int, int]],
) -> list[Coupling]:
    """Return the couplings of pictures and their questions: by the source's `couple_all`, or one by one."""
    at_once = getattr(source, "couple_all", None)
    if at_once is not None:
        return at_once(views, questions, grids)
    return [source.couple(*each) for each in zip(views, questions, grids, strict=True)]


class SumView(NamedTuple):
    """The views of one picture by the sources of a sum."""

    parts: tuple[PictureView, ...]

    @property
    def size(self) -> tuple[int, int]:
        return self.parts[0].size

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


class SumSource:
    """Adds up the calibrated log odds of one or several sources, less the prior that each of them counts.

    A guide judges, from the words, whether a question is about all of the picture or what stands out in it.

    Sources with a method `complete` (`CompletingSource`) then raise what belongs to cells that were found.

    Raises:
        ValueError: several sources, and nobody has calibrated the logits of one; or none that judges.
    """

    calibration: Calibration | None = Calibration(1.0)

    def __init__(self, sources: Sequence[RelevanceSource], guide: Guide | None = None) -> None:
        self.guide = load_guide() if guide is None else guide
        for source in sources:
            if source.calibration is None and len(sources) > 1:
                raise ValueError(
                    f"relevance {source.name!r} has no calibration, so it can't be added to others: use it "
                    "alone, or fit one with arr_coc.relevance.source.calibrate on pictures with boxes"
                )
        self.judging = [i for i, one in enumerate(sources) if not isinstance(one, CompletingSource)]
        if sources and not self.judging:
            name = sources[0].name
            raise ValueError(
                f"relevance {name!r} completes what others find: use it in a sum, such as guide+{name}:NAME"
            )
        self.sources = tuple(sources)
        self.name = "+".join(source.name for source in sources)
        self.version = "+".join(source.version for source in sources)

    def view(self, picture: Tensor) -> PictureView:
        return SumView(tuple(source.view(picture) for source in self.sources))

    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        return self.couple_all([view], [question], [grid])[0]

    def view_all(self, pictures: Sequence[Tensor]) -> list[PictureView]:
        """Return the views of several pictures."""
        parts = [view_all(source, pictures) for source in self.sources]
        return [SumView(tuple(own)) for own in zip(*parts, strict=True)]

    def couple_all(
        self,
        views: Sequence[PictureView],
        questions: Sequence[str],
        grids: Sequence[tuple[int, int]],
    ) -> list[Coupling]:
        """Return the couplings of several pictures with a question each, on a grid each."""
        parts = [view.parts for view in views if isinstance(view, SumView)]
        each = [
            couple_all(self.sources[i], [own[i] for own in parts], questions, grids) for i in self.judging
        ]
        judging = [self.sources[i] for i in self.judging]
        by_guide = any(source.name == GUIDE for source in self.sources)  # then it has told the scopes
        texts = () if by_guide else dict.fromkeys(questions)
        readings = {text: (*scope(self.guide, text), question_vector(self.guide, text)) for text in texts}
        couplings = []
        for question, part, own in zip(questions, parts, zip(*each, strict=True), strict=True):
            both = mixed(list(zip(judging, own, strict=True)))
            for source, view in zip(self.sources, part, strict=True):
                if isinstance(source, CompletingSource):
                    both = _completed(both, source.complete(view, both.logits))
            if question in readings:
                overview, unusual, vector = readings[question]
                both = replace(both, overview=overview, unusual=unusual, question=vector)
            named = both.general and _name_read(question, both.findings)
            couplings.append(both.of_a_place() if named else both)
        return couplings


def _completed(coupling: Coupling, logits: Tensor) -> Coupling:
    """Return a coupling with higher logits; what is added goes to the first of its parts."""
    first, *others = coupling.parts
    first = first._replace(logits=first.logits + (logits - coupling.logits).to(first.logits))
    return replace(coupling, logits=logits, parts=(first, *others))


def _name_read(question: str, findings: Sequence[Finding]) -> bool:
    """Return whether a question's words are a name that sources read on a picture (`names_print`)."""
    words = terms(question).words
    lines = [set(map(stem, split_words(finding.text))) for finding in findings]
    return names_print(
        words,
        lambda i: any(stem(words[i]) in line for line in lines),
        lambda i, j: any({stem(words[i]), stem(words[j])} <= line for line in lines),
    )


def guide_view(source: RelevanceSource, view: PictureView) -> GuidePage | None:
    """Return the guide's encoding of a picture out of a source's view; None if the guide is no part of it."""
    if isinstance(view, GuidePage):
        return view
    if isinstance(source, SumSource) and isinstance(view, SumView):
        return next((part for part in view.parts if isinstance(part, GuidePage)), None)
    return None


def mixed(couplings: Sequence[tuple[RelevanceSource, Coupling]]) -> Coupling:
    """Return one coupling from those of several sources: cell log odds are added, those of confidences
    averaged.

    Matches are the guide's, findings those of all. A source with confidence exactly 0 has nothing to judge
    by, as an OCR on a photograph, and is left out if others have more.
    """
    first = next((one for source, one in couplings if source.name == GUIDE), couplings[0][1])
    telling = [(source, one) for source, one in couplings if one.confidence > 0] or couplings
    total = torch.zeros_like(first.logits)
    parts = []
    for source, one in telling:
        scale, bias = source.calibration or Calibration(1.0)
        odds = scale * one.logits.to(total) + bias
        total = total + (odds - PRIOR)
        parts.append(SourcePart(source.name, odds, one.confidence))
    odds = sum(log_odds(one.confidence) for _, one in telling) / len(telling)
    findings = sorted((f for _, one in telling for f in one.findings), key=lambda f: -f.probability)
    confidence = 1 / (1 + math.exp(-odds))
    notes = "; ".join(one.note for _, one in couplings if one.note)
    facts: dict[str, Any] = {"findings": tuple(findings), "by_cell": all(one.by_cell for _, one in telling)}
    facts["photograph"] = first.photograph and all(source.name == GUIDE for source, _ in telling)
    facts["note"] = notes or None
    facts["parts"] = tuple(parts)
    facts["units"] = next((one.units for _, one in telling if one.units is not None), None)
    return replace(first, logits=total + PRIOR, confidence=confidence, **facts)


def log_odds(probability: float) -> float:
    """Return the log odds of a probability, limited to 12 either way."""
    inside = min(max(probability, 6e-6), 1 - 6e-6)
    return math.log(inside / (1 - inside))


def calibrate(source: RelevanceSource, examples: Iterable[tuple[Tensor, str, Tensor]]) -> Calibration | None:
    """Fit scale and bias that make a source's logits log odds of evidence, on pictures with known evidence.

    `examples` are pictures [3, h, w] in [0, 1], questions, and which cells are evidence, bool [H, W]. Those
    that the source can't judge (confidence 0) are left out, as in a sum. For None see `fit_calibration`.
    """
    logits, evidence = [], []
    for picture, question, cells in examples:
        coupling = source.couple(source.view(picture), question, (cells.shape[0], cells.shape[1]))
        if coupling.confidence == 0:
            continue
        logits.append(coupling.logits)
        evidence.append(cells)
    return fit_calibration(logits, evidence)


def fit_calibration(logits: Sequence[Tensor], evidence: Sequence[Tensor]) -> Calibration | None:
    """Fit scale and bias that make cells' logits log odds of evidence, by logistic regression over questions.

    Both are [H, W] of each question, whose loss is divided by its number of evidence cells. The result is
    None if the scale isn't above 0 by twice its standard error: such a source doesn't help, or misleads.

    Raises:
        ValueError: no question has evidence.
    """
    if not any(bool(cells.any()) for cells in evidence):
        raise ValueError(f"{len(evidence)} questions without evidence calibrate nothing: give some with it")
    target = torch.cat([cells.flatten() for cells in evidence]).float()
    every = torch.cat([one.flatten().float() for one in logits])
    centre, spread = every.mean(), every.std()
    if not spread > 0:  # the same everywhere
        return None
    x = (every - centre) / spread
    sizes = torch.tensor([cells.numel() for cells in evidence])
    owner = torch.arange(len(evidence)).repeat_interleave(sizes)  # of each cell, its question
    share = 1 / _per_question(target, owner, len(evidence)).clamp_min(1)[owner]
    weights = torch.tensor([1.0, PRIOR], requires_grad=True)

    def total(weights: Tensor) -> Tensor:
        """Return the loss over questions; the last term keeps the scale finite if nothing is ever wrong."""
        cells = F.binary_cross_entropy_with_logits(weights[0] * x + weights[1], target, reduction="none")
        return (cells * share).sum() + len(evidence) * RIDGE * weights[0] ** 2

    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        loss = total(weights) / len(evidence)
        loss.backward()
        return loss.item()

    with torch.enable_grad():
        optimizer.step(closure)
        fitted = weights.detach()
        hessian = torch.autograd.functional.hessian(total, fitted)
    # The sandwich estimate of the scale's variance, with questions as the independent units.
    wrong = ((fitted[0] * x + fitted[1]).sigmoid() - target) * share
    slopes = [_per_question(part, owner, len(evidence)) for part in (wrong * x, wrong)]
    gradients = torch.stack((slopes[0] + 2 * RIDGE * fitted[0], slopes[1]), 1)  # (questions, 2)
    inverse = torch.linalg.pinv(hessian)
    error = float((inverse @ (gradients.T @ gradients) @ inverse)[0, 0].clamp_min(0).sqrt())
    scale, bias = fitted.tolist()
    if not scale > 2 * error:
        return None
    return Calibration(scale / float(spread), bias - scale * float(centre / spread))


def _per_question(values: Tensor, owner: Tensor, questions: int) -> Tensor:
    """Sum cells' values by question, [questions]; `owner` is the question of each cell."""
    return values.new_zeros(questions).index_add(0, owner, values)


# Helpers of sources.


def cells_from_boxes(
    boxes: Sequence[Box],
    logits: Sequence[float],
    grid: tuple[int, int],
    size: tuple[int, int],
    floor: float = FLOOR,
) -> Tensor:
    """Return logits of a grid's cells, float [H, W]: of the boxes that visibly cover a cell, the highest.

    `boxes` are (x0, y0, x1, y1) in px of a picture of `size` (height, width); `floor` is the logit of cells
    without one.
    """
    cells = torch.full(grid, floor)
    for box, logit in zip(boxes, logits, strict=True):
        mask = box_cells(box, grid, (size[1], size[0]))
        cells[mask] = cells[mask].clamp_min(float(logit))
    return cells


def line_units(boxes: Sequence[Box], grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return which line of print each cell of a grid belongs to, long [H, W]: the last whose box covers it,
    -1 without one.

    `boxes` are as in `cells_from_boxes`.
    """
    units = torch.full(grid, -1)
    for number, box in enumerate(boxes):
        units[box_cells(box, grid, (size[1], size[0]))] = number
    return units


def cells_from_map(scores: Tensor, grid: tuple[int, int], content: Box | None = None) -> Tensor:
    """Return scores of a grid's cells, float [H, W], from those of an encoder's patches [h, w].

    A cell gets the mean of the patches in it, or is interpolated between patches larger than cells. `content`
    is the part of the patches, in units of patches, that shows the picture, if the encoder saw it with a
    border or in another aspect; None: all of them.
    """
    x0, y0, x1, y1 = (0.0, 0.0, *scores.shape[::-1]) if content is None else content
    left, top = int(x0), int(y0)
    scores = scores[top : math.ceil(y1), left : math.ceil(x1)]  # so that no cell takes anything of a border
    x0, y0, x1, y1 = x0 - left, y0 - top, x1 - left, y1 - top
    n = max(1, math.ceil(max((y1 - y0) / grid[0], (x1 - x0) / grid[1])))  # samples of a cell along a side
    rows = y0 + (torch.arange(grid[0] * n) + 0.5) * (y1 - y0) / (grid[0] * n)
    columns = x0 + (torch.arange(grid[1] * n) + 0.5) * (x1 - x0) / (grid[1] * n)
    at = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)
    at = at * 2 / torch.tensor([scores.shape[1], scores.shape[0]]) - 1  # to [-1, 1], as grid_sample wants it
    fine = F.grid_sample(
        scores[None, None].float(), at[None].float(), padding_mode="border", align_corners=False
    )
    return F.avg_pool2d(fine, n)[0, 0]
