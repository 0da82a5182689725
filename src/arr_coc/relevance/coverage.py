"""Coverage: keep as many cells as hold all evidence for a promised share of questions (conformal prediction).

    rule = coverage_rule(GuideSource(), 0.9)     of the bundled table, for one source of relevance
    rule.cells(logits, coupling)                 how many of the best cells are kept
    rule.doubt(coupling)                         why nothing is promised, or None where the promise holds

The depth of a cell is how far its logit lies below the picture's highest, as a share of the way to the
lowest. A rule keeps all cells down to some depth. `arr_coc_lab.evaluate.coverage` fits the depths on labelled
real pictures (split conformal prediction: Vovk et al. 2005; nested sets: Gupta et al. 2022).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from arr_coc.files.saved import BUNDLED, reading
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.trust import GENERAL, verdict_of
from arr_coc.relevance.source import RelevanceSource

TABLE = BUNDLED / "coverage.json"
NO_PLACE = "the question is about no place"
UNSURE = "the picture may not hold what is asked for"
NO_STRUCTURE = "the picture has no structure"


class CoverageRule(NamedTuple):
    """Which depths of cells hold all evidence of a share of questions, by the source's confidence."""

    share: float  # of questions, as promised, in (0, 1)
    least: float  # confidence below which nothing is promised
    edges: tuple[float, ...]  # confidences, rising, from which the next depth holds
    depths: tuple[float, ...]  # one more than edges, each in [0, 1]

    def cells(self, logits: Tensor, coupling: Coupling | None) -> int:
        """Return how many of the best cells of a map of logits the rule keeps, at least one."""
        confidence = 0.0 if coupling is None else coupling.confidence
        return int((depths(logits) <= self.depths[bisect_right(self.edges, confidence)]).sum())

    def doubt(self, coupling: Coupling | None) -> str | None:
        """Return why nothing is promised about a question; None if the promise holds."""
        if coupling is None or verdict_of(coupling) in GENERAL:
            return NO_PLACE
        return UNSURE if coupling.confidence < self.least else None

    def note(self, doubt: str) -> str:
        """Return the remark that users see if nothing is promised."""
        return f"coverage {self.share:g} isn't promised: {doubt}"


def depths(logits: Tensor) -> Tensor:
    """Return how deep each cell lies below its picture's best, in [0, 1]: 0 the highest logit, 1 the lowest.

    If all logits are equal the depths are 0, so that all cells are kept.
    """
    flat = logits.detach().float()
    high, low = flat.max(), flat.min()
    return (high - flat) / (high - low).clamp_min(1e-6)


def coverage_rule(source: RelevanceSource, share: float) -> CoverageRule:
    """Return the rule of a source for a share of questions; the bundled table's next higher share counts.

    If the table lacks the source or this version of it, or the share lies outside of its shares, raise
    ValueError.
    """
    table = coverage_table()
    own = [row for name, row in table.items() if name.split()[0] == source.name]
    row = next((one for one in own if one["version"] == source.version), None)
    if row is None:
        named = ", ".join(f"{name} {one['version']}" for name, one in table.items())
        raise ValueError(
            f"coverage isn't calibrated for relevance {source.name!r} of version {source.version}, only for "
            f"{named}: use one of these as relevance, or a budget"
        )
    return rule_of(row, share)


def rule_of(row: Mapping[str, Any], share: float) -> CoverageRule:
    """Return the rule of a table row for a share; raise ValueError for a share outside of the row's."""
    shares = sorted(map(float, row["depths"]))
    above = [one for one in shares if one >= share]
    if share < shares[0]:
        raise ValueError(
            f"coverage {share:g} is below {shares[0]:g}, the lowest calibrated: ask for {shares[0]:g}, or "
            "give a budget to keep less"
        )
    if not above:
        raise ValueError(f"coverage {share:g} is above {shares[-1]:g}, the highest calibrated: ask for less")
    return CoverageRule(share, row["least"], tuple(row["edges"]), tuple(row["depths"][str(above[0])]))


@lru_cache(maxsize=1)
def coverage_table() -> dict[str, dict[str, Any]]:
    """Return the bundled calibrations by source: version, least confidence, edges and depths by share.

    A name is that of a source, with what tells a version from others behind it: "ocr by table".
    """
    with reading(f"{str(TABLE)!r} can't be read", "install arr-coc again"):
        return json.loads(TABLE.read_text(encoding="utf-8"))
