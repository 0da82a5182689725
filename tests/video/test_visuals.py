"""Visuals: what is a clip, and how its frames are sampled."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from arr_coc.video import VIDEO_SUFFIXES, open_clip, write_clip
from arr_coc.video.opening import is_clip, open_visual, open_visuals
from arr_coc_lab.data.clips import CLIP_SUFFIXES


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("av")
    frames = [Image.new("RGB", (64, 48), (10 * i, 100, 50)) for i in range(16)]
    return write_clip(frames, tmp_path_factory.mktemp("clips") / "a.MP4".lower(), 4)


def test_what_ends_as_videos_do_is_a_clip() -> None:
    assert all(is_clip(f"talk{suffix.upper()}") for suffix in VIDEO_SUFFIXES)
    assert not any(map(is_clip, ("page.png", "page.gif", "mp4", b"page.mp4", 4)))
    assert set(VIDEO_SUFFIXES) < set(CLIP_SUFFIXES)


def test_frames_per_second(video: Path) -> None:
    assert len(open_visual(video)) == 8  # two a second
    assert len(open_visual(video, 4.0)) == 16
    with pytest.raises(ValueError, match="fps 0 is out of range"):
        open_visual(video, 0)


def test_several_together(video: Path) -> None:
    image = Image.new("RGB", (8, 8))
    picture, clip = open_visuals([image, video], fps=1.0)
    assert isinstance(picture, Image.Image)
    assert len(clip) == 4


def test_frames_per_second_of_no_video_are_refused(video: Path) -> None:
    for sources in ([Image.new("RGB", (8, 8))], [open_clip(video)], []):
        with pytest.raises(ValueError, match="is of paths of videos"):
            open_visuals(sources, fps=1.0)
