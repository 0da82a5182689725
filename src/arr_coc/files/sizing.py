"""The rule by which Qwen-VL resizes a picture and divides it into cells. Imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arr_coc.files.atomic import one_line


class Sizing:
    """The rule by which a picture is resized and divided into cells of `cell` px a side, as Qwen-VL does.

    Each side becomes a whole number of cells, the shape is kept as far as that allows, and the number of
    pixels lies between `least` and `most`.
    """

    def __init__(self, cell: int = 32, least: int = 64 * 64, most: int = 2048 * 2048) -> None:
        self.cell, self.least, self.most = cell, least, most

    @classmethod
    def read(cls, folder: Path) -> Sizing:
        """Read the rule from the processor's JSON file in a model folder; ValueError if there is none."""
        paths = [folder / name for name in ("processor_config.json", "preprocessor_config.json")]
        paths = [path for path in paths if path.is_file()]
        if not paths:
            raise ValueError(f"{str(folder)!r} has no processor_config.json: give the folder of a model")
        reason: Exception = ValueError("nothing there")
        for path in paths:
            try:
                settings = json.loads(path.read_text(encoding="utf-8-sig"))
                settings = settings.get("image_processor", settings)
                cell = int(settings["patch_size"]) * int(settings["merge_size"])
                return cls(cell, *_pixel_bounds(settings))
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                reason = error  # a processor_config.json of long ago says nothing of images
        raise ValueError(
            f"{str(paths[-1])!r} doesn't say how large cells are and pictures may be ({one_line(reason)}): "
            "put the model's own preprocessor_config.json there"
        ) from reason

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return how many cells (H, W) a picture of height x width px is divided into."""
        sides = [round(side / self.cell) for side in (height, width)]  # 0 counts as too few pixels
        pixels = sides[0] * sides[1] * self.cell**2
        if self.least <= pixels <= self.most:
            return sides[0], sides[1]
        # Written as the processors write it: another order of the same steps rounds some squares otherwise.
        if pixels > self.most:
            shrink = math.sqrt((height * width) / self.most)
            h, w = (math.floor(side / shrink / self.cell) for side in (height, width))
        else:
            grow = math.sqrt(self.least / (height * width))
            h, w = (math.ceil(side * grow / self.cell) for side in (height, width))
        return max(1, h), max(1, w)


def _pixel_bounds(settings: Mapping[str, Any]) -> tuple[int, int]:
    """Return the fewest and most pixels that an image processor's settings allow; old names win."""
    size = settings.get("size") or {}
    bounds = []
    for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        value = settings.get(old) or size.get(old)
        bounds.append(int(size[new] if value is None else value))
    return bounds[0], bounds[1]
