"""Gradio components of the app: the viewer, lines that screen readers read, uploads, unchecked fields."""

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
"""A view travels as text: Gradio wraps every number of an object in a proxy of its own."""


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
    """Makes a component's class without writing a .pyi file beside it, as Gradio's own metaclass does."""

    def __new__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> Plain:
        """The class: events are inherited, and arguments kept, since Gradio makes components anew."""
        if "__init__" in attrs:
            attrs["__init__"] = updateable(attrs["__init__"])
        return ABCMeta.__new__(cls, name, bases, attrs)


class TokenCanvas(gr.HTML, metaclass=Plain):
    """A view, drawn by the viewer.

    Args:
        value: for "pair" {"a", "b", "labels"}; for "history" a list of views; for other kinds a view; None:
            nothing is drawn.
        kind: what is drawn of it; "look" is a choice without an answer, "closer" is "full" for a page that
            shows the answer already.
        more: other arguments of `gr.HTML`.
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
        """As JSON text, or None."""
        return None if value is None else json.dumps(value)

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "html"


class StatusLine(gr.HTML, metaclass=Plain):
    """A line of plain text that screen readers read out when it changes."""

    def __init__(self, value: str = "", **more: Any) -> None:
        line: dict[str, Any] = {
            "html_template": '<p class="status" role="status" aria-live="polite">${value}</p>',
            "js_on_load": None,
            "apply_default_css": False,
        }
        super().__init__(value, **line | more)

    def postprocess(self, value: str | None) -> str:
        """Escaped: answers are text, whatever they look like."""
        return html.escape(value or "")


class Problem(StatusLine, metaclass=Plain):
    """What is wrong with a field, beside it: brought into sight and read out. Empty, it takes no room.

    Args:
        value: the reason; "": nothing is wrong.
        field: selects the input that it is about, which is marked as invalid and gets the focus; "": none.
        more: other arguments of `gr.HTML`.
    """

    def __init__(self, value: str = "", *, field: str = "", **more: Any) -> None:
        problem = {
            "html_template": '<p class="problem" role="alert">${value}</p>',
            "js_on_load": f"const field = {json.dumps(field)};" + MARK,
            "elem_classes": ["problem-line"],
        }
        super().__init__(value, **problem | more)


class Count(gr.Slider, metaclass=Plain):
    """A slider that gives any number typed into it, for `Request.budget` to check."""

    def preprocess(self, payload: float) -> float:
        """The number, unchecked; 0 where the field was emptied."""
        return 0 if payload is None else payload

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "slider"


# ---- uploads: the path of a file as it came, and of none that was not uploaded -------------------------

ADDRESS = r"(?i)[a-z][a-z0-9+.-]+://"


class Uploaded:
    """A component that gives the path of a file as it was uploaded, unopened.

    Gradio checks a path only where the request says that it is one of a file; anybody can leave that out.
    """

    GRADIO_CACHE: str

    def preprocess(self, payload: Any) -> str | None:
        """The path; a file that was not uploaded is refused."""
        if payload is None:
            return None
        if not payload.path:
            raise gr.Error("the file did not arrive whole: upload it again", print_exception=False)
        path = Path(payload.path).resolve()
        if not path.is_relative_to(Path(self.GRADIO_CACHE).resolve()):
            raise gr.Error("that file was not uploaded: upload it first", print_exception=False)
        return str(path)

    async def async_move_resource_to_block_cache(self, url_or_file_path: str | Path | None) -> str | None:
        """As Gradio's, of files alone: it would fetch an address."""
        if re.match(ADDRESS, str(url_or_file_path)):
            raise gr.Error("an address is not fetched: upload the file itself", print_exception=False)
        move: Any = super()
        return await move.async_move_resource_to_block_cache(url_or_file_path)


class Upload(Uploaded, gr.Image, metaclass=Plain):
    """An image upload, for `open_image` to check."""

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "image"


class UploadClip(Uploaded, gr.File, metaclass=Plain):
    """A place to drop a video file, for `clips.open_upload` to check."""

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "file"


class UploadTrace(Uploaded, gr.UploadButton, metaclass=Plain):
    """A button to upload a file of a trace, for `Trace.load` to check."""

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "uploadbutton"
