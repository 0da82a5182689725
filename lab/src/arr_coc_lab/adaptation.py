"""An adaptation: from any checkpoint and a folder of images with questions to an allocator with its card.

    adapt(Adaptation("Qwen/Qwen3-VL-2B-Instruct", "mine"), Path("my-allocator"))

1. `before`: what the untrained allocator keeps, on every fifth image (nulls and an oracle beside it).
2. `relevance` where questions have boxes, else `distill`; then `stem` and `partial` where the vision tower
   can encode some cells alone, and `coarse` if it is named: recipes of `arr-coc train`, on the other images.
3. `after`: the same questions again; then the allocator, its card and what was gained go into the folder.

Every part has a folder or file of its own under OUT/parts. One that is finished is not done again, and one
that was cut off goes on where it was.
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
from arr_coc.data import Example, data_sets, open_data
from arr_coc.files.atomic import write_atomic
from arr_coc.files.paths import BUNDLED_NAME, local_path
from arr_coc.files.saved import check_records, read_settings
from arr_coc.model import ARRCOCModel
from arr_coc.store import checkpoint
from arr_coc.train.folder import PLOT, RECIPE
from arr_coc.train.recipe import Recipe, load_recipe
from arr_coc.train.rows import rest_of
from arr_coc.train.trainer import train
from arr_coc_lab.evaluate import Settings, evaluate
from arr_coc_lab.gain import draw_gain, gain
from arr_coc_lab.results.files import read_results

PARTS, FACTS, RESULT, PICTURE = "parts", "adaptation.json", "adapt.json", "adapt.png"
"""Under the folder: the parts; what was asked for; what was gained, and drawn."""
HELD_OUT = 5
"""Every so many-th image is measured on, and not learned from."""
NULLS = ("random", "even grid", "ink density", "oracle")
OTHER = "shuffled question"
"""Our choice by another image's question: what is kept whatever is asked."""
OURS = ("full", "arr-coc", "arr-coc sparse")
RECIPES = ("relevance", "distill", "stem", "partial", "coarse")
"""What may be learned, in this order."""
PIXELS = 1_048_576
"""Larger images are scaled down to this for learning: 1024 tokens of a 32 px cell."""
LEAST_SPACE = 2**26
"""Bytes that the disk must have free to begin."""
BASE_SPACE = 24
"""Bytes to keep free for each number of the allocator: it, its optimizer, two checkpoints."""


@dataclass(frozen=True)
class Adaptation:
    """What is asked of `adapt`.

    Attributes:
        model: a name on the Hub, a folder, an allocator to go on with, or "bundled".
        data: a folder of images with `questions.jsonl`, or NAME:DIR.
        split: of the data; None: its usual one.
        steps: of each recipe; None: the recipe's own number.
        minutes: that learning may take in all, over all starts, shared evenly by the recipes; None: until
            all steps are done.
        budgets: at which it is measured: counts or fractions of the cells.
        questions: so many are measured, at most.
        max_new_tokens: where answers are cut off as it measures; None: 32.
        recipes: which recipes; None: all that apply.
        device: as of `train`.
        dtype: of the base model, "float32" or "bfloat16"; None: the recipes' own.
    """

    model: str
    data: str
    split: str | None = None
    steps: int | None = None
    minutes: float | None = None
    budgets: tuple[Budget, ...] = (0.0625, 0.25)
    questions: int = 200
    max_new_tokens: int | None = None
    recipes: tuple[str, ...] | None = None
    device: str = "auto"
    dtype: str | None = None


@dataclass(frozen=True)
class Part:
    """A recipe of an adaptation."""

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
        """The steps that it has done, once it is finished: fewer than the recipe's where time was over."""
        return check_records(read_settings(self.folder).get("trained_on", ()))[-1]["steps"]


def adapt(
    wanted: Adaptation,
    out: Path,
    *,
    progress: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure, teach, measure again, and write the allocator into `out`.

    Args:
        wanted: model, data and how much of both.
        out: the folder; made if it isn't there. It is empty, or holds this adaptation, to go on with.
        progress: bars and lines of the parts, on stderr.
        say: is told, in a line each, which part begins or is finished already.

    Returns:
        "gain" as of `gain.gain`, "parts" by name, each the "steps" that it did, "of" how many, and the
        "seconds" since this start if it learned in it; and where a signal ended a part its number as
        "signal", with no gain then.

    Raises:
        ValueError: data that can't be read, no such model, a folder that holds something else, a full disk.
        KeyboardInterrupt: while it measured; the same call goes on there.
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
    """The recipes that apply, each from what the one before it has learned.

    Args:
        wanted: what is asked for.
        spec: the data, NAME:DIR.
        data: what there is of it.
        base: the base model.
        start: the allocator to begin with, if there is one.
        sparse: whether the vision tower can encode some cells alone.
        folder: of the parts.
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
    """The recipes of "relevance,stem".

    Raises:
        ValueError: one of them is no part of an adaptation.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in RECIPES:
            raise ValueError(f"recipe {name!r} is no part of an adaptation: use some of {', '.join(RECIPES)}")
    return names


def data_spec(data: str) -> str:
    """NAME:DIR of a folder: its own lines with answers, without, or with boxes in COCO's format.

    Raises:
        ValueError: it is no folder, or has no readable question.
    """
    name, colon, _ = data.partition(":")
    if colon and name.strip().lower() in data_sets():
        return data
    folder = local_path(data)
    if not folder.exists():
        raise ValueError(
            f"data {data!r} is not there: give a folder of images with questions.jsonl, or NAME:DIR"
        )
    if (folder / "annotations").is_dir():
        return f"coco:{data}"
    if not (folder / "questions.jsonl").is_file() and _has_parquet(folder):
        return f"parquet:{data}"
    lines = f"folder:{data}"
    for _ in open_data(lines)[1]:  # what is wrong with them is said here
        pass
    try:
        for _ in open_data(f"jsonl:{data}")[1]:
            pass
    except ValueError:  # some question has no answer: the model's own stands in
        return lines
    return f"jsonl:{data}"


def _has_parquet(folder: Path) -> bool:
    return folder.suffix == ".parquet" or any(
        any(folder.glob(f"{place}*.parquet")) for place in ("", "data/")
    )


class Survey(NamedTuple):
    """What a data set has.

    Attributes:
        every: every so many-th image is held out.
        held_out: numbers of the questions about those, from 0, in the order of the file.
        boxed: whether any question has boxes or a relevance map.
    """

    every: int
    held_out: list[int]
    boxed: bool


def survey(spec: str, split: str | None) -> Survey:
    """Look through the questions of a data set.

    Raises:
        ValueError: what a reader raises; fewer than two images.
    """
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
    """The settings that both measurements share."""
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
    """Make the folder and write down what it is for.

    Raises:
        ValueError: it holds something else, or another adaptation; or it can't be made.
    """
    free = ("minutes", "device")  # may change when it goes on
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
    """Raise a ValueError where the disk is too full for what will be learned."""
    modules = [part for part in (model.layer, model.stem, model.convs, model.loras) if part is not None]
    learned = sum(p.numel() for part in modules for p in part.parameters())
    needed, free = max(LEAST_SPACE, BASE_SPACE * learned), shutil.disk_usage(out).free
    if free < needed:
        raise ValueError(
            f"the disk of {str(out)!r} has {free / 2**20:,.0f} MiB free, and learning needs some "
            f"{needed / 2**20:,.0f}: make room there, or name another folder"
        )


def _public(base: str) -> str:
    """The base model's name, without a path of this disk."""
    return base if base == BUNDLED_NAME or not checkpoint.is_local(base) else Path(base).name
