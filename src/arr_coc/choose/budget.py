"""The budget: how many cells of an image are kept. A count, a fraction of all cells, "auto" or a coverage.

parse_budget("0.25") -> 0.25                       once, where a budget comes from a user
coverage_budget(None, 0.9) -> "coverage 0.9"       a promise, which `relevance.coverage` keeps
count_cells(budget, scores [B, N]) -> B counts     for each image; here "auto" becomes a count
divide_budget(maps, 128) -> a count per image      of one budget that several images share
auto_loss(logits, compress, evidence)              trains how much "auto" spends
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arr_coc.files.question import kind_of

if TYPE_CHECKING:  # a bad budget is refused before torch is imported
    from torch import Tensor

Budget = int | float | str  # a count of cells, a fraction in (0, 1], "auto", or "coverage 0.9"

DEFAULT_BUDGET = 273  # cells kept of an image with more of them, if no budget is named
AUTO = "auto"
COVERAGE = "coverage "  # before the share of questions of which all evidence is to be kept
AUTO_RANGE: tuple[int, int] = (64, 400)  # the least and the most cells that "auto" keeps of an image
AUTO_SPAN = 16.0  # what the compress tension multiplies "auto" by at 0, and divides it by at 1
# The next three were chosen on validation pages (`runs/guide_calibration.py`).
AUTO_SHARPNESS = 1.5  # exponent of probabilities before they are added up
AUTO_MASS = 0.98  # share of all sharpened probability that the kept cells have to hold
AUTO_MARGIN = 2.0  # cells kept, as a multiple of those that hold AUTO_MASS
# Less than 6 costs evidence on validation pages; 8 changes nothing there but the number of cells.
AUTO_PEAKED = 8.0  # the most cells for a map with a peak of probability 1, in effective cells of it
# Least fall of logits between two cells next to each other in the order that sets the few above apart. With
# a fall of 1.5, or an unsure coupling, evidence is lost on validation pages and pictures; else none.
AUTO_GAP = 2.0
AUTO_EVIDENCE = 0.98  # share of the evidence that a learned budget has to hold
AUTO_TARGET_MARGIN = 6.0  # cells that a learned "auto" should keep, per best cell that the evidence needs

_REMEDY = 'use a count (273), a fraction of the tokens (0.25) or "auto"'


def parse_budget(value: Budget) -> Budget:
    """Return a budget as an int >= 1, a float in (0, 1], "auto" or "coverage 0.9", also from text ("0.25",
    "25%").

    The float 1.0 is everything, the int 1 is one token. A ValueError for all else.
    """
    budget = value
    if isinstance(value, str) and value.strip().lower().startswith(COVERAGE):
        return _coverage(value.strip()[len(COVERAGE) :])
    if isinstance(value, str) and value.strip().lower() != AUTO:
        text = value.strip()
        try:
            if text.endswith("%"):
                budget = float(text[:-1]) / 100
            else:
                budget = int(text) if text.lstrip("+-").isdigit() else float(text)
        except ValueError:
            raise ValueError(f"budget {value!r} is not a number; {_REMEDY}") from None
    if isinstance(budget, str):
        return AUTO
    if isinstance(budget, numbers.Real) and not isinstance(budget, bool):  # NumPy has numbers of its own
        budget = int(budget) if isinstance(budget, numbers.Integral) else float(budget)
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise ValueError(f"budget {value!r} is {kind_of(value)}; {_REMEDY}")
    if isinstance(budget, int) and budget < 1:
        raise ValueError(f"budget {value!r} is below 1; {_REMEDY}")
    if isinstance(budget, float) and not 0 < budget <= 1:
        raise ValueError(f"budget {value!r} is not a fraction in (0, 1]; {_REMEDY}")
    return budget


def coverage_budget(budget: Budget | None, coverage: float | None) -> Budget | None:
    """Return the budget of a call that names a budget, a coverage in (0, 1) or neither; a ValueError for
    both.
    """
    if coverage is None:
        return budget
    if budget is not None:
        raise ValueError(
            f"budget {budget!r} and coverage {coverage!r} are both named: a coverage decides how many cells "
            "are kept, so leave one of them out"
        )
    return _coverage(coverage)


def _coverage(share: Any) -> str:
    """Return the budget of a coverage, as text."""
    try:
        value = math.nan if isinstance(share, bool) else float(share)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 < value < 1:
        raise ValueError(
            f"coverage {share!r} is no share above 0 and below 1: use 0.9 to keep all evidence of nine in "
            "ten questions"
        )
    return f"{COVERAGE}{value!r}"


def coverage_share(budget: Budget | None) -> float | None:
    """Return the share of a parsed budget that is a coverage; None for any other."""
    return float(budget[len(COVERAGE) :]) if isinstance(budget, str) and budget.startswith(COVERAGE) else None


def check_budget(value: Budget | None) -> None:
    """Raise the ValueError of `parse_budget` for a bad budget of a call, which may also be None."""
    if value is not None:
        parse_budget(value)


def budget_of(own: Budget, requested: Budget | None, total: int) -> Budget:
    """`requested`, or else the model's `own` budget, for an image: a count is cut to its `total` cells."""
    budget = own if requested is None else parse_budget(requested)
    return min(budget, total) if isinstance(budget, int) else budget


def budget_count(budget: Budget | None, total: int) -> int:
    """Return the number of tokens to keep of `total` by a count, a fraction (rounded, at least 1) or None.

    None is DEFAULT_BUDGET, at most `total`. A ValueError if it exceeds `total`, or depends on scores.
    """
    return _count(None if budget is None else parse_budget(budget), total)


def _count(budget: Budget | None, total: int) -> int:
    if budget is None:
        return min(DEFAULT_BUDGET, total)
    if isinstance(budget, str):
        raise ValueError(
            f'budget "{budget}" has no count before scores are known; use a count or a fraction here'
        )
    if isinstance(budget, float):
        return max(1, math.floor(budget * total + 0.5))
    if budget > total:
        raise ValueError(
            f"budget {budget} exceeds the {total} visual tokens; use at most {total}, or 1.0 for all"
        )
    return budget


def compute_retained_tokens_count(total: int, budget: Budget | None = None) -> int:
    """`budget_count` by the name that serving engines use: the tokens kept of `total`, before any score."""
    return budget_count(budget, total)


def count_cells(
    budget: Budget | None,
    scores: Tensor,
    compress: Tensor | float = 0.5,
    needed: Tensor | None = None,
) -> list[int]:
    """Return how many cells of each image a budget keeps; a ValueError if it is invalid or exceeds N.

    The rest is for "auto", whose count lies within AUTO_RANGE. `scores` [B, N] and `compress` [B] are in
    [0, 1]: 0.5 changes nothing, less keeps more cells, more keeps fewer. `needed` [B]: cells to keep at 0.5;
    None: `effective_cells(scores)`; callers that follow the guide pass `needed_cells`.
    """
    budget = None if budget is None else parse_budget(budget)
    if budget != AUTO:
        return [_count(budget, scores.shape[-1])] * len(scores)
    return expected_tokens(scores.float(), compress, needed).round().int().tolist()


def divide_budget(maps: Sequence[Tensor], total: int, least: int = 1) -> list[int]:
    """Return how many cells each of several images keeps of one budget, so that the kept relevance is
    greatest.

    Those are the best cells of all images together, after the `least` best of each: no other division with as
    many of each keeps a greater sum. An image of which little is relevant leaves its share to the others.

    Args:
        maps: relevance of each image's cells, of any shape; finite, and comparable between the images, as
            probabilities, log odds and cosines are. Of equal cells the earlier image's are kept.
        total: cells to keep of all images together; at most all are kept.
        least: cells to keep of each image whatever its relevance; at most all of a smaller image are.

    Returns:
        A count per image; they add up to `total`, or to all cells.

    Raises:
        ValueError: no image, a map without cells or that is not finite, or a total below the least of all.
    """
    import torch

    ranked = [one.detach().float().cpu().flatten().sort(descending=True).values for one in maps]
    if not ranked or any(not len(one) or not one.isfinite().all() for one in ranked):
        shapes = [list(one.shape) for one in maps]
        raise ValueError(f"maps {shapes} share no budget: give a finite map of some cells for each image")
    counts = [min(least, len(one)) for one in ranked]
    if least < 1 or total < sum(counts):
        raise ValueError(
            f"budget {total} can't be shared by {len(ranked)} images with at least {least} cells each: "
            "use a greater budget, or fewer images"
        )
    rest = torch.cat([one[count:] for one, count in zip(ranked, counts, strict=True)])
    owner = torch.arange(len(ranked)).repeat_interleave(
        torch.tensor([len(one) - count for one, count in zip(ranked, counts, strict=True)])
    )
    best = rest.argsort(descending=True, stable=True)[: total - sum(counts)]
    more = owner[best].bincount(minlength=len(ranked)).tolist()
    return [count + extra for count, extra in zip(counts, more, strict=True)]


def effective_cells(scores: Tensor) -> Tensor:
    """Return the effective number of cells that hold the relevance of a map, [..., N] in [0, 1] -> [...] in
    [1, N].

    The inverse participation ratio (sum p)^2 / sum p^2 of the sharpened mass p = (s - min + 0.05)^4.
    """
    mass = (scores - scores.amin(-1, keepdim=True) + 0.05) ** 4
    return mass.sum(-1) ** 2 / (mass**2).sum(-1)


def needed_cells(logits: Tensor, weights: Tensor, gaps: bool | Tensor = False) -> Tensor:
    """Return how many cells of a balanced map are worth keeping, [B, ...] logits and [B, 3] gates -> [B].

    Where the coupling's gate leads, the map is log odds of evidence: `enough_cells` of it, or
    `cells_apart` if these are fewer and `gaps` (of all, or bool [B]) count, as for a guide that is sure.
    Where saliency's or information's leads, it is a map in [0, 1] without that meaning: AUTO_MARGIN times the
    `effective_cells`, for an even background at 0.5 is no evidence there, and a peak of 0.6 is no doubt.
    """
    import torch

    with torch.no_grad():
        coupled = weights.argmax(1) == 2
        effective = effective_cells(logits.flatten(1).float().sigmoid())
        enough = enough_cells(logits)
        counting = torch.as_tensor(gaps, device=logits.device)
        if bool(counting.any()):
            enough = torch.where(counting, torch.minimum(enough, cells_apart(logits)), enough)
        return torch.where(coupled, enough, AUTO_MARGIN * effective)


def sharpened(logits: Tensor) -> Tensor:
    """Return the probabilities of log odds to the power of AUTO_SHARPNESS, of the same shape.

    Else the small ones of a thousand cells that hold nothing would outweigh those of the ten that do.
    """
    import torch.nn.functional as F

    return (F.logsigmoid(logits) * AUTO_SHARPNESS).exp()


def enough_cells(logits: Tensor) -> Tensor:
    """Return how many cells of a map of logits are worth keeping, [B, ...] -> [B].

    AUTO_MARGIN times those that hold AUTO_MASS of all probability; fewer where a few cells stand out.
    """
    import torch

    with torch.no_grad():
        flat = logits.flatten(1).float()
        mass = sharpened(flat)
        held = mass.sort(1, descending=True).values.cumsum(1)  # (B, N), mass in the best 1 to N cells
        holding = AUTO_MARGIN * ((held < AUTO_MASS * held[:, -1:]).sum(1) + 1)
        # If few cells stand far above the rest, the rest can still outweigh them, as 63 blue circles do
        # beside a red one: a map with a peak p is worth at most AUTO_PEAKED / p^4 times its effective cells.
        chances = flat.sigmoid()
        return torch.minimum(holding, AUTO_PEAKED * effective_cells(chances) / chances.amax(1) ** 4)


def cells_apart(logits: Tensor) -> Tensor:
    """Return how many cells a few are worth that a gap sets apart, [B, ...] -> [B]; infinity where there is
    no gap.

    How likely the best are says little where what is asked for is rarely met: a red circle of probability 0.6
    is still the only red one, and a gap below it shows that, however many others follow. So those above a gap
    count as if their probability were 1. A gap is looked for among the cells that "auto" keeps anyway.
    """
    import torch
    import torch.nn.functional as F

    with torch.no_grad():
        flat = logits.flatten(1).float()
        best = flat.topk(min(AUTO_RANGE[0] + 1, flat.shape[1])).values
        falls = F.pad(best[:, :-1] - best[:, 1:], (0, 1))  # (B, n), from each to the next; padded for N = 1
        apart = AUTO_PEAKED * (falls.argmax(1) + 1).to(flat.dtype)
        return apart.masked_fill(falls.amax(1) < AUTO_GAP, math.inf)


def spent_tokens(scores: Tensor, compress: Tensor | float = 0.5, needed: Tensor | None = None) -> Tensor:
    """Return the tokens that "auto" would spend without its limits, [..., N] -> [...], differentiable."""
    cells = effective_cells(scores) if needed is None else needed
    return cells * AUTO_SPAN ** (1 - 2 * compress)


def expected_tokens(scores: Tensor, compress: Tensor | float = 0.5, needed: Tensor | None = None) -> Tensor:
    """Return the tokens that "auto" spends, before rounding: `spent_tokens` within AUTO_RANGE and at most
    N.
    """
    low, high = AUTO_RANGE
    return spent_tokens(scores, compress, needed).clamp(low, high).clamp(max=float(scores.shape[-1]))


def auto_loss(
    logits: Tensor, compress: Tensor, evidence: Tensor, margin: float = AUTO_TARGET_MARGIN
) -> Tensor:
    """Return the loss of the "auto" budget: the squared log2 of tokens spent over tokens needed, mean over
    rows.

    It trains the compress tension [B] alone, never the scorers. The target of a row is `margin` times the
    number of best cells that hold AUTO_EVIDENCE of its `evidence` (bool [B, H, W]), within AUTO_RANGE;
    without evidence the least of it. A target met because the range ends there has no loss.
    """
    if evidence.shape != logits.shape:
        raise ValueError(
            f"evidence {tuple(evidence.shape)} must have the shape of the maps, {tuple(logits.shape)}"
        )
    if not margin > 0:
        raise ValueError(f"margin {margin} must be above 0; 1.0 asks for just what is needed")
    flat = logits.detach().flatten(1)
    ranked = flat.argsort(dim=1, descending=True, stable=True)
    reached = evidence.flatten(1).gather(1, ranked).cumsum(1)  # (B, N), evidence in the best 1 to N cells
    needed = (reached < AUTO_EVIDENCE * reached[:, -1:]).sum(1) + 1
    low, high = (min(bound, ranked.shape[1]) for bound in AUTO_RANGE)
    target = (margin * needed).clamp(low, high)
    # Not `expected_tokens`: its clamp would stop the gradient.
    spent = spent_tokens(flat.sigmoid().float(), compress)
    settled = spent.clamp(low, high) == target  # met at an end of the range, where nothing is to be learned
    return (spent / target).log2().masked_fill(settled, 0.0).square().mean()
