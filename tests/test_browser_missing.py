"""Browser tests on a machine without Chromium: skipped, or failed where a browser is required.

Run: pytest tests/test_browser_missing.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="no browser tests without playwright")

ROOT = Path(__file__).parents[1]
FILES = sorted(path.name for path in (ROOT / "tests" / "browser").glob("test_*.py"))


@pytest.fixture
def run(tmp_path: Path):
    """Runs the tests of tests/browser in a process whose PATH holds no program at all."""

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "ARR_COC_BROWSER"}
        (tmp_path / "bin").mkdir(exist_ok=True)
        environment |= {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(ROOT / "src")} | variables
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/browser"]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    return run


def test_without_chromium_they_are_skipped(run) -> None:
    done = run()
    assert done.returncode == 0, done.stdout
    assert "no browser tests without one of chromium, " in done.stdout
    assert "apt-get install chromium" in done.stdout
    summary = done.stdout.strip().splitlines()[-1]
    assert "skipped" in summary
    assert not {"passed", "failed", "error", "errors"} & set(summary.replace(",", " ").split())
    for name in FILES:
        assert name in done.stdout


def test_without_chromium_they_fail_where_a_browser_is_required(run) -> None:
    done = run(ARR_COC_BROWSER="required")
    assert done.returncode == 1, done.stdout
    assert "no browser tests without one of chromium, " in done.stdout
    summary = done.stdout.strip().splitlines()[-1]
    assert "skipped" not in summary
    assert "passed" not in summary
