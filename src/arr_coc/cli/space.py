"""The command `arr-coc space`: the folder of a Space on the Hub that shows one model in the app."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.paths import local_path


def command(
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
    """Write the folder of a Space that shows a model in the app; nothing is uploaded.

    The package that runs here goes along, some 40 MB, so that no package index is needed.
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
    rows.append(("", f"hf upload USER/NAME {shlex.quote(folder)} . --type space"))
    terminal.print_rows(rows)
