"""Pages of a PDF, and the values of its forms."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arr_coc.files import pdf as drawing
from arr_coc.files.images import grown_size, open_image
from arr_coc.files.pdf import MAX_SIDE, first_page, open_page
from arr_coc.files.worker import Worker

pypdfium2: Any = pytest.importorskip("pypdfium2", reason="an extra: pip install 'arr-coc[pdf]'")


def pdf(*objects: str) -> bytes:
    """A PDF of objects, numbered from 1, the first its catalogue."""
    data, places = b"%PDF-1.7\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{text}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    head = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<</Size {size}/Root 1 0 R>>\n"
    return data + head.encode() + f"startxref\n{len(data)}\n%%EOF\n".encode()


def form(value: str, box: str = "0 0 200 100") -> bytes:
    """A page with one text field, whose value has no appearance of its own."""
    return pdf(
        "<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[4 0 R]/NeedAppearances true/DA(/F 20 Tf 0 g)"
        "/DR<</Font<</F 5 0 R>>>>>>>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        f"<</Type/Page/Parent 2 0 R/MediaBox[{box}]/Annots[4 0 R]>>",
        f"<</Type/Annot/Subtype/Widget/FT/Tx/T(total)/V({value})/DA(/F 20 Tf 0 g)/Rect[10 30 190 70]/F 4"
        "/P 3 0 R>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )


def stream(content: bytes, entries: str = "") -> str:
    """A compressed stream object, as text of one byte a character."""
    data = zlib.compress(content, 9)
    return f"<<{entries}/Filter/FlateDecode/Length {len(data)}>>\nstream\n{data.decode('latin-1')}\nendstream"


def endless(kind: str) -> bytes:
    """A PDF of some hundred bytes that takes hours to draw: tiles of 0.01 points, or forms within forms."""
    page = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<<{}>>>>"
    tree = ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>"]
    if kind == "tiles":
        tile = (
            "/Type/Pattern/PatternType 1/PaintType 1/TilingType 1/BBox[0 0 1 1]/XStep .01/YStep .01"
            "/Resources<<>>"
        )
        content = stream(b"/Pattern cs /P scn 0 0 600 800 re f")
        return pdf(
            *tree,
            page.format("/Pattern<</P 5 0 R>>"),
            content,
            stream(b"0 0 1 1 re f " * 1000, tile),
        )
    forms = []
    for deep in range(9):
        inner = f"/XObject<</X {6 + deep} 0 R>>" if deep < 8 else ""
        content = b"/X Do " * 10 if deep < 8 else b"0 0 100 100 re f "
        entries = f"/Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<<{inner}>>"
        forms.append(stream(content, entries))
    return pdf(*tree, page.format("/XObject<</X 5 0 R>>"), stream(b"/X Do"), *forms)


def ink(page: Image.Image) -> int:
    """Black pixels."""
    return int((np.asarray(page).max(axis=-1) < 60).sum())


def test_the_values_of_a_form_are_drawn() -> None:
    empty, short, long = (open_page(form(value)) for value in ("", "42", "4242424242"))
    assert short.size == (400, 200)
    assert ink(empty) == 0
    assert 50 < ink(short) < ink(long)
    assert np.asarray(short)[60:140, 20:380].min() < 60  # where the field is


def test_a_form_that_cannot_be_used_does_not_end_the_reading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(self: object) -> None:
        raise pypdfium2.PdfiumError("Initializing form env failed")

    monkeypatch.setattr(pypdfium2.PdfDocument, "init_forms", broken)
    (tmp_path / "a.pdf").write_bytes(form("42"))
    answer = drawing.draw_request(
        {"path": str(tmp_path / "a.pdf"), "page": 1, "title": "a"}
    )  # here, not in the child
    page = open_image(base64.b64decode(answer["png"]))
    assert (page.size, ink(page)) == ((400, 200), 0)


@pytest.mark.parametrize("box", ["0 0 100000 1", "0 0 1 100000", "0 0 0.01 0.01", "0 0 14400 14400"])
def test_pages_of_any_size_are_bounded(box: str) -> None:
    page = open_page(form("42", box))
    assert max(page.size) <= MAX_SIDE
    assert page.size == grown_size(page.size)


def test_threads_draw_their_own_pages() -> None:
    with ThreadPoolExecutor(8) as threads:
        pages = list(threads.map(lambda i: open_page(form("", f"0 0 {30 + i} 20")), range(40)))
    assert [page.size for page in pages] == [(2 * (30 + i), 40) for i in range(40)]


def test_pages_are_drawn_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def here(*_: object) -> None:
        raise AssertionError("drawn in this process")

    monkeypatch.setattr(pypdfium2, "PdfDocument", here)
    monkeypatch.chdir(tmp_path)  # the child may have started in another folder
    Path("a.pdf").write_bytes(form("42"))
    assert (open_page("a.pdf").size, first_page("a.pdf", "'a.pdf'")[1]) == ((400, 200), 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiles", "forms"])
def test_a_page_without_end_is_refused_and_the_next_is_drawn(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(Path(drawing.__file__), "draw_request", 1.0, drawing.MEGABYTES)
    monkeypatch.setattr(drawing, "_worker", lambda: worker)
    data = endless(kind)
    assert len(data) < 3000
    try:
        with pytest.raises(
            ValueError, match=r"^page 1 of 'a' can't be drawn: it needs more than 1 seconds; save"
        ):
            open_page(data, name="'a'")
        assert open_page(form("42")).size == (400, 200)
    finally:
        worker.end()


@pytest.mark.slow
def test_the_child_imports_neither_torch_nor_transformers() -> None:
    code = "import sys, arr_coc.files.pdf; assert not {'torch', 'transformers'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 and no more")
    for source, words in (
        (tmp_path / "none.pdf", "does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / "a.pdf", "is a PDF that cannot be read"),
        (b"notes", "the file is a PDF that cannot be read"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            open_page(source)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"'a\.pdf' has no page 2: it has 1"):
        open_page(form(""), 2, "'a.pdf'")
