"""Prometheus counters of the plugin, on the server's own /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Counter

IMAGES = Counter("arr_coc_images", "Images whose cells were chosen.")
SEEN = Counter("arr_coc_cells_seen", "Cells of these images.")
ENCODED = Counter("arr_coc_cells_encoded", "Cells of these images that were passed to the encoder.")
FALLBACKS = Counter("arr_coc_fallbacks", "Images of which all cells were encoded because choosing failed.")
UNASKED = Counter("arr_coc_images_without_question", "Images that came with no words at all: nothing chosen.")
SECONDS = Counter("arr_coc_selection_seconds", "Seconds spent on choosing.")
PROCESSOR = Counter(
    "arr_coc_selection_processor_seconds", "Processor time spent on choosing, one thread each."
)


@contextmanager
def timed() -> Iterator[None]:
    """Count what passes inside as seconds and as processor time of choosing."""
    start, processor = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        SECONDS.inc(time.perf_counter() - start)
        PROCESSOR.inc(time.thread_time() - processor)


def count_image(cells: int, encoded: int) -> None:
    """Count an image of so many cells, of which some are encoded."""
    IMAGES.inc()
    SEEN.inc(cells)
    ENCODED.inc(encoded)
