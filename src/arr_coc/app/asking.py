"""Asking, as generators that tell how far they are and end with something to show.

    ask(models, tab, question)     the answer, its cells and words
    swap(models, tab, question)    the same image and budget, another question
    against(models, tab)           the same question, the other model

Each yields `Now`, one after the other; the last has a view. All is refused with a ValueError of one line, and
what was shown before then stays. Stopping raises `Stopped`, with the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from arr_coc.app.models import Models
from arr_coc.app.tab import Tab

if TYPE_CHECKING:
    from arr_coc.attending import Budget
    from arr_coc.images import ImageSource
    from arr_coc.model import ARRCOCModel
    from arr_coc.session import Session
    from arr_coc.trace import Trace

T = TypeVar("T")
Say = Callable[[str], None]
POLL = 0.05
"""Seconds between two looks at whether the user wants to stop."""


class Stopped(Exception):
    """The user doesn't want it any more."""


@dataclass(frozen=True)
class Now:
    """How far it is, in words, and what there is to show: a view, a pair of them, or not yet anything."""

    status: str
    shown: dict[str, Any] | None = None


@dataclass(frozen=True)
class Asked:
    """A question as the form has it.

    Attributes:
        image: the picture; None: there is none.
        question: any text.
        percent: of the image's tokens to keep.
        auto: let the image and the question decide instead.
        mode: as in `Session.ask`.
        compare: answer from all tokens, too.
    """

    image: ImageSource | None
    question: str
    percent: float = 6.0
    auto: bool = False
    mode: str = "sparse"
    compare: bool = True

    @property
    def budget(self) -> Budget:
        """As a fraction, so that it fits an image of any size.

        Raises:
            ValueError: not a percentage.
        """
        if self.auto:
            return "auto"
        if not 0 < self.percent <= 100:
            raise ValueError(f"budget {self.percent} % is not in 0 to 100: move the slider")
        return float(self.percent) / 100


def ask(models: Models, tab: Tab, asked: Asked) -> Iterator[Now]:
    """Ask, and show what the answer was read from.

    Raises:
        ValueError: no image, no question, or what the model refuses.
        Stopped: by the user.
    """
    image, question = asked.image, asked.question.strip()
    if image is None:
        raise ValueError("there is no image: upload one, paste one or choose a sample")
    if not question:
        raise ValueError("the question is empty: ask something about the image")
    budget = asked.budget
    start = perf_counter()

    def work(model: ARRCOCModel, say: Say) -> Trace:
        from arr_coc.observe import observe

        say("Reading the image ...")
        session = tab.session(model, 0, image)
        return observe(session, question, budget=budget, mode=asked.mode, compare=asked.compare, on_text=say)

    trace = yield from follow(models, tab, work)
    yield Now(f"Answered in {perf_counter() - start:.1f} s.", tab.show(trace))


def swap(models: Models, tab: Tab, question: str) -> Iterator[Now]:
    """Ask another question about the image that is shown, with the same budget, and lay both side by side.

    Raises:
        ValueError: nothing is shown, or no question.
        Stopped: by the user.
    """
    shown = shown_trace(tab)
    if not question.strip():
        raise ValueError("the other question is empty: ask something else about the image")
    other = yield from follow(models, tab, _again(tab, shown, question.strip(), 0))
    yield Now("", pair(tab, other, ("this question", "the other question")))


def against(models: Models, tab: Tab) -> Iterator[Now]:
    """Ask the second model what was asked, and lay both side by side.

    Raises:
        ValueError: nothing is shown.
        Stopped: by the user.
    """
    shown = shown_trace(tab)
    other = yield from follow(models, tab, _again(tab, shown, shown.question, 1), 1)
    yield Now("", pair(tab, other, (shown.model, other.model)))


def pair(tab: Tab, other: Trace, labels: tuple[str, str]) -> dict[str, Any]:
    """What is shown beside another trace, for the viewer."""
    return {"a": tab.view, "b": other.view(), "labels": list(labels)}


def shown_trace(tab: Tab) -> Trace:
    """The trace that is shown.

    Raises:
        ValueError: there is none.
    """
    if tab.trace is None:
        raise ValueError("nothing is shown yet: ask a question first")
    return tab.trace


def shown_session(tab: Tab, model: ARRCOCModel, which: int = 0) -> Session:
    """A session of the image that is shown, which is the tab's last one or a saved trace's picture."""
    image = tab.image if tab.image is not None else shown_trace(tab).picture
    return tab.session(model, which, image)


def _again(tab: Tab, shown: Trace, question: str, which: int) -> Callable[[ARRCOCModel, Say], Trace]:
    def work(model: ARRCOCModel, say: Say) -> Trace:
        from arr_coc.observe import observe

        say("Reading the image ...")
        session = shown_session(tab, model, which)
        options: dict[str, Any] = {"budget": shown.budget, "mode": shown.mode, "compare": False}
        return observe(session, question, words=False, on_text=say, **options)

    return work


def follow(
    models: Models, tab: Tab, work: Callable[[ARRCOCModel, Say], T], which: int = 0
) -> Generator[Now, None, T]:
    """Run work in the models' thread and tell what it says; returns its result.

    Raises:
        Stopped: `tab.stopping` was set. The work itself ends with the next thing it says.
    """
    said: SimpleQueue[str] = SimpleQueue()

    def say(text: str) -> None:
        if tab.stopping:
            raise Stopped
        said.put(text)

    future = models.submit(lambda model: work(model, say), which)
    if not models.ready(which):
        yield Now(f"Loading the model {models.name(which)} ...")
    while not (future.done() and said.empty()):
        if tab.stopping:
            future.cancel()
            raise Stopped
        try:
            yield Now(said.get(timeout=POLL))
        except Empty:
            continue
    return future.result()
