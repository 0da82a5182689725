"""The folder of a training run: whether a run may use it, its recipe, log and checkpoints.

check(out, recipe)      refuses a folder in which other files would be lost
with opened(out): ...   makes it; a block that fails before the first step leaves nothing behind
claim(out, recipe)      writes the recipe, after the first step
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from arr_coc.choose.layer import WEIGHTS_NAME
from arr_coc.files.atomic import write_atomic
from arr_coc.files.paths import CONFIG_NAME
from arr_coc.guide.guide import GUIDE_FILE
from arr_coc.train.processes import is_main_process
from arr_coc.train.recipe import RunSettings

RECIPE, CURVE, PLOT = "recipe.json", "curve.jsonl", "curve.png"  # settings, log, and its plot: written last

STATE = "trainer_state.json"  # of a checkpoint, written last: a folder without it was cut off
QUERY_BLIND = "query_blind.safetensors"  # what recipe query-blind of `arr-coc-lab` writes
# files of something learned, and what it is
LEARNED = {
    CONFIG_NAME: "an allocator",
    WEIGHTS_NAME: "an allocator",
    QUERY_BLIND: "a scorer",
    GUIDE_FILE: "a guide",
}
# figures of the log that are drawn
FIGURES = ("loss", "relevance", "answer", "compress", "iou", "recall 1/16")


def check(out: Path, recipe: RunSettings) -> None:
    """Refuse a folder that holds anything but this run, without writing or making anything.

    A run that was cut off before its first checkpoint may be replaced by another.

    Raises:
        ValueError: it holds other files, another recipe's run or a finished one, or can't be read.
    """
    try:
        names = {path.name for path in out.iterdir()} if os.path.lexists(out) else set()
        settings = (out / RECIPE).read_text(encoding="utf-8-sig") if RECIPE in names else None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(_unusable(out, error)) from error
    goes_on = f"choose another folder for the result, or start from it with {shlex.quote(f'init={out}')}"
    if PLOT in names and settings is not None:
        raise ValueError(f"{str(out)!r} holds a finished run: {goes_on}")
    if settings is not None and any(map(last_checkpoint, (out, *filter(Path.is_dir, out.iterdir())))):
        _check_same(out, settings, recipe)
        return
    learned = [LEARNED[name] for name in LEARNED if name in names]
    if learned:
        raise ValueError(f"{str(out)!r} holds {learned[0]}, which this run would overwrite: {goes_on}")
    others = [
        name for name in sorted(names - {RECIPE, CURVE}) if not name.startswith((".", "checkpoint-"))
    ]  # hidden files are the system's
    if others and settings is None:
        raise ValueError(
            f"{str(out)!r} holds other files ({others[0]}) and no run of training: choose a new or an empty "
            "folder for the result"
        )


def _check_same(out: Path, settings: str, recipe: RunSettings) -> None:
    """Refuse another recipe than that of the run; fields that are newer than the run had their default."""
    try:
        was = recipe.defaults() | json.loads(settings)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{str(out / RECIPE)!r} can't be read ({error}), so the run can't go on: choose another folder"
        ) from error
    now = recipe.to_dict()
    for name in (*now, *was):
        if was.get(name) != now.get(name) and name not in recipe.FREE:
            raise ValueError(
                f"{str(out)!r} holds a run with {name} = {was.get(name)!r}, not {now.get(name)!r}; choose "
                "another folder, or remove it to start again"
            )


@contextlib.contextmanager
def opened(out: Path) -> Generator[None]:
    """Make the folder of a run; if the block fails, remove folders that are still empty.

    Only the main process does so. ValueError if it can't be made or written into.
    """
    if not is_main_process():
        yield
        return
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out):
                pass
        except OSError as error:
            raise ValueError(_unusable(out, error)) from error
        yield
    except BaseException:
        for folder in new:
            with contextlib.suppress(OSError):  # it isn't empty: something was learned
                folder.rmdir()
        raise


def claim(out: Path, recipe: RunSettings) -> None:
    """Write the recipe of a run into its folder, atomically."""
    write_atomic((json.dumps(recipe.to_dict(), indent=1) + "\n").encode(), out / RECIPE)


def last_checkpoint(out: Path) -> Path | None:
    """Return the newest complete checkpoint of a run, or None."""
    whole = [
        folder
        for folder in out.glob("checkpoint-*")
        if folder.name.rpartition("-")[2].isdecimal() and (folder / STATE).is_file()
    ]
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def draw_curve(history: list[dict[str, Any]], path: Path) -> None:
    """Draw the figures of a log over the steps, one panel each."""
    from matplotlib.figure import Figure  # imported for the first time, it reads every font of the machine

    lines = [line for line in history if "loss" in line]
    names = [name for name in FIGURES if any(name in line for line in lines)]
    figure = Figure(figsize=(3.2 * max(1, len(names)), 2.6), layout="constrained")
    axes = figure.subplots(1, max(1, len(names)), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=False):
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


def _unusable(out: Path, error: Any) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return f"{str(out)!r} can't be used for the result ({reason}); choose another folder"
