"""A decision of the server as a trace, which `arr-coc view` and the app draw."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.choose.texture import channel_names
from arr_coc.files.images import open_image
from arr_coc.relevance.source import guide_view
from arr_coc.trace.evidence import read_guidance
from arr_coc.trace.strip import Strip
from arr_coc.trace.trace import Trace
from arr_coc_vllm.choosing import Chooser, Record

CELL = 32
"""px of a cell's side in the picture of a trace."""


def trace_bytes(
    chooser: Chooser, picture: Any, record: Record, answer: str, seconds: float, model: str
) -> bytes:
    """The file of a trace.

    Args:
        chooser: that decided.
        picture: as the request gave it.
        record: the decision about it.
        answer: of the server.
        seconds: that the answer took, with choosing.
        model: its name.
    """
    image, allocation = open_image(picture).convert("RGB"), record.allocation
    _, height, width = allocation.grid
    texture, channels, guidance = None, (), None
    if record.coupling is not None and chooser.selector.trained is None:
        encoded = chooser.selector.encode(image, (height, width))
        guide = chooser.selector.guide
        texture = encoded.texture(chooser.selector.layer, (height, width))[0].float()
        channels = channel_names(chooser.selector.layer.config.channels)
        page = guide_view(chooser.selector.source, encoded.view)
        guidance = read_guidance(guide, page, record.question, record.coupling, (height, width))
    drawn = image.resize((width * CELL, height * CELL), Image.Resampling.BICUBIC)
    trace = Trace(
        strips=(Strip.of_image(drawn, allocation, guidance),),
        question=record.question,
        answer=answer,
        mode="sparse",
        budget=allocation.budget,
        kept=allocation.kept,
        total=allocation.total,
        read=allocation.kept,
        fallback=False,
        note=allocation.note,
        ms={"total": 1000 * seconds},
        model=model,
        texture=texture,
        channels=channels,
        machine="a vLLM server",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.safetensors"
        trace.save(path)
        return path.read_bytes()
