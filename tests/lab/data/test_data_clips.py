"""Data sets of clips: small files in the official formats, read back; every refusal names file and place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arr_coc.data import data_sets, open_data
from arr_coc_lab.data.metrics import choice_accuracy, mean_by_class
from each import each

VIDEO_MME = {
    "video_id": "001",
    "duration": "short",
    "domain": "Knowledge",
    "sub_category": "Humanity & History",
    "url": "https://www.youtube.com/watch?v=fFjv93ACGo8",
    "videoID": "fFjv93ACGo8",
    "question_id": "001-1",
    "task_type": "Counting Problem",
    "question": "How many lamps are on the tree?",
    "options": ["A. One.", "B. Two.", "C. Three.", "D. None."],
    "answer": "C",
}
LONG = {
    "video_id": "86CxyhFV9MI",
    "question": "Which subtitles appear while the man in black speaks?",
    "question_wo_referring_query": "Which subtitles appear?",
    "candidates": ["promising", "coming", "and this is it"],
    "correct_choice": 1,
    "position": [854, 1132],
    "topic_category": "NP-News-Programs",
    "question_category": "TOS",
    "level": "L2-Relation",
    "id": "86CxyhFV9MI_0",
    "video_path": "86CxyhFV9MI.mp4",
    "subtitle_path": "86CxyhFV9MI_en.json",
    "duration_group": 600,
    "starting_timestamp_for_subtitles": 0,
    "duration": 190.16,
    "view_count": 259852,
}
SEQUENCE = {
    "video": "ZS9XR.mp4",
    "question": "What happened after the person took the food?",
    "candidates": ["Ate the medicine.", "Tidied up the blanket.", "Put down the cup."],
    "answer": "Tidied up the blanket.",
    "start": 11.1,
    "end": 21.2,
}
COUNT = {"video": "video_1.mp4", "question": "How many?", "candidates": ["3", "4"], "answer": "3"}


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"a video")


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def videomme(folder: Path, *rows: dict[str, Any]) -> None:
    touch(folder / "data/fFjv93ACGo8.mp4")
    folder.joinpath("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows or [VIDEO_MME]))


def mvbench(folder: Path) -> None:
    write(folder / "json/action_sequence.json", [SEQUENCE, SEQUENCE])
    write(folder / "json/moving_count.json", [COUNT])
    frames = COUNT | {"video": "castle_s04e03_seg02", "start": 0, "end": 90.5}
    write(folder / "json/episodic_reasoning.json", [frames])
    touch(folder / "video/star/Charades_v1_480/ZS9XR.mp4")
    touch(folder / "video/clevrer/video_validation/video_1.mp4")
    touch(folder / "video/tvqa/frames_fps3_hq/castle_s04e03_seg02/00001.jpg")


def longvideobench(folder: Path, *rows: dict[str, Any]) -> None:
    touch(folder / "videos/86CxyhFV9MI.mp4")
    write(folder / "lvb_val.json", list(rows or [LONG]))


class TestVideoMME:
    def test_the_published_rows(self, tmp_path: Path) -> None:
        videomme(tmp_path)
        data, examples = open_data(f"videomme:{tmp_path}")
        (example,) = examples
        assert example.id == "001-1"
        assert example.image == tmp_path / "data/fFjv93ACGo8.mp4"
        assert example.question == "How many lamps are on the tree?\nA. One.\nB. Two.\nC. Three.\nD. None."
        assert example.answers == ("C", "Three.")
        assert example.meta["duration"] == "short"
        assert example.meta["task_type"] == "Counting Problem"
        assert example.span is None
        assert data.clips
        assert data.metric is choice_accuracy
        assert "option's letter" in data.prompt

    def test_the_form_of_the_official_program(self, tmp_path: Path) -> None:
        keys = ("question_id", "question", "options", "answer", "task_type")
        asked = {key: VIDEO_MME[key] for key in keys}
        video = {k: v for k, v in VIDEO_MME.items() if k not in asked and k != "videoID"}
        second = asked | {"question_id": "001-2", "answer": "(A)"}
        write(tmp_path / "videomme.json", [video | {"questions": [asked, second]}])
        touch(tmp_path / "video/fFjv93ACGo8.mkv")
        first, other = open_data(f"videomme:{tmp_path}")[1]
        assert first.image == other.image == tmp_path / "video/fFjv93ACGo8.mkv"
        assert other.answers == ("A", "One.")
        assert other.where.endswith("record 1, question 2")
        assert other.meta["duration"] == "short"

    @each(
        ("change", "words"),
        [
            ({"answer": "E"}, "no letter up to D"),
            ({"options": ["A. one"]}, "'options'"),
            ({"options": "A. one"}, "'options'"),
            ({"question": ""}, "'question'"),
            ({"videoID": "../../etc/passwd"}, "no name of a file"),
            ({"videoID": "gone"}, "clip 'gone' is not in"),
            ({"videoID": "", "url": "", "video_id": None}, "no field 'videoID'"),
        ],
    )
    def test_refusals(self, tmp_path: Path, change: dict[str, Any], words: str) -> None:
        videomme(tmp_path, VIDEO_MME | change)
        with pytest.raises(ValueError, match=r"test\.jsonl, line 1") as error:
            list(open_data(f"videomme:{tmp_path}")[1])
        assert words in str(error.value)
        assert str(error.value).isprintable()


class TestMVBench:
    def test_tasks(self, tmp_path: Path) -> None:
        mvbench(tmp_path)
        examples = list(open_data(f"mvbench:{tmp_path}")[1])
        assert [example.meta["task"] for example in examples] == [
            "action_sequence",
            "action_sequence",
            "moving_count",
            "episodic_reasoning",
        ]
        assert examples[0].answers == ("B", "Tidied up the blanket.")
        assert examples[0].span == (11.1, 21.2)
        assert examples[2].span is None
        assert examples[3].image.is_dir()
        assert examples[3].meta["rate"] == "3"
        assert len({example.id for example in examples}) == 4

    def test_one_task_and_limits(self, tmp_path: Path) -> None:
        mvbench(tmp_path)
        assert [e.id for e in open_data(f"mvbench:{tmp_path}", "moving_count")[1]] == ["moving_count-0"]
        assert len(list(open_data(f"mvbench:{tmp_path}", limit=3)[1])) == 3
        with pytest.raises(ValueError, match="no task 'dance'"):
            open_data(f"mvbench:{tmp_path}", "dance")

    @each(
        ("change", "words"),
        [
            ({"answer": "another"}, "none of the candidates"),
            ({"start": None}, "'start'"),
            ({"start": 9, "end": 2}, "no part of a clip"),
            ({"video": "gone.mp4"}, "is not in"),
        ],
    )
    def test_refusals(self, tmp_path: Path, change: dict[str, Any], words: str) -> None:
        mvbench(tmp_path)
        write(tmp_path / "json/action_sequence.json", [SEQUENCE | change])
        with pytest.raises(ValueError, match=r"action_sequence\.json, record 1") as error:
            list(open_data(f"mvbench:{tmp_path}")[1])
        assert words in str(error.value)


class TestLongVideoBench:
    def test_questions(self, tmp_path: Path) -> None:
        columns = {f"option{i}": text for i, text in enumerate([*LONG["candidates"], "N/A", "N/A"])}
        row = {k: v for k, v in LONG.items() if k != "candidates"} | columns | {"id": "x_1"}
        longvideobench(tmp_path, LONG, row)
        first, second = open_data(f"longvideobench:{tmp_path}")[1]
        assert first.answers == second.answers == ("B", "coming")
        assert first.question == second.question
        assert first.image == tmp_path / "videos/86CxyhFV9MI.mp4"
        assert first.meta["duration_group"] == "600"
        assert first.meta["subtitle_path"] == "86CxyhFV9MI_en.json"

    def test_the_test_split_has_no_answers(self, tmp_path: Path) -> None:
        longvideobench(tmp_path)
        hidden = {k: v for k, v in LONG.items() if k != "correct_choice"}
        write(tmp_path / "lvb_test_wo_gt.json", [hidden])
        (example,) = open_data(f"longvideobench:{tmp_path}", "test")[1]
        assert example.answers == ()
        with pytest.raises(ValueError, match="no split 'train'"):
            open_data(f"longvideobench:{tmp_path}", "train")

    @each(
        ("change", "words"),
        [
            ({"correct_choice": 3}, "option 3 is none of 3"),
            ({"correct_choice": -1}, "'correct_choice'"),
            ({"correct_choice": True}, "'correct_choice'"),
            ({"candidates": []}, "'candidates'"),
            ({"candidates": ["x"] * 9}, "'candidates'"),
        ],
    )
    def test_refusals(self, tmp_path: Path, change: dict[str, Any], words: str) -> None:
        longvideobench(tmp_path, LONG | change)
        with pytest.raises(ValueError, match=r"lvb_val\.json, record 1") as error:
            list(open_data(f"longvideobench:{tmp_path}")[1])
        assert words in str(error.value)


class TestMetrics:
    @each(
        "reply",
        ["B", "b", "(B)",
         "B.", "B) a dog", "B. a dog", "**B**", "The answer is B.", "Answer: (B)", "The best "
         "option is B", "The correct choice is: B", "a dog", "A dog.", "dog", " B \n", "(B) a dog"],
    )  # fmt: skip
    def test_right_choices(self, reply: str) -> None:
        assert choice_accuracy(reply, ("B", "A dog.")) == 1

    @each(
        "reply",
        ["A", "C. a dog", "", "A man walks", "The answer is a dog B", "no dog", "Because", "BB", "D)"],
    )
    def test_wrong_choices(self, reply: str) -> None:
        assert choice_accuracy(reply, ("B", "A dog.")) == 0

    def test_refused_truths(self) -> None:
        with pytest.raises(ValueError, match="no truths"):
            choice_accuracy("B", ())

    def test_means_by_class(self) -> None:
        assert mean_by_class([1, 0, 1], ["short", "long", "short"]) == {"short": 1, "long": 0}
        assert mean_by_class([], []) == {}
        with pytest.raises(ValueError, match="2 scores and 1 classes"):
            mean_by_class([1, 0], ["short"])


def test_every_set_of_clips_is_registered(tmp_path: Path) -> None:
    builds = {"videomme": videomme, "mvbench": mvbench, "longvideobench": longvideobench}
    assert {name for name, data in data_sets().items() if data.clips} == set(builds)
    for name, build in builds.items():
        build(tmp_path / name)
        data, examples = open_data(f"{name}:{tmp_path / name}", limit=1)
        (example,) = examples
        assert data.metric is not None
        assert data.metric(example.answers[0], example.answers) == 1
        assert data.metric("none of these", example.answers) == 0
        assert all(key in example.meta for key in data.classes)
        hash(example)


@each("name", ["videomme", "mvbench", "longvideobench"])
def test_who_takes_images_alone_refuses_clips(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name}:.* is about clips"):
        open_data(f"{name}:{tmp_path}", clips=False)
