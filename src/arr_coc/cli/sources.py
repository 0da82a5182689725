"""Where images of the command line come from: files, a page of a PDF, standard input, or a folder.

    open_picture("page.png")         any image file that `core.images` reads
    open_picture("-")                the bytes of one on standard input
    open_picture("paper.pdf", 3)     its third page, drawn by pypdfium2 (the extra `pdf`)
    folder_images(Path("scans"))     the image files that lie in a folder, by name

Nothing is fetched: an address is refused by name.
"""

from __future__ import annotations

import math
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arr_coc.core.paths import local_path, shorten

if TYPE_CHECKING:
    from PIL import Image

STDIN = "-"
IMAGE_TYPES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""What counts as an image among the files of a folder."""
MOST_BYTES = 2**28
"""Of an image on standard input; what a file may hold is limited by its pixels."""
PAGE_SCALE = 2.0
"""Pixels to a point: 144 to the inch, so that a page of A4 has 1190 x 1684."""
PAGE_SIDE = 4096
"""The most pixels along a page's side: some claim to be metres long."""


def open_picture(name: str, page: int | None = None) -> Image.Image:
    """Open an image by its name on the command line.

    Args:
        name: a path, or "-" for standard input.
        page: of a PDF, from 1; None: its only one.

    Returns:
        In mode RGB and upright, as of `core.images.open_image`.

    Raises:
        ValueError: nothing that can be opened there, a page of what is no PDF, or one that it lacks.
    """
    from arr_coc.core.images import open_image

    source, title = (name, shorten(name)) if name != STDIN else (_standard_input(), "standard input")
    if _is_pdf(source):
        return open_image(_draw_page(source, title, page))
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


def folder_images(folder: Path) -> list[Path]:
    """The image files that lie in a folder itself, by name.

    Raises:
        ValueError: there is none, or the folder can't be read.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_TYPES)
    except OSError as error:
        raise ValueError(f"folder {shorten(folder)} cannot be read ({error.strerror})") from error
    if not files:
        raise ValueError(f"folder {shorten(folder)} holds no image file ({', '.join(IMAGE_TYPES)})")
    return files


def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError("- reads an image from standard input, which is the keyboard: pipe a file into it")
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"standard input is longer than {MOST_BYTES >> 20} MiB: give the image as a file")
    return data


def _is_pdf(source: str | bytes) -> bool:
    """Whether a file or its bytes begin as a PDF does."""
    if isinstance(source, bytes):
        return b"%PDF-" in source[:1024]
    path = local_path(source)
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b"%PDF-" in file.read(1024)
    except OSError:  # `open_image` says why
        return False


def _draw_page(source: str | bytes, title: str, page: int | None) -> Image.Image:
    """A page of a PDF as an image.

    Raises:
        ValueError: pypdfium2 is missing, the file is damaged or locked, or it has no such page.
    """
    try:
        pypdfium2: Any = import_module("pypdfium2")
    except ImportError as error:
        raise ValueError(f"{title} is a PDF: install what reads it, pip install 'arr-coc[pdf]'") from error
    document: Any = None
    try:
        document = pypdfium2.PdfDocument(source if isinstance(source, bytes) else local_path(source))
        pages = len(document)
        if page is None and pages > 1:
            raise ValueError(f"{title} has {pages} pages: say which is asked about with --page 1")
        if not 1 <= (page or 1) <= pages:
            raise ValueError(f"{title} has no page {page or 1}: it has {pages}")
        sheet = document[(page or 1) - 1]
        width, height = sheet.get_size()
        longest = max(width, height)
        if not (math.isfinite(longest) and min(width, height) > 0):
            raise ValueError(f"page {page or 1} of {title} is {width} x {height} points: nothing to see")
        return sheet.render(scale=min(PAGE_SCALE, PAGE_SIDE / longest)).to_pil()
    except pypdfium2.PdfiumError as error:
        remedy = "it may be damaged or locked; save the page as an image"
        raise ValueError(f"{title} is a PDF that cannot be read ({error}): {remedy}") from error
    finally:
        if document is not None:
            document.close()
