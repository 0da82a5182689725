"""Choosing the cells of an image for a server: once per picture and question, in any number of threads.

picture = Pictured(name, (32, 32), opening)      by the name that vLLM has for it; opened if it is looked at
chooser = chooser_for(Settings())
reading = chooser.reading(picture, ["What is the total?", "Who paid?"], settings)
chooser.choose(reading) -> Choice: cells, number
chooser.record(choice.number) -> the whole decision, for a while

What was decided is kept, so that neither the later turns of a conversation nor the two steps above work it
out again. Nothing here raises an exception because of what a picture holds.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import torch
from cachetools import LRUCache
from torch import Tensor
from vllm.logger import init_logger

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import Budget
from arr_coc.files.images import open_image
from arr_coc.files.question import check_question
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.guide import fast_dtype
from arr_coc.relevance.serving import still_serves
from arr_coc.selector import KnownPicture, Selector
from arr_coc_vllm import metrics
from arr_coc_vllm.settings import Settings

logger = init_logger(__name__)
RECORDS = 256
"""Decisions that are remembered, some ten kilobytes each."""
MAX_THREADS = 8
"""In which the pictures of one request are chosen from, where the machine has as many cores."""
T = TypeVar("T")
Made = TypeVar("Made")


class Record(NamedTuple):
    """A decision: its number, the question that led to it, what came of it, and what the guide said."""

    number: int
    question: str
    allocation: Allocation
    coupling: Coupling | None


class Pictured:
    """A picture of a request, opened when something has to be looked at, and once.

    Args:
        name: that vLLM has for it and for the settings of its processing.
        grid: (H, W) cells.
        opening: returns whatever `open_image` takes.
    """

    def __init__(self, name: str, grid: tuple[int, int], opening: Callable[[], Any]) -> None:
        self.name, self.grid, self.opening = name, grid, opening

    @cached_property
    def opened(self) -> KnownPicture:
        """As a selector takes it, under its name, so that its pixels are compared with nobody's."""
        return KnownPicture(open_image(self.opening()), f"{self.name} {self.grid}".encode())

    def on(self, grid: tuple[int, int]) -> Pictured:
        """The same picture on a grid."""
        return self if grid == self.grid else Pictured(self.name, grid, self.opening)


class Reading(NamedTuple):
    """By what the cells of an image are chosen.

    Attributes:
        question: that decides; None: there is none.
        settings: of the request.
        picture: that is chosen from.
        record: the decision, where it was made already.
    """

    question: str | None
    settings: Settings
    picture: Pictured
    record: Record | None = None

    def on(self, grid: tuple[int, int]) -> Reading:
        """The same on a grid."""
        same = grid == self.picture.grid
        return self if same else self._replace(picture=self.picture.on(grid), record=None)


class Choice(NamedTuple):
    """What is encoded of an image: long [K], rising raster indices, and the number of the decision."""

    keep: Tensor
    number: int


class Chooser:
    """A selector that several requests use, with counters and a way out where it fails.

    Pictures are chosen from side by side, each by one thread at a time, so that none is encoded twice; who
    asks for a decision that is being made waits for it.

    Args:
        selector: what chooses.
    """

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self._lock = threading.Lock()  # of what is kept here; nothing is worked out under it
        self._numbers = itertools.count(1)
        self._records: LRUCache[Hashable, Future[Record]] = LRUCache(RECORDS)
        self._served: LRUCache[Hashable, bool] = LRUCache(RECORDS)
        self._pictures: WeakValueDictionary[str, Any] = WeakValueDictionary()  # locks, while they are held
        threads = min(MAX_THREADS, max(2, os.cpu_count() or 1))
        self._pool = ThreadPoolExecutor(threads, "arr-coc-chooser")  # starts none before it is used

    @property
    def source(self) -> str:
        """Name and version of the source of relevance, for the names under which results are cached."""
        return f"{self.selector.source.name} {self.selector.source.version}"

    def each(self, function: Callable[[T], Made], items: Sequence[T]) -> list[Made]:
        """What a function makes of each item, side by side where there are several."""
        return list((self._pool.map if len(items) > 1 else map)(function, items))

    def choose(self, reading: Reading) -> Choice:
        """The cells to encode, at least one.

        All of them without a question, in mode "full", and where choosing fails, which is logged and counted.

        Args:
            reading: by what they are chosen, of `reading`.
        """
        question, settings, picture, record = reading
        count, number = picture.grid[0] * picture.grid[1], 0
        keep = torch.arange(count)
        if question is None:  # so, too, the pictures by which a server measures its memory at the start
            metrics.UNASKED.inc()
            return Choice(keep, number)
        if settings.mode == "sparse":
            with metrics.timed():
                try:
                    record = record or self.decide(picture, question, settings.budget)
                    keep, number = record.allocation.keep.long(), record.number
                except Exception:
                    # Whatever is wrong with one picture, its request is answered from all tokens.
                    logger.exception("choosing cells failed; all %d of the image are encoded", count)
                    metrics.FALLBACKS.inc()
        metrics.count_image(count, len(keep))
        return Choice(keep, number)

    def record(self, number: int) -> Record | None:
        """A decision by its number; None if it was forgotten, or nothing was decided."""
        with self._lock:
            made = [future for future in self._records.values() if future.done()]
        records = (future.result() for future in made if future.exception() is None)
        return next((record for record in records if record.number == number), None)

    def decide(self, picture: Pictured, question: str, budget: Budget) -> Record:
        """The decision about an image, made once while it is remembered.

        Raises:
            ValueError: a picture or a question that can't be read.
        """
        key = (picture.name, picture.grid, question, budget)
        with self._lock:
            future = self._records.get(key)
            is_new = future is None
            if future is None:
                future = self._records[key] = Future()
        if is_new:
            try:
                future.set_result(self._decide(picture, question, budget))
            except BaseException as error:
                with self._lock, suppress(KeyError):  # it may have been pushed out
                    del self._records[key]
                future.set_exception(error)
        return future.result()

    def _decide(self, picture: Pictured, question: str, budget: Budget) -> Record:
        with self._looking_at(picture):
            made = self.selector.decide(picture.opened, question, budget, picture.grid)
        coupling = made.couplings[0] if made.couplings else None
        return Record(next(self._numbers), question, made.allocations[0], coupling)

    def _looking_at(self, picture: Pictured) -> threading.Lock:
        """The lock of a picture, the same for all that look at it."""
        with self._lock:
            return self._pictures.setdefault(picture.name, threading.Lock())

    def reading(self, picture: Pictured, questions: Sequence[str], settings: Settings) -> Reading:
        """By which question an image of a conversation is read.

        With `follow` "auto" the first decides until a later one needs cells that it didn't choose. As long as
        the same question decides, all that was cached of the conversation stays true. Where all cells are
        encoded, by `mode` or since there were more questions than `keep_image_after`, it is the first
        always.

        Args:
            picture: that is chosen from.
            questions: of the image's turn and of later ones, in order.
            settings: of the request.
        """
        readable = [question for question in questions if _readable(question)]
        if not readable:
            return Reading(None, settings, picture)
        if settings.keep_image_after is not None and len(readable) > settings.keep_image_after:
            settings = settings.model_copy(update={"mode": "full"})
        if settings.mode == "full":
            return Reading(readable[0], settings, picture)
        if len(readable) == 1 or settings.follow != "auto":
            return Reading(readable[-1 if settings.follow == "last" else 0], settings, picture)
        with metrics.timed():
            try:
                record = self.decide(picture, readable[0], settings.budget)
                for question in readable[1:]:
                    if not self._serves(record, picture, question):
                        record = self.decide(picture, question, settings.budget)
            except Exception:
                logger.exception("comparing the questions of a conversation failed; the last one decides")
                return Reading(readable[-1], settings, picture)
        return Reading(record.question, settings, picture, record)

    def _serves(self, record: Record, picture: Pictured, question: str) -> bool:
        """Whether chosen cells hold what another question needs, or it asks for nothing in the picture."""
        key = (record.number, question)
        with self._lock:
            served = self._served.get(key)
        if served is None:
            with self._looking_at(picture):
                guided = self.selector.cues(picture.opened, question, picture.grid).guided
            # A trained allocator decides for itself: each question anew.
            served = guided is not None and still_serves(record.allocation.keep, guided)
            with self._lock:
                self._served[key] = served
        return served


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
    selector = Selector.from_pretrained(allocator, relevance=relevance, device=device, dtype=dtype)
    return Chooser(selector.for_serving())
