"""Pages of PDFs as images, drawn by pypdfium2 (the extra `pdf`).

`first_page` draws in a child process, which runs this file too: some PDFs take all memory.
"""

from __future__ import annotations

import base64
import io
import math
import os
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.files.images import open_image
from arr_coc.files.paths import input_file, local_path, shorten
from arr_coc.files.plugins import install_line
from arr_coc.files.worker import Worker

PIXELS_PER_POINT = 2.0  # 144 per inch: A4 has 1190 x 1684
MOST_SIDE = 4096  # px: some pages claim to be metres long
SECONDS, MEGABYTES = 20.0, 1536  # bounds of the child process


def can_draw() -> bool:
    """Whether pypdfium2 (the extra `pdf`) is installed."""
    return find_spec("pypdfium2") is not None


def is_pdf(source: str | bytes) -> bool:
    """Whether a file or its bytes begin as a PDF."""
    if isinstance(source, bytes):
        return b"%PDF-" in source[:1024]
    path = local_path(source)
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b"%PDF-" in file.read(1024)
    except OSError:  # `open_image` reports it
        return False


def open_page(source: str | os.PathLike[str] | bytes, page: int | None = None, name: str = "") -> Image.Image:
    """A page of a PDF as an image of `open_image`.

    Args:
        source: a path, or the bytes of a PDF.
        page: number from 1; None: the only page.
        name: for messages; "": the path.

    Raises:
        ValueError: pypdfium2, the file or the page is missing, or the file is damaged or locked.
    """
    return open_image(_drawn(source, page, name)[0])


def first_page(path: str, name: str) -> tuple[Image.Image, int]:
    """First page of an untrusted PDF, number of pages; limits of time and memory, else as `open_page`."""
    try:
        answer = _worker().ask({"path": path, "title": name})
    except ValueError as error:
        message = str(error)
        raise ValueError(message if name in message else f"{name} can't be drawn: {message}") from error
    return Image.open(io.BytesIO(base64.b64decode(answer["png"]))), answer["pages"]


def work(request: Any) -> dict[str, Any]:
    """The child process's part of `first_page`, see `files.worker`."""
    image, pages = _drawn(request["path"], 1, request["title"])
    file = io.BytesIO()
    image.convert("RGB").save(file, "png", compress_level=1)
    return {"png": base64.b64encode(file.getvalue()).decode(), "pages": pages}


@cache
def _worker() -> Worker:
    return Worker(Path(__file__), SECONDS, MEGABYTES)


def _drawn(source: str | os.PathLike[str] | bytes, page: int | None, name: str) -> tuple[Image.Image, int]:
    """A page drawn by pypdfium2, and the number of pages; as `open_page`."""
    is_path = not isinstance(source, bytes)
    title = name or (shorten(os.fsdecode(source)) if is_path else "the file")
    path_or_bytes = input_file(os.fsdecode(source)) if is_path else source
    try:
        pypdfium2: Any = import_module("pypdfium2")
    except ImportError as error:
        raise ValueError(f"{title} is a PDF: install what reads it, {install_line('pdf')}") from error
    document: Any = None
    try:
        document = pypdfium2.PdfDocument(path_or_bytes)
        with suppress(Exception):  # a damaged form is drawn without its values
            document.init_forms()  # before a page is loaded, else its fields are empty
        pages = len(document)
        if page is None and pages > 1:
            raise ValueError(
                f"{title} has {pages} pages: say which is asked about, page=1 or on the command line --page 1"
            )
        if not 1 <= (page or 1) <= pages:
            raise ValueError(f"{title} has no page {page or 1}: it has {pages}")
        sheet = document[(page or 1) - 1]
        width, height = sheet.get_size()
        longest = max(width, height)
        if not (math.isfinite(longest) and min(width, height) > 0):
            raise ValueError(f"page {page or 1} of {title} is {width} x {height} points: nothing to see")
        return sheet.render(scale=min(PIXELS_PER_POINT, MOST_SIDE / longest)).to_pil(), pages
    except FileNotFoundError as error:
        raise ValueError(f"{title} does not exist: check the path") from error
    except (OSError, pypdfium2.PdfiumError) as error:
        remedy = "it may be damaged or locked; save the page as an image"
        raise ValueError(f"{title} is a PDF that cannot be read ({error}): {remedy}") from error
    finally:
        if document is not None:
            document.close()
