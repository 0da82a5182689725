"""The folder of a run of the guide's training: who may write into it, and where a run goes on.

    recipe.json          the settings
    curve.jsonl          a line of figures every few steps
    guide.safetensors    the guide: the running mean of the weights, usable at any time
    run.safetensors      all that a run needs to go on: weights, their mean, the optimizer's moments, the step

Every file but the curve is written whole or not at all, the last one last; nothing is ever unpickled. The
curve grows by a line at a time: one that a full disk or a power cut cut off is dropped when a run goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from torch import Tensor, nn, optim

from arr_coc.files.atomic import write_whole
from arr_coc.files.paths import local_path
from arr_coc.files.saved import check_records, reading, write_tensors
from arr_coc.guide.guide import BUNDLED_GUIDE, GUIDE_FORMAT, Guide
from arr_coc.guide.guide import GUIDE_FILE as GUIDE
from arr_coc.train.folder import CURVE, RECIPE
from arr_coc_lab.teaching.recipe import FREE, GuideRecipe

RUN = "run.safetensors"
OURS = {RECIPE, CURVE, GUIDE, RUN}
MARK = "guide"
"""What says in a folder's recipe that it is one of the guide."""


class Progress(NamedTuple):
    """How far a run is: its stage, the steps done in it and the seconds they took, over all sittings."""

    stage: str
    step: int = 0
    seconds: float = 0.0


def check(out: Path, recipe: GuideRecipe) -> None:
    """Refuse a folder that isn't this run's; nothing is written.

    Raises:
        ValueError: it holds something else, another recipe's run or a guide that would be overwritten.
    """
    try:
        names = {path.name for path in out.iterdir()} if os.path.lexists(out) else set()
        settings = json.loads((out / RECIPE).read_text(encoding="utf-8")) if RECIPE in names else None
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{str(out)!r} can't be used for the result ({error}); choose another folder"
        ) from error
    ours = settings is not None and settings.get("recipe") == MARK
    if ours and RUN in names:
        now = recipe.to_dict()
        for name, value in settings.items():
            if name in now and name not in FREE and now[name] != value:
                raise ValueError(
                    f"{str(out)!r} holds a run with {name} = {value!r}, not {now[name]!r}; choose another "
                    "folder, or remove it to start again"
                )
        return
    others = sorted(name for name in names if not name.startswith("."))
    if others and not (ours and set(others) <= OURS):
        raise ValueError(
            f"{str(out)!r} holds other files ({others[0]}) and no run of this recipe: choose a new or an "
            "empty folder for the result"
        )


def claim(out: Path, recipe: GuideRecipe) -> None:
    """Write the settings of a run into its folder."""
    settings = {"recipe": MARK, **recipe.to_dict()}
    write_whole((json.dumps(settings, indent=1) + "\n").encode(), out / RECIPE)


def cut_curve(out: Path, stages: tuple[str, ...], progress: Progress | None) -> None:
    """Take lines off the curve that tell of steps after the last checkpoint: they will be done again.

    A last line that was cut off goes, too.

    Raises:
        ValueError: another line is none of a curve.
    """
    curve = out / CURVE
    lines = curve.read_text(encoding="utf-8", errors="replace").splitlines() if curve.is_file() else []
    if not lines:
        return
    if not _is_json(lines[-1]):
        lines.pop()

    def kept(number: int, line: str) -> bool:
        if progress is None:
            return False
        with reading(f"{str(curve)!r}, line {number}, can't be read", "remove that line to go on"):
            figures = json.loads(line)
            place = stages.index(figures["stage"]), figures["step"]
            return place <= (stages.index(progress.stage), progress.step)

    left = [line for number, line in enumerate(lines, 1) if kept(number, line)]
    write_whole("".join(f"{line}\n" for line in left).encode(), curve)


def _is_json(line: str) -> bool:
    """Whether a line was written to its end: an object is no JSON before its last bracket."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def save(
    out: Path,
    guide: Guide,
    mean: Guide,
    optimizer: optim.Optimizer,
    progress: Progress,
    records: Sequence[dict[str, Any]],
) -> None:
    """Write the guide, then what the run needs to go on.

    Args:
        out: the folder.
        guide: the weights that learn.
        mean: their running mean, which is the guide.
        optimizer: with its moments.
        progress: how far the run is.
        records: how the guide was made, see `files.saved`.
    """
    texts = {"format": GUIDE_FORMAT, "trained_on": json.dumps(check_records(list(records)))}
    write_tensors(mean.state_dict(), out / GUIDE, texts)
    tensors = {f"weights.{name}": tensor for name, tensor in guide.state_dict().items()}
    tensors |= {f"mean.{name}": tensor for name, tensor in mean.state_dict().items()}
    for name, parameter in guide.named_parameters():
        for moment, tensor in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{moment}.{name}"] = tensor
    write_tensors(tensors, out / RUN, {"progress": json.dumps(progress)})


def saved_progress(out: Path) -> Progress | None:
    """How far the run of a folder is, None where there is none.

    Raises:
        ValueError: its file is damaged.
    """
    if not (out / RUN).is_file():
        return None
    with reading(f"{str(out / RUN)!r} can't be read", "remove it to start again"):
        with safe_open(out / RUN, "pt") as file:
            return Progress(*json.loads(file.metadata()["progress"]))


def newer(
    spec: str, stage: str, since: float | None
) -> tuple[float, dict[str, Tensor], dict[str, Tensor]] | None:
    """The weights of another run and their running mean, with the time of its checkpoint.

    Args:
        spec: the folder of the run, which may not have begun.
        stage: that it has to be in.
        since: time of the checkpoint that was read last.

    Returns:
        None where there is no checkpoint of the stage, or none but that one.

    Raises:
        ValueError: the file is damaged.
    """
    path = local_path(spec) / RUN
    with reading(f"{str(path)!r} can't be read", "name another run as peer"):
        try:
            time, progress = path.stat().st_mtime, saved_progress(path.parent)
            if time == since or progress is None or progress.stage != stage:
                return None
            with safe_open(path, "pt") as file:
                tensors = {
                    name: file.get_tensor(name) for name in file.keys() if not name.startswith("optimizer.")
                }
        except FileNotFoundError:
            return None
    return time, _under("weights.", tensors), _under("mean.", tensors)


def restore(out: Path, guide: Guide, mean: Guide, optimizer: optim.Optimizer) -> None:
    """Put weights, their mean and the optimizer's moments where a run left them.

    Raises:
        ValueError: the file is damaged, or of another guide.
    """
    with reading(f"{str(out / RUN)!r} can't be read", "remove it to start again"):
        with safe_open(out / RUN, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        guide.load_state_dict(_under("weights.", tensors))
        mean.load_state_dict(_under("mean.", tensors))
        parameters = dict(guide.named_parameters())
        for key, tensor in _under("optimizer.", tensors).items():
            moment, _, name = key.partition(".")
            parameter = parameters[name]
            # The count of steps stays where the optimizer wants it; moments are where the weights are.
            optimizer.state[parameter][moment] = tensor if moment == "step" else tensor.to(parameter.device)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names begin with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def load_weights(
    module: nn.Module, spec: str, parts: Sequence[str] | None = None
) -> tuple[dict[str, Any], ...]:
    """Load a guide, or some parts of one, such as "eyes": "bundled", the folder of a run, or a file.

    Returns:
        How it was made, see `files.saved`.

    Raises:
        ValueError: there is none, or it can't be read.
    """
    path = BUNDLED_GUIDE if spec == "bundled" else local_path(spec)
    path = path / GUIDE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"guide {spec!r} is not there ({path}): name a folder of a run or a file")
    with reading(f"guide {str(path)!r} can't be read", "name another one"):
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if parts is None or name.split(".")[0] in parts]
            tensors = {name: file.get_tensor(name) for name in names}
            module.load_state_dict(tensors if parts is None else module.state_dict() | tensors)
            return check_records(json.loads((file.metadata() or {}).get("trained_on", "[]")))


def write_line(out: Path, figures: Mapping[str, Any]) -> None:
    """Add a line of figures to the curve."""
    with (out / CURVE).open("a", encoding="utf-8") as curve:
        curve.write(json.dumps(figures) + "\n")
