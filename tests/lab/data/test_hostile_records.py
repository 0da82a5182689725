"""Data sets from anywhere: whatever their files hold, they are read, or refused in one printable line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc.data import open_data, record
from arr_coc_lab.data.clips import find_clip
from hostile import lines_of, refusal, spoilt, spoilt_bytes

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
TEN = ["net"] * 9 + ["mesh"]
FILES: dict[str, dict[str, Any]] = {
    "vqav2": {
        "v2_OpenEnded_mscoco_val2014_questions.json": {
            "questions": [{"image_id": 42, "question": "What?", "question_id": 42000 + i} for i in (0, 1)]
        },
        "v2_mscoco_val2014_annotations.json": {
            "annotations": [
                {"question_id": 42000 + i, "question_type": "what", "answers": [{"answer": a} for a in TEN]}
                for i in (0, 1)
            ]
        },
    },
    "textvqa": {
        "TextVQA_0.5.1_val.json": {
            "data": [
                {
                    "question_id": i,
                    "question": "Who?",
                    "image_id": "a",
                    "image_classes": ["Sign"],
                    "answers": TEN,
                }
                for i in (0, 1)
            ]
        }
    },
    "docvqa": {
        "val_v1.0.json": {
            "data": [
                {
                    "questionId": i,
                    "question": "Who?",
                    "image": "documents/a.png",
                    "docId": 7,
                    "answers": ["x", "y"],
                }
                for i in (0, 1)
            ]
        }
    },
    "chartqa": {
        "val_human.json": [{"imgname": "a.png", "query": "How many?", "label": "3"}],
        "val_augmented.json": [{"imgname": "a.png", "query": "How many?", "label": "14"}],
    },
    "gqa": {
        "val_balanced_questions.json": {
            str(i): {"imageId": "a", "question": "Is it?", "answer": "no", "types": {"semantic": "rel"}}
            for i in (0, 1)
        }
    },
    "jsonl": {
        "val.jsonl": [
            {"image": "a.png", "question": "Which?", "answer": "red", "boxes": [[1, 2, 3, 4]], "family": "x"},
            {"id": 7, "image": "a.png", "question": "Who?", "answers": ["a", 3], "box_format": "xywh"},
        ]
    },
    "coco": {
        "questions.jsonl": [
            {"image_id": 139, "question": "Which?", "answer": "no", "category": "tv"},
            {"image_id": 139, "question": "Which?", "answer": "no", "annotation_ids": [5]},
        ],
        "annotations/instances_val2017.json": {
            "images": [{"id": 139, "file_name": "a.png"}],
            "categories": [{"id": 72, "name": "tv"}, {"id": 3, "name": "chair"}],
            "annotations": [{"id": 5, "image_id": 139, "category_id": 72, "bbox": [1, 2, 3.5, 4]}],
        },
    },
    "vstar": {
        "test_questions.jsonl": [
            {"question_id": i, "category": "c", "image": "v.png", "text": "Who?\n(A) x\n(B) y", "label": "A"}
            for i in (0, 1)
        ],
        "v.json": {"target_object": ["cup"], "bbox": [[1, 2, 3, 4]]},
    },
    "hrbench": {
        "hr_bench_4k.tsv": [
            {
                "index": str(i),
                "question": "Who?",
                "image": "0" if i else PICTURE,
                "A": "x",
                "B": "y",
                "answer": "A",
                "category": "single",
            }
            for i in (0, 1)
        ]
    },
    "mme-realworld": {
        "MME_RealWorld.json": [
            {
                "Question_id": f"p/{i}",
                "Image": "a.png",
                "Text": "Who?",
                "Answer choices": ["(A) x", "(B) y"],
                "Ground truth": "A",
                "Task": "Perception",
            }
            for i in (0, 1)
        ]
    },
    "ocrbench-v2": {
        "OCRBench_v2.json": [
            {
                "type": "VQA with position en",
                "id": 0,
                "image_path": "a.png",
                "question": "Who?",
                "answers": ["x"],
                "bbox": [1, 2, 300, 400],
            },
            {
                "type": "key information extraction en",
                "id": 1,
                "image_path": "a.png",
                "question": "Who?",
                "answers": [{"name": ["x"]}],
            },
        ]
    },
    "screenspot": {
        "screenspot_web.json": [
            {"img_filename": "a.png", "instruction": "open", "bbox": [1, 2, 3, 4], "data_type": "icon"},
            {"img_filename": "a.png", "instruction": "open", "bbox": [1, 2, 3, 4], "img_size": [4, 4]},
        ]
    },
    "bbox-docvqa": {
        "BBox_DocVQA_Bench.jsonl": [
            {"images": ["a.png"], "question": "Who?", "answer": "x", "bbox": [[[1, 2, 3, 4]]]} for _ in (0, 1)
        ]
    },
}
"""A data set of each format, as a folder."""
SPLITS = {"hrbench": "4k", "bbox-docvqa": "bench", "screenspot": "web"} | dict.fromkeys(
    ("vstar", "mme-realworld", "ocrbench-v2"), "test"
)
PLACES = (
    "v.png",
    "a.png",
    "val2014/COCO_val2014_000000000042.jpg",
    "train_images/a.jpg",
    "documents/a.png",
    "png/a.png",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them with their images."""
    folder = tmp_path_factory.mktemp("sets")
    for place in PLACES:
        (folder / place).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / place)
    (folder / "annotations").mkdir()
    for files in FILES.values():
        for name, content in files.items():
            (folder / name).write_bytes(encoded(name, content))
    return folder


def encoded(name: str, content: Any) -> bytes:
    """A file of a data set."""
    if name.endswith(".tsv"):
        columns = list(dict.fromkeys(column for row in content if isinstance(row, dict) for column in row))
        rows = [[str(row.get(each, "")) for each in columns] for row in content if isinstance(row, dict)]
        return "\n".join("\t".join(row) for row in [columns, *rows]).encode(errors="surrogatepass")
    return lines_of(content) if name.endswith(".jsonl") else json.dumps(content).encode()


def examples(folder: Path, data: str) -> list[Any]:
    """All questions of a data set."""
    return list(open_data(f"{data}:{folder}", SPLITS.get(data, "val"))[1])


@pytest.mark.parametrize("data", FILES)
def test_hostile_files(folder: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(folder / "assets"))
    assert len(examples(folder, data)) == 2
    rng = random.Random(7)
    messages = []
    for name, content in FILES[data].items():
        whole = encoded(name, content)
        made = [encoded(name, spoilt(content, rng)) for _ in range(30)]
        made += [spoilt_bytes(whole, rng) for _ in range(12)]
        for one in made:
            (folder / name).write_bytes(one)
            messages.append(refusal(lambda: examples(folder, data)))
        (folder / name).write_bytes(whole)
    refused = [message for message in messages if message is not None]
    assert 0 < len(refused) < len(messages)
    assert all(str(folder) in message for message in refused)  # each names a file or the folder


@pytest.mark.parametrize(
    "name", ["../a.png", "/etc/hostname", "~/a.png", "C:\\a.png", "file://a.png", "b/../../a.png"]
)
def test_an_image_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "set").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    row = {"image": name, "question": "Who?", "answer": "x"}
    (tmp_path / "set" / "val.jsonl").write_bytes(lines_of([row]))
    message = refusal(lambda: examples(tmp_path / "set", "jsonl"))
    assert message is not None
    assert "val.jsonl, line 1: image" in message
    assert "use a relative path" in message


def test_links_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for place in ("a.png", "set/b.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / place)
    for name, target in {"out": "../a.png", "in": "b.png", "loop": "loop.png"}.items():
        (tmp_path / "set" / f"{name}.png").symlink_to(target)
    row = {"image": "in.png", "question": "Who?", "answer": "x"}
    (tmp_path / "set" / "val.jsonl").write_bytes(lines_of([row]))
    assert examples(tmp_path / "set", "jsonl")[0].image.name == "in.png"
    for spoilt_row, message in (
        (row | {"image": "out.png"}, "line 1: image 'out.png' is reached by a link out of"),
        (row | {"map": "out.png"}, "line 1: map 'out.png' is reached by a link out of"),
        (row | {"image": "loop.png"}, "is not in"),
    ):
        (tmp_path / "set" / "val.jsonl").write_bytes(lines_of([spoilt_row]))
        assert message in str(refusal(lambda: examples(tmp_path / "set", "jsonl")))
    (tmp_path / "val.jsonl").write_bytes(lines_of([row]))
    (tmp_path / "set" / "val.jsonl").unlink()
    (tmp_path / "set" / "val.jsonl").symlink_to("../val.jsonl")
    assert "val.jsonl' is reached by a link out of" in str(
        refusal(lambda: examples(tmp_path / "set", "jsonl"))
    )
    # A file that the user names is the user's own, and so is the folder itself.
    (tmp_path / "mine").symlink_to("set")
    assert "val.jsonl' is reached by a link" in str(refusal(lambda: examples(tmp_path / "mine", "jsonl")))
    (tmp_path / "set" / "val.jsonl").unlink()
    (tmp_path / "set" / "val.jsonl").write_bytes(lines_of([row]))
    assert len(examples(tmp_path / "mine", "jsonl")) == 1


def test_the_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "datasets--a--b" / "blobs", tmp_path / "datasets--a--b" / "snapshots" / "0f"
    blobs.mkdir(parents=True)
    (snapshot / "data").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(blobs / "01", "PNG")
    (blobs / "02").write_bytes(lines_of([{"image": "a.png", "question": "Who?", "answer": "x"}]))
    (snapshot / "data" / "a.png").symlink_to("../../../blobs/01")
    (snapshot / "data" / "val.jsonl").symlink_to("../../../blobs/02")
    assert len(examples(snapshot, "jsonl")) == 1


def test_frames_of_a_clip_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "set" / "clip").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "set" / "clip" / "1.png").symlink_to(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"here: clip 'clip' is reached by a link out of"):
        find_clip(tmp_path / "set", "clip", "here")


def test_a_line_without_an_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_LINE", 1000)
    (tmp_path / "val.jsonl").write_bytes(b'{"image": "' + b"a" * 5000)
    assert "line 1 is longer than 1,000 bytes" in str(refusal(lambda: examples(tmp_path, "jsonl")))


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "val.jsonl").write_text(
        '{"image": "a.png", "question": "A?", "question": "B?", "answer": "x"}'
    )
    assert "'question' comes twice" in str(refusal(lambda: examples(tmp_path, "jsonl")))
