"""The second turn of a conversation: a question after another one about the same image, with its answer.

Rows of `arr-coc eval --like`. A choice by the question may lack what a later turn needs, so cells are once
chosen anew for the later question and once kept from the earlier one; all tokens stand beside them.
"""

from __future__ import annotations

import torch

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.files.images import open_image
from arr_coc.modes.call import EncodedImages
from arr_coc.session import Session
from arr_coc_lab.evaluate.early import Prepare, Ready, Spend
from arr_coc_lab.evaluate.view import View
from arr_coc_lab.results.kinds import Kind
from arr_coc_lab.results.like import TURN, TURN_FULL, TURN_KEPT
from arr_coc_lab.rivals.method import Method, Style


def turn_before(view: View, i: int) -> int | None:
    """Return the number of the question whose turn comes before question i: the one before it, of the first
    the last; None where the image has one question, or that question no answer.
    """
    queries = view.source.queries
    before = (i - 1) % len(queries)
    return before if before != i and queries[before].answers else None


def _turn(chooses: bool, earlier: bool = False) -> Prepare:
    """Return a rule that answers question i after the turn before it: from all cells, or if it `chooses`
    from those for question i, or for the turn before it (`earlier`).
    """

    def prepare(view: View, i: int, budget: Spend, encoded: EncodedImages, watch: Stopwatch) -> Ready:
        before = turn_before(view, i)
        assert before is not None, "run only on questions that have a turn before them"
        query = view.source.queries[before]
        session = view.once("conversation", lambda: Session(view.model, open_image(view.source.image)))
        inputs = session.inputs(view.source.queries[i].text, [(query.text, query.answers[0])])
        if not chooses or budget is None:
            cells = torch.arange(view.total, device=view.model.device)
            return Ready(view.model.adapter.compact(inputs, view.features, [cells]), None)
        allocation = view.chosen(None, before if earlier else i, budget)
        keep = allocation.keep.to(view.model.device)
        return Ready(view.model.adapter.compact(inputs, view.features, [keep]), keep, allocation)

    return prepare


def _row(name: str, kind: Kind, rule: Prepare, fixed: bool = False) -> Method:
    return Method(
        name,
        kind,
        prepare=rule,
        by_question=True,
        needs=frozenset({"turns"}),
        fixed=fixed,
        mode="full" if fixed else "prune",
        timed=False,
        style=Style(marker="+"),
    )


TURNS = {
    method.name: method
    for method in (
        _row(TURN, "ours", _turn(chooses=True)),
        _row(TURN_KEPT, "null", _turn(chooses=True, earlier=True)),
        _row(TURN_FULL, "bound", _turn(chooses=False), fixed=True),
    )
}
"""Methods that run only if they are named."""
