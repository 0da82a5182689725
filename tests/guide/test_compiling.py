"""The mark of functions whose results a compiled graph may hold."""

from __future__ import annotations

import torch

from arr_coc.guide import colours, guide, head
from arr_coc.guide.compiling import constant_result


def test_it_is_the_mark_that_torch_sets() -> None:
    def theirs() -> int:
        return 1

    def ours() -> int:
        return 1

    assert vars(torch.compiler.assume_constant_result(theirs)) == vars(constant_result(ours)) != {}
    assert constant_result(ours) is ours


def test_tables_of_the_guide_bear_it() -> None:
    tables = (head._coordinates, head._turns, colours._table, guide._samples)
    assert all(vars(table.__wrapped__) == vars(constant_result(lambda: None)) for table in tables)
