"""The command `arr-coc app`: the app in a browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.paths import input_file

LAST_PORT = 65_535


def command(
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TRACE]...", help="Saved traces to look at; they need no model."),
    ] = None,
    model: options.Model = options.DEFAULT_MODEL,
    allocator: options.Allocator = None,
    guide: options.Guide = None,
    relevance: Annotated[
        Literal["auto", "guide", "gaze", "trained"],
        typer.Option(
            metavar="NAME",
            help="What tells the first model which cells matter: the guide, the model's own gaze, or its "
            "trained layer; auto: the layer, where it is trained.",
        ),
    ] = "auto",
    against: Annotated[
        str | None, typer.Option(metavar="NAME|FOLDER", help="A second model, to lay beside the first.")
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="FILE", help="A result file of eval: its worst cases are shown.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    max_new_tokens: options.MaxNewTokens = 32,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Who can reach it; 0.0.0.0 is the whole network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, metavar="N", help="Where to listen.")] = 7860,
    share: Annotated[
        bool, typer.Option("--share", help="Make a public link, through Gradio's own server.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name of this machine that browsers may call it by; repeatable."),
    ] = None,
) -> None:
    """Open the app in a browser: ask, see what the answer was read from, look closer.

    Nothing leaves this machine; what was uploaded is deleted when the app ends.
    """
    from arr_coc.app import launch, require_gradio

    if port > LAST_PORT:
        raise ValueError(f"port {port} is too large: choose one up to {LAST_PORT}")
    require_gradio()
    with terminal.status("starting", False):
        from arr_coc.trace.trace import Trace

        terminal.quiet_transformers()
        opened = [Trace.load(input_file(trace)) for trace in traces or ()]
    busy = launch(
        model_name=model,
        against=against,
        results=results,
        device=device,
        dtype=dtype,
        allocator=allocator,
        guide=guide,
        relevance=relevance,
        max_new_tokens=max_new_tokens,
        traces=opened,
        host=host,
        port=port,
        share=share,
        allow_hosts=allow_host or (),
        ready=lambda address: terminal.print_rows([("app", address), ("", "Ctrl-C ends it")]),
    )
    if busy:  # with a download or a load, which nothing can interrupt
        sys.stdout.flush()
        os._exit(0)
