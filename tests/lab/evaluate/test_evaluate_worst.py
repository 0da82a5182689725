"""The worst cases of a result file: which, in what order, with what image; hostile files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.evaluate.worst import case_images, worst_cases
from arr_coc_lab.results.files import encode_kept, read_results, write_results

REAL = Path(__file__).parents[3] / "runs" / "results" / "sparse.jsonl.gz"
HEADER = {"data": "world", "size": 128, "split": "test"}
OURS = "arr-coc@4"


def record(i: int, ours: float, full: float, **more: Any) -> dict[str, Any]:
    """One question about a page of 4 x 4 cells."""
    return {
        "id": f"{i}",
        "image": f"test:{i}",
        "family": "value",
        "question": f"Question {i}?",
        "answers": ["A", "B", "A"],
        "total": 16,
        "grid": [1, 4, 4],
        "said": {"full": "A", OURS: "C"},
        "score": {"full": full, OURS: ours},
        "kept": {OURS: encode_kept([1, 2, 5, i], 16)},
    } | more


def write_questions(folder: Path, *rows: dict[str, Any]) -> None:
    """The questions of a user's own data set."""
    lines = [json.dumps({"question": "Who?", "answer": "A"} | row) + "\n" for row in rows]
    (folder / "questions.jsonl").write_text("".join(lines))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def test_the_biggest_loss_comes_first(path: Path) -> None:
    scores = [(1, 1), (0.5, 1), (0, 0), (0, 1), (0.5, 0), (0, 1), (0.9, 1)]
    write_results(path, HEADER, [record(i + 6, *pair) for i, pair in enumerate(scores)])
    cases = worst_cases(path)
    assert [case["id"] for case in cases] == ["9", "11", "7", "12", "8", "10"]  # never the perfect one
    assert [case["id"] for case in worst_cases(path, OURS, count=2)] == ["9", "11"]
    assert cases[0] == {
        "id": "9",
        "image": "test:9",
        "family": "value",
        "question": "Question 9?",
        "answer": "C",
        "right": "A | B",
        "full": "A",
        "score": 0,
        "full_score": 1,
        "kept": [1, 2, 5, 9],
        "grid": [4, 4],
    }


def test_without_full_the_lowest_score_comes_first(path: Path) -> None:
    lines = [record(i + 6, score, 1) for i, score in enumerate((0.5, 1, 0))]
    for line in lines:
        del line["score"]["full"], line["said"]["full"]
    write_results(path, HEADER, lines)
    cases = worst_cases(path)
    assert [case["id"] for case in cases] == ["8", "6"]
    assert cases[0]["full"] is cases[0]["full_score"] is None


def test_a_method_without_cells_and_a_question_it_did_not_answer(path: Path) -> None:
    lines = [record(i + 6, 0, 1) for i in range(2)]
    lines[1]["score"]["downsample@4"], lines[1]["said"]["downsample@4"] = 0, "D"
    write_results(path, HEADER, lines)
    (case,) = worst_cases(path, "downsample@4")
    assert (case["id"], case["answer"], case["kept"]) == ("7", "D", None)


@pytest.mark.slow
def test_a_real_run() -> None:
    _, records = read_results(REAL)
    by_id = {record["id"]: record for record in records}
    cases = worst_cases(REAL, "random@64")
    assert len(cases) == 24
    assert json.loads(json.dumps(cases, allow_nan=False)) == cases
    for case in cases:
        assert (case["score"], case["full_score"]) == (0, 1)
        assert case["answer"] == by_id[case["id"]]["said"]["random@64"]
        assert len(case["kept"]) == 64
        assert case["grid"] == [32, 32]
    assert worst_cases(REAL) == worst_cases(REAL, "arr-coc@273")  # the first of ours


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, "'question'"),
        ({"family": 3}, "'family'"),
        ({"answers": []}, "'answers'"),
        ({"answers": "A"}, "'answers'"),
        ({"answers": [1]}, "'answers'"),
        ({"said": None}, "'said'"),
        ({"said": {OURS: 3}}, "'said'"),
        ({"said": {"full": "A"}}, "not its answer"),
        ({"grid": None}, "'grid'"),
        ({"grid": [4, 4]}, "'grid'"),
        ({"grid": [1, 4, True]}, "'grid'"),
        ({"grid": [1, 4, -4]}, "'grid'"),
        ({"grid": [1, 4, 10**400]}, "'grid'"),
        ({"grid": [2, 4, 4]}, "'grid'"),
        ({"grid": [1, 4, 40]}, "no mask of 160 cells"),
        ({"kept": []}, "'kept'"),
        ({"kept": {OURS: [1, 2]}}, "'kept'"),
        ({"kept": {OURS: "ä!"}}, "not base64"),
        ({"kept": {OURS: "AAAA"}}, "no mask of 16 cells"),
        ({"score": {OURS: "0"}}, "should be a valid number"),
        ({"score": {OURS: float("nan")}}, "NaN is no number"),
        ({"score": None, "error": "it is damaged", "id": 7}, "'id'"),
        ({"id": "6"}, "repeats the id"),
    ],
)
def test_a_bad_line_is_named(path: Path, change: dict[str, Any], message: str) -> None:
    lines = [{"header": HEADER}, record(6, 1, 1), record(7, 0, 1) | change]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"out\.jsonl, line 3.*{message}"):
        worst_cases(path, OURS)


def test_no_result_file(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b'{"header": {}}\n{"id": \xff}\n{}\n')
    with pytest.raises(ValueError, match="line 2 is not UTF-8"):
        worst_cases(path)
    with pytest.raises(ValueError, match="cannot be read"):
        worst_cases(tmp_path)
    short = tmp_path / "short.jsonl.gz"
    short.write_bytes(REAL.read_bytes()[:5000])
    with pytest.raises(ValueError, match="no whole gzip file"):
        worst_cases(short)


def test_unknown_methods_and_counts_are_refused(path: Path) -> None:
    write_results(path, HEADER, [record(6, 0, 1)])
    with pytest.raises(ValueError, match=r"no method 'arr-coc@5': use one of full, arr-coc@4"):
        worst_cases(path, "arr-coc@5")
    with pytest.raises(ValueError, match="count 0 is too small"):
        worst_cases(path, count=0)
    write_results(path, HEADER, [record(6, 0, 1, score={"full": 0})])
    with pytest.raises(ValueError, match="no answers of arr-coc: name one of full"):
        worst_cases(path)
    write_results(path, HEADER)
    with pytest.raises(ValueError, match="no answers of arr-coc"):
        worst_cases(path)


# ---- the image ------------------------------------------------------------------------------------------


def test_a_page_is_drawn_again(path: Path) -> None:
    asked = next(iter(world_questions(1, 128)))
    assert isinstance(asked.image, Image.Image)
    write_results(path, HEADER, [record(6, 0, 1, image=asked.key)])
    (image,) = case_images(path, worst_cases(path)[:1])
    assert image.size == (128, 128)
    assert image.tobytes() == asked.image.tobytes()


@pytest.mark.parametrize(
    ("header", "image", "message"),
    [
        ({"size": 10**6}, "test:1", "out of range"),
        ({"size": None}, "test:1", "no drawn page"),
        ({}, "test:-1", "no drawn page"),
        ({}, "test:" + "9" * 5000, "no drawn page"),
        ({}, "nowhere:1", "split 'nowhere' is unknown"),
        ({}, "1", "no drawn page"),
        ({"data": None}, "test:1", "has no `data`"),
        ({"data": "jsonl:"}, "jsonl:a.png", "not NAME:DIR"),
        ({"data": "jsonl:{}/.."}, "jsonl:secret.png", "put the data set"),
        ({"data": "jsonl:{}"}, "jsonl:../secret.png", "put the data set"),
        ({"data": "jsonl:{}"}, "jsonl:/etc/hostname", "put the data set"),
        ({"data": "jsonl:{}"}, "coco:a.png", "put the data set"),
        ({"data": "jsonl:{}"}, "jsonl:b.png", "put the data set"),  # there, but of another question
        ({"data": "jsonl:{}"}, "jsonl:c.png", "put the data set"),  # there, but of no question
        ({"data": "jsonl:{}"}, "jsonl:text.png", "not an image"),
    ],
)
def test_an_image_that_can_not_be_had(
    path: Path, tmp_path: Path, header: dict[str, Any], image: str, message: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "text.png").write_text("text")
    for place in (tmp_path / "secret.png", folder / "b.png", folder / "c.png"):
        Image.new("RGB", (8, 8)).save(place)
    write_questions(folder, {"id": 6, "image": "text.png"}, {"id": 7, "image": "b.png"})
    header = {name: v.format(folder) if isinstance(v, str) else v for name, v in header.items()}
    write_results(path, HEADER | header, [record(6, 0, 1, image=image)])
    with pytest.raises(ValueError, match=message):
        case_images(path, worst_cases(path)[:1])


def test_a_file_is_opened_where_the_data_lies(path: Path, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for i in (6, 7):
        Image.new("RGB", (3 + i, 8), "red").save(tmp_path / "images" / f"a:{i}.png")
    write_questions(tmp_path, *({"id": i, "image": f"images/a:{i}.png"} for i in (7, 6)))
    lines = [record(i, 0, 1, image=f"jsonl:images/a:{i}.png") for i in (6, 7)]
    for data in (f"jsonl:{tmp_path}", f"jsonl:{tmp_path / 'questions.jsonl'}"):
        write_results(path, {"data": data}, lines)
        cases = worst_cases(path)
        assert [image.size for image in case_images(path, cases)] == [(9, 8), (10, 8)]
        assert case_images(path, cases[1:])[0].size == (10, 8)


def test_a_question_that_was_not_asked_is_no_case(path: Path) -> None:
    failed = {"id": "8", "image": "test:8", "error": "it is damaged"}
    write_results(path, HEADER, [failed, record(6, 0, 1)])
    assert [case["id"] for case in worst_cases(path)] == ["6"]
