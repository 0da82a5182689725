"""Several runs become one range, only where they measured the same; memory is that of one question."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc_lab.evaluate.speed import Arrival

BENCH = Path(__file__).parents[2] / "bench" / "prefill.py"
if not BENCH.is_file():
    pytest.skip("bench/ is in the repository alone", allow_module_level=True)
SCRIPT = runpy.run_path(str(BENCH))
merged, memory_row, one_memory = (SCRIPT[name] for name in ("merged", "memory_row", "one_memory"))
CPU = torch.device("cpu")
linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="this system doesn't tell the peak of resident memory"
)


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


# ---- memory


def held(mebibytes: int) -> torch.Tensor:
    """Memory that is touched, in a block so large that the system has it back as soon as it is freed."""
    return torch.ones(mebibytes, 2**18)


@linux
def test_memory_is_that_of_the_question_beyond_what_was_held() -> None:
    kept = [held(64)]
    held(400)  # freed: a peak of before doesn't count

    def start() -> dict[str, Any]:
        return {"pixels": held(80)}

    def way(inputs: dict[str, Any], _: Any) -> Arrival:
        inputs["states"] = held(120)
        assert len(inputs["pixels"]) == 80  # both are held at once
        kept.append(held(48))
        return Arrival(torch.zeros(1, 2), 64.0)

    row = memory_row("sparse@64", way, start, CPU)
    assert (row["way"], row["tokens"]) == ("sparse@64", 64.0)
    assert row["peak"] == pytest.approx(80 + 120 + 48, abs=10)
    assert row["stays"] == pytest.approx(48, abs=10)
    again = memory_row("sparse@64", way, start, CPU)
    assert again["loaded"] - row["loaded"] == pytest.approx(48, abs=10)
    assert again["peak"] == pytest.approx(80 + 120 + 48, abs=10)


def memory_of(way: str, peak: float, **facts: Any) -> dict[str, Any]:
    row = {"way": way, "tokens": 9.0, "loaded": 100.0, "peak": peak, "stays": 1.0}
    return {"circumstances": {"device": "a CPU", "batch": 1} | facts, "rows": [row]}


def test_ways_are_compared_with_stock() -> None:
    made = one_memory([memory_of("sparse@64", 50.0), memory_of("stock", 200.0), memory_of("prune@64", 160.0)])
    assert [(row["way"], row["fewer"]) for row in made["rows"]] == [
        ("sparse@64", 4.0),
        ("stock", 1.0),
        ("prune@64", 1.25),
    ]
    assert made["circumstances"] == {"device": "a CPU", "batch": 1}
    assert one_memory([memory_of("sparse@64", 50.0)])["rows"][0]["fewer"] is None


@pytest.mark.parametrize("facts", [{"batch": 4}, {"device": "another CPU"}])
def test_ways_of_other_machines_or_inputs_are_not_compared(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"ways differ in {next(iter(facts))}: .* remove the files"):
        one_memory([memory_of("stock", 50.0), memory_of("sparse@64", 20.0, **facts)])


@linux
@pytest.mark.slow
def test_each_way_has_a_process_of_its_own(tmp_path: Path) -> None:
    """Of a model of two layers: what a process holds with it is at least its weights."""
    out = tmp_path / "memory.json"
    words = f"--memory --depth 2 --size 256 --modes stock,sparse@16 --out {out}"
    subprocess.run([sys.executable, str(BENCH), *words.split()], check=True)
    made = json.loads(out.read_text(encoding="utf-8"))
    assert [(row["way"], row["tokens"]) for row in made["rows"]] == [("stock", 64.0), ("sparse@16", 16.0)]
    facts = made["circumstances"]
    for row in made["rows"]:
        assert row["loaded"] > 2 * facts["parameters"] / 2**20  # bfloat16
        assert 0 < row["peak"] < row["loaded"]
        assert row["stays"] <= row["peak"]
    assert facts["device"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "memory-sparse@16.json",
        "memory-stock.json",
    ]
