"""How far a run is, in words, on stderr: a bar on a terminal, elsewhere a line now and then.

It begins with what there is to do; after the first steps it says how long that will take, from what they took
here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback

MEASURED = 3
"""Steps whose time says what the others will take; of a short run half of them, at least one."""
PATIENCE = 20.0
"""Seconds after which fewer steps have to do."""

RECALL = "recall 1/16"
"""The figure of the log that says how much of the evidence is chosen."""
SENTENCES = {
    RECALL: "{:.0%} of the evidence in the best 1/16 of the cells",
    "right": "{:.0%} of the printed slots read",
    "twice": "{:.0%} of the evidence among the best cells, twice as many",
}
"""Figures that are told beside the loss."""


class Report(TrainerCallback, AbstractContextManager):
    """Tells of a run while it is inside the block.

    Args:
        save_every: steps between checkpoints.
        each: what a step learns from, in words: "2 images".
        console: where to; None: stderr.
    """

    def __init__(self, save_every: int, each: str, console: Console | None = None) -> None:
        self.save_every, self.each = save_every, each
        self.console = console or Console(stderr=True)
        self.bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("starting", total=None)
        self.first, self.since, self.spent = 0, 0.0, 0.0
        self.estimated = False

    def __enter__(self) -> Report:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say what there is to do from where a run begins, or goes on."""
        self.first, self.since = state.global_step, time.monotonic()
        self.bar.update(self.task, total=state.max_steps, completed=state.global_step)
        left = state.max_steps - self.first
        if left > 0 and state.is_world_process_zero:
            self.say(f"{'going on: ' if self.first else ''}{counted(left, 'step')}, each on {self.each}")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Move the bar on, and say once what the run will take."""
        done, spent = state.global_step - self.first, time.monotonic() - self.since
        self.spent = spent / done
        self.bar.update(self.task, completed=state.global_step, total=state.max_steps)
        left = state.max_steps - state.global_step
        enough = done >= min(MEASURED, max(1, (state.max_steps - self.first) // 2)) or spent > PATIENCE
        if left and enough and not self.estimated and state.is_world_process_zero:
            self.estimated = True
            self.say(estimate(left, self.spent, done, self.save_every))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """The figures of the last steps, beside the bar or as a line."""
        if not state.is_world_process_zero or "loss" not in (logs or {}):
            return
        figures = in_words(logs)
        self.bar.update(self.task, description=figures)
        if not self.console.is_terminal:
            left = state.max_steps - state.global_step
            rest = f"; {duration(left * self.spent)} left" if left > 0 else ""
            self.say(f"step {state.global_step:,} of {state.max_steps:,}: {figures}{rest}")

    def say(self, line: str) -> None:
        """One line."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def estimate(steps: int, seconds: float, measured: int, save_every: int) -> str:
    """What `steps` more steps will take, at the mean of those that were measured, in one line."""
    return (
        f"about {duration(steps * seconds)} to go: {counted(steps, 'step')} of {seconds:.2g} s, "
        f"measured here on the first {measured}; a checkpoint every {save_every:,} steps, and Ctrl-C keeps "
        "what was learned"
    )


def counted(number: int, noun: str) -> str:
    """A number of things in words: "1 step", "1,200 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in one or two words: "12 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def in_words(figures: Mapping[str, Any]) -> str:
    """The figures of a line of the log: the loss, and what of SENTENCES there is.

    Args:
        figures: "loss", and shares in [0, 1].
    """
    parts = [sentence.format(figures[name]) for name, sentence in SENTENCES.items() if name in figures]
    return ", ".join((f"loss {figures['loss']:.3g}", *parts))
