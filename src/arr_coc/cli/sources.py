"""Where images of the command line come from: files, a page of a PDF, standard input, or a folder.

    open_picture("page.png")         any image file that `files.images` reads
    open_picture("-")                the bytes of one on standard input
    open_picture("paper.pdf", 3)     its third page, drawn as `files.pdf` does
    folder_images(Path("scans"))     the image files that lie in a folder, by name

Nothing is fetched: an address is refused by name.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from arr_coc.files.paths import local_path, shorten

if TYPE_CHECKING:
    from PIL import Image

STDIN = "-"
IMAGE_TYPES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""What counts as an image among the files of a folder."""
MOST_KINDS = 4
"""Endings of a folder's other files that are told, those of most files."""
MOST_BYTES = 2**28
"""Of an image on standard input; what a file may hold is limited by its pixels."""


def open_picture(name: str, page: int | None = None) -> Image.Image:
    """Open an image by its name on the command line.

    Args:
        name: a path, or "-" for standard input.
        page: of a PDF, from 1; None: its only one.

    Returns:
        In mode RGB and upright, as of `files.images.open_image`.

    Raises:
        ValueError: nothing that can be opened there, a page of what is no PDF, or one that it lacks.
    """
    from arr_coc.files.images import open_image
    from arr_coc.files.pdf import is_pdf, open_page

    source, title = (name, shorten(name)) if name != STDIN else (_standard_input(), "standard input")
    if is_pdf(source):
        return open_page(source, page, title)
    if page is not None:
        raise ValueError(f"{title} is no PDF, so it has no page {page}: leave --page out")
    try:
        return open_image(source)
    except ValueError as error:
        if name == STDIN:
            raise ValueError(f"standard input: {error}") from error
        raise


def is_folder(name: str) -> bool:
    """Whether a name on the command line is that of a folder."""
    return name != STDIN and local_path(name).is_dir()


def folder_images(folder: Path) -> tuple[list[Path], str]:
    """The image files that lie in a folder itself, by name, and in a line what else does; "" for nothing.

    Hidden files are left out without a word.

    Raises:
        ValueError: there is none, or the folder can't be read.
    """
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise ValueError(f"folder {shorten(folder)} cannot be read ({error.strerror})") from error
    inside = folder.resolve()
    files, links, folders = [], 0, 0
    kinds: Counter[str] = Counter()
    for path in entries:
        if path.suffix.lower() in IMAGE_TYPES:
            leads_out = path.is_symlink() and not _resolved(path).is_relative_to(inside)
            links += leads_out
            files += [] if leads_out else [path]
        elif path.is_dir():
            folders += 1
        else:
            kinds[path.suffix.lower() or "no ending"] += 1
    counts = [f"{kind} {count}" for kind, count in kinds.most_common(MOST_KINDS)]
    counts += ["..."] if len(kinds) > MOST_KINDS else []
    parts = [
        f"{_count(kinds.total(), 'other file')} ({', '.join(counts)})" if kinds else "",
        _count(folders, "folder") if folders else "",
        f"{_count(links, 'link')} out of the folder" if links else "",
    ]
    left_out = ", ".join(part for part in parts if part)
    line = f"left out of folder {shorten(folder)}: {left_out}" if left_out else ""
    if not files:
        types = ", ".join(IMAGE_TYPES)
        raise ValueError(f"folder {shorten(folder)} holds no image file ({types}){line and '; ' + line}")
    return files, line


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


def _resolved(path: Path) -> Path:
    """Where a link leads; itself if that is in a circle, for its reader to complain about."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.parent.resolve() / path.name


def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError("- reads an image from standard input, which is the keyboard: pipe a file into it")
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"standard input is longer than {MOST_BYTES >> 20} MiB: give the image as a file")
    return data
