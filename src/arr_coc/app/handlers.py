"""Event handlers of the page: each calls `asking` or `looking` and returns updates of components.

A refusal is shown beside the field that it concerns; the rest of the page is left unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import gradio as gr
from PIL import Image

from arr_coc.app import asking, packing
from arr_coc.app.asking import FIELDS, MAGNIFY, AskForm, Refused, Stopped, Update, measure
from arr_coc.app.clips import open_upload, preview
from arr_coc.app.looking import Looking
from arr_coc.app.models import Models
from arr_coc.app.samples import AppSample
from arr_coc.app.state import Tab
from arr_coc.files.images import ImageSource, open_image
from arr_coc.files.paths import input_file
from arr_coc.files.pdf import first_page, is_pdf
from arr_coc.files.plugins import plugin
from arr_coc.modes import MODES
from arr_coc.trace.trace import Trace

logger = logging.getLogger(__name__)
SAVED = "A saved answer; Ask makes it anew."
UNCHANGED = "The last answer stays."
READY = "Ask, and the model answers."
REFUSED = "Not answered: the form says why."
FAILED = "That failed: try again. The server's log has the reason."
STALE = "The answer below is about another image or clip."
MOVED = "The answer below was read at another budget, mode or magnification: Ask makes it anew."
NO_PICTURE = "Drop or paste a screenshot, or any picture."
OF_CLIPS = "This view takes pictures. Ask the model about the clip: its answer shows where it looked."
NO_QUESTION = "Now type what you want to know about it."
PACKING = "Making the pictures that would be sent ..."
NEW_PICTURE = "Looking at the new picture ..."
NO_PROBLEMS = [""] * len(FIELDS)
MAX_TOKENS = 2**16
REMEMBERED = ("question", "tokens", "auto", "mode", "compare", "magnify")  # of the form, in its order
MAX_KEPT = 2000  # characters of a question that are restored from a browser's storage
POLL = 0.2  # seconds between two checks whether the model is loaded
WORST = 12  # cases of a result file that are shown


class Visits:
    """The open tabs by session; each begins with the same `trace` and its `view`, if there is one."""

    def __init__(self, trace: Trace | None, view: dict[str, Any] | None) -> None:
        self.trace, self.view = trace, view
        self._tabs: WeakValueDictionary[str, Tab] = WeakValueDictionary()  # weak: Gradio owns the tabs

    def begin(self, tab: Tab, request: gr.Request) -> Tab:
        """Register a tab whose page was loaded."""
        if self.trace is not None and tab.trace is None:
            tab.open(self.trace, self.view)
        if request.session_hash is not None:
            self._tabs[request.session_hash] = tab
        return tab

    def end(self, request: gr.Request) -> None:
        """Stop a tab's work after its page was closed or lost its connection."""
        tab = self._tabs.pop(request.session_hash or "", None)
        if tab is not None:
            tab.release()


async def on_visit(models: Models, lazy: bool) -> AsyncIterator[str]:
    """Yield the headline, and once more when the model is loaded."""
    yield on_headline(models, lazy)
    while not (lazy or models.ready()):
        await asyncio.sleep(POLL)
        if models.ready():
            yield on_headline(models, lazy)


def on_headline(models: Models, lazy: bool = False) -> str:
    """Return the model's name, and one sentence on what it can do or why it can't be loaded."""
    name = models.name(0)
    if not models.ready():
        return f"Model: {name}, loaded with the first question." if lazy else f"Model: {name}, loading ..."
    try:
        model = models.loaded()
    except ValueError as error:
        return f"Model {name} can't be loaded: {error}"
    except Exception as error:
        logger.exception("the model can't be loaded")
        return f"Model {name} can't be loaded ({type(error).__name__}); the log has the reason."
    about = getattr(model, "about", None)
    return f"Model: {name}, {about}" if about else f"Model: {name}"


def on_restore(kept: Any, *form: Any) -> list[Any]:
    """Fill the form as it was last submitted from this browser.

    `kept` is what `on_remember` returned, but comes from the browser: it is checked. Fields that stay the
    same are skipped, so that what the user has changed meanwhile isn't overwritten.
    """
    question, tokens, auto, mode, compare, magnify = form
    if not isinstance(kept, dict):
        return [gr.skip()] * len(form)
    if isinstance(kept.get("question"), str) and kept["question"].strip():
        question = kept["question"][:MAX_KEPT]
    if type(kept.get("tokens")) is int and 1 <= kept["tokens"] <= MAX_TOKENS:
        tokens = kept["tokens"]
    if kept.get("mode") in ("", *MODES):
        mode = kept["mode"]
    if kept.get("magnify") in list(MAGNIFY):
        magnify = kept["magnify"]
    auto, compare = kept.get("auto", auto) is True, kept.get("compare", compare) is True
    restored = (question, tokens, auto, mode, compare, magnify)
    return [gr.skip() if new == old else new for new, old in zip(restored, form, strict=True)]


def on_remember(question: str, *settings: Any) -> dict[str, Any]:
    """Return the form without its image, for the browser to store; `settings` follow `REMEMBERED`."""
    return dict(zip(REMEMBERED, (question[:MAX_KEPT], *settings), strict=True))


def begin(buttons: int, tab: Tab, problems: int = 0) -> list[Any]:
    """Return [status, buttons, problems] as work begins: the second and third button (Stop) enabled."""
    tab.stopping, tab.begun = False, tab.begun + 1
    enabled = [gr.update(interactive=n in (1, 2)) for n in range(buttons)]
    return ["Waiting for the model ...", *enabled, *[""] * problems]


def finish(buttons: int, tab: Tab) -> list[Any]:
    """Return updates for when work has ended: Stop off, the others on, an open detail view drawn again."""
    closer = on_closer(tab) if tab.closer else [gr.skip()] * 4
    return [gr.update(interactive=n not in (1, 2)) for n in range(buttons)] + closer


def fail(buttons: int, tab: Tab) -> list[Any]:
    """Return updates after an error of Gradio itself: a status in place of `begin`'s, then as `finish`."""
    return [FAILED, *finish(buttons, tab)]


def on_stop(tab: Tab) -> None:
    """Stop what runs or waits for this tab."""
    tab.stopping = True


def on_ask(models: Models, tab: Tab, *form: Any) -> Iterator[list[Any]]:
    """Answer the form: [status, view, warning above a stale view, a problem for each of `FIELDS`]."""
    for update in updates(lambda: asking.ask(models, tab, AskForm(*form))):
        yield of_form(update)


def on_pick(sample: AppSample, tab: Tab) -> list[Any]:
    """Open a sample's saved answer, or put its image and question into the form.

    Returns what `on_ask` yields, the image, the question, and the clip's three components as `on_no_clip`.
    """
    no_clip = [None, "", ""]
    if sample.trace is not None:
        view = tab.open(sample.trace)
        tab.truths = {sample.question: sample.true_answers}
        image = None if tab.form_image is None else sample.image  # a saved clip can't be asked about again
        tab.form_image = image
        return [SAVED, view, "", *NO_PROBLEMS, image, sample.question, *no_clip]
    is_same = sample.image is tab.form_image and tab.clip is None and not tab.moved
    tab.take(sample.image, sample.question, sample.true_answers, sample.evidence)
    tab.moved = not is_same
    return [READY, gr.skip(), stale(tab), *NO_PROBLEMS, sample.image, sample.question, *no_clip]


def on_measure(models: Models, name: str, tab: Tab) -> Iterator[list[Any]]:
    """Run a probe: [status, view]."""
    yield from of_line(updates(lambda: measure(models, tab, name)))


def on_swap(models: Models, tab: Tab, question: str) -> Iterator[list[Any]]:
    """Answer another question: [status, pair of views]."""
    yield from of_line(updates(lambda: asking.swap(models, tab, question)))


def on_against(models: Models, tab: Tab) -> Iterator[list[Any]]:
    """Answer with the other model: [status, pair of views]."""
    yield from of_line(updates(lambda: asking.against(models, tab)))


def on_upload(tab: Tab, path: str) -> list[Any]:
    """Take an uploaded image: [image, status, stale warning, problem]; an unreadable one changes nothing."""
    try:
        open_image(path)
    except ValueError as error:
        return [tab.form_image, gr.skip(), gr.skip(), reason(error, path)]
    tab.take(path)
    return [gr.skip(), "A new image: ask something about it.", stale(tab), ""]


def on_clear(tab: Tab) -> list[Any]:
    """Return [stale warning, problem of the image] after the image was removed."""
    tab.take(None)
    return [stale(tab), ""]


def on_clip(tab: Tab, path: str) -> list[Any]:
    """Take an uploaded clip in the image's place, or a PDF, whose first page becomes the image.

    Returns [clip, preview, image, status, stale warning, problem of the clip].
    """
    try:
        if is_pdf(path):
            page, pages = first_page(path, f"'{Path(path).name}'")
            tab.take(page)
            return [None, "", page, f"Page 1 of {pages}: ask something about it.", stale(tab), ""]
        clip = open_upload(path)
        frames = preview(clip)
    except ValueError as error:
        return [None, "", gr.skip(), gr.skip(), gr.skip(), reason(error, path)]
    tab.take_clip(clip)
    return [gr.skip(), frames, None, "A new clip: ask something about it.", stale(tab), ""]


def on_clip_clear(tab: Tab) -> list[Any]:
    """Return [preview, stale warning, problem of the clip] after the clip was removed."""
    tab.clip = None
    return ["", stale(tab), ""]


def on_no_clip(tab: Tab) -> list[Any]:
    """Clear the clip's components [clip, preview, problem] after an image has replaced it."""
    return [None, "", ""] if tab.clip is None else [gr.skip()] * 3


def on_open(tab: Tab, path: str) -> list[Any]:
    """Open an uploaded trace: what `on_pick` returns, the problem of the file, what `on_closer` returns."""
    try:
        trace = Trace.load(path)
    except ValueError as error:
        return [gr.skip()] * (5 + len(FIELDS)) + [reason(error, path)] + [gr.skip()] * 4
    view = tab.open(trace)
    return ["Opened.", view, "", *NO_PROBLEMS, tab.form_image, trace.question, "", *on_closer(tab)]


def on_closer(tab: Tab) -> list[Any]:
    """Open the detail view, or draw it again: [view, history, HTML export, trace export]."""
    tab.closer = True
    if tab.view is None:
        return [None, None, None, None]
    return [tab.view, tab.history, *tab.export()]


def on_closed(tab: Tab) -> None:
    """Stop sending views to the detail view after it was closed."""
    tab.closer = False


class WorstCases:
    """The worst cases of the result file at `path`, written by `arr-coc eval`; images are drawn at first use.

    Raises:
        ValueError: the file isn't a result file, or `arr-coc-lab` isn't installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = input_file(path)
        self._lab = plugin("cases", "worst")
        self.cases: list[dict[str, Any]] = self._lab.worst_cases(self.path, count=WORST)

    @property
    def title(self) -> str:
        """One sentence on what the cases are."""
        if not self.cases:
            return f"No answer of {self.path.name} is wrong."
        which = "The answer" if len(self.cases) == 1 else f"The {len(self.cases)} answers"
        it = "it" if len(self.cases) == 1 else "one"
        return (
            f"{which} of {self.path.name} where most was lost against all tokens: choose {it} to ask again."
        )

    @cached_property
    def images(self) -> list[Image.Image]:
        """The image of each case; a ValueError where one can't be drawn or opened."""
        return self._lab.case_images(self.path, self.cases)


def caption(case: Mapping[str, Any]) -> str:
    """Return a case in one line: the question, the answer, the right answer."""
    return f"{case['question']} {case['answer'] or 'Nothing'}, not {case['right']}"


def on_gallery(cases: WorstCases) -> list[Any]:
    """Return the title and the captioned images of the worst cases."""
    try:
        pictures = [(image, caption(case)) for image, case in zip(cases.images, cases.cases, strict=True)]
    except ValueError as error:
        return [reason(error), gr.skip()]
    return [cases.title, gr.update(value=pictures, visible=bool(pictures))]


def on_case(cases: WorstCases, tab: Tab, index: int) -> list[Any]:
    """Put a worst case into the form: [image, question, status, stale warning]."""
    case = cases.cases[index]
    tab.take(cases.images[index], case["question"], tuple(case["right"].split(" | ")))
    return [
        tab.form_image,
        case["question"],
        f"The answer was {case['answer']!r}, right is {case['right']!r}. Ask again.",
        STALE,
    ]


def on_look(
    looking: Looking, tab: Tab, image: ImageSource | None, question: str, tokens: float, auto: bool = False
) -> list[Any]:
    """Draw which cells the guide would keep: [view or None, what is missing or wrong]."""
    pictures = tab.pictures
    if image is None or tab.clip is not None:  # a browser may still send the picture that a clip replaced
        tab.record = None
        return [None, NO_PICTURE if tab.clip is None else OF_CLIPS]
    if not question.strip():
        return [None, NO_QUESTION]
    try:
        result = [looking.view(tab, image, question, AskForm(image, question, tokens, auto).budget), ""]
    except ValueError as error:
        result = [None, reason(error, image if isinstance(image, str) else "")]
    except Exception as error:
        logger.exception("a look failed")
        result = [None, f"That failed ({type(error).__name__}); the log has the reason."]
    # Another picture has come meanwhile: its own event draws it.
    return result if tab.pictures == pictures else [gr.skip(), gr.skip()]


def on_pack(
    looking: Looking,
    tab: Tab,
    image: ImageSource | None,
    question: str,
    rule: str,
    tokens: float,
    layout: str,
    is_shown: bool = True,
) -> list[Any]:
    """Make the pictures that would be sent to an API: [line, pictures with captions, table, file]."""
    if not is_shown:
        return [gr.skip()] * 4
    if image is None or tab.clip is not None:
        return packing.empty(NO_PICTURE if tab.clip is None else OF_CLIPS)
    try:
        packed = packing.packed_pictures(looking, tab, image, question, rule, tokens, layout)
        file = packing.archive(packed, tab.export_folder())
    except ValueError as error:
        return packing.empty(reason(error, image if isinstance(image, str) else ""))
    except Exception as error:
        logger.exception("packing failed")
        return packing.empty(f"That failed ({type(error).__name__}); the log has the reason.")
    return [packing.sent_line(packed), packing.gallery(packed), packing.table(packed), file]


def on_new_picture(tab: Tab) -> list[Any]:
    """Count a picture that came into the form: [notice while the guide encodes it, the emptied API card]."""
    tab.pictures += 1
    return [NEW_PICTURE, *packing.empty(NEW_PICTURE)]


def on_settings(tab: Tab, tokens: float, auto: bool, mode: str, magnify: str = AskForm.magnify) -> Any:
    """Warn if budget, mode or magnification differ from those of the answer on the page."""
    if tab.view is None or tab.moved:
        return gr.skip()
    begun = AskForm(None, "").settings if tab.settings is None else tab.settings
    return "" if AskForm(None, "", tokens, auto, mode, magnify=magnify).settings == begun else MOVED


def on_first_look(looking: Looking, sample: AppSample, tokens: float) -> list[Any]:
    """Draw the first sample's kept cells: [view, problem], the same in every tab."""
    try:
        return [looking.first(sample.image, sample.question, AskForm(None, "", tokens).budget), ""]
    except ValueError as error:
        return [None, reason(error)]


def stale(tab: Tab) -> str:
    """Return the warning above an answer whose image is no longer in the form; "" otherwise."""
    return STALE if tab.moved and tab.view is not None else ""


def updates(work: Callable[[], Iterator[Update]]) -> Iterator[Update | Refused]:
    """Run a generator of `asking`; yield a failure last, as a `Refused`."""
    try:
        yield from work()
    except Stopped:
        yield Update(f"Stopped. {UNCHANGED}")
    except Refused as error:
        yield error
    except ValueError as error:
        yield Refused("form", str(error))
    except Exception as error:
        logger.exception("a question failed")
        yield Refused("form", f"that failed ({type(error).__name__}); the log has the reason")


def of_form(update: Update | Refused) -> list[Any]:
    """Return an update as outputs of `on_ask`."""
    if isinstance(update, Refused):
        problems = [reason(update) if name == update.field else "" for name in FIELDS]
        return [REFUSED, gr.skip(), gr.skip(), *problems]
    if update.view is None:
        return [update.status, gr.skip(), gr.skip(), *[gr.skip()] * len(FIELDS)]
    return [update.status, update.view, "", *NO_PROBLEMS]


def of_line(steps: Iterator[Update | Refused]) -> Iterator[list[Any]]:
    """Yield updates as [status or refusal, view]."""
    for update in steps:
        if isinstance(update, Refused):
            yield [f"{reason(update)}. {UNCHANGED}", gr.skip()]
        else:
            yield [update.status, gr.skip() if update.view is None else update.view]


def reason(error: ValueError, path: str = "") -> str:
    """Return an error as one line for the page, with an upload's file name in place of its path."""
    message = " ".join((str(error).replace(path, Path(path).name) if path else str(error)).split())
    return message[:1].upper() + message[1:]
