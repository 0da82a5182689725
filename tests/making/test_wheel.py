"""What hatchling would ship: the wheel holds the package and nothing of how its weights were made."""

from __future__ import annotations

from pathlib import Path

import pytest

builders = pytest.importorskip("hatchling.builders.wheel")
ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_nothing_of_making() -> None:
    builder = builders.WheelBuilder(str(ROOT))
    files = {file.distribution_path for file in builder.recurse_included_files()}
    assert {"arr_coc/train/trainer.py", "arr_coc/train/recipes/relevance.toml"} <= files
    assert not {file for file in files if not file.startswith("arr_coc/")}
    stages = {path.name for path in (ROOT / "making").glob("*.py")} - {"__init__.py"}
    assert not stages & {file.removeprefix("arr_coc/train/") for file in files}
