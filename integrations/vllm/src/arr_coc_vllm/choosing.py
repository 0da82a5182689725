"""Choosing the cells of an image for a server: one selector, any number of threads, never an exception.

chooser = chooser_for(None)
chooser.choose(picture, "What is the total?", (32, 32), settings) -> Choice: cells, number
chooser.record(choice.number) -> the whole decision, for a while
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from vllm.logger import init_logger

from arr_coc.core.allocation import Allocation
from arr_coc.core.guide.coupling import Coupling
from arr_coc.core.guide.trust import SHARPNESS, SURE
from arr_coc.core.question import check_question
from arr_coc.core.selector import Selector
from arr_coc_vllm import metrics
from arr_coc_vllm.settings import Settings

logger = init_logger(__name__)
COVERED = 0.8
"""Share of what a later question needs that the cells of an earlier one have to hold to serve it, too."""
RECORDS = 256
"""Decisions that are remembered."""


class Choice(NamedTuple):
    """What is encoded of an image: long [K], rising raster indices, and the number of the decision."""

    keep: Tensor
    number: int


class Record(NamedTuple):
    """A decision: the question that led to it, and what came of it."""

    question: str
    allocation: Allocation


class Chooser:
    """A selector that several requests use, with counters and a way out where it fails.

    Args:
        selector: what chooses.
    """

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self._lock = threading.Lock()  # the selector keeps the last pages in a dictionary
        self._numbers = itertools.count(1)
        self._records: OrderedDict[int, Record] = OrderedDict()

    def choose(self, picture: Any, question: str | None, grid: tuple[int, int], settings: Settings) -> Choice:
        """The cells to encode, at least one.

        All of them without a question, in mode "full", and where choosing fails, which is logged and counted.

        Args:
            picture: as the request gave it.
            question: that decides; None: there is none.
            grid: (H, W) cells.
            settings: of the request.
        """
        count, start, number = grid[0] * grid[1], time.perf_counter(), 0
        keep = torch.arange(count)
        if question is None:  # so, too, the pictures by which a server measures its memory at the start
            metrics.UNASKED.inc()
            return Choice(keep, number)
        if settings.mode == "sparse":
            try:
                allocation = self.allocation(picture, question, grid, settings)
                keep = allocation.keep.sort().values.long()
                number = self._remember(Record(question, allocation))
            except Exception:
                # Whatever is wrong with one picture, its request is answered from all tokens.
                logger.exception("choosing cells failed; all %d of the image are encoded", count)
                metrics.FALLBACKS.inc()
        metrics.IMAGES.inc()
        metrics.SEEN.inc(count)
        metrics.ENCODED.inc(len(keep))
        metrics.SECONDS.inc(time.perf_counter() - start)
        return Choice(keep, number)

    def record(self, number: int) -> Record | None:
        """A decision by its number; None if it was forgotten, or nothing was decided."""
        return self._records.get(number)

    def _remember(self, record: Record) -> int:
        with self._lock:
            number = next(self._numbers)
            self._records[number] = record
            while len(self._records) > RECORDS:
                self._records.popitem(last=False)
        return number

    def allocation(
        self, picture: Any, question: str, grid: tuple[int, int], settings: Settings
    ) -> Allocation:
        """The whole decision; arguments as in `choose`.

        Raises:
            ValueError: a picture or a question that can't be read.
        """
        with self._lock:
            return self.selector(picture, question, settings.budget, grid)

    def deciding(
        self, picture: Any, questions: Sequence[str], grid: tuple[int, int], settings: Settings
    ) -> str | None:
        """The question by which an image of a conversation is read; None: there is none.

        With `follow` "auto" the first decides until a later one needs cells that it didn't choose. As long as
        the same question decides, all that was cached of the conversation stays true.

        Args:
            picture: as the request gave it.
            questions: of the image's turn and of later ones, in order.
            grid: (H, W) cells.
            settings: of the request.
        """
        readable = [question for question in questions if _readable(question)]
        if not readable:
            return None
        if len(readable) == 1 or settings.mode == "full" or settings.follow != "auto":
            return readable[-1 if settings.follow == "last" else 0]
        deciding = readable[0]
        try:
            keep = self.allocation(picture, deciding, grid, settings).keep
            for question in readable[1:]:
                if not self._covers(keep, picture, question, grid):
                    deciding, keep = question, self.allocation(picture, question, grid, settings).keep
        except Exception:
            logger.exception("comparing the questions of a conversation failed; the last one decides")
            return readable[-1]
        return deciding

    def _covers(self, keep: Tensor, picture: Any, question: str, grid: tuple[int, int]) -> bool:
        """Whether chosen cells hold what another question needs, or it asks for nothing in the picture."""
        with self._lock:
            guided = self.selector.cues(picture, question, grid).guided
        if guided is None:  # a trained allocator decides for itself: each question anew
            return False
        return _unasked(guided) or covered(keep, guided) >= COVERED


def _unasked(guided: Coupling) -> bool:
    """Whether a question is about nothing that the guide can see in the picture ("Thanks!")."""
    return guided.confidence < SURE[0] and max(guided.whole, guided.odd) < 0.5


def covered(keep: Tensor, guided: Coupling) -> float:
    """The share of what a question needs, in [0, 1], that lies in some cells."""
    need = guided.logits.flatten().float().sigmoid() ** SHARPNESS
    return float(need[keep.long()].sum() / need.sum())


def _readable(question: str) -> bool:
    try:
        check_question(question)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4)
def chooser_for(allocator: str | None) -> Chooser:
    """The chooser of a process: of the guide, or of an allocator's folder.

    Raises:
        ValueError: the folder isn't one of an allocator with a stem.
    """
    return Chooser(Selector.from_pretrained(allocator))
