"""The commands about clips: what they count, and that their committed results are within the laws."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "runs" / "results"
if not RESULTS.is_dir():
    pytest.skip("runs/ is in the repository alone", allow_module_level=True)


def result(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["pan", "cuts", "flicker", "noise"])
def test_the_laws_of_time_hold_in_the_committed_result(name: str) -> None:
    made = result("clip-laws.json")
    row = made["clips"][name]
    assert row["frames"] == 30
    assert row["cuts"] == ([10, 20] if name == "cuts" else [])
    assert max(row["departure from 0.7 old and 0.3 new"].values()) < 1e-5
    assert row["variance of the middle of what is kept"]["over time"] < made["law"]["variance under"]
    again = row["kept again in the next frame"]
    assert again["over time"] > 1.2 * again["by themselves"]


def test_textures_without_costly_groups_cost_under_two_percent_of_what_is_saved() -> None:
    made = result("texture-flops.json")
    for mode, shares in made["share of what is saved in the 2B shape"].items():
        assert shares["full20"] <= shares["full20, clip"] < made["target"], mode


def test_operations_are_counted() -> None:
    operations = runpy.run_path(str(ROOT / "runs" / "texture_flops.py"))["Operations"]
    x = torch.rand(1, 1, 8, 8)
    with operations() as sums:
        x + x
        (x * x).sum()
    assert sums.total == 3 * 64
    with operations() as transforms:
        torch.fft.rfft2(x)
    assert transforms.total >= 5 * 64 * math.log2(64)
    with operations() as products:
        x[0, 0] @ x[0, 0]
    assert products.total < 512  # torch's own counter has them


def test_kept_sets_are_compared_frame_by_frame() -> None:
    kept = runpy.run_path(str(ROOT / "runs" / "clip_laws.py"))["kept"]
    maps = torch.zeros(3, 7, 7)
    maps[:2, :2] = torch.rand(2, 7) + 1  # 14 cells, the same in two frames
    maps[2, 5:] = 1.0
    middles, again = kept(maps)
    assert torch.allclose(middles[0], middles[1])
    assert middles[2, 0] > 0.7
    assert again == pytest.approx(0.5)


def test_the_page_shows_the_figure() -> None:
    text = (ROOT / "docs" / "video.md").read_text(encoding="utf-8")
    assert "video-laws.png" in text
    assert (ROOT / "docs" / "video-laws.png").stat().st_size < 300_000
