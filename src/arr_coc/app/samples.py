"""Samples of the app: the user's saved traces and built-in questions.

The first built-in sample ships with its trace, so that the page has an answer before a model is loaded. After
the bundled model has changed, `python -m arr_coc.app.samples` writes that trace again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from arr_coc.app.asking import Request
from arr_coc.store.checkpoint import BUNDLED_MODEL
from arr_coc.world import draw_page

if TYPE_CHECKING:
    from arr_coc.inspect.trace import Trace

SAMPLE = BUNDLED_MODEL.parent / "sample.json"
SHIPPED = Path(__file__).parent / "sample.safetensors"
DRAWN = (5, (1024, 768), "test")
"""A page with shapes, drawn when the app is built."""
COMPARED, COUNTED = "What is larger: the cyan ring or the purple ring?", "How many rings are there?"
"""Two questions about it; from few tokens the answer to the second is wrong."""


@dataclass(frozen=True)
class Sample:
    """An image with a question, and the trace of its answer where there is one."""

    image: str | Image.Image
    question: str
    trace: Trace | None = None


def samples(traces: Sequence[Trace | str | Path] = ()) -> list[Sample]:
    """The samples of some traces, saved or loaded, then the built-in ones.

    Raises:
        ValueError: a file is no trace.
    """
    from arr_coc.inspect.trace import Trace

    opened = [trace if isinstance(trace, Trace) else Trace.load(trace) for trace in traces]
    return [Sample(trace.picture, trace.question, trace) for trace in opened] + built_in()


def built_in() -> list[Sample]:
    """The sample page and a drawn one, with two questions each."""
    from arr_coc.inspect.trace import Trace

    page, drawn = str(SAMPLE.with_suffix(".png")), draw_page(*DRAWN).image
    return [
        Sample(page, json.loads(SAMPLE.read_text(encoding="utf-8"))["question"], Trace.load(SHIPPED)),
        Sample(page, "What does the gray text say?"),
        Sample(drawn, COMPARED),
        Sample(drawn, COUNTED),
    ]


def write_shipped(target: Path = SHIPPED) -> Trace:
    """Answer the first sample with the form's own settings, and write the trace."""
    from arr_coc.inspect.observe import observe
    from arr_coc.model import ARRCOCModel

    page, question = SAMPLE.with_suffix(".png"), json.loads(SAMPLE.read_text(encoding="utf-8"))["question"]
    request = Request(str(page), question)
    model = ARRCOCModel.from_pretrained(device="cpu", strict=True)  # the same trace on any machine
    for _ in range(2):  # the first pays for what is set up once
        session = model.session(page)
        trace = observe(session, question, budget=request.budget, mode=request.mode, compare=request.compare)
    trace.save(target)
    return trace


if __name__ == "__main__":
    print(write_shipped().answer)
