"""Training of an allocator: from a recipe to a folder.

    train(load_recipe("relevance"), Path("my-allocator"))

The folder is an allocator for `ARRCOCModel.from_pretrained`, with `recipe.json`, the loss curve
(`curve.jsonl`, `curve.png`) and, until the run is finished, its checkpoints.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.files.atomic import move_files, temporary_folder
from arr_coc.files.paths import BUNDLED_NAME, is_local
from arr_coc.files.validation import MAX_RUNS, record_name
from arr_coc.model import ARRCOCModel
from arr_coc.store import checkpoint
from arr_coc.store.allocator import SAVING, load_learned
from arr_coc.train.callbacks import Curve, Deadline, Interruption, Report, StopAt, counted
from arr_coc.train.folder import PLOT, check, draw_curve, opened
from arr_coc.train.learner import PICTURES, Learner, fit_coarse_basis, needs_basis
from arr_coc.train.loop import RecipeTrainer, training_arguments, training_device
from arr_coc.train.parts import PartsLearner
from arr_coc.train.processes import divides, hide_fsdp_env, is_main_process
from arr_coc.train.recipe import LayerRecipe, LoraRecipe, Recipe, TowerRecipe
from arr_coc.train.rows import open_rows


def build_learner(recipe: Recipe, layer_class: type[ARRCOCLayer] = ARRCOCLayer) -> Learner:
    """Load the base model and make its layer, a new one or `recipe.init`, as the module that is trained.

    Raises ValueError if something can't be loaded or does not fit; `layer_class` is for ablations.
    """
    dtype = {"bfloat16": torch.bfloat16, "mixed": torch.float32}.get(recipe.precision)
    base, processor = checkpoint.load_base(recipe.model, dtype)
    changes = dict(recipe.layer) if isinstance(recipe, LayerRecipe) else {}
    blind = isinstance(recipe, LayerRecipe) and recipe.allocator == "query-blind"
    parts: dict[str, Any] = {}
    if recipe.init is None or blind:
        layer = layer_class(ARRCOCConfig(dim=base.config.get_text_config().hidden_size, **changes))
    else:
        folder = checkpoint.BUNDLED_ALLOCATOR if recipe.init == checkpoint.BUNDLED_NAME else Path(recipe.init)
        parts = load_learned(folder, base)
        start = parts.pop("layer")
        layer = layer_class(replace(start.config, **changes))
        layer.load_state_dict(start.state_dict())
        layer.trained, layer.trained_on = start.trained, start.trained_on
        layer.basis = start.basis
    if needs_basis(layer):  # the base is frozen: an untrained model encodes the same coarse views
        untrained = ARRCOCModel(base, processor, base_name=recipe.model)
        items = open_rows(recipe)
        images = (items[i].image for i in range(min(PICTURES, len(items))))
        layer.basis = fit_coarse_basis(untrained, images)
    model = ARRCOCModel(base, processor, layer, base_name=recipe.model, **parts)
    if isinstance(recipe, LoraRecipe | TowerRecipe):
        return PartsLearner(model, recipe)
    learner = Learner(model, recipe)
    if blind and recipe.init is not None:
        learner.layer.load(None if recipe.init == checkpoint.BUNDLED_NAME else Path(recipe.init))
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
    """Train an allocator, or resume a run, and write it into `out`.

    Runs on one CPU or GPU, or on several by `accelerate launch`: together they learn what one does with as
    many images a step. With `--use_fsdp` they divide the base model among them (`sharding`).

    Args:
        recipe: what to learn, from what and how.
        out: new, empty, or the folder of this run.
        name: of the recipe, for the model card.
        progress: report on stderr.
        stop_at: end at this step as if killed there, to resume later.
        minutes: end after so long over all starts, as if that step were the last.
        device: "auto" (an accelerator if there is one, else the CPU), "cpu", "cuda" or "mps".
        layer_class: as in `build_learner`.

    Returns:
        "steps", "of" how many, "signal" (the number of the one that ended it early, or None), "seconds" since
        this start, "learned" (parameters), and the last figures of the curve.

    Raises:
        ValueError: a bad recipe or row, a folder that belongs to something else, or too little memory; names
            the row's file and line, and the remedy. If no step was done, nothing is left.
    """
    place = training_device(device)
    divided = divides()
    check(out, recipe)
    interruption, deadline = Interruption(), Deadline(minutes)
    with opened(out), interruption.listening(), hide_fsdp_env():
        arguments = training_arguments(  # processes find each other here
            recipe,
            out,
            place.type,
            per_device_train_batch_size=recipe.batch,
            gradient_accumulation_steps=recipe.accumulate,
            bf16=recipe.precision == "mixed",
            learning_rate=recipe.lr,
            warmup_steps=recipe.warmup,
            adam_beta2=0.98,
            weight_decay=0.01,
            max_grad_norm=1.0,
        )
        torch.manual_seed(recipe.seed)
        devices = int(os.environ.get("WORLD_SIZE", "1"))  # each takes `batch` images of every step
        images = recipe.batch * recipe.accumulate * devices
        # The data set counts images of all processes and accumulated batches; accelerate deals them out.
        data = open_rows(recipe.model_copy(update={"batch": images, "accumulate": 1}))
        learner = _built(recipe, layer_class, arguments.device if divided else None)
        stops = [] if stop_at is None else [StopAt(stop_at)]
        callbacks = [Curve(out, recipe), interruption, *stops, deadline]
        trainer = RecipeTrainer(learner, arguments, data, callbacks, deadline)
        each = f"{counted(images, 'image')} with at most {counted(recipe.questions, 'question')}"
        each += " an image" if images > 1 else ""
        since = time.monotonic()
        telling = progress and is_main_process()
        trainer.go_on(Report(recipe.save_every, each, deadline=deadline) if telling else None)
    history, steps = trainer.state.log_history, trainer.state.global_step
    whole = steps >= recipe.steps or (deadline.over and not interruption.signal)
    main, ends = trainer.is_world_process_zero(), whole or interruption.signal
    weights = None
    if divided and learner.changes_base and ends:
        from arr_coc.train.sharding import whole_weights

        weights = whole_weights(learner.model.base, keep=main)
    if main and ends:
        record = {"recipe": record_name(name or recipe.stage), "steps": steps, "images": data.images()}
        write_learned(learner, out, record, weights)
        if whole:
            finish_run(out, history)
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
    """Return the learner, with its base model divided over the devices of all processes if `device` is
    given.
    """
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


def write_learned(
    learner: Learner, out: Path, record: dict[str, Any], weights: dict[str, Tensor] | None = None
) -> None:
    """Write what was learned so far into `out`, as an allocator that can be used.

    `record` says from what: recipe, steps, images by kind of source. `weights` are those of a base model
    that processes have divided, where top layers learned.
    """
    recipe, model = learner.recipe, learner.model
    if not isinstance(learner.layer, ARRCOCLayer):
        learner.layer.save(out)
        return
    base = (
        recipe.model
        if recipe.model == BUNDLED_NAME or not is_local(recipe.model)
        else model.config.model_type
    )
    facts: dict[str, Any] = {}
    if isinstance(recipe, LayerRecipe):
        learner.layer.trained = True
        facts = {"target": recipe.target, "eyes": "stem" if learner.stem_learns else "encoded"}
    record = {**facts, "base": record_name(base), "seed": recipe.seed} | record
    learner.layer.trained_on = (*learner.layer.trained_on, record)[-MAX_RUNS:]
    if learner.changes_base:  # its weights differ from the published ones: write all of them
        out.mkdir(parents=True, exist_ok=True)
        with temporary_folder(SAVING, out) as new:
            model.base.save_pretrained(new / "base", state_dict=weights)
            model.processor.save_pretrained(new / "base")
            files = {path.relative_to(new) for path in (new / "base").rglob("*") if path.is_file()}
            files |= {path.relative_to(out) for path in (out / "base").glob("*.safetensors*")}  # of an older
            move_files(new, out, sorted(map(str, files)))
        model.base_name = str(out / "base")
    model.save_pretrained(out)


def finish_run(out: Path, history: list[dict[str, Any]]) -> None:
    """Draw the curve, which marks a run as finished, and remove the checkpoints."""
    draw_curve(history, out / PLOT)
    for folder in out.glob("checkpoint-*"):
        shutil.rmtree(folder)
