"""The command `arr-coc train`: train an allocator by a recipe, or the guide, on pages or your own images."""

from __future__ import annotations

import re
import shlex
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.paths import local_path
from arr_coc.files.plugins import plugin

if TYPE_CHECKING:
    from arr_coc.train.recipe import Recipe

WIDTH = 80  # columns of the descriptions, where the terminal isn't narrower


def train_command(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A built-in recipe or a .toml file; `list` names them, `list NAME` describes one.",
            autocompletion=options.recipe_names,
        ),
    ],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that replace the recipe's.")
    ] = None,
    out: options.AllocatorFolder = options.DEFAULT_FOLDER,
    pages: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER|NAME:DIR",
            help="For guide: pages of `arr-coc world`, or labelled images of your own; can be repeated.",
        ),
    ] = None,
    stage: Annotated[
        Literal["spotting", "relevance", "both"] | None,
        typer.Option(metavar="NAME", help="For guide: spotting (reading), relevance or both."),
    ] = None,
    steps: Annotated[int | None, options.steps("For guide: steps of each stage.")] = None,
    minutes: Annotated[float | None, options.minutes("For guide: stop after so long.")] = None,
    init: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="GUIDE", help="For guide: start from this one; bundled: the bundled one."
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    as_json: options.AsJson = False,
) -> int:
    """Train an allocator, which chooses cells for one model. The same line resumes a run that was ended.

    `arr-coc train list` names the built-in recipes. Every setting of a recipe can be replaced:
    arr-coc train distill data=folder:my-pages model=Qwen/Qwen3-VL-2B-Instruct steps=500
    model=bundled needs no download. Ctrl-C keeps what was learned. --dtype is the recipe's `precision`.

    `arr-coc train guide --pages FOLDER` teaches the guide, which needs no model: to read, then where to
    look.
    """
    with terminal.status("starting", as_json):
        from arr_coc.train.recipe import load_recipe, parse_override

    if recipe == "list":
        return _list(changes or [], as_json)
    own = {"pages": pages, "stage": stage, "steps": steps, "minutes": minutes, "init": init}
    own = {name: value for name, value in own.items() if value is not None}
    if recipe == "guide":
        return _train_guide(changes or [], own, out, device, as_json)
    if own:
        flag = "from" if "init" in own else next(iter(own))
        raise ValueError(f"--{flag} is of recipe guide alone: settings of {recipe!r} are KEY=VALUE")
    overrides = dict(parse_override(change) for change in changes or ())
    if dtype != "auto":
        overrides = {"precision": dtype} | overrides
    settings = load_recipe(recipe, overrides)
    try:
        with terminal.quiet_stdout(as_json):
            with terminal.status("starting", as_json):
                from arr_coc.train.processes import ended_group, is_main_process
                from arr_coc.train.trainer import train

                terminal.quiet_transformers()
            name = Path(recipe).stem
            with ended_group():
                result = train(settings, local_path(out), name=name, progress=not as_json, device=device)
    except KeyboardInterrupt:
        terminal.complain("stopped; what was learned since the last checkpoint, if there was one, is lost")
        return options.INTERRUPTED
    if not is_main_process():
        return 0
    if as_json:
        terminal.print_json({"folder": out, **result})
    if result["signal"] is not None:
        terminal.complain(
            f"stopped after step {result['steps']:,} of {result['of']:,}; what was learned so far is usable: "
            f"{_next(settings, out)}; the same line goes on from there"
        )
        return 128 + result["signal"]
    if not as_json:
        _print_result(settings, out, result)
    return 0


def _train_guide(changes: list[str], own: dict[str, Any], out: str, device: str, as_json: bool) -> int:
    """Train the guide; an option of `own` replaces the KEY=VALUE of that name."""
    with terminal.status("starting", as_json):
        load_guide_recipe = plugin("teachers", "guide").load_guide_recipe
        train_guide = plugin("trainers", "guide")
        terminal.quiet_transformers()
    pairs = [change.partition("=") for change in changes]
    for name, sign, _ in pairs:
        if not sign:
            raise ValueError(f"{name!r} is no change of a recipe: write KEY=VALUE, for example steps=200")
    settings = load_guide_recipe({name.strip(): value.strip() for name, _, value in pairs} | own)
    try:
        with terminal.quiet_stdout(as_json):
            result = train_guide(settings, local_path(out), progress=not as_json, device=device)
    except KeyboardInterrupt:
        terminal.complain("stopped; what was learned since the last checkpoint, if there was one, is lost")
        return options.INTERRUPTED
    if as_json:
        terminal.print_json({"folder": out, **result})
    done = f"step {result['steps']:,} of {result['of']:,} of stage {result['stage']}"
    if result["signal"] is not None:
        terminal.complain(f"stopped after {done}; the guide is usable; the same line goes on from there")
        return 128 + result["signal"]
    if not as_json:
        from arr_coc.train.callbacks import duration, in_words

        rows = [("folder", out), ("learned", f"{done}; {duration(result['seconds'])} since the start")]
        rows += [("reached", f"{in_words(result)} (mean since the last line)")] if "loss" in result else []
        terminal.print_rows(rows)
    return 0


def _list(names: list[str], as_json: bool) -> int:
    """Print a line for each recipe, or the descriptions of named ones."""
    from arr_coc.train.recipe import describe, recipes, summary

    for name in names:
        if name not in recipes():
            raise ValueError(f"recipe {name!r} is unknown: use one of {', '.join(recipes())}")
    descriptions = {name: describe(name) for name in names or recipes()}
    if as_json:
        terminal.print_json({name: "\n".join(text) for name, text in descriptions.items()})
    elif names:
        _print_descriptions(descriptions)
    else:
        terminal.print_rows([(name, summary(name)) for name in descriptions], 2 + max(map(len, descriptions)))
        print("\narr-coc train list NAME    settings, cost and what to expect")
        print("arr-coc train RECIPE [KEY=VALUE]... --out FOLDER")
    return 0


def _print_descriptions(descriptions: dict[str, list[str]]) -> None:
    """Print each recipe's name and its paragraphs, indented; their labels are in a column of their own."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for name, paragraphs in descriptions.items():
        print(name)
        for paragraph in paragraphs:
            label = re.match(r"\S+ {2,}", paragraph)
            indent = "    " if label is None else "              "
            first = "    " if label is None else f"    {label[0].strip():<9} "
            text = paragraph if label is None else paragraph[label.end() :]
            for line in textwrap.wrap(
                text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
            ):
                print(line)
        print()
    print("arr-coc train RECIPE [KEY=VALUE]... --out FOLDER")


def _print_result(settings: Recipe, out: str, result: dict[str, Any]) -> None:
    """Print where the allocator is, what it reached, and what to do with it."""
    from arr_coc.train.callbacks import duration, in_words

    rows = [
        ("folder", out),
        (
            "learned",
            f"{result['learned']:,} parameters in {result['steps']:,} steps; "
            f"{duration(result['seconds'])} since the start",
        ),
    ]
    if "loss" in result:
        rows.append(("reached", f"{in_words(result)} (mean since the last line of the log)"))
    rows.append(("next", _next(settings, out)))
    terminal.print_rows(rows)


def _next(settings: Recipe, out: str) -> str:
    """Return the command that uses what was learned."""
    folder = shlex.quote(out)
    if getattr(settings, "allocator", None) == "query-blind":
        from arr_coc.train.folder import QUERY_BLIND

        return (
            f"arr-coc eval --query-blind {shlex.quote(str(Path(out) / QUERY_BLIND))} --model {settings.model}"
        )
    mode = " --mode sparse" if getattr(settings, "eyes", None) == "stem" else ""
    return f"arr-coc ask IMAGE QUESTION --model {folder}{mode}"
