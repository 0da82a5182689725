"""Pages of a PDF, and the values of its forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arr_coc.files.images import grown_size
from arr_coc.files.pdf import MOST_SIDE, open_page

pypdfium2: Any = pytest.importorskip("pypdfium2", reason="an extra: pip install 'arr-coc[pdf]'")


def pdf(*objects: str) -> bytes:
    """A PDF of objects, numbered from 1, the first its catalogue."""
    data, places = b"%PDF-1.7\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{text}\nendobj\n".encode()
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
    page = open_page(form("42"))
    assert (page.size, ink(page)) == ((400, 200), 0)


@pytest.mark.parametrize("box", ["0 0 100000 1", "0 0 1 100000", "0 0 0.01 0.01", "0 0 14400 14400"])
def test_pages_of_any_size_are_bounded(box: str) -> None:
    page = open_page(form("42", box))
    assert max(page.size) <= MOST_SIDE
    assert page.size == grown_size(page.size)


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
