"""What methods reach at equal time, and where those without a budget stand."""

from __future__ import annotations

import pytest

from arr_coc_lab.results.kinds import kind
from arr_coc_lab.results.summary import at_equal_time, by_budget, summarise
from arr_coc_lab.results.table import table


def timed_summary(**rows):
    """A summary of methods {name: (score, ms, tokens)}; "_" is "@"."""
    found = []
    for i in range(100):
        line = {"id": f"{i}", "image": "a", "total": 1024, "score": {}, "tokens": {}, "ms": {}}
        for name, (score, ms, tokens) in rows.items():
            method = name.replace("_", "@")
            line["score"][method], line["tokens"][method] = float(i < 100 * score), tokens
            if ms is not None:
                line["ms"][method] = {"prefill": float(ms)}
        found.append(line)
    return summarise({}, found)


ROWS = {
    "full": (0.9, 1000, 1024),
    "arr-coc_64": (0.88, 990, 64),
    "arr-coc sparse_64": (0.85, 40, 64),
    "arr-coc sparse_273": (0.88, 200, 273),
    "arr-coc saccade": (0.89, 300, 529),
    "downsample_64": (0.2, 40, 64),
    "downsample_128": (0.3, 41, 121),
    "downsample_273": (0.25, 150, 272),
    "coc pool4": (0.5, 995, 256),
    "scope_64": (0.6, None, 64),
}


@pytest.mark.slow
def test_the_best_that_is_no_later():
    summary = timed_summary(**ROWS)
    mine = {"arr-coc sparse": "arr-coc sparse@64", "downsample": "downsample@64"}
    assert at_equal_time(summary, "arr-coc sparse@64") == mine  # 40 ms is no later than 40 ms
    found = at_equal_time(summary, "arr-coc saccade")
    assert found["downsample"] == "downsample@128"  # not the slowest, the best
    assert found.keys() == {"arr-coc sparse", "arr-coc saccade", "downsample"}
    later = {"full", "arr-coc", "coc pool4"}
    assert at_equal_time(summary, "full").keys() == found.keys() | later  # scope was never timed


@pytest.mark.slow
def test_the_table_has_a_column_for_each_of_ours_before_the_encoder():
    lines = table(timed_summary(**ROWS), "time").splitlines()
    names = ("40 ms (arr-coc sparse@64)", "200 ms (arr-coc sparse@273)", "300 ms (arr-coc saccade)")
    assert lines[0] == "| method | in " + " | in ".join(names) + " |"
    assert "| downsample | 20.0% @64 | 30.0% @128 | 30.0% @128 |" in lines
    assert "| **arr-coc saccade** | - | - | **89.0%** |" in lines
    assert len(lines) == 2 + 3 + 2
    assert lines[-1] == "later than all of these, with any budget: full, arr-coc, coc pool4."


def test_without_them_all_of_ours_are_references():
    rows = {name: row for name, row in ROWS.items() if " " not in name}
    lines = table(timed_summary(**rows), "time").splitlines()
    assert lines[0] == "| method | in 990 ms (arr-coc@64) |"
    assert lines[-1] == "later than all of these, with any budget: full."


def test_nothing_timed_is_refused():
    with pytest.raises(ValueError, match="--timed"):
        table(timed_summary(**{"full": (1, None, 1024), "arr-coc_64": (1, None, 64)}), "time")


@pytest.mark.slow
def test_what_has_no_budget_stands_with_what_it_reads():
    rows = {
        "full": (0.9, 9, 1024),
        "arr-coc_529": (0.8, 9, 529),
        "arr-coc saccade": (0.85, 9, 529),
        "coc pool4": (0.5, 9, 256),
        "arr-coc_64": (0.7, 9, 64),
        "oracle sparse_64": (0.9, 9, 64),
        "shuffled question sparse_64": (0.1, 9, 64),
    }
    summary = timed_summary(**rows)
    groups = by_budget(summary)
    assert list(groups) == ["", "529", "256", "64"]
    assert groups["529"] == ["arr-coc saccade", "arr-coc@529"]
    assert groups["64"] == ["arr-coc@64", "shuffled question sparse@64", "oracle sparse@64"]
    kinds = {m: kind(m) for m in summary["methods"]}
    assert kinds["arr-coc saccade"] == kind("arr-coc sparse@64") == "ours"
    assert (kinds["coc pool4"], kinds["oracle sparse@64"]) == ("coc", "bound")
    assert kinds["shuffled question sparse@64"] == "null"
    wide = table(summary, "budgets")
    assert wide.splitlines()[0].startswith("| method | exact match @529 | @64 |")
    assert "| coc pool4" not in wide
    end = "all tokens (1,024): 90.0%; arr-coc saccade (529): 85.0%; coc pool4 (256): 50.0%."
    assert wide.endswith(end)


@pytest.mark.slow
def test_a_fraction_stands_with_as_many_tokens():
    """Whatever rivals read beside what they keep; by its number where nobody has counted."""
    rows = {"full": (0.9, 9, 1024), "arr-coc_64": (0.5, 9, 64), "arr-coc_0.25": (0.7, 9, 256)}
    rows |= {"scope_64": (0.6, 9, 64), "scope_0.25": (0.3, 9, 256), "fastv_64": (0.2, 9, 832)}
    summary = timed_summary(**rows | {"arr-coc_auto": (0.6, 9, 500), "arr-coc_128": (0.6, 9, 128)})
    assert list(by_budget(summary)) == ["", "0.25", "128", "64", "auto"]
    lines = table(summary, "budgets").splitlines()
    assert lines[0].startswith("| method | exact match @0.25 | @128 | @64 |")
    names = [line.split(" | ")[0].strip("|* ") for line in lines[2:5]]
    assert names == ["scope", "arr-coc", "fastv"]  # by what they reach with 64
    for row in summary["methods"].values():
        row["tokens"] = None
    assert list(by_budget(summary)) == ["", "128", "64", "0.25", "auto"]


@pytest.mark.slow
def test_reads_and_times_stand_at_every_budget_and_a_single_run_beside_ranges_says_so():
    summary = timed_summary(**ROWS)
    methods = summary["methods"]
    methods["arr-coc sparse@64"]["ttft range"] = [20.0, 30.0]
    methods["arr-coc sparse@273"]["one run"] = True
    lines = table(summary, "budgets").splitlines()
    columns = [f"{name} @{budget}" for name in ("reads", "TTFT speed-up") for budget in (273, 128, 64)]
    assert lines[0] == "| method | exact match @273 | @128 | @64 | " + " | ".join(columns) + " |"
    sparse = (
        "arr-coc sparse",
        "88.0%",
        "-",
        "85.0%",
        "273",
        "-",
        "64",
        "5.00x (one run)",
        "-",
        "20.00-30.00x",
    )
    assert "| " + " | ".join(cell if cell == "-" else f"**{cell}**" for cell in sparse) + " |" in lines
    shrunk = ("downsample", "25.0%", "30.0%", "20.0%", "272", "121", "64", "6.67x", "24.39x", "25.00x")
    assert "| " + " | ".join(shrunk) + " |" in lines
    assert "| scope | - | - | 60.0% | - | - | 64 | - | - | - |" in lines
