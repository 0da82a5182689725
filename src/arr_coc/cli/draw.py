"""The command `arr-coc draw`: sample pages with questions, answers and evidence boxes."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

import typer

from arr_coc.cli import options, terminal
from arr_coc.core.paths import local_path


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
    family and boxes [x0, y0, x1, y1] in pixels.
    """
    from arr_coc.world import draw_page, pages_of

    sides = re.fullmatch(r"(\d{1,6})[xX×](\d{1,6})", size.strip())
    if not sides:
        raise ValueError(
            f"size {size!r} is not WIDTHxHEIGHT: give two numbers of pixels, for example 1024x768"
        )
    width_height = int(sides[1]), int(sides[2])
    pages = pages_of(seed)
    draw_page(pages[0], width_height, split)  # a size out of range should leave no folder behind
    folder = local_path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lines = (folder / "questions.jsonl").open("w", encoding="utf-8")
    except OSError as error:
        reason = f"cannot be written ({error.strerror}): choose another with --out"
        raise ValueError(f"folder {out!r} {reason}") from error
    questions = 0
    with lines:
        for i in terminal.track(range(count), "drawing", as_json):
            page = draw_page(pages[i], width_height, split)
            image = f"page-{i:04d}.png"
            page.image.save(folder / image)
            for q in page.questions:
                row = {"image": image, "question": q.text, "answer": q.answer, "family": q.family}
                lines.write(json.dumps(row | {"boxes": q.evidence}, ensure_ascii=False) + "\n")
            questions += len(page.questions)
    if as_json:
        terminal.print_json({"folder": str(folder), "pages": count, "questions": questions})
    else:
        terminal.print_rows([("pages", str(count)), ("questions", str(questions)), ("folder", str(folder))])
