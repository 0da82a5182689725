"""What commands say of clips, beside what they say of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arr_coc.cli import terminal

if TYPE_CHECKING:
    from arr_coc.choose.allocation import Allocation
    from arr_coc.video.opening import Visual

MOST = 8
"""Steps that a row of a terminal names."""


def refuse_boxes(visuals: Sequence[Visual], options: dict[str, Any]) -> None:
    """Raise a ValueError for options of one image where there is a clip.

    Args:
        visuals: images and clips.
        options: their values by name; falsy ones were not used.
    """
    from PIL import Image

    used = next((name for name, value in options.items() if value), None)
    if used and not all(isinstance(one, Image.Image) for one in visuals):
        raise ValueError(f"{used} is for images, and this is a clip: leave it out")


def print_steps(visual: Visual, allocation: Allocation) -> None:
    """Of a clip, a row that says when how many cells are kept; nothing of an image."""
    from PIL import Image

    if isinstance(visual, Image.Image):
        return
    kept = allocation.mask().flatten(1).sum(1)
    pictures = -(-len(visual) // len(kept))
    best = sorted(kept.argsort(descending=True, stable=True)[:MOST].tolist())
    parts = [f"{visual.times[step * pictures]:.1f} s {int(kept[step]):,}" for step in best if kept[step]]
    rest = int((kept > 0).sum()) - len(parts)
    text = ", ".join(parts) + (f" and {rest:,} more" if rest > 0 else "")
    steps = f"{int((kept > 0).sum()):,} of {len(kept):,} steps of {allocation.total // len(kept):,} cells"
    terminal.print_rows([("clip", f"{steps}: {text}")])
