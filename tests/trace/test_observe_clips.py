"""Traces of questions about clips, observed."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.trace.observe import observe
from arr_coc.video import open_clip
from clip_models import clip_model, drawn_clip, frame

QUESTION = "When is the disc red?"


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return clip_model()


@pytest.mark.slow
def test_the_trace_is_of_the_answer(model: ARRCOCModel) -> None:
    clip = drawn_clip()
    trace = observe(model.session(clip), QUESTION, budget=0.25, mode="prune", max_new_tokens=4)
    answer = model.ask(clip, QUESTION, budget=0.25, mode="prune", max_new_tokens=4)
    assert (trace.answer, trace.kept, trace.total) == (answer.text, answer.kept, answer.total)
    (strip,) = trace.strips
    assert strip.allocation.keep.tolist() == answer.allocation.keep.tolist()
    assert strip.budgets == answer.allocation.mask().flatten(1).sum(1).tolist()
    assert strip.spans[2] == (2.0, 2.5)
    assert strip.cuts == (0, 3)
    assert (strip.size, strip.side) == ((64, 48), (64, 48))
    assert trace.full is not None
    assert trace.full.text == model.ask(clip, QUESTION, mode="full", max_new_tokens=4).text
    assert strip.guidance is not None


@pytest.mark.parametrize("mode", MODES)
def test_every_mode(model: ARRCOCModel, mode: str) -> None:
    session = model.session(drawn_clip(5))  # the last step has one frame
    trace = observe(session, QUESTION, budget=0.5, mode=mode, compare=False, max_new_tokens=2)
    assert len(trace.strips[0].pictures) == 3
    assert trace.strips[0].spans[-1] == (2.0, 2.0)
    assert trace.view()["mode"] == trace.mode


def test_images_and_clips_together(model: ARRCOCModel) -> None:
    session = model.session([frame(1), drawn_clip(4)])
    trace = observe(session, QUESTION, budget=6, mode="prune", compare=False, max_new_tokens=2)
    assert [strip.is_clip for strip in trace.strips] == [False, True]
    assert [strip.allocation.kept for strip in trace.strips] == [6, 6]
    assert (trace.words, trace.texture, trace.has_clips) == ((), None, True)
    with pytest.raises(ValueError, match="evidence boxes are of one image"):
        observe(session, QUESTION, evidence=[(0, 0, 1, 1)])


def test_the_frame_that_was_looked_at_is_drawn(model: ARRCOCModel) -> None:
    """Of the two frames of a step the one that shows what is new, in the size of the clip."""
    red = Image.new("RGB", (64, 48), (200, 30, 30))
    clip = open_clip([frame(0), frame(0), frame(0), red], fps=2.0)
    trace = observe(model.session(clip), QUESTION, budget=12, mode="prune", compare=False)
    first, second = (np.asarray(trace.strips[0].picture(i), float).mean((0, 1)) for i in range(2))
    assert first.min() > 180
    assert second[0] > 150
    assert second[1] < 80
