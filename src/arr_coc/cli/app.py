"""The command `arr-coc app`: the app in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arr_coc.cli import options, terminal


def command(
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TRACE]...", help="Saved traces to look at; they need no model."),
    ] = None,
    model: options.Model = options.DEFAULT_MODEL,
    against: Annotated[
        str | None, typer.Option(metavar="NAME|FOLDER", help="A second model, to lay beside the first.")
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="FILE", help="A result file of eval: its worst cases are shown.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    host: Annotated[str, typer.Option(help="Who can reach it; 0.0.0.0 is the whole network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where to listen.")] = 7860,
    share: Annotated[
        bool, typer.Option("--share", help="Make a public link, through Gradio's own server.")
    ] = False,
) -> None:
    """Open the app in a browser: ask, see what the answer was read from, look closer.

    Nothing leaves this machine; what was uploaded is deleted when the app ends.
    """
    from arr_coc.app import launch, require_gradio

    require_gradio()
    with terminal.status("starting", False):
        from arr_coc.inspect.trace import Trace

        terminal.quiet_transformers()
        opened = [Trace.load(Path(trace).expanduser()) for trace in traces or ()]
    launch(
        model_name=model,
        against=against,
        results=results,
        device=device,
        dtype=dtype,
        traces=opened,
        host=host,
        port=port,
        share=share,
        ready=lambda address: terminal.print_rows([("app", address), ("", "Ctrl-C ends it")]),
    )
