"""Drawn clips: short films made from a seed, with questions, answers and evidence by frame.

    clip = draw_clip(seed=7, size=(448, 448), seconds=8, fps=4, split="test")
    clip.frames[0], clip.times, clip.questions[0].text, clip.questions[0].answer, clip.questions[0].evidence

A clip combines *stories*, a file each in `stories`: things that move, a counter, captions, noise, ... A frame
is drawn when it is asked for.
"""

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.clips import stories
from arr_coc_lab.world.clips.clip import Clip, draw_clip
from arr_coc_lab.world.clips.stage import STORIES, Act, ClipQuestion, Span, Stage, Story, register

__all__ = [
    "STORIES", "Act", "Clip", "ClipQuestion", "Evidence", "Span", "Stage", "Story",
    "draw_clip", "register", "stories",
]  # fmt: skip
