"""--help of each command, its examples, and completion of a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer

from arr_coc.cli.entry import EXAMPLES, commands
from arr_coc.modes import MODES
from arr_coc.train.recipe import built_in
from command_line import run
from each import each
from launching import PACKAGES

ROOT: Any = typer.main.get_command(commands)


@each("name", sorted(ROOT.commands))
class TestHelp:
    def test_it_ends_with_examples(
        self, capsys: pytest.CaptureFixture[str], name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        code, out, err = run(capsys, name, "--help")
        assert (code, err) == (0, "")
        lines = [line.strip() for line in out.splitlines()]
        for example in EXAMPLES[name]:
            assert example in lines[lines.index("Examples:") :]

    def test_examples_are_lines_that_it_takes(self, name: str) -> None:
        for example in EXAMPLES[name]:
            words = shlex.split(example.split(">")[0].split("|")[-1])
            assert words[:2] == ["arr-coc", name]
            ROOT.commands[name].make_context(name, words[2:])  # raises what the command line would refuse

    @each("columns", [60, 80])
    def test_it_fits(
        self, capsys: pytest.CaptureFixture[str], name: str, columns: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        _, out, _ = run(capsys, name, "--help")
        assert max(map(len, out.splitlines())) <= columns
        assert "…" not in out
        assert "<bool>" not in out
        text = " ".join(out.split())
        docstring = ROOT.commands[name].help.split("\n\n")[0].replace("\\[", "[")
        assert docstring in text  # no line is broken where the source was


def completed(*words: str) -> tuple[list[str], str]:
    """What bash is offered behind words of a line, and which heavy modules that took."""
    heavy = "torch transformers numpy PIL pydantic_settings matplotlib huggingface_hub".split()
    code = (
        "import sys\nfrom arr_coc.cli import main\n"
        "try:\n    main([])\nfinally:\n"
        f"    print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    environment = os.environ | {
        "PYTHONPATH": PACKAGES,
        "_ARR_COC_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["arr-coc", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr.strip()


@each(
    ("words", "offers"),
    [
        (["lo"], ["look"]),
        (["ask", "--mode", "s"], [name for name in MODES if name.startswith("s")]),
        (["look", "--mode", ""], [name for name, mode in MODES.items() if mode.chooses]),
        (["ask", "--gestalt", "pool"], ["pool4", "pool16"]),
        (["train", "di"], [name for name in built_in() if name.startswith("di")]),
    ],
)
def test_completion(words: list[str], offers: list[str]) -> None:
    assert completed(*words) == (offers, "[]")
