"""Running the command line in this process, for the tests of its commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arr_coc.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a line."""
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The one object that a line prints with --json, and nothing else."""
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    return json.loads(out)
