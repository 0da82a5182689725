"""The commands `app`, `view` and `space`: the browser app, saved traces as one page, the app on the Hub."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated, Literal

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.files.atomic import write_atomic
from arr_coc.files.paths import input_file, local_path


def app(
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TRACE]...", help="Saved traces to look at; they need no model."),
    ] = None,
    model: options.Model = options.DEFAULT_MODEL,
    allocator: options.Allocator = None,
    guide: options.Guide = None,
    relevance: options.Relevance = "auto",
    against: Annotated[
        str | None, typer.Option(metavar="NAME|FOLDER", help="A second model, to lay beside the first.")
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="FILE", help="A result file of eval: its worst cases are shown.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    max_new_tokens: options.MaxNewTokens = 32,
    host: options.Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, metavar="N", help="Where to listen.")] = 7860,
    share: Annotated[
        bool, typer.Option("--share", help="Make a public link, through Gradio's own server.")
    ] = False,
    allow_host: options.AllowHost = None,
) -> None:
    """Serve the app for a browser: ask about a picture, and see what the answer was read from.

    Nothing leaves this machine. Uploaded files are deleted when the app ends.
    """
    from arr_coc.app import launch, require_gradio

    options.check_port(port)
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


def view_command(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Files that ask --trace wrote.")],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE.html", help="Where to write the page.")
    ] = "arr-coc-view.html",
    as_json: options.AsJson = False,
) -> None:
    """Make one self-contained HTML page of saved traces: which cells were kept, and why.

    It shows everything that the app shows of an answer: maps, cells, words, the budget.
    """
    target = inputs.output_path("--out", out, (".html",))
    with terminal.starting(as_json):
        from arr_coc.trace.trace import Trace
        from arr_coc.trace.viewer import page

        views = [Trace.load(input_file(trace)).view() for trace in traces]
    write_atomic(page(views).encode(), target)
    size = target.stat().st_size
    if as_json:
        terminal.print_json({"page": str(target), "traces": len(views), "bytes": size})
    else:
        terminal.print_rows([("page", f"{target} ({size / 2**20:.1f} MiB, {len(views)} trace(s))")])


def space(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where the files go.")],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="NAME", help="What it shows: a name on the Hub.")
    ] = options.DEFAULT_MODEL,
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option(metavar="NAME", help="Where the model runs there: cpu, cuda, or auto."),
    ] = "auto",
    dtype: options.Dtype = "auto",
    title: Annotated[str, typer.Option(metavar="TEXT", help="Of the Space.")] = "See what it saw",
    released: Annotated[
        bool,
        typer.Option(
            "--released", help="Install arr-coc from the package index; else the folder carries it."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write the folder of a Hugging Face Space that shows a model in the app. Nothing is uploaded.

    The folder carries this installed package (about 40 MB), so the Space needs no package index;
    with --released the Space installs the package from there.
    """
    with terminal.starting(as_json):
        from arr_coc.app.space import space_files, write_space

        files = space_files(model, title, device=device, dtype=dtype, released=released)
    write_space(local_path(folder), files, force)
    names = list(dict.fromkeys(name.split("/")[0] for name in files))
    if as_json:
        terminal.print_json({"folder": folder, "files": names, "model": model})
        return
    rows = [("space", folder), ("files", ", ".join(names))]
    rows.append(("to upload", "hf repos create USER/NAME --type space --space-sdk gradio"))
    # By name, so that nothing else in the folder goes along.
    own = [name if name in files else f"{name}/*" for name in names]
    rows.append(("", f"hf upload USER/NAME {shlex.quote(folder)} . --type space --include {shlex.join(own)}"))
    terminal.print_rows(rows)
