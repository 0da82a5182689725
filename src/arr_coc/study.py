"""The commands of a study, thin clients of `training` and `evaluate`.

arr-coc train RECIPE [KEY=VALUE ...]   teach an allocator where to look, on drawn pages or your own images
arr-coc eval                           methods x budgets on one model, a line per question
arr-coc report RESULT                  table and Pareto plot, from a result file alone
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from arr_coc import terminal

ModelName = Annotated[str, typer.Option("--model", "-m", metavar="NAME|FOLDER", help="The base model.")]


def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A built-in recipe or a .toml file; `list` names them.")
    ],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that replace the recipe's.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FOLDER", help="Where the allocator goes.")
    ] = "arr-coc-allocator",
    as_json: terminal.AsJson = False,
) -> None:
    """Teach an allocator where to look; killed, the same line goes on where it was.

    `arr-coc train list` shows the built-in recipes. Every setting of a recipe can be replaced:
    arr-coc train distill data=folder:my-pages model=Qwen/Qwen3-VL-2B-Instruct steps=500
    """
    with terminal.status("starting", as_json):
        from arr_coc.training.recipe import built_in, load_recipe, parse_override

    if recipe == "list":
        found = {
            name: path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            for name, path in built_in().items()
        }
        if as_json:
            terminal.print_json(found)
        else:
            terminal.print_rows(list(found.items()))
        return
    chosen = load_recipe(recipe, dict(parse_override(change) for change in changes or ()))
    with terminal.quiet_stdout(as_json):
        with terminal.status("starting", as_json):
            from arr_coc.training.trainer import train as run

            silence()
        result = run(chosen, Path(out).expanduser(), progress=not as_json)
    if os.environ.get("RANK", "0") != "0":  # one process of several speaks
        return
    facts = {"folder": out, **result}
    if as_json:
        terminal.print_json(facts)
        return
    terminal.print_rows(
        [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in facts.items()]
    )


def evaluate(
    data: Annotated[
        str, typer.Option(metavar="world|NAME:DIR", help="Drawn pages, or textvqa:DIR, jsonl:DIR and so on.")
    ] = "world",
    model: ModelName = "bundled",
    allocator: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FOLDER", help="The allocator; with a name, one more row arr-coc:NAME."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME,...", help="Which methods; all that can run if not given."),
    ] = None,
    budgets: Annotated[
        str,
        typer.Option(metavar="273,0.25,auto", help="Visual tokens to keep; saccade and coc have their own."),
    ] = "273,128,64,auto",
    questions: Annotated[
        int | None, typer.Option(min=1, help="How many; 2000 drawn ones if not given.")
    ] = None,
    size: Annotated[int, typer.Option(min=64, max=4096, help="Side of drawn pages in px.")] = 1024,
    split: Annotated[str | None, typer.Option(help="Of the data; its usual one if not given.")] = None,
    per_image: Annotated[int, typer.Option(min=1, help="Most questions of a drawn page.")] = 5,
    timed: Annotated[int, typer.Option(min=0, help="Questions to time alone, one method at a time.")] = 10,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    part: Annotated[
        str, typer.Option(metavar="I/N", help="Every N-th image from the I-th on; `report` joins the files.")
    ] = "1/1",
    query_blind: Annotated[
        str | None, typer.Option(metavar="FILE.safetensors", help="The trained query-blind scorer, a rival.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16, float16; as saved if not given.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="NAME", help="NAME.jsonl, .json and .png are written.")
    ] = "arr-coc-eval",
    as_json: terminal.AsJson = False,
) -> None:
    """Measure methods and budgets side by side on one model; killed, the same line goes on where it was."""
    with terminal.quiet_stdout(as_json):
        with terminal.status("starting", as_json):
            from arr_coc.attending import parse_budget
            from arr_coc.evaluate import Settings
            from arr_coc.evaluate import evaluate as run
            from arr_coc.evaluate.run import WORLD
            from arr_coc.world import draw_page

            silence()
        settings = Settings(
            data=data,
            model=model,
            allocators=tuple(allocator or ()),
            methods=None if methods is None else tuple(name.strip() for name in methods.split(",")),
            budgets=tuple(parse_budget(text.strip()) for text in budgets.split(",")),
            questions=questions,
            size=size,
            split=split,
            per_image=per_image,
            timed=timed,
            seed=seed,
            part=_part(part),
            query_blind=query_blind,
            device=device,
            dtype=dtype,
            out=Path(out).expanduser(),
        )
        if data == WORLD:
            draw_page(0, (size, size), split or "test")  # a bad size or split should leave no file behind
        try:
            settings.lines.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"cannot be made ({error.strerror}): choose another --out"
            raise ValueError(f"folder {str(settings.lines.parent)!r} {reason}") from error
        summary = run(settings, progress=not as_json)
    _show(summary, settings.out, "short", as_json)


def report(
    results: Annotated[
        list[str],
        typer.Argument(metavar="RESULT...", help="OUT.jsonl, .jsonl.gz or .json of eval; or all its parts."),
    ],
    columns: Annotated[
        Literal["short", "budgets", "families", "time", "targets"],
        typer.Option(
            help="Every figure, one row per method, by question family, what each reaches in the time of "
            "ours, or the project's targets."
        ),
    ] = "short",
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="PICTURE", help="The plot; beside the result if not given."),
    ] = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Table, targets and Pareto plot of a result file; no model is loaded.

    Of several parts of one run the whole is made first: OUT.jsonl and OUT.json, named by --out.
    """
    from arr_coc.evaluate.results import join_results, write_results
    from arr_coc.evaluate.summary import read_summary, summarise

    paths = [Path(result).expanduser() for result in results]
    path = paths[0]
    target = Path(out).expanduser() if out else path.with_name(path.name.split(".json")[0])
    if len(paths) > 1:
        if out is None:
            raise ValueError("joining parts needs a name for the whole: give --out NAME")
        header, records = join_results(paths)
        summary = summarise(header, records)
        write_results(target.with_name(target.name + ".jsonl"), header, records)
        text = json.dumps(summary, indent=1) + "\n"
        target.with_name(target.name + ".json").write_text(text, encoding="utf-8")
    else:
        summary = read_summary(path)
    _show(summary, target, columns, as_json)


def _part(text: str) -> tuple[int, int]:
    """(1, 2) of "1/2"."""
    i, sign, n = text.partition("/")
    if not (sign and i.strip().isdigit() and n.strip().isdigit()):
        raise ValueError(f"part {text!r} is not I/N: use 1/2 and 2/2, for example")
    return int(i), int(n)


def _show(summary: dict[str, Any], out: Path, columns: str, as_json: bool) -> None:
    """The plot to OUT.png, if there is anything to plot; the table to the terminal."""
    from arr_coc.evaluate.claims import claims
    from arr_coc.evaluate.plot import plot
    from arr_coc.evaluate.summary import kind
    from arr_coc.evaluate.table import claims_table, table

    picture = out if out.suffix == ".png" else out.with_name(out.name + ".png")
    drawn = any(kind(method) != "full" for method in summary["methods"])  # alone it is no trade to draw
    if drawn:
        try:
            plot(summary, picture)
        except OSError as error:
            reason = f"cannot be written ({error.strerror}): choose another with --out"
            raise ValueError(f"picture {str(picture)!r} {reason}") from error
    if as_json:
        terminal.print_json(summary)
        return
    print(claims_table(claims(summary)) if columns == "targets" else table(summary, columns))
    if drawn:
        terminal.print_rows([("picture", str(picture))])


def silence() -> None:
    """Only errors of transformers, and no bars but ours."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
