"""Clips of every kind: the right frames at the right times, one at a time, or one line that says why not."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clip_files import SIZE, encode, gif, number_of, numbered, sound
from PIL import Image

from arr_coc.video import FrameSource, open_clip, write_clip
from each import each
from image_files import encoded, with_scans

pytest.importorskip("av")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 frames at 30 per second, two key frames in them."""
    return write_clip(numbered(500), tmp_path_factory.mktemp("video") / "a.mp4", fps=30)


def refused(source: Any, *words: str, **arguments: Any) -> str:
    with pytest.raises(ValueError, match=r"clip|frame|fps|start|end") as caught:
        list(open_clip(source, **arguments))
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message
    return message


def right(clip: FrameSource, slack: int = 3) -> None:
    frames = list(clip)
    assert len(frames) == len(clip) == len(clip.times) == len(clip.numbers)
    assert all(frame.mode == "RGB" and frame.size == clip.size for frame in frames)
    assert all(abs(number_of(f) - n) <= slack for f, n in zip(frames, clip.numbers, strict=True))
    assert list(clip.times) == sorted(set(clip.times))


class TestVideoFiles:
    @pytest.mark.slow
    def test_the_sampled_frames(self, video: Path) -> None:
        clip = open_clip(video)
        assert (clip.size, clip.rate, clip.total, len(clip)) == (SIZE, 30.0, 500, 33)
        assert clip.times == pytest.approx([n / 30 for n in clip.numbers])
        right(clip)
        right(clip)  # again, from the start
        right(open_clip(video, fps=30))
        right(open_clip(video, most=5))

    def test_a_part_of_it(self, video: Path) -> None:
        clip = open_clip(video, start=5, end=7)
        assert clip.times == pytest.approx([5, 5 + 2 / 3, 5 + 4 / 3, 7], abs=0.02)
        right(clip)
        assert open_clip(video, start=5, end=5).times == (5.0,)
        assert open_clip(video, start=5.01, end=5.02).times == (5.0,)
        assert open_clip(video, start=16.6, end=1e9).times[-1] == pytest.approx(499 / 30)

    @each(
        ("name", "codec"),
        [
            ("a.mkv", "libx264"),
            ("a.webm", "libvpx-vp9"),
            ("a.avi", "mpeg4"),
            ("a.ts", "libx264"),
            ("a.mov", "libx264"),
            ("a.flv", "libx264"),
            ("a.mpg", "mpeg2video"),
        ],
    )
    def test_containers(self, name: str, codec: str, tmp_path: Path) -> None:
        clip = open_clip(encode(tmp_path / name, codec))
        assert (clip.total, clip.rate) == (120, pytest.approx(25, rel=1e-3))
        right(clip)
        right(open_clip(tmp_path / name, start=3.0, fps=5))

    def test_short_and_odd(self, tmp_path: Path) -> None:
        one = open_clip(write_clip(numbered(1), tmp_path / "one.mp4", fps=24))
        assert (len(one), one.times, one.total) == (1, (0.0,), 1)
        right(one)
        odd = open_clip(write_clip(numbered(5, (33, 21)), tmp_path / "odd.mp4", fps=2.5))
        assert (odd.size, odd.rate, len(odd)) == ((34, 22), 2.5, 4)
        right(odd)

    def test_arrays(self, video: Path) -> None:
        arrays = list(open_clip(video, most=4).arrays())
        assert [a.shape for a in arrays] == [(48, 64, 3)] * 4
        assert {a.dtype for a in arrays} == {np.dtype(np.uint8)}

    def test_only_the_way_from_a_key_frame_is_decoded(self, tmp_path: Path) -> None:
        """A frame near the end of a long clip comes as quickly as the first."""
        path = encode(tmp_path / "a.mp4", "libx264", 700, g="30")
        clip = open_clip(path, start=27.0, end=27.0)
        reader = clip.read.__closure__[1].cell_contents  # type: ignore[index]
        costs = [reader._cost(numbers) for numbers in ((0,), clip.numbers, (0, 699), tuple(range(700)))]
        assert costs[0] == 1
        assert costs[1] <= 30
        assert costs[2] <= 32
        assert costs[3] == 700
        right(clip)


class TestRefusedFiles:
    def test_no_videos(self, video: Path, tmp_path: Path) -> None:
        texts = {
            "text.mp4": "hello world\n" * 300,
            "list.mp4": "#EXTM3U\n#EXT-X-VERSION:3\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n" * 9,
            "concat.mp4": f"ffconcat version 1.0\nfile {video}\n",
            "page.mp4": "<html><body>404</body></html>",
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
            refused(tmp_path / name, name, "no video that can be read")
        (tmp_path / "empty.mp4").write_bytes(b"")
        refused(tmp_path / "empty.mp4", "is empty (0 bytes)")
        refused(tmp_path / "gone.mp4", "does not exist")
        refused("https://example.org/a.mp4", "nothing is fetched")
        refused(sound(tmp_path / "sound.mp4"), "no pictures, only sound")
        refused("a\0b.mp4", "NUL")

    def test_cut_off(self, video: Path, tmp_path: Path) -> None:
        content = video.read_bytes()
        (tmp_path / "cut.mp4").write_bytes(content[: len(content) // 2])  # without its index
        refused(tmp_path / "cut.mp4", "cut off")
        at = content.index(b"mdat")
        assert content.index(b"moov") > at
        whole = encode(tmp_path / "fast.mp4", "libx264", 300)
        import av

        with (
            av.open(str(whole)) as source,
            av.open(str(tmp_path / "front.mp4"), "w", options={"movflags": "faststart"}) as target,
        ):
            stream = target.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    target.mux(packet)
        front = (tmp_path / "front.mp4").read_bytes()
        (tmp_path / "cut.mp4").write_bytes(front[: len(front) * 2 // 3])
        refused(tmp_path / "cut.mp4", "of 300 frames", "cut off")

    @pytest.mark.slow
    def test_damaged_files_are_read_or_refused(self, video: Path, tmp_path: Path) -> None:
        rng, content = random.Random(0), video.read_bytes()
        begin, results = time.monotonic(), set()
        for _ in range(30):
            bad = bytearray(content)
            for _ in range(rng.choice((1, 5, 50))):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            (tmp_path / "bad.mp4").write_bytes(bad[: rng.choice((len(bad), rng.randrange(1, len(bad))))])
            try:
                clip = open_clip(tmp_path / "bad.mp4")
                assert sum(1 for _ in clip) == len(clip)
                results.add("read")
            except ValueError as error:
                results.add("refused" if str(error).isprintable() else "refused in several lines")
        assert results == {"read", "refused"}
        assert time.monotonic() - begin < 30

    def test_absurd_sizes(self, video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from arr_coc.video import readers, source

        monkeypatch.setattr(source, "MAX_FRAME_PIXELS", 64 * 48 - 1)
        refused(video, "64x48 px", "scale it down")
        monkeypatch.undo()
        monkeypatch.setattr(source, "MAX_WORK", 64 * 48 * 100)
        refused(video, "to be decoded", fps=30)
        monkeypatch.undo()
        monkeypatch.setattr(readers, "MAX_TOTAL_FRAMES", 100)
        monkeypatch.setattr(source, "MAX_TOTAL_FRAMES", 100)
        refused(video, "more than 100 frames")
        monkeypatch.undo()
        bomb = Image.new("1", (7000, 7000))
        bomb.save(tmp_path / "bomb.png")
        refused(tmp_path / "bomb.png")

    def test_animations_that_cost_more_than_they_show(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from arr_coc.video import readers

        path = tmp_path / "a.gif"
        monkeypatch.setattr(readers, "MAX_ANIMATION_WORK", 2 * 12 * 40 * 30 - 1)
        refused(gif(path, [100] * 12), "24 frames of 40x30 px", "cut it")
        Image.new("1", (100_000, 1)).save(path, "PNG")  # which grows to 100,000 x 500
        refused(path, "at most 36 megapixels")
        refused([np.zeros((1, 100_000), np.uint8)], "at most 36 megapixels")
        path.write_bytes(with_scans(encoded(Image.new("RGB", (40, 30)), "JPEG", progressive=True), 100))
        refused(path, "JPEG of more than 64 scans")
        path.write_bytes(b"\x89PNG\r\n\x1a\nxxxxxxxx")
        refused(path, "cannot be opened (")

    def test_without_the_library(self, video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "av", None)
        refused(video, "pip install 'av>=15'")
        with pytest.raises(ValueError, match="av>=15"):
            write_clip(numbered(2), video, 2)

    @each(
        ("arguments", "words"),
        [
            ({"fps": 0}, "fps 0"),
            ({"fps": "2"}, "fps '2'"),
            ({"most": 0}, "most 0"),
            ({"start": -1}, "start -1"),
            ({"start": float("nan")}, "start nan"),
            ({"start": 3, "end": 2}, "lies before start"),
            ({"start": 99}, "behind the end"),
            ({"rate": 25.0}, "leave out rate"),
        ],
    )
    def test_arguments(self, video: Path, arguments: dict[str, Any], words: str) -> None:
        refused(video, words, **arguments)


class TestPictures:
    def test_animations(self, tmp_path: Path) -> None:
        clip = open_clip(gif(tmp_path / "a.gif", [500, 200, 300, 1000, 100, 400]), fps=10)
        assert clip.times == pytest.approx((0, 0.5, 0.7, 1.0, 2.0, 2.1))
        assert clip.rate == pytest.approx(6 / 2.5)
        right(clip)
        assert len(open_clip(tmp_path / "a.gif")) == 5
        for name in ("a.webp", "a.png"):
            right(open_clip(gif(tmp_path / name, [250] * 12), fps=2))

    def test_a_still_is_one_frame(self, tmp_path: Path) -> None:
        Image.new("RGB", (40, 30), "red").save(tmp_path / "a.jpg")
        clip = open_clip(tmp_path / "a.jpg")
        assert (len(clip), clip.times, clip.size) == (1, (0.0,), (40, 30))
        assert next(iter(clip)).getpixel((3, 3))[0] > 250

    @pytest.mark.parametrize("other", [(20, 15), (40, 30)])  # a map of its light, or what another eye sees
    def test_a_photo_with_another_picture_inside_is_one_frame(
        self, other: tuple[int, int], tmp_path: Path
    ) -> None:
        photo = Image.new("RGB", (40, 30), "red")
        photo.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[Image.new("RGB", other)])
        clip = open_clip(tmp_path / "a.jpg", fps=30)
        assert (clip.total, clip.times, clip.size) == (1, (0.0,), (40, 30))
        (frame,) = clip
        assert frame.getpixel((3, 3))[0] > 250

    def test_folders_in_the_order_of_numbers(self, tmp_path: Path) -> None:
        for number, frame in enumerate(numbered(12)):
            Image.fromarray(frame).save(tmp_path / f"frame_{number}.png")
        (tmp_path / "notes.txt").write_text("no frame")
        clip = open_clip(tmp_path, rate=3.0, fps=3)
        assert clip.times == pytest.approx([i / 3 for i in range(12)])
        right(clip, 0)
        assert len(open_clip(tmp_path)) == 12  # no rate: they are the sample
        assert len(open_clip(tmp_path, rate=3.0, fps=1)) == 4
        assert open_clip(tmp_path, rate=3.0, fps=1, start=2.0).numbers == (6, 8, 9, 11)

    @pytest.mark.parametrize("kind", ["images", "arrays", "tensor", "float", "array"])
    def test_pixels(self, kind: str) -> None:
        stack = np.stack(list(numbered(10)))
        source: Any = {
            "images": [Image.fromarray(f) for f in stack],
            "arrays": list(stack),
            "tensor": torch.from_numpy(stack).movedim(3, 1),
            "float": torch.from_numpy(stack).movedim(3, 1) / 255,
            "array": stack,
        }[kind]
        clip = open_clip(source, rate=5.0, fps=5)
        assert (clip.size, clip.total, len(clip)) == (SIZE, 10, 10)
        right(clip, 0)

    def test_refusals(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        refused(tmp_path / "empty", "holds no frames")
        refused([], "has no frames")
        refused(torch.zeros(3, 8, 8), "(3, 8, 8)")
        refused(torch.zeros(0, 3, 8, 8), "has no frames")
        refused(np.zeros((2, 8, 8)), "(2, 8, 8)")
        refused(b"abc", "is a bytes")
        refused(None, "is None")
        refused([Image.new("RGB", (8, 8)), Image.new("RGB", (9, 8))], "frame 1 is 9x8 px", "one size")
        refused([np.zeros((8, 8, 3), np.uint8), "gone.png"], "frame 1", "gone.png")
        path = gif(tmp_path / "a.gif", [100] * 6)
        path.write_bytes(path.read_bytes()[:-60])
        refused(path, "a.gif")


class Endless(Sequence[np.ndarray]):
    """2,000 frames, each drawn when it is asked for."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, number: Any) -> Any:
        return np.full((48, 64, 3), number % 256, dtype=np.uint8)


class TestMemory:
    def test_it_stays_flat_over_a_long_clip(self) -> None:
        """2,000 frames of 9 kB, 18 MB in all, of which a few live at a time."""
        clip = open_clip(Endless(), rate=30.0, fps=30.0, most=2000)
        assert len(clip) == 2000
        peaks = []
        tracemalloc.start()
        try:
            for number, frame in enumerate(clip.arrays()):
                assert frame[0, 0, 0] == number % 256
                if number % 500 == 499:
                    peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert peaks[-1] < peaks[0] + 100_000
        assert peaks[-1] < 2_000_000

    @pytest.mark.slow
    def test_a_video_is_never_whole_in_memory(self, tmp_path: Path) -> None:
        path = write_clip(numbered(600), tmp_path / "long.mp4", fps=30)
        living, most = [], 0
        import weakref

        tracemalloc.start()
        for image in open_clip(path, fps=30):
            living = [ref for ref in living if ref() is not None] + [weakref.ref(image)]
            most = max(most, len(living))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most <= 3
        assert peak < 2_000_000


class TestWriting:
    def test_what_is_read_back_is_near(self, tmp_path: Path) -> None:
        page = Image.linear_gradient("L").resize((64, 48)).convert("RGB")
        (frame,) = open_clip(write_clip([page], tmp_path / "a.mp4", 1, quality=1))
        assert np.abs(np.asarray(frame).astype(int) - np.asarray(page)).mean() < 3

    @each("fps", [1 / 43_200, 1 / 3600, 0.0006, 0.1, 29.97, 30_000 / 1001, 1000])
    def test_any_rate_is_kept(self, fps: float, tmp_path: Path) -> None:
        clip = open_clip(write_clip(numbered(6), tmp_path / "a.mp4", fps), fps=fps)
        assert (clip.total, clip.rate) == (6, pytest.approx(fps, rel=1e-6))

    def test_the_longest_name(self, tmp_path: Path) -> None:
        path = tmp_path / f"{'a' * 250}.mp4"
        right(open_clip(write_clip(numbered(2), path, 2)))
        assert list(tmp_path.iterdir()) == [path]

    def test_refusals_leave_no_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a.mp4"
        for frames, words in (
            ([], "no frames"),
            ([np.zeros((8, 8, 3), np.uint8), np.zeros((9, 8, 3), np.uint8)], "frame 1 is 8x9 px"),
        ):
            with pytest.raises(ValueError, match=words):
                write_clip(frames, path, 2)
        for arguments, words in (
            ((path, 0), "fps 0"),
            ((path, 1e-6), "fps 1e-06"),
            ((path, 9e9), "fps"),
            ((path, 2, 99), "quality 99"),
            ((path, 2, "18"), "quality '18'"),
        ):
            with pytest.raises(ValueError, match=words):
                write_clip(numbered(2), *arguments)
        with pytest.raises(ValueError, match=r"written as \.mp4"):
            write_clip(numbered(2), tmp_path / "a.avi", 2)
        with pytest.raises(ValueError, match="cannot be written"):
            write_clip(numbered(2), tmp_path / "nowhere/a.mp4", 2)
        assert list(tmp_path.iterdir()) == []
        path.write_bytes(b"")
        with pytest.raises(ValueError, match="cannot be written"):
            write_clip(numbered(2), path / "a.mp4", 2)
