"""The README and the pages of docs/ say what the result files say."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arr_coc import ARRCOCQwen
from arr_coc.store.allocator import fingerprint
from arr_coc_lab.results.files import read_results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "runs" / "results"
PARTS = ("base", "stem")
"""What the bundled folder has one of."""


def prints(value: Any) -> Iterator[dict[str, str]]:
    """Every record of weights in a result file, those of rows that joined later too."""
    if isinstance(value, dict):
        if isinstance(value.get("weights"), dict):
            yield value["weights"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from prints(part)


def test_every_table_of_the_readme_is_that_of_its_result_file() -> None:
    script = runpy.run_path(str(ROOT / "runs" / "readme.py"))
    pages = script["pages"]()
    assert script["filled"](pages) == pages, "run python runs/readme.py"


def test_the_result_files_of_the_readme_come_from_its_command() -> None:
    study = (ROOT / "runs" / "study.sh").read_text(encoding="utf-8")
    for name in ("study", "ablation", "hypothesis", "adversarial"):
        assert f"measure {name} " in study or f"runs/results/{name}.json" in study
        assert (ROOT / "runs" / "results" / f"{name}.json").is_file()
    pages = {"sparse": "before-encoder", "saccade": "large-pages"}
    for name, page in pages.items():
        text = (ROOT / "docs" / "results" / f"{page}.md").read_text(encoding="utf-8")
        assert f"measure {name} " in study
        shown = re.search(rf"<!-- {name} -->\n(.+?)<!-- /{name} -->", text, re.S)
        assert bool(shown) == (ROOT / "runs" / "results" / f"{name}.json").is_file()


@pytest.mark.slow
def test_result_files_of_the_bundled_model_agree_in_its_prints() -> None:
    contents = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")}
    contents |= {path.name: read_results(path)[0] for path in RESULTS.glob("*.jsonl.gz")}
    weights = {name: list(prints(content)) for name, content in contents.items()}
    (rounded,) = weights["bfloat16.json"]
    today = fingerprint(ARRCOCQwen.from_pretrained().base)  # most were measured before, in float32
    assert rounded["base"] == today
    bases = {name: {record["base"] for record in own if "base" in record} for name, own in weights.items()}
    assert all(own == {today} for own in bases.values() if today in own)
    measured = {name for name, own in bases.items() if own - {today}}
    assert measured >= {"study.json", "sparse.json", "saccade.json", "saccade.jsonl.gz", "times.json"}
    for part in PARTS:
        named = {(record[part], name) for name in measured for record in weights[name] if part in record}
        assert len({value for value, _ in named}) == 1, (part, sorted(named))


def test_every_result_file_that_is_named_is_there() -> None:
    sources = [*(ROOT / "runs").glob("*.py"), *(ROOT / "runs").glob("*.sh"), *(ROOT / "docs").rglob("*.md")]
    sources += [ROOT / "README.md", *(ROOT / "src" / "arr_coc" / "training").rglob("*.toml")]
    texts = {source.relative_to(ROOT).name: source.read_text(encoding="utf-8") for source in sources}
    named = {
        (name, path)
        for name, text in texts.items()
        for path in re.findall(r"(?:runs|bench)/results/[\w./*-]*\.(?:jsonl\.gz|jsonl|json)", text)
    }
    calls = r"""(?:\bread|machine_text|with_times)\((?:\w+, )?["']([\w-]+)["']\)"""
    named |= {
        (name, f"runs/results/{stem}.json")
        for name, text in texts.items()
        if name.endswith(".py")
        for stem in re.findall(calls, text)
    }
    measured = re.findall(r"^measure ([\w-]+)", texts["study.sh"], re.M)
    named |= {("study.sh", f"runs/results/{stem}.json") for stem in measured}
    assert {"runs/results/times.json", "runs/results/guide.json"} <= {path for _, path in named}
    assert not [(name, path) for name, path in sorted(named) if not list(ROOT.glob(path))]
