"""Printing of the command line: results on stdout as rows, tables or JSON objects, all else on stderr.

Law: no outside text (a file name, a question, an answer, an error) reaches the terminal with a control
character in it; see `printable`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import track as rich_track
from rich.table import Table
from rich.text import Text

from arr_coc.files.atomic import write_atomic
from arr_coc.files.collecting import without_collecting

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.answer import Answer
    from arr_coc.choose.allocation import Allocation, EvidenceBox
    from arr_coc.guide.coupling import Coupling
    from arr_coc.trace.evidence import EvidenceScore
    from arr_coc.video.opening import Visual

MAX_MESSAGE = 900  # characters of a complaint; the middle of a longer one is left out
MAX_QUESTION, MAX_WORDS = 400, 16  # characters of a question, recognised words that are repeated
MAX_STEPS = 8  # steps of a clip that a row names
# The note on an answer from all tokens after choosing has failed.
FALLBACK = "choosing failed, so all tokens were used; stderr has the reason"
# The note on a picture without structure (`Allocation.void`).
VOID = "the picture is the same all over (void), so the cells of an even grid were kept"
NAME_WIDTH = 13  # columns of the names in front of values
_CONTROLS = "\x00-\x1f\x7f-\x9f"
_UNPRINTABLE = re.compile(
    # also: line separators, marks that reverse the order of what follows, halves of characters, tags
    f"[{_CONTROLS}\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\U000e0000-\U000e001f]"
)


def printable(text: str, lines: bool = False) -> str:
    """Return a text whose control characters are written out as escapes; with `lines`, line feeds and tabs
    stay.
    """

    def written(match: re.Match[str]) -> str:
        sign = match[0]
        return sign if lines and sign in "\n\t" else repr(sign)[1:-1]

    return _UNPRINTABLE.sub(written, text)


def complain(message: str) -> None:
    """Print a message on stderr as one line of at most `MAX_MESSAGE` characters."""
    line = printable(" ".join(message.split("\n")))
    if len(line) > MAX_MESSAGE:  # the problem is at the start, the remedy at the end
        line = f"{line[: MAX_MESSAGE - 305]} ... {line[-300:]}"
    print("arr-coc: " + line, file=sys.stderr)


def note(message: str) -> None:
    """Print a line about progress, if stderr is a terminal."""
    console = Console(stderr=True)
    if console.is_terminal:
        console.print(printable(message), style="dim", markup=False)


def log(message: str) -> None:
    """Print a server's line on stderr, whole, also where stderr is a file."""
    Console(stderr=True).print(printable(message), style="dim", markup=False, soft_wrap=True)


def status(text: str, quiet: bool) -> contextlib.AbstractContextManager[Any]:
    """Return a spinner on stderr while a block runs, if that is a terminal."""
    return contextlib.nullcontext() if quiet else Console(stderr=True).status(f"{text} ...")


@contextlib.contextmanager
def starting(quiet: bool, text: str = "starting") -> Generator[None, None, None]:
    """A spinner while libraries are imported or a model is loaded."""
    with without_collecting(), status(text, quiet):
        yield


def track(steps: Sequence[int], text: str, quiet: bool) -> Iterable[int]:
    """Return a progress bar on stderr around a loop, if that is a terminal."""
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

        def format(self, record: logging.LogRecord) -> str:
            return printable(super().format(record), lines=True)

    logger, handler = logging.getLogger("arr_coc"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(Short("arr-coc: %(levelname)s: %(message)s"))
    fonts = logging.getLogger("matplotlib.font_manager")  # reports at a first plot that it may take a moment
    level, level_of_fonts = logger.level, fonts.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    fonts.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        fonts.setLevel(level_of_fonts)


def quiet_transformers(bars: bool = False) -> None:
    """Let transformers log nothing but errors, and show its progress bars only with `bars`."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    if not bars:
        transformers_logging.disable_progress_bar()


def tolerate_any_text() -> None:
    """Let both streams escape characters that their encoding lacks, so that an answer is always printed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_json(value: dict[str, Any]) -> None:
    """Print one object on one line."""
    text = json.dumps(value, ensure_ascii=False)
    # JSON escapes only the first 32 control characters; all of these are inside of strings.
    print(_UNPRINTABLE.sub(lambda sign: json.dumps(sign[0])[1:-1], text), flush=True)


def print_rows(rows: Sequence[tuple[str, str]], width: int = NAME_WIDTH) -> None:
    """Print names and values in two columns, the first `width` wide; the row "answer" is bold."""
    console = _stdout()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=width, max_width=max(width, console.width // 3), overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows:  # as Text, since an answer may look like markup
        words = printable(value, lines=name == "answer")
        table.add_row(Text(printable(name)), Text(words, style="bold" if name == "answer" else ""))
    _show(console, table)


def print_evidence(scored: EvidenceScore) -> None:
    """How much of the evidence in boxes that the user named was kept, as a row."""
    print_rows([("named boxes", scored.text.removeprefix("evidence: ") or "outside of it")])


def evidence_json(boxes: Sequence[EvidenceBox]) -> list[dict[str, Any]]:
    """Boxes of kept cells that matter as JSON values."""
    return [{**box._asdict(), "score": round(box.score, 4)} for box in boxes]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: a line per row where the terminal is wide enough, else a column per row, in blocks.

    Args:
        head: names of the columns; the first is that of the rows' names.
        rows: as many texts each, the row's name first.
    """
    console, gap = _stdout(), 2
    widths = [max(cell_len(text) for text in column) for column in zip(head, *rows, strict=True)]
    if sum(widths) + gap * len(widths) <= console.width:
        _show(console, _table(head, rows, gap))
        return
    names = max(cell_len(name) for name in head)
    blocks: list[list[Sequence[str]]] = []
    room = 0
    for row in rows:
        width = gap + max(cell_len(text) for text in row)
        if not blocks or room < width:
            blocks.append([])
            room = console.width - names - gap
        blocks[-1].append(row)
        room -= width
    for number, block in enumerate(blocks):
        if number:
            console.print()
        first, *others = zip(head, *block, strict=True)
        _show(console, _table(first, others, gap))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], gap: int) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim")
    for number, name in enumerate(head):
        side = "right" if number else "left"
        table.add_column(Text(name), justify=side, style="" if number else "dim", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def tokens_text(answer: Answer) -> str:
    """Return how many visual tokens an answer is from, and of what they are."""
    from arr_coc.modes import find_mode

    tokens = _share(answer.read, answer.total)
    if answer.magnified is not None:
        scales = ", ".join(f"{scale:.1f}" for scale in answer.magnified)
        tokens += f": {answer.kept:,} cells, magnified {scales} times"
        tokens += ", and a coarse view" if find_mode(answer.mode).gestalt else ""
    elif answer.read != answer.kept:
        tokens += f": a coarse view of {answer.read - answer.kept:,} and {answer.kept:,} fine"
    return tokens


def print_answer(
    name: str, question: str, answer: Answer, full: Answer | None, about: str | None = None
) -> None:
    """Print an answer, its tokens, what its model can do, and the time of each stage."""
    from arr_coc.choose.allocation import evidence_text
    from arr_coc.modes import find_mode

    notes = [("note", answer.note)] if answer.note else []
    rows = [("image", name), ("question", question), *notes * answer.foreign, ("answer", answer.text)]
    rows += [("full answer", full.text)] if full else []
    rows.append(("visual tokens", tokens_text(answer)))
    rows += [("evidence", evidence_text(boxes)) for boxes in answer.evidence if boxes]
    rows += notes * (not answer.foreign)
    rows += [("note", FALLBACK)] if answer.fallback else []
    rows += [("note", VOID)] if any(allocation.void for allocation in answer.allocations) else []
    rows += [("model", about)] if about else []
    print_rows(rows)
    stock = answer.fallback or find_mode(answer.mode).stock
    ways = [("all tokens" if stock else answer.mode, _times(answer))]
    ways += [("all tokens", _times(full))] if full else []
    stages = [stage for stage in ways[0][1] if any(ms[stage] >= 0.05 for _, ms in ways)]
    head = ("ms".ljust(NAME_WIDTH), *stages)
    print_table(head, [(name, *(f"{ms[stage]:,.1f}" for stage in stages)) for name, ms in ways])


def print_allocation(
    name: str,
    question: str,
    allocation: Allocation,
    coupling: Coupling | None = None,
    boxes: Sequence[EvidenceBox] | None = None,
) -> None:
    """Print how many tokens were kept, the weights of the three scores, and the guide's verdict.

    With `boxes` of evidence, also where what matters is.
    """
    from arr_coc.choose.allocation import SCORERS, Reason, evidence_text

    spread = int((allocation.reasons == Reason.EXPLORED).sum())
    tokens = _share(allocation.kept, allocation.total)
    tokens += f": {allocation.kept - spread:,} by relevance, {spread:,} spread over the picture" * (
        spread > 0
    )
    rows = [("image", name), ("question", _shortened(question)), ("visual tokens", tokens)]
    if allocation.gates is not None:  # None where all cells are kept
        weights = (
            f"{SCORERS[key][0]} {gate:.2f} ({SCORERS[key][1]})" for key, gate in allocation.gates.items()
        )
        rows.append(("weights", ", ".join(weights)))
    if boxes is not None:
        rows.append(("evidence", evidence_text(boxes)))
    if coupling is not None:
        rows += _guided(coupling)
    if allocation.void:
        rows.append(("note", VOID))
    every = "\n".join(value for _, value in rows)
    if remarks := [part for part in (allocation.note or "").split("; ") if part not in every]:
        rows.append(("note", "; ".join(remarks)))
    print_rows(rows)


def print_steps(visual: Visual, allocation: Allocation) -> None:
    """Print how many cells are kept at each time of a clip; nothing for an image."""
    from PIL import Image

    if isinstance(visual, Image.Image):
        return
    kept = allocation.mask().flatten(1).sum(1)  # cells of each step, which holds one or more frames
    frames = -(-len(visual) // len(kept))
    best = sorted(kept.argsort(descending=True, stable=True)[:MAX_STEPS].tolist())
    parts = [f"{visual.times[step * frames]:.1f} s {int(kept[step]):,}" for step in best if kept[step]]
    rest = int((kept > 0).sum()) - len(parts)
    text = ", ".join(parts) + (f" and {rest:,} more" if rest > 0 else "")
    steps = f"{int((kept > 0).sum()):,} of {len(kept):,} steps of {allocation.total // len(kept):,} cells"
    print_rows([("clip", f"{steps}: {text}")])


def _guided(coupling: Coupling) -> list[tuple[str, str]]:
    """Rows of the guide's verdict: the question's words found in the picture, and its confidence."""
    from arr_coc.guide.trust import GENERAL, sentence, verdict_of

    kind = verdict_of(coupling)
    line = sentence(kind, coupling.confidence, coupling.words)
    if kind in (*GENERAL, "unread"):  # confidence and words are meaningless for such questions
        return [("guide", line)]
    rows = [("words found", _words(coupling))] if coupling.matches or not coupling.findings else []
    by_source: dict[str, list[str]] = {}
    for finding in coupling.findings:
        by_source.setdefault(finding.source, []).append(
            f"{_shortened(finding.text)} {finding.probability:.2f}"
        )
    rows += [(f"by {source}", ", ".join(texts[:MAX_WORDS])) for source, texts in by_source.items()]
    return [*rows, ("confidence", line)]


def _words(coupling: Coupling) -> str:
    """Return the question's words found in the picture, each with the matched term and its likeness."""
    words = [
        match.word + f', as "{match.term}"' * (match.term != match.word) + f" ({match.likeness:.2f})"
        for match in coupling.best()
    ]
    more = len(words) - MAX_WORDS
    return ", ".join(words[:MAX_WORDS] + [f"and {more} more"] * (more > 0)) or "none"


def _shortened(text: str) -> str:
    """Return a text cut to MAX_QUESTION characters."""
    return text if len(text) <= MAX_QUESTION else f"{text[:MAX_QUESTION].rstrip()}…"


def save_picture(picture: Image.Image, target: Path, quiet: bool, needed: bool) -> None:
    """Write an RGB picture and print where it is, unless `quiet`.

    Args:
        picture: the picture.
        target: where.
        quiet: print nothing.
        needed: the user asked for it, so a failure is an error; else it is only reported.

    Raises:
        OSError: a needed picture can't be written.
    """
    from PIL import Image

    try:
        # Into memory: Pillow writes a JPEG to a full disk in part and raises nothing.
        content, kind = io.BytesIO(), Image.registered_extensions()[target.suffix.lower()]
        picture.save(content, kind, compress_level=1)  # of a PNG: half the usual time, a tenth more bytes
        write_atomic(content.getvalue(), target)
    except OSError as error:
        if needed:
            raise
        complain(f"no picture was written to {str(target)!r}: {error.strerror or error}")
        return
    if not quiet:
        print_rows([("picture", str(target))])


def _stdout() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=200)  # files and pipes have no edge to wrap at


def _show(console: Console, table: Table) -> None:
    """Print a table; in a file or a pipe, without spaces at the ends of lines."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _share(kept: int, total: int) -> str:
    return f"{kept:,} of {total:,} ({kept / total:.0%})"


def _times(answer: Answer) -> dict[str, float]:
    """Milliseconds by stage, in order; choosing is one stage, and a coarse view is part of "encode"."""
    from arr_coc.choose.stopwatch import CHOOSING

    times: dict[str, float] = {}
    for stage, value in answer.ms.items():
        name = "choosing" if stage in CHOOSING else "encode" if stage == "gestalt" else stage
        times[name] = times.get(name, 0.0) + value
    return times
