"""The lines that install what a feature lacks are true to pyproject.toml, and ask no index for arr-coc."""

import re
import tomllib
from pathlib import Path

from arr_coc.core.extras import EXTRAS, install_line

ROOT = Path(__file__).parents[2]
PUBLISHED = re.compile(r"pip install '?arr-coc\b")
LINE = re.compile(r"pip install ((?:'[^'\n]+' ?)+)")


def test_extras_are_those_of_the_project() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert EXTRAS == {name: tuple(extras[name]) for name in EXTRAS}
    assert set(extras) - set(EXTRAS) == {"docs", "ship", "dev", "all"}  # of those who work on arr-coc


def test_a_line_names_each_package() -> None:
    assert install_line("video") == "pip install 'av>=15'"
    assert install_line("world") == "pip install 'playwright>=1.50' 'wordfreq>=3.1' 'faker>=30'"


def test_no_remedy_asks_an_index_for_arr_coc() -> None:
    """No index has it; what messages, help and pages name is what an extra holds."""
    extras = {"'" + "' '".join(each) + "'" for each in EXTRAS.values()}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md")]:
        if path.name == "LOG.md":
            continue
        text = path.read_text(encoding="utf-8")
        assert not PUBLISHED.search(text), path
        for match in LINE.finditer(text):
            assert match[1].strip() in extras or match[1][1] in ".{", (path, match[0])  # or a checkout's
