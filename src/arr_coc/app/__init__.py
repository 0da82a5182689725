"""The app, in a browser: answers about an image or a clip, and the tokens that they were read from.

    build_app()    the Gradio app; `.launch()` has safe settings of its own
    launch()       builds it, serves it on this machine alone, and cleans up

Every number and every picture comes from a `Trace`, which the viewer draws. Gradio (`pip install
'gradio>=6.27,<7'`) is imported when one of the two is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arr_coc.files.plugins import install_line

if TYPE_CHECKING:
    from arr_coc.app.screen import App
    from arr_coc.model import ARRCOCModel
    from arr_coc.trace.trace import Trace

__all__ = ["build_app", "launch"]


def build_app(
    model: ARRCOCModel | None = None,
    *,
    model_name: str = "bundled",
    against: ARRCOCModel | str | None = None,
    results: str | Path | None = None,
    traces: Sequence[Trace | str | Path] = (),
    device: str = "auto",
    dtype: str | None = None,
    allocator: str | None = None,
    guide: str | Path | None = None,
    relevance: str = "auto",
    max_new_tokens: int = 32,
) -> App:
    """Build the app. No model is loaded before `launch()`, and with traces not before the first question.

    Args:
        model: a loaded model; None: `model_name` is loaded in the background.
        model_name: a Hub name, a folder or "bundled".
        against: a second model for the A/B view, loaded or by name; None: there is no such view.
        results: a result file of `arr-coc eval`; its worst cases are shown. None: there is no such view.
        traces: what to show first, saved or loaded; none: the built-in sample.
        device: where models are loaded to: "auto", "cpu", "cuda", "mps" ...; see `resolve_device`.
        dtype: of their base models: "float32", "bfloat16", "float16"; "auto" or None: as saved.
        allocator: an allocator for `model_name`, by name; None: its own.
        guide: folder of another guide for the models that are loaded, and for the look before any answers;
            None: the bundled one.
        relevance: what couples cells with a question in `model_name`, as of `ARRCOCModel.from_pretrained`.
        max_new_tokens: where an answer is cut off.

    Raises:
        ValueError: Gradio is missing, this machine has no such device, or a file is not what it should be.
    """
    require_gradio()
    from arr_coc.app.models import Models
    from arr_coc.app.samples import samples
    from arr_coc.app.screen import build
    from arr_coc.files.device import resolve_device, resolve_dtype
    from arr_coc.guide.guide import guide_folder

    resolve_device(device)  # refused now, not when the first question waits for the model
    resolve_dtype(dtype)
    sources = (model_name if model is None else model, *([] if against is None else [against]))
    models = Models(
        *sources,
        device=device,
        dtype=dtype,
        allocator=allocator,
        guide=None if guide is None else guide_folder(guide),
        relevance=relevance,
        max_new_tokens=max_new_tokens,
    )
    return build(models, samples(traces), results, lazy=bool(traces))


def launch(
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    share: bool = False,
    allow_hosts: Sequence[str] = (),
    ready: Callable[[str], None] = print,
    **settings: Any,
) -> bool:
    """Serve the app until it is interrupted; uploads and exports are deleted then.

    Args:
        host: who can reach it: "127.0.0.1" this machine alone, "0.0.0.0" the whole network.
        port: where to listen.
        share: make a public link through Gradio's own server.
        allow_hosts: names by which browsers may call the server, beside the machine's own.
        ready: called with the address once the page can be opened.
        settings: as of `build_app`, models by name.

    Returns:
        Whether a model or the guide is still at work: the process would end only after that, or abort.

    Raises:
        ValueError: as `build_app`, a model is named that isn't there, this machine has no such address, or
            the port is taken.
    """
    require_gradio()
    from arr_coc.app.server import serve

    return serve(lambda: build_app(**settings), host, port, share, ready, allow_hosts)


def require_gradio() -> None:
    """Raise a ValueError unless Gradio is installed."""
    if find_spec("gradio") is None:
        raise ValueError(f"the app needs Gradio, which is not installed: {install_line('app')}")
