"""The command `arr-coc train`: teach an allocator by a recipe, on drawn pages or your own images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from arr_coc.cli import options, terminal


def command(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A built-in recipe or a .toml file; `list` names them.")
    ],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that replace the recipe's.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FOLDER", help="Where the allocator goes.")
    ] = "arr-coc-allocator",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Teach an allocator where to look; killed, the same line goes on where it was.

    `arr-coc train list` shows the built-in recipes. Every setting of a recipe can be replaced:
    arr-coc train distill data=folder:my-pages model=Qwen/Qwen3-VL-2B-Instruct steps=500
    --dtype is the recipe's setting `precision`.
    """
    with terminal.status("starting", as_json):
        from arr_coc.training.recipe import built_in, load_recipe, parse_override

    if recipe == "list":
        recipes = {
            name: path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            for name, path in built_in().items()
        }
        if as_json:
            terminal.print_json(recipes)
        else:
            terminal.print_rows(list(recipes.items()))
        return
    overrides = dict(parse_override(change) for change in changes or ())
    if dtype != "auto":
        overrides = {"precision": dtype} | overrides
    settings = load_recipe(recipe, overrides)
    with terminal.quiet_stdout(as_json):
        with terminal.status("starting", as_json):
            from arr_coc.training.trainer import train

            terminal.quiet_transformers()
        result = train(settings, Path(out).expanduser(), progress=not as_json, device=device)
    if os.environ.get("RANK", "0") != "0":  # one process of several prints
        return
    facts = {"folder": out, **result}
    if as_json:
        terminal.print_json(facts)
        return
    terminal.print_rows(
        [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in facts.items()]
    )
