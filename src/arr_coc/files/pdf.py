"""Draw pages of PDFs as images, with pypdfium2 (the extra `pdf`), in a child process.

The child runs this file too, and draws one page at a time for all threads: PDFium keeps its state per
process, and some PDFs of a few hundred bytes never end or take all memory.
"""

from __future__ import annotations

import base64
import io
import math
import os
import tempfile
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
from arr_coc.files.worker import Exceeded, Worker

PIXELS_PER_POINT = 2.0  # 144 per inch: A4 has 1190 x 1684
MAX_SIDE = 4096  # px: some pages claim to be metres long
SECONDS, MEGABYTES, IDLE = 10.0, 1536, 60.0  # bounds of a page; idle seconds before the child is ended


def can_draw() -> bool:
    """Return whether pypdfium2 (the extra `pdf`) is installed."""
    return find_spec("pypdfium2") is not None


def is_pdf(source: str | bytes) -> bool:
    """Return whether a file, or its bytes, begins as a PDF does."""
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
    """Draw a page of an untrusted PDF, within limits of time and memory, as an image of `open_image`.

    Args:
        source: a path, or the bytes of a PDF.
        page: number from 1; None: the only page.
        name: for messages; "": the path.

    Raises:
        ValueError: pypdfium2, the file or the page is missing, the file is damaged or locked, or drawing the
            page takes too much.
    """
    return _drawn(source, page, name)[0]


def first_page(path: str, name: str) -> tuple[Image.Image, int]:
    """Return an untrusted PDF's first page, and how many it has; arguments and errors as `open_page`."""
    return _drawn(path, 1, name)


def _drawn(source: str | os.PathLike[str] | bytes, page: int | None, name: str) -> tuple[Image.Image, int]:
    """Return a page drawn by the child process, and the number of pages."""
    if isinstance(source, bytes):
        with tempfile.TemporaryDirectory(prefix="arr-coc-") as folder:
            path = Path(folder, "a.pdf")
            path.write_bytes(source)
            return _drawn(path, page, name or "the file")
    title = name or shorten(os.fsdecode(source))
    path = input_file(os.fsdecode(source)).absolute()  # the child may have started in another folder
    if not can_draw():
        raise ValueError(f"{title} is a PDF: install what reads it, {install_line('pdf')}")
    try:
        answer = _worker().ask({"path": str(path), "page": page, "title": title})
    except Exceeded as error:
        raise ValueError(
            f"page {page or 1} of {title} can't be drawn: {error}; save the page as an image elsewhere"
        ) from error
    return open_image(base64.b64decode(answer["png"])), answer["pages"]


@cache
def _worker() -> Worker:
    return Worker(Path(__file__), draw_request.__name__, SECONDS, MEGABYTES, IDLE)


def draw_request(request: Any) -> dict[str, Any]:
    """Draw a page, in the child process; requests and results are those of `files.worker`."""
    page, title = request["page"], request["title"]
    pypdfium2: Any = import_module("pypdfium2")
    document: Any = None
    try:
        document = pypdfium2.PdfDocument(request["path"])
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
        image = sheet.render(scale=min(PIXELS_PER_POINT, MAX_SIDE / longest)).to_pil()
    except FileNotFoundError as error:
        raise ValueError(f"{title} does not exist: check the path") from error
    except (OSError, pypdfium2.PdfiumError) as error:
        remedy = "it may be damaged or locked; save the page as an image"
        raise ValueError(f"{title} is a PDF that cannot be read ({error}): {remedy}") from error
    finally:
        if document is not None:
            document.close()
    file = io.BytesIO()
    image.convert("RGB").save(file, "png", compress_level=1)
    return {"png": base64.b64encode(file.getvalue()).decode(), "pages": pages}
