"""How small and large pictures become, in visual tokens of the model's own grid.

    limit_pictures(model, 256, 16384)              of every picture from now on
    with without_least(model): Session(...)        no least, for a picture that was shrunk on purpose

A cell of the grid is one visual token: 28 x 28 px in Qwen2.5-VL, 32 x 32 in Qwen3-VL. lmms-eval's wrapper of
Qwen3-VL multiplied its limits by 28 x 28 until 30 August 2026 (pull request 1490), so that its "tokens" of
before are 0.77 of one (28^2 / 32^2).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from arr_coc.model import ARRCOCModel


def cell_side(model: ARRCOCModel) -> int | None:
    """Return the side in px of what becomes one visual token; None for processors of other kinds."""
    reader = _reader(model)
    return None if reader is None else int(reader.patch_size) * int(reader.merge_size)


def limit_pictures(model: ARRCOCModel, least: int, most: int) -> None:
    """Have the model's processor bring every picture to `least` to `most` visual tokens.

    Raises:
        ValueError: the processor has no such limits.
    """
    reader, side = _reader(model), cell_side(model)
    if reader is None or side is None:
        raise ValueError(
            f"the processor of {model.config.model_type!r} has no limits of pixels: use a Qwen model, as the "
            "table does"
        )
    reader.size = {"shortest_edge": least * side**2, "longest_edge": most * side**2}


@contextmanager
def without_least(model: ARRCOCModel) -> Generator[None]:
    """Lift the least number of visual tokens of a picture while the block runs, where there is one."""
    reader, side = _reader(model), cell_side(model)
    if reader is None or side is None:
        yield
        return
    size = reader.size
    reader.size = {"shortest_edge": side**2, "longest_edge": size["longest_edge"]}
    try:
        yield
    finally:
        reader.size = size


def _reader(model: ARRCOCModel) -> Any:
    """Return the image processor that has limits of pixels and a grid of cells, or None."""
    reader = getattr(model.processor, "image_processor", None)
    fits = reader is not None and hasattr(reader, "merge_size") and hasattr(reader, "patch_size")
    return reader if fits and "longest_edge" in (getattr(reader, "size", None) or {}) else None
