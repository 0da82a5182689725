"""Pages of a PDF, drawn as images by pypdfium2 (the extra `pdf`).

    open_page("paper.pdf", 3) -> RGB PIL image of its third page, ready for a model

A form is drawn with the values that were filled in.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from importlib import import_module
from typing import Any

from PIL import Image

from arr_coc.core.images import open_image
from arr_coc.core.paths import input_file, shorten

PAGE_SCALE = 2.0
"""Pixels to a point: 144 to the inch, so that a page of A4 has 1190 x 1684."""
PAGE_SIDE = 4096
"""The most pixels along a page's side: some claim to be metres long."""


def open_page(source: str | os.PathLike[str] | bytes, page: int | None = None, name: str = "") -> Image.Image:
    """A page of a PDF as an image, as `open_image` gives it.

    Args:
        source: a path, or the bytes of a PDF.
        page: from 1; None: its only one.
        name: for messages; "": of the path.

    Raises:
        ValueError: pypdfium2 is missing, the file is missing, damaged or locked, or it has no such page.
    """
    is_path = not isinstance(source, bytes)
    title = name or (shorten(os.fsdecode(source)) if is_path else "the file")
    path_or_bytes = input_file(os.fsdecode(source)) if is_path else source
    try:
        pypdfium2: Any = import_module("pypdfium2")
    except ImportError as error:
        raise ValueError(f"{title} is a PDF: install what reads it, pip install 'arr-coc[pdf]'") from error
    document: Any = None
    try:
        document = pypdfium2.PdfDocument(path_or_bytes)
        with suppress(Exception):  # of a damaged form the page is drawn without its values
            document.init_forms()  # before a page is loaded, else its fields are drawn empty
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
        return open_image(sheet.render(scale=min(PAGE_SCALE, PAGE_SIDE / longest)).to_pil())
    except FileNotFoundError as error:
        raise ValueError(f"{title} does not exist: check the path") from error
    except (OSError, pypdfium2.PdfiumError) as error:
        remedy = "it may be damaged or locked; save the page as an image"
        raise ValueError(f"{title} is a PDF that cannot be read ({error}): {remedy}") from error
    finally:
        if document is not None:
            document.close()
