"""Training by the Hugging Face Trainer: from a recipe to an allocator folder.

    train(load_recipe("relevance"), Path("my-allocator"))

The folder is an allocator that `ARRCOCModel.from_pretrained` loads, with `recipe.json`, the loss curve
(`curve.jsonl`, `curve.png`) and the last checkpoint beside it. It is whole: what else the allocator had that
it started from goes along. Killed at any step, the same call goes on from that checkpoint
to the same result: data come in an order fixed by the seed, and the generators are restored. Ctrl-C and
SIGTERM end it after a step, with an allocator of what was learned so far. It runs on one CPU, on one GPU, or
on several by `accelerate launch`, and several learn what one does with as many images a step. With
`--use_fsdp` they divide the base model among them (`sharding`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.files.atomic import move_files, own_folder
from arr_coc.files.device import resolve_device
from arr_coc.files.hub import BUNDLED
from arr_coc.files.paths import is_local
from arr_coc.files.plugins import install_line
from arr_coc.files.saved import MOST, plain, write_tensors
from arr_coc.model import ARRCOCModel
from arr_coc.store import checkpoint
from arr_coc.store.allocator import SAVING, load_learned
from arr_coc.train.components import PICTURES, fit_coarse_basis, needs_basis
from arr_coc.train.curves import Curve, Window, draw_curve
from arr_coc.train.fields import PARTS
from arr_coc.train.folder import PLOT, check, is_main_process, last_checkpoint, opened
from arr_coc.train.interruption import Deadline, Interruption, StopAt
from arr_coc.train.launch import divides, own_way
from arr_coc.train.learner import Learner
from arr_coc.train.parts import PartsLearner
from arr_coc.train.progress import Report, counted
from arr_coc.train.recipe import Recipe
from arr_coc.train.rows import ImageRows
from arr_coc.train.sources import Turns, open_rows
from arr_coc.train.workers import start_worker, worker_message

LEARNED = "learned.safetensors"


def build_learner(recipe: Recipe, layer_class: type[ARRCOCLayer] = ARRCOCLayer) -> Learner:
    """The base model and the layer that a recipe names, as a module with a loss.

    Args:
        recipe: what to learn, from what and how.
        layer_class: of the layer; `runs/ablation.py` trains layers with a part left out.

    Raises:
        ValueError: something can't be loaded, or a layer doesn't fit the base model.
    """
    dtype = {"bfloat16": torch.bfloat16, "mixed": torch.float32}.get(recipe.precision)
    base, processor = checkpoint.load_base(recipe.model, dtype)
    changes, blind = dict(recipe.layer), recipe.allocator == "query-blind"
    parts: dict[str, Any] = {}
    if recipe.init is None or blind:
        layer = layer_class(ARRCOCConfig(dim=base.config.get_text_config().hidden_size, **changes))
    else:
        folder = checkpoint.BUNDLED_ALLOCATOR if recipe.init == checkpoint.BUNDLED else Path(recipe.init)
        parts = load_learned(folder, base)
        start = parts.pop("layer")
        layer = layer_class(replace(start.config, **changes))
        layer.load_state_dict(start.state_dict())
        layer.trained, layer.trained_on = start.trained, start.trained_on
        layer.basis = start.basis
    if needs_basis(layer):
        plain = ARRCOCModel(base, processor, base_name=recipe.model)
        items = open_rows(recipe)
        layer.basis = fit_coarse_basis(plain, (items[i].image for i in range(min(PICTURES, len(items)))))
    model = ARRCOCModel(base, processor, layer, base_name=recipe.model, **parts)
    learner = PartsLearner(model, recipe) if recipe.stage in PARTS else Learner(model, recipe)
    if blind and recipe.init is not None:
        learner.layer.load(None if recipe.init == checkpoint.BUNDLED else Path(recipe.init))
    return learner


def train(
    recipe: Recipe,
    out: Path,
    *,
    name: str | None = None,
    progress: bool = True,
    stop_at: int | None = None,
    minutes: float | None = None,
    device: str = "auto",
    layer_class: type[ARRCOCLayer] = ARRCOCLayer,
) -> dict[str, Any]:
    """Train, or resume training, and write the allocator.

    Args:
        recipe: what to learn, from what and how.
        out: the folder; made if it isn't there. It is empty, or holds this run, to go on with.
        name: of the recipe, for the model card.
        progress: on stderr, how far it is: a bar, elsewhere lines; and what the whole will take.
        stop_at: end at this step as if killed there, for a schedule of several sittings; None: at the end.
        minutes: end after so long, over all sittings, at the end of a step, as if that had been the last: the
            learning rate falls to 0 by the time or by the steps, whichever are over first; None: at the end.
        device: "auto" (an accelerator where there is one, else the CPU), "cpu", "cuda" or "mps".
        layer_class: as of `build_learner`.

    Returns:
        steps, of how many, signal (the number of the one that ended it early, else None), seconds of this
        sitting, parameters that learned, and the last figures of the curve.

    Raises:
        ValueError: a bad recipe or row, a folder that belongs to something else, or too little memory; the
            message names the row's file and line, and the remedy. Where no step was done, nothing is left
            behind.
    """
    for package in ("accelerate", "peft"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"training needs {package}, which is not installed: {install_line('train')}")
    divided = divides()
    place = resolve_device(device)
    if place.index is not None:
        raise ValueError(
            f"device {device!r} is one of several: set CUDA_VISIBLE_DEVICES={place.index} and use cuda"
        )
    check(out, recipe)
    interruption = Interruption()
    with opened(out), interruption.listening(), contextlib.ExitStack() as screen, own_way():
        arguments = _arguments(recipe, out, place.type)  # processes find each other here
        torch.manual_seed(recipe.seed)
        devices = int(os.environ.get("WORLD_SIZE", "1"))  # each takes `batch` images of every step
        images = recipe.batch * recipe.accumulate * devices
        data = open_rows(recipe.model_copy(update={"batch": images, "accumulate": 1}))
        learner = _built(recipe, layer_class, arguments.device if divided else None)
        deadline = Deadline(minutes)
        trainer = AllocatorTrainer(learner, arguments, data, recipe, deadline)
        trainer.add_callback(Curve(out, recipe))
        trainer.add_callback(interruption)
        if stop_at is not None:
            trainer.add_callback(StopAt(stop_at))
        trainer.add_callback(deadline)
        trainer.add_callback(Window(trainer))  # after those that ask for a checkpoint
        if progress and is_main_process():
            each = f"{counted(images, 'image')} with at most {counted(recipe.questions, 'question')}"
            each += " an image" if images > 1 else ""
            trainer.add_callback(screen.enter_context(Report(recipe.save_every, each)))
        since, begin = time.monotonic(), last_checkpoint(out)
        try:
            trainer.train(resume_from_checkpoint=begin and str(begin))
        except ValueError as error:
            raise ValueError(worker_message(str(error))) from error
    history, steps = trainer.state.log_history, trainer.state.global_step
    whole = steps >= recipe.steps or (deadline.over and not interruption.signal)
    main, ends = trainer.is_world_process_zero(), whole or interruption.signal
    weights = None
    if divided and recipe.top_layers and ends:
        from arr_coc.train.sharding import whole_weights

        weights = whole_weights(learner.model.base, keep=main)
    if main and ends:
        record = {"recipe": plain(name or recipe.stage), "steps": steps, "images": data.images()}
        write_learned(learner, out, record, weights)
        if whole:
            finish(out, history)
    curve = [line for line in history if "loss" in line]
    figures = {k: v for line in (curve[-1:] + history[-1:]) for k, v in line.items() if k != "epoch"}
    return {
        "steps": steps,
        "of": recipe.steps,
        "signal": None if whole else interruption.signal,
        "seconds": round(time.monotonic() - since, 1),
        "learned": sum(p.numel() for p in learner.parameters() if p.requires_grad),
    } | {k: v for k, v in figures.items() if k != "step"}


def _built(recipe: Recipe, layer_class: type[ARRCOCLayer], device: torch.device | None) -> Learner:
    """The learner; its base model is divided over the devices of all processes, of which one is here."""
    if device is None:
        return build_learner(recipe, layer_class)
    from arr_coc.train.sharding import divide, in_turns, leave_alone, make_mesh  # torch may be without

    def one() -> Learner:
        learner = build_learner(recipe, layer_class)
        divide(learner.model.base, mesh)
        return learner

    mesh = make_mesh(device)
    learner = in_turns(one)
    leave_alone(learner)
    learner.divided = True
    return learner


def _arguments(recipe: Recipe, out: Path, device: str) -> TrainingArguments:
    """What the Trainer is told of a recipe."""
    return TrainingArguments(
        output_dir=str(out),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch,
        gradient_accumulation_steps=recipe.accumulate,
        bf16=recipe.precision == "mixed",
        learning_rate=recipe.lr,
        lr_scheduler_type="linear",
        warmup_steps=recipe.warmup,
        adam_beta2=0.98,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=recipe.log_every,
        save_steps=recipe.save_every,
        save_total_limit=2,
        seed=recipe.seed,
        dataloader_num_workers=recipe.workers,
        dataloader_prefetch_factor=2 if recipe.workers else None,
        remove_unused_columns=False,
        use_cpu=device == "cpu",
        ddp_find_unused_parameters=True,
        disable_tqdm=True,  # `Report` says how far it is
        report_to="none",
    )


def write_learned(
    learner: Learner, out: Path, record: dict[str, Any], weights: dict[str, Tensor] | None = None
) -> None:
    """Write what was learned so far into `out`, as an allocator that can be used.

    Args:
        learner: after some steps.
        out: the folder of the run.
        record: what it learned from: recipe, steps, and images by kind of source.
        weights: of the base model where processes have divided it and top layers learned; None: its own.
    """
    recipe, model = learner.recipe, learner.model
    if not isinstance(learner.layer, ARRCOCLayer):
        learner.layer.save(out)
        return
    learner.layer.trained |= recipe.stage not in PARTS
    base = recipe.model if recipe.model == BUNDLED or not is_local(recipe.model) else model.config.model_type
    record = {"target": recipe.target, "eyes": recipe.eyes, "base": plain(base), "seed": recipe.seed} | record
    learner.layer.trained_on = (*learner.layer.trained_on, record)[-MOST:]
    if recipe.top_layers:  # another base model: it is written whole
        out.mkdir(parents=True, exist_ok=True)
        with own_folder(SAVING, out) as new:
            model.base.save_pretrained(new / "base", state_dict=weights)
            model.processor.save_pretrained(new / "base")
            files = {path.relative_to(new) for path in (new / "base").rglob("*") if path.is_file()}
            files |= {path.relative_to(out) for path in (out / "base").glob("*.safetensors*")}  # of an older
            move_files(new, out, sorted(map(str, files)))
        model.base_name = str(out / "base")
    model.save_pretrained(out)


def finish(out: Path, history: list[dict[str, Any]]) -> None:
    """Draw the curve, which marks a run as finished, and remove the checkpoints."""
    draw_curve(history, out / PLOT)
    for folder in out.glob("checkpoint-*"):
        shutil.rmtree(folder)


class AllocatorTrainer(Trainer):
    """The Trainer for a `Learner`: its loss, its order of data, and checkpoints of the learned part alone."""

    def __init__(
        self,
        learner: Learner,
        arguments: TrainingArguments,
        data: Turns,
        recipe: Recipe,
        deadline: Deadline | None = None,
    ) -> None:
        super().__init__(
            model=learner, args=arguments, train_dataset=data, data_collator=lambda items: {"items": items}
        )
        self.learner, self.recipe, self.rows = learner, recipe, data
        self.deadline = deadline or Deadline(None)
        self.figures: dict[str, list[float]] = {}
        self.remove_callback(PrinterCallback)

    def get_train_dataloader(self) -> DataLoader:
        """The rows in their own order, which the seed fixes; worker processes end with this one."""
        loader = DataLoader(
            self.rows,
            batch_size=self.args.train_batch_size,
            sampler=SequentialSampler(self.rows),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            worker_init_fn=start_worker,
        )
        return self.accelerator.prepare(loader)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW; what is freed of the base model learns at the recipe's `base_lr`."""
        model = self.learner.model
        parts = (model.base,) if self.recipe.stage in PARTS else (model.base, model.loras)
        base = {id(p) for part in parts for p in part.parameters()}
        learned = [p for p in self.learner.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in learned if id(p) not in base], "lr": self.recipe.lr},
            {"params": [p for p in learned if id(p) in base], "lr": self.recipe.base_lr},
        ]
        kind, options = self.get_optimizer_cls_and_kwargs(self.args)
        self.optimizer = kind(
            [g for g in groups if g["params"]], **options, weight_decay=self.args.weight_decay
        )
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Linear, up over the warmup and down to 0: by the steps, or by the time where that is over first."""
        warmup = self.recipe.warmup

        def share(step: int) -> float:
            rest = max(1e-9, num_training_steps - warmup)
            left = (num_training_steps - step) / rest if step >= warmup else step / warmup
            return max(0.0, min(left, 1 - self.deadline.spent))

        learning = optimizer or self.optimizer
        assert learning is not None, "it is made before its schedule"
        self.lr_scheduler = schedule = torch.optim.lr_scheduler.LambdaLR(learning, share)
        self._created_lr_scheduler = True
        return schedule

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of some images; figures are kept for the next line of the log."""
        items: list[ImageRows] = inputs["items"]
        try:
            loss, figures = model(items)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
                raise ValueError(_too_large(items)) from error
            raise
        for name, values in figures.items():
            self.figures.setdefault(name, []).extend(values)
        return (loss, figures) if return_outputs else loss

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """As the Trainer's; running out of memory on the way back names the images too."""
        try:
            if not self.learner.divided:
                return super().training_step(*args, **kwargs)
            with self.accelerator.no_sync(self.model_wrapped):
                loss = super().training_step(*args, **kwargs)
            if self.accelerator.sync_gradients:
                from arr_coc.train.sharding import average_gradients

                average_gradients(self.learner.parameters())
            return loss
        except torch.OutOfMemoryError as error:
            inputs = kwargs.get("inputs", args[1] if len(args) > 1 else {})
            raise ValueError(_too_large(inputs.get("items", []))) from error

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean of every figure since the last line."""
        logs |= {name: round(float(np.mean(values)), 5) for name, values in self.figures.items() if values}
        self.figures = {}
        super().log(logs, start_time)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(_learned(self.learner), folder / LEARNED)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        saved, now = load_file(Path(resume_from_checkpoint) / LEARNED), _learned(self.learner)
        if saved.keys() != now.keys():
            raise ValueError(
                f"{resume_from_checkpoint!r} holds other weights than the recipe trains; remove it"
            )
        self.learner.load_state_dict(saved, strict=False)


def _learned(learner: Learner) -> dict[str, Tensor]:
    return {name: p.detach().cpu().contiguous() for name, p in learner.named_parameters() if p.requires_grad}


def _too_large(items: list[ImageRows]) -> str:
    largest = max(items, key=lambda item: item.image.width * item.image.height)
    size = f"{largest.image.width}x{largest.image.height} px, {len(largest.rows)} questions"
    return (
        f"out of memory at {largest.where} ({size}); lower max_pixels, questions or batch in the recipe, "
        "or use precision = 'bfloat16'"
    )
