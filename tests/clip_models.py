"""A tiny model that reads clips, and a drawn clip and its trace, without a model and at once."""

from __future__ import annotations

import copy
from typing import Any

import torch
from PIL import Image, ImageDraw

from arr_coc.choose.allocation import TENSIONS, Allocation, Grid, Reason, grid_positions
from arr_coc.model import ARRCOCModel
from arr_coc.trace.strip import Strip, small_pictures
from arr_coc.trace.trace import FullAnswer, Trace
from arr_coc.video import FrameSource, open_clip
from tiny import tiny

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type in ('image', 'video') %}"
    "<|vision_start|><|{{ c.type }}_pad|><|vision_end|>"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def clip_model() -> ARRCOCModel:
    """A tiny Qwen3-VL whose processor takes clips at their own size, in cells of 8 px."""
    made = tiny("qwen3_vl")
    processor: Any = copy.deepcopy(made.processor)  # other tests share it
    processor.chat_template = TEMPLATE
    settings = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "do_resize": False}
    for name, value in settings.items():
        setattr(processor.video_processor, name, value)
    return ARRCOCModel.wrap(made.model, processor)


def frame(number: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """A page on which a red disc moves; from number 6 on a dark one with a blue square."""
    width, height = size
    late = number >= 6
    image = Image.new("RGB", size, (40, 44, 60) if late else (240, 238, 228))
    draw, side = ImageDraw.Draw(image), height // 4
    left = 2 + (number % 6) * (width - side - 4) // 6
    box = (left, height // 3, left + side, height // 3 + side)
    (draw.rectangle if late else draw.ellipse)(box, fill=(60, 120, 230) if late else (214, 40, 40))
    draw.line((4, height - 6, width - 4, height - 6), fill=(150, 150, 150), width=2)
    return image


def drawn_clip(count: int = 12, size: tuple[int, int] = (64, 48)) -> FrameSource:
    """So many frames, 2 per second, with a cut at 3 s."""
    return open_clip([frame(i, size) for i in range(count)], fps=2.0)


def record(grid: Grid, kept: int, seed: int = 0) -> Allocation:
    """A choice of the highest of random numbers, which rise and fall from step to step."""
    maps = torch.rand(4, *grid, generator=torch.Generator().manual_seed(seed))
    wave = 0.5 + 0.5 * torch.sin(torch.arange(grid[0]) * 1.3).view(-1, 1, 1)
    maps[3] = maps[3] * wave
    order = maps[3].flatten().argsort(descending=True, stable=True)[:kept]
    keep = order.sort().values
    return Allocation(
        grid, keep, order, grid_positions(keep, grid), *maps, weights=torch.tensor([0.5, 0.3, 0.9]),
        tensions=dict.fromkeys(TENSIONS, 0.5), budget=kept, reasons=torch.full_like(keep, Reason.RELEVANT),
        void=False,
    )  # fmt: skip


def clip_strip(steps: int = 6, kept: int = 30, seed: int = 0, size: tuple[int, int] = (64, 48)) -> Strip:
    """A strip of a clip of so many steps, of 6 x 8 cells each."""
    grid = (steps, 6, 8)
    frames = [frame(2 * step, size) for step in range(steps)]
    (pictures,) = small_pictures([(frames, size, grid)])
    spans = tuple((float(step), step + 0.5) for step in range(steps))
    cuts = (0, 3) if steps > 3 else (0,)
    return Strip(pictures, record(grid, kept, seed), size, spans, cuts)


def image_strip(kept: int = 12, seed: int = 3) -> Strip:
    """A strip of an image of 6 x 8 cells."""
    (pictures,) = small_pictures([([frame(2)], (64, 48), (1, 6, 8))])
    return Strip(pictures, record((1, 6, 8), kept, seed), (64, 48))


def clip_trace(*strips: Strip, **changes: Any) -> Trace:
    """A trace of some strips; of none, of a clip of 6 steps."""
    strips = strips or (clip_strip(),)
    kept = sum(strip.allocation.kept for strip in strips)
    total = sum(strip.allocation.total for strip in strips)
    times = {"encode": 30.0}
    fields: dict[str, Any] = {
        "question": "When is the disc red?",
        "answer": "at the start",
        "strips": strips,
        "mode": "prune",
        "budget": kept,
        "kept": kept,
        "total": total,
        "read": kept,
        "fallback": False,
        "note": None,
        "ms": times | {"texture": 2.0, "score": 3.0, "prefill": 10.0, "decode": 5.0, "total": 50.0},
        "model": "tiny",
        "full": FullAnswer(
            "at the start", {"encode": 30.0, "prefill": 160.0, "decode": 10.0, "total": 200.0}
        ),
        "machine": "cpu, float32",
    }
    return Trace(**fields | changes)
