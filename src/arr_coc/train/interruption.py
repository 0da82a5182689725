"""Ctrl-C and SIGTERM: a run ends after the step it is in, so that what was learned is kept.

    interruption = Interruption()
    with interruption.listening():
        ...    # a Trainer that has it among its callbacks
    interruption.signal    # what came, None if nothing did

Of several processes all stop at the same step, whichever was told. A second Ctrl-C ends the run at once; the
last checkpoint is left then. `Deadline` ends a run when its time is over, counted through all sittings, and
`StopAt` at a step.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Generator
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from arr_coc.train.folder import is_main_process

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STDERR = 2
PARTS = 1_000_000
"""What a run's time is counted in: processes agree on whole numbers."""


class Interruption(TrainerCallback):
    """Asks the Trainer for a checkpoint and to stop, at the end of the step in which a signal came."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.running = False

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Inside the block signals wait for the end of a step; before the first one begins they end the run.

        Threads other than the first get no signals, and nothing changes in them.
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
        """From here on there is something to keep."""
        self.running = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop here if any process was told to."""
        number = greatest(self.signal or 0, args.device)
        if number:
            self.signal = number
            control.should_save = control.should_training_stop = True


class Deadline(TrainerCallback, ExportableState):
    """Ends a run with the step in which its time is over.

    A checkpoint has the seconds that it took to come there, and the sitting that goes on from it counts on.

    Args:
        minutes: from the first step on, over all sittings; None: there is no end.

    Attributes:
        seconds: that steps have taken, over all sittings.
        spent: the share of the time that is over, from 0 to 1, the same in all processes.
    """

    def __init__(self, minutes: float | None) -> None:
        self.minutes, self.begin, self.seconds, self.spent = minutes, 0.0, 0.0, 0.0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.spent >= 1

    def state(self) -> dict[str, dict[str, Any]]:
        """What a checkpoint keeps; the Trainer asks for it."""
        return {"args": {"minutes": self.minutes}, "attributes": {"seconds": self.seconds}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The clock begins, or goes on from the checkpoint's; an older version wrote none."""
        saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        self.seconds = saved["attributes"]["seconds"]
        self.begin = time.monotonic() - self.seconds

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at the clock: the next step's learning rate depends on it."""
        self.seconds = time.monotonic() - self.begin
        if self.minutes is not None:
            spent = self.seconds / (60 * self.minutes)
            self.spent = greatest(min(PARTS, int(PARTS * spent)), args.device) / PARTS

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop here if the time of any process is over."""
        if self.over:
            control.should_log = control.should_training_stop = True


class StopAt(TrainerCallback):
    """Ends a sitting at a step, with a checkpoint."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask the Trainer to save and stop."""
        if state.global_step >= self.step:
            control.should_save = control.should_training_stop = True


def greatest(number: int, device: torch.device) -> int:
    """The greatest of the numbers of all processes of a run."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return number
    most = torch.tensor(number, device=device)
    torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
    return int(most)


def mean_of_all(value: torch.Tensor) -> float:
    """The mean of a number over all processes of a run."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return value.item()
    total = value.detach().clone()
    torch.distributed.all_reduce(total)
    return total.item() / torch.distributed.get_world_size()
