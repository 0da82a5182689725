"""The command `arr-coc draw`: sample pages with questions, answers and evidence boxes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.atomic import write_atomic
from arr_coc.files.paths import local_path

QUESTIONS = "questions.jsonl"


class PageFile(NamedTuple):
    """The files of a page: its picture's name and bytes, and its lines in the file of questions."""

    name: str
    picture: bytes
    questions: bytes


def command(
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=100_000, metavar="N", help="How many pages.")
    ] = 4,
    size: Annotated[str, typer.Option(metavar="WIDTHxHEIGHT", help="In pixels.")] = "1024x1024",
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Another seed draws other pages, none of them twice.")
    ] = 0,
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option(metavar="NAME", help="Whose seeds: train, validation or test."),
    ] = "test",
    out: Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="Where.")] = "arr-coc-pages",
    as_json: options.AsJson = False,
) -> None:
    """Make sample pages with questions, answers and evidence boxes.

    Writes page-0000.png ... and questions.jsonl: one question a line with image, question, answer,
    family and boxes [x0, y0, x1, y1] in pixels. With a larger N the same line adds pages; a folder with
    other files of these names is refused.
    """
    from arr_coc_lab.world import pages_of

    sides = re.fullmatch(r"(\d{1,6})[xX×](\d{1,6})", size.strip())
    if not sides:
        raise ValueError(
            f"size {size!r} is not WIDTHxHEIGHT: give two numbers of pixels, for example 1024x768"
        )
    width_height = int(sides[1]), int(sides[2])
    page_file = partial(_page_file, pages_of(seed), width_height, split)
    page_file(0)  # a size out of range should leave no folder behind
    folder = local_path(out)
    questions: list[bytes] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if other := _other_file(folder, count, page_file):
            raise ValueError(f"folder {out!r} has another {other}: choose another with --out")
        for i in terminal.track(range(count), "drawing", as_json):
            page = page_file(i)
            write_atomic(page.picture, folder / page.name)
            questions.append(page.questions)
        write_atomic(b"".join(questions), folder / QUESTIONS)
    except OSError as error:
        reason = f"cannot be written ({error.strerror}): choose another with --out"
        raise ValueError(f"folder {out!r} {reason}") from error
    lines = sum(each.count(b"\n") for each in questions)
    if as_json:
        terminal.print_json({"folder": str(folder), "pages": count, "questions": lines})
    else:
        terminal.print_rows([("pages", str(count)), ("questions", str(lines)), ("folder", str(folder))])


def _page_file(pages: Sequence[int], size: tuple[int, int], split: str, number: int) -> PageFile:
    """Draw the page of a number; ValueError for a size out of range."""
    from arr_coc_lab.world import draw_page

    page, picture, name = draw_page(pages[number], size, split), io.BytesIO(), _name(number)
    page.image.save(picture, "PNG")
    lines = [
        {"image": name, "question": q.text, "answer": q.answer, "family": q.family, "boxes": q.evidence}
        for q in page.questions
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return PageFile(name, picture.getvalue(), text.encode())


def _name(number: int) -> str:
    return f"page-{number:04d}.png"


def _other_file(folder: Path, count: int, page_file: Callable[[int], PageFile]) -> str | None:
    """Return the name of an existing file whose content would change; None: there is none."""
    if not any((folder / name).exists() for name in (QUESTIONS, *map(_name, range(count)))):
        return None  # and no page is drawn twice
    questions, end = _content(folder / QUESTIONS), 0
    for page in map(page_file, range(count)):
        if _content(folder / page.name) not in (None, page.picture):
            return page.name
        start, end = end, end + len(page.questions)
        if questions is not None and start >= len(questions) > 0:
            continue  # the file is of fewer pages: this run adds to it
        if questions is not None and questions[start:end] != page.questions:
            return QUESTIONS
    return QUESTIONS if questions is not None and len(questions) > end else None


def _content(path: Path) -> bytes | None:
    """Return the bytes of a regular file, b"" of any other; None: nothing is there."""
    if path.is_file():
        return path.read_bytes()
    return b"" if path.exists() else None
