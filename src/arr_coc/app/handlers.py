"""Event handlers of the page: each calls `asking` or `measuring` and returns updates of components.

What is refused or fails becomes a message on the page, which is left as it was otherwise.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from arr_coc.app import asking
from arr_coc.app.asking import Request, Stopped, Update
from arr_coc.app.measuring import measure
from arr_coc.app.models import Models
from arr_coc.app.samples import Sample
from arr_coc.app.tab import Tab
from arr_coc.app.worst import WorstCases, caption
from arr_coc.core.images import open_image

logger = logging.getLogger(__name__)
UNCHANGED = "The last answer stays."


def begin(buttons: int, tab: Tab) -> list[Any]:
    """Before work: of so many buttons the second and third, Stop, are enabled, the others disabled."""
    tab.stopping = False
    return ["Waiting for the model ...", *(gr.update(interactive=n in (1, 2)) for n in range(buttons))]


def finish(buttons: int, tab: Tab) -> list[Any]:
    """After work, failed or not: Stop is disabled, the others enabled, an open microscope redrawn."""
    closer = on_closer(tab) if tab.closer else [gr.skip()] * 4
    return [gr.update(interactive=n not in (1, 2)) for n in range(buttons)] + closer


def on_stop(tab: Tab) -> None:
    """The Stop button: end what runs or waits for this tab."""
    tab.stopping = True


def on_ask(models: Models, tab: Tab, *form: Any) -> Iterator[list[Any]]:
    """The Ask button."""
    yield from updates(lambda: asking.ask(models, tab, Request(*form)))


def on_pick(
    models: Models, samples: Sequence[Sample], tab: Tab, index: int, *form: Any
) -> Iterator[list[Any]]:
    """A sample: its trace is opened if it has one, else its question is answered at once."""
    sample = samples[index]
    tab.form_image = sample.image
    if sample.trace is not None:
        yield ["", tab.open(sample.trace), sample.image, sample.question]
        return
    yield [gr.skip(), gr.skip(), sample.image, sample.question]
    for update in updates(lambda: asking.ask(models, tab, Request(sample.image, sample.question, *form))):
        yield [*update, gr.skip(), gr.skip()]


def on_measure(models: Models, name: str, tab: Tab) -> Iterator[list[Any]]:
    """A probe's button."""
    yield from updates(lambda: measure(models, tab, name))


def on_swap(models: Models, tab: Tab, question: str) -> Iterator[list[Any]]:
    """The button of another question."""
    yield from updates(lambda: asking.swap(models, tab, question))


def on_against(models: Models, tab: Tab) -> Iterator[list[Any]]:
    """The button of the other model."""
    yield from updates(lambda: asking.against(models, tab))


def on_upload(tab: Tab, path: str) -> list[Any]:
    """An uploaded image; one that can't be read is refused, and the one before stays in the form."""
    try:
        open_image(path)
    except ValueError as error:
        warn(error, path)
        return [tab.form_image, UNCHANGED]
    tab.form_image = path
    return [gr.skip(), "Ask something about it."]


def on_open(tab: Tab, path: str) -> list[Any]:
    """An uploaded trace; no model is needed."""
    from arr_coc.inspect.trace import Trace

    try:
        trace = Trace.load(path)
    except ValueError as error:
        warn(error, path)
        return [gr.skip()] * 8
    view = tab.open(trace)
    return ["Opened.", view, trace.picture, trace.question, *on_closer(tab)]


def on_closer(tab: Tab) -> list[Any]:
    """Open the microscope, or redraw it: its view, the history, and the two exports."""
    tab.closer = True
    if tab.view is None:
        return [None, None, None, None]
    return [tab.view, tab.history, *tab.export()]


def on_closed(tab: Tab) -> None:
    """The microscope is closed: no more views are sent to it."""
    tab.closer = False


def on_gallery(cases: WorstCases) -> Any:
    """The tab of worst cases is opened: their images with captions."""
    try:
        return [(image, caption(case)) for image, case in zip(cases.images, cases.cases, strict=True)]
    except ValueError as error:
        warn(error)
        return gr.skip()


def on_case(cases: WorstCases, tab: Tab, index: int) -> list[Any]:
    """A worst case is chosen: its image and question go into the form."""
    case = cases.cases[index]
    tab.form_image = cases.images[index]
    return [
        tab.form_image,
        case["question"],
        f"The answer was {case['answer']!r}, right is {case['right']!r}. Ask again.",
    ]


def updates(work: Callable[[], Iterator[Update]]) -> Iterator[list[Any]]:
    """Run a generator of `asking` for the page: [status, view] each, and a message where it fails."""
    try:
        for update in work():
            yield [update.status, gr.skip() if update.view is None else update.view]
    except Stopped:
        yield [f"Stopped. {UNCHANGED}", gr.skip()]
    except ValueError as error:
        warn(error)
        yield [UNCHANGED, gr.skip()]
    except Exception as error:
        logger.exception("a question failed")
        warn(f"that failed ({type(error).__name__}); the log has the reason")
        yield [UNCHANGED, gr.skip()]


def warn(error: ValueError | str, path: str = "") -> None:
    """Show an error as a message on the page, escaped, with an upload's name in place of its path."""
    message = " ".join(str(error).replace(path, Path(path).name).split())
    gr.Warning(html.escape(message[:1].upper() + message[1:]))
