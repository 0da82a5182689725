"""What a viewer draws, as JSON-safe values.

    {**picture_view(picture), **allocation_view(record, texture, names), ...}     parts of `Trace.view`
    look_view(...)                                                         of a choice without an answer
    {..., "strips": [strip.view(), ...]}                                   of a `ClipTrace`

Maps are base64 of little-endian float32 in raster order, `palette` is base64 of 256 * 3 bytes: the viewer
lays it from 0 to the highest value of a map, and writes that value.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import SCORERS, Allocation, Reason
from arr_coc.data.record import Box
from arr_coc.guide.coupling import LIKELY
from arr_coc.modes import MODES
from arr_coc.trace.evidence import Guidance, score
from arr_coc.trace.picture import PALETTE

VIEW_FORMAT, CLIP_VIEW_FORMAT = "arr-coc view 1", "arr-coc clip view 1"
MAX_WEBP = 16_383
"""The most pixels of a side in WebP; a longer picture is shown as PNG."""
REASON_NAMES = {
    Reason.RELEVANT: "relevant",
    Reason.EXPLORED: "coverage",
    Reason.VOID: "even grid",
    Reason.ALL: "all kept",
}
SCORES = {
    "balanced": ("relevance", "the three as one"),
    **SCORERS,
}
"""The maps of an allocation: their names and meanings."""


def picture_view(picture: Image.Image) -> dict[str, Any]:
    """A picture and its size."""
    return {"image": _data_url(picture), "width": picture.width, "height": picture.height}


def allocation_view(
    record: Allocation, texture: Tensor | None = None, channels: Sequence[str] = ()
) -> dict[str, Any]:
    """The record of a choice, and the texture [C, H, W] with the names of its channels."""
    layers = [_layer(name, *SCORES[name], "scores", getattr(record, name)) for name in SCORES]
    if texture is not None:
        about = "a feature of the pixels"
        layers += [
            _layer(f"texture:{name}", name.replace("_", " "), about, "texture", values)
            for name, values in zip(channels, texture, strict=True)
        ]
    return {
        "format": VIEW_FORMAT,
        "grid": list(record.grid[1:]),
        "void": record.void,
        "weights": dict(zip(tuple(SCORES)[1:], record.weights.tolist(), strict=True)),
        "tensions": record.tensions,
        "layers": layers,
        "keep": record.keep.tolist(),
        "order": record.order.tolist(),
        "reasons": record.reasons.tolist(),
        "reason_names": {str(int(reason)): name for reason, name in REASON_NAMES.items()},
        "palette": base64.b64encode(PALETTE.tobytes()).decode(),
    }


def evidence_view(boxes: Sequence[Box], record: Allocation, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Boxes of the truth in px of a picture of a size, with their cells."""
    scored = score(boxes, record, size)
    return [
        {"box": list(box), "cells": list(cells)}
        for box, cells in zip(scored.boxes, scored.cells, strict=True)
    ]


def guidance_view(guidance: Guidance | None) -> dict[str, Any] | None:
    """What the guide read and how sure it is, in words, too."""
    if guidance is None:
        return None
    plain = guidance.to_dict()
    for spot, source in zip(plain["spots"], guidance.spots, strict=True):
        spot |= {"label": source.label, "matches": source.likeness >= LIKELY, "data": encode(source.heat)}
    return plain | {"says": guidance.says, "about": f"{guidance.sentence}."}


def look_view(
    picture: dict[str, Any], question: str, record: Allocation, guidance: Guidance
) -> dict[str, Any]:
    """A choice without an answer, for the viewer's `look`.

    Args:
        picture: of `picture_view`.
        question: unchanged.
        record: the choice.
        guidance: what it rests on.
    """
    facts = {"question": question, "kept": record.kept, "total": record.total, "words": [], "evidence": []}
    return {**allocation_view(record), **picture, **facts, "guidance": guidance_view(guidance)}


def encode(values: Tensor) -> str:
    """Base64 of little-endian float32 in raster order."""
    return base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()


def _layer(ident: str, name: str, about: str, group: str, values: Tensor) -> dict[str, str]:
    """One map [1, H, W] or [H, W] for the viewer."""
    return {"id": ident, "name": name, "about": about, "group": group, "data": encode(values)}


def picture_url(data: bytes, kind: str) -> str:
    """The file of a picture as a data URL."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def mode_view(name: str) -> dict[str, Any]:
    """What the viewer says of a mode; nothing, of one that isn't registered here."""
    mode = MODES.get(name)
    if mode is None:
        return {"mode_help": "", "mode_remark": "", "stock": False}
    return {"mode_help": mode.help, "mode_remark": mode.remark, "stock": mode.stock}


def _data_url(picture: Image.Image) -> str:
    """A picture as a data URL, WebP or (where it is too long for that) PNG."""
    file = io.BytesIO()
    kind = "webp" if max(picture.size) <= MAX_WEBP else "png"
    picture.save(file, kind, **({"quality": 90, "method": 2} if kind == "webp" else {}))
    return picture_url(file.getvalue(), kind)
