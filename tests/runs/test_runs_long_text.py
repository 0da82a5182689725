"""The runner of long text: its pools, its scores and its table."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from arr_coc.seam import VisualFeatures

sys.path.insert(0, str(Path(__file__).parents[2] / "runs"))

import long_plot
import long_table
import long_text


def features(side: int) -> VisualFeatures:
    cells = torch.arange(float(side * side))[:, None].repeat(1, 3)
    return VisualFeatures([cells], [[cells * 2]], [(1, side, side)], [torch.arange(side * side)], object)


def test_a_pool_is_the_mean_of_its_cells_in_every_level() -> None:
    small = long_text.pooled(features(4), 2)
    assert small.grids == [(1, 2, 2)]
    expected = torch.tensor([2.5, 4.5, 10.5, 12.5])
    assert torch.equal(small.tokens[0][:, 0], expected)
    assert torch.equal(small.levels[0][0][:, 0], 2 * expected)


def test_scores_are_of_letters_and_of_whole_answers() -> None:
    row = long_text.scored([("AB12", "AB12"), ("AB13", "AB12")])
    assert (row["exact"], row["characters"], row["questions"]) == (0.5, 0.875, 2)
    assert row["interval"][0] <= 0.5 <= row["interval"][1]


def test_a_run_that_is_stopped_and_goes_on_counts_every_pair() -> None:
    rows = {("shrunk", 16): {"strings": [("A", "A"), ("B", "C")]}}
    result = long_text.summed(rows, {("shrunk", 16): 256}, {}, {"pages": 1})
    (row,) = result["rows"]
    assert (row["compression"], row["strings"]["exact"]) == (4.0, 0.5)


def test_the_table_has_a_column_per_number_of_tokens() -> None:
    scores = {"exact": 0.5, "interval": [0.4, 0.6], "characters": 0.75, "questions": 4}
    some = [("all tokens", 1024), ("sparse", 64), ("tower16", 64)]
    rows = [{"method": name, "side": None, "tokens": count, "strings": scores} for name, count in some]
    lines = long_table.compression_table({"cells": 1024, "rows": rows}, "strings").splitlines()
    assert lines[0].count("|") == 4
    assert any("tower16" in line and "50.0% / 0.75" in line for line in lines)


@pytest.mark.parametrize("heights", [[0.0, 0.0, 0.0], [1.0, 0.5, 0.52], [0.9]])
def test_names_beside_lines_do_not_overlap(heights: list[float]) -> None:
    placed = sorted(long_plot.spread(heights))
    assert all(b - a >= long_plot.MIN_PITCH - 1e-9 for a, b in pairwise(placed))
