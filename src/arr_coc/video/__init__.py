"""Clips from disk or memory as a few frames, read one at a time.

clip = open_clip("talk.mp4", fps=2.0)           len(clip), clip.times (seconds), clip.size (px)
for image in clip: ...                          RGB PIL images, each decoded when it is asked for
write_clip(frames, "out.mp4", fps=8)
"""

from arr_coc.video.opening import VIDEO_SUFFIXES, ClipSource, open_clip
from arr_coc.video.readers import write_clip
from arr_coc.video.source import MAX_FRAMES, MIN_FRAMES, FrameSource, sample_frames, step_times

__all__ = [
    "MIN_FRAMES", "MAX_FRAMES", "VIDEO_SUFFIXES", "ClipSource", "FrameSource",
    "open_clip", "sample_frames", "step_times", "write_clip",
]  # fmt: skip
