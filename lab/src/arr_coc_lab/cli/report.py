"""The command `arr-coc report`: table and Pareto plot of a result file."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.paths import input_file, local_path

COLUMNS = ("short", "budgets", "tokens", "families", "time")
SECOND = "Only questions that all tokens answer and the image shrunk to as few tokens doesn't:"
LEGEND = (
    "Retained: right answers as a share of those from all tokens. Recall: share of the evidence kept. "
    "Swap IoU: overlap of what is kept for two questions about one image. TTFT: time to the first token."
)

ENDINGS = re.compile(r"\.(jsonl\.gz|jsonl|json|png)$")  # of a result file, which its plot's name doesn't have


def _columns(text: str) -> str:
    """Return the name of a table; BadParameter if there is none."""
    if text not in COLUMNS:
        from arr_coc.files.validation import nearest

        raise typer.BadParameter(
            f"{text!r} is unknown; use one of {', '.join(COLUMNS)}{nearest(text, COLUMNS)}"
        )
    return text


def command(
    results: Annotated[
        list[str],
        typer.Argument(metavar="RESULT...", help="OUT.jsonl, .jsonl.gz or .json of eval; or all its parts."),
    ],
    columns: Annotated[
        str,
        typer.Option(
            parser=_columns,
            metavar="|".join(COLUMNS),
            help="short: every figure; budgets: one row per method; tokens: how many keep 97 % of the score; "
            "families: by kind of question; time: what each reaches in the time of ours.",
        ),
    ] = "short",
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="PICTURE", help="The plot; beside the result if not given."),
    ] = None,
    vtc_filter: Annotated[
        bool,
        typer.Option(
            "--vtc-filter",
            help="Only questions that all tokens answer and the shrunk image doesn't (else a second table).",
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the table and the Pareto plot of a result file.

    Several parts of one run are joined first, into OUT.jsonl and OUT.json, which --out names.
    """
    from arr_coc_lab.results.files import join_results, write_results, write_summary
    from arr_coc_lab.world.summary import read_summary, summarise

    paths = [input_file(result) for result in results]
    stem = local_path(out) if out else paths[0]
    if not stem.name:
        raise ValueError(f"out {out!r} is no name of a picture: give one such as study.png")
    stem = stem.with_name(ENDINGS.sub("", stem.name) or stem.name)
    if len(paths) > 1:
        if out is None:
            raise ValueError("joining parts needs a name for the whole: give --out NAME")
        for ending in ("jsonl", "json", "png"):
            whole = stem.with_name(f"{stem.name}.{ending}")
            if whole.exists() and any(whole.samefile(path) for path in paths):
                raise ValueError(f"out {out!r} would replace the part {str(whole)!r}: choose another name")
        header, records = join_results(paths)
        summary = summarise(header, records, vtc_filter)
        write_results(stem.with_name(f"{stem.name}.jsonl"), header, records)
        write_summary(stem.with_name(f"{stem.name}.json"), summary)
    else:
        summary = read_summary(paths[0], vtc_filter)
    show_summary(summary, stem.with_name(f"{stem.name}.png"), columns, as_json)


def show_summary(summary: dict[str, Any], picture: Path, columns: str, as_json: bool) -> None:
    """Draw the plot, if there is anything to plot; print the table, or the summary as JSON.

    A second table, of the questions that downsampling fails, follows where the summary has it.
    """
    from arr_coc_lab.results.files import writing
    from arr_coc_lab.results.kinds import kind
    from arr_coc_lab.results.like import beside, published_rows
    from arr_coc_lab.results.plot import plot
    from arr_coc_lab.results.summary import second_view
    from arr_coc_lab.results.table import BOLD, table

    text = table(summary, columns)
    # in the others budgets are compared, and the filter leaves others for each
    if columns in ("short", "budgets", "families") and (second := second_view(summary)) is not None:
        text += f"\n\n{SECOND}\n\n{table(second, columns)}"
    drawn = any(kind(method) != "full" for method in summary["methods"])  # alone it is no trade to draw
    if drawn:
        with writing(picture):
            plot(summary, picture)
    if as_json:
        published = published_rows(summary)
        terminal.print_json(summary | ({"published": published} if published else {}))
        return
    if "**" in text:
        text += f"\n\n{BOLD[columns]}"
    text += f"\n\n{LEGEND}" * (columns == "short")
    if (published := beside(summary)) is not None:
        text += f"\n\n{published}"
    print(_greyed(fitted(text, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else text)
    terminal.print_rows([("questions", f"{summary['questions']:,}, images {summary['images']:,}")])
    if drawn:
        terminal.print_rows([("picture", str(picture))])


def _greyed(text: str) -> str:
    """Return a text for a terminal with its published rows and their sources in grey; unchanged if NO_COLOR
    is set.
    """
    from arr_coc_lab.results.like import MARK

    def greyed(part: str) -> str:
        return re.sub("^.+$", "\x1b[90m\\g<0>\x1b[0m", part, flags=re.MULTILINE) if MARK in part else part

    if "NO_COLOR" in os.environ:
        return text
    blocks = [block.split("\n") if block.startswith("| ") else [block] for block in text.split("\n\n")]
    return "\n\n".join("\n".join(map(greyed, parts)) for parts in blocks)


def fitted(text: str, width: int) -> str:
    """Return markdown for a terminal: its tables with columns that align, and a paragraph per row in place of
    one for which the terminal is too narrow.
    """
    blocks = []
    for block in text.split("\n\n"):
        if not block.startswith("| "):
            blocks.append(textwrap.fill(block, width, break_long_words=False, break_on_hyphens=False))
            continue
        head, _, *lines = ([cell.strip() for cell in line[2:-2].split(" | ")] for line in block.splitlines())
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
        if sum(widths) + 3 * len(widths) + 1 <= width:
            rule = ["-" * widths[0], *("-" * (one - 1) + ":" for one in widths[1:])]
            aligned = [
                " | ".join([first.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])
                for first, *cells in (head, rule, *lines)
            ]
            blocks.append("\n".join(f"| {line} |" for line in aligned))
            continue
        for first, *cells in lines:
            pairs = [f"{name} {cell}" for name, cell in zip(head[1:], cells, strict=True) if cell != "-"]
            whole = ", ".join(pair.replace(" ", "\u00a0") for pair in pairs)  # a pair stays in one line
            rest = textwrap.wrap(whole, width - 2, break_long_words=False, break_on_hyphens=False)
            blocks.append("\n  ".join([first, *rest]).replace("\u00a0", " "))
    return "\n\n".join(blocks)
