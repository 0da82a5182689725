"""Recall of a question's evidence by the guide at a number of cells, compared with null methods.

    scored = list(measure(guide, samples))                    samples from `guide_pages`
    summarise(scored)["guide"]["64"]          {"questions": 812, "recall": 0.93, "whole": 0.88}

A budget is a count of cells ("64"), the share of a page that the count is of 1,024 cells ("64/1024"), or the
guide's own choice ("auto").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import lgamma
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.choose.attending import even_grid
from arr_coc.choose.budget import Budget, enough_cells, expected_tokens
from arr_coc.choose.knowing import declared_channels, saliency
from arr_coc.choose.texture import generate_texture_array
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import at_encoded_size
from arr_coc.guide.guide import Guide, cell_logits
from arr_coc.guide.head import Judgement
from arr_coc.guide.print_encoder import complete_runs
from arr_coc_lab.rivals.nulls import ink_density
from arr_coc_lab.world.browser.chromium import Word
from arr_coc_lab.world.browser.page import Inquired

BUDGETS = (64, 128, 273)
WHOLE_PAGE = 1024  # cells of the page that scaled budgets are shares of
CHUNK = 16  # questions judged at once
GUIDE, FOREIGN, ORACLE = "guide", "guide, another page's question", "oracle"
NULLS = ("random", "even grid", "ink density", "saliency")
METHODS = (GUIDE, FOREIGN, *NULLS, ORACLE)
GROUPS: dict[str, tuple[str, ...]] = {
    "fields": ("value", "crossing", "price", "switch", "card", "title"),
    "paraphrases": ("paraphrase",),
    "paraphrases unlisted": ("paraphrase-unlisted",),
    "looks and sections": ("colour", "shape", "chart", "section"),
    "words": ("word",),
    "crossings and terms": ("crossing", "term"),
}
"""Kinds of questions that are reported together."""

AutoBudget = Callable[[Tensor], Tensor]
"""Logits of cells [Q, H, W] -> cells to keep [Q]."""


@dataclass(frozen=True)
class Sample:
    """A picture to measure on, with questions and their evidence boxes.

    `words` is the printed text, () where unknown; `axes` what results are grouped by, such as {"font": "held
    out"}; `cell` the side of the cells, px.
    """

    name: str
    image: Image.Image
    questions: tuple[Inquired, ...]
    words: tuple[Word, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)
    cell: int = 32

    @property
    def padded(self) -> tuple[int, int]:
        """(width, height) in px that the guide reads: multiples of 32."""
        width, height = self.image.size
        return width + -width % 32, height + -height % 32

    @property
    def grid(self) -> tuple[int, int]:
        """(H, W) cells."""
        width, height = self.padded
        return round(height / self.cell), round(width / self.cell)

    def pixels(self) -> Tensor:
        """Float [3, h, w] in [0, 1]."""
        return torch.from_numpy(np.asarray(self.image).copy()).permute(2, 0, 1).float() / 255

    def padded_image(self) -> Image.Image:
        """Return the picture padded to `padded` by repeating its last row and column."""
        right, down = (padded - side for padded, side in zip(self.padded, self.image.size, strict=True))
        return Image.fromarray(np.pad(np.asarray(self.image), ((0, down), (0, right), (0, 0)), mode="edge"))


Choose = Callable[[Sample, str, Budget], Tensor]
"""(sample, question, budget) -> bool [N], the cells of the sample's grid that another method keeps."""


class Kept(NamedTuple):
    """The share of a question's evidence kept, 1 if that is all of it (else 0), and the cells spent."""

    recall: float
    whole: float
    cells: int


@dataclass(frozen=True)
class Scored:
    """A measured question."""

    sample: int  # the number of its sample
    question: Inquired  # the question
    cells: int  # of the page
    needed: int  # cells that hold its evidence
    axes: Mapping[str, str]  # of the page, and "print" where words are known
    # by method and budget, without FOREIGN on the first picture; empty without evidence
    kept: Mapping[str, Mapping[str, Kept]]
    present: float  # the logit that the page answers it
    whole: float  # the logit that it is about all of the page
    odd: float  # the logit that it asks for what stands out


def auto_cells(logits: Tensor) -> Tensor:
    """Cells [Q] that budget "auto" spends where the guide is sure, for logits [Q, H, W]."""
    return expected_tokens(logits.flatten(1), needed=enough_cells(logits)).round().long()


def judge(guide: Guide, pixels: Tensor, texts: Sequence[str], grid: tuple[int, int]) -> Judgement:
    """Return the guide's judgement of a picture [3, h, w], with its logits resampled to cells [Q, H, W].

    The cells cover the picture padded to whole cells of 32 px (`Sample.padded`).
    """
    picture = F.pad(pixels, (0, -pixels.shape[2] % 32, 0, -pixels.shape[1] % 32), mode="replicate")
    with torch.inference_mode(), torch.autocast(pixels.device.type, torch.bfloat16):
        picture = at_encoded_size(picture)
        page = guide.page(picture)
        parts = [guide.judge(page, texts[i : i + CHUNK]) for i in range(0, len(texts), CHUNK)]
        logits, *others = (torch.cat(each) for each in zip(*parts, strict=True))
        return Judgement(
            cell_logits(complete_runs(logits, page.runs), (picture.shape[-2], picture.shape[-1]), grid),
            *others,
        )


def measure(
    guide: Guide,
    samples: Iterable[Sample],
    methods: Sequence[str] = METHODS,
    auto: AutoBudget = auto_cells,
    others: Mapping[str, Choose] | None = None,
) -> Iterator[Scored]:
    """Measure methods of METHODS, and `others` that choose cells themselves, question by question.

    Another page's questions (FOREIGN) are those of the last picture before that had any with evidence; the
    first picture is left out of that null. `auto` is how many cells the guide keeps where it decides that
    too.
    """
    previous: tuple[Inquired, ...] = ()
    for number, sample in enumerate(samples):
        if not sample.questions:
            continue
        own = methods if previous else [name for name in methods if name != FOREIGN]
        yield from _measure(guide, number, sample, previous, own, auto, others)
        previous = tuple(q for q in sample.questions if q.evidence) or previous


def _measure(
    guide: Guide,
    number: int,
    sample: Sample,
    foreign: tuple[Inquired, ...],
    methods: Sequence[str],
    auto: AutoBudget,
    others: Mapping[str, Choose] | None,
) -> Iterator[Scored]:
    pixels, grid, count = sample.pixels(), sample.grid, len(sample.questions)
    texts = [question.text for question in sample.questions]
    extra = [foreign[i % len(foreign)].text for i in range(count)] if FOREIGN in methods else []
    judged = judge(guide, pixels, texts + extra, grid)
    maps = {GUIDE: judged.logits[:count], FOREIGN: judged.logits[count:]}  # (Q, H, W) each
    blind = {"ink density": ink_density, "saliency": saliency_map}
    maps |= {name: blind[name](pixels, grid).expand(count, *grid) for name in blind if name in methods}
    spent = auto(judged.logits[:count]).tolist()
    for i, question in enumerate(sample.questions):
        evidence = evidence_cells(question.evidence, grid, sample.padded).flatten()  # (N,)
        budgets = budgets_of(evidence.numel())
        kept: dict[str, dict[str, Kept]] = {}
        if bool(evidence.any()):
            for name in methods:
                if name in maps:
                    own = budgets | ({"auto": spent[i]} if name == GUIDE else {})
                    kept[name] = kept_by(maps[name][i].flatten(), evidence, own)
                else:
                    kept[name] = kept_by_null(name, evidence, grid, budgets)
            for name, choose in (others or {}).items():
                own = {label: k for label, k in budgets.items() if "/" not in label} | {"auto": "auto"}
                kept[name] = {
                    label: kept_of(choose(sample, question.text, k), evidence) for label, k in own.items()
                }
        axes = {**sample.axes, **_print(sample.words, question)}
        logits = (judged.present[i].item(), judged.overview[i].item(), judged.unusual[i].item())
        yield Scored(number, question, evidence.numel(), int(evidence.sum()), axes, kept, *logits)


def budgets_of(cells: int) -> dict[str, int]:
    """Counts of cells by budget name for a page of `cells`: those of BUDGETS below that, and shares of it."""
    counts = {str(k): k for k in BUDGETS if k < cells}  # left out on pages that have no more
    return counts | {f"{k}/{WHOLE_PAGE}": max(1, round(k * cells / WHOLE_PAGE)) for k in BUDGETS}


def kept_of(mask: Tensor, evidence: Tensor) -> Kept:
    """Return what a mask of kept cells, bool [N], keeps of evidence, bool [N]."""
    recall = float((mask & evidence).sum() / evidence.sum())
    return Kept(recall, float(recall == 1), int(mask.sum()))


def kept_by(scores: Tensor, evidence: Tensor, budgets: Mapping[str, int]) -> dict[str, Kept]:
    """Return what the cells of the highest scores [N] keep of evidence, bool [N], by budget."""
    # evidence cells among the first 1, 2, ... N
    rising = evidence[scores.argsort(descending=True, stable=True)].cumsum(0)
    total = int(rising[-1])
    shares = {label: (int(rising[k - 1]) / total, k) for label, k in budgets.items()}
    return {label: Kept(share, float(share == 1), k) for label, (share, k) in shares.items()}


def kept_by_null(
    name: str, evidence: Tensor, grid: tuple[int, int], budgets: Mapping[str, int]
) -> dict[str, Kept]:
    """Return what the null "random" (its expectation), "even grid" or "oracle" keeps, by budget."""
    cells, needed = evidence.numel(), int(evidence.sum())
    kept = {}
    for label, k in budgets.items():
        if name == "random":
            # draws that hold all the evidence, over all draws
            whole = np.exp(_choices(cells - needed, k - needed) - _choices(cells, k)) if k >= needed else 0.0
            kept[label] = Kept(k / cells, float(whole), k)
        elif name == ORACLE:
            kept[label] = Kept(min(1.0, k / needed), float(k >= needed), k)
        elif name == "even grid":
            mask = torch.zeros_like(evidence)
            mask[even_grid(grid, k)] = True
            kept[label] = kept_of(mask, evidence)
        else:
            raise ValueError(f"method {name!r} is unknown; use one of {', '.join(METHODS)}")
    return kept


def _choices(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)  # the logarithm of n over k


def saliency_map(pixels: Tensor, grid: tuple[int, int]) -> Tensor:
    """Saliency [H, W] of a picture [3, h, w] by the scorer without parameters."""
    texture = generate_texture_array(pixels[None], grid, "mvp13")
    return saliency(texture, declared_channels("mvp13", "salient"))[0]


def _print(words: Sequence[Word], question: Inquired) -> dict[str, str]:
    """Return the font size of the smallest word in a question's evidence, as an axis."""
    sizes = [
        word.size
        for word in words
        for x0, y0, x1, y1 in question.evidence
        if x0 - 2 <= (word.box[0] + word.box[2]) / 2 <= x1 + 2
        and y0 - 2 <= (word.box[1] + word.box[3]) / 2 <= y1 + 2
    ]
    bounds = ((8, "below 8 px"), (11, "8-11 px"), (14, "11-14 px"), (20, "14-20 px"))
    name = next((text for bound, text in bounds if sizes and min(sizes) < bound), "20 px and more")
    return {"print": name} if sizes else {}


def summarise(scored: Iterable[Scored]) -> dict[str, dict[str, dict[str, float]]]:
    """Means over questions with evidence, by method and budget."""
    kept: dict[str, dict[str, list[Kept]]] = {}
    for one in scored:
        for method, by_budget in one.kept.items():
            for label, each in by_budget.items():
                kept.setdefault(method, {}).setdefault(label, []).append(each)
    return {
        method: {
            label: {
                "questions": len(each),
                "recall": fmean(one.recall for one in each),
                "whole": fmean(one.whole for one in each),
                "cells": fmean(one.cells for one in each),
            }
            for label, each in by_budget.items()
        }
        for method, by_budget in kept.items()
    }


def by_kind(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Questions with evidence: all, those of each of GROUPS, and of each kind."""
    pointed = [one for one in scored if one.needed]
    parts = {"all": pointed}
    for name, kinds in GROUPS.items():
        parts[name] = [one for one in pointed if one.question.kind in kinds]
    for kind in sorted({one.question.kind for one in pointed}):
        parts[f"kind: {kind}"] = [one for one in pointed if one.question.kind == kind]
    return {name: part for name, part in parts.items() if part}


def by_axis(scored: Sequence[Scored]) -> dict[str, dict[str, list[Scored]]]:
    """Questions with evidence by axis and its values."""
    parts: dict[str, dict[str, list[Scored]]] = {}
    for one in scored:
        if one.needed:
            for axis, value in one.axes.items():
                parts.setdefault(axis, {}).setdefault(value, []).append(one)
    return {axis: dict(sorted(values.items())) for axis, values in sorted(parts.items())}


def calibration(scored: Sequence[Scored]) -> dict[str, Any]:
    """Return how well the guide's logits tell kinds of questions apart: areas under the ROC curve, rates
    above 0.
    """
    local = [one for one in scored if one.question.kind != "global"]
    answered = [one.present for one in local if one.question.kind != "unanswerable"]
    vain = [one.present for one in local if one.question.kind == "unanswerable"]
    verdicts = {"present": (answered, vain)}
    for name, kind in (("whole", "global"), ("odd", "anomaly")):
        of_kind = [getattr(one, name) for one in scored if one.question.kind == kind]
        verdicts[name] = (of_kind, [getattr(one, name) for one in scored if one.question.kind != kind])
    return {
        name: {
            "yes": len(yes),
            "no": len(no),
            "auc": auc(yes, no),
            "yes above 0": fmean(value > 0 for value in yes),
            "no above 0": fmean(value > 0 for value in no),
        }
        for name, (yes, no) in verdicts.items()
        if yes and no
    }


def auc(yes: Sequence[float], no: Sequence[float]) -> float:
    """Return the area under the ROC curve: the chance that one of `yes` is above one of `no`, ties by
    half.
    """
    above, below = np.asarray(yes)[:, None], np.sort(np.asarray(no))
    # 2 x (values of `no` below) + ties
    lower = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
    return float(lower.mean() / (2 * len(below)))
