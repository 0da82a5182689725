"""Training of the guide, on the loop that all recipes share (`arr_coc.train.loop`).

    train_guide(load_guide_recipe({"pages": "pages"}), Path("my-guide"))

The folder has `recipe.json`, `curve.jsonl`, a folder of checkpoints for each stage, and
`guide.safetensors`: the running mean of the weights, usable at any time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from transformers import TrainerCallback, TrainerState

from arr_coc.files.paths import local_path
from arr_coc.files.saved import reading, write_tensors
from arr_coc.files.validation import MAX_RUNS, check_records
from arr_coc.guide.guide import BUNDLED_GUIDE, GUIDE_FILE, GUIDE_FORMAT, Guide, fast_dtype
from arr_coc.train.callbacks import Curve, Deadline, Interruption, Report, counted, duration
from arr_coc.train.folder import STATE, check, last_checkpoint, opened
from arr_coc.train.loop import LEARNED, RecipeTrainer, TrainableModule, training_arguments, training_device
from arr_coc_lab.teaching.recipe import GuideRecipe
from arr_coc_lab.teaching.stages import READS, STAGES, GuideStage, StepLesson, stream

# Compiled kernels that oneDNN keeps on a CPU, by shape: its 1,024 are fewer than ten windows need, and
# compiling takes as long as running. Ours take up to 3 GB.
KERNELS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


def train_guide(
    recipe: GuideRecipe, out: Path, progress: bool = True, device: str = "auto"
) -> dict[str, Any]:
    """Train the guide by a recipe into the folder `out`, or resume the run that is there.

    Returns:
        "stage" and "steps" that were reached, "of" how many, "seconds" since this start, "signal" that ended
        it or None, and the figures of the last log line.

    Raises:
        ValueError: the folder isn't this run's, or pages or the guide to start from can't be read.
    """
    place = training_device(device)
    check(out, recipe)
    os.environ.setdefault(KERNELS, "8192")
    since, interruption, names = time.monotonic(), Interruption(), recipe.stages
    guide = Guide()
    records = [] if recipe.init is None else [*load_weights(guide, recipe.init)]
    states = {name: saved_state(out / name) for name in names}
    first = max((i for i, name in enumerate(names) if states[name] is not None), default=0)
    lines: list[dict[str, Any]] = []
    state, figures = TrainerState(), {}
    with opened(out), interruption.listening():
        for number, name in enumerate(names):
            records.append({"recipe": f"guide {name}", "seed": recipe.seed})
            saved = states[name]
            if number >= first and (saved is None or not is_over(saved, recipe)):
                if saved is None and number:
                    load_weights(guide, str(out))  # the mean of the stage before, not its last weights
                trainer = GuideTrainer(recipe, name, guide, out, place, lines, records, interruption)
                each = pieces(recipe, name)
                trainer.go_on(
                    Report(recipe.save_every, each, deadline=trainer.deadline) if progress else None
                )
                state = saved = trainer.state
                figures = last_figures(saved)
            if saved is not None:
                state = saved
                records[-1]["steps"] = saved.global_step
                lines += [line for line in saved.log_history if "loss" in line]
            if interruption.signal is not None:
                break
    return {
        "stage": name,
        "steps": state.global_step,
        "of": recipe.steps,
        "seconds": time.monotonic() - since,
        "signal": interruption.signal,
        **figures,
    }


class GuideLearner(TrainableModule):
    """The guide's weights in training, and their running mean, which is what is saved as the guide.

    `most` is the share of the mean that a step keeps at most; `stage` says which parts learn, and how.
    """

    def __init__(self, guide: Guide, stage: GuideStage, device: torch.device, most: float) -> None:
        super().__init__()
        self.guide, self.stage = guide, stage
        self.dtype = fast_dtype(device)  # without instructions for it, bfloat16 takes a CPU twice as long

        def moved(mean: Tensor, new: Tensor, number: Tensor | int) -> Tensor:
            """Return the mean after a step; the first steps are forgotten faster."""
            kept = min(most, int(number) / (int(number) + 9))
            return mean.lerp(new, 1 - kept) if mean.is_floating_point() else new

        self.mean = AveragedModel(guide, avg_fn=moved, use_buffers=True)
        self.mean.requires_grad_(False)
        self.mean.n_averaged.fill_(1)  # else the first weights would replace those that the stage began with
        for name, parameter in guide.named_parameters():
            parameter.requires_grad_(name.split(".")[0] in stage.parts)
        if device.type == "cpu":
            guide.eyes.to(memory_format=torch.channels_last)

    def train(self, mode: bool = True) -> GuideLearner:
        """Set training mode for the parts that learn; all others stay in evaluation mode."""
        super().train(False)
        self.training = self.guide.training = mode
        for name, part in self.guide.named_children():
            part.train(mode and name in self.stage.parts)
        return self

    def groups(self) -> list[dict[str, Any]]:
        return self.stage.groups({n: p for n, p in self.guide.named_parameters() if p.requires_grad})

    def forward(self, items: Sequence[StepLesson]) -> tuple[Tensor, dict[str, list[float]]]:
        """Loss and figures of one lesson; a step has several."""
        (item,) = items
        with torch.autocast(
            self.guide.threshold.device.type, self.dtype, enabled=self.dtype != torch.float32
        ):
            loss, parts = self.stage.loss(self.guide, item.lesson, item.step)
        return loss, {name: [value] for name, value in ({"loss": loss.item()} | parts).items()}

    def too_large(self, items: Sequence[StepLesson]) -> str:
        return "out of memory; lower batch, size or windows in the recipe"

    def saved(self) -> dict[str, Tensor]:
        """Return all weights and their mean: parts that do not learn here may come from another run."""
        return self.state_dict()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.load_state_dict(dict(tensors))

    def average(self) -> None:
        self.mean.update_parameters(self.guide)

    def both(self) -> tuple[Guide, Guide]:
        return self.guide, cast(Guide, self.mean.module)


class Exchange(TrainerCallback):
    """Updates the mean after each step, and at each checkpoint takes weights from the recipe's other runs."""

    def __init__(self, learner: GuideLearner, recipe: GuideRecipe, stage: str) -> None:
        self.learner, self.recipe, self.stage = learner, recipe, stage
        self.met: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.open_eyes()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Update the mean before a checkpoint is written."""
        self.learner.average()
        if control.should_training_stop:
            control.should_log = control.should_save = True
        if control.should_save:
            self.open_eyes()
            self.average_with_peer()

    def open_eyes(self) -> None:
        """Load the print and word encoders from the recipe's other guide, which may have learned more since,
        and encode the glossary's words anew.
        """
        for guide in self.learner.both():
            if self.recipe.eyes is not None:
                load_weights(guide, self.recipe.eyes, READS)
            guide.glossary.learn(guide.words)

    def average_with_peer(self) -> None:
        """Average what learns with the recipe's peer run, if it has a new checkpoint (local SGD, Stich 2019,
        arXiv 1805.09767). A peer that has ended is averaged once more.
        """
        peer = None if self.recipe.peer is None else newer(self.recipe.peer, self.stage, self.met)
        if peer is None:
            return
        self.met, *others = peer
        for mine, theirs in zip(self.learner.both(), others, strict=True):
            for name, tensor in mine.state_dict().items():
                if name.split(".")[0] in self.learner.stage.parts and tensor.is_floating_point():
                    tensor.lerp_(theirs[name].to(tensor.device), 0.5)


class GuideTrainer(RecipeTrainer):
    """The trainer of one stage of a run.

    Args:
        recipe: the settings of the run.
        name: of the stage.
        guide: where to start, if there is no checkpoint.
        out: folder of the run.
        device: to train on.
        lines: log lines of the stages before.
        records: how the guide was made, this stage last.
        interruption: of the run.
    """

    def __init__(
        self,
        recipe: GuideRecipe,
        name: str,
        guide: Guide,
        out: Path,
        device: torch.device,
        lines: Sequence[Mapping[str, Any]],
        records: list[dict[str, Any]],
        interruption: Interruption,
    ) -> None:
        self.stage, self.recipe = STAGES[name](recipe), recipe
        self.name, self.out, self.records = name, out, records
        learner = GuideLearner(guide, self.stage, device, recipe.average)
        deadline = Deadline(recipe.minutes and recipe.minutes / len(recipe.stages))
        arguments = training_arguments(
            recipe,
            out / name,
            device.type,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=self.stage.lessons,
            warmup_steps=self.stage.warmup,
            max_grad_norm=self.stage.longest,
            ignore_data_skip=True,  # the stream begins at the step
        )
        begun = saved_state(out / name)
        lessons = stream(self.stage.data(), begun.global_step if begun else 0, recipe.workers)
        callbacks = [Curve(out, recipe, lines), interruption, deadline, Exchange(learner, recipe, name)]
        super().__init__(learner, arguments, lessons, callbacks, deadline)
        self.guide_learner = learner

    def get_train_dataloader(self) -> Any:
        return ({"items": [lesson]} for lesson in self.rows)

    def rate(self, step: int, steps: int) -> float:
        """Return the factor of `rise_and_fall`, by steps or by time, whichever is over first."""
        done = max(step / steps, self.deadline.spent)
        return rise_and_fall(step, self.stage.warmup, done, self.recipe.cooldown)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        facts: dict[str, Any] = {"stage": self.name, "seconds": round(self.deadline.seconds, 1)}
        super().log(logs | facts, start_time)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        self.records[-1]["steps"] = self.state.global_step
        texts = {"format": GUIDE_FORMAT, "trained_on": json.dumps(check_records(self.records[-MAX_RUNS:]))}
        write_tensors(self.guide_learner.mean.module.state_dict(), self.out / GUIDE_FILE, texts)


def rise_and_fall(step: int, warmup: int, done: float, cooldown: float) -> float:
    """Factor of the learning rates: warmup, constant, then linear to 0 over the last share `cooldown`."""
    left = (1 - done) / cooldown if cooldown else 1.0
    return max(0.0, min(1.0, (step + 1) / warmup, left))


def pieces(recipe: GuideRecipe, stage: str) -> str:
    """Return what a step of a stage learns from, in words: "4 crops"."""
    spotting = stage == "spotting"
    each = counted(recipe.batch, "crop") if spotting else counted(recipe.windows, "window")
    if recipe.minutes is None:
        return each
    return f"{each}, for at most {duration(60 * recipe.minutes / len(recipe.stages))}"


def saved_state(folder: Path) -> TrainerState | None:
    """Return the Trainer's state in the last checkpoint of a stage, or None; ValueError if it is damaged."""
    last = last_checkpoint(folder)
    if last is None:
        return None
    with reading(f"{str(last / STATE)!r} can't be read", "remove its folder to go on"):
        return TrainerState.load_from_json(str(last / STATE))


def is_over(state: TrainerState, recipe: GuideRecipe) -> bool:
    """Return whether a stage has done its steps, or its time is over."""
    kept: Any = state.stateful_callbacks  # as they are in its file
    seconds = kept[Deadline.__name__]["attributes"]["seconds"]
    limit = recipe.minutes and 60 * recipe.minutes / len(recipe.stages)
    return state.global_step >= recipe.steps or (limit is not None and seconds >= limit)


def last_figures(state: TrainerState) -> dict[str, float]:
    """Return the figures of the last log line that has any."""
    line = next((line for line in reversed(state.log_history) if "loss" in line), {})
    return {key: value for key, value in line.items() if key not in ("stage", "step", "epoch", "seconds")}


def newer(
    spec: str, stage: str, since: float | None
) -> tuple[float, dict[str, Tensor], dict[str, Tensor]] | None:
    """Time, weights and mean of another run's last checkpoint if newer than `since`, or ValueError."""
    last = last_checkpoint(local_path(spec) / stage)
    if last is None:
        return None
    with reading(f"{str(last / LEARNED)!r} can't be read", "name another run as peer"):
        try:
            time, tensors = (last / STATE).stat().st_mtime, load_file(last / LEARNED)
        except FileNotFoundError:  # removed meanwhile, for a newer one
            return None
    return None if time == since else (time, _under("guide.", tensors), _under("mean.module.", tensors))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def load_weights(
    module: nn.Module, spec: str, parts: Sequence[str] | None = None
) -> tuple[dict[str, Any], ...]:
    """Load a guide into `module`, or some `parts` of it: "bundled", the folder of a run, or a file.

    Returns how it was made, see `files.saved`; ValueError if there is none, or it can't be read.
    """
    path = BUNDLED_GUIDE if spec == "bundled" else local_path(spec)
    path = path / GUIDE_FILE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"guide {spec!r} is not there ({path}): name a folder of a run or a file")
    with reading(f"guide {str(path)!r} can't be read", "name another one"):
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if parts is None or name.split(".")[0] in parts]
            tensors = {name: file.get_tensor(name) for name in names}
            module.load_state_dict(tensors if parts is None else module.state_dict() | tensors)
            return check_records(json.loads((file.metadata() or {}).get("trained_on", "[]")))
