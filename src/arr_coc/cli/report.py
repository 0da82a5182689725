"""The command `arr-coc report`: table and Pareto plot of a result file; no model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from arr_coc.cli import options, terminal


def command(
    results: Annotated[
        list[str],
        typer.Argument(metavar="RESULT...", help="OUT.jsonl, .jsonl.gz or .json of eval; or all its parts."),
    ],
    columns: Annotated[
        Literal["short", "budgets", "families", "time"],
        typer.Option(
            help="Every figure, one row per method, by question family, or what each reaches in the time of "
            "ours."
        ),
    ] = "short",
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="PICTURE", help="The plot; beside the result if not given."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Table and Pareto plot of a result file; no model is loaded.

    Of several parts of one run the whole is made first: OUT.jsonl and OUT.json, named by --out.
    """
    from arr_coc.evaluate.summary import read_summary, summarise
    from arr_coc.store.results.files import join_results, write_results

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
    show_summary(summary, target, columns, as_json)


def show_summary(summary: dict[str, Any], out: Path, columns: str, as_json: bool) -> None:
    """Draw the plot to OUT.png, if there is anything to plot; print the table, or the summary as JSON.

    Raises:
        ValueError: the plot can't be written.
    """
    from arr_coc.evaluate.plot import plot
    from arr_coc.store.results.kinds import kind
    from arr_coc.store.results.table import table

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
    print(table(summary, columns))
    if drawn:
        terminal.print_rows([("picture", str(picture))])
