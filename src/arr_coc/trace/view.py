"""The viewer's input as JSON values.

    {**SHARED, "strips": [allocation_view(record) | picture_view(picture), ...], ...}

`Trace.view` and `look_view` have this form, one strip per image or clip. Maps are base64 of little-endian
float32 in raster order; the palette is base64 of 256 * 3 bytes, for 0 to a map's highest value.
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
from arr_coc.guide.trust import BADGES
from arr_coc.modes import MODES
from arr_coc.trace.evidence import Guidance, score
from arr_coc.trace.picture import PALETTE

VIEW_FORMAT = "arr-coc view 2"
MAX_WEBP = 16_383  # px of a side in WebP; a longer picture is sent as PNG
REASON_NAMES = {
    Reason.RELEVANT: "relevant",
    Reason.EXPLORED: "coverage",
    Reason.VOID: "even grid",
    Reason.ALL: "all kept",
}
SCORES = {  # maps of an allocation: name, meaning
    "balanced": ("relevance", "the three as one"),
    **SCORERS,
}


SHARED: dict[str, Any] = {  # part of every view
    "format": VIEW_FORMAT,
    "palette": base64.b64encode(PALETTE.tobytes()).decode(),
    "reason_names": {str(int(reason)): name for reason, name in REASON_NAMES.items()},
}


def picture_view(picture: Image.Image) -> dict[str, Any]:
    """Return the fields of the viewer's input for an image: its picture as a data URL, and sizes."""
    size = {"width": picture.width, "height": picture.height, "side": list(picture.size)}
    return size | {"images": [drawn_url(picture)], "spans": [], "cuts": []}


def allocation_view(
    record: Allocation, texture: Tensor | None = None, channels: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields of the viewer's input for an allocation, and for a texture [C, H, W] with its
    channels.
    """
    layers = [_layer(name, *SCORES[name], "scores", getattr(record, name)) for name in SCORES]
    if texture is not None:
        about = "a feature of the pixels"
        layers += [
            _layer(f"texture:{name}", name.replace("_", " "), about, "texture", values)
            for name, values in zip(channels, texture, strict=True)
        ]
    return {
        "grid": list(record.grid),
        "void": record.void,
        "weights": dict(zip(tuple(SCORES)[1:], record.weights.tolist(), strict=True)),
        "tensions": record.tensions,
        "layers": layers,
        "keep": record.keep.tolist(),
        "order": record.order.tolist(),
        "reasons": record.reasons.tolist(),
        "kept": record.kept,
        "total": record.total,
    }


def evidence_view(boxes: Sequence[Box], record: Allocation, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the viewer's input for evidence: boxes in px of a picture of `size`, with the cells of each."""
    scored = score(boxes, record, size)
    return [
        {"box": list(box), "cells": list(cells)}
        for box, cells in zip(scored.boxes, scored.cells, strict=True)
    ]


def guidance_view(guidance: Guidance | None) -> dict[str, Any] | None:
    """Return the viewer's input for the guide's record, with its verdict in words; None without one."""
    if guidance is None:
        return None
    plain = guidance.to_dict()
    for spot, source in zip(plain["spots"], guidance.spots, strict=True):
        spot |= {"label": source.label, "matches": source.likeness >= LIKELY, "told": source.told}
        spot["data"] = encode(source.heat)
    says = guidance.says
    return plain | {"says": says, "badge": BADGES[says], "about": f"{guidance.sentence}."}


def look_view(
    picture: dict[str, Any],
    question: str,
    record: Allocation,
    guidance: Guidance | None,
    units: Sequence[Box] = (),
) -> dict[str, Any]:
    """Return the viewer's input for a choice of cells without an answer; `picture` is from `picture_view`.

    `units`: boxes to outline in px of the picture as it is shown.
    """
    said_already = "" if guidance is None else guidance.sentence
    remarks = [part for part in (record.note or "").split("; ") if part not in said_already]
    strip = allocation_view(record) | picture | {"guidance": guidance_view(guidance)}
    strip |= {"units": list(map(list, units)), "note": "; ".join(remarks)}
    facts = {"question": question, "kept": record.kept, "total": record.total, "words": [], "evidence": []}
    return {**SHARED, **facts, "strips": [strip]}


def encode(values: Tensor) -> str:
    """Base64 of little-endian float32 in raster order."""
    return base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()


def _layer(ident: str, name: str, about: str, group: str, values: Tensor) -> dict[str, str]:
    """Return a map [1, H, W] or [H, W] for the viewer."""
    return {"id": ident, "name": name, "about": about, "group": group, "data": encode(values)}


def picture_url(data: bytes, kind: str) -> str:
    """Return a picture file as a data URL."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def mode_view(name: str) -> dict[str, Any]:
    """Return the viewer's text about a mode; empty for one that isn't registered."""
    mode = MODES.get(name)
    if mode is None:
        return {"mode_help": "", "mode_remark": "", "stock": False, "gestalt": False}
    return {"mode_help": mode.help, "mode_remark": mode.remark, "stock": mode.stock, "gestalt": mode.gestalt}


def drawn_url(picture: Image.Image) -> str:
    """Return a picture as a data URL: WebP, or PNG where a side exceeds WebP's limit."""
    file = io.BytesIO()
    kind = "webp" if max(picture.size) <= MAX_WEBP else "png"
    picture.save(file, kind, **({"quality": 90, "method": 2} if kind == "webp" else {}))
    return picture_url(file.getvalue(), kind)
