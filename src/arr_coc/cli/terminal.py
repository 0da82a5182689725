"""Printing of the command line: results on stdout as rows, tables or one JSON object, all else on stderr."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track as rich_track
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.core.allocation import Allocation
    from arr_coc.session import Answer


def complain(message: str) -> None:
    """One line on stderr, whatever the message looks like."""
    print("arr-coc: " + " ".join(message.splitlines()), file=sys.stderr)


def note(message: str) -> None:
    """A line on stderr about what is going on; nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    if console.is_terminal:
        console.print(message, style="dim", markup=False)


def status(text: str, quiet: bool) -> contextlib.AbstractContextManager[Any]:
    """A spinner on stderr while a block runs; nothing where stderr is not a terminal."""
    return contextlib.nullcontext() if quiet else Console(stderr=True).status(f"{text} ...")


def track(steps: Sequence[int], text: str, quiet: bool) -> Iterable[int]:
    """A progress bar on stderr around a loop; nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    return rich_track(steps, text, console=console, disable=hidden, transient=True)


@contextlib.contextmanager
def quiet_stdout(as_json: bool) -> Generator[None, None, None]:
    """With --json, whatever a library prints inside the block goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def logs_on_stderr(debug: bool) -> Generator[None, None, None]:
    """The library's log on stderr inside the block; tracebacks of logged errors only with `debug`."""

    class Short(logging.Formatter):
        def formatException(self, ei: Any) -> str:
            return super().formatException(ei) if debug else f"  {ei[0].__name__}: {ei[1]}"

    logger, handler = logging.getLogger("arr_coc"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(Short("arr-coc: %(levelname)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def quiet_transformers(bars: bool = False) -> None:
    """Let transformers log errors alone, and show its progress bars only with `bars`."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    if not bars:
        transformers_logging.disable_progress_bar()


def tolerate_any_text() -> None:
    """Let stdout escape what its encoding has no character for: no answer is lost to a locale."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_json(value: dict[str, Any]) -> None:
    """One object, one line."""
    print(json.dumps(value, ensure_ascii=False))


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Names and values in two columns; the answer stands out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=13)
    table.add_column(overflow="fold")
    for name, value in rows:  # as Text, since an answer may look like markup
        table.add_row(name, Text(value, style="bold" if name == "answer" else ""))
    _stdout().print(table)


def print_answer(name: str, question: str, answer: Answer, full: Answer | None) -> None:
    """The answer, what it was made from and how long each stage took."""
    from arr_coc.modes import find_mode

    rows = [("image", name), ("question", question), ("answer", answer.text)]
    rows += [("full answer", full.text)] if full else []
    tokens = _share(answer.read, answer.total)
    if answer.read != answer.kept:
        tokens += f": a coarse view of {answer.read - answer.kept:,} and {answer.kept:,} fine"
    rows.append(("visual tokens", tokens))
    rows += [("note", answer.note)] if answer.note else []
    rows += (
        [("note", "choosing failed, so all tokens were used; stderr has the reason")]
        if answer.fallback
        else []
    )
    print_rows(rows)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("ms", style="dim", min_width=13)
    for stage in _times(answer):
        table.add_column(stage, justify="right", no_wrap=True)
    stock = answer.fallback or find_mode(answer.mode).stock
    table.add_row("all tokens" if stock else answer.mode, *_times(answer).values())
    if full:
        table.add_row("all tokens", *_times(full).values())
    _stdout().print(table)


def print_allocation(name: str, question: str, allocation: Allocation) -> None:
    """How many tokens were kept, why, and how the three scorers were weighed."""
    from arr_coc.core.allocation import Reason

    counts = allocation.reasons.bincount(minlength=max(Reason) + 1).tolist()
    reasons = ", ".join(f"{counts[reason]:,} {reason.name.lower()}" for reason in Reason if counts[reason])
    gates = zip(("information", "perspectival", "participatory"), allocation.weights.tolist(), strict=True)
    print_rows(
        [
            ("image", name),
            ("question", question),
            ("visual tokens", f"{_share(allocation.kept, allocation.total)}: {reasons}"),
            ("weights", ", ".join(f"{scorer} {gate:.2f}" for scorer, gate in gates)),
            (
                "tensions",
                ", ".join(f"{tension} {value:.2f}" for tension, value in allocation.tensions.items()),
            ),
        ]
    )


def save_picture(picture: Image.Image, target: Path, quiet: bool) -> None:
    """Write a picture and say where it is."""
    picture.save(target)
    if not quiet:
        print_rows([("picture", str(target))])


def _stdout() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=200)  # a file or a pipe has no edge to wrap at


def _share(kept: int, total: int) -> str:
    return f"{kept:,} of {total:,} ({kept / total:.0%})"


def _times(answer: Answer) -> dict[str, str]:
    """Milliseconds by stage, those of choosing as one: so many columns fit on a terminal."""
    from arr_coc.core.realizing import CHOOSING

    others = {stage: value for stage, value in answer.ms.items() if stage not in CHOOSING}
    times = {"choosing": sum(answer.ms[stage] for stage in CHOOSING)} | others
    return {stage: f"{value:,.1f}" for stage, value in times.items()}
