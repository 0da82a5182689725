"""The command `arr-coc adapt`: what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arr_coc.files import hub
from command_line import run, run_json
from tiny import picture

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Two pictures with a boxed question each."""
    lines = []
    for name in ("a.png", "b.png"):
        picture(len(lines)).save(tmp_path / name)
        lines.append({"image": name, "question": "Left?", "answer": "yes", "boxes": [[0, 0, 10, 48]]})
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(tmp_path)


@pytest.mark.slow
def test_from_a_folder_to_a_shared_allocator(
    capsys: Capture, folder: str, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[tuple[Any, ...]] = []
    monkeypatch.setattr(hub, "upload", lambda *words, **_: shared.append(words) or "https://hub/commit")
    monkeypatch.setattr(hub, "check_shared", lambda name: None)
    line = ["adapt", folder, "--data", data, "--steps", "1", "--budgets", "6", "--recipes", "relevance"]
    result = run_json(capsys, *line, "--out", "got", "--push", "me/it")
    assert result["address"] == "https://hub/commit"
    assert [words[1] for words in shared] == ["me/it"]
    code, out, _ = run(capsys, *line, "--out", "got")  # all of it is finished
    assert code == 0
    assert "evidence kept" in out
    assert "oracle" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["adapt", "bundled", "--data", "nowhere"], "data 'nowhere' is not there"),
        (["adapt", "./nomodel", "--data", "DATA"], "nomodel"),
        (["adapt", "bundled", "--data", "DATA", "--budgets", "x"], "budget"),
        (["adapt", "bundled", "--data", "DATA", "--push", "a b"], "no name on the Hub"),
        (["adapt", "bundled", "--data", "DATA", "--dtype", "float16"], "can't be learned with"),
        (["adapt", "bundled", "--data", "DATA", "--out", "file"], "file"),
        (["adapt", "MODEL", "--data", "DATA", "--push", "me/it"], "on this disk alone"),
    ],
)
def test_bad_input_ends_in_one_line(
    capsys: Capture, folder: str, data: str, words: list[str], reason: str
) -> None:
    Path("file").write_text("x")
    code, out, err = run(capsys, *[{"DATA": data, "MODEL": folder}.get(word, word) for word in words])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert {path.name for path in Path().iterdir()} <= {"file", "arr-coc-allocator"}
