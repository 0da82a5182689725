"""The lines that install what a feature lacks are true to pyproject.toml, and ask no index for arr-coc."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from arr_coc.files import plugins as module
from arr_coc.files.plugins import EXTRAS, install_line, plugin
from arr_coc_lab.extras import EXTRAS as LAB
from arr_coc_lab.extras import install_line as lab_line
from launching import PACKAGES

ROOT = Path(__file__).parents[2]
PUBLISHED = re.compile(r"pip install '?arr-coc\b")
LINE = re.compile(r"pip install ((?:'[^'\n]+' ?)+)")


@pytest.mark.parametrize(
    ("folder", "own", "others"),
    [(ROOT, EXTRAS, {"lab", "docs", "ship", "dev", "all"}), (ROOT / "lab", LAB, {"all"})],
    ids=["arr-coc", "lab"],
)
def test_extras_are_those_of_the_project(folder: Path, own: dict, others: set[str]) -> None:
    extras = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert own == {name: tuple(extras[name]) for name in own}
    assert set(extras) - set(own) == others


def test_a_line_names_each_package() -> None:
    assert install_line("video") == "pip install 'av>=15'"
    assert lab_line("world") == "pip install 'playwright>=1.50' 'wordfreq>=3.1' 'faker>=30'"


def test_no_remedy_asks_an_index_for_arr_coc() -> None:
    """No index has it; what messages, help and pages name is what an extra holds."""
    extras = {"'" + "' '".join(each) + "'" for each in (EXTRAS | LAB).values()}
    for path in [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "lab" / "src").rglob("*.py"),
        *(ROOT / "docs").glob("*.md"),  # the log says what was, a folder below
    ]:
        text = path.read_text(encoding="utf-8")
        assert not PUBLISHED.search(text), path
        for match in LINE.finditer(text):
            assert match[1].strip() in extras or match[1][1] in ".{", (path, match[0])  # or a checkout's


def test_a_distribution_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("thing", "gone_away.module:thing", "arr_coc.data")
    monkeypatch.setattr(module, "plugins", lambda kind: {"thing": point})
    with pytest.raises(
        ValueError, match=r"'thing' of data can't be imported .*gone_away.*: install .* again"
    ):
        plugin("data", "thing")


def test_a_broken_distribution_leaves_the_other_commands(tmp_path: Path) -> None:
    """As after the folder of an editable installation was moved."""
    info = tmp_path / "broken_thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-thing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[arr_coc.commands]\nmend = broken_thing.cli:mend\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), PACKAGES))}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "arr_coc", *words]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)

    assert run("--version").returncode == 0
    done = run("mend")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "install broken-thing again" in done.stderr
