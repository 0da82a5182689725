"""The result of packing: the pictures to send, their captions, and where each part lies in the original."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.boxes import Box
from arr_coc.files.atomic import make_folder, write_atomic

NEAR = 1e-6  # px, by which rounding may move a point out of a box
SOURCE = "arr-coc-source"  # keyword of a text in PNG files: what they were made of
HEAD = 512  # bytes of such a file, in which it stands


class Place(NamedTuple):
    """A part of a packed picture, and the part of the original that it shows."""

    picture: int  # index of the packed picture
    box: Box  # (x0, y0, x1, y1) in px of that picture
    origin: Box  # (x0, y0, x1, y1) in px of the original
    magnification: float  # px of the packed picture for one of the original


@dataclass(frozen=True, eq=False)
class Packed:
    """Pictures to send in place of an original, and the maps between their pixels and its own.

    Attributes:
        pictures: RGB pictures, to be sent in this order.
        captions: A sentence for each picture, for the prompt: what it shows and where that is.
        places: The parts of the pictures that show the original; what lies between them is frame.
        size: (width, height) of the original in px.
        tokens: What the pictures cost by the rule.
        whole_tokens: What the original costs by the rule.
        layout: "overview+crops", "crops", "strip", "crop", "mask", "shrunk" or "whole".
        rule: The name of the rule.
        confidence: In [0, 1], that the original holds what is asked for; None unless `pack_for` made this.
        allocation: The cells that were kept; None if none were chosen.
    """

    pictures: tuple[Image.Image, ...]
    captions: tuple[str, ...]
    places: tuple[Place, ...]
    size: tuple[int, int]
    tokens: int
    whole_tokens: int
    layout: str
    rule: str
    confidence: float | None = None
    allocation: Allocation | None = None

    def to_original(self, x: float, y: float, picture: int = 0) -> tuple[float, float] | None:
        """Return the point of the original, in px, that a point of a packed picture shows; None on a frame.

        If a part is shown twice, as in an overview and a crop, either leads to the same point.
        """
        for place in self.places:
            x0, y0, x1, y1 = place.box
            inside = x0 - NEAR <= x <= x1 + NEAR and y0 - NEAR <= y <= y1 + NEAR
            if place.picture == picture and inside:
                return _moved(x, (x0, x1), place.origin[0::2]), _moved(y, (y0, y1), place.origin[1::2])
        return None

    def to_packed(self, box: Box) -> list[tuple[int, Box]]:
        """Return where a box of the original, in px, is shown: (index of the picture, box in it) per place.

        If a place shows only a part of the box, it is cut to that part; if none shows it, the list is empty.
        """
        found_in = []
        for place in self.places:
            x0, y0 = max(box[0], place.origin[0]), max(box[1], place.origin[1])
            x1, y1 = min(box[2], place.origin[2]), min(box[3], place.origin[3])
            if x0 > x1 + NEAR or y0 > y1 + NEAR:
                continue
            across, down = (place.origin[0::2], place.box[0::2]), (place.origin[1::2], place.box[1::2])
            moved = (_moved(x0, *across), _moved(y0, *down), _moved(x1, *across), _moved(y1, *down))
            found_in.append((place.picture, moved))
        return found_in

    def json(self) -> dict[str, Any]:
        """Return all but the pixels, as JSON values."""
        return {
            "layout": self.layout,
            "rule": self.rule,
            "tokens": self.tokens,
            "whole_tokens": self.whole_tokens,
            "size": list(self.size),
            "confidence": None if self.confidence is None else round(self.confidence, 4),
            "kept": None if self.allocation is None else self.allocation.kept,
            "cells": None if self.allocation is None else self.allocation.total,
            "pictures": [
                {"size": list(picture.size), "caption": caption}
                for picture, caption in zip(self.pictures, self.captions, strict=True)
            ],
            "places": [
                {
                    "picture": place.picture,
                    "box": [round(side, 3) for side in place.box],
                    "origin": [round(side, 3) for side in place.origin],
                    "magnification": round(place.magnification, 4),
                }
                for place in self.places
            ],
        }

    def png(self, picture: int = 0, source: str = "") -> bytes:
        """Return a packed picture as the bytes of a PNG file, with `source`, plain ASCII, as text in it."""
        file, about = io.BytesIO(), PngInfo()
        if source:
            about.add_text(SOURCE, source)
        self.pictures[picture].save(file, format="PNG", pnginfo=about)
        return file.getvalue()

    def save(self, folder: str | Path, name: str = "packed", source: str = "") -> list[Path]:
        """Write the pictures to a folder, which is made if it is missing, as `name`-1.png and so on.

        `source` is a name of the original, by which `is_made_of` knows the files again.

        Raises:
            ValueError: the folder can't be made.
            OSError: a file can't be written; an existing one is unchanged then.
        """
        place = make_folder(Path(folder))
        paths = [place / f"{name}-{number}.png" for number in range(1, len(self.pictures) + 1)]
        for number, path in enumerate(paths):
            write_atomic(self.png(number, source), path)
        return paths


def is_made_of(path: Path, source: str) -> bool:
    """Return whether `Packed.save` wrote a file for a source; False if the file can't be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return f"tEXt{SOURCE}\0{source}".encode() in file.read(HEAD)
    except OSError:
        return False


def _moved(at: float, before: tuple[float, ...], after: tuple[float, ...]) -> float:
    """Map a coordinate from one interval to another, proportionally, clamped to its ends."""
    share = min(1.0, max(0.0, (at - before[0]) / (before[1] - before[0])))
    return min(after[1], (1 - share) * after[0] + share * after[1])
