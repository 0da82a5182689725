"""A small trace with everything in it, for the tests of this folder: 8 x 8 cells of 32 px, 12 kept."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image, ImageDraw

from arr_coc.choose.allocation import Allocation, Reason
from arr_coc.trace.evidence import Guidance, Spot
from arr_coc.trace.trace import FullAnswer, QuestionWord, Trace
from records import record
from trace_parts import image_trace

SIDE, CELL, KEPT = 8, 32, 12


def _said(confidence: float, word: str, likeness: float, whole: float = 0.0, odd: float = 0.0) -> Guidance:
    return Guidance(
        confidence, whole, odd, (Spot(word, word, likeness, (0.5, 0.5), torch.zeros(SIDE, SIDE)),)
    )


VERDICTS = {  # a record of the guide for each verdict
    "sure": _said(0.9, "total", 0.99),
    "unsure": _said(0.2, "total", 0.99),
    "nothing": _said(0.1, "total", 0.1),
    "dense": _said(0.9, "formula", 0.1),
    "unread": _said(0.0, "总额", 0.1),
    "overview": _said(0.9, "page", 0.99, whole=1.0),
    "unusual": _said(0.9, "odd", 0.1, odd=1.0),
}


def allocation(seed: int = 0, kept: int = KEPT, reason: Reason = Reason.RELEVANT) -> Allocation:
    return record(SIDE, SIDE, kept, seed=seed, reason=reason, tensions=(0.25, 0.5, 0.75))


def picture() -> Image.Image:
    image = Image.new("RGB", (SIDE * CELL, SIDE * CELL), (244, 242, 234))
    draw = ImageDraw.Draw(image)
    draw.rectangle((40, 30, 120, 100), fill=(214, 40, 40))
    draw.ellipse((140, 110, 230, 200), fill=(30, 100, 200))
    for y in range(215, 250, 8):
        draw.line((20, y, 236, y), fill=(30, 30, 30), width=2)
    return image


def trace(record: Allocation | None = None, **changes: Any) -> Trace:
    record = record or allocation()
    heat = torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(9))
    fields: dict[str, Any] = {
        "picture": picture(),
        "question": "Where is red?",
        "answer": "left",
        "allocation": record,
        "mode": "prune",
        "budget": record.kept,
        "kept": record.kept,
        "total": record.total,
        "read": record.kept,
        "fallback": False,
        "note": None,
        "ms": {"texture": 2.0, "score": 3.0, "encode": 30.0, "prefill": 10.0, "decode": 5.0, "total": 50.0},
        "model": "tiny",
        "full": FullAnswer("left", {"encode": 30.0, "prefill": 160.0, "decode": 10.0, "total": 200.0}),
        "texture": torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(5)),
        "channels": ("red", "green", "blue"),
        "words": (
            QuestionWord("Where", 0.2, heat.flip(0)),
            QuestionWord(" "),
            QuestionWord("is"),
            QuestionWord(" "),
            QuestionWord("red", 0.9, heat),
            QuestionWord("?"),
        ),
        "probes": {
            "sweep": {
                "right": "left",
                "smallest": 4,
                "order": "balanced",
                "points": [
                    {"kept": k, "answer": "left" if k >= 4 else "up", "right": k >= 4, "logprob": -3.0 / k}
                    for k in (1, 2, 4, 8, 64)
                ],
            },
            "faithfulness": {
                "right": "left",
                "share": [0.0, 0.5, 1.0],
                "deletion": [-0.1, -2.0, -3.0],
                "insertion": [-3.0, -0.2, -0.1],
                "random": [[-3.0, -3.0], [-1.5, -1.0], [-0.1, -0.1]],
                "random_deletion": [[-0.1, -0.1], [-1.5, -1.0], [-3.0, -3.0]],
                "auc": {"deletion": -1.7, "insertion": -0.9, "random": -1.4},
            },
            "contenders": {
                "budget": record.kept,
                "right": "left",
                "rows": [
                    {
                        "method": method,
                        "kind": kind,
                        "tokens": 12.0,
                        "answer": answer,
                        "right": answer == "left",
                        "logprob": -1.0,
                        "keep": keep,
                    }
                    for method, kind, answer, keep in (
                        ("arr-coc", "ours", "left", record.keep.tolist()),
                        ("even grid", "null", "up", list(range(0, 60, 5))),
                        ("downsample", "null", "up", None),
                    )
                ],
                "left_out": {"scope": "no such attention here"},
            },
        },
    }
    return image_trace(**fields | changes)
