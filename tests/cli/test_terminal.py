"""What reaches a terminal: no command to it, and whole figures."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from arr_coc.choose.stopwatch import STAGES
from arr_coc.cli import terminal
from arr_coc.files.images import open_image
from arr_coc.guide.coupling import Coupling, Match
from arr_coc.guide.trust import PHOTOGRAPH, SENTENCES
from arr_coc.model import ARRCOCModel
from arr_coc.relevance.deciding import best_kept
from arr_coc.session import Session
from arr_coc_lab.cli.bench import WORDS, print_bench
from arr_coc_lab.evaluate.speed import STAGES as BENCH_STAGES
from arr_coc_lab.evaluate.speed import SpeedRow
from command_line import run, run_json
from disks import contents, small_files
from tiny import picture

Capture = pytest.CaptureFixture[str]
HOSTILE = "a\x1b]0;owned\x07b\x9b2J\u202egnp.exe\x7f\udcff"
WRITTEN = r"a\x1b]0;owned\x07b\x9b2J\u202egnp.exe\x7f\udcff"
WAYS = ("stock", "full", "prune@273", "prune@64", "sparse@273", "sparse@64", "saccade", "compress")


@pytest.fixture(params=[60, 80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A terminal of so many columns."""
    monkeypatch.setattr(terminal, "_stdout", lambda: Console(width=request.param, file=sys.stdout))
    return request.param


def test_control_characters_are_written_out() -> None:
    assert terminal.printable(HOSTILE) == WRITTEN
    assert terminal.printable("a\n\tb\r") == r"a\n\tb\r"
    assert terminal.printable("a\n\tb\r", lines=True) == "a\n\tb\\r"
    plain = "Größe 日本語 👩‍👩‍👧 العربية ½ — “x”"
    assert terminal.printable(plain) == plain


def test_what_is_piped_is_not_padded(capsys: Capture) -> None:
    terminal.print_rows([("name", "short"), ("other", "a value that is much longer " * 4)])
    terminal.print_table(("method", "ms"), [("a", "1.0"), ("much longer", "200.0")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.slow
def test_a_file_name_a_question_and_an_answer_command_no_terminal(
    capsys: Capture, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, text = "\x1b[2J\x9b31m.png", "what\x1b[31m is\u202e it?"
    picture(1, (64, 48)).save(name)
    ask = Session.ask

    def hostile(*words: Any, **how: Any) -> Any:
        return dataclasses.replace(ask(*words, **how), text="first\nsecond\x1b]0;owned\x07")

    monkeypatch.setattr(Session, "ask", hostile)
    line = ("ask", name, text, "-m", folder, "-b", "5")
    code, out, err = run(capsys, *line)
    assert (code, err) == (0, "")
    for written in (r"\x1b[2J\x9b31m.png", r"what\x1b[31m is\u202e it?", r"second\x1b]0;owned\x07"):
        assert written in out
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)
    code, out, err = run(capsys, *line, "--json")
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)
    facts = json.loads(out)
    assert (facts["images"], facts["answer"]) == ([name], "first\nsecond\x1b]0;owned\x07")
    code, out, err = run(capsys, "ask", "none\x1b[2J.png", text)
    assert (code, out) == (2, "")
    assert r"none\x1b[2J.png" in err


def test_a_complaint_is_one_line_with_its_remedy(capsys: Capture) -> None:
    terminal.complain(f"'{HOSTILE}\nx{'y' * 5000}' is wrong: use another")
    _, err = capsys.readouterr()
    assert err.startswith(f"arr-coc: '{WRITTEN} xyy")
    assert err.endswith("yy' is wrong: use another\n")
    assert len(err) < 1000


def test_bench_is_cut_off_at_no_width(capsys: Capture, width: int) -> None:
    rows = [
        SpeedRow(
            mode=way,
            batch=1,
            tokens=1024 + i,
            ms=2000.0 + i,
            rounds=[2000.0 + i],
            stages=dict(zip(BENCH_STAGES, (310 + i, 320 + i, 330 + i, 340 + i, 350 + i), strict=True)),
            select=1.0,
            tflop=0.123 + i,
            gbyte=1.5 + i,
            peak_mb=7000 + i,
            speed=1.01 + i,
            flop_ratio=2.02 + i,
            byte_ratio=3.03 + i,
            of_limit=0.01 * i,
            select_share=0.001 * i,
        )
        for i, way in enumerate(WAYS)
    ]
    print_bench({"model": "tiny"}, rows)
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width
    words = out.split()
    for i, way in enumerate(WAYS):
        assert way in words
        figures = [*(f"{n + i}" for n in (310, 320, 330, 340, 350)), f"{2000 + i:,}", f"{7000 + i:,}"]
        assert set(figures) <= set(words)
    names = " ".join(name for name, _ in WORDS)
    for column in (
        "tokens",
        *BENCH_STAGES,
        "all",
        "x stock",
        "TFLOP",
        "GB",
        "x fewer",
        "of limit",
        "choosing",
    ):
        assert column in names
    assert "how many times faster" in " ".join(words)


@pytest.mark.slow
def test_stages_of_a_comparison_add_up_at_every_width(
    capsys: Capture, image: str, folder: str, width: int
) -> None:
    code, out, _ = run(capsys, "ask", image, "What is it?", "-m", folder, "-b", "2", "--compare")
    assert code == 0
    assert "…" not in out
    lines = [line.split() for line in out.splitlines()]
    start = next(i for i, line in enumerate(lines) if line[0] == "ms")
    table = lines[start : next(i for i, line in enumerate(lines) if line[0] == "picture")]
    if table[0][1] == "prune":  # a column per way
        assert table[0][1:] == ["prune", "all", "tokens"]
        columns = [[float(line[1 + side].replace(",", "")) for line in table[1:]] for side in (0, 1)]
    else:
        assert (table[1][0], table[2][:2]) == ("prune", ["all", "tokens"])
        columns = [[float(word.replace(",", "")) for word in line] for line in (table[1][1:], table[2][2:])]
    for *stages, total in columns:
        assert sum(stages) == pytest.approx(total, abs=0.06 * len(stages) + 0.5)


@pytest.mark.slow
def test_both_sides_of_a_comparison_begin_at_the_picture(
    capsys: Capture, image: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call opens a session, and each measured one encodes its image."""
    sessions: list[Any] = []
    session = ARRCOCModel.session
    monkeypatch.setattr(
        ARRCOCModel,
        "session",
        lambda *words, **more: sessions.append(session(*words, **more)) or sessions[-1],
    )
    facts = run_json(capsys, "ask", image, "What is it?", "-m", folder, "-b", "2", "--compare")
    assert len(sessions) == 5  # one while loading, two that warm up, two that are measured
    assert len(set(map(id, sessions))) == 5
    for ms in (facts["ms"], facts["full"]["ms"]):
        assert ms["encode"] > 0
        assert set(ms) == set(STAGES)


@pytest.mark.slow
def test_an_answer_comes_where_no_picture_can_be_written(capsys: Capture, image: str, folder: str) -> None:
    for command in ("ask", "look"):
        Path(f"arr-coc-{command}.png").mkdir()  # as a folder that is read-only would refuse it
        code, out, err = run(capsys, command, image, "What is it?", "-m", folder, "-b", "2")
        assert (code, err.count("\n")) == (0, 1)
        assert "2 of 48" in out
        assert "\npicture " not in out
        assert err.startswith("arr-coc: no picture will be drawn: ")
        code, out, err = run(
            capsys, command, image, "What?", "-m", "./nowhere", "-o", f"arr-coc-{command}.png"
        )
        assert (code, out) == (2, "")
        assert "cannot be written" in err


def test_a_disk_that_fills_up_costs_the_picture_alone(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    drawing = picture(1, (8, 8))
    monkeypatch.setattr(type(drawing), "save", full)
    terminal.save_picture(drawing, Path("a.png"), False, needed=False)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "arr-coc: no picture was written to 'a.png': No space left on device\n")
    with pytest.raises(OSError, match="No space left"):
        terminal.save_picture(drawing, Path("a.png"), False, needed=True)


@pytest.mark.slow
def test_weights_of_a_layer_that_had_no_say_are_left_out(capsys: Capture, image: str, folder: str) -> None:
    assert "weights" in run(capsys, "look", image, "What is it?", "-m", folder, "-b", "2")[1]
    terminal.print_allocation("a.png", "What?", best_kept((1, 2, 3), torch.arange(6.0), 2))
    out = capsys.readouterr().out
    assert "2 of 6" in out
    assert "weights" not in out


@pytest.mark.parametrize(
    ("numbers", "expected", "missing"),
    [
        ((0.8, 0.0, 0.0), "80%: the picture probably holds", "guide  "),
        ((0.3, 0.0, 0.0), "30%: the picture may not hold", "probably"),
        ((0.8, 0.9, 0.0), "about the whole picture", "confidence"),
        ((0.8, 0.0, 0.9), "asks for what stands out", "words"),
    ],
)
def test_what_the_guide_says(
    capsys: Capture, numbers: tuple[float, float, float], expected: str, missing: str
) -> None:
    coupling = Coupling(torch.zeros(2, 3), *numbers, (Match("total", "sum", 0.9, (0.5, 0.5)),))
    terminal.print_allocation("a.png", "What?", best_kept((1, 2, 3), torch.arange(6.0), 2), coupling)
    out = capsys.readouterr().out
    assert expected in out
    assert missing not in out
    assert ('total, as "sum" (0.90)' in out) == ("confidence" in out)


def test_a_remark_is_printed_once(capsys: Capture) -> None:
    coupling = Coupling(torch.zeros(2, 3), 0.1, 0.0, 0.0, (Match("total", "total", 0.1, (0.5, 0.5)),))
    allocation = dataclasses.replace(
        best_kept((1, 2, 3), torch.arange(6.0), 2), note=f"{SENTENCES['nothing']}; {PHOTOGRAPH}"
    )
    terminal.print_allocation("a.png", "What?", allocation, coupling)
    out = " ".join(capsys.readouterr().out.split())
    assert out.count(SENTENCES["nothing"]) == 1
    assert f"note {PHOTOGRAPH}" in out


def test_long_questions_are_shortened(capsys: Capture) -> None:
    matches = tuple(Match(f"w{i}", f"w{i}", 0.9, (0.5, 0.5)) for i in range(terminal.MAX_WORDS + 3))
    coupling = Coupling(torch.zeros(2, 3), 0.9, 0.0, 0.0, matches)
    question = "word " * terminal.MAX_QUESTION
    terminal.print_allocation("a.png", question, best_kept((1, 2, 3), torch.arange(6.0), 2), coupling)
    out = " ".join(capsys.readouterr().out.split())
    assert "and 3 more" in out
    assert out.count("word ") < terminal.MAX_QUESTION / 4


@pytest.mark.slow
def test_info_says_what_the_model_can_do(
    capsys: Capture, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_json(capsys, "info", "-m", folder)["about"] is None
    monkeypatch.setattr(ARRCOCModel, "about", "It reads drawn pages.", raising=False)
    assert run_json(capsys, "info", "-m", folder)["about"] == "It reads drawn pages."
    assert "It reads drawn pages." in run(capsys, "info", "-m", folder)[1]


@pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
def test_a_full_disk_leaves_the_older_picture(ending: str, tmp_path: Path) -> None:
    target = tmp_path / f"a.{ending}"
    target.write_bytes(b"old")
    with small_files(), pytest.raises(OSError, match="File too large"):
        terminal.save_picture(picture(1, (64, 64)), target, True, needed=True)
    assert contents(tmp_path) == {target.name: b"old"}
    terminal.save_picture(picture(1, (64, 64)), target, True, needed=True)
    assert open_image(target).size == (64, 64)
