"""Every script of runs/, bench/ and making/ still fits the package: what it imports is there.

What most of them measured stands in runs/results/ and bench/results/, and `tests/test_readme.py` writes every
table of the pages from there again, through the scripts that make tables.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import math
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc.guide.coupling import Coupling
from arr_coc.relevance.source import PRIOR, Calibration
from arr_coc.seam import VisualFeatures
from arr_coc.selector import Selector
from arr_coc_lab.results.summary import summarise
from arr_coc_lab.world import draw_page
from scripts import ROOT, imported, need

need("runs/readme.py")
FOLDERS = ("runs", "bench", "making")
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).glob("*.py")
)


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "runs" / "results" / name).read_text(encoding="utf-8"))


def from_package(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of all that a script takes from the package, the lab or making/."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "arr_coc",
            "arr_coc_lab",
            "making",
        ):
            yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_script_imports_is_there(script: str) -> None:
    for module, name in from_package(ROOT / script):
        if module.startswith("arr_coc.app"):
            pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")
        assert hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")


# ---- committed results are within their laws ----------------------------------------------------------


@pytest.mark.parametrize("name", ["pan", "cuts", "flicker", "noise"])
def test_the_laws_of_time_hold_in_the_committed_result(name: str) -> None:
    made = result("clip-laws.json")
    row = made["clips"][name]
    assert (row["frames"], row["cuts"]) == (30, [10, 20] if name == "cuts" else [])
    assert max(row["departure from 0.7 old and 0.3 new"].values()) < 1e-5
    assert row["variance of the middle of what is kept"]["over time"] < made["law"]["variance under"]
    again = row["kept again in the next frame"]
    assert again["over time"] > 1.2 * again["by themselves"]


def test_textures_without_costly_groups_cost_under_two_percent_of_what_is_saved() -> None:
    made = result("texture-flops.json")
    for mode, shares in made["share of what is saved in the 2B shape"].items():
        assert shares["full20"] <= shares["full20, clip"] < made["target"], mode


def test_the_figures_of_presence_are_those_of_the_log() -> None:
    facts, log = (
        result("presence.json"),
        (ROOT / "docs" / "log" / "2026-11-28.md").read_text(encoding="utf-8"),
    )
    for name in ("guide", "ocr", "guide+ocr"):
        own = facts["sources"][name]
        assert f"{name} {own['auc']:.2f} and {own['auc elsewhere']:.2f}" in log
    for budget in ("64", "128", "273"):
        weighed = [
            way[budget] for name, way in facts["sums"].items() if name != "plain" and "alone" not in name
        ]
        assert f"{min(weighed):.3f} to {max(weighed):.3f}" in log
        assert f"{facts['sums']['plain'][budget]:.3f}" in log


# ---- what scripts count -------------------------------------------------------------------------------


def test_operations_of_textures_are_counted() -> None:
    operations = runpy.run_path(str(ROOT / "runs" / "texture_flops.py"))["Operations"]
    x = torch.rand(1, 1, 8, 8)
    with operations() as sums:
        x + x
        (x * x).sum()
    assert sums.total == 3 * 64
    with operations() as transforms:
        torch.fft.rfft2(x)
    assert transforms.total >= 5 * 64 * math.log2(64)


def test_kept_sets_are_compared_frame_by_frame() -> None:
    kept = runpy.run_path(str(ROOT / "runs" / "clip_laws.py"))["kept"]
    maps = torch.zeros(3, 7, 7)
    maps[:2, :2] = torch.rand(2, 7) + 1  # 14 cells, the same in two frames
    maps[2, 5:] = 1.0
    middles, again = kept(maps)
    assert torch.allclose(middles[0], middles[1])
    assert again == pytest.approx(0.5)


def test_the_ablation_of_the_guide_misses_what_it_leaves_out_and_has_it_back() -> None:
    page = draw_page(3, (512, 512), "test", void=False)
    with imported("runs/guide_ablation.py") as ablation:
        chosen = {
            name: each.decide(page.image, page.questions[0].text, 64).allocations[0]
            for name, each in ablation.selectors().items()
        }
    whole = chosen["all parts"]
    assert torch.equal(whole.keep, Selector()(page.image, page.questions[0].text, 64).keep)
    maps = ("information", "perspectival", "participatory", "balanced")
    for name in ablation.PARTS:
        same = [torch.equal(getattr(whole, one), getattr(chosen[name], one)) for one in maps]
        # Coverage is no part of any map: it is what is kept beside the best.
        assert not name.startswith("without") or name == "without coverage" or not all(same), name
    for folder in ("pages", "scenes", "strangers", "documents"):
        assert set(ablation.PARTS) <= set(result("guide-ablation.json")[folder]["all"])


def test_a_pool_of_long_text_is_the_mean_of_its_cells_and_scores_are_of_letters() -> None:
    with imported("runs/long_text.py") as long_text:
        cells = torch.arange(16.0)[:, None].repeat(1, 3)
        whole = VisualFeatures([cells], [[cells * 2]], [(1, 4, 4)], [torch.arange(16)], object)
        small = long_text.pooled(whole, 2)
        row = long_text.scored([("AB12", "AB12"), ("AB13", "AB12")])
    assert small.grids == [(1, 2, 2)]
    assert small.tokens[0][:, 0].tolist() == [2.5, 4.5, 10.5, 12.5]
    assert torch.equal(small.levels[0][0], 2 * small.tokens[0])
    assert (row["exact"], row["characters"], row["questions"]) == (0.5, 0.875, 2)


def test_a_sum_weighed_by_confidence_goes_by_whoever_is_sure() -> None:
    with imported("runs/presence.py") as presence:
        maps = [torch.full((32, 32), PRIOR), torch.full((32, 32), PRIOR)]
        evidence = torch.zeros(1024, dtype=torch.bool)
        for cells, at, peak in zip(maps, (0, 512), (2.0, 4.0), strict=True):
            cells.view(-1)[at : at + 64] = peak
        evidence[:64] = True  # the guide is right, and the OCR louder
        row = presence.Read(Coupling(maps[0], 0.9), Coupling(maps[1], 0.01), evidence)
        plain = Calibration(1.0)
        table = presence.sums([row], plain, plain)
        assert {name: way["64"] for name, way in table.items()} == {
            name: float(name != "plain") for name in table
        }
        torch.manual_seed(0)
        rows, labels = torch.randn(600, 8), torch.rand(600) < 0.8
        rows[:, 3] += labels.float() * 2  # the wording of those with an answer
        scores, yes = presence.fitted(rows[:400], labels[:400], 0.01)(rows[400:]), labels[400:]
        assert presence.auc(scores[yes].tolist(), scores[~yes].tolist()) > 0.85


def test_a_target_of_the_project_holds_from_its_own_value_on() -> None:
    with imported("runs/claims.py") as module:
        for ours, holds in ((0.96, True), (0.959, False)):
            rates = {"full": 1.0, "arr-coc@64": ours, "scope@64": 0.5, "idpruner@64": 0.82, "fastv@64": 0.94}
            records = [
                {"id": f"{i}", "image": f"test:{i // 2}", "family": "value", "total": 1024}
                | {"score": {name: float(i < rate * 1000) for name, rate in rates.items()}}
                for i in range(1000)
            ]
            found = {claim["claim"]: claim for claim in module.claims(summarise({}, records))}
            assert found["arr-coc@64 keeps the score of all tokens"]["holds"] is holds
            assert found["arr-coc@64 keeps the score of all tokens"]["figure"] == f"{ours:.1%}"
            assert "arr-coc@64 is above the best query-blind rival, idpruner@64" in found
            assert found["arr-coc@auto reads few tokens"]["holds"] is None  # nobody measured it
