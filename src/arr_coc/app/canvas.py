"""Gradio components of the app: the viewer, a status line that screen readers read, an undecoded upload."""

from __future__ import annotations

import html
import json
from abc import ABCMeta
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
  else if (kind === "history") handle = ArrCocViewer.history(root, value);
  else handle = ArrCocViewer.mount(root, value, { detail: kind });
};
draw();
watch("value", draw);
"""
"""A view travels as text: Gradio wraps every number of an object in a proxy of its own."""


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
        value: for kinds "simple" and "full" a view; for "pair" {"a", "b", "labels"}; for "history" a list of
            views; None: nothing is drawn.
        kind: what is drawn of it.
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
        super().__init__(
            value,
            html_template='<p class="status" role="status" aria-live="polite">${value}</p>',
            js_on_load=None,
            apply_default_css=False,
            **more,
        )

    def postprocess(self, value: str | None) -> str:
        """Escaped: answers are text, whatever they look like."""
        return html.escape(value or "")


class Upload(gr.Image, metaclass=Plain):
    """An image upload that gives the path of the file as it came, for `open_image` to check."""

    def preprocess(self, payload: Any) -> str | None:
        """The path, unopened."""
        return None if payload is None else payload.path

    def get_block_name(self) -> str:
        """Gradio's front end knows it by this name."""
        return "image"
