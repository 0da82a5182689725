"""Training of the guide: the loop that both stages share.

train_guide(load_guide_recipe({"pages": "pages"}), Path("my-guide"))

A run that was cut off goes on where its last checkpoint was, with what it would have seen. Ctrl-C and SIGTERM
end it after the step it is in, and the guide is usable.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import optim
from torch.nn.utils import clip_grad_norm_
from transformers import TrainerState

from arr_coc.files.device import resolve_device
from arr_coc.files.saved import MOST_RUNS
from arr_coc.guide.guide import Guide, fast_dtype
from arr_coc.train.folder import opened
from arr_coc.train.interruption import Interruption
from arr_coc.train.progress import Report, counted, duration
from arr_coc_lab.teaching import state
from arr_coc_lab.teaching.lessons import stream
from arr_coc_lab.teaching.recipe import GuideRecipe
from arr_coc_lab.teaching.stages import READS, STAGES, Stage, average, learning
from arr_coc_lab.teaching.state import Progress

KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
"""How many kernels a CPU keeps, by shape: its 1,024 are fewer than ten windows need, and to make them takes
as long as to run them. Ours take up to 3 GB."""


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
    os.environ.setdefault(KERNELS, "8192")
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
        self.records: tuple[dict[str, Any], ...] = ()
        if recipe.init is not None:
            self.records = state.load_weights(self.mean, recipe.init)
            self.guide.load_state_dict(self.mean.state_dict())
        self.guide.to(device)
        self.mean.to(device)
        if device.type == "cpu":
            self.guide.eyes.to(memory_format=torch.channels_last)
        self.figures: dict[str, Any] = {}
        self.met: float | None = None
        self.dtype = fast_dtype(device)  # without instructions for it, bfloat16 takes a CPU twice as long

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
        self._open_eyes()
        limit = 60 * recipe.minutes / len(recipe.stages) if recipe.minutes else math.inf
        before, start = place, time.monotonic()
        with Log(recipe, self.out, place, telling) as log:
            self.interruption.running = True
            while place.step < recipe.steps and place.seconds < limit:
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    done = max(place.step / recipe.steps, place.seconds / limit)
                    group["lr"] = rate * rise_and_fall(place.step, stage.warmup, done, recipe.cooldown)
                self._step(stage, next(lessons), place.step, optimizer, log)
                spent = time.monotonic() - start
                place = Progress(name, place.step + 1, before.seconds + spent)
                average(self.mean, self.guide, stage, place.step, recipe.average)
                if place.step == 1:
                    state.claim(self.out, recipe)
                pace = spent / (place.step - before.step)
                last = min(recipe.steps, place.step + max(0.0, limit - place.seconds) / pace)
                stopped = self.interruption.signal is not None
                over = stopped or place.step >= recipe.steps or place.seconds >= limit
                log.step(place, math.ceil(last), over)
                if place.step % recipe.save_every == 0 or over:
                    self._open_eyes()
                    self._meet(stage, place)
                    state.save(self.out, self.guide, self.mean, optimizer, place, self._records(place))
                if stopped:
                    break
        self.figures = log.figures
        return place

    def _open_eyes(self) -> None:
        """Take eyes and words of the recipe's other guide, which may have learned more meanwhile, and the
        vectors that the glossary's words have now.
        """
        if self.recipe.eyes is not None:
            for guide in (self.guide, self.mean):
                state.load_weights(guide, self.recipe.eyes, READS)
        for guide in (self.guide, self.mean):
            guide.glossary.learn(guide.words)

    def _meet(self, stage: Stage, place: Progress) -> None:
        """Take the mean of what learns here and in the recipe's other run, if that has learned since the last
        time (local SGD, Stich 2019). One that has ended is met once more and holds nothing back.
        """
        peer = None if self.recipe.peer is None else state.newer(self.recipe.peer, place.stage, self.met)
        if peer is None:
            return
        self.met, weights, means = peer
        for mine, theirs in ((self.guide, weights), (self.mean, means)):
            for name, tensor in mine.state_dict().items():
                if name.split(".")[0] in stage.parts and tensor.is_floating_point():
                    tensor.lerp_(theirs[name].to(tensor.device), 0.5)

    def _records(self, place: Progress) -> list[dict[str, Any]]:
        """How the guide was made: what it began from, and the stages so far."""
        stages = self.recipe.stages[: self.recipe.stages.index(place.stage) + 1]
        records = [{"recipe": f"guide {stage}", "seed": self.recipe.seed} for stage in stages]
        records[-1]["steps"] = place.step
        return [*self.records, *records][-MOST_RUNS:]

    def _step(
        self, stage: Stage, lessons: list[Any], step: int, optimizer: optim.Optimizer, log: Log
    ) -> None:
        """One step of the optimizer."""
        optimizer.zero_grad()
        for lesson in lessons:
            with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
                loss, parts = stage.loss(self.guide, lesson, step)
            (loss / len(lessons)).backward()
            log.add({"loss": loss.item(), **parts})
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        log.add({"norm": float(clip_grad_norm_(parameters, stage.longest))})
        optimizer.step()


def rise_and_fall(step: int, warmup: int, done: float, cooldown: float) -> float:
    """What a learning rate is multiplied by: it rises over the first steps and falls to nothing at last.

    Args:
        step: from 0.
        warmup: steps over which it rises.
        done: share of the stage that is done.
        cooldown: share of the stage, its end, over which the rate falls.
    """
    left = (1 - done) / cooldown if cooldown else 1.0
    return max(0.0, min(1.0, (step + 1) / warmup, left))


def pieces(recipe: GuideRecipe, stage: str) -> str:
    """What a step of a stage learns from, in words."""
    spotting = stage == "spotting"
    each = counted(recipe.batch, "crop") if spotting else counted(recipe.windows, "window")
    if recipe.minutes is None:
        return each
    return f"{each}, for at most {duration(60 * recipe.minutes / len(recipe.stages))}"


class Log(AbstractContextManager["Log"]):
    """The figures of a stage: their means go to the curve and, where wanted, to stderr.

    Args:
        recipe: says how often.
        out: folder of the run.
        place: where the stage begins or goes on.
        telling: tell of it on stderr.
    """

    def __init__(self, recipe: GuideRecipe, out: Path, place: Progress, telling: bool) -> None:
        self.out, self.every = out, recipe.log_every
        self.values: dict[str, list[float]] = {}
        self.figures: dict[str, float] = {}
        self.state = TrainerState(global_step=place.step, max_steps=recipe.steps)
        self.report = Report(recipe.save_every, pieces(recipe, place.stage)) if telling else None

    def __enter__(self) -> Log:
        if self.report:
            self.report.__enter__()
            self.report.on_train_begin(None, self.state, None)
        return self

    def __exit__(self, *error: object) -> None:
        if self.report:
            self.report.__exit__(*error)

    def add(self, figures: Mapping[str, float]) -> None:
        """Take figures into the next means."""
        for name, value in figures.items():
            self.values.setdefault(name, []).append(value)

    def step(self, place: Progress, last: int, over: bool) -> None:
        """A step is done.

        Args:
            place: where the stage is now.
            last: the step at which it is likely to end.
            over: whether it ends here.
        """
        self.state.global_step, self.state.max_steps = place.step, last
        if self.report:
            self.report.on_step_end(None, self.state, None)
        if place.step % self.every == 0 or over:
            self.figures = {name: round(sum(each) / len(each), 4) for name, each in self.values.items()}
            self.values.clear()
            seconds = round(place.seconds, 1)
            state.write_line(
                self.out, {"stage": place.stage, "step": place.step, "seconds": seconds, **self.figures}
            )
            if self.report:
                self.report.on_log(None, self.state, None, self.figures)
