"""Commands around result files: names of what they write, narrow terminals, Ctrl-C, hints at near names."""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path

import pytest

from arr_coc_lab.cli.report import LEGEND, fitted
from arr_coc_lab.data.folder import data_spec
from arr_coc_lab.results.files import read_results, write_results
from arr_coc_lab.results.summary import read_summary
from arr_coc_lab.results.table import COLUMNS, table
from command_line import run
from each import each
from tiny import picture

Capture = pytest.CaptureFixture[str]
REAL = Path(__file__).parents[2] / "runs" / "results" / "sparse.json"
SMALL = "eval --size 64 --questions 2 --methods full,random --budgets 2 --timed 1".split()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(capsys: Capture, *words: str) -> str:
    """The one line that a bad use is answered with; nothing is written."""
    before = sorted(Path().rglob("*"))
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, ""), err
    assert err.startswith("arr-coc: ")
    assert err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    return err


# ---- eval -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_are_named_once_and_the_profiler_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, *SMALL, "--out", "e3.jsonl")
    assert code == 0, err
    assert {path.name for path in Path().iterdir()} == {"e3.jsonl", "e3.json", "e3.png"}
    assert re.search(r"questions +2, images \d", out)
    assert "picture        e3.png" in out
    assert "Memory block of unknown size" not in err
    assert "100%" in err


def test_an_archive_is_no_place_for_a_run(capsys: Capture) -> None:
    assert "give one such as arr-coc-eval" in refused(capsys, *SMALL, "--out", "e3.jsonl.gz")


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("arr_coc_lab.evaluate.run.Harness.records", stop)
        code, out, err = run(capsys, *SMALL)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        "arr-coc: stopped after 0 of 2 questions; the same command goes on from there"
    )
    assert read_results("arr-coc-eval.jsonl")[1] == []
    with monkeypatch.context() as patch:
        patch.setattr("arr_coc_lab.evaluate.run.load_scorer", stop)
        code, _, err = run(capsys, *SMALL, "--out", "other")
    assert (code, err.splitlines()[-1]) == (
        130,
        "arr-coc: stopped before the first question; the same command begins anew",
    )


# ---- report ---------------------------------------------------------------------------------------------


@each("columns", COLUMNS)
@each("width", [50, 60, 90])
def test_a_narrow_terminal_loses_no_figure(columns: str, width: int) -> None:
    text = table(read_summary(REAL), columns)
    narrow = fitted(text, width)
    assert max(map(len, narrow.splitlines())) <= width
    figures = re.compile(r"\d[\d,.]*(?:%|x)?")
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    for row in rows:
        name, *cells = (cell.strip() for cell in row[2:-2].split(" | "))
        own = re.compile(rf"{re.escape(name)}(\s|$)")  # fastv:3 is another
        start = next(i for i, line in enumerate(narrow.splitlines()) if own.match(line))
        block = " ".join(narrow.splitlines()[start:]).split("  **")[0]
        for figure in figures.findall(" ".join(cells)):
            assert figure in block


@each("columns", COLUMNS)
def test_a_table_that_fits_is_aligned_whatever_stands_below(columns: str) -> None:
    """Before, a long line of the legend broke every table up."""
    text = f"{table(read_summary(REAL), columns)}\n\n{LEGEND}"
    wide = fitted(text, 185)  # of LEGEND 196
    first, *_ = wide.split("\n\n")
    assert len(set(map(len, first.splitlines()))) == 1
    assert _bare(first) == _bare(text.split("\n\n")[0])
    assert max(map(len, wide.splitlines())) <= 185


def _bare(table: str) -> str:
    """Return a table without its spaces, and with short rules."""
    return re.sub("-{2,}", "--", table.replace(" ", ""))


def test_near_names(capsys: Capture) -> None:
    message = refused(capsys, "report", str(REAL), "--columns", "famlies", "-o", "a.png")
    assert "'famlies' is unknown; use one of short, budgets, tokens, families, time; did you mean" in message
    assert "Value error" not in message
    assert "did you mean 'textvqa'?" in refused(capsys, "eval", "--data", "textvaq:x")
    assert "did you mean 'random'?" in refused(capsys, "eval", "--methods", "radnom")


@each(
    ("change", "message"),
    [
        (
            {"weights": {"base": "1"}},
            "two.jsonl is of another run than one.jsonl: its weights is {'base': '1'}",
        ),
        ({"seed": 1}, "its seed is 1, not 0; report each by itself"),
        ({"part": [1, 2]}, "one.jsonl is part 1/2, two.jsonl is part 1/2: give each part of one run once"),
    ],
)
def test_files_of_two_runs_are_not_joined(capsys: Capture, change: dict[str, object], message: str) -> None:
    header = {"seed": 0, "weights": {"base": "0"}, "part": [1, 2], "questions": 2}
    for name, own in (("one", {}), ("two", {"part": [2, 2]} | change)):
        write_results(
            f"{name}.jsonl",
            header | own,
            [{"id": name, "image": "a", "score": {"full": 1.0, "random@2": 0.5}}],
        )
    assert message in refused(capsys, "report", "one.jsonl", "two.jsonl", "--out", "joined")


def test_a_full_disk_is_named_with_the_remedy(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for part in (1, 2):
        header = {"part": [part, 2], "questions": 2}
        write_results(f"{part}.jsonl", header, [{"id": f"{part}", "image": "a", "score": {"full": 1.0}}])
    monkeypatch.setattr(Path, "write_bytes", full)
    message = refused(capsys, "report", "1.jsonl", "2.jsonl", "--out", "joined")
    assert "'joined.jsonl' cannot be written (No space left on device): make room there" in message


def test_parts_that_share_a_question_are_not_joined(capsys: Capture) -> None:
    for part in (1, 2):
        header = {"part": [part, 2], "questions": 2}
        write_results(f"{part}.jsonl", header, [{"id": "0", "image": "a", "score": {"full": 1.0}}])
    assert "2.jsonl and 1.jsonl both have question '0'" in refused(
        capsys, "report", "1.jsonl", "2.jsonl", "--out", "joined"
    )


@pytest.mark.parametrize("out", ["1", "1.jsonl", "1.png", "./2.json", "link"])
def test_a_part_is_not_written_over(capsys: Capture, out: str) -> None:
    for part in (1, 2):
        header = {"part": [part, 2], "questions": 2}
        write_results(f"{part}.jsonl", header, [{"id": f"{part}", "image": "a", "score": {"full": 1.0}}])
    Path("link.jsonl").symlink_to("2.jsonl")
    before = [path.read_bytes() for path in (Path("1.jsonl"), Path("2.jsonl"))]
    assert "would replace the part" in refused(capsys, "report", "1.jsonl", "2.jsonl", "--out", out)
    assert [path.read_bytes() for path in (Path("1.jsonl"), Path("2.jsonl"))] == before
    assert run(capsys, "report", "1.jsonl", "2.jsonl", "--out", "whole")[0] == 0


def test_questions_that_were_not_asked_are_reported(capsys: Capture) -> None:
    rows = [
        {"id": "0", "image": "test:0", "score": {"full": 1.0}},
        {"id": "1", "image": "jsonl:a.png", "error": "image 'a.png' is empty (0 bytes)"},
    ]
    write_results("out.jsonl", {}, rows)
    code, out, _ = run(capsys, "report", "out.jsonl")
    assert code == 0
    assert "1 of 2 questions were not asked" in out
    assert "jsonl:a.png (image 'a.png' is empty (0 bytes))" in out
    assert "questions      1, images 1" in out


def test_a_report_of_what_downsampling_fails(capsys: Capture) -> None:
    scores = [{"full": 1.0, "divprune@64": float(i), "downsample@64": float(i)} for i in range(2)]
    tokens = {"full": 256, "divprune@64": 64, "downsample@64": 64}
    rows = [
        {"id": f"{i}", "image": "test:0", "family": "a", "score": score, "tokens": tokens}
        for i, score in enumerate(scores)
    ]
    write_results("out.jsonl", {}, rows)
    for columns in ("short", "tokens", "families", "time"):
        line = ("report", "--columns", columns, "out.jsonl")
        if columns == "time":
            assert "none of ours was timed" in run(capsys, *line)[2]
            continue
        code, out, _ = run(capsys, *line)
        assert code == 0
        assert ("all tokens answer 2 of 2 questions" in out) == (columns != "tokens")
    code, both, _ = run(capsys, "report", "out.jsonl")
    first, second = both.split("Only questions that all tokens answer")
    assert "| divprune@64 | 64 | 50.0%" in first
    code, out, _ = run(capsys, "report", "--vtc-filter", "out.jsonl")
    assert code == 0
    for view in (second, out):
        assert "all tokens answer 2 of 2 questions" in view
        assert "| divprune@64 | 64 | 1 | 0.0%" in view
    write_results("alone.jsonl", {}, [{"id": "0", "image": "test:0", "score": {"full": 1.0}}])
    code, _, error = run(capsys, "report", "--vtc-filter", "alone.jsonl")
    assert code == 2
    assert "'downsample'" in error


@pytest.mark.slow
def test_the_filter_is_refused_before_a_run_that_could_not_have_it(capsys: Capture) -> None:
    words = ("eval", "--vtc-filter", "--methods", "full,arr-coc", "--budgets", "9", "--questions", "1")
    code, _, error = run(capsys, *words, "--size", "192", "--timed", "0")
    assert code == 2
    assert "downsample: name it among --methods, too" in error
    assert not Path("arr-coc-eval.jsonl").exists()


# ---- draw -----------------------------------------------------------------------------------------------


@each(
    ("option", "value", "message"),
    [
        ("--count", "0", "--count"),
        ("--count", "-3", "--count"),
        ("--count", "999999999999", "--count"),
        ("--size", "-5x3", "is not WIDTHxHEIGHT"),
        ("--size", "0x0", "must be 64 to 4096"),
        ("--size", "99999x99999", "must be 64 to 4096"),
        ("--seed", "99999999999999999999", "is out of range; use 0 to 2147483647"),
    ],
)
def test_pages_that_can_not_be_drawn(capsys: Capture, option: str, value: str, message: str) -> None:
    assert message in refused(capsys, "draw", option, value)


def test_another_seed_draws_other_pages(capsys: Capture) -> None:
    for seed in ("0", "1"):
        assert run(capsys, "draw", "-n", "3", "--size", "96x96", "--seed", seed, "-o", seed)[0] == 0
    pages = {path.read_bytes() for path in Path().rglob("*.png")}
    assert len(pages) == 6


def test_eval_takes_the_folder_that_adapt_takes_and_refuses_others_before_it_loads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the harness is imported for what can't be scored."""
    monkeypatch.setitem(sys.modules, "arr_coc_lab.evaluate", None)
    picture(1).save(tmp_path / "a.png")
    lines = tmp_path / "questions.jsonl"
    lines.write_text('{"image": "a.png", "question": "What?"}\n')
    for data, reason in (
        (
            str(tmp_path),
            "line 1: 'answer' is missing: add it, or use the model's own answers (--own",
        ),
        (f"folder:{tmp_path}", "has no answers to score"),
        (str(tmp_path / "none"), "is not there: give a folder of images with questions.jsonl"),
        ("textvqua:mine", "did you mean 'textvqa'"),
    ):
        code, _, err = run(capsys, "eval", "--data", data)
        assert (code, err.count("\n")) == (2, 1), err
        assert reason in err
    good = '{"image": "a.png", "question": "What?", "answer": "a"}\n'
    lines.write_text(good + good.replace("}", ', "answers": ["a"]}'))
    code, _, err = run(capsys, "eval", "--data", str(tmp_path))
    assert (code, "line 2: it has both 'answer' and 'answers'" in err) == (2, True), err
    assert data_spec(str(tmp_path)) == f"folder:{tmp_path}"  # for `adapt`, and with --own-answers
    lines.write_text(good)
    assert data_spec(str(tmp_path)) == f"jsonl:{tmp_path}"
