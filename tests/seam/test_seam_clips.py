"""Clips in the seam: frames are images, every law of images holds of them, and steps have times."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tiny_families
from arr_coc import ARRCOCModel
from arr_coc.families import adapter_for
from arr_coc.modes import MODES
from arr_coc.seam.base import as_frames
from arr_coc.seam.clips import clip_step_times
from arr_coc.video import open_clip
from arr_coc.video.temporal import Moment
from near import KERNELS, near
from tiny import EVERY, LLAVA_FAMILIES, MASKABLE, QWEN_FAMILIES, Tiny, picture, tiny

# ---- seam clips ------------------------------------------------------------------------------------------

Row = tuple[str, Sequence[Image.Image | list[Image.Image]]]
CLIPPED = QWEN_FAMILIES + tuple(name for name in ("cohere_compass",) if name in EVERY)
"""Those that take clips; `cosmos3_omni` has the adapter and the prompt of `qwen3_vl`."""


def clip(seed: int, frames: int = 6, size: tuple[int, int] = (32, 24)) -> list[Image.Image]:
    """Pictures that have nothing to do with each other."""
    return [picture(seed + i, size) for i in range(frames)]


def inputs_of(built: Tiny, rows: Sequence[Row]) -> dict[str, Any]:
    """Ordinary processor inputs for rows of (question, its images and clips in order), left-padded."""
    texts, images, videos = [], [], []
    names = built.processor
    start = getattr(names, "vision_start_token", "<|vision_start|>")
    end = getattr(names, "vision_end_token", "<|vision_end|>")
    for question, visuals in rows:
        tokens = [names.video_token if isinstance(one, list) else names.image_token for one in visuals]
        marks = [start + token + end for token in tokens]
        texts.append(f"<|im_start|>user\n{''.join(marks)}{question}<|im_end|>\n<|im_start|>assistant\n")
        images += [one for one in visuals if not isinstance(one, list)]
        videos += [np.stack([np.asarray(frame) for frame in one]) for one in visuals if isinstance(one, list)]
    more: dict[str, Any] = {"images": images} if images else {}
    if videos:
        more |= {
            "videos": videos,
            "videos_kwargs": {
                "do_sample_frames": False,
                "do_resize": False,
                "patch_size": 4,
                "merge_size": 2,
                "temporal_patch_size": 2,
                "video_metadata": [
                    {"fps": 2.0, "total_num_frames": len(v), "frames_indices": list(range(len(v)))}
                    for v in videos
                ],
            },
        }
    return dict(built.processor(text=texts, padding=True, return_tensors="pt", **more))


CASES: dict[str, list[Row]] = {
    "a clip": [("What?", [clip(1)])],
    "a clip of one step": [("What?", [clip(2, frames=2)])],
    "an image, a clip, an image": [("Which?", [picture(3, (32, 32)), clip(4), picture(5, (24, 24))])],
    "a batch": [("Who is it?", [clip(6, 4), clip(7, 2, (24, 24))]), ("Hm?", [picture(8, (32, 24))])],
}


@pytest.fixture(params=CLIPPED)
def built(request: pytest.FixtureRequest) -> Tiny:
    return tiny(request.param)


@pytest.fixture(params=CASES)
def rows(request: pytest.FixtureRequest) -> list[Row]:
    return CASES[request.param]


class TestAsFrames:
    def test_an_image_is_left_alone(self, built: Tiny) -> None:
        inputs = inputs_of(built, [("What?", [picture(1)])])
        same, frames = as_frames(adapter_for(built.model, built.processor), inputs)
        assert same is inputs
        assert frames == ()

    def test_every_step_is_an_image(self, built: Tiny) -> None:
        inputs = inputs_of(built, CASES["an image, a clip, an image"])
        framed, frames = as_frames(adapter_for(built.model, built.processor), inputs)
        assert frames == (1, 3, 1)
        assert framed["image_grid_thw"].tolist() == [[1, 8, 8], *[[1, 6, 8]] * 3, [1, 6, 6]]
        assert not any("video" in name for name in framed)

    @torch.no_grad()
    def test_the_stock_model_reads_the_frames_as_it_reads_the_clip(
        self, built: Tiny, rows: list[Row]
    ) -> None:
        inputs = inputs_of(built, rows)
        framed, _ = as_frames(adapter_for(built.model, built.processor), inputs)
        stock, ours = built.model(**inputs).logits, built.model(**framed).logits
        mask = inputs["attention_mask"].bool()
        assert near(stock[mask], ours[mask])

    def test_a_prompt_of_another_clip_is_refused(self, built: Tiny) -> None:
        inputs = inputs_of(built, [("What?", [clip(1)])])
        inputs["video_grid_thw"] = inputs["video_grid_thw"].clone()
        inputs["video_grid_thw"][0, 0] -= 1
        inputs["pixel_values_videos"] = inputs["pixel_values_videos"][: 2 * 48]
        with pytest.raises(ValueError, match="images or clips"):
            as_frames(adapter_for(built.model, built.processor), inputs)

    @pytest.mark.parametrize("family", LLAVA_FAMILIES)
    def test_other_families_refuse_by_name(self, family: str) -> None:
        built = tiny(family)
        inputs = {"input_ids": torch.ones(1, 4, dtype=torch.long), "pixel_values_videos": torch.zeros(1)}
        with pytest.raises(ValueError, match=f"clips of {family}"):
            as_frames(adapter_for(built.model, built.processor), inputs)


class TestLaws:
    @pytest.mark.slow
    @torch.no_grad()
    @pytest.mark.parametrize("mode", ["prune", "sparse"])
    def test_all_of_it_kept_is_the_stock_model(self, built: Tiny, rows: list[Row], mode: str) -> None:
        inputs = inputs_of(built, rows)
        model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
        stock, ours = built.model(**inputs), model(**inputs, mode=mode, budget=1.0)
        mask = inputs["attention_mask"].bool()
        exact = len({type(one) for _, visuals in rows for one in visuals}) == 1
        assert near(ours.logits[mask], stock.logits[mask], 0 if exact else KERNELS)
        options = {"max_new_tokens": 4, "do_sample": False}
        assert torch.equal(
            built.model.generate(**inputs, **options),
            model.generate(**inputs, mode=mode, budget=1.0, **options),
        )

    @torch.no_grad()
    @pytest.mark.parametrize("mode", ["prune", "sparse"])
    def test_an_allocation_per_clip(self, built: Tiny, rows: list[Row], mode: str) -> None:
        inputs = inputs_of(built, rows)
        model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
        output = model(**inputs, mode=mode, budget=0.25)
        visuals = [one for _, some in rows for one in some]
        assert len(output.allocations) == len(visuals)
        for allocation, one in zip(output.allocations, visuals, strict=True):
            steps = len(one) // 2 if isinstance(one, list) else 1
            assert allocation.grid[0] == steps
            assert allocation.kept == max(1, int(0.25 * allocation.total + 0.5))

    @torch.no_grad()
    @pytest.mark.parametrize("family", MASKABLE[:3])
    @pytest.mark.parametrize("mode", ["prune"])
    def test_drop_equals_mask(self, family: str, mode: str, rows: list[Row]) -> None:
        built = tiny(family)
        inputs = inputs_of(built, rows)
        model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
        output = model(**inputs, mode=mode, budget=0.25)
        columns, ids = output.columns, inputs["input_ids"]
        mask = torch.zeros_like(ids)
        for row, kept in enumerate(columns):
            mask[row, kept[kept >= 0]] = 1
        adapter = adapter_for(built.model, built.processor)
        masked = inputs | {"attention_mask": mask, "position_ids": adapter.positions(inputs)}
        stock = built.model(**masked).logits
        for row, kept in enumerate(columns):
            there = kept >= 0
            assert near(output.logits[row, there], stock[row, kept[there]])

    @pytest.mark.slow
    @torch.no_grad()
    @pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "full"])
    @pytest.mark.parametrize("rows", ["an image, a clip, an image", "a batch"], indirect=True)
    def test_every_mode_generates(self, built: Tiny, rows: list[Row], mode: str) -> None:
        inputs = inputs_of(built, rows)
        model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
        result = model.generate(
            **inputs, mode=mode, max_new_tokens=3, do_sample=False, return_allocation=True
        )
        length = inputs["input_ids"].shape[1]
        assert torch.equal(result.sequences[:, :length], inputs["input_ids"])
        assert result.sequences.shape[1] == length + 3
        assert not result.fallback

    @torch.no_grad()
    def test_a_large_clip_has_a_coarse_one(self, built: Tiny) -> None:
        inputs = inputs_of(built, [("What?", [clip(1, 8, (128, 96))])])
        model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
        prepared = model.prepare(inputs, mode="saccade")
        assert prepared.cells == [4 * 12 * 16]
        assert prepared.allocations[0].grid == (4, 12, 16)
        assert prepared.read == [529]
        coarse = model.prepare(inputs, mode="compress")
        assert coarse.allocations[0].grid[0] == 4
        assert coarse.read[0] <= 256

    def test_times_are_no_part_of_the_question(self, built: Tiny) -> None:
        inputs = inputs_of(built, [("What is it?", [clip(1)])])
        adapter = adapter_for(built.model, built.processor)
        framed, _ = as_frames(adapter, inputs)
        words = framed["input_ids"][adapter.question_mask(framed["input_ids"], framed["attention_mask"])]
        assert built.processor.tokenizer.decode(words) == "Whatisit?"


# ---- clip times ------------------------------------------------------------------------------------------

QUESTION = "What is shown at 2 seconds?"


def timed(family: str, visuals: Any) -> tuple[ARRCOCModel, Any]:
    built = tiny(family)
    processor = copy.copy(built.processor)
    processor.chat_template = tiny_families.QWEN  # which also writes clips
    processor.video_processor = copy.copy(processor.video_processor)
    processor.video_processor.patch_size, processor.video_processor.merge_size = 4, 2
    processor.video_processor.temporal_patch_size, processor.video_processor.do_resize = 2, False
    model = ARRCOCModel.wrap(built.model, processor, budget=20, strict=True)
    return model, model.session(visuals)


def timed_clip(frames: int = 8) -> Any:
    """Two frames a second, one step a second."""
    return open_clip([picture(seed, (48, 48)) for seed in range(frames)], fps=2.0)


@pytest.mark.parametrize("family", QWEN_FAMILIES)
def test_times_begin_with_the_steps(family: str) -> None:
    model, session = timed(family, timed_clip())
    inputs = session.inputs(QUESTION)
    _, frames = as_frames(model.adapter, inputs)
    (times,) = clip_step_times(model.adapter, inputs, frames)
    if family == "qwen2_vl":
        assert times is None
    else:
        assert times == pytest.approx((0.0, 1.0, 2.0, 3.0), abs=0.06)


def steps_of(visual: Any) -> tuple[float, ...]:
    model, session = timed("qwen3_vl", visual)
    inputs = session.inputs(QUESTION)
    (times,) = clip_step_times(model.adapter, inputs, as_frames(model.adapter, inputs)[1])
    return times


def test_a_part_of_a_clip_has_the_seconds_of_the_whole() -> None:
    frames = [picture(seed, (48, 48)) for seed in range(40)]
    part = open_clip(frames, fps=2.0, rate=2.0, start=10.0, end=13.5)
    assert steps_of(part) == pytest.approx((10.0, 11.0, 12.0, 13.0), abs=0.35)
    moment = Moment(-2.0, 0.0).worth(steps_of(part), 4)  # its last two seconds
    assert moment is not None
    assert moment.argmax() == 2


def test_steps_that_are_not_evenly_apart_ascend(tmp_path: Path) -> None:
    times = [0.0, 10.0, 10.5, 10.6, 10.7, 10.8, 40.0, 41.0]
    first, *rest = [picture(seed, (48, 48)) for seed in range(len(times))]
    durations = [round(1000 * (after - time)) for time, after in pairwise([*times, 42.0])]
    first.save(tmp_path / "screen.gif", save_all=True, append_images=rest, duration=durations)
    begins = steps_of(open_clip(tmp_path / "screen.gif", fps=2.0))
    assert list(begins) == sorted(begins)
    assert begins[:3] == pytest.approx((0.0, 10.5, 10.7), abs=0.15)
    assert 11 < begins[3] < 40.5


def test_images_have_none_and_clips_their_own() -> None:
    model, session = timed("qwen3_vl", [picture(9, (48, 48)), timed_clip(4), timed_clip(6)])
    inputs = session.inputs(QUESTION)
    _, frames = as_frames(model.adapter, inputs)
    assert frames == (1, 2, 3)
    times = clip_step_times(model.adapter, inputs, frames)
    assert times[0] is None
    assert [len(own or ()) for own in times] == [0, 2, 3]


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_a_named_moment_has_most_of_what_is_kept(mode: str) -> None:
    _, session = timed("qwen3_vl", timed_clip())

    def kept(question: str) -> list[int]:
        allocation = session.ask(question, mode=mode, max_new_tokens=1).allocation
        return allocation.mask().flatten(1).sum(1).tolist()

    assert max(range(4), key=kept(QUESTION).__getitem__) == 2
    assert max(range(4), key=kept("What is shown in the end?").__getitem__) == 3
    assert max(range(4), key=kept("What is shown at the start?").__getitem__) == 0
