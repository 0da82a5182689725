"""Training of the guide: the loop that both stages share.

train_guide(load_guide_recipe({"pages": "pages"}), Path("my-guide"))

A run that was cut off goes on where its last checkpoint was, with what it would have seen. Ctrl-C and SIGTERM
end it after the step it is in, and the guide is usable.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import optim
from torch.nn.utils import clip_grad_norm_
from transformers import TrainerState

from arr_coc.core.device import resolve_device
from arr_coc.core.guide.guide import Guide
from arr_coc.training.folder import opened
from arr_coc.training.guide import state
from arr_coc.training.guide.lessons import stream
from arr_coc.training.guide.recipe import GuideRecipe
from arr_coc.training.guide.stages import STAGES, Stage, average, learning
from arr_coc.training.guide.state import Progress
from arr_coc.training.interruption import Interruption
from arr_coc.training.progress import Report


def train_guide(
    recipe: GuideRecipe, out: Path, progress: bool = True, device: str = "auto"
) -> dict[str, Any]:
    """Train by a recipe, or go on with a run.

    Args:
        recipe: what to learn, from what and how.
        out: folder of the run.
        progress: tell of it on stderr.
        device: as in `resolve_device`.

    Returns:
        "stage" and "steps" that were reached, "of" how many, "seconds" of this sitting, "signal" that ended
        it or None, and the figures of the last line of the curve.

    Raises:
        ValueError: the folder isn't this run's, or pages or the guide to start from can't be read.
    """
    state.check(out, recipe)
    run = Run(recipe, out, resolve_device(device))
    with opened(out), run.interruption.listening():
        return run.whole(progress)


class Run:
    """One sitting of a run.

    Args:
        recipe: its settings.
        out: its folder.
        device: where the guide learns.
    """

    def __init__(self, recipe: GuideRecipe, out: Path, device: torch.device) -> None:
        self.recipe, self.out, self.device = recipe, out, device
        self.interruption = Interruption()
        self.guide, self.mean = Guide(), Guide()
        if recipe.init is not None:
            for guide in (self.guide, self.mean):
                state.load_weights(guide, recipe.init)
        self.guide.to(device)
        self.mean.to(device)
        if device.type == "cpu":
            self.guide.eyes.to(memory_format=torch.channels_last)
        self.figures: dict[str, Any] = {}

    def whole(self, telling: bool) -> dict[str, Any]:
        """All stages from where the run is."""
        recipe, since = self.recipe, time.monotonic()
        reached = state.saved_progress(self.out)
        state.cut_curve(self.out, recipe.stages, reached)
        place = reached or Progress(recipe.stages[0])
        for name in recipe.stages[recipe.stages.index(place.stage) :]:
            begun = reached is not None and name == place.stage
            place = self.stage(name, place if begun else Progress(name), begun, telling)
            if self.interruption.signal is not None:
                break
        return {
            "stage": place.stage,
            "steps": place.step,
            "of": recipe.steps,
            "seconds": time.monotonic() - since,
            "signal": self.interruption.signal,
            **self.figures,
        }

    def stage(self, name: str, place: Progress, begun: bool, telling: bool) -> Progress:
        """One stage to its end, or until a signal.

        Args:
            name: of the stage.
            place: where it is.
            begun: whether the folder holds what was learned in it.
            telling: tell of it on stderr.
        """
        recipe, stage = self.recipe, STAGES[name](self.recipe)
        if not begun:
            self.guide.load_state_dict(self.mean.state_dict())
        parameters = learning(self.guide, stage)
        optimizer = optim.AdamW(stage.groups(parameters))
        rates = [group["lr"] for group in optimizer.param_groups]
        if begun:
            state.restore(self.out, self.guide, self.mean, optimizer)
        lessons = stream(stage.data(), place.step, recipe.workers)
        limit = None if recipe.minutes is None else 60 * recipe.minutes / len(recipe.stages)
        report = Report(recipe.save_every) if telling else None
        told = TrainerState(global_step=place.step, max_steps=recipe.steps)
        totals: dict[str, list[float]] = {}
        first, start = place, time.monotonic()
        with report or nullcontext():
            if report:
                report.on_train_begin(None, told, None)
            self.interruption.running = True
            while place.step < recipe.steps and (limit is None or place.seconds < limit):
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * min(1.0, (place.step + 1) / stage.warmup)
                self._step(stage, next(lessons), place.step, optimizer, totals)
                spent = time.monotonic() - start
                place = Progress(name, place.step + 1, first.seconds + spent)
                average(self.mean, self.guide, stage, place.step, recipe.average)
                told.global_step = place.step
                if limit is not None:
                    pace = spent / (place.step - first.step)
                    told.max_steps = min(
                        recipe.steps, place.step + round(max(0, limit - place.seconds) / pace)
                    )
                stopped = self.interruption.signal is not None
                over = stopped or told.max_steps <= place.step
                if place.step % recipe.log_every == 0 or over:
                    self._log(place, totals, report, told)
                if report:
                    report.on_step_end(None, told, None)
                if place.step == first.step + 1 and not begun:
                    state.claim(self.out, recipe)
                if place.step % recipe.save_every == 0 or over:
                    state.save(self.out, self.guide, self.mean, optimizer, place)
                if stopped:
                    break
        return place

    def _step(
        self,
        stage: Stage,
        lessons: list[Any],
        step: int,
        optimizer: optim.Optimizer,
        totals: dict[str, list[float]],
    ) -> None:
        """One step of the optimizer."""
        optimizer.zero_grad()
        for lesson in lessons:
            with torch.autocast(self.device.type, torch.bfloat16):
                loss, parts = stage.loss(self.guide, lesson, step)
            (loss / len(lessons)).backward()
            for name, value in {"loss": loss.item(), **parts}.items():
                totals.setdefault(name, []).append(value)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        totals.setdefault("norm", []).append(float(clip_grad_norm_(parameters, stage.longest)))
        optimizer.step()

    def _log(
        self, place: Progress, totals: dict[str, list[float]], report: Report | None, told: TrainerState
    ) -> None:
        """Write the means of the figures since the last line; `totals` is emptied."""
        if not totals:
            return
        self.figures = {name: round(sum(values) / len(values), 4) for name, values in totals.items()}
        totals.clear()
        line = {"stage": place.stage, "step": place.step, "seconds": round(place.seconds, 1), **self.figures}
        state.write_line(self.out, line)
        if report:
            report.on_log(None, told, None, self.figures)
