"""Samples of the app: the user's saved traces and built-in questions.

The app opens with a page as people have them. The sample of the bundled model includes its trace, so that an
answer can be shown before a model is loaded. When that model changes, `python -m arr_coc.app.samples` writes
the trace again.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from arr_coc.app.asking import AskForm
from arr_coc.data.record import Box
from arr_coc.files.images import open_image
from arr_coc.model import ARRCOCModel
from arr_coc.store.checkpoint import BUNDLED_MODEL
from arr_coc.trace.observe import observe
from arr_coc.trace.trace import Trace

SAMPLE = BUNDLED_MODEL.parent / "sample.json"
PICTURES, LISTED = Path(__file__).parent / "pictures", "pictures.json"
"""Drawn pages, made by `runs/pictures.py`, and the list of their questions."""
SHIPPED = Path(__file__).parent / "sample.safetensors"
SHAPES = "shapes.json"  # a page of shapes; with few tokens its second answer is wrong


@dataclass(frozen=True)
class AppSample:
    """An image with a question, and optionally a trace of its answer, true answers and evidence boxes."""

    image: str | Image.Image
    question: str
    trace: Trace | None = None
    true_answers: tuple[str, ...] = ()
    evidence: tuple[Box, ...] = ()


THUMBNAIL = 96  # px, twice the size on the page


def chip(sample: AppSample) -> str:
    """Return a sample as HTML: a thumbnail and the escaped question."""
    file = io.BytesIO()
    picture = open_image(sample.image).convert("RGB")
    ImageOps.fit(picture, (THUMBNAIL, THUMBNAIL)).save(file, "jpeg", quality=80)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img src="data:image/jpeg;base64,{data}" alt=""><span>{html.escape(sample.question)}</span>'


def samples(traces: Sequence[Trace | str | Path] = ()) -> list[AppSample]:
    """Samples of saved or loaded traces, then pages as people have them, then those of the bundled model."""
    opened = [Trace.load(trace) if isinstance(trace, str | Path) else trace for trace in traces]
    return [sample_of(trace) for trace in opened] + picture_samples() + bundled_samples()


def sample_of(trace: Trace) -> AppSample:
    """Return the sample of a trace, with its first picture."""
    return AppSample(trace.picture, trace.question, trace, trace.true_answers)


def bundled_samples() -> list[AppSample]:
    """Return the bundled sample page and a page of shapes, two questions each."""
    page, first = str(SAMPLE.with_suffix(".png")), json.loads(SAMPLE.read_text(encoding="utf-8"))
    return [
        AppSample(page, first["question"], Trace.load(SHIPPED), (first["answer"],)),
        AppSample(page, "What does the gray text say?", true_answers=("CJ",)),
        *picture_samples(SHAPES),
    ]


def picture_samples(listed: str = LISTED) -> list[AppSample]:
    """Samples of pages written by hand: order, invoice, chart, settings, ticket; those of one in a row."""
    pages = json.loads((PICTURES / listed).read_text(encoding="utf-8"))
    return [
        AppSample(
            str(PICTURES / f"{page['name']}.png"), one["question"], true_answers=(one["answer"],),
            evidence=tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in one["evidence"]),
        )
        for page in pages
        for one in page["questions"]
    ]  # fmt: skip


def write_shipped(target: Path = SHIPPED) -> Trace:
    """Answer the first sample with the form's defaults and write the trace."""
    page, first = SAMPLE.with_suffix(".png"), json.loads(SAMPLE.read_text(encoding="utf-8"))
    question = first["question"]
    request = AskForm(str(page), question)
    model = ARRCOCModel.from_pretrained(device="cpu", strict=True)  # the same trace on any machine
    for _ in range(2):  # the first run pays one-time set-up
        session = model.session(page)
        more: dict[str, Any] = {"compare": request.compare, "true_answers": (first["answer"],)}
        trace = observe(session, question, budget=request.budget, mode=request.mode, **more)
    trace.save(target)
    return trace


if __name__ == "__main__":
    print(write_shipped().answer)
