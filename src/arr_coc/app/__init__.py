"""The app in a browser: answers about images and clips, and the visual tokens that they were read from.

All figures and pictures on the page come from a `Trace`. Gradio is imported only when the app is built.
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
    """Build the app as Gradio blocks; models load at `launch()`, or, with traces, at the first question.

    Args:
        model: a loaded model; None: `model_name` is loaded in the background.
        model_name: a Hub name, a folder or "bundled".
        against: a second model, loaded or by name, for the A/B view; None: no such view.
        results: a result file of `arr-coc eval`, for the view of its worst cases; None: no such view.
        traces: saved or loaded traces, shown first; none: the built-in sample.
        device: as in `resolve_device`: "auto", "cpu", "cuda", "mps" ...
        dtype: of base models: "float32", "bfloat16", "float16"; "auto" or None: as saved.
        allocator: an allocator for `model_name`; None: its own.
        guide: folder of a guide; None: the bundled one.
        relevance: source of relevance of `model_name`, as in `ARRCOCModel.from_pretrained`.
        max_new_tokens: longest answer, in tokens.

    Raises:
        ValueError: Gradio or the device is missing, or a file is invalid.
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
        host: address to listen on: "127.0.0.1" for this machine alone, "0.0.0.0" for the network.
        port: port to listen on.
        share: make a public link through Gradio's server.
        allow_hosts: further names by which browsers may call the server.
        ready: called with the address once the page can be opened.
        settings: arguments of `build_app`; models by name.

    Returns:
        Whether a model or the guide is still at work, which delays or aborts the end of the process.

    Raises:
        ValueError: as `build_app`, an unknown model or address, or a port that is taken.
    """
    require_gradio()
    from arr_coc.app.server import serve_app

    return serve_app(lambda: build_app(**settings), host, port, share, ready, allow_hosts)


def require_gradio() -> None:
    """Raise a ValueError unless Gradio is installed."""
    if find_spec("gradio") is None:
        raise ValueError(f"the app needs Gradio, which is not installed: {install_line('app')}")
