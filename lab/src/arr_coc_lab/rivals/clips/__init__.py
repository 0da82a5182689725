"""Rivals for video: published rules that select visual tokens of a clip, one file per method, and nulls.

rule(tensors of one clip, budget) -> Bool [T, N], exactly min(budget, T * N) cells
"""

from __future__ import annotations

from arr_coc_lab.rivals.clips.aks import aks
from arr_coc_lab.rivals.clips.coarse_frames import READABLE, CoarseFrames
from arr_coc_lab.rivals.clips.evs import evs
from arr_coc_lab.rivals.clips.flashvid import flashvid
from arr_coc_lab.rivals.clips.method import (
    CLIP_METHODS,
    ClipMethod,
    ClipView,
    find_clip_method,
    register_clip_method,
)
from arr_coc_lab.rivals.clips.nulls import fewer_pixels, random_cells, random_per_frame, uniform_frames
from arr_coc_lab.rivals.clips.vcast import vcast
from arr_coc_lab.rivals.clips.vidcom2 import vidcom2

__all__ = [
    "CLIP_METHODS", "ClipMethod", "ClipView", "register_clip_method", "find_clip_method",
    "evs", "vidcom2", "vcast", "flashvid", "aks",
    "uniform_frames", "fewer_pixels", "random_cells", "random_per_frame", "CoarseFrames", "READABLE",
]  # fmt: skip
