"""The README says what the result files say. Run: pytest tests/test_readme.py"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_table_of_the_readme_is_that_of_its_result_file() -> None:
    script = runpy.run_path(str(ROOT / "runs" / "readme.py"))
    pages = script["pages"]()
    assert script["filled"](pages) == pages, "run python runs/readme.py"


def test_the_result_files_of_the_readme_come_from_its_command() -> None:
    study = (ROOT / "runs" / "study.sh").read_text(encoding="utf-8")
    for name in ("study", "ablation", "hypothesis", "adversarial"):
        assert f"measure {name} " in study or f"runs/results/{name}.json" in study
        assert (ROOT / "runs" / "results" / f"{name}.json").is_file()
    readme = (ROOT / "docs" / "RESULTS.md").read_text(encoding="utf-8")
    for name in ("sparse", "saccade"):
        assert f"measure {name} " in study
        shown = re.search(rf"<!-- {name} -->\n(.+?)<!-- /{name} -->", readme, re.S)
        assert bool(shown) == (ROOT / "runs" / "results" / f"{name}.json").is_file()
