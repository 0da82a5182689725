"""What a run says of itself: how far it is and how long it will take, in words."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from arr_coc.train import callbacks
from arr_coc.train.callbacks import Report, duration, in_words, rounded_up
from arr_coc_lab.teaching.recipe import GuideRecipe
from arr_coc_lab.teaching.trainer import pieces


def report_of(steps: int, seconds: float, monkeypatch: pytest.MonkeyPatch, terminal: bool = False) -> str:
    """What is written of a run whose steps take as long as this."""
    written = io.StringIO()
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: clock.now)
    console = Console(file=written, force_terminal=terminal, width=200, color_system=None)
    state = SimpleNamespace(global_step=0, max_steps=steps, is_world_process_zero=True)
    with Report(100, "1 image", console) as report:
        report.on_train_begin(None, state, None)
        for state.global_step in range(1, steps + 1):
            clock.now += seconds
            report.on_step_end(None, state, None)
            if state.global_step % 5 == 0:
                report.on_log(None, state, None, {"loss": 1.23456, "recall 1/16": 0.5, "lr": 1e-3})
        report.on_log(None, state, None, {"train_runtime": 3})
    return written.getvalue()


def test_after_three_steps_it_says_what_the_rest_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = report_of(803, 0.9, monkeypatch).splitlines()
    assert lines[0] == "803 steps, each on 1 image"
    assert lines[1] == (
        "about 12 min to go: 800 steps of 0.9 s, measured here on the first 3; what is written and "
        "measured at the end comes on top; a checkpoint every 100 steps, and Ctrl-C keeps what was learned"
    )
    assert lines[2] == (
        "step 5 of 803: loss 1.23, 50% of the evidence in the best 1/16 of the cells; 12 min left"
    )
    assert len(lines) == 2 + 803 // 5


def test_slow_steps_are_foretold_by_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _, estimate, *_ = report_of(101, 90.0, monkeypatch).splitlines()
    assert estimate.startswith("about 2.5 h to go: 100 steps of 90 s, measured")


@pytest.mark.parametrize(("steps", "measured"), [(2, 1), (3, 1), (4, 2), (6, 3)])
def test_a_short_run_is_foretold_by_half_of_its_steps(
    monkeypatch: pytest.MonkeyPatch, steps: int, measured: int
) -> None:
    _, estimate, *_ = report_of(steps, 2.0, monkeypatch).splitlines()
    rest = steps - measured
    assert estimate.startswith(
        f"about {2 * rest} s to go: {rest} step{'s' * (rest > 1)} of 2 s, measured here"
    )
    assert f"on the first {measured};" in estimate


def test_a_single_step_has_nothing_to_foretell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(1, 1.0, monkeypatch) == "1 step, each on 1 image\n"


def test_a_run_that_is_over_has_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, before, last = report_of(10, 1.0, monkeypatch).splitlines()
    assert before.endswith("; 5 s left")
    assert last == "step 10 of 10: loss 1.23, 50% of the evidence in the best 1/16 of the cells"


def test_a_run_that_goes_on_counts_what_is_left() -> None:
    written = io.StringIO()
    state = SimpleNamespace(global_step=90, max_steps=100, is_world_process_zero=True)
    with Report(100, "4 crops", Console(file=written, width=200)) as report:
        report.on_train_begin(None, state, None)
        assert written.getvalue() == "going on: 10 steps, each on 4 crops\n"
        state.global_step = 100
        report.on_train_begin(None, state, None)
    assert written.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "stage", "words"),
    [
        ({}, "spotting", "4 crops"),
        ({"windows": 1}, "relevance", "1 window"),
        ({"minutes": 6}, "spotting", "4 crops, for at most 3 min"),
        ({"minutes": 6, "stage": "spotting"}, "spotting", "4 crops, for at most 6 min"),
    ],
)
def test_a_step_of_the_guide(changes: dict[str, Any], stage: str, words: str) -> None:
    assert pieces(GuideRecipe(**changes), stage) == words


def test_on_a_terminal_there_is_one_bar_and_no_line_for_each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    text = report_of(20, 1.0, monkeypatch, terminal=True)
    assert "about 17 s to go" in text
    assert "20/20" in text
    assert "step 5 of 20:" not in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "1 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (864_000, "10 days")],
)
def test_times(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_without_evidence_the_loss_stands_alone() -> None:
    assert in_words({"loss": 0.5, "answer": 0.5}) == "loss 0.5"


def test_what_is_foretold_is_rounded_up() -> None:
    for seconds, words in ((174, "3 min"), (181, "4 min"), (89.1, "2 min"), (5401, "1.6 h"), (0.2, "1 s")):
        assert duration(rounded_up(seconds)) == words
