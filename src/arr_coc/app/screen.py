"""The layout of the page and the connection of its events to `handlers`.

Left the form; right (below the question on a phone) three tabs: the cells that the guide would keep, updated
while the question is typed, the model's answer with its kept cells, and what would be sent to any API in
place of the picture. The accordion "Look closer" holds the detail views: layers, another question, two
models, scorer weights, worst cases, saving and opening.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from arr_coc import __version__
from arr_coc.app import handlers, packing
from arr_coc.app.api import publish
from arr_coc.app.asking import FIELDS, MAGNIFY, PROBES, AskForm, probe_names
from arr_coc.app.clips import LIMITS, MAX_MB
from arr_coc.app.components import Count, Problem, StatusLine, TokenCanvas, Upload, UploadClip, UploadTrace
from arr_coc.app.looking import Looking
from arr_coc.app.models import Models
from arr_coc.app.samples import PICTURES, SAMPLE, AppSample, chip
from arr_coc.app.state import TABS, Tab
from arr_coc.modes import MODES
from arr_coc.trace.viewer import assets

WAITING, FILES, HOUR = 16, f"{MAX_MB}mb", 3600  # most queued questions, upload size, file lifetime in s
AT_ONCE = 2  # uploads decoded at once: each may take a gigabyte
KEPT_BY_BROWSER = "arr-coc"  # key of the form in the browser's storage; not secret
SHOW_RESULTS = """() => {
  const [results, form] = ["#results", "#form"].map((id) => document.querySelector(id));
  const isBelow = results.getBoundingClientRect().top >= form.getBoundingClientRect().bottom;
  if (isBelow) results.scrollIntoView();
}"""
"""Scroll to the results where they are below the form, as on a phone."""
SHOW_FORM = "() => document.querySelector('#first').scrollIntoView()"
IF_PACKING = "(...form) => [...form.slice(0, -1), document.querySelector('#packing').checkVisibility()]"
"""Pictures for an API are made while they can be seen."""
LOOK, ANSWER, PACK = "look", "answer", "pack"  # ids of the tabs of the results
MOST = 1024  # tokens at the end of the slider; more can be typed
DROPPED = """
document.addEventListener("drop", (event) => {
  const file = event.dataTransfer?.files[0];
  const input = document.querySelector("#clip input[type=file]");
  if (!event.target.closest?.("#image") || !file || file.type.startsWith("image/") || !input) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const files = new DataTransfer();
  files.items.add(file);
  input.files = files.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}, true);
"""
"""The box for pictures ignores a dropped clip or PDF: it is passed on to the box for files."""
KEYS = """
let paused = null;
new MutationObserver((changes) => changes.forEach(({ target }) => {
  if (target.disabled && target === document.activeElement) paused = target;
  else if (target === paused && document.activeElement === document.body) target.focus({preventScroll: true});
})).observe(document, { subtree: true, attributes: true, attributeFilter: ["disabled"] });
document.addEventListener("keydown", (event) => {
  if (event.key === "Tab" && event.target.matches("[role=combobox]")) event.stopImmediatePropagation();
}, true);
"""
"""A button that was off during its work has the focus again; no list opens as Tab leaves it, as in Gradio."""
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]


class App(gr.Blocks):
    """The app as Gradio blocks; arguments of `launch` replace the app's own defaults."""

    models: Models
    looking: Looking
    lazy: bool

    def launch(self, *settings: Any, **more: Any) -> Any:
        """Serve the app, with arguments of `gr.Blocks.launch`; unless lazy, the models begin to load.

        Raises:
            ValueError: a named model doesn't exist.
        """
        self.models.check(hub=not self.lazy)
        if not self.lazy:
            self.models.start()
        return super().launch(*settings, **launch_options() | more)

    def close(self, verbose: bool = True) -> None:
        """Stop serving and cancel what waits for a model."""
        self.models.close()
        super().close(verbose=verbose)

    def end(self, patience: float = 0.0) -> bool:
        """After `close`: whether a model or the guide runs after at most `patience` seconds for each."""
        running = [self.models.busy(patience), self.looking.end(patience)]
        return any(running)


def launch_options() -> dict[str, Any]:
    """Arguments of `launch`: the app's own theme, styles and script; no footer, no run history."""
    script, style = assets()
    own = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    theme = gr.themes.Base(
        primary_hue="amber",
        neutral_hue="zinc",
        font=SYSTEM_FONTS,
        font_mono=["ui-monospace", "monospace"],
    )
    head = f"<style>{style}\n{own}</style><script>{script}{DROPPED}{KEYS}</script>"
    settings: dict[str, Any] = {"theme": theme, "head": head, "max_file_size": FILES, "footer_links": []}
    # Gradio would serve files of the package only to an app that is started in a folder around it.
    settings["allowed_paths"] = [str(PICTURES), str(SAMPLE.with_suffix(".png"))]
    return settings | {"run_history": False, "state_session_capacity": TABS}


def build(models: Models, samples: Sequence[AppSample], results: str | Path | None, *, lazy: bool) -> App:
    """Lay out the app for one model, or for two with the A/B view.

    The first of `samples` is shown, with its trace if it has one. `results` is a result file for the tab of
    worst cases, or None. `lazy` loads the models at the first question.
    """
    cases = None if results is None else handlers.WorstCases(results)
    first = samples[0].trace
    view = None if first is None else first.view()
    picture = None if first is not None and not first.is_of_image else samples[0].image
    visits = handlers.Visits(first, view)
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
        tab = gr.State(Tab(), delete_callback=Tab.close)  # called an hour after the tab was closed
        gr.HTML(
            "<header><h1>arr-coc</h1><p>Ask about an image or a clip, and see what the answer was read from."
            f"</p><small>{__version__}</small></header>",
            apply_default_css=False,
            elem_id="head",
        )
        headline = StatusLine("", elem_id="model")
        last = gr.BrowserState(None, storage_key=KEPT_BY_BROWSER, secret=KEPT_BY_BROWSER)
        looking = app.looking = Looking(models.encoded, models.guide)
        with gr.Column(elem_id="first"):
            with gr.Column(elem_id="form"):
                image = Upload(
                    picture, label="Picture", alt_text="what is asked about", height=240, buttons=[],
                    type="filepath", format="png", sources=["upload", "clipboard"], elem_id="image",
                )  # fmt: skip
                problems = {"image": Problem(elem_id="image-problem")}
                frames = gr.HTML("", apply_default_css=False, elem_id="clip-preview")
                question = gr.Textbox(
                    samples[0].question, label="What do you want to know?", lines=1, max_lines=3,
                    elem_id="question",
                )  # fmt: skip
                problems["question"] = Problem(field="#question textarea", elem_id="question-problem")
                with gr.Row(elem_id="buttons"):
                    ask = gr.Button("Ask", variant="primary", scale=3, min_width=120, elem_id="ask")
                    stop = gr.Button("Stop", scale=1, min_width=80, interactive=False, elem_id="stop")
                problems["form"] = Problem(elem_id="form-problem")
            with gr.Tabs(selected=ANSWER if lazy else LOOK, elem_id="results") as results_tabs:
                with gr.Tab("Where it looks", id=LOOK):
                    gr.HTML(
                        "<p>The guide is a small net that chooses cells by your question, as you type. It "
                        "needs no model.</p>",
                        apply_default_css=False, elem_id="looking-title",
                    )  # fmt: skip
                    with gr.Column(elem_id="looking-view"):
                        look_line = StatusLine("", elem_id="looking-status")
                        look_canvas = TokenCanvas(kind="look", elem_id="sight")
                with gr.Tab("The answer", id=ANSWER):
                    with gr.Column(elem_id="answer"):
                        status = StatusLine("" if view is None else handlers.SAVED, elem_id="status")
                        stale = StatusLine("", elem_id="stale")
                        canvas = TokenCanvas(view, kind="simple", elem_id="canvas")
                with gr.Tab("For any API", id=PACK) as pack_tab:
                    with gr.Column(elem_id="packing"):
                        pack_line = StatusLine(handlers.PACKING, elem_id="pack-line")
                        sent = gr.Gallery(
                            label="what would be sent", show_label=False, columns=2, height="auto",
                            object_fit="contain", format="png", buttons=[], allow_preview=True,
                            interactive=False, elem_id="sent",
                        )  # fmt: skip
                        with gr.Row():
                            rule = gr.Dropdown(
                                packing.rule_choices(), value=packing.SQUARE, label="For", scale=3,
                                min_width=200, elem_id="pack-rule",
                            )  # fmt: skip
                            spend = gr.Number(
                                packing.USUAL_TOKENS, label="Tokens at most", precision=0, scale=1,
                                min_width=120, elem_id="pack-tokens",
                            )  # fmt: skip
                            layout = gr.Dropdown(
                                packing.layout_choices(), value="auto", label="Layout", scale=1,
                                min_width=120, elem_id="pack-layout",
                            )  # fmt: skip
                        costs = gr.HTML("", apply_default_css=False, elem_id="pack-costs")
                        is_packing = gr.Checkbox(visible=False)
                        parcel = gr.DownloadButton("Download them", elem_id="pack-file")
            with gr.Column(elem_id="more"):
                with gr.Row(elem_id="budget-row"):
                    tokens = Count(
                        1, MOST, value=AskForm.tokens, step=1, label="Budget, tokens to keep",
                        scale=4, min_width=180, elem_id="budget",
                    )  # fmt: skip
                    auto = gr.Checkbox(False, label="auto", scale=1, min_width=80, elem_id="auto")
                problems["budget"] = Problem(field="#budget input[type=number]", elem_id="budget-problem")
                with gr.Column(elem_id="samples"):
                    groups = {
                        title: gr.Dataset(
                            label=title, components=["html"], type="index", samples_per_page=100,
                            samples=[[chip(sample)] for sample in samples if sample.group == title],
                        )
                        for title in dict.fromkeys(sample.group for sample in samples)
                    }  # fmt: skip
                clip = UploadClip(
                    label=f"Or a clip ({LIMITS}) or a PDF", file_types=["video", ".pdf"], height=170,
                    buttons=[], elem_id="clip",
                )  # fmt: skip
                problems["clip"] = Problem(elem_id="clip-problem")
                modes = [(f"{mode.name}: {mode.help}", mode.name) for mode in MODES.values()]
                modes = [("as the model does by default", ""), *modes]
                mode = gr.Dropdown(modes, value=AskForm.mode or "", label="How it reads", elem_id="mode")
                magnify = gr.Dropdown(
                    [(label, value) for value, label in MAGNIFY.items()], value=AskForm.magnify,
                    label="Magnify what is kept", elem_id="magnify",
                )  # fmt: skip
                compare = gr.Checkbox(AskForm.compare, label="Answer from all tokens, too", elem_id="compare")
        with gr.Accordion("Look closer", open=False, elem_id="closer") as closer:
            with gr.Row(elem_id="probes"):
                probes = {
                    name: gr.Button(PROBES[name], size="md", min_width=200, elem_id=f"probe-{name}")
                    for name in probe_names()
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

        form = [image, question, tokens, auto, mode, compare, magnify]
        settings = form[1:]
        shown_by_form = [status, canvas, stale, *(problems[name] for name in FIELDS)]
        close_up = [microscope, history, page, record]
        running = [ask, stop, end, *probes.values(), swap]

        def while_running(
            event: Any, handler: Callable[..., Any], inputs: list[Any], outputs: list[Any]
        ) -> Any:
            """Run a handler with Stop enabled, then redraw an open detail view; returns the last event."""
            ended = [part for part in outputs if isinstance(part, Problem)]
            start = partial(handlers.begin, len(running), problems=len(ended))
            begun = event(start, [tab], [outputs[0], *running, *ended], **quick)
            ran = begun.then(handler, [tab, *inputs], outputs, **busy)
            ran.success(partial(handlers.finish, len(running)), [tab], [*running, *close_up], **quick)
            ran.failure(
                partial(handlers.fail, len(running)), [tab], [outputs[0], *running, *close_up], **quick
            )
            ran.then(partial(handlers.on_headline, models), None, [headline], **quick)
            return ran

        asks = partial(gr.on, [ask.click, question.submit])
        while_running(asks, partial(handlers.on_ask, models), form, shown_by_form)
        asks(lambda: gr.Tabs(selected=ANSWER), None, [results_tabs], **quick)
        asks(None, None, None, js=SHOW_RESULTS, **quick)
        asks(handlers.on_remember, settings, [last], **quick)
        for name, button in probes.items():
            while_running(
                button.click, partial(handlers.on_measure, models, name), [], [measured, microscope]
            )
        while_running(
            partial(gr.on, [swap.click, other.submit]),
            partial(handlers.on_swap, models),
            [other],
            [measured, swapped],
        )
        if len(models) > 1:
            while_running(both.click, partial(handlers.on_against, models), [], [measured, sides])
        for button in (stop, end):
            button.click(handlers.on_stop, [tab], None, **quick)
        guided: dict[str, Any] = private | {
            "fn": partial(handlers.on_look, looking), "inputs": [tab, image, question, tokens, auto],
            "outputs": [look_canvas, look_line], "trigger_mode": "always_last", "concurrency_id": "guide",
            "concurrency_limit": 1, "show_progress": "hidden",
        }  # fmt: skip
        gr.on([question.change, tokens.change, auto.change], **guided)
        packs: dict[str, Any] = guided | {
            "fn": partial(handlers.on_pack, looking), "js": IF_PACKING,
            "inputs": [tab, image, question, rule, spend, layout, is_packing],
            "outputs": [pack_line, sent, costs, parcel],
        }  # fmt: skip
        parcels = packs["outputs"]
        asked_anew = [question.change, rule.change, spend.change, layout.change]
        begun = f"() => [{json.dumps(handlers.PACKING)}, '', null]"
        gr.on([pack_tab.select, *asked_anew], None, None, [pack_line, costs, parcel], js=begun, **quick)
        gr.on([pack_tab.select, *asked_anew], **packs)
        of_clip = [clip, frames, problems["clip"]]
        no_clip: dict[str, Any] = quick | {"fn": handlers.on_no_clip, "inputs": [tab], "outputs": of_clip}
        fresh: dict[str, Any] = quick | {
            "fn": lambda state: [gr.Tabs(selected=LOOK), *handlers.on_new_picture(state)],
            "inputs": [tab],
            "outputs": [results_tabs, look_line, *parcels],
        }
        of_image = [image, status, stale, problems["image"]]
        decoding: dict[str, Any] = light | {"concurrency_id": "uploads", "concurrency_limit": AT_ONCE}
        uploaded = image.upload(**fresh).then(handlers.on_upload, [tab, image], of_image, **decoding)
        uploaded.then(**no_clip)
        uploaded.then(**guided)
        taken = [clip, frames, image, status, stale, problems["clip"]]
        in_place = clip.upload(**fresh).then(handlers.on_clip, [tab, clip], taken, **decoding)
        in_place.then(lambda: "", None, [problems["image"]], **quick)
        in_place.then(**guided)
        clip.clear(handlers.on_clip_clear, [tab], [frames, stale, problems["clip"]], **quick).then(**guided)
        image.clear(handlers.on_clear, [tab], [stale, problems["image"]], **quick)
        # A browser reports that a picture was cleared before it forgets it, and would send it once more.
        blank = partial(handlers.on_look, looking, image=None, question="", tokens=AskForm.tokens)
        cleared: dict[str, Any] = guided | {"fn": blank, "inputs": [tab]}
        image.clear(**cleared)
        image.clear(lambda: packing.empty(handlers.NO_PICTURE), None, parcels, **quick)
        auto.change(lambda on: gr.update(interactive=not on), [auto], [tokens], **quick)
        of_answer = [tokens, auto, mode, magnify]
        changed = [part.change for part in of_answer]
        gr.on(changed, handlers.on_settings, [tab, *of_answer], [stale], **quick)
        of_pick = [*shown_by_form, image, question, *of_clip, results_tabs, look_line, *parcels]

        def pick(title: str, state: Tab, index: int) -> list[Any]:
            sample = [sample for sample in samples if sample.group == title][index]
            where = ANSWER if sample.trace is not None else LOOK
            return [
                *handlers.on_pick(sample, state),
                gr.Tabs(selected=where),
                *handlers.on_new_picture(state),
            ]

        for title, picks in groups.items():
            picks.click(partial(pick, title), [tab, picks], of_pick, **quick).then(**guided)
            picks.click(None, None, None, js=SHOW_RESULTS, **quick)
        closer.expand(handlers.on_closer, [tab], close_up, **quick)
        closer.collapse(handlers.on_closed, [tab], None, **quick)
        opened = [*shown_by_form, image, question, unreadable, *close_up]
        reopened = saved.upload(handlers.on_open, [tab, saved], opened, **light)
        reopened.then(**no_clip)
        reopened.success(lambda: gr.Tabs(selected=ANSWER), None, [results_tabs], **quick)
        reopened.then(**guided)
        if cases is not None:
            worst.select(partial(handlers.on_gallery, cases), None, [worst_title, gallery], **light)

            def choose(state: Tab, event: gr.SelectData) -> list[Any]:
                chosen = handlers.on_case(cases, state, event.index)
                return [*chosen, gr.Tabs(selected=ANSWER), *handlers.on_new_picture(state)]

            of_case = [image, question, status, stale, results_tabs, look_line, *parcels]
            chosen = gallery.select(choose, [tab], of_case, **quick)
            chosen.then(**no_clip)
            chosen.then(**guided)
            gallery.select(None, None, None, js=SHOW_FORM, **quick)
        # Gradio deletes the state of a closed tab only if something has set it.
        app.load(visits.begin, [tab], [tab], **quick)
        app.unload(visits.end)
        app.load(
            partial(handlers.on_first_look, looking, samples[0], AskForm.tokens),
            None,
            [look_canvas, look_line],
            **light,
        )
        app.load(partial(handlers.on_visit, models, lazy), None, [headline], **light)
        if not lazy:
            app.load(handlers.on_restore, [last, *settings], settings, **quick)
        publish(models, **busy | {"api_visibility": "public"})
    return app.queue(max_size=WAITING, api_open=False)
