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
"""Pictures and what is asked about them, made by `runs/pictures.py`; coffee.jpg is a photograph by Rachel
Michetti, CC0, from scikit-image."""
SHIPPED = Path(__file__).parent / "sample.safetensors"
READ_BY_BUNDLED, YOURS = "Read by the bundled model", "Your traces"  # groups of samples


@dataclass(frozen=True)
class AppSample:
    """An image with a question, and optionally a trace of its answer, true answers and evidence boxes.

    `group` is the title under which the page shows it.
    """

    image: str | Image.Image
    question: str
    trace: Trace | None = None
    true_answers: tuple[str, ...] = ()
    evidence: tuple[Box, ...] = ()
    group: str = READ_BY_BUNDLED


THUMBNAIL = (240, 112)  # width and height in px, twice the size on the page


def chip(sample: AppSample) -> str:
    """Return a sample as HTML: a thumbnail and the escaped question."""
    file = io.BytesIO()
    picture = open_image(sample.image).convert("RGB")
    ImageOps.fit(picture, THUMBNAIL).save(file, "jpeg", quality=80)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img src="data:image/jpeg;base64,{data}" alt=""><span>{html.escape(sample.question)}</span>'


def samples(traces: Sequence[Trace | str | Path] = ()) -> list[AppSample]:
    """Samples of saved or loaded traces, then pictures by group, last the one with a saved answer."""
    opened = [Trace.load(trace) if isinstance(trace, str | Path) else trace for trace in traces]
    return [sample_of(trace) for trace in opened] + picture_samples() + [bundled_sample()]


def sample_of(trace: Trace) -> AppSample:
    """Return the sample of a trace, with its first picture."""
    return AppSample(trace.picture, trace.question, trace, trace.true_answers, group=YOURS)


def bundled_sample() -> AppSample:
    """Return the page whose answer by the bundled model is saved."""
    first = json.loads(SAMPLE.read_text(encoding="utf-8"))
    page = str(SAMPLE.with_suffix(".png"))
    return AppSample(page, first["question"], Trace.load(SHIPPED), (first["answer"],))


def picture_samples() -> list[AppSample]:
    """Samples of pictures as people have them, and of a page that the bundled model reads."""
    return [
        AppSample(
            str(PICTURES / one["file"]), one["question"], group=one["group"],
            true_answers=tuple(filter(None, [one["answer"]])),
            evidence=tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in one["evidence"]),
        )
        for one in json.loads((PICTURES / LISTED).read_text(encoding="utf-8"))
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
