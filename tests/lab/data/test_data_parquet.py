"""Questions of parquet files, with their images inside."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc.data import open_data
from each import each

needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="no pyarrow here")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    return tmp_path / "assets"


def picture(shade: int = 0, kind: str = "PNG") -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (40, 32), (shade, 0, 0)).save(content, kind)
    return content.getvalue()


def write(path: Path, rows: list[dict[str, Any]], **types: Any) -> None:
    """Rows as a file, with what the Hub's own writer leaves in it."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@needs_pyarrow
class TestForms:
    def test_as_textvqa_is_on_the_hub(self, tmp_path: Path) -> None:
        """Images as {bytes, path}, ids as numbers, ten answers, further columns."""
        rows = [
            {
                "image_id": "003a", "question_id": 34602 + i, "question": f"What is it, {i}?",
                "image": {"bytes": picture(i // 2), "path": None}, "answers": ["a dog", "dog"],
                "image_classes": ["Dog"], "set_name": "val", "image_width": 40,
            }
            for i in range(3)
        ]  # fmt: skip
        write(tmp_path / "data" / "validation-00000-of-00002.parquet", rows[:2])
        write(tmp_path / "data" / "validation-00001-of-00002.parquet", rows[2:])
        data, examples = open_data(f"parquet:{tmp_path}")
        first, second, third = examples
        assert (first.id, first.question, first.answers) == ("34602", "What is it, 0?", ("a dog", "dog"))
        assert first.meta == {"image_id": "003a", "set_name": "val", "image_width": "40"}
        assert first.image == second.image != third.image
        with Image.open(third.image) as image:
            assert image.getpixel((0, 0)) == (1, 0, 0)
        assert data.metric is not None
        assert data.metric("dog", first.answers) == 1

    @each(
        ("row", "answers"),
        [
            ({"image": picture(), "answer": "yes"}, ("yes",)),
            ({"image": [{"bytes": picture(kind="JPEG"), "path": "b.jpg"}], "answer": "2"}, ("2",)),
            ({"image": "own.png", "answers": [{"answer": "a", "answer_id": 1}]}, ("a",)),
            ({"image": {"bytes": None, "path": "own.png"}, "answers": None}, ()),
            ({"image": picture(kind="WEBP")}, ()),
        ],
    )
    def test_other_forms_of_images_and_answers(
        self, tmp_path: Path, row: dict[str, Any], answers: tuple[str, ...]
    ) -> None:
        (tmp_path / "own.png").write_bytes(picture(3))
        write(tmp_path / "test.parquet", [{"question": "Which?"} | row])
        (example,) = open_data(f"parquet:{tmp_path}", "test")[1]
        assert (example.id, example.answers) == ("test-1", answers)
        with Image.open(example.image) as image:
            assert image.size == (40, 32)

    @each(
        ("values", "answers"),
        [
            ([0, 3, None], [("0",), ("3",), ()]),
            ([0.0, 2.5, float("nan")], [("0.0",), ("2.5",), ()]),
            (["0", "", None], [("0",), (), ()]),
            ([[0], [], None], [("0",), (), ()]),
            ([[1.5, float("nan")], None], [("1.5", ""), ()]),
        ],
    )
    def test_zero_is_an_answer(self, tmp_path: Path, values: list[Any], answers: list[Any]) -> None:
        rows = [{"image": picture(), "question": "How many?", "answer": value} for value in values]
        write(tmp_path / "test.parquet", rows)
        assert [example.answers for example in open_data(f"parquet:{tmp_path}", "test")[1]] == answers

    def test_a_file_alone_with_boxes(self, tmp_path: Path) -> None:
        write(
            tmp_path / "mine.parquet", [{"image": picture(), "question": "Where?", "boxes": [[1, 2, 3, 4.5]]}]
        )
        (example,) = open_data(f"parquet:{tmp_path / 'mine.parquet'}")[1]
        assert example.boxes == ((1, 2, 3, 4.5),)

    def test_an_image_is_written_once(self, tmp_path: Path, cache: Path) -> None:
        write(tmp_path / "test.parquet", [{"image": picture(), "question": q} for q in ("a?", "b?")])
        first, second = open_data(f"parquet:{tmp_path}", "test")[1]
        made = first.image.stat().st_mtime_ns
        assert len([path for path in cache.rglob("*") if path.is_file()]) == 1
        list(open_data(f"parquet:{tmp_path}", "test")[1])
        assert second.image.stat().st_mtime_ns == made


@needs_pyarrow
class TestRefusals:
    @each(
        ("row", "reason"),
        [
            ({"image": b"no image", "question": "a?"}, "row 1: 'image' begins with b'no image', which is no"),
            ({"image": {"bytes": None, "path": None}, "question": "a?"}, "row 1: 'image' is "),
            ({"image": "../up.png", "question": "a?"}, "is no name of a file in the folder"),
            ({"image": [picture(), picture()], "question": "a?"}, "row 1: 2 images"),
            ({"image": picture(), "question": ""}, "row 1: 'question'"),
            ({"image": picture(), "text": "a?"}, "has no column 'question'"),
            ({"image": picture(), "question": "a?", "boxes": [[5, 5, 1, 1]]}, "has no area as xyxy"),
            ({"image": picture(), "question": "a?", "answer": False}, "row 1: 'answers' is False"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path: Path, row: dict[str, Any], reason: str) -> None:
        write(tmp_path / "test.parquet", [row])
        with pytest.raises(ValueError, match=reason):
            list(open_data(f"parquet:{tmp_path}", "test")[1])

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        write(tmp_path / "test.parquet", [{"image": picture(), "question": "a?"}])
        content = (tmp_path / "test.parquet").read_bytes()
        (tmp_path / "test.parquet").write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match="it may be damaged or cut off; download it again"):
            list(open_data(f"parquet:{tmp_path}", "test")[1])

    def test_a_split_that_is_not_there(self, tmp_path: Path) -> None:
        write(tmp_path / "test-00000-of-00001.parquet", [{"image": picture(), "question": "a?"}])
        with pytest.raises(ValueError, match="no parquet file of split 'val': use one of the splits test"):
            open_data(f"parquet:{tmp_path}")


@needs_pyarrow
def test_pope_as_it_is_on_the_hub(tmp_path: Path) -> None:
    """Each category numbers its questions from 1; other configurations lie in folders beside `data`."""
    rows = [
        {
            "question_id": number,
            "question": "Is it?",
            "answer": "yes",
            "image": picture(),
            "category": category,
        }
        for category in ("adversarial", "popular")
        for number in ("1", "2")
    ]
    write(tmp_path / "POPE" / "data" / "test-00000-of-00002-c3e5.parquet", rows[:3])
    write(tmp_path / "POPE" / "data" / "test-00001-of-00002-0f1d.parquet", rows[3:])
    write(tmp_path / "POPE" / "Full" / "popular-00000-of-00001.parquet", rows[2:])
    expected = ["adversarial/1", "adversarial/2", "popular/1", "popular/2"]
    for folder in (tmp_path / "POPE", tmp_path):
        assert [example.id for example in open_data(f"parquet:{folder}", "test")[1]] == expected
    popular = open_data(f"parquet:{tmp_path / 'POPE'}", "popular")[1]
    assert [example.id for example in popular] == expected[2:]
    write(tmp_path / "test.parquet", [rows[0] | {"category": None}] * 2)
    with pytest.raises(ValueError, match=r"test.parquet, row 2 repeats the id '1' of .*test.parquet, row 1"):
        list(open_data(f"parquet:{tmp_path}", "test")[1])


@needs_pyarrow
def test_zoombench_as_it_is_on_the_hub(tmp_path: Path) -> None:
    """The question is `prompt`, with its options; a crop of the picture stands beside it."""
    rows = [
        {
            "image": {"bytes": picture(i), "path": None},
            "crop_image": {"bytes": picture(9), "path": None},
            "prompt": f"What is it?\n(A) a cup\n(B) {i}",
            "answer": answer,
        }
        for i, answer in enumerate(("A", "7"))
    ]
    write(tmp_path / "data" / "test-00000-of-00001.parquet", rows)
    data, examples = open_data(f"zoombench:{tmp_path}")
    choice, number = examples
    assert (choice.question, choice.answers) == ("What is it?\n(A) a cup\n(B) 0", ("A",))
    assert data.metric is not None
    assert [data.metric(reply, choice.answers) for reply in ("(A) a cup", "B")] == [1, 0]
    assert [data.metric(reply, number.answers) for reply in ("7", "B")] == [1, 0]
    with Image.open(number.image) as image:
        assert image.getpixel((0, 0)) == (1, 0, 0)


def vidore(folder: Path, **changes: Any) -> None:
    """A set of ViDoRe V3: two queries, one in two languages, about two of three pages."""
    query = {"query": "Which dose?", "answer": "5 mg", "language": "english", "query_types": ["extractive"]}
    queries = [
        {"query_id": 0} | query,
        {"query_id": 1} | query | {"query": "Quelle dose ?", "language": "french"},
    ]
    box = {"annotator": 0, "x1": 30, "x2": 4, "y1": 5, "y2": 20}
    qrels = [
        {"query_id": 0, "corpus_id": 7, "score": 2, "bounding_boxes": [box, box | {"x1": 4}]},
        {"query_id": 1, "corpus_id": 7, "score": 2, "bounding_boxes": [box]},
        {"query_id": 0, "corpus_id": 9, "score": 1, "bounding_boxes": []},
    ]
    qrels[0] |= changes
    pages = [
        {"corpus_id": key, "image": {"bytes": picture(key), "path": None}, "markdown": "x" * 70_000}
        for key in (7, 8, 9)
    ]
    for name, rows in {"queries": queries, "qrels": qrels, "corpus": pages[:2]}.items():
        write(folder / name / "test-00000-of-00001.parquet", rows)
    write(folder / "corpus" / "test-00001-of-00002.parquet", pages[2:])


@needs_pyarrow
def test_vidore_as_it_is_on_the_hub(tmp_path: Path) -> None:
    vidore(tmp_path / "around" / "set")
    examples = list(open_data(f"vidore:{tmp_path / 'around'}")[1])
    assert [example.id for example in examples] == ["0/7", "1/7", "0/9"]
    assert [example.boxes for example in examples] == [((4, 5, 30, 20),), ((4, 5, 30, 20),), ()]
    assert examples[0].answers == ("5 mg",)
    assert examples[0].meta == {"language": "english", "page": "7", "score": "2"}
    assert examples[2].where.endswith("qrels/test-00000-of-00001.parquet, row 3")
    with Image.open(examples[2].image) as image:
        assert image.getpixel((0, 0)) == (9, 0, 0)
    spec = f"vidore:{tmp_path / 'around' / 'set'}"
    assert [example.id for example in open_data(spec, "french")[1]] == ["1/7"]
    assert [example.id for example in open_data(spec, limit=1)[1]] == ["0/7"]
    with pytest.raises(ValueError, match="no split 'latin': use test, or one of english, french"):
        open_data(spec, "latin")


@needs_pyarrow
@each(
    ("changes", "reason"),
    [
        ({"bounding_boxes": [{"x1": 1, "x2": 2}]}, r"qrels.*row 1: 'bounding_boxes'\[0\]"),
        ({"corpus_id": None}, "row 1: 'corpus_id' is None"),
        ({"score": float("inf")}, "row 1: 'score' is inf"),
    ],
)
def test_a_bad_judgement_of_vidore_is_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    vidore(tmp_path, **changes)
    with pytest.raises(ValueError, match=reason):
        list(open_data(f"vidore:{tmp_path}")[1])


@needs_pyarrow
def test_tables_of_vidore_that_are_missing_or_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vidore(tmp_path)
    write(tmp_path / "queries" / "test-00000-of-00001.parquet", [{"query_id": 0, "text": "Which?"}])
    with pytest.raises(ValueError, match="has no column 'query'"):
        open_data(f"vidore:{tmp_path}")
    vidore(tmp_path)
    monkeypatch.setattr("arr_coc_lab.data.vidore.MAX_ROWS", 2)
    with pytest.raises(ValueError, match=r"qrels.*row 3: at most 2 are read"):
        open_data(f"vidore:{tmp_path}")


@needs_pyarrow
def test_readings_that_take_turns_or_stop_early(tmp_path: Path) -> None:
    rows = [{"image": picture(), "question": f"{i}?", "id": i} for i in range(40)]
    write(tmp_path / "test.parquet", rows)
    write(tmp_path / "train.parquet", rows)
    spec = f"parquet:{tmp_path}"
    assert [example.id for example in open_data(spec, "test", limit=17)[1]] == [str(i) for i in range(17)]
    readings = [
        iter(open_data(spec, split)[1]) for split in ("test", "train", "test", "train", "test", "test")
    ]
    for turn in zip(*readings, strict=True):
        assert len({example.question for example in turn}) == 1
    assert next(readings[0], None) is None


@needs_pyarrow
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["image", "answers"])
def test_a_small_file_that_needs_gigabytes(tmp_path: Path, kind: str) -> None:
    """It is refused in one line by a process that may not have a gigabyte itself."""
    import numpy as np
    import pyarrow

    rows: dict[str, Any] = {"image": ["a.png"], "question": ["a?"]}
    if kind == "image":  # one value that is compressed a million times
        rows["image"] = [b"\x89PNG" + bytes(600 * 2**20)]
    else:  # one row of a list of 200 million
        ends = pyarrow.array([0, 200_000_000], type=pyarrow.int32())
        rows["answers"] = pyarrow.ListArray.from_arrays(ends, pyarrow.array(np.zeros(200_000_000, np.int8)))
    path = tmp_path / "val.parquet"
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(rows), path, compression="zstd")
    assert path.stat().st_size < 100_000
    code = (
        "import resource, sys; from arr_coc.data import open_data\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**31))\n"
        "try: list(open_data(sys.argv[1])[1])\n"
        "except ValueError as error: print(error)"
    )
    command = [sys.executable, "-c", code, f"parquet:{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1, done.stderr
    assert "val.parquet can't be read (it needs more than 1024 MB of memory" in done.stdout


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    with pytest.raises(ValueError, match=r"pip install 'pyarrow>=18'"):
        open_data(f"parquet:{tmp_path}")
