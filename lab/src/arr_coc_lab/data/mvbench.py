"""Reader of MVBench: twenty tasks on temporal understanding of clips (Li et al. 2024, arXiv 2311.17005).

json/action_sequence.json             [{video, question, candidates, answer, start, end}], a file per task
video/star/Charades_v1_480/ZS9XR.mp4  the videos of a task in its folder, see `TASKS`

`answer` is the text of a candidate; `start` and `end` (seconds) are read in tasks about a part of the clip.
The published figure is the mean of the tasks' accuracies (`metrics.mean_by_class` with `meta["task"]`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from arr_coc.data.record import Example, Fields, Number, Text, find_file, read_json, records, take
from arr_coc.files.validation import short
from arr_coc_lab.data.clips import LETTERS, choice_answers, find_clip, with_options

# task -> folders below `video` with its clips
TASKS: dict[str, tuple[str, ...]] = {
    "action_sequence": ("star/Charades_v1_480",),
    "action_prediction": ("star/Charades_v1_480",),
    "action_antonym": ("ssv2_video",),
    "fine_grained_action": ("Moments_in_Time_Raw/videos",),
    "unexpected_action": ("FunQA_test/test",),
    "object_existence": ("clevrer/video_validation",),
    "object_interaction": ("star/Charades_v1_480",),
    "object_shuffle": ("perception/videos",),
    "moving_direction": ("clevrer/video_validation",),
    "action_localization": ("sta/sta_video",),
    "scene_transition": ("scene_qa/video",),
    "action_count": ("perception/videos",),
    "moving_count": ("clevrer/video_validation",),
    "moving_attribute": ("clevrer/video_validation",),
    "state_change": ("perception/videos",),
    "fine_grained_pose": ("nturgbd", "nturgbd_convert"),
    "character_order": ("perception/videos",),
    "egocentric_navigation": ("vlnqa",),
    "episodic_reasoning": ("tvqa/frames_fps3_hq",),
    "counterfactual_inference": ("clevrer/video_validation",),
}
# tasks whose clips are folders of frames -> frames per second
FRAMES: dict[str, float] = {"episodic_reasoning": 3.0}
# tasks about the seconds from `start` to `end`
BOUNDED = (
    "action_sequence", "action_prediction", "object_interaction", "action_localization", "episodic_reasoning",
)  # fmt: skip


class _Question(Fields):
    video: Text
    question: Text
    candidates: Annotated[list[Text], Field(min_length=2, max_length=len(LETTERS))]
    answer: Text


class _BoundedQuestion(_Question):
    start: Number
    end: Number


def read_mvbench(folder: Path, split: str = "all", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of one task, or of all tasks whose files are in `folder/json`.

    `split` is "all", "test" (the same) or a task; a small `limit` reads the first tasks alone. ValueError for
    an unknown task, or a missing file, clip or field.
    """
    if split not in ("all", "test", *TASKS):
        raise ValueError(f"MVBench has no task {split!r}: use all, or one of {', '.join(TASKS)}")
    layout = "put json/action_sequence.json, ... and video/star/..., ... into one folder"
    if split in TASKS:
        return take(_task(folder, split, find_file(folder, _places(split), layout)), limit)
    if not any((folder / place).is_file() for task in TASKS for place in _places(task)):
        find_file(folder, _places("action_sequence"), layout)  # raises, naming the missing file
    present = [task for task in TASKS if any((folder / place).is_file() for place in _places(task))]
    tasks = [_task(folder, task, find_file(folder, _places(task), layout)) for task in present]
    return take(chain.from_iterable(tasks), limit)


def _places(task: str) -> tuple[str, str]:
    return f"json/{task}.json", f"{task}.json"


def _task(folder: Path, task: str, path: Path) -> Iterator[Example]:
    rows = enumerate(records(path, read_json(path)))
    return (_example(folder, task, number, record, where) for number, (where, record) in rows)


def _example(folder: Path, task: str, number: int, record: dict[str, Any], where: str) -> Example:
    bounded = task in BOUNDED
    question = (_BoundedQuestion if bounded else _Question).of(record, where)
    if question.answer not in question.candidates:
        raise ValueError(f"{where}: answer {short(question.answer)} is none of the candidates: correct it")
    span = None
    if isinstance(question, _BoundedQuestion):
        span = (question.start, question.end)
        if not 0 <= span[0] <= span[1]:
            raise ValueError(
                f"{where}: seconds {span[0]:g} to {span[1]:g} are no part of a clip: correct them"
            )
    places = [f"{base}{inner}" for base in ("video/", "") for inner in TASKS[task]]
    meta = {"task": task} | ({"rate": f"{FRAMES[task]:g}"} if task in FRAMES else {})
    return Example(
        id=f"{task}-{number}",  # the files have none
        image=find_clip(folder, question.video, where, places),
        question=with_options(question.question, question.candidates),
        answers=choice_answers(question.candidates, question.candidates.index(question.answer), where),
        meta=meta,
        where=where,
        span=span,
    )
