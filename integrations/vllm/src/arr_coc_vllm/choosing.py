"""Choosing the cells of an image for a server: one selector, any number of threads, never an exception.

chooser = chooser_for(Settings())
reading = chooser.reading(picture, ["What is the total?", "Who paid?"], (32, 32), settings)
chooser.choose(picture, reading, (32, 32)) -> Choice: cells, number
chooser.record(choice.number) -> the whole decision, for a while

What was decided is kept, so that neither the later turns of a conversation nor the two steps above work it
out again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from cachetools import LRUCache
from torch import Tensor
from vllm.logger import init_logger

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import AUTO_SHARPNESS, Budget
from arr_coc.files.images import open_image, picture_digest
from arr_coc.files.question import check_question
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.guide import fast_dtype
from arr_coc.selector import Selector
from arr_coc_vllm import metrics
from arr_coc_vllm.settings import Settings

logger = init_logger(__name__)
COVERED = 0.8
"""Share of what a later question needs that the cells of an earlier one have to hold to serve it, too."""
UNASKED = 0.2
"""Confidence of the guide below which a question is about nothing in the picture."""
RECORDS = 256
"""Decisions that are remembered, some ten kilobytes each."""


class Record(NamedTuple):
    """A decision: its number, the question that led to it, what came of it, and what the guide said."""

    number: int
    question: str
    allocation: Allocation
    coupling: Coupling | None


class Reading(NamedTuple):
    """By what the cells of an image are chosen.

    Attributes:
        question: that decides; None: there is none.
        settings: of the request.
        record: the decision, where it was made already.
    """

    question: str | None
    settings: Settings
    record: Record | None = None


class Choice(NamedTuple):
    """What is encoded of an image: long [K], rising raster indices, and the number of the decision."""

    keep: Tensor
    number: int


class Chooser:
    """A selector that several requests use, with counters and a way out where it fails.

    Args:
        selector: what chooses.

    Attributes:
        lock: of the selector, which keeps the last pages, and of what is kept here.
    """

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._records: LRUCache[Hashable, Record] = LRUCache(RECORDS)
        self._served: LRUCache[Hashable, bool] = LRUCache(RECORDS)

    @property
    def source(self) -> str:
        """Name and version of the source of relevance, for the names under which results are cached."""
        return f"{self.selector.source.name} {self.selector.source.version}"

    def choose(self, picture: Any, reading: Reading, grid: tuple[int, int]) -> Choice:
        """The cells to encode, at least one.

        All of them without a question, in mode "full", and where choosing fails, which is logged and counted.

        Args:
            picture: whatever `open_image` takes.
            reading: by what they are chosen, of `reading`.
            grid: (H, W) cells.
        """
        question, settings, record = reading
        count, start, number = grid[0] * grid[1], time.perf_counter(), 0
        keep = torch.arange(count)
        if question is None:  # so, too, the pictures by which a server measures its memory at the start
            metrics.UNASKED.inc()
            return Choice(keep, number)
        if settings.mode == "sparse":
            try:
                if record is None or record.allocation.grid[1:] != grid:
                    record = self.decide(picture, question, grid, settings.budget)
                keep, number = record.allocation.keep.long(), record.number
            except Exception:
                # Whatever is wrong with one picture, its request is answered from all tokens.
                logger.exception("choosing cells failed; all %d of the image are encoded", count)
                metrics.FALLBACKS.inc()
        metrics.count_image(count, len(keep))
        metrics.SECONDS.inc(time.perf_counter() - start)
        return Choice(keep, number)

    def record(self, number: int) -> Record | None:
        """A decision by its number; None if it was forgotten, or nothing was decided."""
        with self.lock:
            return next((record for record in self._records.values() if record.number == number), None)

    def decide(self, picture: Any, question: str, grid: tuple[int, int], budget: Budget) -> Record:
        """The decision about an image, made once while it is remembered; arguments as in `choose`.

        Raises:
            ValueError: a picture or a question that can't be read.
        """
        key = (picture_digest(open_image(picture)), question, grid, budget)
        with self.lock:
            record = self._records.get(key)
            if record is None:
                made = self.selector.decide(picture, question, budget, grid)
                coupling = made.couplings[0] if made.couplings else None
                record = Record(next(self._numbers), question, made.allocations[0], coupling)
                self._records[key] = record
        return record

    def reading(
        self, picture: Any, questions: Sequence[str], grid: tuple[int, int], settings: Settings
    ) -> Reading:
        """By which question an image of a conversation is read.

        With `follow` "auto" the first decides until a later one needs cells that it didn't choose. As long as
        the same question decides, all that was cached of the conversation stays true. Where all cells are
        encoded, by `mode` or since there were more questions than `keep_image_after`, it is the first
        always.

        Args:
            picture: whatever `open_image` takes.
            questions: of the image's turn and of later ones, in order.
            grid: (H, W) cells.
            settings: of the request.
        """
        readable = [question for question in questions if _readable(question)]
        if not readable:
            return Reading(None, settings)
        if settings.keep_image_after is not None and len(readable) > settings.keep_image_after:
            settings = settings.model_copy(update={"mode": "full"})
        if settings.mode == "full":
            return Reading(readable[0], settings)
        if len(readable) == 1 or settings.follow != "auto":
            return Reading(readable[-1 if settings.follow == "last" else 0], settings)
        start = time.perf_counter()
        try:
            record = self.decide(picture, readable[0], grid, settings.budget)
            for question in readable[1:]:
                if not self._serves(record, picture, question, grid):
                    record = self.decide(picture, question, grid, settings.budget)
        except Exception:
            logger.exception("comparing the questions of a conversation failed; the last one decides")
            return Reading(readable[-1], settings)
        finally:
            metrics.SECONDS.inc(time.perf_counter() - start)
        return Reading(record.question, settings, record)

    def _serves(self, record: Record, picture: Any, question: str, grid: tuple[int, int]) -> bool:
        """Whether chosen cells hold what another question needs, or it asks for nothing in the picture."""
        key = (record.number, question)
        with self.lock:
            if key not in self._served:
                guided = self.selector.cues(picture, question, grid).guided
                self._served[key] = (
                    guided is not None  # a trained allocator decides for itself: each question anew
                    and (_unasked(guided) or covered(record.allocation.keep, guided) >= COVERED)
                )
            return self._served[key]


def _unasked(guided: Coupling) -> bool:
    """Whether a question is about nothing that the guide can see in the picture ("Thanks!")."""
    return guided.confidence < UNASKED and max(guided.overview, guided.unusual) < 0.5


def covered(keep: Tensor, guided: Coupling) -> float:
    """The share of what a question needs, in [0, 1], that lies in some cells."""
    need = guided.logits.flatten().float().sigmoid() ** AUTO_SHARPNESS
    return float(need[keep.long()].sum() / need.sum())


def _readable(question: str) -> bool:
    try:
        check_question(question)
    except ValueError:
        return False
    return True


def chooser_for(settings: Settings, device: str = "cpu") -> Chooser:
    """The chooser of a process: of the guide, of an allocator's folder, or of a source of relevance.

    Args:
        settings: of the server.
        device: where pictures are looked at, in the number format that is fast on this machine's CPU: the
            API server is there, and in another format other cells would be kept.

    Raises:
        ValueError: the folder isn't one of an allocator with a stem, or the source can't be opened.
    """
    return _chooser_for(settings.allocator, settings.relevance, device)


@lru_cache(maxsize=4)
def _chooser_for(allocator: str | None, relevance: str, device: str) -> Chooser:
    dtype = fast_dtype(torch.device("cpu"))
    return Chooser(Selector.from_pretrained(allocator, relevance=relevance, device=device, dtype=dtype))
