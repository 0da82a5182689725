"""Every reader says where a question stands, and that alone makes no two questions different."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.data import Example, data_sets, open_data
from each import each

ASKED = {"question": "What?", "answer": "a"}
COCO = {
    "images": [{"id": 1, "file_name": "a.png"}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2]}],
}

# A picture of one pixel as base64.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="

# By data set: its files, the one that asks, and the place of its second question in it.
FILES: dict[str, tuple[dict[str, Any], str, str]] = {
    "vqav2": (
        {
            "v2_OpenEnded_mscoco_val2014_questions.json": {
                "questions": [{"image_id": 1, "question": "What?", "question_id": i} for i in (1, 2)]
            },
            "v2_mscoco_val2014_annotations.json": {
                "annotations": [{"question_id": i, "answers": [{"answer": "a"}]} for i in (2, 1)]
            },
            "val2014/COCO_val2014_000000000001.png": None,
        },
        "v2_OpenEnded_mscoco_val2014_questions.json",
        "record 2",
    ),
    "textvqa": (
        {
            "TextVQA_0.5.1_val.json": {
                "data": [
                    {"question_id": i, "image_id": "a", "question": "What?", "answers": ["a"]} for i in (1, 2)
                ]
            },
            "train_images/a.png": None,
        },
        "TextVQA_0.5.1_val.json",
        "record 2",
    ),
    "docvqa": (
        {
            "val_v1.0.json": {
                "data": [
                    {"questionId": i, "image": "documents/a.png", "question": "What?", "answers": ["a"]}
                    for i in (1, 2)
                ]
            },
            "documents/a.png": None,
        },
        "val_v1.0.json",
        "record 2",
    ),
    "chartqa": (
        {
            "test_human.json": [{"imgname": "a.png", "query": "What?", "label": "a"}] * 2,
            "test_augmented.json": [],
            "png/a.png": None,
        },
        "test_human.json",
        "record 2",
    ),
    "gqa": (
        {
            "testdev_balanced_questions.json": {"7": ASKED | {"imageId": "a"}, "9": ASKED | {"imageId": "a"}},
            "images/a.png": None,
        },
        "testdev_balanced_questions.json",
        "question 9",
    ),
    "jsonl": (
        {"questions.jsonl": [ASKED | {"image": "a.png"}] * 2, "a.png": None},
        "questions.jsonl",
        "line 2",
    ),
    "folder": (
        {"questions.jsonl": [ASKED | {"image": "a.png"}] * 2, "a.png": None},
        "questions.jsonl",
        "line 2",
    ),
    "coco": (
        {
            "questions.jsonl": [ASKED | {"image_id": 1}] * 2,
            "annotations/instances_val2017.json": COCO,
            "val2017/a.png": None,
        },
        "questions.jsonl",
        "line 2",
    ),
    "pope": (
        {
            "coco_pope_random.json": "".join(
                json.dumps({"question_id": i, "image": "a.png", "text": "Is it?", "label": "no"}) + "\n"
                for i in (1, 2)
            ),
            "coco_pope_popular.json": "",
            "coco_pope_adversarial.json": "",
            "val2014/a.png": None,
        },
        "coco_pope_random.json",
        "line 2",
    ),
    "videomme": (
        {
            "test.jsonl": [
                {
                    "question_id": name,
                    "videoID": "a",
                    "question": "What?",
                    "options": ["x", "y"],
                    "answer": "A",
                }
                for name in "12"
            ],
            "data/a.mp4": None,
        },
        "test.jsonl",
        "line 2",
    ),
    "mvbench": (
        {
            "json/moving_count.json": [
                {"video": "a.mp4", "question": "What?", "candidates": ["a", "b"], "answer": "a"}
            ]
            * 2,
            "video/clevrer/video_validation/a.mp4": None,
        },
        "json/moving_count.json",
        "record 2",
    ),
    "longvideobench": (
        {
            "lvb_val.json": [
                {
                    "id": name,
                    "video_path": "a.mp4",
                    "question": "What?",
                    "candidates": ["a", "b"],
                    "correct_choice": 0,
                }
                for name in "12"
            ],
            "videos/a.mp4": None,
        },
        "lvb_val.json",
        "record 2",
    ),
    "infovqa": (
        {
            "infographicsVQA_val_v1.0_withQT.json": {
                "data": [
                    {"questionId": i, "image_local_name": "a.png", "question": "What?", "answers": ["a"]}
                    for i in (1, 2)
                ]
            },
            "a.png": None,
        },
        "infographicsVQA_val_v1.0_withQT.json",
        "record 2",
    ),
    "bbox-docvqa": (
        {
            "BBox_DocVQA_Bench.jsonl": [ASKED | {"images": ["a.png"], "bbox": [[[0, 0, 2, 2]]]}] * 2,
            "a.png": None,
        },
        "BBox_DocVQA_Bench.jsonl",
        "line 2",
    ),
    "vstar": (
        {
            "test_questions.jsonl": [
                {"question_id": i, "category": "c", "image": "a.png", "text": "What?", "label": "A"}
                for i in (1, 2)
            ],
            "a.png": None,
        },
        "test_questions.jsonl",
        "line 2",
    ),
    "hrbench": (
        {
            "hr_bench_4k.tsv": "index\tquestion\timage\tA\tB\tanswer\n"
            f"1\tWhat?\t{PICTURE}\ta\tb\tA\n2\tWhat?\t1\ta\tb\tA\n",
        },
        "hr_bench_4k.tsv",
        "row 2",
    ),
    "mme-realworld": (
        {
            "MME_RealWorld.json": [
                {
                    "Question_id": name,
                    "Image": "a.png",
                    "Text": "What?",
                    "Answer choices": ["(A) a", "(B) b"],
                    "Ground truth": "A",
                }
                for name in "12"
            ],
            "a.png": None,
        },
        "MME_RealWorld.json",
        "record 2",
    ),
    "ocrbench": (
        {
            "OCRBench.json": [
                {"dataset_name": "a", "id": i, "image_path": "a.png", "question": "What?", "answers": "a"}
                for i in (1, 2)
            ],
            "a.png": None,
        },
        "OCRBench.json",
        "record 2",
    ),
    "ocrbench-v2": (
        {
            "OCRBench_v2.json": [
                {"type": "math QA en", "id": i, "image_path": "a.png", "question": "What?", "answers": ["a"]}
                for i in (1, 2)
            ],
            "a.png": None,
        },
        "OCRBench_v2.json",
        "record 2",
    ),
    "screenspot": (
        {
            f"screenspot_{kind}.json": [
                {"img_filename": "a.png", "instruction": "open", "bbox": [0, 0, 2, 2]}
            ]
            * (2 if kind == "mobile" else 0)
            for kind in ("mobile", "desktop", "web")
        }
        | {"a.png": None},
        "screenspot_mobile.json",
        "record 2",
    ),
    "screenspot-pro": (
        {
            "annotations/a.json": [
                {"id": name, "img_filename": "a.png", "instruction": "open", "bbox": [0, 0, 2, 2]}
                for name in "12"
            ],
            "a.png": None,
        },
        "annotations/a.json",
        "record 2",
    ),
    "rendered": (
        {
            "test/3.json": {
                "type": "receipt",
                "questions": [["value", "What?", "a", [[1, 2, 3, 4]]]] * 2,
            },
            "test/3.png": None,
        },
        "test/3.json",
        "question 2",
    ),
}


def write(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".mp4":
            path.write_bytes(b"a video")
        elif content is None:
            Image.new("RGB", (8, 6)).save(path)
        elif path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
        elif isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            path.write_text(json.dumps(content), encoding="utf-8")


# Those of parquet have their own tests.
@each("name", [name for name in data_sets() if name not in ("parquet", "zoombench", "vidore")])
def test_a_question_knows_its_file_and_place(name, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    files, asked, place = FILES[name]
    write(tmp_path, files)
    first, second = open_data(f"{name}:{tmp_path}")[1]
    assert second.where == f"{tmp_path / asked}, {place}"
    assert first.where != second.where


def test_the_place_counts_in_no_comparison():
    example = Example("1", Path("a.png"), "What?", ("a",), where="here")
    assert example == Example("1", Path("a.png"), "What?", ("a",), where="there")
    assert hash(example) == hash(Example("1", Path("a.png"), "What?", ("a",)))
