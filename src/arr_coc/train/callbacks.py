"""Callbacks of transformers' Trainer: end of a run by signal, time or step, its log, and progress.

Of several processes all stop at the same step.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from arr_coc.files.atomic import write_atomic
from arr_coc.train.folder import CURVE, claim
from arr_coc.train.processes import greatest, is_main_process, mean_of_all
from arr_coc.train.recipe import RunSettings

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STDERR = 2
TIME_UNITS = 1_000_000  # parts of a run's time: processes agree on whole numbers
MEASURED = 3  # steps whose time predicts the rest; of a short run half of them, at least one
PATIENCE = 20.0  # seconds after which fewer steps are enough
# figures of the log that are reported beside the loss
SENTENCES = {
    "recall 1/16": "{:.0%} of the evidence in the best 1/16 of the cells",
    "right": "{:.0%} of the printed slots read",
    "twice": "{:.0%} of the evidence among the best cells, twice as many",
}


class Interruption(TrainerCallback):
    """Ctrl-C and SIGTERM: a checkpoint and a stop after the current step; a second signal ends at once.

    `signal` is the number of the one that came, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.running = False

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Handle signals inside the block; before the first step they end the run at once.

        Python delivers signals to the main thread only: in other threads nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.signal = self.signal is not None, number
        if again or not self.running:
            raise KeyboardInterrupt
        if is_main_process():  # by the descriptor: a handler may run in the middle of another print
            os.write(STDERR, b"\narr-coc: stopping after this step; once more stops at once\n")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.running = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        number = greatest(self.signal or 0, args.device)
        if number:
            self.signal = number
            control.should_save = control.should_training_stop = True


class Deadline(TrainerCallback, ExportableState):
    """Ends a run some minutes after its first step, over all its starts; `spent` is the share in [0, 1]."""

    def __init__(self, minutes: float | None) -> None:
        # `seconds` go into checkpoints, so that a resumed run counts on
        self.minutes, self.begin, self.seconds, self.spent = minutes, 0.0, 0.0, 0.0

    @property
    def over(self) -> bool:
        return self.spent >= 1

    def state(self) -> dict[str, dict[str, Any]]:
        return {"args": {"minutes": self.minutes}, "attributes": {"seconds": self.seconds}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        self.seconds = saved["attributes"]["seconds"]
        self.begin = time.monotonic() - self.seconds

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Read the clock: the next step's learning rate depends on it."""
        self.seconds = time.monotonic() - self.begin
        if self.minutes is not None:
            spent = self.seconds / (60 * self.minutes)
            # the same in all processes: clocks differ, and all must stop at one step
            self.spent = greatest(min(TIME_UNITS, int(TIME_UNITS * spent)), args.device) / TIME_UNITS

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.over:
            control.should_log = control.should_save = control.should_training_stop = True


class StopAt(TrainerCallback):
    """Ends a run at a step, with a checkpoint to resume from."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step >= self.step:
            control.should_save = control.should_training_stop = True


class Curve(TrainerCallback):
    """Writes the recipe after the first step, and after every log entry the whole log as JSON lines.

    `before` are lines of the log that come first.
    """

    def __init__(self, out: Path, recipe: RunSettings, before: Sequence[Mapping[str, Any]] = ()) -> None:
        self.out, self.recipe, self.before, self.claimed = out, recipe, list(before), False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Claim the folder: from now on there is a run to resume."""
        if state.is_world_process_zero and not self.claimed:
            claim(self.out, self.recipe)
            self.claimed = True

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Rewrite the log: it is short, and lines of steps lost with a killed run must not stay."""
        if state.is_world_process_zero:
            lines = "".join(json.dumps(line) + "\n" for line in (*self.before, *state.log_history))
            write_atomic(lines.encode(), self.out / CURVE)


class LogWindow(TrainerCallback, ExportableState):
    """Keeps the sums since the last log line in checkpoints, so that a resumed run logs the same means.

    It must come after all callbacks that ask for a checkpoint; `figures` are the trainer's sums by name.
    """

    def __init__(self, trainer: Trainer, figures: dict[str, list[float]]) -> None:
        self.trainer: Any = trainer  # the sums have no public names
        self.figures, self.loss = figures, 0.0

    def state(self) -> dict[str, dict[str, Any]]:
        """Return what a checkpoint keeps; the Trainer asks for it after the log line of the same step."""
        since = getattr(self.trainer, "_globalstep_last_logged", 0)
        loss = 0.0 if since == self.trainer.state.global_step else self.loss
        return {"args": {}, "attributes": {"since": since, "loss": loss, "figures": self.figures}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the sums; intervals of saving and logging come from the settings, not the checkpoint."""
        saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())["attributes"]
        if saved["since"] < state.global_step:
            self.trainer._globalstep_last_logged = saved["since"]
            self.trainer._tr_loss += saved["loss"]
            self.trainer._total_loss_scalar -= saved["loss"]  # the Trainer averages it over this start alone
            self.figures.update(saved["figures"])
        state.compute_steps(args, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Sum the loss over all processes here: writing the checkpoint is up to the first one alone."""
        if control.should_save:
            self.loss = mean_of_all(self.trainer._tr_loss)


class Report(TrainerCallback, AbstractContextManager):
    """Reports progress on stderr inside the block: a bar on a terminal, elsewhere a line now and then.

    `each` says what a step learns from, "2 images"; `deadline` may end the run before its last step.
    """

    def __init__(
        self, save_every: int, each: str, console: Console | None = None, deadline: Deadline | None = None
    ) -> None:
        self.save_every, self.each, self.deadline = save_every, each, deadline
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

    def left(self, state: Any) -> int:
        """Steps to go: to the last one, or until the time is likely to be over."""
        steps = state.max_steps - state.global_step
        if self.deadline is None or self.deadline.minutes is None or not self.spent:
            return steps
        return min(steps, int(max(0.0, 60 * self.deadline.minutes - self.deadline.seconds) / self.spent))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.first, self.since = state.global_step, time.monotonic()
        self.bar.update(self.task, total=state.max_steps, completed=state.global_step)
        left = state.max_steps - self.first
        if left > 0 and state.is_world_process_zero:
            self.say(f"{'going on: ' if self.first else ''}{counted(left, 'step')}, each on {self.each}")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Advance the bar, and report once how long the run will take."""
        done, spent = state.global_step - self.first, time.monotonic() - self.since
        self.spent = spent / done
        left = self.left(state)
        self.bar.update(self.task, completed=state.global_step, total=state.global_step + left)
        enough = done >= min(MEASURED, max(1, (state.max_steps - self.first) // 2)) or spent > PATIENCE
        if left and enough and not self.estimated and state.is_world_process_zero:
            self.estimated = True
            self.say(estimate(left, self.spent, done, self.save_every))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not state.is_world_process_zero or "loss" not in (logs or {}):
            return
        figures, left = in_words(logs), self.left(state)
        self.bar.update(self.task, description=figures)
        if not self.console.is_terminal:
            rest = f"; {duration(rounded_up(left * self.spent))} left" if left > 0 else ""
            self.say(f"step {state.global_step:,} of {state.max_steps:,}: {figures}{rest}")

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def estimate(steps: int, seconds: float, measured: int, save_every: int) -> str:
    """One line: how long `steps` more steps will take, at `seconds` each."""
    return (
        f"about {duration(rounded_up(steps * seconds))} to go: {counted(steps, 'step')} of {seconds:.2g} s, "
        f"measured here on the first {measured}; what is written and measured at the end comes on top; a "
        f"checkpoint every {save_every:,} steps, and Ctrl-C keeps what was learned"
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 step", "1,200 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in words: "12 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def rounded_up(seconds: float) -> float:
    """Return a time that is still to come, rounded up to what `duration` tells of it: nobody waits for
    less.
    """
    unit = next((unit for most, unit in ((90, 1), (5400, 60), (172_800, 360)) if seconds < most), 86_400)
    return unit * math.ceil(seconds / unit)


def in_words(figures: Mapping[str, Any]) -> str:
    """Return the loss of a log line and its figures in `SENTENCES`, as text."""
    parts = [sentence.format(figures[name]) for name, sentence in SENTENCES.items() if name in figures]
    return ", ".join((f"loss {figures['loss']:.3g}", *parts))
