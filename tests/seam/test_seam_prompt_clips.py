"""Prompts about clips and several images: processed once, the same as the processor's own every time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arr_coc.seam.clips import with_whole_pixels
from arr_coc.seam.prompt import TextExpansion, VisualPrompt, chat_prompt
from arr_coc.video import FrameSource, open_clip
from arr_coc.video.opening import Visual
from tests.clip_models import TEMPLATE
from tests.tiny import QWEN_FAMILIES, picture, tiny


def clip(seed: int = 0, frames: int = 6) -> FrameSource:
    return open_clip([picture(seed + i, (32, 32)) for i in range(frames)], fps=2.0)


@pytest.fixture(params=QWEN_FAMILIES)
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    processor = tiny(request.param).processor
    monkeypatch.setattr(processor, "chat_template", TEMPLATE)
    for name, value in {
        "patch_size": 4,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "do_resize": False,
    }.items():
        monkeypatch.setattr(processor.video_processor, name, value)
    return processor


CASES: dict[str, list[Visual]] = {
    "a clip": [clip()],
    "two images": [picture(1), picture(2)],
    "an image and a clip": [picture(1), clip(3)],
}


@pytest.mark.parametrize("case", CASES)
def test_every_prompt_is_the_processors_own(processor: Any, case: str) -> None:
    visuals = CASES[case]
    prompt = VisualPrompt(processor, visuals)
    assert isinstance(prompt._expansion, TextExpansion)
    kinds = ["video" if isinstance(one, FrameSource) else "image" for one in visuals]
    for question in ("?", "When does it begin?", "<3 seconds> or more?"):
        ours = with_whole_pixels(prompt.inputs(question))
        stock = prompt._process(chat_prompt(processor, question, kinds))
        assert set(ours) == set(stock)
        for name, value in stock.items():
            if name == "pixel_values_videos":  # the outline of; `test_seam_steps` compares the pixels
                assert (value.device.type, value.shape) == ("meta", ours[name].shape)
                continue
            assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(value)), name


def test_it_is_processed_once(processor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = VisualPrompt(processor, [clip()])
    monkeypatch.setattr(prompt, "_process", None)
    first, second = prompt.inputs("What?"), prompt.inputs("And when?")
    assert first["pixel_values_videos"] is second["pixel_values_videos"]


def test_the_processor_is_told_which_frames_they_are(processor: Any) -> None:
    frames = [picture(i, (32, 32)) for i in range(16)]
    every = open_clip(frames, fps=1.0, rate=4.0)
    assert every.numbers == (0, 5, 10, 15)
    text = processor.tokenizer.decode(VisualPrompt(processor, [every]).inputs("?")["input_ids"][0])
    if "seconds" in text:  # the families that write the time
        assert "<0.6 seconds>" in text
        assert "<3.1 seconds>" in text


def test_frames_that_are_not_evenly_apart_keep_their_seconds(processor: Any, tmp_path: Path) -> None:
    durations = [1000, 1000, 18_000, *[100] * 5]  # as a screen is recorded: frames where something changes
    first, *rest = [picture(i, (32, 32)) for i in range(len(durations))]
    path = tmp_path / "screen.gif"
    first.save(path, save_all=True, append_images=rest, duration=durations)
    every = open_clip(path, fps=2.0)
    assert every.times[:4] == pytest.approx((0.0, 1.0, 2.0, 20.0))
    inputs = VisualPrompt(processor, [every]).inputs("?")
    text = processor.tokenizer.decode(inputs["input_ids"][0])
    if "seconds" in text:
        assert [float(told) for told in re.findall(r"<([0-9.]+) seconds>", text)] == pytest.approx(
            [0.5, 11.0, 20.15, 20.35], abs=0.06
        )
    if "second_per_grid_ts" in inputs:  # one length for all of its steps
        assert float(inputs["second_per_grid_ts"][0]) == pytest.approx(2 * 20.5 / 8, rel=0.01)


def test_a_processor_without_clips_refuses_them() -> None:
    with pytest.raises(ValueError, match="takes no clips"):
        VisualPrompt(tiny("llava").processor, [clip()])


def test_a_template_that_writes_no_clip_refuses_them() -> None:
    with pytest.raises(ValueError, match="0 of 1 videos"):
        VisualPrompt(tiny("qwen3_vl").processor, [clip()])


def test_frames_are_read_as_they_are() -> None:
    assert np.array_equal(next(clip().arrays()), np.asarray(picture(0, (32, 32))))
