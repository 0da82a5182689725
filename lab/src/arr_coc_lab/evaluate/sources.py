"""How much of the evidence sources of relevance keep on real pictures, beside nulls.

    rows = list(measure(open_all("guide,ocr,guide+ocr"), labelled("test", Path("pictures"))))
    summarise(rows)["all"]["guide"]["273"]      {"recall": 0.9, "whole": 0.7}

A budget is a number of 1,024 cells, scaled to each picture's grid. "whole" is the share of questions of which
all the evidence is kept. Nulls: "chance"; "ink", the density of ink; "ocr-words", literal words on the lines
of an OCR; "ocr-sentences", sentence vectors of its lines without a head; "X of another question", the source
X asked another picture's question.

"auc" is how well confidence tells questions that a picture answers from those labelled as not answerable;
"auc elsewhere" from questions labelled on another picture of the same kind, which can't be told by their
wording. A few of those ("What is the title?") have an answer here, too, so 1 is out of reach.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arr_coc.choose.boxes import Box
from arr_coc.data.evidence import evidence_cells
from arr_coc.files.images import open_image
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.coupling import Calibration, Coupling
from arr_coc.guide.guide import Guide, load_guide
from arr_coc.guide.lexicon import STOP_WORDS, stem
from arr_coc.guide.question import split_words
from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.ocr import OcrSource, OcrView, rapid_ocr
from arr_coc.relevance.source import PictureView, RelevanceSource, SumSource, SumView, cells_from_boxes
from arr_coc.relevance.sums import open_relevance
from arr_coc.selector import Sizing
from arr_coc_lab.evaluate.guide import auc
from arr_coc_lab.pictures.labels import Split, pictures
from arr_coc_lab.rivals.nulls import ink_density

BUDGETS = (57, 64, 114, 128, 228, 273)
OF = 1024  # cells that the budgets are shares of
OTHER = " of another question"


@dataclass(frozen=True)
class RealSample:
    """A real picture with its questions: (question, kind of question, evidence boxes in px)."""

    name: str
    kind: str
    image: Callable[[], Image.Image]
    questions: tuple[tuple[str, str, tuple[Box, ...]], ...]
    lines: tuple[PrintedLine, ...] | None = None  # as an OCR read them before; None: not known
    package: str = ""  # that it ships in; "" where that is not known


class SourceRow(NamedTuple):
    """One question by one method."""

    method: str
    picture: str
    kind: str
    ask: str
    question: str
    answerable: bool
    confidence: float
    recall: dict[int, float]  # by budget; empty for questions without an answer
    elsewhere: bool = False  # it is the question of another picture (`questions_elsewhere`)


def labelled(split: Split, folder: Path) -> Iterator[RealSample]:
    """Yield the project's own labelled pictures of a split, in a folder that `pictures.fetch` filled."""
    for one in pictures(split):
        path = folder / one.file
        if path.is_file():
            questions = tuple((q.text, q.ask, q.boxes) for q in one.questions)
            facts = (questions, one.lines, one.package)
            yield RealSample(one.file, one.kind, lambda path=path: open_image(path), *facts)


def in_folder(folder: Path) -> Iterator[RealSample]:
    """Pictures of a folder with `questions.jsonl`: image, kind, ask, question and boxes, a question a line,
    and package where it is known.
    """
    for name, rows in questions_of(folder).items():
        questions = tuple((row["question"], row["ask"], tuple(map(tuple, row["boxes"]))) for row in rows)
        facts = (questions, None, rows[0].get("package", ""))
        yield RealSample(name, rows[0]["kind"], lambda path=folder / name: open_image(path), *facts)


def questions_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a folder's `questions.jsonl` by the picture that they are about, in order of its
    name.
    """
    by_image: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        by_image[row["image"]].append(row)
    return dict(sorted(by_image.items()))


def questions_elsewhere(samples: Sequence[RealSample]) -> dict[str, tuple[str, ...]]:
    """Per picture the answerable questions of another one of the same kind, and of another package.

    Each question is asked of one other picture: of the one half-way round among those of the kind, in order
    of their packages. Questions that are labelled on a picture anyway are left out there.
    """
    by_kind: dict[str, list[RealSample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda one: (one.package, one.name)):
        by_kind[sample.kind].append(sample)
    made: dict[str, tuple[str, ...]] = {}
    for group in by_kind.values():
        for i, sample in enumerate(group):
            other = group[(i + len(group) // 2) % len(group)]
            alike = other is sample or (other.package == sample.package != "")
            own = {question for question, *_ in sample.questions}
            texts = (question for question, _, boxes in other.questions if boxes and question not in own)
            made[sample.name] = () if alike else tuple(texts)
    return made


class Chance:
    """Cells in a random order."""

    name, version, calibration = "chance", "1", None

    def view(self, picture: Tensor) -> PictureView:
        return ViewOfPicture((picture.shape[-2], picture.shape[-1]), picture)

    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        generator = torch.Generator().manual_seed(int(hashlib.sha1(question.encode()).hexdigest()[:8], 16))
        return Coupling(torch.rand(grid, generator=generator), 0.5)


class ViewOfPicture(NamedTuple):
    """A picture itself as the view of a null."""

    size: tuple[int, int]
    picture: Tensor

    @property
    def nbytes(self) -> int:
        return self.picture.nbytes


class Ink(Chance):
    """Cells with most ink first, whatever the question."""

    name = "ink"

    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        assert isinstance(view, ViewOfPicture)
        return Coupling(ink_density(view.picture, grid).view(grid), 0.5)


class OcrWords:
    """OCR and literal words: the share of a question's words (by their stems) that a line holds."""

    name, version, calibration = "ocr-words", "1", None

    def __init__(self, ocr: OcrSource) -> None:
        self.ocr = ocr

    def view(self, picture: Tensor) -> PictureView:
        return self.ocr.view(picture)

    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        assert isinstance(view, OcrView)
        scores = self.scores(view, question)
        cells = cells_from_boxes([line.box for line in view.lines], scores, grid, view.size, floor=-1.0)
        return Coupling(cells, min(1.0, max([*scores, 0.0])))

    def scores(self, view: OcrView, question: str) -> list[float]:
        """Return a score per line, highest for the likeliest."""
        own = {stem(word) for word in split_words(question) if word not in STOP_WORDS}
        return [
            len(own & {stem(word) for word in split_words(line.text)}) / max(1, len(own))
            for line in view.lines
        ]


class OcrSentences(OcrWords):
    """OCR and sentence vectors: the cosine of a question and each line, without a head."""

    name = "ocr-sentences"

    def scores(self, view: OcrView, question: str) -> list[float]:
        return (view.vectors @ self.ocr.sentences([question])[0]).tolist()


class Asked:
    """A source that is asked another picture's question."""

    calibration: Calibration | None = None

    def __init__(self, source: RelevanceSource) -> None:
        self.source, self.name, self.version = source, source.name + OTHER, source.version


@dataclass
class Cost:
    """What a method took: milliseconds per picture and per question, and bytes of views."""

    picture: list[float] = field(default_factory=list)
    question: list[float] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Medians."""
        return {
            "ms a picture": median(self.picture),
            "ms a question": median(self.question),
            "MB a picture": median(self.nbytes) / 1e6,
        }


def open_all(
    names: str, guide: Guide | None = None, ocr: OcrSource | None = None, nulls: bool = True
) -> dict[str, RelevanceSource | Asked]:
    """Return the sources of a list such as "guide,ocr,guide+ocr" by name, and with `nulls` those of this
    module.

    `ocr` takes the place of the source of that name.
    """
    guide = load_guide() if guide is None else guide
    made: dict[str, RelevanceSource | Asked] = {}
    for name in map(str.strip, names.split(",")):
        if ocr is None or "ocr" not in name.split("+"):
            made[name] = open_relevance(name, guide)
            continue
        parts = [ocr if part == "ocr" else open_relevance(part, guide) for part in name.split("+")]
        made[name] = SumSource(parts, guide)
    if nulls:
        first = next(iter(made.values()))
        assert not isinstance(first, Asked)
        others: list[RelevanceSource | Asked] = [Chance(), Ink(), Asked(first)]
        others += [] if ocr is None else [OcrWords(ocr), OcrSentences(ocr)]
        made |= {one.name: one for one in others}
    return made


def measure(
    sources: dict[str, RelevanceSource | Asked],
    samples: Iterable[RealSample],
    costs: dict[str, Cost] | None = None,
) -> Iterator[SourceRow]:
    """Ask every question of every picture of every source, and those of another picture of its kind; fills
    `costs`.
    """
    every = list(samples)
    elsewhere = questions_elsewhere(every)
    before: tuple[str, ...] = ()
    for sample in every:
        image = sample.image()
        pixels = image_pixels(image)[0]
        grid = Sizing().grid(image.height, image.width)
        views: dict[str, PictureView] = {}
        for name, source in sources.items():
            inner = source.source if isinstance(source, Asked) else source
            key = _key(inner)
            start = time.perf_counter()
            if key not in views:
                views[key] = _view(inner, pixels, sample)
            spent = 1000 * (time.perf_counter() - start)
            if costs is not None:
                cost = costs.setdefault(name, Cost())
                cost.picture.append(spent)
                cost.nbytes.append(views[key].nbytes)
        for number, (question, ask, boxes) in enumerate(sample.questions):
            evidence = evidence_cells(boxes, grid, image.size).flatten()
            other = before[number % len(before)] if before else "What is this?"
            for name, source in sources.items():
                inner, text = (source.source, other) if isinstance(source, Asked) else (source, question)
                start = time.perf_counter()
                coupling = inner.couple(views[_key(inner)], text, grid)
                if costs is not None:
                    costs[name].question.append(1000 * (time.perf_counter() - start))
                kept = kept_evidence(coupling.logits, evidence) if boxes else {}
                yield SourceRow(
                    name, sample.name, sample.kind, ask, question, bool(boxes), coupling.confidence, kept
                )
        for text in elsewhere[sample.name]:
            for name, source in sources.items():
                if not isinstance(source, Asked):
                    confidence = source.couple(views[_key(source)], text, grid).confidence
                    about = (sample.name, sample.kind, "elsewhere", text)
                    yield SourceRow(name, *about, False, confidence, {}, elsewhere=True)
        before = tuple(question for question, _, _ in sample.questions)


def _view(source: RelevanceSource, pixels: Tensor, sample: RealSample) -> PictureView:
    """Return the view of a picture; print that is known already isn't read again."""
    if isinstance(source, SumSource):
        return SumView(tuple(_view(part, pixels, sample) for part in source.sources))
    ocr = source.ocr if isinstance(source, OcrWords) else source
    if isinstance(ocr, OcrSource) and sample.lines is not None:
        return ocr.of_lines(sample.lines, (pixels.shape[-2], pixels.shape[-1]))
    return source.view(pixels)


def _key(source: Any) -> str:
    """Return what a source's views are kept under: nulls on the same OCR share them."""
    if isinstance(source, OcrWords):
        return "lines of an OCR"
    return "picture" if isinstance(source, Chance) else source.name


def kept_evidence(logits: Tensor, evidence: Tensor) -> dict[int, float]:
    """Return the share of the evidence, bool [N], among the best cells of a map, by BUDGETS."""
    order = logits.flatten().argsort(descending=True, stable=True)
    held = evidence[order].cumsum(0)
    counts = {budget: max(1, round(budget / OF * len(evidence))) for budget in BUDGETS}
    return {budget: float(held[count - 1] / held[-1]) for budget, count in counts.items()}


def summarise(rows: Sequence[SourceRow]) -> dict[str, dict[str, Any]]:
    """By group (all, a kind of picture, "ask KIND") and method: recall and whole by budget, questions, and of
    all and of kinds of pictures AUC.
    """
    groups: dict[str, dict[str, list[SourceRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for group in ("all", row.kind) if row.elsewhere else ("all", row.kind, f"ask {row.ask}"):
            groups[group][row.method].append(row)
    made: dict[str, dict[str, Any]] = {}
    for group, by_method in groups.items():
        made[group] = {}
        for method, own in by_method.items():
            answered = [row for row in own if row.answerable]
            if not answered:
                continue
            facts: dict[str, Any] = {"questions": len(answered)}
            for budget in BUDGETS:
                kept = [row.recall[budget] for row in answered]
                facts[str(budget)] = {"recall": fmean(kept), "whole": fmean(one == 1 for one in kept)}
            sure = [row.confidence for row in answered]
            vain = [row.confidence for row in own if not row.answerable and not row.elsewhere]
            if vain and group == "all":
                facts["auc"] = auc(sure, vain)
            if foreign := [row.confidence for row in own if row.elsewhere]:
                facts["auc elsewhere"] = auc(sure, foreign)
            made[group][method] = facts
    return {group: methods for group, methods in made.items() if methods}


def remembered(folder: Path) -> Callable[[np.ndarray], list[PrintedLine]]:
    """RapidOCR that reads each picture once: its lines are kept in a folder, by the picture's SHA-1."""
    folder.mkdir(parents=True, exist_ok=True)

    def read(pixels: np.ndarray) -> list[PrintedLine]:
        path = folder / f"{hashlib.sha1(pixels.tobytes()).hexdigest()}.json"
        if not path.is_file():
            path.write_text(json.dumps(list(rapid_ocr()(pixels))), encoding="utf-8")
        return [PrintedLine(text, tuple(box)) for text, box in json.loads(path.read_text(encoding="utf-8"))]

    return read


def sampled(samples: Iterable[RealSample], share: float, seed: int = 0) -> Iterator[RealSample]:
    """Return a random share of samples."""
    rng = random.Random(seed)
    return (sample for sample in samples if rng.random() < share)


def join_table(file: Path, name: str, table: dict[str, Any]) -> None:
    """Write a table into a result file under its name, with numbers of four decimals; others stay as they
    are.
    """
    tables = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    tables[name] = rounded(table)
    file.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Figures for a file: four digits after the point, within dicts too."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value
