"""Requests of the page as generators of `Update`: progress as text, and last a view to draw.

    ask(models, tab, request)      an answer with its kept cells and word scores
    swap(models, tab, question)    another question about the same image, at the same budget
    against(models, tab)           the same question, answered by the second model
    measure(models, tab, "sweep")  a probe of the answer

A refusal is a ValueError of one line, a stop by the user is `Stopped`; either way the page keeps its view.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

from arr_coc.app.clips import open_source
from arr_coc.app.lending import lend
from arr_coc.app.models import Models
from arr_coc.app.state import Tab
from arr_coc.choose.budget import Budget
from arr_coc.files.images import ImageSource
from arr_coc.files.plugins import plugin, plugins
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES, PRUNE, SPARSE, find_mode
from arr_coc.modes.call import Prepared
from arr_coc.session import Session
from arr_coc.trace.observe import observe
from arr_coc.trace.trace import Trace
from arr_coc.video import FrameSource

T = TypeVar("T")
Notify = Callable[[str], None]
WAITING = "Waiting for a GPU, then answering ..."  # of a Space that has none of its own
SENT = " The tab “For any API” has what another model would be sent."
POLL = 0.05  # seconds between two checks whether the user has stopped the work


TOKENS = 64
"""Tokens that the form asks for at first: few, so that one sees what is chosen."""
MAGNIFY = {"1": "off", "2": "2 times", "3": "3 times", "auto": "auto: as fine as the picture is"}
"""Values of `magnify` that the form offers, with their labels."""
FIELDS = ("image", "clip", "question", "budget", "form")  # "form": problems of no single field


class Refused(ValueError):
    """A request that can't be answered: `field`, one of `FIELDS`, and the reason in one line."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


@contextmanager
def about(field: str) -> Generator[None]:
    """Turn a ValueError raised in the block into a `Refused` about `field`; a `Refused` passes unchanged."""
    try:
        yield
    except Refused:
        raise
    except ValueError as error:
        raise Refused(field, str(error)) from error


class Stopped(Exception):
    """Raised when the user presses Stop or the server ends."""


@dataclass(frozen=True)
class Update:
    """A step of the work: its progress in one line; if it has changed, a view (or pair of views) to draw."""

    status: str
    view: dict[str, Any] | None = None


@dataclass(frozen=True)
class AskForm:
    """The form's values: `tokens` >= 1, unless `auto` sets the budget; `mode` None or "" is the model's own.

    `compare` asks for an answer from all tokens as well; `magnify` is as in `Session.ask`.
    """

    image: ImageSource | None
    question: str
    tokens: float = TOKENS
    auto: bool = False
    mode: str | None = None
    compare: bool = True
    magnify: str = "1"

    @property
    def settings(self) -> tuple[Any, ...]:
        """Budget, mode and magnification, to tell whether an answer on the page was made with them."""
        return "auto" if self.auto else self.tokens, self.mode or "", self.magnify

    @property
    def budget(self) -> Budget:
        """The budget as a count, or "auto"; a ValueError for tokens that aren't a whole number from 1 on."""
        if self.auto:
            return "auto"
        if not (self.tokens >= 1 and float(self.tokens).is_integer()):
            raise ValueError(f"budget {self.tokens} is no number of tokens, 1 or more: move the slider")
        return int(self.tokens)


def ask(models: Models, tab: Tab, request: AskForm) -> Iterator[Update]:
    """Answer a request and record its trace.

    Raises:
        Refused: image, clip, question or budget are missing or invalid.
        ValueError: the model can't be loaded, or refuses the request.
        Stopped: by the user.
    """
    question = request.question.strip()
    with about("clip"):
        image = tab.clip or (None if request.image is None else open_source(request.image))
    if image is None:
        raise Refused("image", "there is no image: upload one, paste one or choose a sample")
    if not question:
        raise Refused("question", "the question is empty: ask something about the image")
    with about("budget"):
        budget = request.budget
    start = perf_counter()

    what = "clip" if isinstance(image, FrameSource) else "image"

    options: dict[str, Any] = {
        "budget": budget,
        "mode": request.mode or None,
        "magnify": request.magnify,
        "compare": request.compare,
        "max_new_tokens": models.max_new_tokens,
        "true_answers": tab.truths.get(question, ()),
        "evidence": () if what == "clip" else tab.evidence.get(question, ()),
    }

    def work(model: ARRCOCModel, notify: Notify) -> Trace:

        if models.lends:
            notify(WAITING)
            return lend(0, model, answered, image, question, options)
        notify(f"Reading the {what} ...")
        with about(what):
            session = current_session(models, tab, model, image)
        with about("question"):
            session.inputs(question)
        source = "the image"

        def on_plan(plan: Prepared) -> None:
            nonlocal source
            source = source_words(plan)

        return observe(
            session,
            question,
            on_plan=on_plan,
            on_text=lambda text: notify(f"From {source}: {text}"),
            on_full_text=lambda text: notify(f"From all tokens: {text}"),
            **options,
        )

    trace = yield from follow(models, tab, work)
    tab.settings = request.settings
    view = tab.show(trace, image)
    yield Update(f"Answered in {perf_counter() - start:.1f} s.{SENT * view['foreign']}", view)


def answered(
    model: ARRCOCModel, image: ImageSource | FrameSource, question: str, options: dict[str, Any]
) -> Trace:
    """Return the trace of an answer about an image or clip that no session holds; options are those of
    `observe`.
    """
    return observe(model.session(image), question, **options)


def source_words(plan: Prepared) -> str:
    """Return what an answer is read from, shown while it is generated: "64 tokens"."""
    mode, read = find_mode(plan.mode), sum(plan.read)
    if not mode.chooses:
        return mode.help
    kept = read if plan.magnified else sum(allocation.kept for allocation in plan.allocations)
    return f"{'a coarse view and ' * (mode.gestalt and read > kept)}{kept:,} tokens"


def swap(models: Models, tab: Tab, question: str) -> Iterator[Update]:
    """Answer another question about the current trace's image at the same budget, as a pair of views.

    Raises:
        ValueError: there is no answer yet, or no question.
        Stopped: by the user.
    """
    trace, image = current_trace(tab)
    if not question.strip():
        raise ValueError("the other question is empty: ask something else about the image")
    view = tab.view  # read now: another trace may be opened during the work
    other = yield from follow(models, tab, _again(models, tab, trace, image, question.strip(), 0))
    yield Update("", pair(view, other, ("this question", "the other question")))


def against(models: Models, tab: Tab) -> Iterator[Update]:
    """Answer the current question with the second model, as a pair of views; raises as `swap`."""
    trace, image = current_trace(tab)
    view = tab.view
    other = yield from follow(models, tab, _again(models, tab, trace, image, trace.question, 1), 1)
    yield Update("", pair(view, other, models.labels(trace.model)))


def pair(view: dict[str, Any] | None, other: Trace, labels: tuple[str, str]) -> dict[str, Any]:
    """Two views side by side, for the viewer."""
    return {"a": view, "b": other.view(), "labels": list(labels)}


# Probes (from `arr-coc-lab`) by their names in a trace, with the labels of their buttons.
PROBES = {
    "sweep": "How few would say the same?",
    "contenders": "What would others keep?",
    "faithfulness": "Is the map faithful?",
}


def probe_names() -> list[str]:
    """Names of the installed probes."""
    return [name for name in PROBES if name in plugins("probes")]


def probe_mode(trace: Trace) -> tuple[str, str | None]:
    """Return the mode that a probe runs, and why it differs from the trace's; None if it doesn't."""
    mode = MODES.get(trace.mode)
    if mode is None:
        return PRUNE.name, f"measured in mode {PRUNE.name}: {trace.mode} is no mode here"
    if mode.chooses and not mode.gestalt:
        return mode.name, None
    if mode.chooses:
        return SPARSE.name, (
            f"measured in mode {SPARSE.name}: the coarse view of {mode.name} answers by itself, which would "
            "hide what the cells do"
        )
    return PRUNE.name, f"measured in mode {PRUNE.name}: {mode.name} chooses no cells"


def measure(models: Models, tab: Tab, name: str) -> Iterator[Update]:
    """Run a probe on the tab's trace; raises as `swap`."""
    trace, image = current_trace(tab)
    probe = plugin("probes", name)

    def work(model: ARRCOCModel, notify: Notify) -> dict[str, Any]:
        notify("Measuring ...")
        session = current_session(models, tab, model, image)
        return probe(session, trace, probe_mode(trace)[0], lambda share: notify(f"Measuring ... {share:.0%}"))

    result = yield from follow(models, tab, work)
    mode, note = probe_mode(trace)
    result |= {"mode": mode, "note": note}
    yield Update("Measured.", tab.show(trace.with_probe(name, result), image))


def current_trace(tab: Tab) -> tuple[Trace, ImageSource | FrameSource]:
    """Return the tab's trace and its image; a ValueError without one, or for a clip."""
    if tab.trace is None:
        raise ValueError("there is no answer here, or it was let go since: ask a question first")
    if not tab.trace.is_of_image:
        raise ValueError("this is for answers about one image, and the one here is about a clip")
    return tab.trace, tab.trace.picture if tab.subject is None else tab.subject


def current_session(
    models: Models, tab: Tab, model: ARRCOCModel, image: ImageSource | FrameSource, which: int = 0
) -> Session:
    """Return the tab's session of an image with model number `which`."""
    session = tab.session(model, which, image)
    models.encoded.use(tab)
    return session


def _again(
    models: Models, tab: Tab, trace: Trace, image: ImageSource | FrameSource, question: str, which: int
) -> Callable[[ARRCOCModel, Notify], Trace]:
    """Work that answers a question about a trace's image at the trace's budget and mode."""

    def work(model: ARRCOCModel, notify: Notify) -> Trace:

        options: dict[str, Any] = {
            "budget": trace.budget,
            "mode": trace.mode,
            "magnify": 1 if trace.magnified is None else trace.magnified[0],
            "compare": False,
            "words": False,
            "max_new_tokens": models.max_new_tokens,
        }
        if models.lends:
            notify(WAITING)
            return lend(which, model, answered, image, question, options)
        notify("Reading the image ...")
        session = current_session(models, tab, model, image, which)
        return observe(session, question, on_text=notify, **options)

    return work


def follow(
    models: Models, tab: Tab, work: Callable[[ARRCOCModel, Notify], T], which: int = 0
) -> Generator[Update, None, T]:
    """Run work in the models' thread, yield the progress that it reports, and return its result.

    Raises:
        Stopped: by the user, or by what the user began since, or the server ends; at the next report.
    """
    messages: SimpleQueue[str] = SimpleQueue()
    own = tab.begun

    def ends() -> bool:
        return tab.stopping or tab.begun != own or models.closed

    def notify(text: str) -> None:
        if ends():
            raise Stopped
        messages.put(text)

    future = models.submit(lambda model: work(model, notify), which)
    if not models.ready(which):
        yield Update(f"Loading the model {models.name(which)} ...")
    while not (future.done() and messages.empty()):
        if ends():
            future.cancel()
            raise Stopped
        with suppress(Empty):
            yield Update(messages.get(timeout=POLL))
    return future.result()
