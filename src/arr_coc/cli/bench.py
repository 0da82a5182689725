"""The command `arr-coc bench`: time, arithmetic and memory of a first token in every mode, as a table."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from arr_coc.cli import inputs, options, terminal

if TYPE_CHECKING:
    from arr_coc.evaluate.speed import Row

ANY_QUESTION = "What does this image show, and what is written in it?"


def command(
    model: options.Model = options.DEFAULT_MODEL,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="An image file; a drawn page if not given.")
    ] = None,
    question: Annotated[str | None, typer.Option(help="What is asked about it.")] = None,
    size: Annotated[int, typer.Option(min=64, max=4096, help="Side of the drawn page in px.")] = 1024,
    modes: Annotated[
        str | None,
        typer.Option(metavar="stock,prune@273,...", help="The ways, modes and rivals; ours if not given."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds, after one that is not.")] = 3,
    batch: Annotated[int, typer.Option(min=1, help="Rows of the same image and question.")] = 1,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Time, arithmetic and memory up to the first token, every mode beside the stock model.

    From picture and question to logits, in interleaved rounds; medians.
    """
    from arr_coc.core.images import open_image

    picture = None if image is None else open_image(image)
    with terminal.quiet_stdout(as_json):
        with terminal.status("starting", as_json):
            from arr_coc.evaluate.methods import load_scorer
            from arr_coc.evaluate.speed import COMMON, bench, circumstances
            from arr_coc.world import draw_page

        text = question or ANY_QUESTION
        if picture is None:
            page = draw_page(0, (size, size), "test")
            picture, text = page.image, question or page.questions[0].text
        ways = COMMON if modes is None else tuple(name.strip() for name in modes.split(","))
        loaded = inputs.load_model(model, device, dtype, as_json)
        scorer = load_scorer(None, loaded)
        with terminal.status("measuring", as_json) as spinner:

            def progress(text: str) -> None:
                if spinner is not None:
                    spinner.update(f"{text} ...")

            rows = bench(loaded, picture, text, ways, rounds, batch=batch, scorer=scorer, progress=progress)
        facts = {"name": model} | circumstances(loaded, picture, text, batch) | {"rounds": rounds}
    if as_json:
        terminal.print_json({"circumstances": facts, "rows": [dataclasses.asdict(row) for row in rows]})
    else:
        print_bench(facts, rows)


def print_bench(facts: dict[str, Any], rows: Sequence[Row]) -> None:
    """The circumstances and a table with a line per way."""
    from arr_coc.evaluate.speed import STAGES

    terminal.print_rows([(name, _words(value)) for name, value in facts.items()])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("ms to the first token", no_wrap=True)
    heads = ("tokens", *STAGES, "all", "x stock", "TFLOP", "x fewer", "of limit", "choosing", "peak MiB")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        times = [_time(ms) if ms else "-" for ms in (row.stages[stage] for stage in STAGES)]
        table.add_row(
            row.mode,
            f"{row.tokens:,.0f}",
            *times,
            _time(row.ms),
            _or_dash(row.speed, ".2f"),
            f"{row.tflop:.3g}",
            _or_dash(row.flop_ratio, ".2f"),
            _or_dash(row.of_limit, ".0%"),
            _or_dash(row.select_share, ".1%"),
            f"{row.peak_mb:,.0f}",
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    notes = [(row.mode, row.note) for row in rows if row.note]
    notes.append(
        ("x fewer", "operations than stock: the limit of x stock; of limit is how much of it there is")
    )
    notes.append(("choosing", "as a share of stock's time from tensors to the first token"))
    terminal.print_rows(notes)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    if isinstance(value, list):
        return " x ".join(map(str, value))
    return f"{value:,}" if type(value) is int else str(value)


def _time(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
