"""When the cells of one question serve another."""

from __future__ import annotations

from dataclasses import replace

import torch

from arr_coc.guide.coupling import Coupling
from arr_coc.relevance.serving import need_within, still_serves


def test_cells_serve_a_question_that_needs_these_or_none() -> None:
    logits = torch.full((2, 2), -20.0)
    logits[0, 1] = 4.0
    guided = Coupling(logits, 1.0, 0.0, 0.0)
    inside, elsewhere = torch.tensor([1]), torch.tensor([0, 2, 3])
    assert need_within(inside, guided) > 0.99
    assert need_within(elsewhere, guided) < 0.01
    assert still_serves(inside, guided)
    assert not still_serves(elsewhere, guided)
    thanks = replace(guided, confidence=0.1)
    assert still_serves(elsewhere, thanks)
    assert not still_serves(elsewhere, replace(thanks, overview=0.9))  # about the whole picture
