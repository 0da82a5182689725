"""A run: methods x budgets x questions on one model, one JSON line per question, resumable by image.

    summary = evaluate(Settings(out=Path("runs/out/bundled"), budgets=(273, 64)))

Laws: equal settings give equal files but for the times; a killed run goes on with the first image that is not
whole in the file, and ends in the file that an uninterrupted one writes. An image is encoded once; all
methods answer from that encoding, in batches of nearly equal length. The questions of an image that can't be
opened get a line with the reason in place of scores; the same run, begun again, tries it anew.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import platform
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import transformers
from torch import nn

from arr_coc.choose.budget import Budget, parse_budget
from arr_coc.data import Metric
from arr_coc.data.metrics import exact_match, loose_match
from arr_coc.data.record import check_evidence
from arr_coc.files.images import open_image
from arr_coc.files.saved import short
from arr_coc.model import ARRCOCModel
from arr_coc.seam.gestalt import CONVS
from arr_coc.seam.tower_compressor import TOWERS
from arr_coc.store.allocator import fingerprint
from arr_coc_lab.evaluate.methods import (
    check_names,
    load_scorer,
    load_variant,
    pick_methods,
    split_allocators,
)
from arr_coc_lab.evaluate.progress import Progress
from arr_coc_lab.evaluate.questions import ImageQueries, Query, data_questions, with_next, world_questions
from arr_coc_lab.evaluate.scene import Harness
from arr_coc_lab.evaluate.summary import summarise
from arr_coc_lab.results.files import (
    ERROR,
    Record,
    append_results,
    mend_results,
    read_results,
    write_results,
    write_summary,
    writing,
)
from arr_coc_lab.results.kinds import DOWNSAMPLE, FULL
from arr_coc_lab.results.summary import Summary
from arr_coc_lab.world import PAGES, pages_of

WORLD, BUNDLED = "world", "bundled"
AGREEMENT = "agreement"
"""The metric's name where no question has an answer: the same words as the model's own from all tokens."""
ENDINGS = (".jsonl", ".json", ".png")
"""Of the files of a run; the name of a run may be given with any of them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """What a run is made from; all but `out`, `vtc_filter` and `command` decide its lines.

    Attributes:
        out: OUT.jsonl and OUT.json are written; an ending .jsonl, .json or .png of it does not count.
        data: "world", or `NAME:DIR` as `arr_coc_lab.data.open_data` takes it.
        model: folder or name of the base model, or "bundled".
        allocators: "FOLDER" in place of the model's own, "NAME=FOLDER" for one more method arr-coc:NAME.
        methods: names of `METHODS`; None: all that can run on the model.
        budgets: visual tokens to keep: counts, fractions, "auto" (ours alone). Counts above an image's
            cells keep all of them. "arr-coc saccade" and "coc ..." have one row, whatever they are.
        questions: how many; None: 2000 of the world, all of a data set.
        size: side of drawn pages in px.
        split: of the data; None: "test" of the world, the data set's usual one.
        per_image: most questions of a drawn page.
        timed: so many questions, evenly spread, are also run alone to be timed.
        rows: most rows in one forward.
        max_new_tokens: where answers are cut off; None: 8 on the world, else 32.
        seed: of what is random; on the world also of which pages of the split are drawn, no two seeds the
            same ones.
        query_blind: file of a trained query-blind scorer; None: the bundled one, for the bundled model.
        part: (i, n): only every n-th image from the i-th on, so that n processes share the work;
            `results.join_results` puts their files together.
        device: of the model; None: the CPU.
        dtype: of the base model's weights; None: as saved.
        own_answers: questions without an answer are scored against the model's own, read with all tokens;
            None: they are refused.
        vtc_filter: OUT.json scores each method only on what downsampling fails; OUT.jsonl is the same.

    Raises:
        ValueError: a value out of range.
    """

    out: Path
    data: str = WORLD
    model: str = BUNDLED
    allocators: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None
    budgets: tuple[Budget, ...] = (273, 128, 64, "auto")
    questions: int | None = None
    size: int = 1024
    split: str | None = None
    per_image: int = 5
    timed: int = 0
    rows: int = 64
    max_new_tokens: int | None = None
    seed: int = 0
    query_blind: str | None = None
    part: tuple[int, int] = (1, 1)
    device: str | None = None
    dtype: str | None = None
    own_answers: bool | None = None
    vtc_filter: bool = False

    def __post_init__(self) -> None:
        """Check the numbers; the rest is checked where it is used."""
        budgets = tuple(dict.fromkeys(parse_budget(budget) for budget in self.budgets))
        if not budgets:
            raise ValueError("there is no budget: give counts, fractions or auto, such as 273,64,auto")
        object.__setattr__(self, "budgets", budgets)
        object.__setattr__(self, "out", Path(self.out))
        for name, least in (("per_image", 1), ("rows", 1), ("timed", 0), ("seed", 0), ("size", 64)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} {getattr(self, name)} is too small: use {least} or more")
        if not 1 <= self.part[0] <= self.part[1]:
            raise ValueError(f"part {self.part[0]}/{self.part[1]} is none: use 1/2 and 2/2, for example")
        for name in ("questions", "max_new_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} {value} is too small: use 1 or more")
        pages_of(self.seed)
        if self.data == WORLD and (self.questions or 0) > PAGES:
            raise ValueError(f"questions {self.questions} are too many: use at most {PAGES:,}")
        if self.out.name in ("", "..") or self.out.suffix == ".gz":
            raise ValueError(f"out {str(self.out)!r} is no name for OUT.jsonl: give one such as arr-coc-eval")

    @property
    def lines(self) -> Path:
        """OUT.jsonl."""
        return self.file(".jsonl")

    def file(self, ending: str) -> Path:
        """The file of this run with an ending, ".json" or ".png" for example."""
        name = self.out.name
        stem = next((name.removesuffix(own) for own in ENDINGS if name.endswith(own) and name != own), name)
        return self.out.with_name(stem + ending)

    @property
    def longest(self) -> int:
        """Tokens of an answer at most."""
        return self.max_new_tokens or (8 if self.data == WORLD else 32)

    def to_dict(self) -> dict[str, Any]:
        """What a result file's header holds of them, JSON-safe."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("out", "vtc_filter")]
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def command(self) -> str:
        """The command line of this run."""
        words = ["arr-coc", "eval", "--out", str(self.out)]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "out" or value == field.default:
                continue
            flag = "--" + field.name.replace("_", "-").replace("allocators", "allocator")
            if isinstance(value, bool):
                words += [flag]
            elif field.name == "allocators":
                words += [word for spec in value for word in (flag, spec)]
            else:
                sign = "/" if field.name == "part" else ","
                words += [flag, sign.join(map(str, value)) if isinstance(value, tuple) else str(value)]
        return shlex.join(words)


def evaluate(settings: Settings, progress: bool = True) -> Summary:
    """Measure, write OUT.jsonl question by question, and OUT.json at the end.

    Args:
        settings: of the run.
        progress: show a bar on stderr.

    Returns:
        The summary that OUT.json holds.

    Raises:
        ValueError: what can't be loaded, read or answered, or a file of another run in the way; no image
            could be opened.
        KeyboardInterrupt: with a message that says how far it came; the file is whole.
    """
    total, metric, name, images = open_questions(settings)
    own, variants = split_allocators(settings.allocators)
    check_names(settings.methods, [label for label, _ in variants])
    model = ARRCOCModel.from_pretrained(
        None if settings.model == BUNDLED else settings.model,
        allocator=own,
        device=settings.device,
        dtype=settings.dtype,
        strict=True,
    )
    scorer = load_scorer(settings.query_blind, model)
    layers = [(label, load_variant(folder, model)) for label, folder in variants]
    methods, notes = pick_methods(model, settings.methods, layers, scorer)
    if settings.own_answers and FULL not in [method.name for method in methods]:
        raise ValueError(f"--own-answers are those of {FULL}: name it among --methods, too")
    if settings.vtc_filter:
        _check_filter([method.name for method in methods], notes)
    header = settings.to_dict() | {
        "split": settings.split or ("test" if settings.data == WORLD else None),
        "questions": total,
        "max_new_tokens": settings.longest,
        "methods": [method.name for method in methods],
        "kinds": {method.name: method.kind for method in methods},
        "metric": name,
        "notes": notes,
        "command": settings.command,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": _machine(model.device),
        "weights": {
            name: fingerprint(module)
            for name, module in (
                ("base", model.base),
                ("arr-coc", model.layer),
                ("query-blind", scorer),
                ("stem", model.stem),
                ("compressors", some_of(model.convs, CONVS)),
                ("tower compressors", some_of(model.convs, TOWERS)),
                ("LoRAs", model.loras if model.loras.kinds else None),
                *layers,
            )
            if module is not None
        },
    }
    header, records = open_file(settings.lines, header)
    harness = Harness(
        model,
        methods,
        metric,
        settings.budgets,
        total,
        timed=settings.timed,
        seed=settings.seed,
        rows=settings.rows,
        max_new_tokens=settings.longest,
        scorer=scorer,
    )
    try:
        sizes = len(records), len(harness.entries), len(harness.marks), settings.part[1]
        bar = Progress(total, *sizes, hidden=not progress)
        records = _ask(settings, harness, header, records, images, bar)
    except KeyboardInterrupt as error:
        mend_results(settings.lines)
        count = len(read_results(settings.lines)[1])
        message = f"stopped after {count:,} of {total:,} questions; the same command goes on from there"
        raise KeyboardInterrupt(message) from error
    summary = summarise(header, records, settings.vtc_filter)
    write_summary(settings.file(".json"), summary)
    if failed := summary.get("failed"):
        names = ", ".join(list(failed["images"])[:3]) + (", ..." if len(failed["images"]) > 3 else "")
        logger.warning(
            "%d of %d questions were not asked, for %d images could not be opened (%s): mend them and give "
            "the same command again",
            failed["questions"], len(records), len(failed["images"]), names,
        )  # fmt: skip
    return summary


def _ask(
    settings: Settings,
    harness: Harness,
    header: dict[str, Any],
    records: list[Record],
    images: Iterable[ImageQueries],
    progress: Progress,
) -> list[Record]:
    """Ask what the file doesn't have yet and write it there, image by image.

    Returns:
        All records of the run, in the order of its questions.
    """
    done = Counter(record["image"] for record in records)
    order: dict[str, int] = {}
    with progress:
        for number, (source, others) in enumerate(with_next(images)):
            count, key = len(source.queries), source.key
            if number % settings.part[1] != settings.part[0] - 1:  # another process has it
                progress.advance(count)
                harness.passed += count
                continue
            order |= {query.id: len(order) + i for i, query in enumerate(source.queries)}
            if 0 < done[key] < count:  # the run was killed while it wrote this image
                progress.advance(-done[key])
                records = [record for record in records if record["image"] != key]
                write_results(settings.lines, header, records)
            if done[key] < count:
                start = perf_counter()
                lines = _lines(harness, source, others)
                append_results(settings.lines, lines)
                records += lines
                measured = not any("ms" in line or ERROR in line for line in lines)
                progress.advance(count, perf_counter() - start if measured else None)
            harness.passed += count
    if [record["id"] for record in records] != list(order):  # an image that failed before was asked late
        records.sort(key=lambda record: order.get(record["id"], len(order)))
        write_results(settings.lines, header, records)
    return records


def _lines(harness: Harness, source: ImageQueries, others: Sequence[Query]) -> list[Record]:
    """The lines of one image's questions, with the reason where it can't be opened.

    Raises:
        ValueError: a box of the evidence is not one of this image.
    """
    try:
        image = open_image(source.image)
    except ValueError as error:
        reason = str(error)
        if isinstance(source.image, Path):  # results don't tell where on a disk the data lies
            name, folder = source.key.partition(":")[2], str(source.image.parent.absolute())
            reason = reason.replace(str(source.image), name).replace(folder, "its folder")
        return [{"id": query.id, "image": source.key, ERROR: reason} for query in source.queries]
    for query in source.queries:
        if query.example is not None:
            check_evidence(query.example, image.size)
    return harness.records(replace(source, image=image), others)


def open_questions(settings: Settings) -> tuple[int, Metric, str, Iterable[ImageQueries]]:
    """How many questions, their metric and its name, and the images with them.

    Raises:
        ValueError: as `data_questions`.
    """
    if settings.data == WORLD:
        count = settings.questions or 2000
        pages = world_questions(
            count, settings.size, settings.per_image, settings.split or "test", settings.seed
        )
        return count, exact_match, exact_match.__name__, pages
    own = bool(settings.own_answers)
    data, images = data_questions(settings.data, settings.split, settings.questions, own)
    metric = data.metric or loose_match
    name = getattr(metric, "__name__", "score")
    if not any(query.answers for source in images for query in source.queries):
        name = AGREEMENT
    return sum(len(source.queries) for source in images), metric, name, images


def open_file(path: Path, header: dict[str, Any]) -> tuple[dict[str, Any], list[Record]]:
    """Begin a result file, or go on with one of the same run: its header and the questions that were asked.

    A line that a kill has cut off is removed, and so are the questions whose image could not be opened, to be
    asked again; a warning says so.

    Raises:
        ValueError: the file is of another run, or no result file.
    """
    if not path.exists() or path.stat().st_size == 0:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_results(path, header)
        return header, []
    before, records = read_results(path)
    free = {"command", "kinds"}
    if not header["timed"]:  # times are of one machine
        free |= {"machine", "device"}
    now = json.loads(json.dumps(header))
    for name in [name for name in {**before, **now} if name not in free]:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{path} is of another run: its {name} is {short(before.get(name))}, now "
                f"{short(now.get(name))}; give another --out, or remove the file"
            )
    if mend_results(path):
        logger.warning("%s: its last line was cut off and is asked again", path)
    answered = [record for record in records if ERROR not in record]
    if len(answered) < len(records):
        logger.warning(
            "%s: %d questions whose images could not be opened are tried again",
            path, len(records) - len(answered),
        )  # fmt: skip
        write_results(path, before, answered)
    return before, answered


def _check_filter(methods: Sequence[str], notes: Mapping[str, str]) -> None:
    """Raise a ValueError, before anything is asked, where the filter would have nothing to compare."""
    for name in (FULL, DOWNSAMPLE):
        if name not in methods:
            reason = notes.get(name, "name it among --methods, too")
            raise ValueError(
                f"--vtc-filter scores what {FULL} answers and {DOWNSAMPLE} fails; {name}: {reason}"
            )


def _machine(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"processor": platform.machine(), "device": name, "threads": torch.get_num_threads()}


def some_of(modules: nn.ModuleDict, names: Iterable[str]) -> nn.ModuleDict | None:
    """Those modules of some names that there are, under their names; None for none."""
    picked = {name: modules[name] for name in names if name in modules}
    return nn.ModuleDict(picked) if picked else None
