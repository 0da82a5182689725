"""Answering a request of the page, as generators of updates: progress in words, at the end a view to draw.

    ask(models, tab, request)      the answer, its cells and words
    swap(models, tab, question)    the same image and budget, another question
    against(models, tab)           the same question, the other model

Each yields `Update`, one after the other; the last has a view. What can't be done raises a ValueError of one
line, what the user stops `Stopped`; either way the view on the page stays.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from arr_coc.app.clips import opened
from arr_coc.app.models import Models
from arr_coc.app.refusal import Refused, about
from arr_coc.app.tab import Tab
from arr_coc.choose.attending import DEFAULT_BUDGET
from arr_coc.video import FrameSource

if TYPE_CHECKING:
    from arr_coc.choose.attending import Budget
    from arr_coc.files.images import ImageSource
    from arr_coc.model import ARRCOCModel
    from arr_coc.session import Session
    from arr_coc.trace.trace import ClipTrace, Trace

T = TypeVar("T")
Notify = Callable[[str], None]
POLL = 0.05
"""Seconds between two looks at whether the user wants to stop."""


class Stopped(Exception):
    """The user has pressed Stop, or the server ends."""


@dataclass(frozen=True)
class Update:
    """A step of the work.

    Attributes:
        status: the progress, a line of text.
        view: what the viewer draws from now on: a view, or a pair of them; None: what it draws already.
    """

    status: str
    view: dict[str, Any] | None = None


@dataclass(frozen=True)
class Request:
    """A question with its settings, as the form has them.

    Attributes:
        image: the picture; None: there is none.
        question: any text.
        tokens: to keep, at most all that the image has.
        auto: the allocator sets the budget instead.
        mode: as in `Session.ask`; None or "": the model's own.
        compare: answer from all tokens, too.
    """

    image: ImageSource | None
    question: str
    tokens: float = DEFAULT_BUDGET
    auto: bool = False
    mode: str | None = None
    compare: bool = True

    @property
    def settings(self) -> tuple[Any, ...]:
        """What an answer depends on beside the image and the question."""
        return "auto" if self.auto else self.tokens, self.mode or ""

    @property
    def budget(self) -> Budget:
        """The budget as a count, or "auto".

        Raises:
            ValueError: not a whole number of tokens, 1 or more.
        """
        if self.auto:
            return "auto"
        if not (self.tokens >= 1 and float(self.tokens).is_integer()):
            raise ValueError(f"budget {self.tokens} is no number of tokens, 1 or more: move the slider")
        return int(self.tokens)


def ask(models: Models, tab: Tab, request: Request) -> Iterator[Update]:
    """Answer a request, with the cells that the answer was read from.

    Raises:
        Refused: no image or clip, no question, a bad budget, or what the model refuses of them.
        ValueError: the model can't be loaded, or refuses the request as a whole.
        Stopped: by the user.
    """
    question = request.question.strip()
    with about("clip"):
        image = tab.clip or (None if request.image is None else opened(request.image))
    if image is None:
        raise Refused("image", "there is no image: upload one, paste one or choose a sample")
    if not question:
        raise Refused("question", "the question is empty: ask something about the image")
    with about("budget"):
        budget = request.budget
    start = perf_counter()

    what = "clip" if isinstance(image, FrameSource) else "image"

    def work(model: ARRCOCModel, notify: Notify) -> Trace | ClipTrace:
        from arr_coc.trace.observe import observe, observe_clips

        notify(f"Reading the {what} ...")
        with about(what):
            session = current_session(models, tab, model, image)
        with about("question"):
            inputs = session.inputs(question)
        source = source_words(session, inputs, budget, request.mode)
        options: dict[str, Any] = {
            "budget": budget,
            "mode": request.mode or None,
            "compare": request.compare,
            "max_new_tokens": models.max_new_tokens,
            "true_answers": tab.truths.get(question, ()),
            "on_text": lambda text: notify(f"From {source}: {text}"),
            "on_full_text": lambda text: notify(f"From all tokens: {text}"),
        }
        if session.has_clips:
            return observe_clips(session, question, **options)
        return observe(session, question, evidence=tab.evidence.get(question, ()), **options)

    trace = yield from follow(models, tab, work)
    tab.settings = request.settings
    yield Update(f"Answered in {perf_counter() - start:.1f} s.", tab.show(trace, image))


def source_words(session: Session, inputs: dict[str, Any], budget: Budget, mode: str | None) -> str:
    """What an answer is read from, for the page while the answer still comes: "64 tokens"."""
    from arr_coc.choose.attending import budget_count, budget_of
    from arr_coc.modes import find_mode
    from arr_coc.modes.route import crops_of, reads_crops, runs_as
    from arr_coc.seam.clips import as_frames

    adapter = session.model.adapter
    ran, _ = runs_as(adapter, find_mode(session.model.mode if not mode else mode))
    if not ran.chooses:
        return ran.help
    framed = as_frames(adapter, inputs)[0]
    crops = crops_of(adapter, inputs, session.encoded(ran.name))[0] if reads_crops(adapter, ran) else {}
    if adapter.sparse or adapter.by_tiles or crops:
        count = sum(adapter.layout({**framed, **crops}).sizes)
    else:  # told once it is encoded; placeholders are cells and what stays beside them
        count = int((framed["input_ids"] == adapter.image_token_id).sum())
    allowed = budget_of(budget, None, count)
    chosen = "the tokens chosen" if allowed == "auto" else f"{budget_count(allowed, count):,} tokens"
    return f"a coarse view and {chosen}" if ran.gestalt else chosen


def swap(models: Models, tab: Tab, question: str) -> Iterator[Update]:
    """Answer another question about the current trace's image from the same budget, as a pair of views.

    Raises:
        ValueError: there is no answer yet, or no question.
        Stopped: by the user.
    """
    trace, image = current_trace(tab)
    if not question.strip():
        raise ValueError("the other question is empty: ask something else about the image")
    view = tab.view  # another trace may be opened while this one works
    other = yield from follow(models, tab, _again(models, tab, trace, image, question.strip(), 0))
    yield Update("", pair(view, other, ("this question", "the other question")))


def against(models: Models, tab: Tab) -> Iterator[Update]:
    """Answer the current question by the second model, as a pair of views.

    Raises:
        ValueError: there is no answer yet.
        Stopped: by the user.
    """
    trace, image = current_trace(tab)
    view = tab.view
    other = yield from follow(models, tab, _again(models, tab, trace, image, trace.question, 1), 1)
    yield Update("", pair(view, other, models.labels(trace.model)))


def pair(view: dict[str, Any] | None, other: Trace, labels: tuple[str, str]) -> dict[str, Any]:
    """A view beside that of another trace, for the viewer."""
    return {"a": view, "b": other.view(), "labels": list(labels)}


def current_trace(tab: Tab) -> tuple[Trace, ImageSource | FrameSource]:
    """The tab's trace of an image, and the image.

    Raises:
        ValueError: there is none, it is of a clip, or the tab was idle for so long that others took its
            place.
    """
    if tab.trace is None:
        raise ValueError("there is no answer here, or it was let go since: ask a question first")
    from arr_coc.trace.trace import Trace

    if not isinstance(tab.trace, Trace):
        raise ValueError("this is for answers about one image, and the one here is about a clip")
    return tab.trace, tab.trace.picture if tab.subject is None else tab.subject


def current_session(
    models: Models, tab: Tab, model: ARRCOCModel, image: ImageSource | FrameSource, which: int = 0
) -> Session:
    """The session of an image in a tab, for the model of a number."""
    session = tab.session(model, which, image)
    models.encoded.use(tab)
    return session


def _again(
    models: Models, tab: Tab, trace: Trace, image: ImageSource | FrameSource, question: str, which: int
) -> Callable[[ARRCOCModel, Notify], Trace]:
    """Work that answers a question about the image of a trace, from its budget and in its mode."""

    def work(model: ARRCOCModel, notify: Notify) -> Trace:
        from arr_coc.trace.observe import observe

        notify("Reading the image ...")
        session = current_session(models, tab, model, image, which)
        options: dict[str, Any] = {
            "budget": trace.budget,
            "mode": trace.mode,
            "compare": False,
            "max_new_tokens": models.max_new_tokens,
        }
        return observe(session, question, words=False, on_text=notify, **options)

    return work


def follow(
    models: Models, tab: Tab, work: Callable[[ARRCOCModel, Notify], T], which: int = 0
) -> Generator[Update, None, T]:
    """Run work in the models' thread and yield what it reports; returns its result.

    Raises:
        Stopped: `tab.stopping` was set, or the server ends. The work itself ends with the next line that it
            reports.
    """
    messages: SimpleQueue[str] = SimpleQueue()

    def notify(text: str) -> None:
        if tab.stopping or models.closed:
            raise Stopped
        messages.put(text)

    future = models.submit(lambda model: work(model, notify), which)
    if not models.ready(which):
        yield Update(f"Loading the model {models.name(which)} ...")
    while not (future.done() and messages.empty()):
        if tab.stopping or models.closed:
            future.cancel()
            raise Stopped
        try:
            yield Update(messages.get(timeout=POLL))
        except Empty:
            continue
    return future.result()
