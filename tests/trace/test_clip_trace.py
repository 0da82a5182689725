"""Traces of clips: their laws, their file, their view."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from arr_coc.choose.allocation import TENSIONS
from arr_coc.trace import strip as strips
from arr_coc.trace.evidence import Guidance, Spot
from arr_coc.trace.strip import Strip, small_pictures
from arr_coc.trace.trace import MAX_HEADER, FullAnswer, QuestionWord, Trace
from clip_models import clip_strip, clip_trace, frame, image_strip, record
from each import each

OLD = Path(__file__).parents[1] / "saved" / "traces"


def webp(size: tuple[int, int], **more: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, "webp", **more)
    return file.getvalue()


def guided() -> Strip:
    spots = (Spot("red", "crimson", 0.9, (0.25, 0.5), torch.zeros(0)),)
    return dataclasses.replace(clip_strip(), guidance=Guidance(0.7, 0.1, 0.0, spots))


class TestLaw:
    @each(
        ("changes", "message"),
        [
            ({"spans": ()}, "an image has one step"),
            ({"spans": ((0.0, 1.0),) * 2}, "6 pictures and 2 times, not 6 steps"),
            ({"spans": ((1.0, 0.0),) * 6}, "do not rise"),
            ({"spans": ((float("nan"), 1.0),) * 6}, "first and last second"),
            ({"spans": ((0.0, float("inf")),) * 6}, "first and last second"),
            ({"spans": ((0.0,),) * 6}, "first and last second"),
            ({"cuts": (3, 0)}, "not rising steps from 0 to 5"),
            ({"cuts": (6,)}, "not rising steps"),
            ({"side": (0, 48)}, "not a width and a height"),
            ({"pictures": (webp((64, 48)),) * 5}, "5 pictures and 6 times"),
            ({"pictures": (webp((60, 48)),) * 6}, "not one multiple of 8x6"),
            ({"pictures": (*(webp((64, 48)),) * 5, webp((32, 24)))}, "not one multiple"),
            ({"pictures": (b"no picture",) * 6}, "no WebP file and no PNG file"),
            ({"allocation": record((5, 6, 8), 9)}, "not 5 steps"),
            ({"guidance": Guidance(1.5, 0.0, 0.0)}, "what the guide says"),
        ],
    )
    def test_a_strip(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(clip_strip(), **changes)

    @each(
        ("changes", "message"),
        [
            ({"strips": ()}, "needs an image or a clip"),
            ({"kept": 29}, "do not fit allocations of 30"),
            ({"total": 29}, "do not fit"),
            ({"read": 29}, "do not fit"),
            ({"ms": {"total": -1.0}}, "must not be below 0"),
            ({"full": FullAnswer("yes", {"total": float("nan")})}, "must not be below 0"),
            ({"budget": float("nan")}, "JSON"),
            ({"words": (QuestionWord("When is the disc red?"),)}, "are of one image"),
            ({"probes": {"mine": 1}}, "are of one image"),
        ],
    )
    def test_a_trace(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(clip_trace(), **changes)

    def test_what_it_says_of_the_answer(self) -> None:
        trace = clip_trace(true_answers=("At  the start",))
        assert (trace.agree, trace.is_true, trace.has_clips) == (True, True, True)
        assert clip_trace(image_strip()).has_clips is False
        assert clip_trace(full=None).agree is None
        assert sum(trace.strips[0].budgets) == trace.kept


class TestPictures:
    def test_they_are_within_the_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
        frames = [Image.fromarray(noise)] * 8
        monkeypatch.setattr(strips, "MAX_SMALL_PIXELS", 80_000)
        (made,) = small_pictures([(frames, (640, 480), (8, 6, 8))])
        assert Strip(made, record((8, 6, 8), 9), (640, 480), ((0.0, 0.0),) * 8).size == (320, 240)
        monkeypatch.setattr(strips, "MAX_STRIP_PIXELS", 8 * 20_000)
        assert strips._size(small_pictures([(frames, (640, 480), (8, 6, 8))])[0][0]) == (160, 120)
        monkeypatch.setattr(strips, "MAX_BYTES", 16_000)
        (made,) = small_pictures([(frames, (640, 480), (8, 6, 8))])
        assert sum(map(len, made)) <= 16_000
        monkeypatch.setattr(strips, "MAX_BYTES", 100)
        with pytest.raises(ValueError, match="too many to draw: sample fewer frames"):
            small_pictures([(frames, (640, 480), (8, 6, 8))])

    def test_small_ones_stay(self) -> None:
        strip = clip_strip()
        gap = np.asarray(strip.picture(2), float) - np.asarray(frame(4), float)
        assert strip.size == (64, 48)
        assert np.abs(gap).mean() < 6

    def test_too_many_steps(self) -> None:
        with pytest.raises(ValueError, match=r"at most 4,096 steps.*sample fewer frames"):
            small_pictures([([], (8, 8), (5000, 2, 2))])


class TestFile:
    @pytest.mark.parametrize("kind", ["clip", "both", "guided", "one step", "bare"])
    def test_what_is_saved_is_what_is_loaded(self, tmp_path: Path, kind: str) -> None:
        trace = {
            "clip": clip_trace,
            "both": lambda: clip_trace(image_strip(), clip_strip(), clip_strip(2, 5)),
            "guided": lambda: clip_trace(guided()),
            "one step": lambda: clip_trace(clip_strip(1, 5)),
            "bare": lambda: clip_trace(
                full=None, note="\0 </script> 好", fallback=True, again={"total": 1.0}
            ),
        }[kind]()
        trace.save(tmp_path / "a.safetensors")
        loaded = Trace.load(tmp_path / "a.safetensors")
        assert loaded.view() == trace.view()
        assert [strip.pictures for strip in loaded.strips] == [strip.pictures for strip in trace.strips]
        for one, other in zip(loaded.strips, trace.strips, strict=True):
            assert one.allocation.to_dict() == other.allocation.to_dict()
            assert (one.spans, one.cuts, one.side) == (other.spans, other.cuts, other.side)

    def test_files_of_the_formats_before(self, tmp_path: Path) -> None:
        """Of one image and of clips, which had a format each until November 2026."""
        image, clips = Trace.load(OLD / "still-1.safetensors"), Trace.load(OLD / "clips-1.safetensors")
        tensors = load_file(OLD / "still-1.safetensors")
        assert np.array_equal(np.asarray(image.picture), tensors["picture"].numpy())
        assert torch.equal(image.allocation.balanced, tensors["balanced"])
        assert torch.equal(image.texture, tensors["texture"])
        assert [w.text for w in image.words if w.heat is not None] == ["Is", "red"]
        assert image.guidance is not None
        assert torch.equal(image.guidance.spots[0].heat, tensors["spots"][0])
        assert (image.full, image.evidence[1]) == (
            FullAnswer("yes ", {"total": 7.0}, {"total": 5.0}),
            (20.0, 0.0, 24.0, 4.0),
        )
        made = clip_strip(3, 20)
        assert [strip.is_clip for strip in clips.strips] == [True, False]
        assert clips.strips[0].allocation.to_dict() == made.allocation.to_dict()
        assert clips.strips[0].guidance is not None
        assert clips.strips[0].guidance.spots[0].label == "red → crimson"
        for trace in (image, clips):
            trace.save(tmp_path / "a")
            assert Trace.load(tmp_path / "a").view() == trace.view()

    @each(
        "tensors",
        [
            {"picture": torch.zeros(24, 33, 3, dtype=torch.uint8)},
            {"picture": torch.zeros(24, 32, 4, dtype=torch.uint8)},
            {"picture": torch.zeros(0, 0, 3, dtype=torch.uint8)},
            {"picture": torch.zeros(24, 32, 3)},
            {"keep": torch.zeros(5)},
            {"more": torch.zeros(1)},
        ],
    )
    def test_hostile_files_of_the_format_before(
        self, tmp_path: Path, tensors: dict[str, torch.Tensor]
    ) -> None:
        with safe_open(OLD / "still-1.safetensors", "pt") as file:
            about = file.metadata()
        save_file(load_file(OLD / "still-1.safetensors") | tensors, tmp_path / "a", about)
        self.refused(tmp_path / "a")

    @each(
        "data",
        [
            b"",
            b"junk",
            b"\xff" * 64,
            (MAX_HEADER + 9).to_bytes(8, "little") + b"{}",
            b"\2\0\0\0\0\0\0\0[]",
            b"\xa0\x86\1\0\0\0\0\0" + b"[" * 100_000,
        ],
    )
    def test_files_that_are_no_trace(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "a").write_bytes(data)
        for path in (tmp_path / "a", tmp_path, tmp_path / "none"):
            self.refused(path)

    @each(
        "strip",
        [
            {"lengths": []},
            {"lengths": [1] * 6},
            {"lengths": [-1, 1]},
            {"lengths": "many"},
            {"spans": [[0.0, 1.0]] * 5},
            {"spans": [[0.0]] * 6},
            {"spans": [["a", "b"]] * 6},
            {"cuts": [0, 9]},
            {"cuts": [True]},
            {"side": [64]},
            {"side": [64, -48]},
            {"allocation": {"tensions": {}, "budget": 1, "void": False}},
            {"allocation": {"tensions": dict.fromkeys(TENSIONS, "a"), "budget": 1, "void": False}},
            {"allocation": None},
            {"guidance": {"confidence": 0.5, "whole": 0.1, "odd": 0.1, "spots": [{"word": "a"}]}},
            {"more": 1},
        ],
    )
    def test_hostile_fields(self, tmp_path: Path, strip: dict[str, Any]) -> None:
        plain = clip_trace()._plain()
        plain["strips"] = [plain["strips"][0] | strip]
        self.rewrite(tmp_path / "a", plain)
        self.refused(tmp_path / "a")

    @each("change", [{"strips": []}, {"strips": [1]}, {"kept": "5"}, {"more": 1}, {"ms": []}])
    def test_other_hostile_fields(self, tmp_path: Path, change: dict[str, Any]) -> None:
        self.rewrite(tmp_path / "a", clip_trace()._plain() | change)
        self.refused(tmp_path / "a")

    @each(
        "tensors",
        [
            {"0.pictures": torch.zeros(0, dtype=torch.uint8)},
            {"0.pictures": torch.zeros(5, 5, dtype=torch.uint8)},
            {"0.pictures": torch.zeros(9)},
            {"0.balanced": torch.full((6, 6, 8), 2.0)},
            {"0.information": torch.zeros(6, 48)},
            {"0.information": torch.zeros(6, 6, 7)},
            {"0.keep": torch.arange(30) + 999},
            {"0.reasons": torch.full((30,), 9)},
            {"1.keep": torch.arange(30)},
            {"more": torch.zeros(1)},
        ],
    )
    def test_hostile_tensors(self, tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
        self.rewrite(tmp_path / "a", clip_trace()._plain(), tensors)
        self.refused(tmp_path / "a")

    @each("what", ["junk", "cut off", "animation", "large", "gif", "moving"])
    def test_hostile_pictures(self, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        more = {"save_all": True, "append_images": [Image.new("RGB", (64, 48), "blue")]}
        gif, moving = io.BytesIO(), io.BytesIO()
        Image.new("RGB", (64, 48)).save(gif, "gif")
        Image.new("RGB", (64, 48)).save(moving, "png", **more)
        picture = {
            "junk": b"RIFF" + bytes(60),
            "cut off": clip_strip().pictures[0][:-40],
            "animation": webp((64, 48), **more),
            "large": webp((1024, 768)),
            "gif": gif.getvalue(),
            "moving": moving.getvalue(),
        }[what]
        plain, pictures = clip_trace()._plain(), [*clip_strip().pictures[:5], picture]
        plain["strips"][0]["lengths"] = list(map(len, pictures))
        data = torch.frombuffer(bytearray(b"".join(pictures)), dtype=torch.uint8)
        self.rewrite(tmp_path / "a", plain, {"0.pictures": data})
        self.refused(tmp_path / "a")

    def test_more_than_a_trace_holds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clip_trace().save(tmp_path / "a")
        for name, most in (("MAX_STEPS", 5), ("MAX_BYTES", 1000), ("MAX_STRIP_PIXELS", 6 * 64 * 48 - 1)):
            with monkeypatch.context() as patch:
                patch.setattr(strips, name, most)
                self.refused(tmp_path / "a")
        Trace.load(tmp_path / "a")

    def test_damaged_files_are_refused_or_whole(self, tmp_path: Path) -> None:
        """Nothing but a ValueError of one line comes of a file with a byte changed, or cut off."""
        clip_trace(clip_strip(2, 9), image_strip()).save(tmp_path / "a")
        whole, draw, refusals = (tmp_path / "a").read_bytes(), random.Random(0), []
        for _ in range(120):
            data = bytearray(whole)
            data[draw.randrange(len(data))] = draw.randrange(256)
            data = data[: draw.choice((len(data), len(data), draw.randrange(len(data))))]
            (tmp_path / "b").write_bytes(data)
            try:
                Trace.load(tmp_path / "b").view()
            except ValueError as error:
                refusals.append(str(error))
        assert len(refusals) > 40
        assert "\n" not in "".join(refusals)

    @staticmethod
    def refused(path: Path) -> None:
        with pytest.raises(ValueError, match="is not a saved trace") as caught:
            Trace.load(path)
        assert "\n" not in str(caught.value)

    @staticmethod
    def rewrite(path: Path, plain: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> None:
        clip_trace().save(path)
        with safe_open(path, "pt") as file:
            about = file.metadata() | {"plain": json.dumps(plain)}
        save_file(load_file(path) | (tensors or {}), path, about)


class TestView:
    def test_everything_that_is_drawn(self) -> None:
        trace = clip_trace(guided(), image_strip())
        view = json.loads(json.dumps(trace.view(), allow_nan=False))
        clip, image = view["strips"]
        assert (view["format"], view["kept"], view["agree"]) == ("arr-coc view 2", 42, True)
        assert (clip["grid"], clip["spans"][5], clip["cuts"]) == ([6, 6, 8], [5.0, 5.5], [0, 3])
        assert (image["grid"], image["spans"], image["cuts"]) == ([1, 6, 8], [], [])
        assert (clip["width"], clip["height"], clip["side"]) == (64, 48, [64, 48])
        assert clip["guidance"]["about"] == "70%: the clip probably holds what is asked for."
        kept = trace.strips[0].allocation
        assert (clip["keep"], clip["order"]) == (kept.keep.tolist(), kept.order.tolist())
        data = next(layer["data"] for layer in clip["layers"] if layer["id"] == "balanced")
        assert np.array_equal(np.frombuffer(base64.b64decode(data), "<f4"), kept.balanced.flatten().numpy())
        head, data = clip["images"][4].split(",")
        assert head == "data:image/webp;base64"
        assert base64.b64decode(data) == trace.strips[0].pictures[4]
        assert {"strips", "palette", "reason_names", "weights", "tensions"} <= set(view)
        assert "palette" not in clip
