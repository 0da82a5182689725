"""What the command line prints: rows, a table of times, one JSON object; and a spinner, a log.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import track as rich_track
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from arr_coc.allocation import Allocation
    from arr_coc.session import Answer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")]
"""The option that every command has."""


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
def quiet_stdout(wanted: bool) -> Generator[None, None, None]:
    """With --json, whatever a library prints inside the block goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext():
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
    for stage in answer.ms:
        table.add_column(stage, justify="right")
    table.add_row("all tokens" if answer.read == answer.total else answer.mode, *_times(answer))
    if full:
        table.add_row("all tokens", *_times(full))
    _stdout().print(table)


def print_allocation(name: str, question: str, allocation: Allocation) -> None:
    """How many tokens were kept, why, and how the three scorers were weighed."""
    from arr_coc.allocation import Reason

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


def target(option: str, path: str, kinds: Sequence[str], image: str | None = None) -> Path:
    """Where to write; tried now, so that no answer is computed for nothing.

    Args:
        option: of the command line.
        path: its value.
        kinds: endings that are allowed.
        image: the user's own file, which is not to be written over.

    Raises:
        ValueError: another ending, the image itself, or a place that can't be written.
    """
    place = Path(path).expanduser()
    if place.suffix.lower() not in kinds:
        raise ValueError(f"{option} {str(place)!r} must end in {' or '.join(kinds)}")
    try:
        before = place.exists()
        if before and image is not None and place.samefile(Path(image).expanduser()):
            raise ValueError(f"{option} {str(place)!r} is the image itself: choose another place")
        with place.open("ab"):
            pass
    except OSError as error:
        reason = f"cannot be written ({error.strerror}): choose another place"
        raise ValueError(f"{option} {str(place)!r} {reason}") from error
    if not before:
        place.unlink()
    return place


def _stdout() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=200)  # a file or a pipe has no edge to wrap at


def _share(kept: int, total: int) -> str:
    return f"{kept:,} of {total:,} ({kept / total:.0%})"


def _times(answer: Answer) -> list[str]:
    return [f"{value:,.1f}" for value in answer.ms.values()]
