"""The curve of a run: its log as JSON lines, to be watched, and drawn when the run is over."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from arr_coc.files.atomic import write_atomic
from arr_coc.train.folder import CURVE, claim
from arr_coc.train.interruption import mean_of_all
from arr_coc.train.recipe import Recipe

if TYPE_CHECKING:
    from arr_coc.train.trainer import AllocatorTrainer


class Curve(TrainerCallback):
    """Writes the recipe with the first step, and the log as JSON lines after every entry, to be watched."""

    def __init__(self, out: Path, recipe: Recipe) -> None:
        self.out, self.recipe, self.claimed = out, recipe, False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Claim the folder: from now on there is something to go on with."""
        if state.is_world_process_zero and not self.claimed:
            claim(self.out, self.recipe)
            self.claimed = True

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the whole history: it is short, and so a checkpoint's own is never mixed with a lost one."""
        if state.is_world_process_zero:
            lines = "".join(json.dumps(line) + "\n" for line in state.log_history)
            write_atomic(lines.encode(), self.out / CURVE)


class Window(TrainerCallback, ExportableState):
    """The sums since the last line of the log, which a checkpoint keeps for the sitting that goes on from it.

    Args:
        trainer: whose sums they are.
    """

    def __init__(self, trainer: AllocatorTrainer) -> None:
        self.trainer, self.loss = trainer, 0.0

    def state(self) -> dict[str, dict[str, Any]]:
        """What a checkpoint keeps; the Trainer asks for it, after the line of the same step."""
        trainer: Any = self.trainer
        since = getattr(trainer, "_globalstep_last_logged", 0)
        loss = 0.0 if since == trainer.state.global_step else self.loss
        return {"args": {}, "attributes": {"since": since, "loss": loss, "figures": trainer.figures}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The sums of the checkpoint; an older version wrote none."""
        saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())["attributes"]
        trainer: Any = self.trainer
        if saved["since"] < state.global_step:
            trainer._globalstep_last_logged = saved["since"]
            trainer._tr_loss += saved["loss"]
            trainer._total_loss_scalar -= saved["loss"]  # its mean is of this sitting alone
            trainer.figures = saved["figures"]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The loss of all processes, which only they can sum together."""
        if control.should_save:
            trainer: Any = self.trainer
            self.loss = mean_of_all(trainer._tr_loss)


def draw_curve(history: list[dict[str, Any]], path: Path) -> None:
    """Every figure of the log over the steps, one panel each."""
    from matplotlib.figure import Figure  # imported for the first time, it reads every font of the machine

    lines = [line for line in history if "loss" in line]
    names = [
        n
        for n in ("loss", "relevance", "answer", "compress", "iou", "recall 1/16")
        if any(n in line for line in lines)
    ]
    figure = Figure(figsize=(3.2 * max(1, len(names)), 2.6), layout="constrained")
    for axis, name in zip(np.atleast_1d(figure.subplots(1, max(1, len(names)))), names, strict=False):
        points = [(line["step"], line[name]) for line in lines if name in line]
        axis.plot(*zip(*points, strict=True), color="#0b6e99", linewidth=1.6)
        axis.set_title(name, loc="left", fontsize=10)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
    content = io.BytesIO()
    figure.savefig(content, dpi=130, format=path.suffix[1:])
    write_atomic(content.getvalue(), path)
