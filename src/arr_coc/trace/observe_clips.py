"""Traces of questions about clips, or about several images and clips.

    observe_clips(session, question) -> ClipTrace     with the answer from all tokens for comparison

What `observe` does for one image. The pictures are frames of the clip itself: of each step the one that the
model's picture of that step was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.attending import Budget
from arr_coc.modes.cues import pictures
from arr_coc.seam.clips import as_frames
from arr_coc.session import Session
from arr_coc.trace.clip_trace import ClipTrace
from arr_coc.trace.guidance import Guidance
from arr_coc.trace.observe import answered
from arr_coc.trace.strip import Span, Strip, small_pictures
from arr_coc.video import FrameSource
from arr_coc.video.frames import groups
from arr_coc.video.temporal import Changes
from arr_coc.video.visuals import Visual


def observe_clips(
    session: Session,
    question: str,
    *,
    budget: Budget | None = None,
    mode: str | None = None,
    gestalt: str | None = None,
    compare: bool = True,
    max_new_tokens: int = 32,
    true_answers: Sequence[str] = (),
    on_text: Callable[[str], None] | None = None,
    on_full_text: Callable[[str], None] | None = None,
) -> ClipTrace:
    """Ask a question about the images and clips of a session, and record the answer in a trace.

    The arguments are those of `observe`.

    Raises:
        ValueError: as `Session.ask`, or more steps than a trace holds.
    """
    options = {"budget": budget, "mode": mode, "gestalt": gestalt, "max_new_tokens": max_new_tokens}
    answer, fields = answered(session, question, options, compare, on_text, on_full_text)
    guided = [Guidance.of(coupling) for coupling in answer.couplings]
    strips = strips_of(session, question, answer.mode, answer.allocations, guided)
    return ClipTrace(**fields, strips=strips, true_answers=tuple(true_answers))


@torch.no_grad()
def strips_of(
    session: Session,
    question: str,
    mode: str,
    allocations: Sequence[Allocation],
    guided: Sequence[Guidance] = (),
) -> tuple[Strip, ...]:
    """The strips of a session's images and clips.

    Args:
        session: that was asked.
        question: that it was asked.
        mode: that ran.
        allocations: of the answer, one per image and clip.
        guided: what the guide said of each; empty: it wasn't asked.

    Raises:
        ValueError: more steps than a trace holds.
    """
    adapter, encoded = session.model.adapter, session.encoded(mode)
    inputs, frames = as_frames(adapter, session.inputs(question))
    read = groups(pictures(adapter, inputs, encoded), frames or (1,) * len(allocations))
    visuals = zip(session.images, read, allocations, strict=True)
    sources = [
        (
            [_picture(views[0])] if isinstance(visual, Image.Image) else _looked_at(visual, views),
            _picture_size(visual, views[0]),
            record.grid,
        )
        for visual, views, record in visuals
    ]
    strips = []
    for i, made in enumerate(small_pictures(sources)):
        visual, views, record = session.images[i], read[i], allocations[i].cpu()
        cuts: tuple[int, ...] = ()
        if isinstance(visual, FrameSource):
            compared = encoded.changes[i] if encoded.changes else None
            changes = compared or Changes.of(views, record.grid[1:])
            cuts = tuple(changes.cuts.nonzero().flatten().tolist())
        height, width = views[0].shape[-2:]
        strips.append(
            Strip(
                pictures=made,
                allocation=record,
                side=(width, height),
                spans=_spans(visual, len(views)),
                cuts=cuts,
                guidance=guided[i] if guided else None,
            )
        )
    return tuple(strips)


def _spans(visual: Visual, steps: int) -> tuple[Span, ...]:
    """The seconds of each step's first and last frame; () of an image."""
    if isinstance(visual, Image.Image):
        return ()
    each = -(-len(visual) // steps)  # frames of a step
    parts = [visual.times[start : start + each] for start in range(0, len(visual), each)]
    return tuple((part[0], part[-1]) for part in parts)


def _looked_at(clip: FrameSource, views: Sequence[Tensor]) -> Iterator[Image.Image]:
    """Of each step of a clip the frame that is most like what the model saw of it, [3, h, w] in [0, 1]."""
    each, rest = -(-len(clip) // len(views)), iter(clip)
    for view in views:
        yield min(islice(rest, each), key=partial(_difference, view=view))


def _difference(frame: Image.Image, view: Tensor) -> float:
    """How far a frame is from a picture [3, h, w] in [0, 1], in levels of 255."""
    small = np.asarray(frame.resize((view.shape[2], view.shape[1])), dtype=np.float32)
    return float(np.abs(small - 255 * view.float().cpu().permute(1, 2, 0).numpy()).mean())


def _picture_size(visual: Visual, view: Tensor) -> tuple[int, int]:
    """(width, height) of the pictures of an image, as the model reads it, or of a clip's own frames."""
    return (view.shape[2], view.shape[1]) if isinstance(visual, Image.Image) else visual.size


def _picture(view: Tensor) -> Image.Image:
    """[3, h, w] in [0, 1] as an image."""
    return Image.fromarray((255 * view).round().byte().permute(1, 2, 0).cpu().contiguous().numpy())
