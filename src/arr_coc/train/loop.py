"""The training loop of all recipes, of allocators and of the guide, on transformers' Trainer.

Checkpoints hold only what learns. A run killed at any step resumes from the last one to the same result:
the seed fixes the order of the data, and random generators are restored.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from arr_coc.files.device import resolve_device
from arr_coc.files.plugins import install_line
from arr_coc.files.saved import write_tensors
from arr_coc.train.callbacks import Deadline, LogWindow, Report
from arr_coc.train.folder import last_checkpoint
from arr_coc.train.processes import start_worker, worker_message
from arr_coc.train.recipe import RunSettings

LEARNED = "learned.safetensors"  # the file of a checkpoint with the weights that learn


class TrainableModule(nn.Module, ABC):
    """A module with a loss, for `RecipeTrainer`; `divided`: processes share a frozen part (`sharding`)."""

    divided = False

    @abstractmethod
    def forward(self, items: Sequence[Any]) -> tuple[Tensor, dict[str, list[float]]]:
        """Return the loss of some items, a scalar, and figures by name, one or more values each."""

    @abstractmethod
    def groups(self) -> list[dict[str, Any]]:
        """Groups of trainable parameters for AdamW, each with its "lr"."""

    @abstractmethod
    def too_large(self, items: Sequence[Any]) -> str:
        """Return the message for items that exceed the memory, with a remedy."""

    def saved(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.load_state_dict(tensors, strict=False)


class RecipeTrainer(Trainer):
    """transformers' Trainer for a `TrainableModule`: its loss, order of data and checkpoints.

    `rows` are items by number, each used once, in order. Of the callbacks those that ask for a checkpoint
    come first; `deadline` is one of them.
    """

    def __init__(
        self,
        learner: TrainableModule,
        arguments: TrainingArguments,
        rows: Dataset[Any] | Iterable[Any],
        callbacks: Sequence[TrainerCallback],
        deadline: Deadline,
    ) -> None:
        data: Any = rows
        super().__init__(
            model=learner, args=arguments, train_dataset=data, data_collator=lambda items: {"items": items}
        )
        self.learner, self.rows, self.deadline = learner, data, deadline
        self.figures: dict[str, list[float]] = {}
        self.remove_callback(PrinterCallback)
        for callback in callbacks:
            self.add_callback(callback)
        self.add_callback(LogWindow(self, self.figures))

    def go_on(self, report: Report | None = None) -> None:
        """Train from the last checkpoint of the folder, or from the start, to the end or an interruption.

        Raises ValueError, one line, for an item that can't be read or exceeds the memory.
        """
        begin = last_checkpoint(Path(str(self.args.output_dir)))
        with report or nullcontext():
            if report is not None:
                self.add_callback(report)
            try:
                self.train(resume_from_checkpoint=None if begin is None else str(begin))
            except ValueError as error:
                raise ValueError(worker_message(str(error))) from error

    def get_train_dataloader(self) -> DataLoader:
        loader = DataLoader(
            self.rows,
            batch_size=self.args.train_batch_size,
            sampler=SequentialSampler(self.rows),  # the rows are in the seed's order already
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            worker_init_fn=start_worker,
        )
        return self.accelerator.prepare(loader)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        kind, options = self.get_optimizer_cls_and_kwargs(self.args)
        options |= {"weight_decay": self.args.weight_decay}
        self.optimizer = kind(self.learner.groups(), **options)
        return self.optimizer

    def rate(self, step: int, steps: int) -> float:
        """Factor of the learning rates: linear warmup, then linear to 0 by the last step or deadline."""
        warmup = self.args.warmup_steps
        left = (steps - step) / max(1e-9, steps - warmup) if step >= warmup else step / warmup
        return max(0.0, min(left, 1 - self.deadline.spent))

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        learning = optimizer or self.optimizer
        assert learning is not None, "it is made before its schedule"
        self.lr_scheduler = schedule = torch.optim.lr_scheduler.LambdaLR(
            learning, lambda step: self.rate(step, num_training_steps)
        )
        self._created_lr_scheduler = True
        return schedule

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of some items; figures are kept for the next log line."""
        try:
            loss, figures = model(inputs["items"])
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
                raise ValueError(self.learner.too_large(inputs["items"])) from error
            raise
        for name, values in figures.items():
            self.figures.setdefault(name, []).extend(values)
        return (loss, figures) if return_outputs else loss

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the Trainer's step, where running out of memory in the backward pass names the items too."""
        try:
            if not self.learner.divided:
                return super().training_step(*args, **kwargs)
            # FSDP gathers layers during the backward pass: gradients are exchanged after it, not by DDP.
            with self.accelerator.no_sync(self.model_wrapped):
                loss = super().training_step(*args, **kwargs)
            if self.accelerator.sync_gradients:
                from arr_coc.train.sharding import average_gradients  # torch may be without

                average_gradients(self.learner.parameters())
            return loss
        except torch.OutOfMemoryError as error:
            inputs = kwargs.get("inputs", args[1] if len(args) > 1 else {})
            raise ValueError(self.learner.too_large(inputs.get("items", []))) from error

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        logs |= {name: round(float(np.mean(values)), 5) for name, values in self.figures.items() if values}
        self.figures.clear()
        super().log(logs, start_time)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(self.learner.saved(), folder / LEARNED)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        saved = load_file(Path(resume_from_checkpoint) / LEARNED)
        if saved.keys() != self.learner.saved().keys():
            raise ValueError(
                f"{resume_from_checkpoint!r} holds other weights than the recipe trains; remove it"
            )
        self.learner.restore(saved)


def training_arguments(recipe: RunSettings, out: Path, device: str, **settings: Any) -> TrainingArguments:
    """Return the Trainer's arguments for a run with checkpoints in `out`; `settings` are further ones."""
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=recipe.steps,
        logging_steps=recipe.log_every,
        save_steps=recipe.save_every,
        save_total_limit=2,
        seed=recipe.seed,
        dataloader_num_workers=recipe.workers,
        dataloader_prefetch_factor=2 if recipe.workers else None,
        remove_unused_columns=False,
        use_cpu=device == "cpu",
        ddp_find_unused_parameters=True,
        disable_tqdm=True,  # `Report` shows the progress
        report_to="none",
        **settings,
    )
    # Reading `device` counts the GPUs; several are used by a process each, not by threads of one.
    assert arguments.device is not None, "found now, so that it does not count the GPUs later"
    arguments._n_gpu = 1
    return arguments


def training_device(device: str) -> torch.device:
    """Return the device of a run: "auto" (an accelerator if there is one, else the CPU), "cpu", "cuda" or
    "mps".

    Raises ValueError for no such device, one of several by number, or a missing package.
    """
    for package in ("accelerate", "peft"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"training needs {package}, which is not installed: {install_line('train')}")
    place = resolve_device(device)
    if place.index is not None:
        raise ValueError(
            f"device {device!r} is one of several: set CUDA_VISIBLE_DEVICES={place.index} and use cuda"
        )
    return place
