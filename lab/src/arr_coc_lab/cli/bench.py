"""The command `arr-coc bench`: time, arithmetic and memory up to the first token in every mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.cli.inputs import open_picture

if TYPE_CHECKING:
    from arr_coc_lab.evaluate.speed import SpeedRow

WORDS = (
    ("tokens", "visual tokens of the image that the language model reads"),
    ("process", "milliseconds that the picture and the question take to become tensors"),
    ("gestalt", "of a coarse view of the image through the vision encoder"),
    ("select", "of choosing the cells that the question needs"),
    ("encode", "of the image, or its chosen cells, through the vision encoder"),
    ("prefill", "of the prompt through the language model, to its first answer token"),
    ("all", "of the whole way; a median like the others, so that they need not add up"),
    ("x stock", "how many times faster than the model as it comes (stock)"),
    ("TFLOP, GB", "arithmetic, in 1e12 operations, and memory traffic, in 1e9 bytes read and written"),
    ("x fewer", "how many times less of it than stock: a speed-up lies between the two as a rule"),
    ("of limit", "the speed-up as a share of the larger x fewer, which is the most to be expected"),
    ("choosing", "the time of select and its gestalt, as a share of stock's time less process"),
    ("peak MiB", "the most memory held at once, beside the model's weights"),
)  # the columns of the table
ANY_QUESTION = "What does this image show, and what is written in it?"


def command(
    model: options.Model = options.DEFAULT_MODEL,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="An image file; a drawn page if not given.")
    ] = None,
    question: Annotated[str | None, typer.Option(metavar="TEXT", help="What is asked about it.")] = None,
    size: Annotated[
        int, typer.Option(min=64, max=4096, metavar="N", help="Side of the drawn page in px.")
    ] = 1024,
    modes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="The ways: stock, modes alone or with a budget (prune@64), rivals with a count "
            "(visionzip@64); ours if not given.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Measured rounds, after one that is not.")
    ] = 3,
    batch: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Rows of the same image and question.")
    ] = 1,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Measure time, arithmetic and memory up to the first token, of every mode and of the stock model.

    A round measures each of them once, from picture and question to logits. Medians of the rounds are shown.
    """
    picture = None if image is None else open_picture(image)
    with terminal.quiet_stdout(as_json):
        with terminal.starting(as_json):
            from arr_coc_lab.evaluate.methods import load_scorer
            from arr_coc_lab.evaluate.speed import COMMON, bench, circumstances
            from arr_coc_lab.evaluate.ways import read_way
            from arr_coc_lab.world import draw_page

        text = question or ANY_QUESTION
        if picture is None:
            page = draw_page(0, (size, size), "test")
            picture, text = page.image, question or page.questions[0].text
        ways = COMMON if modes is None else tuple(name.strip() for name in modes.split(","))
        for way in ways:
            read_way(way)  # before a model is loaded
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


def print_bench(facts: dict[str, Any], rows: Sequence[SpeedRow]) -> None:
    """The circumstances and a table with a line per way."""
    from arr_coc_lab.evaluate.speed import STAGES

    terminal.print_rows([(name, _words(value)) for name, value in facts.items()])
    head = (
        "ms to the first token",
        "tokens",
        *STAGES,
        "all",
        "x stock",
        "TFLOP",
        "x fewer",
        "GB",
        "x fewer",
        "of limit",
    )
    lines = [
        (
            row.mode,
            f"{row.tokens:,.0f}",
            *(_time(ms) if ms else "-" for ms in (row.stages[stage] for stage in STAGES)),
            _time(row.ms),
            _or_dash(row.speed, ".2f"),
            f"{row.tflop:.3g}",
            _or_dash(row.flop_ratio, ".2f"),
            f"{row.gbyte:.3g}",
            _or_dash(row.byte_ratio, ".2f"),
            _or_dash(row.of_limit, ".0%"),
            _or_dash(row.select_share, ".1%"),
            f"{row.peak_mb:,.0f}",
        )
        for row in rows
    ]
    terminal.print_table((*head, "choosing", "peak MiB"), lines)
    notes = [(row.mode, row.note) for row in rows if row.note]
    notes += WORDS
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
