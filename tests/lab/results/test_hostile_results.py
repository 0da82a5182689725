"""Result files from anywhere: whatever they hold, they are summarised, or refused in one printable line."""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arr_coc_lab.evaluate.worst import case_images, worst_cases
from arr_coc_lab.results import files, summary
from arr_coc_lab.results.files import encode_kept, read_results, write_results
from arr_coc_lab.results.plot import plot
from arr_coc_lab.results.summary import read_summary, summarise
from arr_coc_lab.results.table import COLUMNS, table
from each import each
from hostile import lines_of, refusal, spoilt, spoilt_bytes

HEADER = {
    "data": "world", "size": 64, "split": "test", "metric": "exact_match", "questions": 3, "part": [1, 1],
    "kinds": {"full": "full", "arr-coc": "ours"}, "weights": {"arr-coc": "0"}, "machine": {"device": "cpu"},
    "notes": {},
}  # fmt: skip


def record(i: int) -> dict[str, Any]:
    """One question with every field that a run writes."""
    ours = "arr-coc@4"
    return {
        "id": f"{i}", "image": f"test:{i}", "family": "value", "question": "?", "answers": ["A"], "total": 16,
        "grid": [1, 4, 4], "evidence": 2, "said": {"full": "A", ours: "B"}, "score": {"full": 1.0, ours: 0.5},
        "kept": {ours: encode_kept([1, 2, 5, 6], 16)}, "tokens": {"full": 16, ours: 4}, "recall": {ours: 0.5},
        "hit": {ours: 1.0}, "swap": {ours: 0.25},
        "ms": {"full": {"encode": 1.0, "prefill": 2.0}, ours: {"encode": 1.0}}, "peak_mb": {"full": 3.5},
    }  # fmt: skip


ROWS = [{"header": HEADER}, record(0), record(1), {"id": "2", "image": "test:2", "error": "it is damaged"}]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of ten draws: what they are is tested elsewhere."""
    for name in ("bootstrap_interval", "paired_interval"):
        monkeypatch.setattr(summary, name, functools.partial(getattr(summary, name), draws=10))


def all_of(path: Path) -> None:
    """Everything that is made of a result file."""
    made = read_summary(path)
    beside = path.with_name("made.json")
    beside.write_text(json.dumps(made, allow_nan=False), encoding="utf-8")
    assert read_summary(beside) == made
    for columns in COLUMNS:
        text: list[str] = []
        refusal(lambda columns=columns, text=text: text.append(table(made, columns)))
        assert all(line.isprintable() for each in text for line in each.split("\n"))
    refusal(lambda: case_images(path, worst_cases(path, count=1)))


@pytest.mark.slow
def test_spoilt_lines(tmp_path: Path) -> None:
    path, rng, messages = tmp_path / "out.jsonl", random.Random(3), []
    whole = lines_of(ROWS)
    for number in range(260):
        lines = list(ROWS)
        at = rng.randrange(len(lines))
        lines[at] = spoilt(lines[at], rng)
        path.write_bytes(lines_of(lines) if number < 200 else spoilt_bytes(whole, rng))
        messages.append(refusal(lambda: all_of(path)))
    refused = [message for message in messages if message is not None]
    assert 60 < len(refused) < 240
    assert all("out.jsonl" in message or "no questions" in message for message in refused)


def test_spoilt_summaries(tmp_path: Path) -> None:
    path, rng = tmp_path / "out.json", random.Random(4)
    whole = summarise(HEADER, ROWS[1:])
    messages = []
    for number in range(150):
        made = spoilt(whole, rng)
        path.write_bytes(
            json.dumps(made).encode() if number < 120 else spoilt_bytes(json.dumps(whole).encode(), rng)
        )
        messages.append(refusal(lambda: [table(read_summary(path), columns) for columns in COLUMNS]))
    refused = [message for message in messages if message is not None]
    assert 40 < len(refused) < 150


@each("name", ["a|b\x1b[2J", "$\\frac{", "x@²", "x" * 300, "naïve – é"])
def test_names_of_methods(tmp_path: Path, name: str) -> None:
    """They stand in tables and plots: they steer neither a terminal nor a formula."""
    path = tmp_path / "out.jsonl"
    rows = [record(0) | {"score": {"full": 1, name: 0.5}, "tokens": {"full": 16, name: 4}}]
    write_results(path, {}, rows)
    message = refusal(lambda: all_of(path))
    assert (message is None) == (len(name) < 200 and name.isprintable())
    if message is None:
        refusal(lambda: plot(read_summary(path), tmp_path / "a.png"))
    else:
        assert "out.jsonl, line 2: 'score'" in message


def test_texts_of_a_data_set_stand_in_one_cell() -> None:
    """Families come from users' own files."""
    rows = [record(i) | {"family": "a|b\n\x1b[31mc"} for i in range(2)]
    lines = table(summarise({}, rows), "families").splitlines()
    assert len(lines) == 4
    assert lines[0] == "| method | all | a\\|b  [31mc |"


@each(
    ("content", "message"),
    [
        (b'{"header": {}}\n{"id": "1", "id": "2"}\n{}\n', "line 2 can't be read ('id' comes twice)"),
        (b'{"header": {"a": Infinity}}\n', "line 1 can't be read (Infinity is no number of JSON)"),
        (b'{"header": {"a": ' + b"[" * 90 + b"]" * 90 + b"}}\n", "line 1 can't be read (nested too deep)"),
        (b'{"header": {}}\n' + b"[" * 10**6 + b"\n", "line 2 can't be read (nested too deep)"),
        (b'{"header": {"a": ' + b"1" * 5000 + b"}}\n", "line 1 can't be read (a number is too long)"),
        (b'{"header": {}}\n{"id": "\\ud800"}\n', "line 2 is not JSON (half of a character)"),
        ('{"header": {}}\n'.encode("utf-16"), "line 1 is not UTF-8 text (byte 0)"),
        (b'{"header": {"part": [1]}}\n', "line 1: 'part'[1] is missing"),
        (b'{"header": {"questions": "3"}}\n', "line 1: 'questions' is '3': it should be a valid integer"),
        (
            b'{"header": {}}\n{"id": "1", "image": "a", "score": {"full": true}}\n',
            "line 2: 'score'['full'] is True",
        ),
        (
            b'{"header": {}}\n{"id": "1", "image": "a", "score": {"full": 1}, "evidence": 3}\n',
            "line 2: 3 cells of evidence are not among",
        ),
        (
            b'{"header": {}}\n{"id": "1", "image": "a", "score": {"x": 1}, "ms": {"x": {"encode": 0}}}\n',
            "line 2: 'ms'['x'] is {'encode': 0}: its stages should take more than 0 ms",
        ),
        (b'{"header": {}}\n{"id": "1", "image": "a", "error": "x", "score": {}}\n', "line 2: 'score' is {}"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "out.jsonl").write_bytes(content)
    assert f"out.jsonl, {message}" in str(refusal(lambda: read_results(tmp_path / "out.jsonl")))


def test_a_mark_of_utf_8_and_carriage_returns_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines_of(ROWS).replace(b"\n", b"\r\n"))
    assert read_results(path) == (HEADER, ROWS[1:])


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_a_line_without_an_end_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A small archive may hold a line of many GB."""
    monkeypatch.setattr(files, "MAX_LINE", 10_000)
    path = tmp_path / f"out.{ending}"
    pack: Callable[[bytes], bytes] = gzip.compress if ending.endswith("gz") else bytes
    path.write_bytes(pack(b'{"header": {}}\n{"id": "' + b"a" * 50_000))
    message = refusal(lambda: read_results(path))
    assert f"out.{ending}, line 2 is longer than 10,000 bytes" in str(message)


def test_an_archive_unpacks_to_a_multiple_of_its_size_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl.gz"
    rows = [ROWS[0], *(record(i) | {"said": "a" * 1000} for i in range(500))]
    path.write_bytes(gzip.compress(lines_of(rows)))
    assert len(read_results(path)[1]) == 500  # a small one may
    monkeypatch.setattr(files, "SMALL", 100_000)
    message = refusal(lambda: read_results(path))
    assert "out.jsonl.gz unpacks to more than 40 times its size" in str(message)
    path.with_suffix("").write_bytes(lines_of(rows))
    assert len(read_results(path.with_suffix(""))[1]) == 500


@pytest.mark.slow
def test_a_gigabyte_in_a_small_archive_needs_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "out.jsonl.gz").open("wb") as file:
        file.write(gzip.compress(lines_of(ROWS[:1])))
        for i in range(1000):
            file.write(gzip.compress(lines_of([record(i) | {"said": "a" * 2**20}]), 1))
    code = (
        "import resource, sys; from arr_coc_lab.results.files import read_results\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "try: read_results(sys.argv[1])\n"
        "except ValueError as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out.jsonl.gz")]
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # each reserves memory
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert "times its size" in done.stdout, done.stderr


def test_a_summary_without_an_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "MAX_SUMMARY", 1000)
    (tmp_path / "out.json").write_bytes(b" " * 5000)
    assert "longer than 1,000 bytes" in str(refusal(lambda: read_summary(tmp_path / "out.json")))


@each("name", ["a.json", "a.jsonl", "a.jsonl.gz"])
def test_a_folder_and_nothing(tmp_path: Path, name: str) -> None:
    assert "No such file" in str(refusal(lambda: read_summary(tmp_path / name)))
    (tmp_path / name).mkdir()
    assert "Is a directory" in str(refusal(lambda: read_summary(tmp_path / name)))


# ---- questions that were not asked ----------------------------------------------------------------------


def test_scores_are_of_the_questions_that_were_asked() -> None:
    made = summarise(HEADER, ROWS[1:])
    assert (made["questions"], made["images"]) == (2, 2)
    assert made["methods"] == summarise(HEADER, ROWS[1:3])["methods"]
    assert made["failed"] == {"questions": 1, "images": {"test:2": "it is damaged"}}
    assert "failed" not in summarise(HEADER, ROWS[1:3])
    for columns in COLUMNS:
        text = table(made, columns)
        assert "1 of 3 questions were not asked" in text
        assert text.endswith("test:2 (it is damaged)")


def test_none_that_was_asked_is_refused() -> None:
    with pytest.raises(ValueError, match=r"none of 1 questions was asked.*test:2: it is damaged"):
        summarise(HEADER, ROWS[3:])
