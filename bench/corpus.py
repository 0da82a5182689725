"""What a corpus costs: CPU seconds of a page, by what they are spent on, and of a million pages on paper.

    python bench/corpus.py --out bench/results/corpus.json      some four minutes of one core

Pages of `--sizes` px are drawn (`arr_coc_lab.world`), stored as PNG in parquet, and chosen for by
`corpus.choose_unit`, as an actor of Ray Data does it, on one thread: `--pages` of them with a question each,
and again with a second question beside each, whose picture is then in memory. Counted is the processor time
of this process. `together` says how many cells are others where several rows are chosen in one call.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import torch
from pyarrow import parquet

from arr_coc.files.images import open_image
from arr_coc.pixels import find_page, ranked_units
from arr_coc.selector import Selector
from arr_coc_lab.integrations.corpus import CorpusJob, choose_unit, list_units
from arr_coc_lab.world import draw_page

MILLION = 1_000_000
BUDGET = 64
TOGETHER = 8


def spent(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def drawn(count: int, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Pages as PNG, each with two questions."""
    rows = []
    for seed in range(count):
        page = draw_page(seed, size, "test")
        file = io.BytesIO()
        page.image.save(file, "PNG")
        rows.append({"image": file.getvalue(), "questions": [one.text for one in page.questions[:2]]})
    return rows


def chosen(folder: Path, job: CorpusJob, rows: list[dict[str, Any]]) -> tuple[float, list[list[int]], int]:
    """CPU seconds of a file of pages, the cells kept of each row, and the bytes of the results."""
    for name in (job.source, job.out):
        Path(name).mkdir(exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), Path(job.source) / "pages.parquet")
    (unit,) = list_units(job)
    selector = job.open_selector()
    selector(
        draw_page(999, (256, 256), "test").image, "Total?", 8
    )  # what the first question of a process loads
    seconds = spent(lambda: choose_unit(job, selector, unit))
    target = Path(job.out) / unit.target
    return seconds, parquet.read_table(target)["kept"].to_pylist(), target.stat().st_size


def parts(rows: list[dict[str, Any]], selector: Selector) -> dict[str, float]:
    """Median CPU seconds of the steps of a page and its first question."""
    times: dict[str, list[float]] = {"open": [], "choose": [], "boxes": []}
    for row in rows:
        start = time.process_time()
        image = open_image(row["image"])
        opened = time.process_time()
        (allocation,) = selector.many([image], [row["questions"][0]], BUDGET)
        made = time.process_time()
        ranked_units(find_page(image), allocation)
        for name, value in zip(
            times, (opened - start, made - opened, time.process_time() - made), strict=True
        ):
            times[name].append(value)
    return {name: round(median(values), 4) for name, values in times.items()}


def measured(count: int, size: tuple[int, int]) -> dict[str, Any]:
    """CPU seconds of pages of a size, and what follows for a million of them."""
    pages = drawn(count, size)
    one = [{"image": page["image"], "question": page["questions"][0]} for page in pages]
    two = [{"image": page["image"], "question": text} for page in pages for text in page["questions"]]
    with tempfile.TemporaryDirectory() as folder:
        job = CorpusJob(f"{folder}/pages", f"{folder}/chosen", BUDGET)
        first, apart, size_out = chosen(Path(folder), job, one)
        both, _, _ = chosen(Path(folder), job, two)
        batched, together, _ = chosen(Path(folder), replace(job, together=TOGETHER), one)
    page, more = first / count, (both - first) / count
    other = sum(len(set(a) - set(b)) for a, b in zip(apart, together, strict=True))
    return {
        "pages": count,
        "seconds of a page and its question": round(page, 4),
        "seconds of another question about it": round(more, 4),
        "median seconds of the steps": parts(pages, Selector.from_pretrained(dtype="float32")),
        "bytes of a page": round(sum(len(row["image"]) for row in one) / count),
        "bytes of its result": round(size_out / count),
        "core hours of a million pages": round(page * MILLION / 3600),
        "core hours of a million more questions": round(more * MILLION / 3600),
        f"chosen {TOGETHER} rows together": {
            "seconds of a page": round(batched / count, 4),
            "pages with another cell": sum(set(a) != set(b) for a, b in zip(apart, together, strict=True)),
            "share of cells that are others": round(other / sum(map(len, apart)), 4),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=["1024x1024", "1240x1754"], metavar="WxH")
    parser.add_argument("--pages", type=int, default=24)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loading = spent(lambda: Selector.from_pretrained(dtype="float32"))
    result: dict[str, Any] = {
        "command": f"python bench/corpus.py --pages {arguments.pages}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 2),
        "budget": BUDGET,
        "seconds of starting an actor": round(time.process_time(), 1),
        "seconds of loading the guide, of these": round(loading, 1),
    }
    for text in arguments.sizes:
        width, height = map(int, text.split("x"))
        result[text] = measured(arguments.pages, (width, height))
        print(json.dumps({text: result[text]}, indent=1), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
