"""The layout of the page and the wiring of its events to `handlers`.

At the top, where the guide would look, as one types, before any model answers.
On the left the form, on the right the answer with the cells it was read from; on a phone one below the other.
In the accordion "Look closer" the microscope: every layer, another question, two models, the balance, worst
cases, saving and opening.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from arr_coc import __version__
from arr_coc.app.api import publish
from arr_coc.app.asking import Request
from arr_coc.app.canvas import Percent, Problem, StatusLine, TokenCanvas
from arr_coc.app.clips import LIMITS, MISSING, MOST_MB, can_open
from arr_coc.app.handlers import (
    SAVED,
    begin,
    finish,
    on_against,
    on_ask,
    on_case,
    on_clear,
    on_clip,
    on_clip_clear,
    on_closed,
    on_closer,
    on_first_look,
    on_gallery,
    on_headline,
    on_look,
    on_measure,
    on_new_picture,
    on_no_clip,
    on_open,
    on_pick,
    on_picture,
    on_remember,
    on_restore,
    on_scene,
    on_stop,
    on_swap,
    on_take,
    on_upload,
    on_visit,
)
from arr_coc.app.looking import Looking
from arr_coc.app.measuring import PROBES
from arr_coc.app.models import Models
from arr_coc.app.refusal import FIELDS
from arr_coc.app.samples import Sample, chip, pictures
from arr_coc.app.tab import TABS, Tab
from arr_coc.app.uploads import Upload, UploadClip, UploadTrace
from arr_coc.app.visits import Visits
from arr_coc.app.worst import WorstCases
from arr_coc.inspect.clip_trace import ClipTrace
from arr_coc.modes import MODES
from arr_coc.viewer import assets

WAITING, FILES, HOUR = 16, f"{MOST_MB}mb", 3600
"""Questions that may wait, the largest upload, seconds for which files are kept."""
AT_ONCE = 2
"""Uploads that are decoded at once: one may take a gigabyte while it is."""
KEPT_BY_BROWSER = "arr-coc"
"""The name under which a browser keeps the form, which is no secret from it."""
SHOW_BELOW = """() => {
  const [view, form] = ["#%s", "#%s"].map((id) => document.querySelector(id));
  const isBelow = view.getBoundingClientRect().top >= form.getBoundingClientRect().bottom;
  if (isBelow) view.scrollIntoView();
}"""
SHOW_ANSWER, SHOW_SIGHT = SHOW_BELOW % ("answer", "form"), SHOW_BELOW % ("looking-view", "looking-form")
"""Bring the answer, or the pane's view, into sight where it stands below its form, as on a phone."""
SHOW_FORM = "() => document.querySelector('#first').scrollIntoView()"
SHOW_HANDED = f"() => {{ ({SHOW_FORM})(); ({SHOW_ANSWER})(); }}"
"""Bring the form into sight, or the answer below it."""
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]


class App(gr.Blocks):
    """The app as Gradio's blocks; `launch` has defaults of its own, each of which can be replaced."""

    models: Models
    looking: Looking
    lazy: bool

    def launch(self, *settings: Any, **more: Any) -> Any:
        """Serve the app. Without saved traces to look at, the models begin to load now.

        Args:
            settings: as of `gr.Blocks.launch`.
            more: as there.

        Raises:
            ValueError: a model is named that isn't there.
        """
        self.models.check(hub=not self.lazy)
        if not self.lazy:
            self.models.start()
        return super().launch(*settings, **look() | more)

    def close(self, verbose: bool = True) -> None:
        """Stop serving; what waits for a model is cancelled."""
        self.models.close()
        super().close(verbose=verbose)

    def end(self, patience: float = 0.0) -> bool:
        """After `close`: whether a model or the guide still runs, having waited so many seconds for each."""
        running = [self.models.busy(patience), self.looking.end(patience)]
        return any(running)


def look() -> dict[str, Any]:
    """Arguments of `launch`: theme, styles and script, all the app's own; no footer links, no run history."""
    script, style = assets()
    own = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    theme = gr.themes.Base(
        primary_hue="amber",
        neutral_hue="zinc",
        font=SYSTEM_FONTS,
        font_mono=["ui-monospace", "monospace"],
    )
    head = f"<style>{style}\n{own}</style><script>{script}</script>"
    settings = {"theme": theme, "head": head, "max_file_size": FILES, "footer_links": []}
    return settings | {"run_history": False, "state_session_capacity": TABS}


def build(models: Models, samples: Sequence[Sample], results: str | Path | None, *, lazy: bool) -> App:
    """Lay out the app.

    Args:
        models: one, or two for the A/B view.
        samples: to choose from; the first is shown, with its trace.
        results: a result file, for the tab of worst cases; None: there is no such tab.
        lazy: load the models with the first question, not before.
    """
    cases = None if results is None else WorstCases(results)
    scenes = pictures()
    opening = samples[0] if lazy else scenes[0]  # who brought traces wants to look at those
    first = samples[0].trace
    view = None if first is None else first.view()
    picture = None if isinstance(first, ClipTrace) else samples[0].image
    visits = Visits(first, view)
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
        tab = gr.State(Tab(), delete_callback=Tab.close)  # an hour after the tab was closed
        gr.HTML(
            "<header><h1>arr-coc</h1><p>Ask about an image or a clip, and see what the answer was read from."
            f"</p><small>{__version__}</small></header>",
            apply_default_css=False,
            elem_id="head",
        )
        headline = StatusLine("", elem_id="model")
        last = gr.BrowserState(None, storage_key=KEPT_BY_BROWSER, secret=KEPT_BY_BROWSER)
        looking = app.looking = Looking(models.encoded, models.guide)
        with gr.Row(elem_id="looking", equal_height=False):
            with gr.Column(scale=4, min_width=300, elem_id="looking-form"):
                gr.HTML(
                    "<h2>Where would it look?</h2><p>Drop or paste any picture and type: you see at once "
                    "which parts a question needs, before any model answers.</p>",
                    apply_default_css=False, elem_id="looking-title",
                )  # fmt: skip
                peek = Upload(
                    opening.image, label="Picture", alt_text="what is looked at", height=170, buttons=[],
                    type="filepath", format="png", sources=["upload", "clipboard"], elem_id="peek",
                )  # fmt: skip
                word = gr.Textbox(
                    opening.question, label="What do you want to know?", lines=1, max_lines=3,
                    elem_id="peek-question",
                )  # fmt: skip
                share = Percent(
                    1, 100, value=Request.percent, step=1, label="Budget, % of all cells",
                    elem_id="peek-budget",
                )  # fmt: skip
                take = gr.Button("Ask the model this", elem_id="take")
                views = gr.Dataset(
                    label="Or one of these", components=["html"], type="index",
                    samples=[[chip(scene)] for scene in scenes], elem_id="scenes",
                )  # fmt: skip
            with gr.Column(scale=7, min_width=300, elem_id="looking-view"):
                sight_line = StatusLine("", elem_id="looking-status")
                sight = TokenCanvas(kind="look", elem_id="sight")
        with gr.Row(elem_id="first", equal_height=False):
            with gr.Column(scale=4, min_width=300, elem_id="form"):
                image = Upload(
                    picture, label="Image", alt_text="what is asked about", height=300, buttons=[],
                    type="filepath", format="png", sources=["upload", "clipboard"], elem_id="image",
                )  # fmt: skip
                problems = {"image": Problem(elem_id="image-problem")}
                clip = UploadClip(
                    label=f"Or a clip ({LIMITS})", file_types=["video"], height=170, buttons=[],
                    visible=can_open(), elem_id="clip",
                )  # fmt: skip
                problems["clip"] = Problem(elem_id="clip-problem")
                frames = gr.HTML("", apply_default_css=False, elem_id="clip-preview")
                StatusLine("" if can_open() else MISSING, elem_id="no-clips")
                question = gr.Textbox(
                    samples[0].question, label="Question", lines=1, max_lines=3, elem_id="question"
                )
                problems["question"] = Problem(field="#question textarea", elem_id="question-problem")
                with gr.Row(elem_id="buttons"):
                    ask = gr.Button("Ask", variant="primary", scale=3, min_width=120, elem_id="ask")
                    stop = gr.Button("Stop", scale=1, min_width=80, interactive=False, elem_id="stop")
                problems["form"] = Problem(elem_id="form-problem")
                picks = gr.Dataset(
                    label="Or one of these", components=["html"], type="index",
                    samples=[[chip(sample)] for sample in samples], elem_id="samples",
                )  # fmt: skip
                with gr.Row(elem_id="budget-row"):
                    percent = Percent(
                        1, 100, value=Request.percent, step=1, label="Budget, % of all tokens",
                        scale=4, min_width=180, elem_id="budget",
                    )  # fmt: skip
                    auto = gr.Checkbox(False, label="auto", scale=1, min_width=80, elem_id="auto")
                problems["budget"] = Problem(field="#budget input[type=number]", elem_id="budget-problem")
                modes = [(f"{mode.name}: {mode.help}", mode.name) for mode in MODES.values()]
                modes = [("as the model does by default", ""), *modes]
                mode = gr.Dropdown(modes, value=Request.mode or "", label="How it reads", elem_id="mode")
                compare = gr.Checkbox(Request.compare, label="Answer from all tokens, too", elem_id="compare")
            with gr.Column(scale=7, min_width=300, elem_id="answer"):
                status = StatusLine("" if view is None else SAVED, elem_id="status")
                stale = StatusLine("", elem_id="stale")
                canvas = TokenCanvas(view, kind="simple", elem_id="canvas")
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
                    microscope = TokenCanvas(kind="closer", elem_id="microscope")
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
                if cases is not None:
                    with gr.Tab("Worst cases") as worst:
                        worst_title = StatusLine("", elem_id="worst-title")
                        gallery = gr.Gallery(
                            label="where most was lost", show_label=False, columns=4, height="auto",
                            format="png", buttons=[], allow_preview=False, interactive=False, elem_id="worst",
                        )  # fmt: skip
                with gr.Tab("Save and open"):
                    with gr.Row():
                        page = gr.DownloadButton("Save as one HTML page", elem_id="page")
                        record = gr.DownloadButton("Save the trace", elem_id="record")
                        saved = UploadTrace(
                            "Open a saved trace", file_types=[".safetensors"], elem_id="saved"
                        )
                    unreadable = Problem(elem_id="saved-problem")

        form = [image, question, percent, auto, mode, compare]
        settings = form[1:]
        shown_by_form = [status, canvas, stale, *(problems[name] for name in FIELDS)]
        close_up = [microscope, history, page, record]
        running = [ask, stop, end, *probes.values(), swap]

        def while_running(
            event: Any, handler: Callable[..., Any], inputs: list[Any], outputs: list[Any]
        ) -> Any:
            """Run a handler with Stop enabled from the click on; an open microscope is redrawn after.

            Returns:
                The event of its end.
            """
            ended = [part for part in outputs if isinstance(part, Problem)]
            start = partial(begin, len(running), problems=len(ended))
            begun = event(start, [tab], [outputs[0], *running, *ended], **quick)
            ran = begun.then(handler, [tab, *inputs], outputs, **busy)
            ran.then(partial(finish, len(running)), [tab], [*running, *close_up], **quick)
            ran.then(partial(on_headline, models), None, [headline], **quick)
            return ran

        asks = partial(gr.on, [ask.click, question.submit])
        while_running(asks, partial(on_ask, models), form, shown_by_form)
        while_running(
            picks.click,
            partial(on_pick, models, samples),
            [picks, *form[2:]],
            [*shown_by_form, image, question],
        )
        for event in (asks, picks.click):
            event(None, None, None, js=SHOW_ANSWER, **quick)
        asks(partial(on_remember, samples), settings, [last], **quick)
        picks.click(partial(on_remember, samples), [picks, *settings[1:]], [last], **quick)
        for name, button in probes.items():
            while_running(button.click, partial(on_measure, models, name), [], [measured, microscope])
        while_running(
            partial(gr.on, [swap.click, other.submit]), partial(on_swap, models), [other], [measured, swapped]
        )
        if len(models) > 1:
            while_running(both.click, partial(on_against, models), [], [measured, sides])
        for button in (stop, end):
            button.click(on_stop, [tab], None, **quick)
        of_clip = [clip, frames, problems["clip"]]
        no_clip: dict[str, Any] = quick | {"fn": on_no_clip, "inputs": [tab], "outputs": of_clip}
        of_image = [image, status, stale, problems["image"]]
        decoding: dict[str, Any] = light | {"concurrency_id": "uploads", "concurrency_limit": AT_ONCE}
        image.upload(on_upload, [tab, image], of_image, **decoding).then(**no_clip)
        picks.click(lambda: [None, "", ""], None, of_clip, **quick)
        taken = [clip, frames, image, status, stale, problems["clip"]]
        in_place = clip.upload(on_clip, [tab, clip], taken, **decoding)
        in_place.then(lambda: "", None, [problems["image"]], **quick)
        clip.clear(on_clip_clear, [tab], [frames, stale, problems["clip"]], **quick)
        image.clear(on_clear, [tab], [stale, problems["image"]], **quick)
        auto.change(lambda on: gr.update(interactive=not on), [auto], [percent], **quick)
        guided: dict[str, Any] = private | {
            "fn": partial(on_look, looking), "inputs": [tab, peek, word, share],
            "outputs": [sight, sight_line], "trigger_mode": "always_last", "concurrency_id": "guide",
            "concurrency_limit": 1, "show_progress": "hidden",
        }  # fmt: skip
        gr.on([word.change, share.change], **guided)
        looked_at = {"fn": partial(on_picture, looking), "outputs": [sight, sight_line, peek]}
        peek.upload(on_new_picture, [tab], [sight_line], **quick).then(**guided | looked_at)
        # A browser says that a picture is cleared before it forgets it, and would send it once more.
        blank = partial(on_look, looking, image=None, question="", percent=Request.percent)
        cleared: dict[str, Any] = guided | {"fn": blank, "inputs": [tab]}
        peek.clear(**cleared)
        chosen = views.click(partial(on_scene, scenes), [tab, views], [peek, word, sight_line], **quick)
        chosen.then(**guided)
        views.click(None, None, None, js=SHOW_SIGHT, **quick)
        handed = [*shown_by_form, image, question]
        while_running(take.click, partial(on_take, models), [peek, word, *form[2:]], handed).then(**no_clip)
        take.click(None, None, None, js=SHOW_HANDED, **quick)
        closer.expand(on_closer, [tab], close_up, **quick)
        closer.collapse(on_closed, [tab], None, **quick)
        opened = [*shown_by_form, image, question, unreadable, *close_up]
        saved.upload(on_open, [tab, saved], opened, **light).then(**no_clip)
        if cases is not None:
            worst.select(partial(on_gallery, cases), None, [worst_title, gallery], **light)

            def choose(state: Tab, event: gr.SelectData) -> list[Any]:
                return on_case(cases, state, event.index)

            of_case = [image, question, status, stale]
            gallery.select(choose, [tab], of_case, **quick).then(**no_clip)
            gallery.select(None, None, None, js=SHOW_FORM, **quick)
        # Gradio deletes the state of a closed tab only if something has set it.
        app.load(visits.begin, [tab], [tab], **quick)
        app.unload(visits.end)
        app.load(
            partial(on_first_look, looking, opening, Request.percent), None, [sight, sight_line], **light
        )
        app.load(partial(on_visit, models, lazy), None, [headline], **light)
        if not lazy:
            app.load(on_restore, [last, *settings], settings, **quick)
        publish(models, **busy | {"api_visibility": "public"})
    return app.queue(max_size=WAITING, api_open=False)
