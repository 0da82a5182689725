"""Steps of clips: made one at a time they are what the processor makes of the whole, to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc import ARRCOCModel
from arr_coc.families import adapter_for
from arr_coc.seam.base import as_frames
from arr_coc.seam.clips import ClipSteps, StepPixels, StepRows, takes_steps, with_whole_pixels
from arr_coc.seam.prompt import VisualPrompt, chat_prompt
from arr_coc.video import FrameSource, open_clip
from clip_models import TEMPLATE
from tiny import QWEN_FAMILIES, Tiny, picture, tiny

SMALL = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
SIZES = {"shortest_edge": 16 * 16, "longest_edge": 9 * 40 * 40}


def clip(seed: int = 0, frames: int = 7, size: tuple[int, int] = (61, 47)) -> FrameSource:
    """Pictures that have nothing to do with each other, but for one that repeats."""
    pictures = [picture(seed + i - (i == 3), size) for i in range(frames)]
    return open_clip(pictures, fps=2.0)


@pytest.fixture(params=QWEN_FAMILIES)
def built(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    built = tiny(request.param)
    monkeypatch.setattr(built.processor, "chat_template", TEMPLATE)
    for name, value in {**SMALL, "size": SIZES}.items():
        monkeypatch.setattr(built.processor.video_processor, name, value)
    return built


def unstreamed(processor: Any, visuals: list[Any], question: str) -> dict[str, Any]:
    """Processor inputs from all frames at once, with no code of ours but the template's."""
    clips = [one for one in visuals if isinstance(one, FrameSource)]
    about = [{"fps": c.rate, "total_num_frames": c.total, "frames_indices": list(c.numbers)} for c in clips]
    kinds = ["video" if isinstance(one, FrameSource) else "image" for one in visuals]
    images = [one for one in visuals if isinstance(one, Image.Image)]
    return dict(
        processor(
            text=[chat_prompt(processor, question, kinds)],
            videos=[np.stack(list(one.arrays())) for one in clips],
            videos_kwargs={"do_sample_frames": False, "video_metadata": about},
            return_tensors="pt",
            **({"images": [images]} if images else {}),
        )
    )


CASES: dict[str, list[Any]] = {
    "a clip": [clip()],
    "one step": [clip(1, 2)],
    "two clips and an image": [clip(3), picture(4, (32, 40)), clip(5, 4, (40, 40))],
}


@pytest.fixture(params=CASES)
def visuals(request: pytest.FixtureRequest) -> list[Any]:
    return CASES[request.param]


class TestEquality:
    def test_inputs_are_the_processors_own(self, built: Tiny, visuals: list[Any]) -> None:
        inputs = VisualPrompt(built.processor, visuals).inputs("When is it?")
        assert isinstance(inputs["pixel_values_videos"], StepPixels)
        stock = unstreamed(built.processor, visuals, "When is it?")
        ours = with_whole_pixels(inputs)
        assert set(ours) == set(stock)
        for name, value in stock.items():
            assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(value)), name

    def test_pictures_are_those_that_were_recovered_from_all_pixels(
        self, built: Tiny, visuals: list[Any]
    ) -> None:
        adapter = adapter_for(built.model, built.processor)
        prompt = VisualPrompt(built.processor, visuals)
        lazy, _ = as_frames(adapter, prompt.inputs("?"))
        whole, _ = as_frames(adapter, unstreamed(built.processor, visuals, "?"))
        assert isinstance(lazy["pixel_values"], StepRows)
        made = lazy["pixel_values"].pictures(adapter, lazy["image_grid_thw"])
        recovered = adapter.images(whole)
        assert len(made) == len(recovered)
        if len(visuals) == 1:  # of several clips each begins by itself
            for one, other in zip(made, recovered, strict=True):
                assert torch.equal(one, other)
        assert [one.shape for one in made[1:3]] == [one.shape for one in recovered[1:3]]

    @torch.no_grad()
    @pytest.mark.parametrize("mode", ["sparse", "saccade", "prune", "full"])
    def test_the_model_reads_the_same(self, built: Tiny, mode: str) -> None:
        visuals = CASES["a clip"]
        model = ARRCOCModel.wrap(built.model, built.processor, strict=True, relevance="gaze")
        prompt = VisualPrompt(built.processor, visuals)
        ours = model.prepare(prompt.inputs("Where is it?"), mode=mode, budget=0.1)
        stock = model.prepare(unstreamed(built.processor, visuals, "Where is it?"), mode=mode, budget=0.1)
        assert torch.equal(ours.allocations[0].keep, stock.allocations[0].keep)
        assert ours.allocations[0].kept < ours.allocations[0].total or mode in ("full", "saccade")
        one, other = ours.compacted.kwargs, stock.compacted.kwargs
        for name in ("input_ids", "attention_mask", "position_ids"):
            assert torch.equal(one[name], other[name]), name
        features, others = one["mm_encoder_outputs"]["image"], other["mm_encoder_outputs"]["image"]
        for a, b in zip(features.pooler_output, others.pooler_output, strict=True):
            assert torch.equal(a, b)

    def test_a_clip_of_one_frame_is_that_frame_twice(self, built: Tiny) -> None:
        one = with_whole_pixels(VisualPrompt(built.processor, [clip(2, 1)]).inputs("?"))
        frame = next(iter(clip(2, 1)))
        twice = with_whole_pixels(VisualPrompt(built.processor, [open_clip([frame] * 2)]).inputs("?"))
        assert torch.equal(one["pixel_values_videos"], twice["pixel_values_videos"])
        assert one["video_grid_thw"].tolist() == twice["video_grid_thw"].tolist()

    def test_frames_at_the_models_size_are_not_scaled(
        self, built: Tiny, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(built.processor.video_processor, "do_resize", False)
        visuals = [clip(1, 6, (32, 24))]
        inputs = with_whole_pixels(VisualPrompt(built.processor, visuals).inputs("?"))
        stock = unstreamed(built.processor, visuals, "?")
        assert torch.equal(inputs["pixel_values_videos"], stock["pixel_values_videos"])


class TestWhatIsMade:
    def test_rows_of_kept_steps_alone(self, built: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
        adapter = adapter_for(built.model, built.processor)
        inputs, _ = as_frames(adapter, VisualPrompt(built.processor, CASES["a clip"]).inputs("?"))
        made: list[int] = []
        rows = ClipSteps.rows
        monkeypatch.setattr(ClipSteps, "rows", lambda own, step: made.append(step) or rows(own, step))
        pixels, step = inputs["pixel_values"], int(inputs["image_grid_thw"][0].prod())
        some = torch.tensor([1, 3, 2 * step, 3 * step - 1])
        assert torch.equal(pixels[some], pixels.whole()[some])
        assert made[:2] == [0, 2]

    def test_other_counts_are_refused(self, built: Tiny) -> None:
        adapter = adapter_for(built.model, built.processor)
        inputs, _ = as_frames(adapter, VisualPrompt(built.processor, CASES["a clip"]).inputs("?"))
        with pytest.raises(ValueError, match="can't be read as"):
            inputs["pixel_values"].split([1, 2])

    def test_frames_are_read_once_and_one_at_a_time(self, built: Tiny) -> None:
        source, opened = clip(), []

        def read() -> Any:
            opened.append(1)
            return iter(list(source.read()))

        VisualPrompt(built.processor, [FrameSource(**(vars(source) | {"read": read}))])
        assert len(opened) == 1


class TestProcessorsThatNeedAllFrames:
    def test_they_get_them(self, built: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
        """One whose pixels depend on the number of frames."""
        reader = built.processor.video_processor
        own = type(reader).rescale_and_normalize

        def dimmed(self: Any, images: torch.Tensor, *rest: Any) -> torch.Tensor:
            return own(self, images, *rest) / images.shape[1]

        assert takes_steps(reader)
        monkeypatch.setattr(type(reader), "rescale_and_normalize", dimmed)
        assert not takes_steps(reader)
        inputs = VisualPrompt(built.processor, CASES["a clip"]).inputs("?")
        assert isinstance(inputs["pixel_values_videos"], torch.Tensor)
        assert torch.equal(
            inputs["pixel_values_videos"],
            unstreamed(built.processor, CASES["a clip"], "?")["pixel_values_videos"],
        )

    def test_one_that_takes_no_outline_gets_them_too(
        self, built: Tiny, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = built.processor.video_processor
        own = type(reader).rescale_and_normalize

        def reading(self: Any, images: torch.Tensor, *rest: Any) -> torch.Tensor:
            assert float(images.float().mean()) > 0
            return own(self, images, *rest)

        monkeypatch.setattr(type(reader), "rescale_and_normalize", reading)
        assert not takes_steps(reader)

    def test_what_is_none_takes_no_steps(self) -> None:
        assert not takes_steps(None)
        assert not takes_steps(tiny("llava_onevision").processor.video_processor)


PEAK = r"""
import gc, re, sys
from pathlib import Path
from PIL import Image
from arr_coc import ARRCOCModel
from arr_coc.video.source import FrameSource
from arr_coc.seam.prompt import VisualPrompt

def resident(what):  # of this process, in MB; what getrusage says begins with its parent's
    return int(re.search(what + r":\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def frames(count):
    for i in range(count):
        image = Image.new("RGB", (1280, 720), (250, 250, 245))
        image.paste((30, 90, 200), (40 + i % 600, 60, 400 + i % 600, 200))
        yield image

def source(seconds):
    count = 2 * seconds
    times = tuple(i / 2 for i in range(count))
    return FrameSource("drawn", times, tuple(range(count)), (1280, 720), 2.0, count, lambda: frames(count))

model = ARRCOCModel.from_pretrained(strict=True)
what, seconds = sys.argv[1], int(sys.argv[2])
if what == "read":  # with the limits of Qwen3-VL's published processor
    model.processor.video_processor.size = {"shortest_edge": 4096, "longest_edge": 25165824}
    work = lambda seconds: VisualPrompt(model.processor, [source(seconds)])
else:
    work = lambda seconds: model.ask(
        source(seconds), "Where is it blue?", budget=0.1, mode="sparse", max_new_tokens=1
    )
work(4)  # what is loaded with the first question is no part of the clip's
gc.collect()
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = resident("VmRSS")
kept = work(seconds)
print(resident("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").is_file(), reason="peak memory is read from Linux's /proc"
)
@pytest.mark.parametrize("what", ["read", "ask"])
def test_memory_does_not_grow_with_the_pixels_of_frames(what: str) -> None:
    """5 minutes of 720p are 1.6 GB in bytes; they take a small part of that, and little more than 30 s do.

    Measured on a CPU in MB: reading 97 for 30 s and 71 for 5 minutes (of both the processor's limit of 25
    million px is held, 75 MB in bytes), asking the bundled model 13 and 63. The bounds are twice that.
    """
    # One heap that gives back what is freed: else what is measured is what malloc keeps for later.
    settings = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072", "OMP_NUM_THREADS": "1"}
    peaks = []
    for seconds in (30, 300):
        words = [sys.executable, "-c", PEAK, what, str(seconds)]
        run = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | settings)
        assert run.returncode == 0, run.stderr
        peaks.append(float(run.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 100, peaks
    assert max(peaks) < 200, peaks
