"""Gradio components of the app: the viewer, status lines for screen readers, uploads, unchecked fields."""

from __future__ import annotations

import html
import json
import re
from abc import ABCMeta
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.component_meta import ComponentMeta, updateable

MOUNT = """
const root = element.querySelector(".token-canvas");
let handle = null;
const draw = () => {
  const value = props.value ? JSON.parse(props.value) : null;
  if (!value) {
    handle = null;
    root.replaceChildren();
  } else if (kind === "pair") ArrCocViewer.pair(root, value.a, value.b, { labels: value.labels });
  else if (handle) handle.update(value);
  else if (kind === "look") handle = ArrCocViewer.look(root, value);
  else if (kind === "history") handle = ArrCocViewer.history(root, value);
  else handle = ArrCocViewer.mount(root, value, { detail: kind });
};
draw();
watch("value", draw);
"""
"""The view is sent as text, since Gradio wraps every number of an object in a proxy."""


MARK = """
const line = element.querySelector(".problem");
watch("value", () => {
  const isWrong = line.textContent !== "";
  const input = field && document.querySelector(field);
  if (input) {
    line.id = element.id + "-text";
    input.setAttribute("aria-invalid", isWrong);
    if (isWrong) input.setAttribute("aria-describedby", line.id);
    else input.removeAttribute("aria-describedby");
    if (isWrong) input.focus({ preventScroll: true });
  }
  if (isWrong) line.scrollIntoView({ block: "center" });
});
"""


class Plain(ComponentMeta):
    """A metaclass for components without Gradio's .pyi file, which it writes beside a component's module."""

    def __new__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> Plain:
        """Make the class; its arguments are recorded, since Gradio makes components anew from them."""
        if "__init__" in attrs:
            attrs["__init__"] = updateable(attrs["__init__"])
        return ABCMeta.__new__(cls, name, bases, attrs)


class TokenCanvas(gr.HTML, metaclass=Plain):
    """A component that draws an answer, or other views (`Trace.view`), with the JavaScript viewer.

    `value` is None or depends on the kind. "full" and "closer": a view; "closer" leaves out the answer, which
    the page shows already. "pair": {"a", "b", "labels"}. "history": a list of views. "look": cells without an
    answer.
    """

    def __init__(self, value: Any = None, *, kind: str = "simple", **more: Any) -> None:
        super().__init__(
            value,
            html_template='<div class="token-canvas"></div>',
            js_on_load=f"const kind = {json.dumps(kind)};" + MOUNT,
            apply_default_css=False,
            **more,
        )

    def postprocess(self, value: Any) -> str | None:
        """Return the value as JSON text, or None."""
        return None if value is None else json.dumps(value)

    def get_block_name(self) -> str:
        """Return the name by which Gradio's front end finds the component."""
        return "html"


class StatusLine(gr.HTML, metaclass=Plain):
    """One line of plain text, read out by screen readers when it changes."""

    def __init__(self, value: str = "", **more: Any) -> None:
        line: dict[str, Any] = {
            "html_template": '<p class="status" role="status" aria-live="polite">${value}</p>',
            "js_on_load": None,
            "apply_default_css": False,
        }
        super().__init__(value, **line | more)

    def postprocess(self, value: str | None) -> str:
        """Return the value, escaped: an answer may contain markup."""
        return html.escape(value or "")


class Problem(StatusLine, metaclass=Plain):
    """The problem of a field, scrolled into view and read out; "" takes no room.

    `field` is a CSS selector of the input, which is marked as invalid and focused.
    """

    def __init__(self, value: str = "", *, field: str = "", **more: Any) -> None:
        problem = {
            "html_template": '<p class="problem" role="alert">${value}</p>',
            "js_on_load": f"const field = {json.dumps(field)};" + MARK,
            "elem_classes": ["problem-line"],
        }
        super().__init__(value, **problem | more)


class Count(gr.Slider, metaclass=Plain):
    """A slider that accepts any typed number, for `AskForm.budget` to check."""

    def preprocess(self, payload: float) -> float:
        """Return the number, unchecked; 0 for an empty field."""
        return 0 if payload is None else payload

    def get_block_name(self) -> str:
        """Return the name by which Gradio's front end finds the component."""
        return "slider"


# ---- uploads: the path of a file as it came, and of none that was not uploaded -------------------------

ADDRESS = r"(?i)[a-z][a-z0-9+.-]+://"


class Uploaded:
    """A component whose value is the path of an uploaded file, unopened.

    Gradio checks only paths that the request marks as files, which a caller can leave out; here all are
    checked.
    """

    GRADIO_CACHE: str

    def preprocess(self, payload: Any) -> str | None:
        """Return the path; any file that wasn't uploaded is refused."""
        if payload is None:
            return None
        if not payload.path:
            raise gr.Error("the file did not arrive whole: upload it again", print_exception=False)
        path = Path(payload.path).resolve()
        if not path.is_relative_to(Path(self.GRADIO_CACHE).resolve()):
            raise gr.Error("that file was not uploaded: upload it first", print_exception=False)
        return str(path)

    async def async_move_resource_to_block_cache(self, url_or_file_path: str | Path | None) -> str | None:
        """As Gradio's, for files alone: Gradio would fetch an address."""
        if re.match(ADDRESS, str(url_or_file_path)):
            raise gr.Error("an address is not fetched: upload the file itself", print_exception=False)
        move: Any = super()
        return await move.async_move_resource_to_block_cache(url_or_file_path)


class Upload(Uploaded, gr.Image, metaclass=Plain):
    """An image upload, checked by `open_image`."""

    def get_block_name(self) -> str:
        return "image"


class UploadClip(Uploaded, gr.File, metaclass=Plain):
    """An upload for a video file or a PDF, checked by `clips.open_upload` and `first_page`."""

    def get_block_name(self) -> str:
        return "file"


class UploadTrace(Uploaded, gr.UploadButton, metaclass=Plain):
    """A button to upload a trace file, checked by `Trace.load`."""

    def get_block_name(self) -> str:
        return "uploadbutton"
