"""One image of a run: its questions, answered by every method with every budget, as lines of the result file.

    Harness(model, methods, metric, ...).records(asked, others) -> [record, ...]

Laws: a record depends on the image, its questions, the next image's and the run's seed, but for the times; an
image is encoded once (and once for each smaller size); every selection is answered in `answering`'s batches.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from arr_coc.attending import Budget, budget_count
from arr_coc.data import Metric
from arr_coc.evaluate.answering import Prompts, Row, answer_compacted, answer_rows, visual_tokens
from arr_coc.evaluate.fastv import fastv_answers
from arr_coc.evaluate.methods import (
    DOWNSAMPLE,
    FASTV,
    FULL,
    Method,
    cut_layer,
    shrink,
    smaller_grid,
)
from arr_coc.evaluate.questions import Asked, Query, shuffled
from arr_coc.evaluate.results import Record, encode_kept
from arr_coc.evaluate.timing import Encoded, Trial, measure, peak_megabytes, time_encoding
from arr_coc.evaluate.view import View, encode
from arr_coc.images import open_image
from arr_coc.model import ARRCOCModel
from arr_coc.modes.call import EncodedImages
from arr_coc.realize import Stopwatch
from arr_coc.rivals import QueryBlindScorer, Selection
from arr_coc.seam import VisualFeatures
from arr_coc.session import Session

logger = logging.getLogger(__name__)

PEAKS = 3
"""So many timed questions also have their memory measured."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A method with one of the run's budgets; `budget` is None for "full" and for fixed methods."""

    method: Method
    budget: Budget | None

    @property
    def label(self) -> str:
        """As in result files."""
        return self.method.name if self.budget is None else f"{self.method.name}@{self.budget}"

    def count(self, total: int) -> int | Literal["auto"]:
        """Cells to keep of `total`; what a fixed method keeps is its own affair."""
        budget = self.budget
        if budget is None or budget == "auto":
            return total if budget is None else "auto"
        return min(budget, total) if isinstance(budget, int) else budget_count(budget, total)


class Scene:
    """One image of a run, opened and encoded once.

    Args:
        model: that answers.
        asked: the image and its questions.
        others: the questions of another image.
        watched: the vision tower is watched.
        seed: of the run.
        scorer: a trained query-blind scorer, if there is one.
    """

    def __init__(
        self,
        model: ARRCOCModel,
        asked: Asked,
        others: Sequence[Query] = (),
        *,
        watched: bool = False,
        seed: int = 0,
        scorer: QueryBlindScorer | None = None,
    ) -> None:
        self.model, self.asked = model, asked
        self.image = open_image(asked.image)
        self.session = Session(model, self.image)
        self.texts = [query.text for query in asked.queries]
        inputs = [self.session.inputs(text) for text in self.texts]
        features, tower = encode(model, inputs[0], watched)
        other = [None if t is None else self.session.inputs(t) for t in shuffled(asked.queries, others)]
        self.view = View(model, asked, inputs, features, tower, self.image.size, seed, other, scorer)
        self.prompts = Prompts(self.session, self.texts)
        self._small: dict[tuple[int, int], Scene] = {}

    def smaller(self, count: int) -> Scene:
        """The same questions about the image in at most `count` cells."""
        grid = smaller_grid(self.view.grid[1:], count)
        if grid == self.view.grid[1:]:
            return self
        if grid not in self._small:
            small = shrink(self.image, grid, self.model)
            self._small[grid] = Scene(self.model, replace(self.asked, image=small))
        return self._small[grid]


@dataclass
class Answers:
    """What one entry did with the questions of an image; by number of the question."""

    said: dict[int, str] = dataclasses.field(default_factory=dict)
    tokens: dict[int, float] = dataclasses.field(default_factory=dict)
    keep: dict[int, Tensor] = dataclasses.field(default_factory=dict)


class Harness:
    """Everything that stays the same from image to image.

    Args:
        model: that answers.
        methods: that are compared.
        metric: scores an answer.
        budgets: of each method.
        total: questions in all.
        timed: so many of them, evenly spread, are also run alone.
        seed: of what is random.
        rows: most rows in one forward.
        max_new_tokens: where an answer is cut off.
        scorer: a trained query-blind scorer, if there is one.

    Attributes:
        passed: questions of earlier images; says which of an image are timed.
    """

    def __init__(
        self,
        model: ARRCOCModel,
        methods: Sequence[Method],
        metric: Metric,
        budgets: Sequence[Budget],
        total: int,
        *,
        timed: int = 0,
        seed: int = 0,
        rows: int = 64,
        max_new_tokens: int = 8,
        scorer: QueryBlindScorer | None = None,
    ) -> None:
        self.model, self.metric, self.scorer, self.seed = model, metric, scorer, seed
        self.rows, self.max_new_tokens = rows, max_new_tokens
        self.entries = [Entry(method, None) for method in methods if method.name == FULL]
        self.entries += [
            Entry(method, budget)
            for budget in budgets
            for method in methods
            if method.name != FULL and not method.fixed and (budget != "auto" or method.auto)
        ]
        self.entries += [Entry(method, None) for method in methods if method.fixed]
        self.watched = any("tower" in method.needs for method in methods)
        timed = min(timed, total)
        self.marks = {math.floor((j + 0.5) * total / timed): j for j in range(timed)}
        self.passed = 0
        self._warm = False

    @torch.no_grad()
    def records(self, asked: Asked, others: Sequence[Query]) -> list[Record]:
        """The lines of one image's questions."""
        scene = Scene(self.model, asked, others, watched=self.watched, seed=self.seed, scorer=self.scorer)
        answers = self._answers(scene)
        records = [self._record(scene, answers, i) for i in range(len(asked.queries))]
        for i, record in enumerate(records):
            if self.passed + i in self.marks:
                record |= self._times(scene, i, self.marks[self.passed + i])
        return records

    def _answers(self, scene: Scene) -> dict[str, Answers]:
        """All entries, those that select cells together."""
        view, everyone = scene.view, range(len(scene.texts))
        answers = {entry.label: Answers() for entry in self.entries}
        rows: list[tuple[str, Row]] = []
        known: dict[str, EncodedImages] = {}
        for entry in self.entries:
            method, count, told = entry.method, entry.count(view.total), answers[entry.label]
            if method.name == FASTV:
                self._fastv(scene, count, told)
            elif method.name == DOWNSAMPLE:
                self._downsample(scene, count, told)
            elif method.prepare is not None:
                whole = view.features if "encoded" in method.needs else None
                shared = known.setdefault(method.name, EncodedImages(whole))
                self._prepared(scene, entry, shared, told)
            else:
                chosen, adapted = _choose(method, view, count), method.mode != "full"
                rows += [(entry.label, Row(i, chosen[i], adapted)) for i in everyone if i in chosen]
        texts = self._say(scene.prompts, view.features, [row for _, row in rows])
        for (label, row), text in zip(rows, texts, strict=True):
            told, kept = answers[label], row.chosen.keep
            told.said[row.question] = text
            told.tokens[row.question] = len(kept) + view.features.counts[0] - view.total
            if label != FULL:
                told.keep[row.question] = kept
        return answers

    def _say(self, prompts: Prompts, features: VisualFeatures, rows: Sequence[Row]) -> list[str]:
        return answer_rows(prompts, features, rows, most=self.rows, max_new_tokens=self.max_new_tokens)

    def _fastv(self, scene: Scene, count: int | Literal["auto"], told: Answers) -> None:
        assert count != "auto", "only ours is asked to choose how many"
        numbers = list(range(len(scene.texts)))
        for start in range(0, len(numbers), self.rows):
            part = numbers[start : start + self.rows]
            ran = fastv_answers(
                self.model,
                scene.prompts.rows(part, whole=True),
                scene.view.features.repeat(len(part)),
                count,
                layer=cut_layer(self.model),
                max_new_tokens=self.max_new_tokens,
            )
            texts = self.model.processor.tokenizer.batch_decode(ran.ids, skip_special_tokens=True)
            told.said |= {i: text.strip() for i, text in zip(part, texts, strict=True)}
            told.tokens |= dict.fromkeys(part, round(ran.mean_tokens, 2))
            told.keep |= dict(zip(part, ran.keep, strict=True))

    def _downsample(self, scene: Scene, count: int | Literal["auto"], told: Answers) -> None:
        assert count != "auto", "only ours is asked to choose how many"
        small = scene.smaller(count)
        if small.view.total > count:
            least = f"the processor makes at least {small.view.total} cells of it"
            logger.warning("image %s can't be shrunk to %d cells: %s", scene.asked.key, count, least)
            return
        rows = [Row(i, _whole(small.view)) for i in range(len(scene.texts))]
        told.said = dict(enumerate(self._say(small.prompts, small.view.features, rows)))
        told.tokens = dict.fromkeys(told.said, small.view.total)

    def _prepared(self, scene: Scene, entry: Entry, known: EncodedImages, told: Answers) -> None:
        method, view = entry.method, scene.view
        assert method.prepare is not None, "asked only of methods that prepare"
        budget = None if entry.budget is None else entry.count(view.total)
        watch = Stopwatch(self.model.device)
        ready = {i: method.prepare(view, i, budget, known, watch) for i in _answerable(method, view)}
        compacted = [one.compacted for one in ready.values()]
        options = {"most": self.rows, "max_new_tokens": self.max_new_tokens}
        told.said = dict(
            zip(ready, answer_compacted(self.model, compacted, method.mode, **options), strict=True)
        )
        told.tokens = {i: visual_tokens(self.model, one.compacted) for i, one in ready.items()}
        told.keep = {i: one.keep for i, one in ready.items() if one.keep is not None}

    def _record(self, scene: Scene, answers: dict[str, Answers], i: int) -> Record:
        view, query = scene.view, scene.asked.queries[i]
        evidence = view.evidence(i)
        told = {label: answer for label, answer in answers.items() if i in answer.said}
        kept = {label: answer.keep[i].cpu() for label, answer in told.items() if i in answer.keep}
        record = {
            "id": query.id,
            "image": scene.asked.key,
            "family": query.family,
            "template": query.template,
            "question": query.text,
            "answers": list(query.answers),
            "total": view.total,
            "grid": list(view.grid),
            "evidence": None if evidence is None else int(evidence.sum()),
            "said": {label: answer.said[i] for label, answer in told.items()},
            "score": {
                label: round(self.metric(answer.said[i], query.answers), 4) for label, answer in told.items()
            },
            "kept": {label: encode_kept(keep, view.total) for label, keep in kept.items()},
            "tokens": {label: answer.tokens[i] for label, answer in told.items()},
        }
        if evidence is not None:
            truth = evidence.flatten()
            record["recall"] = {
                label: round((truth[keep].sum() / truth.sum()).item(), 4) for label, keep in kept.items()
            }
        following = (i + 1) % len(scene.texts)
        if following != i:
            record["swap"] = {
                label: _iou(keep, answers[label].keep[following].cpu())
                for label, keep in kept.items()
                if following in answers[label].keep
            }
        return record if query.template else {name: v for name, v in record.items() if name != "template"}

    # ---- alone ----------------------------------------------------------------------------------------

    def _times(self, scene: Scene, i: int, number: int) -> Record:
        """Times, and for the first few questions memory, of every entry on one question alone."""
        trials = {entry.label: self._trial(scene, entry, i) for entry in self.entries}
        runs = [(label, trial) for label, trial in trials.items() if trial is not None]
        turn = number % len(runs)  # whoever comes first finds other caches
        if not self._warm:
            _measure_all(runs)
            self._warm = True
        ms = _measure_all(runs[turn:] + runs[:turn])
        found: Record = {"ms": {label: ms[label] for label, _ in runs}}
        if number < PEAKS:
            device = self.model.device
            found["peak_mb"] = {label: round(_peak(trial, device), 1) for label, trial in runs}
        return found

    def _trial(self, scene: Scene, entry: Entry, i: int) -> Trial | None:
        """None where the entry doesn't answer this question."""
        count = entry.count(scene.view.total)
        if not entry.method.timed or i not in _answerable(entry.method, scene.view):
            return None
        if entry.method.fixed:
            return Trial(entry.method, None, scene.view, i, scene.view.prompts[i])
        if entry.method.name == DOWNSAMPLE:
            assert count != "auto", "only ours is asked to choose how many"
            small = scene.smaller(count)
            inputs = small.view.prompts[i]
            return Trial(entry.method, None, small.view, i, inputs) if small.view.total <= count else None
        return Trial(entry.method, count, scene.view, i, scene.view.prompts[i])


def _measure_all(runs: Sequence[tuple[str, Trial]]) -> dict[str, dict[str, float]]:
    """Times by label; what several encode in the same way is encoded once."""
    encoded: dict[tuple[int, bool], Encoded] = {}
    ms: dict[str, dict[str, float]] = {}
    for label, trial in runs:
        if trial.method.prepare is not None:
            ms[label] = measure(trial)
            continue
        key = (id(trial.inputs), trial.watched)
        if key not in encoded:
            encoded[key] = time_encoding(trial)
        ms[label] = measure(trial, encoded[key])
    return ms


def _peak(trial: Trial, device: torch.device) -> float:
    if trial.method.prepare is not None:
        return peak_megabytes(lambda: measure(trial), device)
    return peak_megabytes(lambda: measure(trial, time_encoding(trial)), device)


def _whole(view: View) -> Selection:
    return Selection(torch.arange(view.total, device=view.tokens.device))


def _answerable(method: Method, view: View) -> list[int]:
    """The questions that the method can answer."""
    numbers = range(len(view.prompts))
    return [i for i in numbers if "other" not in method.needs or view.others[i] is not None]


def _choose(method: Method, view: View, count: int | Literal["auto"]) -> dict[int, Selection]:
    """The selection for each question that the method can answer."""
    numbers = _answerable(method, view)
    if method.choose is None:
        return dict.fromkeys(numbers, _whole(view))
    if not method.by_question:
        return dict.fromkeys(numbers, method.choose(view, 0, count))
    return {i: method.choose(view, i, count) for i in numbers}


def _iou(a: Tensor, b: Tensor) -> float:
    """Cells in both over cells in either, of two sets of indices."""
    both = int(torch.isin(a, b).sum())
    return round(both / (len(a) + len(b) - both), 4)
