"""What a command imports: nobody waits for torch or transformers who needs neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import picture

PACKAGES = os.pathsep.join(sys.path)  # as this process finds them, wherever it runs
RESULT = Path(__file__).parents[2] / "runs" / "results" / "ablation.json"
CODE = """
import json, sys
from arr_coc.cli import main
for words in json.loads(sys.argv[1]):
    code = main(words)
    print(json.dumps([words, code, sorted({"torch", "transformers"} & set(sys.modules))]), file=sys.stderr)
"""
LIGHT = (
    (["--help"], 0),
    (["--version"], 0),
    (["ask", "--help"], 0),
    (["tokens", "page.png"], 0),
    (["tokens", "page.png", "--for", "claude", "--json"], 0),
    (["report", str(RESULT), "--out", "plot.png"], 0),
    (["report", "nope.jsonl"], 2),
    (["report", "page.png"], 2),
    (["nonsense"], 2),
    (["ask", "--budgett", "3"], 2),
    (["ask", "nope.png", "What is it?"], 2),
    (["look", "nope.png", "What is it?"], 2),
    (["crop", "nope.png", "What is it?"], 2),
    (["ask", "page.png"], 2),
    (["ask", "page.png", "What is it?", "--mode", "nonsense"], 2),
    (["ask", "page.png", "What is it?", "--budget", "3x"], 2),
    (["look", "page.png", "What is it?", "--budget", "0"], 2),
    (["look", "page.png", "What is it?", "--coverage", "3"], 2),
    (["look", "page.png", "What is it?", "--evidence", "1,2"], 2),
    (["look", "page.png", "What is it?", "--mode", "sparse"], 2),
    (["look", "page.png", "What is it?", "--out", "page.txt"], 2),
    (["ask", "page.png", "What is it?", "--relevance", "nonsense"], 2),
    (["look", "page.png", "What is it?", "--relevance", "nonsense"], 2),
    (["crop", "page.png", "What is it?", "--relevance", "guide+guide"], 2),
    (["crop", "page.png", "What is it?", "--for", "nonsense"], 2),
    (["crop", "page.png", "What is it?", "--relevance", "gaze"], 2),
    (["crop", "page.png", "What is it?", "--out", "page.png"], 2),
)
"""Lines that need no tensor, and their exit codes."""


@pytest.fixture(autouse=True)
def a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    picture(1, (320, 256)).save("page.png")


def imported(*lines: list[str]) -> list[list[object]]:
    """Words, exit code and heavy modules after each of several lines, run by one new process."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(lines)],
        env=os.environ | {"PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[")]


def test_what_needs_no_tensor_imports_no_torch() -> None:
    assert imported(*(words for words, _ in LIGHT)) == [[words, code, []] for words, code in LIGHT]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["look", "crop"])
def test_the_guide_alone_needs_no_transformers(command: str) -> None:
    guide = ("--relevance", "guide")
    words = [command, "page.png", "What is it?", *guide, "--json"]
    assert imported(words) == [[words, 0, ["torch"]]]
    words = [command, "page.png", "What is it?", *guide, "--out", "seen.png" if command == "look" else "seen"]
    assert imported(words) == [[words, 0, ["torch"]]]
