"""The lines that install what a feature lacks are true to pyproject.toml, and ask no index for arr-coc."""

import re
import tomllib
from pathlib import Path

import pytest

from arr_coc.files.plugins import EXTRAS, install_line
from arr_coc_lab.extras import EXTRAS as LAB
from arr_coc_lab.extras import install_line as lab_line

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
