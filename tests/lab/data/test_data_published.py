"""Sets that are lists of questions: small files as the authors publish them, read with their evidence."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc.data import data_sets, open_data
from arr_coc_lab.data import listed
from arr_coc_lab.evaluate.questions import data_questions
from each import each

LETTER = "\nAnswer with the option's letter from the given choices directly."


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    return tmp_path / "assets"


def draw(path: Path, size: tuple[int, int] = (80, 60)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "red").save(path)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_lines(path: Path, *rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def encoded(shade: int = 0) -> str:
    content = io.BytesIO()
    Image.new("RGB", (40, 32), (shade, 0, 0)).save(content, "JPEG")
    return base64.b64encode(content.getvalue()).decode()


def vstar(folder: Path) -> None:
    options = "\n(A) The glove is of cotton.\n(B) The glove is of rubber."
    rows = [
        {
            "image": "direct_attributes/sa_4690.jpg", "text": f"What is the glove of?{options}{LETTER}",
            "category": "direct_attributes", "label": "B", "question_id": 0,
        },
        {
            "image": "relative_position/sa_1.jpg", "text": f"Where is it?\n(A) left\n(B) right{LETTER}",
            "category": "relative_position", "label": "A", "question_id": 0,
        },
    ]  # fmt: skip
    write_lines(folder / "test_questions.jsonl", *rows)
    for row in rows:
        draw(folder / row["image"])
    boxes = {"target_object": ["glove"], "bbox": [[56, 14, 15, 20]], "question": "?", "options": ["x", "y"]}
    write(folder / "direct_attributes/sa_4690.json", boxes)
    two = {"target_object": ["dog", "cart"], "bbox": [[1, 2, 3, 4], [5, 6, 7, 8]]}
    write(folder / "relative_position/sa_1.json", two)


def hrbench(folder: Path, *changes: dict[str, Any]) -> None:
    rows = [
        {
            "index": str(i), "question": 'What does the "sign" say?', "answer": "AB"[i], "A": "Exit\nnow",
            "B": "Stop", "C": "Go", "D": "", "category": "single", "cycle_category": str(i),
            "image": encoded() if i == 0 else "0",
        }
        for i in range(2)
    ]  # fmt: skip
    for row, change in zip(rows, changes, strict=False):
        row.update(change)

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if set(text) & set('"\t\n') else text

    lines = ["\t".join(rows[0]), *("\t".join(map(quoted, row.values())) for row in rows)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hr_bench_4k.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def infovqa(folder: Path) -> None:
    record = {
        "questionId": 98313, "question": "Which state?", "image_local_name": "37313.jpeg",
        "image_url": "https://example.org/a.png", "ocr_output_file": "37313.json",
        "answers": ["florida", "FL"], "answer_type": ["single span"], "evidence": ["Map"],
        "operation/reasoning": [], "data_split": "val",
    }  # fmt: skip
    head = {"dataset_name": "infographicVQA", "dataset_version": "1.0", "dataset_split": "val"}
    write(folder / "infographicsVQA_val_v1.0_withQT.json", head | {"data": [record]})
    draw(folder / "infographicsvqa_images/37313.jpeg")


def mme(folder: Path) -> None:
    choices = ["(A) A car", "(B) Nothing", "(C) A bus", "(D) A tree", "(E) The image does not feature it."]
    record = {
        "Question_id": "Perception/Autonomous_Driving/Objects_Identify/0000",
        "Image": "AutonomousDriving/nuScenes/n008.jpg", "Text": "What is in front?",
        "Question Type": "Multiple Choice", "Answer choices": choices, "Ground truth": "D",
        "Category": "Objects_Identify", "Subtask": "Autonomous_Driving", "Task": "Perception",
    }  # fmt: skip
    write(folder / "MME_RealWorld.json", [record])
    draw(folder / record["Image"])


def ocrbench(folder: Path) -> None:
    records = [
        {
            "dataset_name": name, "id": 7, "image_path": f"{name}/test/1.png", "question": "what is written?",
            "answers": answers, "type": kind,
        }
        for name, answers, kind in (
            ("IIIT5K", "CENTRE", "Regular Text Recognition"),
            ("HME100k", ["y _ { 2 } = - X\n"], "Handwritten Mathematical Expression Recognition"),
        )
    ]  # fmt: skip
    write(folder / "OCRBench/OCRBench.json", records)
    for record in records:
        draw(folder / "OCRBench_Images" / record["image_path"])


V2: tuple[tuple[str, Any, dict[str, Any], str, float], ...] = (
    ("text recognition en", ["Stop"], {}, "It says stop.", 1.0),
    ("text recognition en", ["Stop"], {"eval": "case sensitive"}, "It says stop.", 0.0),
    ("math QA en", ["B"], {"eval": "multiple choice"}, "(B).", 1.0),
    ("math QA en", ["B"], {"eval": "multiple choice"}, "B: nine", 0.0),
    ("diagram QA en", ["one two three four five"], {}, "one two three four fine", 1 - 1 / 23),
    ("cognition VQA cn", ["红 色"], {}, "是红色", 1.0),
    ("text counting en", [4], {"eval": "regression"}, "There are 5", 0.75),
    ("text counting en", ["4"], {"eval": "regression"}, "There are 7", 0.0),
    ("text counting en", ["4"], {"eval": "exact match"}, "There are 4", 1.0),
    ("formula recognition en", ["x ^ 2"], {}, "$x^2$", 1.0),
    ("formula recognition cn", ["\\text{a} + b"], {}, "a+b", 1.0),
    ("text grounding en", [100, 200, 300, 400], {}, "[0,0,1,1] or (100, 200, 300, 300)", 0.5),
    (
        "VQA with position en", ["Stop"], {"bbox": [0, 0, 500, 500]},
        '{"answer": "stop", "bbox": "[0,0,500,250]"}', 0.75,
    ),
    (
        "key information extraction en", [{"total": ["£ 3", "3"], "date": ["May"]}], {},
        "```json\n{\"total\": 3, \"date\": \"June\"}\n```", 0.5,
    ),
    ("key information extraction cn", ["{'总 价': '3元'}"], {}, "总 价: 3 元", 1.0),
)  # fmt: skip


def ocrbench_v2(folder: Path) -> None:
    kinds = [
        *V2,
        ("table parsing en", ["<table></table>"], {}, "", 0),
        ("full-page OCR cn", ["a"], {}, "", 0),
    ]
    records = [
        {
            "dataset_name": "a", "type": kind, "id": i, "image_path": "EN_part/a/1.jpg", "question": "?",
            "answers": answers, **more,
        }
        for i, (kind, answers, more, _, _) in enumerate(kinds)
    ]  # fmt: skip
    write(folder / "OCRBench_v2.json", [*records, records[0] | {"id": 99, "ignore": "True"}])
    draw(folder / "EN_part/a/1.jpg", (200, 100))


def screenspot(folder: Path, end: str = "", images: str = "screenspot_imgs") -> None:
    for kind in ("mobile", "desktop", "web"):
        record = {
            "img_filename": f"{kind}_1.png", "bbox": [8, 6, 16, 12], "instruction": f"open {kind}",
            "data_type": "icon", "data_source": "shop",
        }  # fmt: skip
        write(folder / f"screenspot_{kind}{end}.json", [record, record | {"instruction": "close"}])
        draw(folder / images / record["img_filename"])


def screenspot_pro(folder: Path) -> None:
    for i, app in enumerate(("android_studio_macos", "blender_windows")):
        record = {
            "img_filename": f"{app}/screenshot_1.png", "bbox": [8, 6, 24, 18], "instruction": "open it",
            "instruction_cn": "打开", "id": f"{app}_{i}", "application": app, "platform": "macos",
            "img_size": [80, 60], "ui_type": "text", "group": "Dev",
        }  # fmt: skip
        write(folder / f"annotations/{app}.json", [record])
        draw(folder / "images" / record["img_filename"])


def bbox_docvqa(folder: Path) -> None:
    page = "cs/2311.07631/2311.07631_3.png"
    record = {
        "query": "How many?", "question": "How many?", "answer": "12", "category": "cs",
        "doc_name": "2311.07631", "evidence_page": [3], "image_paths": [page], "images": [page],
        "bbox": [[[1, 2, 30, 40], [5, 6, 70, 50]]],
    }  # fmt: skip
    two = record | {"images": [page, page], "evidence_page": [3, 4], "bbox": [[[1, 2, 3, 4]], [[1, 2, 3, 4]]]}
    write_lines(folder / "BBox_DocVQA_Bench.jsonl", two, record)
    draw(folder / page)


BUILDS = {
    "vstar": vstar,
    "hrbench": hrbench,
    "infovqa": infovqa,
    "mme-realworld": mme,
    "ocrbench": ocrbench,
    "ocrbench-v2": ocrbench_v2,
    "screenspot": screenspot,
    "screenspot-pro": screenspot_pro,
    "bbox-docvqa": bbox_docvqa,
}


def read(name: str, folder: Path, split: str | None = None) -> list[Any]:
    return list(open_data(f"{name}:{folder}", split)[1])


@each("name", BUILDS)
def test_every_set_reads_its_own_answer_as_right(name: str, tmp_path: Path) -> None:
    """In its own folder and in the folder around it, as a download leaves it."""
    BUILDS[name](tmp_path / "around" / "set")
    data, examples = open_data(f"{name}:{tmp_path / 'around'}", limit=1)
    (example,) = examples
    assert (data, example.image.is_file()) == (data_sets()[name], True)
    metric = example.metric or data.metric
    assert metric is not None
    assert metric(example.answers[0], example.answers) == 1
    assert metric("nothing of this", example.answers) == 0
    assert set(data.classes) <= set(example.meta)
    hash(example)


@each("name", BUILDS)
def test_an_unknown_split_is_refused(name: str, tmp_path: Path) -> None:
    BUILDS[name](tmp_path)
    with pytest.raises(ValueError, match="no split 'valid': use one of"):
        open_data(f"{name}:{tmp_path}", "valid")


class TestVstar:
    def test_ids_repeat_by_category_and_boxes_lie_beside_the_picture(self, tmp_path: Path) -> None:
        vstar(tmp_path)
        first, second = read("vstar", tmp_path)
        assert (first.id, second.id) == ("direct_attributes/0", "relative_position/0")
        assert first.question.endswith("\n(B) The glove is of rubber.")
        assert first.answers == ("B", "The glove is of rubber.")
        assert first.boxes == ((56, 14, 71, 34),)
        assert second.boxes == ((1, 2, 4, 6), (5, 6, 12, 14))
        assert second.meta == {"category": "relative_position", "target_object": "dog, cart"}

    def test_a_run_asks_them_by_category_with_their_boxes(self, tmp_path: Path) -> None:
        vstar(tmp_path)
        data, images = data_questions(f"vstar:{tmp_path}")
        first, second = (query for image in images for query in image.queries)
        assert (first.family, second.family) == ("direct_attributes", "relative_position")
        assert first.text.endswith(f"rubber.{LETTER}")
        assert data.prompt == LETTER
        assert first.boxes == ((56, 14, 71, 34),)

    def test_without_boxes(self, tmp_path: Path) -> None:
        vstar(tmp_path)
        (tmp_path / "direct_attributes/sa_4690.json").unlink()
        assert read("vstar", tmp_path)[0].boxes == ()

    @each("content", [[], {"bbox": [[1, 2, 3]]}, {"bbox": "all"}, {"bbox": [[1, 2, -3, 4]]}])
    def test_boxes_of_another_form_are_refused(self, tmp_path: Path, content: Any) -> None:
        vstar(tmp_path)
        write(tmp_path / "direct_attributes/sa_4690.json", content)
        with pytest.raises(ValueError, match=r"sa_4690.json"):
            read("vstar", tmp_path)

    def test_boxes_outside_of_the_folder_are_not_read(self, tmp_path: Path) -> None:
        vstar(tmp_path / "set")
        place = tmp_path / "set/direct_attributes/sa_4690.json"
        place.rename(tmp_path / "mine.json")
        place.symlink_to(tmp_path / "mine.json")
        with pytest.raises(ValueError, match="reached by a link out of"):
            read("vstar", tmp_path / "set")


class TestHrbench:
    def test_pictures_inside_once_for_all_cycles(self, tmp_path: Path, cache: Path) -> None:
        hrbench(tmp_path / "set")
        first, second = read("hrbench", tmp_path / "set", "4k")
        assert first.question == 'What does the "sign" say?\nA. Exit\nnow\nB. Stop\nC. Go'
        assert (first.answers, second.answers) == (("A", "Exit\nnow"), ("B", "Stop"))
        assert first.image == second.image
        assert len([path for path in cache.rglob("*") if path.is_file()]) == 1
        with Image.open(first.image) as image:
            assert image.size == (40, 32)
        assert second.where.endswith("hr_bench_4k.tsv, row 2")
        assert second.meta == {"category": "single", "cycle_category": "1"}

    @each(
        ("change", "reason"),
        [
            ({"image": "9"}, "row 1: picture '9' is neither base64 nor an earlier row's id"),
            ({"image": "*" * 80}, "row 1: the picture is no base64"),
            ({"image": base64.b64encode(b"no picture" * 9).decode()}, "row 1: 'image' begins with"),
            ({"image": ""}, "row 1: 'image' is missing"),
            ({"answer": "E"}, "row 1: option 4 is none of 3"),
            ({"answer": "none"}, "row 1: answer 'none' is no letter"),
            ({"B": "", "C": ""}, "row 1: 1 options are no choice"),
        ],
    )
    def test_refusals(self, tmp_path: Path, change: dict[str, Any], reason: str) -> None:
        hrbench(tmp_path, change)
        with pytest.raises(ValueError, match=reason):
            read("hrbench", tmp_path)

    def test_fields_are_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hrbench(tmp_path)
        monkeypatch.setattr(listed, "MAX_FIELD", 100)
        with pytest.raises(ValueError, match=r"hr_bench_4k.tsv can't be read .*field larger than"):
            read("hrbench", tmp_path)

    @each("content", [b"\xff\xfe", b'index\timage\n1\t"abc', b"index\x00image\n1\t2"])
    def test_damaged_tables(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "hr_bench_8k.tsv").write_bytes(content)
        with pytest.raises(ValueError, match=r"hr_bench_8k.tsv"):
            read("hrbench", tmp_path, "8k")


def test_infovqa(tmp_path: Path) -> None:
    infovqa(tmp_path)
    (example,) = read("infovqa", tmp_path, "val")
    assert (example.id, example.answers) == ("98313", ("florida", "FL"))
    assert example.meta == {"answer_type": "single span", "evidence": "Map"}
    record = {"questionId": 1, "question": "?", "image_local_name": "37313.jpeg", "data_split": "test"}
    write(tmp_path / "infographicsVQA_test_v1.0.json", {"data": [record]})
    assert read("infovqa", tmp_path, "test")[0].answers == ()


def test_mme_realworld(tmp_path: Path) -> None:
    mme(tmp_path)
    (example,) = read("mme-realworld", tmp_path)
    assert example.question.splitlines()[1:3] == ["A. A car", "B. Nothing"]
    assert example.answers == ("D", "A tree")
    assert example.image == tmp_path / "AutonomousDriving/nuScenes/n008.jpg"
    content = json.loads((tmp_path / "MME_RealWorld.json").read_text())
    content[0]["Answer choices"] = "(A) all"
    write(tmp_path / "MME_RealWorld.json", content)
    with pytest.raises(ValueError, match=r"record 1: 'Answer choices' is '\(A\) all'"):
        read("mme-realworld", tmp_path)


def test_ocrbench_scores_formulas_in_their_own_way(tmp_path: Path) -> None:
    ocrbench(tmp_path)
    word, formula = read("ocrbench", tmp_path)
    assert (word.id, formula.id) == ("IIIT5K/7", "HME100k/7")
    metric = data_sets()["ocrbench"].metric
    assert metric is not None
    assert metric("The word is\n“Centre”.", word.answers) == 1
    assert word.metric is None
    assert formula.metric("so $y_{2}=-X$", formula.answers) == 1
    assert formula.metric("so $y_{2}=-x$", formula.answers) == 0


def test_ocrbench_v2_scores_each_kind_in_its_own_way(tmp_path: Path) -> None:
    ocrbench_v2(tmp_path)
    examples = read("ocrbench-v2", tmp_path)
    assert [example.id for example in examples] == [str(i) for i in range(len(V2))]
    for example, (kind, _, _, reply, score) in zip(examples, V2, strict=True):
        assert example.metric(reply, example.answers) == pytest.approx(score), (kind, reply)
        assert example.metric("", example.answers) == 0, kind
    boxes = {example.meta["type"]: example.boxes for example in examples if example.boxes}
    assert boxes == {
        "text grounding en": ((20, 20, 60, 40),),
        "VQA with position en": ((0, 0, 100, 50),),
    }


@each("answers", [["no object"], [], [[1]], ["[" * 5000], [{}]])
def test_ocrbench_v2_refuses_fields_of_another_form(answers: Any, tmp_path: Path) -> None:
    ocrbench_v2(tmp_path)
    record = {
        "type": "key information extraction en", "id": 0, "image_path": "EN_part/a/1.jpg", "question": "?",
        "dataset_name": "a", "answers": answers,
    }  # fmt: skip
    write(tmp_path / "OCRBench_v2.json", [record])
    with pytest.raises(ValueError, match=r"record 1: 'answers' is .*object of fields"):
        read("ocrbench-v2", tmp_path)


class TestScreenspot:
    @each(("end", "images"), [("", "screenspot_imgs"), ("_v2", "screenspotv2_image")])
    def test_all_screens(self, tmp_path: Path, end: str, images: str) -> None:
        screenspot(tmp_path, end, images)
        examples = read("screenspot", tmp_path)
        assert [example.id for example in examples][:3] == [
            f"screenspot_mobile{end}-0",
            f"screenspot_mobile{end}-1",
            f"screenspot_desktop{end}-0",
        ]
        assert examples[0].boxes == ((8, 6, 24, 18),)
        assert examples[0].answers == ("[100.0, 100.0, 300.0, 300.0]",)
        assert examples[0].size == (80, 60)
        assert len(read("screenspot", tmp_path, "web")) == 2

    def test_pro_has_a_file_for_each_application(self, tmp_path: Path) -> None:
        screenspot_pro(tmp_path)
        (tmp_path / "annotations/._blender_windows.json").write_bytes(b"\x00\x05\x16")  # of a Mac's archive
        first, second = read("screenspot-pro", tmp_path)
        assert (first.id, second.id) == ("android_studio_macos_0", "blender_windows_1")
        assert first.boxes == ((8, 6, 24, 18),)
        assert first.answers == second.answers == ("[100.0, 100.0, 300.0, 300.0]",)

    def test_a_picture_that_is_none_and_a_missing_box(self, tmp_path: Path) -> None:
        screenspot(tmp_path)
        (tmp_path / "screenspot_imgs/mobile_1.png").write_bytes(b"%!PS no picture")
        with pytest.raises(ValueError, match=r"screenspot_mobile.json, record 1: .*mobile_1.png"):
            read("screenspot", tmp_path)
        write(tmp_path / "screenspot_web.json", [{"img_filename": "web_1.png", "instruction": "open"}])
        with pytest.raises(ValueError, match="record 1: there is no box in 'bbox'"):
            read("screenspot", tmp_path, "web")


def test_bbox_docvqa_leaves_out_questions_about_two_pages(tmp_path: Path) -> None:
    bbox_docvqa(tmp_path)
    (example,) = read("bbox-docvqa", tmp_path)
    assert example.id == "BBox_DocVQA_Bench-1"
    assert example.boxes == ((1, 2, 30, 40), (5, 6, 70, 50))
    assert example.meta == {"category": "cs", "doc_name": "2311.07631"}
