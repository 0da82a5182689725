"""The command `arr-coc world`: browser-rendered pages with questions and evidence, for training the guide."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Annotated, Literal

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.atomic import write_atomic
from arr_coc.files.paths import local_path

MEASURED, PATIENCE = 20, 60.0
"""Pages timed before the estimate, and seconds between two lines of progress."""


def command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the pages go.")],
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option(metavar="NAME", help="Whose fonts, words and page types: train, validation or test."),
    ] = "train",
    pages: Annotated[
        int | None,
        typer.Option(
            "--pages", "-n", min=0, max=10_000_000, metavar="N", help="How many; 100, beside --html 0."
        ),
    ] = None,
    documents: Annotated[
        int,
        typer.Option(
            min=0, max=10_000_000, metavar="N", help="How many pages of installed documentation beside them."
        ),
    ] = 0,
    html: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A folder of HTML pages of which views are rendered, too."),
    ] = None,
    views: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, metavar="N", help="How many views of the pages in --html; 100."),
    ] = None,
    type: Annotated[
        str | None, typer.Option(metavar="NAME", help="Pages of one type alone; a wrong name lists them.")
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, max=100, metavar="N", help="Also draw so many of them into one picture.")
    ] = 0,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=256, metavar="N", help="Browsers at once; one per core if not given."),
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Render pages with questions and evidence boxes, to train the guide on.

    Needs Chromium, and pip install 'playwright>=1.50' 'wordfreq>=3.1' 'faker>=30'. Existing pages
    stay: the same line resumes a run, and adds pages if N is larger. --html renders pages of your own; their
    HTML elements say what is a label, a value, a switch or a card.
    """
    with terminal.status("starting", as_json):
        from arr_coc_lab.teaching.filling import fill_all, numbers, ready
        from arr_coc_lab.world.browser import cache, fonts, icon_sets, interfaces
        from arr_coc_lab.world.browser.overview import overview
        from arr_coc_lab.world.browser.page import write_page

    place, source = local_path(folder), None if html is None else local_path(html)
    if views is not None and source is None:
        raise ValueError(f"--views {views} has no pages to show: name their folder with --html")
    if pages is None:
        pages = 100 if source is None else 0
    if source is not None:
        interfaces.authors(source)  # refuses a folder without pages
    wanted = numbers(place, split, pages, documents, type, 0 if source is None else views or 100)
    if wanted:
        ready(split, documents > 0)
        write_page(0, split, type)  # refuses an unknown type
    failed: list[str] = []
    unloadable: set[str] = set()
    start, done, due = time.monotonic(), 0, 0.0
    try:
        many = processes or os.cpu_count() or 1
        for page in fill_all(place, split, wanted, type, many, source) if wanted else ():
            done += 1
            failed += [f"{page.number}: {page.error}"] if page.error else []
            unloadable |= set(page.unloadable)
            if done == 1 and pages and not as_json:  # now that something renders at all
                for remark in filter(None, (fonts.remark(), icon_sets.remark(split))):
                    terminal.complain(remark)
            spent = time.monotonic() - start
            if not as_json and MEASURED <= done < len(wanted) and spent >= due:
                _tell(done, len(wanted), spent / done)
                due = spent + PATIENCE
    except KeyboardInterrupt:
        terminal.complain(f"stopped after {done:,} pages, which stay; the same line goes on from there")
        return options.INTERRUPTED
    for line in failed[:3]:
        terminal.complain(f"page {line}")
    for line in sorted(unloadable)[:3]:
        terminal.complain(f"passed over {line}")
    stored = cache.CachedPages(place, split)
    result: dict[str, str | int] = {
        "folder": str(place),
        "rendered": done - len(failed),
        "failed": len(failed),
        "passed over": len(unloadable),
        "pages": len(stored),
    }
    if show:
        picture = place / f"overview-{split}.png"
        count = min(show, len(stored))
        content = io.BytesIO()
        overview([stored[i * len(stored) // count] for i in range(count)]).save(content, "PNG")
        write_atomic(content.getvalue(), picture)
        result["picture"] = str(picture)
    if as_json:
        terminal.print_json(result)
    else:
        terminal.print_rows([(name, str(value)) for name, value in result.items()])
    return 1 if failed and len(failed) == done else 0


def _tell(done: int, total: int, pace: float) -> None:
    """Print the progress, and an estimate of the rest."""
    from arr_coc.train.callbacks import duration

    left = duration((total - done) * pace)
    line = f"{done:,} of {total:,} pages, {1 / pace:.2g} a second; about {left} to go"
    print(line, file=sys.stderr, flush=True)
