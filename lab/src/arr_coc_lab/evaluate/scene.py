"""The answers of every method and budget to the questions of one image, as lines of a result file.

    Harness(model, methods, metric, ...).records(source, others) -> [record, ...]

Equal inputs and seed give equal records but for the times; an image is encoded once (and once per smaller
size).
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import Budget, budget_count
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.data import Metric
from arr_coc.files.images import open_image
from arr_coc.model import ARRCOCModel
from arr_coc.modes import find_mode
from arr_coc.modes.call import EncodedImages
from arr_coc.seam import VisualFeatures
from arr_coc.session import Session
from arr_coc_lab.evaluate.answering import CellPrompt, Prompts, answer_compacted, answer_rows, visual_tokens
from arr_coc_lab.evaluate.hits import is_hit
from arr_coc_lab.evaluate.layer_pruning import cut_layer, pruned_answers
from arr_coc_lab.evaluate.pixel_limits import without_least
from arr_coc_lab.evaluate.questions import ImageQueries, Query, shuffled
from arr_coc_lab.evaluate.timing import Encoded, Trial, measure, peak_megabytes, time_encoding
from arr_coc_lab.evaluate.turns import turn_before
from arr_coc_lab.evaluate.view import View, encode
from arr_coc_lab.results.files import Record, encode_kept
from arr_coc_lab.results.kinds import FULL
from arr_coc_lab.rivals import QueryBlindScorer
from arr_coc_lab.rivals.method import Count, Method
from arr_coc_lab.rivals.reduction import Reduction

logger = logging.getLogger(__name__)

PEAKS = 3  # so many timed questions also have their memory measured


@dataclass(frozen=True, eq=False)
class SceneEntry:
    """A method with one of the run's budgets; None for all tokens and for methods of fixed cost."""

    method: Method
    budget: Budget | None

    @property
    def label(self) -> str:
        """The name in result files."""
        return self.method.name if self.budget is None else f"{self.method.name}@{self.budget}"

    def count(self, total: int) -> Count:
        """Cells to keep of `total`; ignored by a method of fixed cost."""
        budget = self.budget
        if budget is None or budget == "auto":
            return total if budget is None else "auto"
        return min(budget, total) if isinstance(budget, int) else budget_count(budget, total)


class Scene:
    """One image of a run, opened and encoded once, with its questions and those of another image (`others`).

    `watched` also records the vision tower's attention.
    """

    def __init__(
        self,
        model: ARRCOCModel,
        source: ImageQueries,
        others: Sequence[Query] = (),
        *,
        watched: bool = False,
        seed: int = 0,
        scorer: QueryBlindScorer | None = None,
    ) -> None:
        self.model, self.source = model, source
        self.image = open_image(source.image)
        self.session = Session(model, self.image)
        self.texts = [query.text for query in source.queries]
        inputs = [self.session.inputs(text) for text in self.texts]
        features, tower = encode(model, inputs[0], watched)
        other = [None if t is None else self.session.inputs(t) for t in shuffled(source.queries, others)]
        size = self.image.size
        self.view = View(model, source, inputs, features, tower, size, seed, other, scorer, self.image)
        self.prompts = Prompts(self.session, self.texts)
        self._small: dict[tuple[int, int], Scene] = {}

    def resized(self, method: Method, count: int) -> Scene:
        """Return the same questions about the image shrunk to the method's grid for a count of cells."""
        assert method.resize is not None, "called for methods that resize"
        grid = method.resize(self.view.grid[1:], count)
        if grid == self.view.grid[1:]:
            return self
        if grid not in self._small:
            small = resize_to_grid(self.image, grid, self.model)
            with without_least(self.model):
                self._small[grid] = Scene(self.model, replace(self.source, image=small))
        return self._small[grid]


def resize_to_grid(image: Image.Image, grid: tuple[int, int], model: ARRCOCModel) -> Image.Image:
    """Return the image resized to exactly `grid` (H, W) cells of a Qwen model."""
    vision = model.config.vision_config
    cell = vision.patch_size * vision.spatial_merge_size
    return image.resize((grid[1] * cell, grid[0] * cell), Image.Resampling.LANCZOS)


@dataclass
class Answers:
    """The answers of one entry to the questions of an image, by number of the question.

    `tokens` are the visual tokens read, the mean over layers; `keep` long [K], where they are cells of this
    image; `allocations` those of methods that make one.
    """

    texts: dict[int, str] = dataclasses.field(default_factory=dict)
    tokens: dict[int, float] = dataclasses.field(default_factory=dict)
    keep: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    allocations: dict[int, Allocation] = dataclasses.field(default_factory=dict)


class Harness:
    """Answers and scores image after image with fixed methods, metric and budgets.

    Of `total` questions, `timed` ones, evenly spread, are also run alone; `passed` counts those of earlier
    images. A forward has at most `rows` rows.
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
        self.entries = [SceneEntry(method, None) for method in methods if method.kind == "full"]
        self.entries += [
            SceneEntry(method, budget)
            for budget in budgets
            for method in methods
            if method.kind != "full" and not method.fixed and (budget != "auto" or method.auto)
        ]
        self.entries += [SceneEntry(method, None) for method in methods if method.fixed]
        self.watched = any("tower" in method.needs for method in methods)
        timed = min(timed, total)
        # question number -> which timed one
        self.marks = {math.floor((j + 0.5) * total / timed): j for j in range(timed)}
        self.passed = 0
        self._warm = False

    @torch.no_grad()
    def records(self, source: ImageQueries, others: Sequence[Query]) -> list[Record]:
        """Return the lines of one image's questions."""
        scene = Scene(self.model, source, others, watched=self.watched, seed=self.seed, scorer=self.scorer)
        answers = self._answers(scene)
        records = [self._record(scene, answers, i) for i in range(len(source.queries))]
        for i, record in enumerate(records):
            if self.passed + i in self.marks:
                record |= self._times(scene, i, self.marks[self.passed + i])
        return records

    def _answers(self, scene: Scene) -> dict[str, Answers]:
        """Return the answers of all entries; those that select cells share batches."""
        view, everyone = scene.view, range(len(scene.texts))
        answers = {entry.label: Answers() for entry in self.entries}
        rows: list[tuple[SceneEntry, CellPrompt]] = []
        for entry in self.entries:
            method, count, own = entry.method, entry.count(view.total), answers[entry.label]
            if method.between_layers is not None:
                self._between_layers(scene, method, count, own)
            elif method.resize is not None:
                self._resized(scene, method, count, own)
            elif method.prepare is not None:
                whole = view.features if "encoded" in method.needs else None
                shared = view.encoded(method.name, whole)
                self._prepared(scene, entry, shared, own)
            else:
                kept, adapted = _select(method, view, count), not find_mode(method.mode).stock
                rows += [(entry, CellPrompt(i, kept[i], adapted)) for i in everyone if i in kept]
        texts = self._answer(scene.prompts, view.features, [row for _, row in rows])
        for (entry, row), text in zip(rows, texts, strict=True):
            own, keep = answers[entry.label], row.kept.keep
            own.texts[row.question] = text
            # kept cells, and visual tokens that are no cells
            own.tokens[row.question] = len(keep) + view.features.counts[0] - view.total
            if entry.method.kind != "full":
                own.keep[row.question] = keep
            if row.kept.allocation is not None:
                own.allocations[row.question] = row.kept.allocation
        return answers

    def _answer(self, prompts: Prompts, features: VisualFeatures, rows: Sequence[CellPrompt]) -> list[str]:
        return answer_rows(prompts, features, rows, most=self.rows, max_new_tokens=self.max_new_tokens)

    def _between_layers(self, scene: Scene, method: Method, count: Count, own: Answers) -> None:
        assert count != "auto", "only ours chooses how many"
        assert method.between_layers is not None, "called for methods that drop between layers"
        numbers = list(range(len(scene.texts)))
        for start in range(0, len(numbers), self.rows):
            part = numbers[start : start + self.rows]
            run = pruned_answers(
                self.model,
                scene.prompts.rows(part, whole=True),
                scene.view.features.repeat(len(part)),
                method.between_layers,
                count,
                layer=cut_layer(self.model, method.layers),
                max_new_tokens=self.max_new_tokens,
            )
            texts = self.model.processor.tokenizer.batch_decode(run.ids, skip_special_tokens=True)
            own.texts |= {i: text.strip() for i, text in zip(part, texts, strict=True)}
            own.tokens |= dict.fromkeys(part, round(run.mean_tokens, 2))
            own.keep |= dict(zip(part, run.keep, strict=True))

    def _resized(self, scene: Scene, method: Method, count: Count, own: Answers) -> None:
        assert count != "auto", "only ours chooses how many"
        small = scene.resized(method, count)
        if small.view.total > count:
            least = f"the processor makes at least {small.view.total} cells of it"
            logger.warning("image %s can't be shrunk to %d cells: %s", scene.source.key, count, least)
            return
        rows = [CellPrompt(i, _whole(small.view)) for i in range(len(scene.texts))]
        own.texts = dict(enumerate(self._answer(small.prompts, small.view.features, rows)))
        own.tokens = dict.fromkeys(own.texts, small.view.total)

    def _prepared(self, scene: Scene, entry: SceneEntry, encoded: EncodedImages, own: Answers) -> None:
        method, view = entry.method, scene.view
        assert method.prepare is not None, "called for methods that prepare"
        budget = None if entry.budget is None else entry.count(view.total)
        watch = Stopwatch(self.model.device)
        ready = {i: method.prepare(view, i, budget, encoded, watch) for i in _answerable(method, view)}
        compacted = [one.compacted for one in ready.values()]
        options = {"most": self.rows, "max_new_tokens": self.max_new_tokens}
        own.texts = dict(
            zip(ready, answer_compacted(self.model, compacted, method.mode, **options), strict=True)
        )
        own.tokens = {i: visual_tokens(self.model, one.compacted) for i, one in ready.items()}
        own.keep = {i: one.keep for i, one in ready.items() if one.keep is not None}
        own.allocations = {i: one.allocation for i, one in ready.items() if one.allocation is not None}

    def _record(self, scene: Scene, answers: dict[str, Answers], i: int) -> Record:
        view, query = scene.view, scene.source.queries[i]
        evidence = view.evidence(i)
        answered = {label: answer for label, answer in answers.items() if i in answer.texts}
        kept = {label: answer.keep[i].cpu() for label, answer in answered.items() if i in answer.keep}
        truths = query.answers or (answers[FULL].texts[i],)  # the model's own, where nobody knows better
        metric = (query.example.metric if query.example else None) or self.metric
        record = {
            "id": query.id,
            "image": scene.source.key,
            "family": query.family,
            "template": query.template,
            "question": query.text,
            "answers": list(truths),
            "total": view.total,
            "grid": list(view.grid),
            "evidence": None if evidence is None else int(evidence.sum()),
            "said": {label: answer.texts[i] for label, answer in answered.items()},
            "score": {label: round(metric(answer.texts[i], truths), 4) for label, answer in answered.items()},
            "kept": {label: encode_kept(keep, view.total) for label, keep in kept.items()},
            "tokens": {label: answer.tokens[i] for label, answer in answered.items()},
        }
        if evidence is not None:
            truth = evidence.flatten()  # (N,)
            record["recall"] = {
                label: round((truth[keep].sum() / truth.sum()).item(), 4) for label, keep in kept.items()
            }
            record["hit"] = {
                label: float(is_hit(answer.allocations[i], evidence.cpu()))
                for label, answer in answered.items()
                if i in answer.allocations
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
        costs: Record = {"ms": {label: ms[label] for label, _ in runs}}
        if number < PEAKS:
            device = self.model.device
            costs["peak_mb"] = {label: round(_peak(trial, device), 1) for label, trial in runs}
        return costs

    def _trial(self, scene: Scene, entry: SceneEntry, i: int) -> Trial | None:
        """None where the entry doesn't answer this question."""
        count = entry.count(scene.view.total)
        if not entry.method.timed or i not in _answerable(entry.method, scene.view):
            return None
        if entry.method.fixed:
            return Trial(entry.method, None, scene.view, i, scene.view.prompts[i])
        if entry.method.resize is not None:
            assert count != "auto", "only ours chooses how many"
            small = scene.resized(entry.method, count)
            inputs = small.view.prompts[i]
            return Trial(entry.method, None, small.view, i, inputs) if small.view.total <= count else None
        return Trial(entry.method, count, scene.view, i, scene.view.prompts[i])


def _measure_all(runs: Sequence[tuple[str, Trial]]) -> dict[str, dict[str, float]]:
    """Times by label; entries that encode alike share one encoding."""
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


def _whole(view: View) -> Reduction:
    return Reduction(torch.arange(view.total, device=view.tokens.device))


def _answerable(method: Method, view: View) -> list[int]:
    """Return the questions that the method can answer."""
    numbers: Sequence[int] = range(len(view.prompts))
    if "turns" in method.needs:
        numbers = [i for i in numbers if turn_before(view, i) is not None]
    return [i for i in numbers if "other" not in method.needs or view.others[i] is not None]


def _select(method: Method, view: View, count: Count) -> dict[int, Reduction]:
    """Return the selection for each question that the method can answer."""
    numbers = _answerable(method, view)
    if method.select is None:
        return dict.fromkeys(numbers, _whole(view))
    if not method.by_question:
        return dict.fromkeys(numbers, method.select(view, 0, count))
    return {i: method.select(view, i, count) for i in numbers}


def _iou(a: Tensor, b: Tensor) -> float:
    """Intersection over union of two sets of indices."""
    both = int(torch.isin(a, b).sum())
    return round(both / (len(a) + len(b) - both), 4)
