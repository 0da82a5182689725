"""Public sets that are lists of questions with pictures: where each has what, as a `RecordReader`.

TextVQA        TextVQA_0.5.1_val.json, train_images/003a8ae2ef43b901.jpg     (Singh et al. 2019; textvqa.org)
DocVQA         val_v1.0_withQT.json, documents/xnbl0037_1.png or spdocvqa_images/...
                                                              (Mathew et al. 2021; rrc.cvc.uab.es/?ch=17)
InfographicVQA infographicsVQA_val_v1.0_withQT.json, infographicsvqa_images/37313.jpeg        (the same, 2022)
V*             test_questions.jsonl, direct_attributes/sa_4690.jpg, direct_attributes/sa_4690.json with its
               boxes                                                                  (Wu and Xie 2024)
HR-Bench       hr_bench_4k.tsv, hr_bench_8k.tsv, with the pictures inside               (Wang et al. 2025)
MME-RealWorld  MME_RealWorld.json, diagram_and_table/cons9.jpg                         (Zhang et al. 2025)
OCRBench       OCRBench.json, OCRBench_Images/IIIT5K/test/918_1.png                      (Liu et al. 2024)
OCRBench v2    OCRBench_v2.json, EN_part/..., CN_part/...                                 (Fu et al. 2024)
ScreenSpot     screenspot_web.json, ..., screenspot_imgs/web_....png; v2 as well        (Cheng et al. 2024)
ScreenSpot-Pro annotations/blender_windows.json, ..., images/...                           (Li et al. 2025)
BBox-DocVQA    BBox_DocVQA_Bench.jsonl, cs/2311.07631/2311.07631_3.png                    (Yu et al. 2025)

Left out: of OCRBench v2 the questions that `ocr_metrics` can't score, of BBox-DocVQA those about two pages.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from arr_coc.data.record import (
    Box,
    Example,
    Fields,
    Number,
    check_inside,
    get_meta,
    is_file,
    read_json,
)
from arr_coc.files.atomic import one_line
from arr_coc.files.images import identify
from arr_coc.files.paths import shorten
from arr_coc.files.validation import short
from arr_coc_lab.data.clips import LETTER
from arr_coc_lab.data.listed import Boxes, Record, RecordReader, as_boxes
from arr_coc_lab.data.metrics import contains_formula
from arr_coc_lab.data.ocr_metrics import FIELDS, metric_of

_SPLITS = ("val", "train", "test")

read_textvqa = RecordReader(
    splits={each: ((f"TextVQA_0.5.1_{each}.json",),) for each in _SPLITS},
    hint="put TextVQA_0.5.1_val.json and train_images/003a8ae2ef43b901.jpg into one folder",
    key="data",
    ids=("question_id",),
    image="image_id",
    # those of val are among those of train
    folders=("train_images", "images/train_images", "test_images", "images/test_images", "images"),
    question="question",
    answers="answers",
    hidden=("test",),
    meta=("image_id", "image_classes"),
)


def _page(record: Record, where: str) -> Record:
    """DocVQA's record with the bare name of its page, which is packed in other folders today."""
    image = record.get("image")
    return record | {"image": image.removeprefix("documents/")} if isinstance(image, str) else record


read_docvqa = RecordReader(
    splits={
        split: (
            tuple(
                f"{base}{split}_v1.0{end}.json"
                for base in ("", "spdocvqa_qas/", f"{split}/")
                for end in ("_withQT", "")
            ),
        )
        for split in _SPLITS
    },
    hint="put val_v1.0_withQT.json and spdocvqa_images/xnbl0037_1.png (or documents/...) into one folder",
    key="data",
    ids=("questionId",),
    image="image",
    folders=("documents", "spdocvqa_images", *(f"{each}/documents" for each in _SPLITS), "images", ""),
    question="question",
    answers="answers",
    hidden=("test",),
    meta=("question_types", "docId", "ucsf_document_id", "ucsf_document_page_no"),
    prepare=_page,
)

read_infovqa = RecordReader(
    splits={
        split: (
            tuple(
                f"{base}{name}_{split}_v1.0{end}.json"
                for base in ("", "infographicsvqa_qas/")
                for name in ("infographicsVQA", "infographicVQA")  # both are in use
                for end in ("_withQT", "")
            ),
        )
        for split in _SPLITS
    },
    hint="put infographicsVQA_val_v1.0_withQT.json and infographicsvqa_images/37313.jpeg into one folder",
    key="data",
    ids=("questionId",),
    image="image_local_name",
    folders=("infographicsvqa_images", "images", ""),
    question="question",
    answers="answers",
    hidden=("test",),
    meta=("answer_type", "evidence", "operation/reasoning"),
)


class _Boxed(Fields):
    bbox: Boxes = Field(default_factory=list)


def _with_targets(example: Example, record: Record, folder: Path) -> Example:
    """Return a question of V* without its closing instruction, with its option's text and its things'
    boxes.
    """
    question = example.question.removesuffix(LETTER)
    options = dict(re.findall(r"^\(([A-H])\)\s*(\S.*)$", question, re.MULTILINE))
    answers = (*example.answers, *(options[each] for each in example.answers if each in options))
    path, boxes, names = example.image.with_suffix(".json"), (), {}
    if is_file(path):
        check_inside(path, folder)
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError(f"{path} is no object with boxes: give the file as it is published")
        boxes = as_boxes(_Boxed.of(content, str(path)).bbox, "xywh", str(path))
        names = get_meta(content, "target_object")
    return replace(example, question=question, answers=answers, boxes=boxes, meta={**example.meta, **names})


read_vstar = RecordReader(
    splits={"test": (("test_questions.jsonl",),)},
    hint="put test_questions.jsonl and direct_attributes/sa_4690.jpg into one folder",
    ids=("category", "question_id"),  # each category counts from 0
    image="image",
    question="text",
    answers="label",
    meta=("category",),
    finish=_with_targets,
)

read_hrbench = RecordReader(
    splits={each: ((f"hr_bench_{each}.tsv",),) for each in ("4k", "8k")},
    hint="put hr_bench_4k.tsv there",
    ids=("index",),
    image="image",
    inside=True,
    question="question",
    answers="answer",
    options=("A", "B", "C", "D"),
    meta=("category", "cycle_category"),
)

read_mme_realworld = RecordReader(
    splits={"test": (("MME_RealWorld.json",),), "cn": (("MME_RealWorld_CN.json",),)},
    hint="put MME_RealWorld.json and the unpacked folders of pictures into one folder",
    ids=("Question_id",),
    image="Image",
    question="Text",
    answers="Ground truth",
    options=("Answer choices",),
    meta=("Task", "Subtask", "Category"),
)


def _with_formula(example: Example, record: Record, folder: Path) -> Example:
    """Return a question of OCRBench; handwritten formulas are scored in their own way."""
    is_formula = record.get("dataset_name") == "HME100k"
    return replace(example, metric=contains_formula) if is_formula else example


read_ocrbench = RecordReader(
    splits={"test": (("OCRBench.json", "OCRBench/OCRBench.json"),)},
    hint="put OCRBench.json and OCRBench_Images/IIIT5K/test/918_1.png into one folder",
    ids=("dataset_name", "id"),  # each of its data sets numbers its own
    image="image_path",
    folders=("OCRBench_Images", "images", ""),
    question="question",
    answers="answers",
    meta=("dataset_name", "type"),
    finish=_with_formula,
)


_PLACED = ("text grounding en", "VQA with position en")


def _scored(record: Record, where: str) -> Record | None:
    """Return a record of OCRBench v2 with its answers as texts, or None if its answer can't be scored
    here.
    """
    kind, answers = str(record.get("type")), record.get("answers")
    if "ignore" in record or metric_of(kind, record.get("eval"), ((0, 0, 1, 1),)) is None:
        return None
    if kind in FIELDS:
        first = answers[0] if isinstance(answers, list) and answers else answers
        return record | {"answers": json.dumps(_fields_of(first, where), ensure_ascii=False)}
    return record


def _fields_of(value: Any, where: str) -> dict[str, Any]:
    """Return the fields of an answer, which is an object or one as text, of JSON or Python, once or twice
    quoted.
    """
    for _ in range(3):
        if not isinstance(value, str):
            break
        for parse in (json.loads, ast.literal_eval):
            try:
                value = parse(value)
                break
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{where}: 'answers' is {short(value)}: it should be an object of fields")
    return {str(name): each for name, each in value.items()}


def _with_place(example: Example, record: Record, folder: Path) -> Example:
    """Return a question of OCRBench v2 with its metric, and its box where the answer is a place, in
    thousandths.
    """
    kind = str(record.get("type"))
    place = record.get("answers") if kind == "text grounding en" else record.get("bbox", [])
    numbers = _Boxed.of({"bbox": place}, example.where).bbox if kind in _PLACED else []
    boxes = as_boxes(numbers, "xyxy", example.where)
    metric = metric_of(kind, record.get("eval"), boxes)
    size = _size(example) if boxes else None
    scaled = tuple(_scaled(box, size[0] / 1000, size[1] / 1000) for box in boxes) if size else ()
    return replace(example, metric=metric, boxes=scaled)


def _scaled(box: Box, x: float, y: float) -> Box:
    return box[0] * x, box[1] * y, box[2] * x, box[3] * y


def _size(example: Example) -> tuple[int, int]:
    """Return the size of a picture in px, from its head alone."""
    try:
        with example.image.open("rb") as file, identify(file, shorten(example.image)) as image:
            return image.size
    except (OSError, ValueError) as error:
        raise ValueError(f"{example.where}: {one_line(error)}") from error


read_ocrbench_v2 = RecordReader(
    splits={"test": (("OCRBench_v2.json",),)},
    hint="put OCRBench_v2.json, EN_part and CN_part into one folder",
    ids=("id",),
    image="image_path",
    question="question",
    answers="answers",
    meta=("dataset_name", "type", "eval"),
    prepare=_scored,
    finish=_with_place,
)


class _Screen(Fields):
    img_size: tuple[Number, Number] | None = None


def _with_target(example: Example, record: Record, folder: Path) -> Example:
    """Return a question of ScreenSpot whose answers are its boxes as text, in thousandths of the picture's
    sides.
    """
    size = _Screen.of(record, example.where).img_size
    width, height = size if size and min(size) >= 1 else _size(example)
    scaled = (_scaled(box, 1000 / width, 1000 / height) for box in example.boxes)
    answers = tuple(str([round(number, 2) for number in box]) for box in scaled)
    if not answers:
        raise ValueError(f"{example.where}: there is no box in 'bbox': write it")
    return replace(example, answers=answers, size=(int(width), int(height)))


_SCREENS = {
    each: (f"screenspot_{each}.json", f"screenspot_{each}_v2.json") for each in ("mobile", "desktop", "web")
}

read_screenspot = RecordReader(
    splits={"test": tuple(_SCREENS.values())} | {each: (names,) for each, names in _SCREENS.items()},
    hint="put screenspot_mobile.json, ... and screenspot_imgs into one folder",
    image="img_filename",
    folders=("screenspot_imgs", "screenspotv2_image", "images", ""),
    question="instruction",
    boxes="bbox",
    form="xywh",
    meta=("data_type", "data_source"),
    finish=_with_target,
)

read_screenspot_pro = RecordReader(
    splits={"test": (("annotations/*.json",),)},
    hint="put annotations/ and images/ into one folder",
    ids=("id",),
    image="img_filename",
    folders=("images", ""),
    question="instruction",
    boxes="bbox",
    meta=("group", "platform", "application", "ui_type"),
    finish=_with_target,
)


def _one_page(record: Record, where: str) -> Record | None:
    """Return a record of BBox-DocVQA with the name of its page, or None if it is about several."""
    images = record.get("images", record.get("image_paths"))
    if isinstance(images, list):
        return record | {"images": images[0]} if len(images) == 1 else None
    return record


read_bbox_docvqa = RecordReader(
    splits={each: ((f"BBox_DocVQA_{each.title()}.jsonl",),) for each in ("bench", "train")},
    hint="put BBox_DocVQA_Bench.jsonl and its folders of pages into one folder",
    image="images",
    question="question",
    answers="answer",
    boxes="bbox",
    meta=("category", "doc_name"),
    prepare=_one_page,
)
