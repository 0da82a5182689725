"""What `arr-coc train` says beside its own lines."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arr_coc.train.recipe import recipes
from command_line import run

Capture = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_a_refused_run_reads_no_fonts(tmp_path: Path) -> None:
    """Without a cache matplotlib reads every font of the machine, writes a cache and speaks of it."""
    place = tmp_path / "no-cache"
    place.mkdir()
    line = [sys.executable, "-m", "arr_coc", "train", "relevance", "data=folder:nowhere"]
    done = subprocess.run(
        line,
        cwd=tmp_path,
        env=os.environ | {"MPLCONFIGDIR": str(place)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert "nowhere" in done.stderr
    assert list(place.iterdir()) == []


def test_what_matplotlib_says_of_fonts_is_not_ours(
    capsys: Capture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fonts = logging.getLogger("matplotlib.font_manager")

    def built(*arguments: Any) -> Any:
        fonts.warning("Matplotlib is building the font cache; this may take a moment.")
        return recipes(*arguments)

    monkeypatch.setattr("arr_coc.train.recipe.recipes", built)
    assert run(capsys, "train", "list")[0] == 0
    assert "font cache" not in caplog.text
    fonts.warning("heard again")
    assert "heard again" in caplog.text
