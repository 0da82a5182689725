"""From a question on the command line to a page that opens anywhere."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from arr_coc.cli import main
from arr_coc.trace.trace import Trace
from disks import contents, small_files
from tiny import picture


@pytest.fixture(scope="module")
def saved(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that `ask --trace` wrote."""
    place = tmp_path_factory.mktemp("traces")
    picture(3, (64, 64)).save(place / "image.png")
    words = ["ask", str(place / "image.png"), "What is <b>it</b>?", "--model", folder, "--budget", "5"]
    with redirect_stdout(io.StringIO()) as out:
        assert main([*words, "--trace", str(place / "what.safetensors"), "--json"]) == 0
    trace = Trace.load(place / "what.safetensors")
    answer = json.loads(out.getvalue())["answer"]
    assert (trace.answer, trace.kept, trace.question) == (answer, 5, "What is <b>it</b>?")
    assert trace.full is not None
    return place / "what.safetensors"


def test_traces_become_one_page(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(["view", str(saved), str(saved), "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"page": str(out), "traces": 2, "bytes": out.stat().st_size}
    page = out.read_text(encoding="utf-8")
    assert "ArrCocViewer" in page
    assert "<b>it</b>" not in page
    assert main(["view", str(saved), "--out", str(out)]) == 0
    assert "1 trace(s)" in capsys.readouterr().out


def test_a_full_disk_leaves_the_older_page(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")
    before = contents(tmp_path)
    with small_files():
        assert main(["view", str(saved), "--out", str(out)]) == 1
    assert contents(tmp_path) == before


def test_what_is_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.safetensors"
    wrong.write_bytes(b"nothing")
    for arguments, said in (
        (["view", str(wrong), "--out", str(tmp_path / "a.html")], "wrong.safetensors"),
        (["view", str(tmp_path / "none.safetensors"), "--out", str(tmp_path / "a.html")], "none.safetensors"),
        (["view", str(saved), "--out", str(tmp_path / "a.txt")], "must end in .html"),
        (["view", str(saved), "--out", str(tmp_path / "no" / "a.html")], "cannot be written"),
        (["ask", "--trace", str(tmp_path / "a.json")], "must end in .safetensors"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not (tmp_path / "a.html").exists()
