"""Calibrates coverage: how deep kept cells have to reach so that a share of questions keeps all evidence.

    rows = list(questions_of(open_source("guide"), labelled("validation", Path("pictures"))))
    row = fit(rows)                     a row of `relevance.coverage`'s table
    report(row, rows_of_the_test_split) {"0.9": {"whole": 0.91, "cells": 310.0, "abstained": 0.08, ...}}
    compare(rows)                       mean cells at 90 % by families of nested sets

Split conformal prediction: the calibrated depth is the ceil((n + 1) * share)-th smallest of the depths that n
questions needed, each the depth of its deepest evidence cell. Law: of questions drawn as these were, at least
`share` keep all evidence. Questions about one picture are not drawn independently, so the share of one split
scatters more than their number says: `report` gives an interval over pictures.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import GUIDE, Coupling, GuideSource
from arr_coc.guide.guide import Guide, load_guide
from arr_coc.guide.trust import GENERAL, verdict_of
from arr_coc.relevance.coverage import CoverageRule, depths, rule_of
from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.names import parse_relevance
from arr_coc.relevance.ocr import OcrSource
from arr_coc.relevance.source import RelevanceSource, SumSource
from arr_coc.relevance.sums import open_relevance
from arr_coc.selector import Selector
from arr_coc_lab.evaluate.sources import RealSample
from arr_coc_lab.results.intervals import bootstrap_interval

SHARES = (0.8, 0.9, 0.95)  # that the table has
ABSTAINED = 0.1  # share of answerable questions about which nothing is promised
BINS = 2  # of confidence, each with a depth of its own; on validation 3 and 4 need as many cells
DIGITS = 6  # of depths in the table, rounded up; cells that no line of an OCR covers differ by little


class AskedQuestion(NamedTuple):
    """What a source makes of one question about a real picture."""

    picture: str
    ask: str
    coupling: Coupling
    logits: Tensor  # [N], the balanced map that ranks the cells
    evidence: Tensor  # bool [N]; no cell where the picture has no answer

    @property
    def local(self) -> bool:
        """Whether the question is about a place, by the guide."""
        return verdict_of(self.coupling) not in GENERAL

    @property
    def depth(self) -> float:
        """The least depth whose set of cells holds all evidence."""
        return float(depths(self.logits)[self.evidence].max())


class KnownPrint:
    """An OCR that returns the lines of the picture at hand, which were read before."""

    def __init__(self) -> None:
        self.lines: tuple[PrintedLine, ...] = ()

    def __call__(self, pixels: np.ndarray) -> Sequence[PrintedLine]:
        return self.lines


def open_source(name: str, guide: Guide | None = None) -> tuple[RelevanceSource, KnownPrint]:
    """Return a source such as "guide+ocr" whose OCR returns known lines, and that OCR.

    "guide+ocr by table": its sentence vectors are of the guide's table of meanings, whatever is installed.
    """
    guide = load_guide() if guide is None else guide
    reader = KnownPrint()
    name, _, way = name.partition(" by ")
    parts = [one for one, _ in parse_relevance(name)]
    if "ocr" not in parts:
        return open_relevance(name, guide), reader
    makers: dict[str, Callable[[], RelevanceSource]] = {
        GUIDE: lambda: GuideSource(guide),
        "ocr": lambda: OcrSource(reader, "table" if way == "table" else None),
    }
    return SumSource([makers[one]() for one in parts], guide), reader


@torch.no_grad()
def questions_of(
    source: RelevanceSource, samples: Iterable[RealSample], reader: KnownPrint | None = None
) -> Iterator[AskedQuestion]:
    """Ask every question of every picture of a source, through the selector that calls use."""
    selector = Selector(relevance=source)
    for sample in samples:
        image = sample.image()
        if reader is not None:
            reader.lines = sample.lines or ()
        for question, ask, boxes in sample.questions:
            cues = selector.cues(image, question)
            logits = cues.relevance(selector.layer).logits[0]
            assert cues.guided is not None
            evidence = evidence_cells(boxes, (logits.shape[0], logits.shape[1]), image.size)
            coupling = replace(cues.guided, logits=torch.zeros(0), matches=(), findings=())  # smaller
            yield AskedQuestion(sample.name, ask, coupling, logits.flatten(), evidence.flatten())


def conformal_quantile(values: Sequence[float], share: float) -> float:
    """Return the ceil((n + 1) * share)-th smallest of n values; infinity where n is too small for one."""
    rank = math.ceil((len(values) + 1) * share - 1e-9)
    return sorted(values)[rank - 1] if rank <= len(values) else math.inf


def fit(
    rows: Sequence[AskedQuestion],
    shares: Sequence[float] = SHARES,
    abstained: float = ABSTAINED,
    bins: int = BINS,
) -> dict[str, Any]:
    """Return the row of the table that questions with evidence calibrate; its version is left to the caller.

    A ValueError without questions about a place.
    """
    placed = [one for one in rows if one.local and bool(one.evidence.any())]
    if not placed:
        raise ValueError("no question has evidence: give labelled pictures")
    confidences = sorted(one.coupling.confidence for one in placed)
    least = confidences[int(abstained * len(confidences))]
    kept = [one for one in placed if one.coupling.confidence >= least]
    confidences = sorted(one.coupling.confidence for one in kept)
    edges = [confidences[len(kept) * i // bins] for i in range(1, bins)]
    parts = [
        [one.depth for one in kept if bisect_right(edges, one.coupling.confidence) == i] for i in range(bins)
    ]
    table = {str(share): [_rounded(conformal_quantile(part, share)) for part in parts] for share in shares}
    return {
        "questions": len(kept),
        "pictures": len({one.picture for one in kept}),
        "least": least,
        "edges": edges,
        "depths": table,
    }


def _rounded(depth: float) -> float:
    return min(1.0, math.ceil(depth * 10**DIGITS) / 10**DIGITS) if math.isfinite(depth) else 1.0


def report(row: dict[str, Any], rows: Sequence[AskedQuestion]) -> dict[str, Any]:
    """Return what a row promises and keeps, by share.

    "whole": share of questions with all evidence kept, of those to which the promise is given, "interval" its
    95 % interval over pictures; "cells" and "of all": the mean count and share of kept cells; "abstained":
    share of questions with evidence, and of those without an answer, to which it isn't given.
    """
    made: dict[str, Any] = {}
    placed = [one for one in rows if bool(one.evidence.any())]
    vain = [one for one in rows if not bool(one.evidence.any())]
    for share in map(float, row["depths"]):
        rule = rule_of(row, share)
        doubtful = [rule.doubt(one.coupling) is not None for one in placed]
        promised = [one for one, doubt in zip(placed, doubtful, strict=True) if not doubt]
        others = [one for one, doubt in zip(placed, doubtful, strict=True) if doubt]
        whole = [one >= 1 for one in _kept(rule, promised)]
        interval = bootstrap_interval(whole, [one.picture for one in promised])
        made[str(share)] = _facts(rule, promised) | {
            "interval": list(interval),
            "abstained": fmean(doubtful),
            "abstained, no answer": fmean(rule.doubt(one.coupling) is not None for one in vain or placed),
            "without promise": _facts(rule, others),
        }
    return made


def _kept(rule: CoverageRule, rows: Sequence[AskedQuestion]) -> list[float]:
    """Return the share of each question's evidence that a rule keeps."""
    shares = []
    for one in rows:
        best = one.logits.argsort(descending=True, stable=True)[: rule.cells(one.logits, one.coupling)]
        shares.append(float(one.evidence[best].sum() / one.evidence.sum()))
    return shares


def _facts(rule: CoverageRule, rows: Sequence[AskedQuestion]) -> dict[str, float]:
    if not rows:
        return {"questions": 0}
    counts = [rule.cells(one.logits, one.coupling) for one in rows]
    return {
        "questions": len(rows),
        "whole": fmean(one >= 1 for one in _kept(rule, rows)),
        "cells": fmean(counts),
        "of all": fmean(count / len(one.logits) for count, one in zip(counts, rows, strict=True)),
    }


# Families of nested sets, as a number for each cell of a map [N]: the set of a level is the cells up to it.

FAMILIES: dict[str, Callable[[Tensor], Tensor]] = {
    "depth": depths,
    "depth, and 1,000 cells of a depth of 1": lambda x: torch.maximum(depths(x), _rank(x) / 1000),
    "below the highest": lambda x: x.max() - x,
    "below zero": lambda x: -x,
    "rank": lambda x: _rank(x).float(),
    "share of cells": lambda x: _rank(x) / len(x),
    "mass": lambda x: _mass(x, 1.0),
    "sharpened mass": lambda x: _mass(x, 1.5),
}


def _rank(logits: Tensor) -> Tensor:
    """Return the place of each cell in the order of relevance, from 1."""
    return logits.argsort(descending=True, stable=True).argsort() + 1


def _mass(logits: Tensor, sharpness: float) -> Tensor:
    """Return the share of all probability, sharpened by an exponent, that better cells hold."""
    mass = (F.logsigmoid(logits.float()) * sharpness).exp()
    order = logits.argsort(descending=True, stable=True)
    before = mass[order].cumsum(0) - mass[order]
    return torch.empty_like(mass).scatter(0, order, before / mass.sum())


def compare(
    rows: Sequence[AskedQuestion], share: float = 0.9, bins: Sequence[int] = (1, 2, 3, 4)
) -> dict[str, dict[str, dict[str, float]]]:
    """Mean cells that each of FAMILIES needs for a share of questions, by bins of confidence.

    "cells" and "of all" are as in `report`.
    """
    placed = [one for one in rows if one.local and bool(one.evidence.any())]
    least = fit(rows)["least"]
    kept = [one for one in placed if one.coupling.confidence >= least]
    confidences = sorted(one.coupling.confidence for one in kept)
    made: dict[str, dict[str, dict[str, float]]] = {}
    for name, family in FAMILIES.items():
        levels = [family(one.logits) for one in kept]
        made[name] = {}
        for count in bins:
            edges = [confidences[len(kept) * i // count] for i in range(1, count)]
            cells: list[tuple[int, float]] = []
            for part in range(count):
                own = [
                    (level, one.evidence)
                    for level, one in zip(levels, kept, strict=True)
                    if bisect_right(edges, one.coupling.confidence) == part
                ]
                limit = conformal_quantile([float(level[evidence].max()) for level, evidence in own], share)
                within = [level <= limit for level, _ in own]
                cells += [(int(one.sum()), float(one.float().mean())) for one in within]
            counts, shares = zip(*cells, strict=True)
            made[name][str(count)] = {"cells": fmean(counts), "of all": fmean(shares)}
    return made
