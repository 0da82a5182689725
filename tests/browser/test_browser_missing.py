"""Browser tests on a machine without Chromium: skipped, or failed where a browser is required."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="no browser tests without playwright")

ROOT = Path(__file__).parents[2]
BROWSER_TESTS = ROOT / "tests" / "browser"
Run = Callable[..., str]


@pytest.fixture
def without_chromium(tmp_path: Path) -> Run:
    """Runs pytest on a folder in a process whose PATH holds no program; returns what it printed."""

    def run(folder: Path, code: int, **variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "ARR_COC_BROWSER"}
        (tmp_path / "bin").mkdir()
        environment |= {
            "PATH": str(tmp_path / "bin"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "lab" / "src")]),
        } | variables
        alone = f"--ignore={__file__}"  # it would run itself
        options = ["-q", "-rs", "-p", "no:cacheprovider", alone]
        command = [sys.executable, "-m", "pytest", *options, str(folder)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == code, done.stdout
        assert "no browser tests without one of chromium, chromium-browser, google-chrome" in done.stdout
        assert "apt-get install chromium" in done.stdout
        return done.stdout

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the conftest.py of the browser tests and one test, which is quick to import."""
    (tmp_path / "tests").mkdir()
    shutil.copy(BROWSER_TESTS / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "test_page.py").write_text("def test_page(browser):\n    browser.new_page()\n")
    return tmp_path / "tests"


@pytest.mark.slow
def test_they_are_skipped(without_chromium: Run, folder: Path) -> None:
    assert without_chromium(folder, code=0).strip().splitlines()[-1].startswith("1 skipped in ")


@pytest.mark.slow
def test_they_fail_where_a_browser_is_required(without_chromium: Run, folder: Path) -> None:
    output = without_chromium(folder, code=1, ARR_COC_BROWSER="required")
    assert output.strip().splitlines()[-1].startswith("1 error in ")


@pytest.mark.slow
def test_all_of_them_are_skipped(without_chromium: Run) -> None:
    summary = without_chromium(BROWSER_TESTS, code=0).strip().splitlines()[-1]
    assert "skipped in " in summary
    assert "passed" not in summary
