"""Adaptation: from a checkpoint and a folder of images with questions to an allocator with its model card.

1. `before`: measures the untrained allocator, controls and an oracle, on every fifth image.
2. `relevance` if questions have boxes, else `distill`; `stem` and `partial` if the vision tower can encode
   single cells; `coarse` on request: recipes of `arr-coc train`, on the other images.
3. `after`: measures the same questions again, and writes the allocator, its card and the gain.

Each part is under OUT/parts: finished parts are not repeated, and interrupted ones resume.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from arr_coc.choose.budget import Budget, parse_budget
from arr_coc.data import Example, open_data
from arr_coc.files.atomic import write_atomic
from arr_coc.files.paths import BUNDLED_NAME
from arr_coc.files.saved import read_settings
from arr_coc.files.validation import check_records
from arr_coc.model import ARRCOCModel
from arr_coc.store import checkpoint
from arr_coc.train.folder import PLOT, RECIPE
from arr_coc.train.recipe import Recipe, load_recipe
from arr_coc.train.rows import rest_of
from arr_coc.train.trainer import train
from arr_coc_lab.data.folder import data_spec
from arr_coc_lab.evaluate import Settings, evaluate
from arr_coc_lab.gain import draw_gain, gain
from arr_coc_lab.results.files import read_results

# folder of the parts; what was asked for; the gain, and its plot
PARTS, FACTS, RESULT, PICTURE = "parts", "adaptation.json", "adapt.json", "adapt.png"
HELD_OUT = 5  # every fifth image is for measuring, not for training
NULLS = ("random", "even grid", "ink density", "oracle")
OTHER = "shuffled question"  # ours with another image's question: what is kept whatever is asked
OURS = ("full", "arr-coc", "arr-coc sparse")
RECIPES = ("relevance", "distill", "stem", "partial", "coarse")  # in the order of training
PIXELS = 1_048_576  # larger images are scaled down for training: 1024 tokens of a 32 px cell
MIN_SPACE = 2**26  # bytes of free disk space to begin
BASE_SPACE = 24  # bytes per number of the allocator: weights, optimizer, two checkpoints


@dataclass(frozen=True)
class Adaptation:
    """Settings of `adapt`; None is the default of the data, or of each recipe."""

    model: str  # a name on the Hub, a folder, an allocator to train further, or "bundled"
    data: str  # a folder of images with `questions.jsonl`, or NAME:DIR
    split: str | None = None
    steps: int | None = None  # of each recipe
    minutes: float | None = None  # of training in all, over all starts, shared evenly by the recipes
    budgets: tuple[Budget, ...] = (0.0625, 0.25)  # counts or fractions of the cells at which it is measured
    questions: int = 200  # most that are measured
    max_new_tokens: int | None = None  # of answers when measuring; None: 32
    recipes: tuple[str, ...] | None = None  # None: all that apply
    device: str = "auto"  # as in `train`
    dtype: str | None = None  # of the base model, "float32" or "bfloat16"


@dataclass(frozen=True)
class Part:
    """A recipe of an adaptation, and its folder."""

    name: str
    recipe: Recipe
    folder: Path

    @property
    def done(self) -> bool:
        """Whether it is finished, by the same recipe."""
        if not (self.folder / PLOT).is_file():
            return False
        return json.loads((self.folder / RECIPE).read_text()) == self.recipe.to_dict()

    @property
    def steps(self) -> int:
        """Steps done, once it is finished: fewer than the recipe's if time was over."""
        return check_records(read_settings(self.folder).get("trained_on", ()))[-1]["steps"]


def adapt(
    wanted: Adaptation,
    out: Path,
    *,
    progress: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure, train, measure again, and write the allocator into `out`, which is new, empty or this
    adaptation's.

    `progress` shows bars and lines on stderr; `say` is called with a line as each part begins.

    Returns:
        "gain" as of `gain.gain`, and "parts" by name: "steps" done, "of" how many, and "seconds" since this
        start. Where a signal ended a part, its number as "signal", without a gain.

    Raises:
        ValueError: data that can't be read, no such model, a folder that holds something else, a full disk.
        KeyboardInterrupt: while it measured; the same call resumes there.
    """
    try:
        return _adapt(wanted, out, progress, say)
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) or any(
            word in str(error) for word in ("No space", "PytorchStreamWriter")
        ):
            reason = getattr(error, "strerror", None) or "No space left on device"
            raise ValueError(
                f"{str(out)!r} can't be written ({reason}): make room there, or name another folder; "
                "the same line goes on"
            ) from error
        raise


def _adapt(wanted: Adaptation, out: Path, progress: bool, say: Callable[[str], None]) -> dict[str, Any]:
    spec = data_spec(wanted.data)
    data = survey(spec, wanted.split)
    source = checkpoint.find(wanted.model, None)
    _claim(out, wanted, spec)
    start = None if source.allocator is None else str(source.allocator)
    model = ARRCOCModel.from_pretrained(source.base, allocator=start, device="cpu")
    _check_space(out, model)
    sparse, has_own = model.adapter.encodes == "cells", model.layer.trained
    del model
    measured = _measuring(wanted, spec, source.base, data)
    say(f"before: what is kept by {'its own allocator' if has_own else 'nobody yet, the guide looks'}")
    before = dataclasses.replace(
        measured,
        out=out / PARTS / "before",
        allocators=() if start is None else (start,),
        methods=(*OURS, OTHER, *NULLS),
    )
    evaluate(before, progress)
    last, figures = start, {}
    parts = list(plan(wanted, spec, data, source.base, start, sparse, out / PARTS))
    for number, part in enumerate(parts):
        if part.done:
            say(f"{part.name}: finished already")
            figures[part.name] = {"steps": part.steps, "of": part.recipe.steps}
        else:
            say(f"{part.name}: learning, part {number + 1} of {len(parts)}")
            minutes = None if wanted.minutes is None else wanted.minutes / len(parts)
            result = train(
                part.recipe,
                part.folder,
                name=part.name,
                progress=progress,
                minutes=minutes,
                device=wanted.device,
            )
            figures[part.name] = {name: result[name] for name in ("steps", "of", "seconds")}
            if result["signal"] is not None:
                return {"signal": result["signal"], "part": part.name, "parts": figures}
        last = str(part.folder)
    learned = ARRCOCModel.from_pretrained(source.base, allocator=last, device="cpu")
    learned.save_pretrained(out)
    say("after: the same questions again")
    after = dataclasses.replace(
        measured, out=out / PARTS / "after", allocators=(str(out),), methods=(*OURS, OTHER, NULLS[0])
    )
    evaluate(after, progress)
    learned.save_pretrained(out, results=[after.lines])
    gained = gain(read_results(before.lines), read_results(after.lines))
    draw_gain(gained, out / PICTURE)
    facts = {
        "model": _public(source.base),
        "data": {
            "kind": spec.partition(":")[0],
            "boxes": data.boxed,
            "held out": f"every {data.every}th image",
        },
        "parts": figures,
        "gain": gained,
    }
    write_atomic((json.dumps(facts, indent=1) + "\n").encode(), out / RESULT)
    return facts | {"signal": None}


def plan(
    wanted: Adaptation,
    spec: str,
    data: Survey,
    base: str,
    start: str | None,
    sparse: bool,
    folder: Path,
) -> Iterator[Part]:
    """Yield the recipes that apply, each starting from the result of the one before.

    `base` is the base model, `start` the allocator to begin with, `sparse` whether the vision tower can
    encode single cells, `folder` that of the parts.
    """
    names = ["relevance" if data.boxed else "distill", *(("stem", "partial") if sparse else ())]
    names += ["coarse"] if sparse and "coarse" in (wanted.recipes or ()) else []
    for name in names:
        if wanted.recipes is not None and name not in wanted.recipes:
            continue
        changes: dict[str, Any] = {
            "model": base, "init": start, "data": (spec,), "split": wanted.split, "hold_out": data.every,
            "max_pixels": PIXELS,
        }  # fmt: skip
        if wanted.steps is not None:
            changes |= {"steps": wanted.steps, "warmup": min(30, wanted.steps // 10)}
        if wanted.dtype is not None:
            changes["precision"] = wanted.dtype
        place = folder / name
        yield Part(name, load_recipe(name, changes), place)
        start = str(place)


def parts_of(text: str) -> tuple[str, ...]:
    """Return the recipes of "relevance,stem"; ValueError if one is no part of an adaptation."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in RECIPES:
            raise ValueError(f"recipe {name!r} is no part of an adaptation: use some of {', '.join(RECIPES)}")
    return names


class Survey(NamedTuple):
    """What a data set has: every `every`-th image is held out.

    `held_out` are the numbers of the questions about those, from 0, in file order; `boxed`: any question has
    boxes or a relevance map.
    """

    every: int
    held_out: list[int]
    boxed: bool


def survey(spec: str, split: str | None) -> Survey:
    """Read the questions of a data set; ValueError from its reader, or for fewer than two images."""
    examples: list[Example] = list(open_data(spec, split, clips=False)[1])
    images = {example.image for example in examples}
    if len(images) < 2:
        raise ValueError(
            f"data {spec!r} has questions about {len(images)} images: give two at least, one is measured on"
        )
    every = min(HELD_OUT, len(images))
    learned = {id(example) for example in rest_of(examples, every)}
    held_out = [number for number, example in enumerate(examples) if id(example) not in learned]
    return Survey(every, held_out, any(example.boxes or example.map for example in examples))


def _measuring(wanted: Adaptation, spec: str, base: str, data: Survey) -> Settings:
    """Return the settings that both measurements share."""
    last = data.held_out[: wanted.questions][-1]
    return Settings(
        out=Path("measured"),
        data=spec,
        model=base,
        split=wanted.split,
        budgets=tuple(parse_budget(budget) for budget in wanted.budgets),
        questions=last + 1,
        part=(data.every, data.every),
        max_new_tokens=wanted.max_new_tokens,
        device=None if wanted.device == "auto" else wanted.device,
        dtype=wanted.dtype,
        own_answers=True,
    )


def _claim(out: Path, wanted: Adaptation, spec: str) -> None:
    """Make the folder and write the settings into it; ValueError if it holds anything else."""
    free = ("minutes", "device")  # may change when it is resumed
    facts = {name: value for name, value in dataclasses.asdict(wanted).items() if name not in free}
    facts = json.loads(json.dumps(facts | {"data": spec}))
    path = out / FACTS
    if path.is_file():
        was = json.loads(path.read_text())
        for name, value in facts.items():
            if was.get(name) != value:
                raise ValueError(
                    f"{str(out)!r} holds an adaptation with {name} {was.get(name)!r}, not {value!r}: choose "
                    "another folder, or remove it to start again"
                )
        return
    if out.exists() and any(not path.name.startswith(".") for path in out.iterdir()):
        raise ValueError(f"{str(out)!r} holds other files: choose a new or an empty folder for the result")
    out.mkdir(parents=True, exist_ok=True)
    write_atomic((json.dumps(facts, indent=1) + "\n").encode(), path)


def _check_space(out: Path, model: ARRCOCModel) -> None:
    """Raise a ValueError if the disk lacks space for what will be learned."""
    modules = [part for part in (model.layer, model.stem, model.compressors, model.loras) if part is not None]
    learned = sum(p.numel() for part in modules for p in part.parameters())
    needed, free = max(MIN_SPACE, BASE_SPACE * learned), shutil.disk_usage(out).free
    if free < needed:
        raise ValueError(
            f"the disk of {str(out)!r} has {free / 2**20:,.0f} MiB free, and learning needs some "
            f"{needed / 2**20:,.0f}: make room there, or name another folder"
        )


def _public(base: str) -> str:
    """Return the base model's name, without a path of this disk."""
    return base if base == BUNDLED_NAME or not checkpoint.is_local(base) else Path(base).name
