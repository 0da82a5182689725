"""An evaluation run: methods x budgets x questions on one model, one JSON line per question.

    summary = evaluate(Settings(out=Path("runs/out/bundled"), budgets=(273, 64)))

Equal settings give equal files but for the times. A stopped run goes on with the first image that is
incomplete in its file, and ends in the same file.
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

from arr_coc.choose.budget import Budget, parse_budget
from arr_coc.data import Metric
from arr_coc.data.metrics import exact_match, loose_match
from arr_coc.data.record import check_evidence
from arr_coc.files.images import open_image
from arr_coc.files.validation import short
from arr_coc.model import ARRCOCModel
from arr_coc.relevance.names import OF_MODELS, parse_relevance
from arr_coc.store.allocator import fingerprint
from arr_coc_lab.evaluate.methods import (
    check_names,
    load_scorer,
    load_variant,
    pick_methods,
    split_allocators,
)
from arr_coc_lab.evaluate.pixel_limits import cell_side, limit_pictures
from arr_coc_lab.evaluate.progress import Progress
from arr_coc_lab.evaluate.questions import ImageQueries, Query, data_questions, with_next, world_questions
from arr_coc_lab.evaluate.scene import Harness
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
from arr_coc_lab.results.like import ALWAYS, PublishedSet, PublishedTable, find_table
from arr_coc_lab.results.summary import Summary
from arr_coc_lab.world import PAGES, pages_of
from arr_coc_lab.world.summary import summarise

WORLD, BUNDLED = "world", "bundled"
AGREEMENT = "agreement"
"""The metric's name where no question has an answer: equality with the model's answer from all tokens."""
ENDINGS = (".jsonl", ".json", ".png")  # of a run's files; the run's name may carry any of them

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The settings of a run; all but `out`, `vtc_filter` and `command` decide its lines.

    Raises:
        ValueError: a value out of range.
    """

    out: Path  # OUT.jsonl and OUT.json are written; an ending .jsonl, .json or .png is ignored
    data: str = WORLD  # "world", or `NAME:DIR` for `arr_coc_lab.data.open_data`
    model: str = BUNDLED  # folder or name of the base model, or "bundled"
    # "FOLDER" in place of the model's own, "NAME=FOLDER" for one more method arr-coc:NAME
    allocators: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None  # names of `METHODS`; None: all that can run on the model
    # visual tokens to keep: counts, fractions, "auto" (ours alone); 57, 114 and 228 of 1,024 are the shares
    # that papers state (5.6, 11.1 and 22.2 %). Counts above an image's cells keep all of them. Methods of
    # fixed cost ("arr-coc saccade", "coc ...") have one row
    budgets: tuple[Budget, ...] = (273, 228, 128, 114, 64, 57, "auto")
    questions: int | None = None  # how many; None: 2000 of the world, all of a data set
    size: int = 1024  # side of drawn pages, px
    split: str | None = None  # of the data; None: "test" of the world, the data set's usual one
    per_image: int = 5  # most questions about a drawn page
    timed: int = 0  # so many questions, evenly spread, are also run alone and timed
    rows: int = 64  # most rows in one forward
    max_new_tokens: int | None = None  # of an answer; None: 8 on the world, else 32
    seed: int = 0  # of random choices; on the world also of the pages drawn, different ones for every seed
    # file of a trained query-blind scorer; None: the bundled one, for the bundled model
    query_blind: str | None = None
    # (i, n): every n-th image from the i-th on; `results.join_results` joins the files of n processes
    part: tuple[int, int] = (1, 1)
    device: str | None = None  # of the model; None: the CPU
    dtype: str | None = None  # of the base model's weights; None: as saved
    # what says which cells a question needs, as of `ARRCOCModel`; None, as in files of earlier runs: "auto"
    relevance: str | None = None
    # score questions without an answer against the model's own from all tokens; None: refuse
    own_answers: bool | None = None
    # a published table, by whose settings the run goes (`results.like`); decides budgets, split and `longest`
    like: str | None = None
    vtc_filter: bool = False  # OUT.json scores only questions that downsampling fails; OUT.jsonl is unchanged

    def __post_init__(self) -> None:
        budgets = tuple(dict.fromkeys(parse_budget(budget) for budget in self.budgets))
        if not budgets:
            raise ValueError("there is no budget: give counts, fractions or auto, such as 273,64,auto")
        object.__setattr__(self, "budgets", budgets)
        if self.like is not None:
            self._follow(find_table(self.like))
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
        if self.relevance is not None:
            parse_relevance(self.relevance)
        pages_of(self.seed)  # raises for a seed out of range
        if self.data == WORLD and (self.questions or 0) > PAGES:
            raise ValueError(f"questions {self.questions} are too many: use at most {PAGES:,}")
        if self.out.name in ("", "..") or self.out.suffix == ".gz":
            raise ValueError(f"out {str(self.out)!r} is no name for OUT.jsonl: give one such as arr-coc-eval")

    def _follow(self, table: PublishedTable) -> None:
        """Take budgets, split, methods and the longest answer of a table; ValueError for others."""
        one = self.published_set
        assert one is not None, "called for runs that are like a table"
        budgets = tuple(parse_budget(budget) for budget in table.budgets)
        if self.budgets not in (budgets, Settings.budgets):
            raise ValueError(
                f"budgets {self.budgets} are not those of the table ({', '.join(map(str, budgets))}): "
                "leave them out"
            )
        methods = dict.fromkeys((*ALWAYS, *table.rivals, *(self.methods or ())))
        for name, value in (
            ("budgets", budgets),
            ("split", one.split),
            ("methods", tuple(methods)),
            ("max_new_tokens", one.answer_tokens or self.max_new_tokens),
        ):
            object.__setattr__(self, name, value)

    @property
    def published_set(self) -> PublishedSet | None:
        """The data set of the table that the run is like; ValueError if the table has it not."""
        if self.like is None:
            return None
        name = self.data.partition(":")[0].strip().lower()
        return find_table(self.like).set_of(name, self.split)

    @property
    def lines(self) -> Path:
        """OUT.jsonl."""
        return self.file(".jsonl")

    def file(self, ending: str) -> Path:
        """Return the path of this run's file with an ending such as ".json"."""
        name = self.out.name
        stem = next((name.removesuffix(own) for own in ENDINGS if name.endswith(own) and name != own), name)
        return self.out.with_name(stem + ending)

    @property
    def longest(self) -> int:
        """Most tokens of an answer."""
        return self.max_new_tokens or (8 if self.data == WORLD else 32)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-safe settings in a result file's header."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("out", "vtc_filter")]
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def command(self) -> str:
        """The command line of this run."""
        words = ["arr-coc", "eval", "--out", str(self.out)]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "out" or (value == field.default and field.name != "timed"):
                continue  # `timed` has another default on the command line
            if self.like is not None and field.name in ("budgets", "methods", "max_new_tokens"):
                continue  # the table's
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
    """Run an evaluation: write OUT.jsonl image by image, then the summary OUT.json, which is returned.

    The questions of an image that can't be opened get a line with the reason instead of scores, and are asked
    again when the same run is started again. `progress` shows a bar on stderr.

    Raises:
        ValueError: what can't be loaded, read or answered, a file of another run in the way, or no image
            could be opened.
        KeyboardInterrupt: with a message that tells how far it came; the file is complete up to there.
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
        relevance=settings.relevance or "auto",
    )
    limits = None if settings.like is None else find_table(settings.like).limits
    if limits is not None:
        limit_pictures(model, *limits)
    scorer = load_scorer(settings.query_blind, model)
    layers = [(label, load_variant(folder, model)) for label, folder in variants]
    methods, notes = pick_methods(model, settings.methods, layers, scorer)
    if settings.own_answers and FULL not in [method.name for method in methods]:
        raise ValueError(f"--own-answers are those of {FULL}: name it among --methods, too")
    if settings.vtc_filter:
        _check_filter([method.name for method in methods], notes)
    source = model.chooser.source if settings.relevance not in (None, *OF_MODELS) else None
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
                ("tower compressors", model.compressors or None),
                ("LoRAs", model.loras if model.loras.kinds else None),
                *layers,
            )
            if module is not None
        }
        | ({} if source is None else {"relevance": source.version}),
    }
    if settings.like is not None:
        header |= {"token_limits": limits, "token_px": cell_side(model)}
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
    """Ask what the file lacks and append it image by image; all records in the order of the questions."""
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
    """Return the lines of one image's questions, with the reason where it can't be opened."""
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
    """Return the number of questions, their metric and its name, and the images with them."""
    if settings.data == WORLD:
        count = settings.questions or 2000
        pages = world_questions(
            count, settings.size, settings.per_image, settings.split or "test", settings.seed
        )
        return count, exact_match, exact_match.__name__, pages
    own = bool(settings.own_answers)
    like = settings.published_set
    prompt = None if like is None else like.prompt
    data, images = data_questions(settings.data, settings.split, settings.questions, own, prompt)
    metric = data.metric or loose_match
    name = getattr(metric, "__name__", "score")
    if not any(query.answers for source in images for query in source.queries):
        name = AGREEMENT
    return sum(len(source.queries) for source in images), metric, name, images


def open_file(path: Path, header: dict[str, Any]) -> tuple[dict[str, Any], list[Record]]:
    """Begin a result file or resume one of the same run: its header and the answered records.

    A line cut off by a kill and questions whose image could not be opened are removed, with a warning, to be
    asked again.

    Raises:
        ValueError: the file is of another run, or no result file.
    """
    if not path.exists() or path.stat().st_size == 0:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_results(path, header)
        return header, []
    before, records = read_results(path)
    free = {"command", "kinds"}  # may differ between starts of one run
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
    """Raise ValueError before anything is asked if the filter lacks a method that it compares."""
    for name in (FULL, DOWNSAMPLE):
        if name not in methods:
            reason = notes.get(name, "name it among --methods, too")
            raise ValueError(
                f"--vtc-filter scores what {FULL} answers and {DOWNSAMPLE} fails; {name}: {reason}"
            )


def _machine(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"processor": platform.machine(), "device": name, "threads": torch.get_num_threads()}
