"""Whether the cells that were chosen for one question serve another one about the same picture."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.budget import sharpened
from arr_coc.guide.coupling import Coupling

ENOUGH = 0.8  # share of what a question needs that has to lie in the cells
NOTHING = 0.2  # confidence of the guide below which a question is about nothing in the picture
GENERAL_SCOPE = 0.5  # how sure it has to be, else, that the question is about the whole picture


def still_serves(keep: Tensor, coupling: Coupling) -> bool:
    """Return whether kept cells, long [K], hold what a question needs, or it needs none ("Thanks!").

    `coupling` is what the guide found about the question and the picture.
    """
    is_general = max(coupling.overview, coupling.unusual) >= GENERAL_SCOPE
    needs_none = coupling.confidence < NOTHING and not is_general
    return needs_none or need_within(keep, coupling) >= ENOUGH


def need_within(keep: Tensor, coupling: Coupling) -> float:
    """Return the share in [0, 1] of what a question needs that lies in some cells, long [K]."""
    need = sharpened(coupling.logits.flatten().float())
    return float(need[keep.long()].sum() / need.sum())
