"""Data sets: small files in the official formats, read back; every refusal names file, place and remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc.data import Example, data_sets, open_data
from arr_coc.data.record import find_image
from arr_coc.data.registry import read_folder, read_jsonl
from arr_coc.files.images import open_image
from arr_coc_lab.data import (
    read_chartqa,
    read_coco,
    read_docvqa,
    read_gqa,
    read_textvqa,
    read_vqav2,
)
from each import each


def draw(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), "red").save(path)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_lines(path: Path, *rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def vqav2(folder: Path) -> None:
    questions = [
        {"image_id": 42, "question": "What is it?", "question_id": 42001},
        {"image_id": 262148, "question": "Is it red?", "question_id": 262148000},
    ]
    annotations = [  # in another order than the questions
        {
            "question_type": "is it",
            "multiple_choice_answer": "yes",
            "answers": [{"answer": "yes", "answer_confidence": "yes", "answer_id": i} for i in range(1, 11)],
            "image_id": 262148,
            "answer_type": "yes/no",
            "question_id": 262148000,
        },
        {
            "question_type": "what is",
            "multiple_choice_answer": "ball",
            "answers": [
                {"answer": "ball" if i < 9 else "", "answer_confidence": "maybe", "answer_id": i}
                for i in range(1, 11)
            ],
            "image_id": 42,
            "answer_type": "other",
            "question_id": 42001,
        },
    ]
    head = {"info": {"version": "2.0"}, "data_type": "mscoco", "data_subtype": "val2014", "license": {}}
    asked = head | {"task_type": "Open-Ended", "questions": questions}
    write(folder / "v2_OpenEnded_mscoco_val2014_questions.json", asked)
    write(folder / "v2_mscoco_val2014_annotations.json", head | {"annotations": annotations})
    draw(folder / "val2014/COCO_val2014_000000000042.jpg")
    draw(folder / "val2014/COCO_val2014_000000262148.jpg")


def textvqa(folder: Path) -> None:
    record = {
        "question": "what is the brand of this camera?",
        "image_id": "003a8ae2ef43b901",
        "image_classes": ["Cassette deck", "Printer"],
        "flickr_original_url": "https://example.org/o.jpg",
        "flickr_300k_url": "https://example.org/z.jpg",
        "image_width": 1024,
        "image_height": 664,
        "answers": ["nous les gosses", "dakota"] + ["dakota"] * 8,
        "question_tokens": ["what", "is"],
        "question_id": 34602,
        "set_name": "val",
    }
    head = {"dataset_type": "val", "dataset_name": "textvqa", "dataset_version": "0.5.1"}
    write(folder / "TextVQA_0.5.1_val.json", head | {"data": [record]})
    draw(folder / "train_images/003a8ae2ef43b901.jpg")


def docvqa(folder: Path, name: str = "val_v1.0_withQT.json", images: str = "documents") -> None:
    record = {
        "questionId": 49153,
        "question": "What is the ‘actual’ value per 1000, during the year 1975?",
        "question_types": ["figure/diagram", "Yes/No"],
        "image": "documents/pybv0228_81.png",
        "docId": 14465,
        "ucsf_document_id": "pybv0228",
        "ucsf_document_page_no": "81",
        "answers": ["0.28", ".28"],
        "data_split": "val",
    }
    head = {"dataset_name": "SP-DocVQA", "dataset_version": "1.0", "dataset_split": "val"}
    write(folder / name, head | {"data": [record]})
    draw(folder / images / "pybv0228_81.png")


def chartqa(folder: Path) -> None:
    human = [
        {
            "imgname": "41699051005347.png",
            "query": "How many food item is shown in the bar graph?",
            "label": "14",
        },
        {"imgname": "166.png", "query": "Is it more then Fiji?", "label": "No"},
    ]
    write(folder / "test_human.json", human)
    write(folder / "test_augmented.json", [{"imgname": "two_col_1.png", "query": "When?", "label": "2014"}])
    for name in ("41699051005347", "166", "two_col_1"):
        draw(folder / f"png/{name}.png")


def gqa(folder: Path) -> None:
    record = {
        "semantic": [{"operation": "select", "dependencies": [], "argument": "scene"}],
        "entailed": ["20602950"],
        "equivalent": ["20602949"],
        "question": "Is it overcast?",
        "imageId": "n161313",
        "isBalanced": True,
        "groups": {"global": None, "local": "13-weather_overcast"},
        "answer": "no",
        "semanticStr": "select: scene->verify weather: overcast [0]",
        "annotations": {"answer": {}, "question": {}, "fullAnswer": {}},
        "types": {"detailed": "weatherVerify", "semantic": "global", "structural": "verify"},
        "fullAnswer": "No, it is clear.",
    }
    other = record | {"question": "Who?", "answer": "girl", "types": {}, "fullAnswer": "A girl."}
    write(folder / "testdev_balanced_questions.json", {"201307251": record, "201640614": other})
    draw(folder / "images/n161313.jpg")


def coco(folder: Path) -> None:
    annotations = [
        {
            "id": 1768,
            "image_id": 139,
            "category_id": 72,
            "bbox": [7.0, 1.5, 1.0, 2.0],
            "iscrowd": 0,
            "area": 2.0,
        },
        {"id": 1769, "image_id": 139, "category_id": 62, "bbox": [1, 2, 3, 4], "iscrowd": 0, "area": 12.0},
        {"id": 1770, "image_id": 139, "category_id": 62, "bbox": [0, 0, 2, 2], "iscrowd": 1, "area": 4.0},
        {"id": 1771, "image_id": 139, "category_id": 62, "bbox": [5, 5, 0, 1], "iscrowd": 0, "area": 0.0},
        {"id": 1772, "image_id": 285, "category_id": 23, "bbox": [0, 0, 4, 4], "iscrowd": 0, "area": 16.0},
    ]
    content = {
        "info": {},
        "licenses": [],
        "images": [
            {"id": 139, "file_name": "000000000139.jpg", "width": 8, "height": 6},
            {"id": 285, "file_name": "000000000285.jpg", "width": 8, "height": 6},
        ],
        "annotations": annotations,
        "categories": [
            {"supercategory": "furniture", "id": 62, "name": "chair"},
            {"supercategory": "electronic", "id": 72, "name": "tv"},
            {"supercategory": "animal", "id": 23, "name": "bear"},
        ],
    }
    write(folder / "annotations/instances_val2017.json", content)
    draw(folder / "val2017/000000000139.jpg")
    draw(folder / "val2017/000000000285.jpg")
    write_lines(
        folder / "questions.jsonl",
        {"image_id": 139, "question": "How many chairs?", "answer": 2, "category": "chair", "by": "me"},
        {"image_id": 139, "question": "Is it on?", "answers": ["no", "off"], "annotation_ids": [1769, 1768]},
        {"id": "q3", "image_id": 285, "question": "What is it doing?"},
    )


class TestVqav2:
    def test_reads(self, tmp_path):
        vqav2(tmp_path)
        first, second = read_vqav2(tmp_path)
        assert first == Example(
            "42001",
            tmp_path / "val2014/COCO_val2014_000000000042.jpg",
            "What is it?",
            ("ball",) * 8 + ("",) * 2,  # two of ten people said nothing
            meta={"question_type": "what is", "answer_type": "other"},
        )
        assert (second.id, second.answers) == ("262148000", ("yes",) * 10)
        assert second.image.name == "COCO_val2014_000000262148.jpg"

    def test_the_folders_of_its_own_tools(self, tmp_path):
        vqav2(tmp_path / "flat")
        for old, new in (
            ("v2_OpenEnded_mscoco_val2014_questions.json", "Questions"),
            ("v2_mscoco_val2014_annotations.json", "Annotations"),
            ("val2014", "Images/mscoco"),
        ):
            (tmp_path / new).mkdir(parents=True)
            (tmp_path / "flat" / old).rename(tmp_path / new / old)
        assert len(list(read_vqav2(tmp_path))) == 2

    def test_a_test_split_has_no_answers(self, tmp_path):
        questions = {"questions": [{"image_id": 1, "question": "What?", "question_id": 1000}]}
        write(tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json", questions)
        draw(tmp_path / "test2015/COCO_test2015_000000000001.jpg")
        (example,) = read_vqav2(tmp_path, "test-dev")
        assert example.answers == ()

    def test_refusals(self, tmp_path):
        with pytest.raises(ValueError, match="no split 'vall': use one of train, val, test, test-dev"):
            read_vqav2(tmp_path, "vall")
        with pytest.raises(ValueError, match=r"has no v2_OpenEnded.*put .*val2014/COCO_val2014"):
            read_vqav2(tmp_path)
        vqav2(tmp_path)
        annotations = tmp_path / "v2_mscoco_val2014_annotations.json"
        content = json.loads(annotations.read_text())
        write(annotations, {"annotations": content["annotations"][:1]})
        with pytest.raises(ValueError, match=r"questions.json, record 1: question 42001 has no annotation"):
            list(read_vqav2(tmp_path))
        write(annotations, {"annotations": [content["annotations"][0] | {"answers": ["yes"]}]})
        with pytest.raises(ValueError, match=r"annotations.json, record 1: 'answers'"):
            read_vqav2(tmp_path)
        annotations.unlink()
        with pytest.raises(ValueError, match=r"has no v2_mscoco_val2014_annotations.json"):
            read_vqav2(tmp_path)

    def test_a_missing_image_is_named(self, tmp_path):
        vqav2(tmp_path)
        (tmp_path / "val2014/COCO_val2014_000000262148.jpg").unlink()
        examples = read_vqav2(tmp_path)
        next(examples)
        with pytest.raises(
            ValueError, match=r"record 2: image 'COCO_val2014_000000262148.jpg' is not in .*val2014"
        ):
            next(examples)


class TestTextvqa:
    def test_reads(self, tmp_path):
        textvqa(tmp_path)
        (example,) = read_textvqa(tmp_path)
        assert example == Example(
            "34602",
            tmp_path / "train_images/003a8ae2ef43b901.jpg",
            "what is the brand of this camera?",
            ("nous les gosses",) + ("dakota",) * 9,
            meta={"image_id": "003a8ae2ef43b901", "image_classes": "Cassette deck, Printer"},
        )

    def test_a_test_split_has_no_answers(self, tmp_path):
        record = {"question": "what?", "image_id": "ab", "question_id": 1, "set_name": "test"}
        write(tmp_path / "TextVQA_0.5.1_test.json", {"data": [record]})
        draw(tmp_path / "test_images/ab.jpg")
        (example,) = read_textvqa(tmp_path, "test")
        assert example.answers == ()

    def test_refusals(self, tmp_path):
        with pytest.raises(ValueError, match=r"has no TextVQA_0.5.1_val.json: put .*train_images"):
            read_textvqa(tmp_path)
        write(tmp_path / "TextVQA_0.5.1_val.json", [])
        with pytest.raises(ValueError, match="has no list 'data'"):
            read_textvqa(tmp_path)
        write(
            tmp_path / "TextVQA_0.5.1_val.json",
            {"data": [{"question": "a?", "image_id": "a", "question_id": 1}]},
        )
        with pytest.raises(ValueError, match=r"val.json, record 1: 'answers' is missing"):
            list(read_textvqa(tmp_path))


class TestDocvqa:
    @pytest.mark.parametrize("name", ["val_v1.0_withQT.json", "val_v1.0.json"])
    def test_reads(self, tmp_path, name):
        docvqa(tmp_path, name)
        (example,) = read_docvqa(tmp_path)
        assert example.id == "49153"
        assert example.image == tmp_path / "documents/pybv0228_81.png"
        assert example.question == "What is the ‘actual’ value per 1000, during the year 1975?"
        assert example.answers == ("0.28", ".28")
        assert example.meta == {
            "question_types": "figure/diagram, Yes/No",
            "docId": "14465",
            "ucsf_document_id": "pybv0228",
            "ucsf_document_page_no": "81",
        }

    @each(
        ("name", "images"),
        [
            ("val_v1.0_withQT.json", "spdocvqa_images"),
            ("spdocvqa_qas/val_v1.0_withQT.json", "spdocvqa_images"),
            ("val/val_v1.0.json", "val/documents"),
        ],
    )
    def test_other_layouts(self, tmp_path, name, images):
        docvqa(tmp_path, name, images)
        (example,) = read_docvqa(tmp_path)
        assert example.image == tmp_path / images / "pybv0228_81.png"

    def test_a_test_split_has_no_answers(self, tmp_path):
        record = {"questionId": 1, "question": "a?", "image": "documents/a.png", "data_split": "test"}
        write(tmp_path / "test_v1.0.json", {"data": [record]})
        draw(tmp_path / "documents/a.png")
        (example,) = read_docvqa(tmp_path, "test")
        assert example.answers == ()

    def test_refusals(self, tmp_path):
        with pytest.raises(
            ValueError, match=r"has no val_v1.0_withQT.json or val_v1.0.json or spdocvqa_qas.*put"
        ):
            read_docvqa(tmp_path)
        docvqa(tmp_path)
        content = json.loads((tmp_path / "val_v1.0_withQT.json").read_text())
        content["data"][0]["image"] = "../../etc/passwd.png"
        write(tmp_path / "val_v1.0_withQT.json", content)
        with pytest.raises(
            ValueError, match=r"record 1: image '../../etc/passwd.png' is no name of a file in"
        ):
            list(read_docvqa(tmp_path))


class TestChartqa:
    @each("inner", ["ChartQA Dataset/test", "test", ""])
    def test_reads_people_first(self, tmp_path, inner):
        chartqa(tmp_path / inner)
        examples = list(read_chartqa(tmp_path))
        assert examples[0] == Example(
            "test_human-0",
            tmp_path / inner / "png/41699051005347.png",
            "How many food item is shown in the bar graph?",
            ("14",),
            meta={"part": "human"},
        )
        assert [example.id for example in examples] == ["test_human-0", "test_human-1", "test_augmented-0"]
        assert [example.answers for example in examples] == [("14",), ("No",), ("2014",)]
        assert examples[2].image == tmp_path / inner / "png/two_col_1.png"

    def test_one_part(self, tmp_path):
        chartqa(tmp_path)
        assert [example.question for example in read_chartqa(tmp_path, "test_augmented")] == ["When?"]

    def test_a_label_may_be_a_number(self, tmp_path):
        write(tmp_path / "test_human.json", [{"imgname": "a.png", "query": "How many?", "label": 0.57}])
        draw(tmp_path / "png/a.png")
        assert next(read_chartqa(tmp_path, "test_human")).answers == ("0.57",)

    def test_refusals(self, tmp_path):
        chartqa(tmp_path)
        with pytest.raises(
            ValueError, match="no split 'test_people': use test, test_human or test_augmented"
        ):
            read_chartqa(tmp_path, "test_people")
        (tmp_path / "test_augmented.json").unlink()  # half a split would be another figure
        with pytest.raises(
            ValueError, match=r"test_augmented.json: give the folder with 'ChartQA Dataset/test"
        ):
            read_chartqa(tmp_path)
        write(tmp_path / "test_human.json", {"data": []})
        with pytest.raises(ValueError, match=r"test_human.json is no list of questions"):
            read_chartqa(tmp_path)
        write(tmp_path / "test_human.json", ["How many?"])
        with pytest.raises(ValueError, match=r"record 1: 'How many.' is not an object"):
            list(read_chartqa(tmp_path, "test_human"))


class TestGqa:
    @each("inner", ["", "questions", "questions1.2"])
    def test_reads(self, tmp_path, inner):
        gqa(tmp_path)
        name = "testdev_balanced_questions.json"
        (tmp_path / inner).mkdir(exist_ok=True)
        (tmp_path / name).rename(tmp_path / inner / name)
        first, second = read_gqa(tmp_path)
        assert first == Example(
            "201307251",
            tmp_path / "images/n161313.jpg",
            "Is it overcast?",
            ("no",),
            meta={
                "structural": "verify",
                "semantic": "global",
                "detailed": "weatherVerify",
                "fullAnswer": "No, it is clear.",
            },
        )
        assert (second.id, second.answers, second.meta) == ("201640614", ("girl",), {"fullAnswer": "A girl."})

    def test_a_test_split_has_no_answers(self, tmp_path):
        asked = {"1": {"question": "a?", "imageId": "1", "isBalanced": True}}
        write(tmp_path / "test_balanced_questions.json", asked)
        write(tmp_path / "testdev_all_questions.json", asked)
        draw(tmp_path / "images/1.jpg")
        (example,) = read_gqa(tmp_path, "test")
        assert example.answers == ()
        with pytest.raises(ValueError, match=r"testdev_all_questions.json, question 1: 'answer' is missing"):
            list(read_gqa(tmp_path, "testdev_all"))

    def test_refusals(self, tmp_path):
        with pytest.raises(
            ValueError, match=r"has no testdev_balanced_questions.json.*put .*images/n161313.jpg"
        ):
            read_gqa(tmp_path)
        write(tmp_path / "testdev_balanced_questions.json", [])
        with pytest.raises(ValueError, match="no object of questions"):
            read_gqa(tmp_path)
        write(tmp_path / "testdev_balanced_questions.json", {"1": "a?"})
        with pytest.raises(ValueError, match="question 1 is no object"):
            list(read_gqa(tmp_path))


class TestJsonl:
    def test_reads(self, tmp_path):
        draw(tmp_path / "a.png")
        draw(tmp_path / "images/deep/b.jpg")
        write_lines(
            tmp_path / "questions.jsonl",
            {
                "image": "a.png",
                "question": " Which? ",
                "answer": "red",
                "family": "color",
                "seed": 3,
                "x": {},
            },
            {
                "id": "b",
                "image": "deep/b",
                "question": "How many?",
                "answers": [2, "two"],
                "boxes": [[1, 2, 3, 4.5]],
            },
            {
                "image": "a.png",
                "question": "Q",
                "answer": "A",
                "boxes": [[1, 2, 3, 4], [0, 0, 8, 6]],
                "box_format": "xywh",
            },
        )
        assert list(read_jsonl(tmp_path)) == [
            Example("1", tmp_path / "a.png", "Which?", ("red",), meta={"family": "color", "seed": "3"}),
            Example("b", tmp_path / "images/deep/b.jpg", "How many?", ("2", "two"), ((1, 2, 3, 4.5),)),
            Example("3", tmp_path / "a.png", "Q", ("A",), ((1, 2, 4, 6), (0, 0, 8, 6))),
        ]

    def test_the_split_names_the_file(self, tmp_path):
        draw(tmp_path / "a.png")
        write_lines(tmp_path / "questions.jsonl", {"image": "a.png", "question": "Q", "answer": "all"})
        write_lines(tmp_path / "train.jsonl", {"image": "a.png", "question": "Q", "answer": "train"})
        assert next(read_jsonl(tmp_path, "train")).answers == ("train",)
        assert next(read_jsonl(tmp_path)).answers == ("all",)
        assert next(read_jsonl(tmp_path / "train.jsonl")).answers == ("train",)

    def test_streams(self, tmp_path):
        """A line is read when it is asked for, so a bad one costs nothing before its turn."""
        draw(tmp_path / "a.png")
        good = json.dumps({"image": "a.png", "question": "Q", "answer": "A"})
        (tmp_path / "questions.jsonl").write_text(f"{good}\n\n{good}\nnot json\n")
        examples = read_jsonl(tmp_path)
        assert [next(examples).id, next(examples).id] == ["1", "2"]
        with pytest.raises(ValueError, match=r"questions.jsonl, line 4: column 1 is not JSON"):
            next(examples)

    def test_a_mark_of_utf_8_and_windows_line_ends(self, tmp_path):
        draw(tmp_path / "a.png")
        row = json.dumps({"image": "a.png", "question": "Où ?", "answer": "là"}, ensure_ascii=False)
        (tmp_path / "questions.jsonl").write_bytes(b"\xef\xbb\xbf" + f"{row}\r\n{row}\r\n".encode())
        assert [example.answers for example in read_jsonl(tmp_path)] == [("là",)] * 2

    @each(
        ("change", "message"),
        [
            ({"image": None}, "'image' is None: it should be a valid string"),
            ({"image": ""}, "'image' is ''"),
            ({"image": "b.png"}, r"image 'b.png' is not in .*unpack the images there"),
            ({"question": 3}, "'question' is 3"),
            ({"question": "  "}, "'question' is '  '"),
            ({"answer": True}, "'answer' is True: it should be a text or a list of texts"),
            ({"answer": {}}, "'answer' is {}"),
            ({"answer": ""}, "'answer' is ''"),
            ({"answer": None}, "'answer' is None"),
            ({"answers": ["a"]}, "both 'answer' and 'answers'"),
            ({"id": 1.5}, "'id' is 1.5: it should be a text or a whole number"),
            ({"boxes": 4}, "'boxes' is 4: it should be a valid list"),
            ({"boxes": [4]}, r"'boxes'\[0\] is 4: it should be"),
            ({"boxes": [[1, 2, 3]]}, r"'boxes'\[0\]\[3\] is missing in \[1, 2, 3\]"),
            ({"boxes": [[1, 2, "3", 4]]}, r"'boxes'\[0\]\[2\] is '3': it should be a valid number"),
            ({"boxes": [[1, 2, True, 4]]}, r"'boxes'\[0\]\[2\] is True: it should be a valid number"),
            ({"boxes": [[1, 2, float("nan"), 4]]}, r"can't be read .NaN is no number of JSON"),
            ({"boxes": [[5, 5, 3, 4]]}, 'has no area as xyxy: correct it, or write "box_format": "xywh"'),
            ({"boxes": [[5, 5, 0, 4]], "box_format": "xywh"}, "has no area as xywh"),
            (
                {"boxes": [], "box_format": "cxcywh"},
                "'box_format' is 'cxcywh': it should be 'xyxy' or",
            ),
            ({"boxes": [], "box_format": ["xyxy"]}, r"'box_format' is \['xyxy'\]: it should be"),
        ],
    )
    def test_refusals_name_the_line(self, tmp_path, change, message):
        draw(tmp_path / "a.png")
        row = {"image": "a.png", "question": "Q", "answer": "A"}
        write_lines(tmp_path / "questions.jsonl", row, row | change)
        examples = read_jsonl(tmp_path)
        next(examples)
        with pytest.raises(ValueError, match=r"questions.jsonl, line 2\b.*" + message):
            next(examples)

    @each("field", ["image", "question", "answer"])
    def test_a_missing_field(self, tmp_path, field):
        draw(tmp_path / "a.png")
        row = {"image": "a.png", "question": "Q", "answer": "A"}
        del row[field]
        write_lines(tmp_path / "questions.jsonl", row)
        with pytest.raises(ValueError, match=f"line 1: '{field}' is missing: add it"):
            list(read_jsonl(tmp_path))

    @each(
        ("content", "message"),
        [
            (b'["a"]\n', r"line 1: \['a'\] is not an object"),
            (b'{"image": "a.png"', "line 1: column 18 is not JSON"),
            (b'{"image": "\xff"}', r"line 1 is not UTF-8 text \(byte 11\): save it as UTF-8"),
            (b"[" * 100_000, "line 1 can't be read .nested too deep"),
            (b'{"id": ' + b"1" * 5000 + b"}", "line 1 can't be read .a number is too long"),
        ],
    )
    def test_lines_that_are_none(self, tmp_path, content, message):
        (tmp_path / "questions.jsonl").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            list(read_jsonl(tmp_path))

    def test_no_file(self, tmp_path):
        with pytest.raises(
            ValueError, match=r'has no val.jsonl or questions.jsonl: write one \{"image".*"answer"'
        ):
            read_jsonl(tmp_path)


class TestFolder:
    def test_answers_are_not_needed_and_not_given(self, tmp_path):
        draw(tmp_path / "a.png")
        row = {"image": "a.png", "question": "Q"}
        write_lines(tmp_path / "questions.jsonl", row, row | {"answer": "A", "boxes": [[0, 0, 1, 1]]})
        assert list(read_folder(tmp_path)) == [
            Example("1", tmp_path / "a.png", "Q", ()),
            Example("2", tmp_path / "a.png", "Q", (), ((0, 0, 1, 1),)),
        ]

    def test_no_file(self, tmp_path):
        with pytest.raises(
            ValueError, match=r'has no val.jsonl .*\{"image": "a.png", "question": "..."\} a line'
        ):
            read_folder(tmp_path)


class TestCoco:
    def test_boxes_answer_the_questions(self, tmp_path):
        coco(tmp_path)
        image = tmp_path / "val2017/000000000139.jpg"
        chairs = ((1, 2, 4, 6), (0, 0, 2, 2))  # a crowd counts, a box without width doesn't
        assert list(read_coco(tmp_path)) == [
            Example(
                "1", image, "How many chairs?", ("2",), chairs, {"category": "chair", "by": "me"}, size=(8, 6)
            ),
            Example("2", image, "Is it on?", ("no", "off"), ((1, 2, 4, 6), (7, 1.5, 8, 3.5)), size=(8, 6)),
            Example("q3", tmp_path / "val2017/000000000285.jpg", "What is it doing?", (), size=(8, 6)),
        ]

    def test_another_split(self, tmp_path):
        coco(tmp_path)
        (tmp_path / "annotations/instances_val2017.json").rename(tmp_path / "instances_train2017.json")
        (tmp_path / "val2017").rename(tmp_path / "train2017")
        (tmp_path / "questions.jsonl").rename(tmp_path / "questions_train.jsonl")
        assert len(list(read_coco(tmp_path, "train"))) == 3

    @each(
        ("row", "message"),
        [
            ({"image_id": 7}, "image_id 7 is not in the annotations"),
            ({"image_id": [139]}, r"'image_id' is \[139\]"),
            ({"category": "sofa"}, "category 'sofa' is unknown: the annotations have bear, chair, tv"),
            ({"category": "bear"}, "image 000000000139.jpg has no box of 'bear'"),
            ({"annotation_ids": [1772]}, "annotation 1772 is not one of image 000000000139.jpg"),
            ({"annotation_ids": []}, r"'annotation_ids' is \[\]: it should have at least 1 item"),
            ({"annotation_ids": 1768}, "'annotation_ids' is 1768"),
            ({"annotation_ids": [1.5]}, r"'annotation_ids'\[0\] is 1.5"),
            ({"category": "tv", "annotation_ids": [1768]}, "both 'category' and 'annotation_ids'"),
        ],
    )
    def test_refusals_name_the_line(self, tmp_path, row, message):
        coco(tmp_path)
        write_lines(tmp_path / "questions.jsonl", {"image_id": 139, "question": "Q", "answer": "A"} | row)
        with pytest.raises(ValueError, match=r"questions.jsonl, line 1\b.*" + message):
            list(read_coco(tmp_path))

    @each(
        ("annotation", "message"),
        [
            ({"image_id": 7}, "image 7 is not in the file"),
            ({"category_id": 7}, "category 7 is not in the file"),
            ({"bbox": [1, 2, 3]}, r"'bbox'\[3\] is missing in \[1, 2, 3\]"),
            ({"bbox": [1, 2, -3, 4]}, "has no area as xywh"),
            ({"bbox": None}, "'bbox' is None: it should be"),
        ],
    )
    def test_bad_annotations(self, tmp_path, annotation, message):
        coco(tmp_path)
        path = tmp_path / "annotations/instances_val2017.json"
        content = json.loads(path.read_text())
        content["annotations"][1] |= annotation
        write(path, content)
        with pytest.raises(ValueError, match=r"instances_val2017.json, record 2: .*" + message):
            read_coco(tmp_path)

    @each("key", ["images", "categories", "annotations"])
    def test_an_id_that_comes_twice_is_refused_with_both_places(self, tmp_path, key):
        """One of them would overwrite the other, and a question would have another's box."""
        coco(tmp_path)
        path = tmp_path / "annotations/instances_val2017.json"
        content = json.loads(path.read_text())
        content[key].append(content[key][0] | {"id": str(content[key][0]["id"])})  # "139" and 139 are one
        write(path, content)
        places = (
            rf"record {len(content[key])} repeats the id '\d+' of .*instances_val2017.json, record 1: give"
        )
        with pytest.raises(ValueError, match=places):
            read_coco(tmp_path)

    def test_missing_files(self, tmp_path):
        with pytest.raises(
            ValueError,
            match=r"has no questions_val.jsonl or questions.jsonl or templates.json: put questions",
        ):
            read_coco(tmp_path)
        coco(tmp_path)
        (tmp_path / "annotations/instances_val2017.json").unlink()
        with pytest.raises(ValueError, match=r"has no annotations/instances_val2017.json or .*put"):
            read_coco(tmp_path)


class TestIds:
    def test_an_annotation_of_vqav2_that_comes_twice(self, tmp_path):
        vqav2(tmp_path)
        path = tmp_path / "v2_mscoco_val2014_annotations.json"
        content = json.loads(path.read_text())
        content["annotations"].append(content["annotations"][1])
        write(path, content)
        with pytest.raises(ValueError, match=r"record 3 repeats the id '42001' of .*record 2: give each"):
            read_vqav2(tmp_path)

    @each(
        ("name", "build", "file", "key"),
        [
            ("vqav2", vqav2, "v2_OpenEnded_mscoco_val2014_questions.json", "questions"),
            ("textvqa", textvqa, "TextVQA_0.5.1_val.json", "data"),
            ("docvqa", docvqa, "val_v1.0_withQT.json", "data"),
        ],
    )
    def test_a_question_that_comes_twice(self, tmp_path, name, build, file, key):
        build(tmp_path)
        path = next(tmp_path.rglob(file))
        content = json.loads(path.read_text())
        content[key].append(content[key][0])
        write(path, content)
        last = len(content[key])
        with pytest.raises(ValueError, match=rf"record {last} repeats the id '\d+' of .*record 1: give each"):
            list(open_data(f"{name}:{tmp_path}")[1])

    def test_a_line_that_comes_twice(self, tmp_path):
        draw(tmp_path / "a.png")
        row = {"id": 7, "image": "a.png", "question": "What?", "answer": "a"}
        write_lines(tmp_path / "questions.jsonl", row, {**row, "id": "7"})
        for name in ("jsonl", "folder"):
            with pytest.raises(ValueError, match=r"line 2 repeats the id '7' of .*line 1: give each"):
                list(open_data(f"{name}:{tmp_path}")[1])


class TestFindImage:
    @each("name", ["a.jpg", "a.jpeg", "a.png", "a.webp", "a.tiff", "a.JPG", "a.PNG"])
    def test_any_ending(self, tmp_path, name):
        draw(tmp_path / name)
        assert find_image(tmp_path, "a", "here") == tmp_path / name
        assert find_image(tmp_path, "a.bmp", "here") == tmp_path / name

    def test_the_name_itself_comes_first(self, tmp_path):
        draw(tmp_path / "a.png")
        draw(tmp_path / "a.jpg")
        assert find_image(tmp_path, "a.png", "here").name == "a.png"
        draw(tmp_path / "images/b.png")
        draw(tmp_path / "b.jpg")
        assert find_image(tmp_path, "b.png", "here", ("", "images")) == tmp_path / "images/b.png"

    def test_a_dot_in_the_stem(self, tmp_path):
        draw(tmp_path / "page.v2.png")
        assert find_image(tmp_path, "page.v2", "here").name == "page.v2.png"

    def test_in_folders_of_splits(self, tmp_path):
        draw(tmp_path / "val/a.png")
        assert find_image(tmp_path, "a.png", "here", ("train", "val", "")) == tmp_path / "val/a.png"

    def test_a_link_to_a_folder_elsewhere(self, tmp_path):
        draw(tmp_path / "elsewhere/a.png")
        (tmp_path / "data").mkdir()
        (tmp_path / "data/images").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ValueError, match=r"here: image 'a.png' is reached by a link out of .*: put the"):
            find_image(tmp_path / "data", "a.png", "here", ("images",))
        (tmp_path / "mine").symlink_to(tmp_path / "elsewhere")  # the user's own
        assert find_image(tmp_path / "mine", "a.png", "here").is_file()

    @each(
        "name",
        [
            "../a.png",
            "b/../../a.png",
            "/etc/passwd",
            "~/a.png",
            "..\\a.png",
            "C:/a.png",
            "c:a.png",
            "\\\\host\\a.png",
            "https://example.org/a.png",
            "a\x00.png",
            "a\n.png",
            ".",
            "",
        ],
    )
    def test_names_that_lead_out_of_the_folder(self, tmp_path, name):
        draw(tmp_path / "a.png")
        (tmp_path / "data/b").mkdir(parents=True)
        with pytest.raises(
            ValueError, match=r"here: image .* is no name of a file in the folder: use a relative"
        ):
            find_image(tmp_path / "data", name, "here")

    @each("name", ["b", "folder", "a" * 5000, "\ud800", "..."])
    def test_names_of_nothing(self, tmp_path, name):
        (tmp_path / "folder").mkdir()
        with pytest.raises(
            ValueError, match=r"here: image .* is not in .*: unpack the images there"
        ) as error:
            find_image(tmp_path, name, "here")
        assert len(str(error.value)) < 400 + len(str(tmp_path))


class TestNested:
    """Archives and downloads put a data set one folder deeper than it is described."""

    def test_one_folder_deeper(self, tmp_path):
        coco(tmp_path / "mine")
        (tmp_path / "README.md").write_text("of the Hub")
        (tmp_path / ".cache").mkdir()
        examples = list(open_data(f"coco:{tmp_path}")[1])
        assert [example.image.parent for example in examples] == [tmp_path / "mine/val2017"] * 3

    def test_of_several_one_is_to_be_named(self, tmp_path):
        coco(tmp_path / "a")
        coco(tmp_path / "b")
        with pytest.raises(ValueError, match=r"has questions in several folders \(a, b\): give one of them"):
            open_data(f"coco:{tmp_path}")

    def test_a_damaged_file_is_not_passed_over(self, tmp_path):
        coco(tmp_path)
        coco(tmp_path / "copy")
        (tmp_path / "annotations/instances_val2017.json").write_text("{")
        with pytest.raises(ValueError, match="is not JSON"):
            open_data(f"coco:{tmp_path}")


class TestPope:
    def test_categories_number_their_questions_alike(self, tmp_path):
        row = {"question_id": 1, "image": "COCO_val2014_000000310196.jpg", "text": "Is there a dog?"}
        for i, category in enumerate(("random", "popular", "adversarial")):
            write_lines(
                tmp_path / f"coco/coco_pope_{category}.json", {**row, "label": ("yes", "no", "no")[i]}
            )
        draw(tmp_path / "val2014/COCO_val2014_000000310196.jpg")
        data, examples = open_data(f"pope:{tmp_path}")
        assert [(example.id, example.answers) for example in examples] == [
            ("random/1", ("yes",)),
            ("popular/1", ("no",)),
            ("adversarial/1", ("no",)),
        ]
        (example,) = open_data(f"pope:{tmp_path}", "popular")[1]
        assert example.meta["category"] == "popular"
        assert data.metric is not None
        assert data.metric("No.", example.answers) == 1


class TestOpenData:
    def test_every_data_set(self, tmp_path):
        """By name, as the command line gives it; one example each, scored by its own metric."""
        for name, build in {
            "vqav2": vqav2,
            "textvqa": textvqa,
            "docvqa": docvqa,
            "chartqa": chartqa,
            "gqa": gqa,
            "coco": coco,
        }.items():
            build(tmp_path / name)
            data, examples = open_data(f"{name}:{tmp_path / name}", limit=1)
            (example,) = examples
            assert data is data_sets()[name]
            assert open_image(example.image).size == (8, 6)
            assert data.metric is not None
            assert data.metric(example.answers[-1] or example.answers[0], example.answers) == pytest.approx(1)
            assert data.metric("nothing of this", example.answers) == 0
            hash(example)

    def test_own_data(self, tmp_path):
        draw(tmp_path / "a.png")
        write_lines(tmp_path / "questions.jsonl", {"image": "a.png", "question": "Q", "answer": "Yes"})
        data, examples = open_data(f"jsonl:{tmp_path}")
        assert data.metric is not None
        assert data.metric("yes.", next(examples).answers) == 1
        data, examples = open_data(f" Folder : {tmp_path} ", split="train")
        assert data.metric is None
        assert next(examples).answers == ()

    def test_what_arr_coc_draw_writes(self, tmp_path):
        from arr_coc_lab.cli.draw import command as draw_pages

        draw_pages(count=1, size="224x224", seed=0, split="test", out=str(tmp_path), as_json=True)
        examples = list(open_data(f"jsonl:{tmp_path}")[1])
        assert len(examples) > 1
        assert {example.image.name for example in examples} == {"page-0000.png"}
        assert all(example.answers and example.meta["family"] for example in examples)
        assert any(example.boxes for example in examples)

    def test_prompts(self):
        short = "\nAnswer the question using a single word or phrase."
        assert {name for name, data in data_sets().items() if data.prompt == short} == {
            "vqav2",
            "textvqa",
            "docvqa",
            "chartqa",
            "gqa",
            "pope",
            "infovqa",
            "bbox-docvqa",
            "parquet",
        }
        assert all(data.name == name for name, data in data_sets().items())

    def test_limit(self, tmp_path):
        vqav2(tmp_path)
        assert len(list(open_data(f"vqav2:{tmp_path}", limit=1)[1])) == 1
        assert len(list(open_data(f"vqav2:{tmp_path}", limit=9)[1])) == 2
        for limit in (0, -1):
            with pytest.raises(ValueError, match=f"limit {limit} leaves no questions"):
                open_data(f"vqav2:{tmp_path}", limit=limit)

    @each("spec", ["textvqa", "", "/data/textvqa", "textvqa:", "textvqa: "])
    def test_specs_of_another_form(self, spec):
        with pytest.raises(ValueError, match="is not NAME:DIR: write for example textvqa:/data/textvqa"):
            open_data(spec)

    def test_an_unknown_name_lists_the_known(self, tmp_path):
        with pytest.raises(
            ValueError, match=r"'okvqa' is unknown: use one of vqav2, textvqa, .*folder, or jsonl:DIR"
        ):
            open_data(f"okvqa:{tmp_path}")

    @each("name", data_sets())
    def test_missing_folder_and_missing_file(self, tmp_path, name):
        with pytest.raises(ValueError, match=r"folder '.*nowhere' does not exist: check the path"):
            open_data(f"{name}:{tmp_path / 'nowhere'}")
        with pytest.raises(ValueError, match=rf"{tmp_path.name} has no .*(put|give|write) "):
            open_data(f"{name}:{tmp_path}")

    def test_a_file_in_place_of_a_folder(self, tmp_path):
        write(tmp_path / "val.json", {})
        with pytest.raises(ValueError, match="is a file: give the folder"):
            open_data(f"textvqa:{tmp_path / 'val.json'}")

    @each(
        ("content", "message"),
        [
            (b'{"data": [\n{"question": }]}', "val.json: line 2, column 14 is not JSON .Expecting value"),
            (b"", "val.json: column 1 is not JSON"),
            (b"\xff\xfe", "val.json is not UTF-8 text"),
            (b"[" * 100_000, "val.json can't be read .nested too deep"),
        ],
    )
    def test_files_that_are_no_json(self, tmp_path, content, message):
        (tmp_path / "TextVQA_0.5.1_val.json").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            open_data(f"textvqa:{tmp_path}")

    def test_every_message_is_one_line(self, tmp_path):
        draw(tmp_path / "a.png")
        row = {"image": "a.png", "question": "Q", "answer": {"a\nb": "x" * 1000}}
        write_lines(tmp_path / "questions.jsonl", row)
        with pytest.raises(ValueError, match="'answer' is") as error:
            next(open_data(f"jsonl:{tmp_path}")[1])
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300 + len(str(tmp_path))

    @pytest.mark.slow
    def test_without_torch(self):
        modules = "arr_coc_lab.data, arr_coc.data.metrics, arr_coc_lab.results"
        code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
