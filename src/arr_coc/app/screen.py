"""The screen: what stands where, and what happens when.

On the left the question, on the right the answer and what it was read from; behind "Look closer" the
microscope. Handlers are thin: they call `asking` or `measuring`, and turn what is refused into a message that
leaves everything as it was.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from arr_coc import __version__
from arr_coc.app import asking
from arr_coc.app.asking import Asked, Now, Stopped
from arr_coc.app.canvas import StatusLine, TokenCanvas, Upload
from arr_coc.app.drawer import Drawer, said
from arr_coc.app.measuring import PROBES, measure
from arr_coc.app.models import Models
from arr_coc.app.samples import Sample
from arr_coc.app.tab import Tab
from arr_coc.images import open_image
from arr_coc.viewer import assets

logger = logging.getLogger(__name__)

MODES = [
    ("prune: choose after encoding", "prune"),
    ("sparse: choose before encoding", "sparse"),
    ("saccade: a coarse view and details", "saccade"),
    ("compress: a coarse view alone", "compress"),
    ("weight: all tokens, weighed", "weight"),
    ("full: all tokens, nothing chosen", "full"),
]
WAITING, FILES, HOUR = 16, "32mb", 3600
"""Questions that may wait, the largest upload, seconds for which files are kept."""
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
ALL_STAYS = "What was shown stays."


class App(gr.Blocks):
    """The app as Gradio's blocks; `launch` has settings that suit it, and each can be replaced."""

    models: Models
    lazy: bool

    def launch(self, *settings: Any, **more: Any) -> Any:
        """Serve it. Without saved traces to look at, the models begin to load now.

        Args:
            settings: as of `gr.Blocks.launch`.
            more: as there.
        """
        if not self.lazy:
            self.models.start()
        return super().launch(*settings, **look() | more)

    def close(self, verbose: bool = True) -> None:
        """Stop serving; what waits for a model is forgotten."""
        self.models.close()
        super().close(verbose=verbose)


def look() -> dict[str, Any]:
    """How it is launched: theme, styles and script from nowhere else, no links, no records."""
    script, style = assets()
    own = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    theme = gr.themes.Base(
        primary_hue="amber",
        neutral_hue="zinc",
        font=SYSTEM_FONTS,
        font_mono=["ui-monospace", "monospace"],
    )
    head = f"<style>{style}\n{own}</style><script>{script}</script>"
    return {"theme": theme, "head": head, "max_file_size": FILES, "footer_links": [], "run_history": False}


def build(models: Models, samples: Sequence[Sample], results: str | Path | None, *, lazy: bool) -> App:
    """Lay out the app.

    Args:
        models: one, or two for the A/B view.
        samples: to choose from; the first is shown, with its trace.
        results: a result file, for the drawer of worst cases; None: there is none.
        lazy: load the models with the first question, not before.
    """
    first = Tab()
    drawer = None if results is None else Drawer(results)
    shown = first.open(samples[0].trace) if samples[0].trace is not None else None
    private: dict[str, Any] = {"api_visibility": "private"}
    busy: dict[str, Any] = private | {
        "concurrency_id": "model",
        "concurrency_limit": 1,
        "show_progress": "hidden",
    }
    light: dict[str, Any] = private | {"concurrency_limit": None, "show_progress": "hidden"}
    quick: dict[str, Any] = private | {"queue": False, "show_progress": "hidden"}

    with App(title="arr-coc", analytics_enabled=False, fill_width=True, delete_cache=(HOUR, HOUR)) as app:
        app.models, app.lazy = models, lazy
        tab = gr.State(first, delete_callback=Tab.close)  # an hour after the tab was closed
        gr.HTML(
            f"<header><h1>arr-coc</h1><p>Ask about an image, and see what the answer was read from.</p>"
            f"<small>{__version__}</small></header>",
            apply_default_css=False,
            elem_id="head",
        )
        with gr.Row(elem_id="first", equal_height=False):
            with gr.Column(scale=4, min_width=300, elem_id="form"):
                image = Upload(
                    samples[0].image, label="Image", alt_text="what is asked about", height=300, buttons=[],
                    type="filepath", format="png", sources=["upload", "clipboard"], elem_id="image",
                )  # fmt: skip
                question = gr.Textbox(
                    samples[0].question, label="Question", lines=1, max_lines=3, elem_id="question"
                )
                with gr.Row(elem_id="buttons"):
                    ask = gr.Button("Ask", variant="primary", scale=3, min_width=120, elem_id="ask")
                    stop = gr.Button("Stop", scale=1, min_width=80, interactive=False, elem_id="stop")
                status = StatusLine("", elem_id="status")
                picks = gr.Dataset(
                    label="Or one of these", components=["textbox"], type="index",
                    samples=[[sample.question] for sample in samples], elem_id="samples",
                )  # fmt: skip
                with gr.Row(elem_id="budget-row"):
                    percent = gr.Slider(
                        1, 100, value=Asked.percent, step=1, label="Budget, % of all tokens",
                        scale=4, min_width=180, elem_id="budget",
                    )  # fmt: skip
                    auto = gr.Checkbox(False, label="auto", scale=1, min_width=80, elem_id="auto")
                mode = gr.Dropdown(MODES, value=Asked.mode, label="How it reads", elem_id="mode")
                compare = gr.Checkbox(Asked.compare, label="Answer from all tokens, too", elem_id="compare")
            with gr.Column(scale=7, min_width=300, elem_id="answer"):
                canvas = TokenCanvas(shown, kind="simple", elem_id="canvas")
        with gr.Accordion("Look closer", open=False, elem_id="closer") as closer:
            with gr.Row(elem_id="probes"):
                probes = {
                    name: gr.Button(title, size="md", min_width=200, elem_id=f"probe-{name}")
                    for name, (title, _) in PROBES.items()
                }
                end = gr.Button("Stop", size="md", min_width=80, interactive=False, elem_id="end")
            measured = StatusLine("", elem_id="measured")
            with gr.Tabs():
                with gr.Tab("Every layer"):
                    microscope = TokenCanvas(kind="full", elem_id="microscope")
                with gr.Tab("Another question", elem_id="swap-tab"):
                    with gr.Row():
                        other = gr.Textbox(
                            label="Another question about this image", max_lines=3, scale=5, elem_id="other"
                        )
                        swap = gr.Button("Compare", scale=1, min_width=120, elem_id="swap")
                    swapped = TokenCanvas(kind="pair", elem_id="swapped")
                if len(models) > 1:
                    with gr.Tab("Two models"):
                        both = gr.Button(f"Ask {models.name(1)} the same", elem_id="both")
                        sides = TokenCanvas(kind="pair", elem_id="sides")
                with gr.Tab("Balance"):
                    history = TokenCanvas(kind="history", elem_id="history")
                if drawer is not None:
                    with gr.Tab("Worst cases") as worst:
                        gallery = gr.Gallery(
                            label="where most was lost", show_label=False, columns=4, height="auto",
                            format="png", buttons=[], allow_preview=False, interactive=False, elem_id="worst",
                        )  # fmt: skip
                with gr.Tab("Save and open"), gr.Row():
                    page = gr.DownloadButton("Save as one HTML page", elem_id="page")
                    record = gr.DownloadButton("Save the trace", elem_id="record")
                    saved = gr.UploadButton(
                        "Open a saved trace", file_types=[".safetensors"], elem_id="saved"
                    )

        form = [image, question, percent, auto, mode, compare]
        close_up = [microscope, history, page, record]
        running = [ask, stop, end, *probes.values(), swap]

        def while_running(
            event: Any, handler: Callable[..., Any], inputs: list[Any], outputs: list[Any]
        ) -> None:
            """Stop can be pressed from the moment of the click; what is open is brought up to date after."""
            begun = event(partial(begin, len(running)), [tab], [outputs[0], *running], **quick)
            ran = begun.then(handler, [tab, *inputs], outputs, **busy)
            ran.then(partial(finish, len(running)), [tab], [*running, *close_up], **quick)

        while_running(
            partial(gr.on, [ask.click, question.submit]), partial(on_ask, models), form, [status, canvas]
        )
        while_running(
            picks.click,
            partial(on_pick, models, samples),
            [picks, *form[2:]],
            [status, canvas, image, question],
        )
        for name, button in probes.items():
            while_running(button.click, partial(on_measure, models, name), [], [measured, microscope])
        while_running(
            partial(gr.on, [swap.click, other.submit]), partial(on_swap, models), [other], [measured, swapped]
        )
        if len(models) > 1:
            while_running(both.click, partial(on_against, models), [], [measured, sides])
        for button in (stop, end):
            button.click(on_stop, [tab], None, **quick)
        image.upload(on_upload, [tab, image], [image, status], **light)
        auto.change(lambda on: gr.update(interactive=not on), [auto], [percent], **quick)
        closer.expand(on_closer, [tab], close_up, **quick)
        closer.collapse(on_closed, [tab], None, **quick)
        saved.upload(on_open, [tab, saved], [status, canvas, image, question, *close_up], **light)
        if drawer is not None:
            worst.select(partial(on_drawer, drawer), None, [gallery], **private, concurrency_limit=None)

            def choose(state: Tab, event: gr.SelectData) -> list[Any]:
                return on_case(drawer, state, event.index)

            gallery.select(choose, [tab], [image, question, status], scroll_to_output=True, **quick)
        # Gradio deletes the state of a closed tab only if something has set it.
        app.load(lambda state: state, [tab], [tab], **quick)
    return app.queue(max_size=WAITING, api_open=False)


# ---- what happens ---------------------------------------------------------------------------------------


def begin(buttons: int, tab: Tab) -> list[Any]:
    """Before work: Ask rests, Stop is live."""
    tab.stopping = False
    return ["Waiting for the model ...", *(gr.update(interactive=n in (1, 2)) for n in range(buttons))]


def finish(buttons: int, tab: Tab) -> list[Any]:
    """After work, whatever came of it: Stop rests, Ask is live, and an open microscope is up to date."""
    closer = on_closer(tab) if tab.closer else [gr.skip()] * 4
    return [gr.update(interactive=n not in (1, 2)) for n in range(buttons)] + closer


def on_stop(tab: Tab) -> None:
    """End what runs for this tab, or waits."""
    tab.stopping = True


def on_ask(models: Models, tab: Tab, *form: Any) -> Iterator[list[Any]]:
    """The Ask button."""
    yield from told(lambda: asking.ask(models, tab, Asked(*form)))


def on_pick(
    models: Models, samples: Sequence[Sample], tab: Tab, index: int, *form: Any
) -> Iterator[list[Any]]:
    """A sample: its trace, if it has one, else it is asked at once."""
    sample = samples[index]
    tab.chosen = sample.image
    if sample.trace is not None:
        yield ["", tab.open(sample.trace), sample.image, sample.question]
        return
    yield [gr.skip(), gr.skip(), sample.image, sample.question]
    for update in told(lambda: asking.ask(models, tab, Asked(sample.image, sample.question, *form))):
        yield [*update, gr.skip(), gr.skip()]


def on_measure(models: Models, name: str, tab: Tab) -> Iterator[list[Any]]:
    """A probe's button."""
    yield from told(lambda: measure(models, tab, name))


def on_swap(models: Models, tab: Tab, question: str) -> Iterator[list[Any]]:
    """The other question."""
    yield from told(lambda: asking.swap(models, tab, question))


def on_against(models: Models, tab: Tab) -> Iterator[list[Any]]:
    """The other model."""
    yield from told(lambda: asking.against(models, tab))


def on_upload(tab: Tab, path: str) -> list[Any]:
    """An image that can't be read is refused before anything is asked; the one before stays."""
    try:
        open_image(path)
    except ValueError as error:
        complain(error, path)
        return [tab.chosen, ALL_STAYS]
    tab.chosen = path
    return [gr.skip(), "Ask something about it."]


def on_open(tab: Tab, path: str) -> list[Any]:
    """A saved trace; no model is needed."""
    from arr_coc.trace import Trace

    try:
        trace = Trace.load(path)
    except ValueError as error:
        complain(error, path)
        return [gr.skip()] * 8
    view = tab.open(trace)
    return ["Opened.", view, trace.picture, trace.question, *on_closer(tab)]


def on_closer(tab: Tab) -> list[Any]:
    """Open the microscope, or bring it up to date."""
    tab.closer = True
    if tab.view is None:
        return [None, None, None, None]
    return [tab.view, tab.history, *tab.export()]


def on_closed(tab: Tab) -> None:
    """The microscope is closed: nothing needs to be sent to it."""
    tab.closer = False


def on_drawer(drawer: Drawer) -> Any:
    """The worst cases, drawn when they are first looked at."""
    try:
        return [(image, said(case)) for image, case in zip(drawer.images, drawer.cases, strict=True)]
    except ValueError as error:
        complain(error)
        return gr.skip()


def on_case(drawer: Drawer, tab: Tab, index: int) -> list[Any]:
    """A case is put into the form."""
    case = drawer.cases[index]
    tab.chosen = drawer.images[index]
    return [
        tab.chosen,
        case["question"],
        f"It said {case['answer']!r}, right is {case['right']!r}. Ask again.",
    ]


def told(work: Callable[[], Iterator[Now]]) -> Iterator[list[Any]]:
    """Run a generator of `asking` for the page: [status, shown], and a message where it fails."""
    try:
        for now in work():
            yield [now.status, gr.skip() if now.shown is None else now.shown]
    except Stopped:
        yield [f"Stopped. {ALL_STAYS}", gr.skip()]
    except ValueError as error:
        complain(error)
        yield [ALL_STAYS, gr.skip()]
    except Exception as error:
        logger.exception("a question failed")
        complain(f"that failed ({type(error).__name__}); the log has the reason")
        yield [ALL_STAYS, gr.skip()]


def complain(error: ValueError | str, path: str = "") -> None:
    """A message on the page; what it quotes is text, not markup, and an upload goes by its name alone."""
    message = " ".join(str(error).replace(path, Path(path).name).split())
    gr.Warning(html.escape(message[:1].upper() + message[1:]))
