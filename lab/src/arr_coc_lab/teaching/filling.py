"""Renders pages into a cache by several processes, each with its own browser.

ready("train", documents=True)                       raises where something is not installed
wanted = numbers(folder, "train", pages=2000, documents=500)
for done in fill_all(folder, "train", wanted, processes=2): ...
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import re
from collections.abc import Iterator, Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import NamedTuple

from arr_coc.files.plugins import import_modules
from arr_coc.train.processes import start_worker
from arr_coc_lab.extras import install_line
from arr_coc_lab.world.browser import cache
from arr_coc_lab.world.browser.chromium import Chromium, executable
from arr_coc_lab.world.browser.documents import render_document
from arr_coc_lab.world.browser.fonts import families
from arr_coc_lab.world.browser.interfaces import render_interface
from arr_coc_lab.world.browser.packages import pages as documents_of
from arr_coc_lab.world.browser.page import render_page
from arr_coc_lab.world.browser.types import page_types

DOCUMENTS = 1_000_000_000  # number of the first document in a cache; pages of its types have smaller ones
VIEWS = 2_000_000_000  # number of the first view of a folder of HTML
LIBRARIES = ("playwright", "wordfreq", "faker")
OURS = re.compile(r"\d+\.(png|json)|\..*")


class Done(NamedTuple):
    """A page that was rendered, or the reason why not.

    `error` is "" for a page that is there; `unloadable` lists its files that did not load, with reasons;
    `refused` is the system's refusal to write, after which no more pages are rendered.
    """

    number: int
    error: str = ""
    unloadable: tuple[str, ...] = ()
    refused: OSError | None = None


def ready(split: str, documents: bool = False) -> None:
    """Raise ValueError, with how to install it, if the browser, a library, fonts or packages are missing."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"pages need {', '.join(missing)}, which is not installed: {install_line('world')}")
    try:
        executable()
        families(split)
        if documents:
            documents_of(split)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def numbers(
    folder: Path, split: str, pages: int, documents: int, name: str | None = None, views: int = 0
) -> list[int]:
    """Numbers of the pages that a cache still lacks of so many `pages`, `documents` and `views` of HTML.

    `name` is the only page type (None: all). ValueError if the folder holds other files, or pages of
    another type.
    """
    place = folder / split
    names = {path.name for path in place.iterdir()} if place.is_dir() else set()
    others = sorted(each for each in names if not OURS.fullmatch(each))
    if others:
        raise ValueError(f"{str(place)!r} holds other files ({others[0]}): choose another folder")
    there = sorted(int(each.removesuffix(".json")) for each in names if each.endswith(".json"))
    if name is not None and there and there[0] < DOCUMENTS:
        kind = cache.read(place / str(there[0])).type
        if kind != name:
            raise ValueError(f"{str(place)!r} holds pages of type {kind!r}: for {name!r} choose another")
    wanted = [*range(pages), *range(DOCUMENTS, DOCUMENTS + documents), *range(VIEWS, VIEWS + views)]
    return [number for number in wanted if number not in set(there)]


def fill_all(
    folder: Path,
    split: str,
    wanted: Sequence[int],
    name: str | None = None,
    processes: int = 1,
    html: Path | None = None,
) -> Iterator[Done]:
    """Render the pages `wanted` (of `numbers`), in any order, by `processes` with a browser each.

    `name` is the only page type (None: all), `html` the folder of the views.

    Raises:
        RuntimeError: a process died.
        OSError: a page can't be written.
    """
    (folder / split).mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    queue: Queue[Done] = context.Queue()
    workers = [
        context.Process(
            target=_work,
            args=(queue, folder, split, wanted[i::processes], name, html, _modules()),
            daemon=True,
        )
        for i in range(min(processes, len(wanted)))
    ]
    for worker in workers:
        worker.start()
    left = len(wanted)
    try:
        while left:
            try:
                done = queue.get(timeout=2)
                if done.refused is not None:
                    raise done.refused
                yield done
                left -= 1
            except Empty:  # nothing for two seconds: slow pages, or no process left
                if not any(worker.is_alive() for worker in workers) and queue.empty():
                    raise RuntimeError(f"the processes that render ended with {left} pages missing") from None
    finally:
        for worker in workers:
            worker.terminate()


def _modules() -> list[str]:
    """Return the user's own modules with page types."""
    modules = {kind.write.__module__ for kind in page_types("test")}
    return sorted(module for module in modules if not module.startswith("arr_coc."))


def _work(
    queue: Queue[Done],
    folder: Path,
    split: str,
    wanted: Sequence[int],
    name: str | None,
    html: Path | None,
    modules: Sequence[str],
) -> None:
    """Render pages and report each; a page that fails is left out."""
    start_worker(0)
    import_modules(modules)
    noted: set[Path] = set()
    with Chromium() as chromium:
        for number in wanted:
            try:
                if number < DOCUMENTS:
                    page = render_page(chromium, number, split, name)
                elif number < VIEWS:
                    page = render_document(chromium, number - DOCUMENTS, split)
                else:
                    assert html is not None
                    page = render_interface(chromium, number - VIEWS, split, html)
                done = Done(number)
            except Exception as error:  # of the browser: any at all, and one page is no reason to stop
                done = Done(number, f"{type(error).__name__}: {error}".splitlines()[0])
                if isinstance(error, chromium.error):  # it may have died with that page
                    chromium.restart()
            else:
                try:
                    cache.write(folder / split / str(number), page)
                except OSError as error:
                    queue.put(Done(number, refused=error))
                    return
            new = {path: why for path, why in chromium.unloadable.items() if path not in noted}
            noted |= set(new)
            queue.put(done._replace(unloadable=tuple(f"{path}: {why}" for path, why in new.items())))
