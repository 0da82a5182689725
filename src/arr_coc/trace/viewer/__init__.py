"""The viewer: JavaScript that draws views of traces in a browser, without a model or a network.

`ArrCocViewer.mount(element, view, {detail, onselect, cell})`, `.pair(element, a, b, {labels})`,
`.history(element, views)` and `.album(element, views)` draw results of `Trace.view()`;
`.look(element, view)` draws one of `trace.view.look_view`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from arr_coc.trace.view import VIEW_FORMAT

_SCRIPTS = (
    "tools.js",
    "terms.js",
    "record.js",
    "canvas.js",
    "verdict.js",
    "controls.js",
    "card.js",
    "charts.js",
    "probes.js",
    "truth.js",
    "steps.js",
    "filmstrip.js",
    "clip.js",
    "mount.js",
    "album.js",
)
_STYLES = ("viewer.css", "filmstrip.css")
_PAGE_STYLE = """
body { margin: 0; background: light-dark(#fff, #17171b); color-scheme: light dark; }
main { max-width: 1240px; margin: 0 auto; padding: 24px 16px 40px; }
h1, footer { font: 600 13px system-ui, sans-serif; color: light-dark(#66666f, #9c9ca8); margin: 0 0 16px; }
footer { font-weight: 400; margin: 32px 0 0; }
"""
_START = """
ArrCocViewer.album(document.getElementById("views"), JSON.parse(document.getElementById("data").textContent));
"""


@cache
def assets() -> tuple[str, str]:
    """Return the viewer's JavaScript, which sets the global `ArrCocViewer`, and CSS."""
    folder = files("arr_coc.trace.viewer")
    parts = [folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS]
    public = "window.ArrCocViewer = { mount, pair, history, album, look };"
    script = "\n".join(['(() => {\n"use strict";', *parts, public, "})();\n"])
    return script, "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _STYLES)


def page(views: Sequence[dict[str, Any]], title: str = "arr-coc: see what it saw") -> str:
    """Return an HTML file that draws views, with a list to choose from if there are several.

    Text of a view is inserted as data, never as markup; the page's content security policy allows only the
    viewer's own script and no connections.

    Args:
        views: results of `Trace.view()`, at least one.
        title: title of the page; any text.

    Raises:
        ValueError: no views, or a value that isn't a view.
    """
    if not views:
        raise ValueError("a page needs at least one view; give it Trace.view() of a trace")
    for view in views:
        if view.get("format") != VIEW_FORMAT:
            raise ValueError(
                f"a view has format {view.get('format')!r}, need {VIEW_FORMAT!r}; make it with Trace.view()"
            )
    viewer, style = assets()
    script, style = viewer + _START, style + _PAGE_STYLE
    data = json.dumps(list(views), allow_nan=False).replace("<", "\\u003c")  # no "</script>" in the data
    policy = (
        f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    heading = html.escape(title)
    size = sum(len(part.encode()) for part in (data, script, style))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n<h1>{heading}</h1>\n"
        f'<div id="views"></div>\n<footer>{size / 1e6:.1f} MB, complete in this one file</footer>\n</main>\n'
        f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n'
        f"</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    """Return the content security policy's expression that allows exactly this inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
