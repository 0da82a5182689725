"""A small corpus in parquet files: drawn pages, and one that is damaged."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image
from pyarrow import parquet

from arr_coc_lab.integrations.corpus import CorpusJob
from arr_coc_lab.world import draw_page

SIDE, BUDGET, ROWS = 192, 9, 2
DAMAGED = 2
"""The row whose picture is cut off."""


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def pages() -> list[dict[str, Any]]:
    """Four questions about two drawn pages, one about a picture that is cut off among them."""
    rows: list[dict[str, Any]] = []
    for seed in range(2):
        page = draw_page(seed, (SIDE, SIDE), "test")
        rows += [
            {"question_id": len(rows) + i, "image": {"bytes": png(page.image)}, "question": one.text}
            for i, one in enumerate(page.questions[:2])
        ]
    rows.insert(DAMAGED, rows[0] | {"question_id": 99, "image": {"bytes": rows[0]["image"]["bytes"][:500]}})
    return rows


def write_pages(folder: Path, rows: list[dict[str, Any]], name: str = "pages.parquet") -> None:
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), folder / name, row_group_size=ROWS)


def chosen(job: CorpusJob) -> list[dict[str, Any]]:
    files = sorted(Path(job.out).glob("*.parquet"))
    return [row for file in files for row in parquet.read_table(file).to_pylist()]
