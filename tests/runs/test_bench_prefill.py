"""Several runs become one range, only where they measured the same."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "prefill.py"
if not BENCH.is_file():
    pytest.skip("bench/ is in the repository alone", allow_module_level=True)
merged = runpy.run_path(str(BENCH))["merged"]


def result(speed: float, mode: str = "sparse@64", **facts: Any) -> dict[str, Any]:
    same = {"shape": "2B", "image": [1024, 1024], "batch": 1, "dtype": "bfloat16"}
    machine = {"device": "a CPU", "cores": 2, "threads": 2, "versions": {"torch": "2"}, "seconds": 5}
    row = {
        "mode": mode,
        "ms": 100 / speed,
        "speed": speed,
        "of_limit": None,
        "select_share": 0.1,
        "tflop": 2.0,
    }
    return {
        "circumstances": same | machine | facts,
        "rows": [row | {"stages": {"encode": speed}, "select": speed, "rounds": [speed, 2 * speed]}],
    }


def test_a_figure_is_the_range_over_runs() -> None:
    made = merged([result(4.0), result(2.0), result(10.0, cores=4)])
    (row,) = made["rows"]
    assert (row["speed"], row["range"]["speed"], row["runs"]) == (4.0, [2.0, 10.0], 3)
    assert (row["ms"], row["range"]["ms"]) == (25.0, [10.0, 50.0])
    assert "of_limit" not in row["range"]  # not measured in every run
    assert (row["stages"], row["select"], row["tflop"]) == ({"encode": 4.0}, 4.0, 2.0)
    assert row["rounds"] == [4.0, 8.0, 2.0, 4.0, 10.0, 20.0]
    facts = made["circumstances"]
    assert (facts["runs"], facts["seconds"], facts["shape"]) == (3, 15, "2B")
    assert [one["cores"] for one in facts["machines"]] == [2, 4]


def test_a_way_that_some_runs_lack_is_of_those_that_have_it() -> None:
    made = merged([result(4.0), result(3.0, mode="saccade")])
    assert [(row["mode"], row["runs"]) for row in made["rows"]] == [("sparse@64", 1), ("saccade", 1)]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"batch": 4}, "runs differ in batch: 1 and 4"),
        ({"dtype": "float32"}, "dtype"),
        ({"runs": 3}, "a range"),
    ],
)
def test_what_is_no_one_result_is_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merged([result(1.0), result(1.0, **facts)])
    with pytest.raises(ValueError, match="no run to merge"):
        merged([])
