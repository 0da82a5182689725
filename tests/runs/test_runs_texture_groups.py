"""The ablation of texture groups: its learner, its figures, and the committed table."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
from PIL import Image

from arr_coc.choose.channels import CHANNEL_GROUPS, PRESETS
from arr_coc.choose.texture import channel_names

RUNS = Path(__file__).parents[2] / "runs"
RESULT = RUNS / "results" / "texture-groups.json"
SCRIPT = runpy.run_path(str(RUNS / "texture_groups.py"))
EVERY, Learner = SCRIPT["EVERY"], SCRIPT["Learner"]
compared, designed, figures, interval, rows, shifted = (
    SCRIPT[name] for name in ("compared", "designed", "figures", "interval", "rows", "shifted")
)


def page(seed: int, channel: str, questions: int = 2):
    """A page on which one channel tells the evidence and the guide knows nothing."""
    generator, names, parts = torch.Generator().manual_seed(seed), channel_names(EVERY), []
    for _ in range(questions):
        channels = torch.rand(len(names), 64, generator=generator)
        evidence = torch.zeros(64, dtype=torch.bool)
        evidence[channels[names.index(channel)].topk(4).indices] = True
        parts.append((channels, torch.randn(64, generator=generator), evidence))
    return parts


def test_the_group_that_tells_the_evidence_gains_and_another_does_not():
    names = ["mvp13", "mvp13 + text_mask", "mvp13 + eccentricity"]
    training, test = ([page(i, "text_mask.0") for i in seeds] for seeds in (range(9), range(20, 29)))
    table = compared(training, test, names)
    for kind in ("blind", "coupled"):
        gains = {name: table[name][kind]["64"]["gain"] for name in names[1:]}
        assert gains["mvp13 + text_mask"] > 0.5
        assert abs(gains["mvp13 + eccentricity"]) < 0.2
        assert table["mvp13 + text_mask"][kind]["64"]["gain range"][0] > 0.4
    assert "gain" not in table["mvp13"]["blind"]["64"]
    assert list(table["guide alone"]) == ["coupled"]


def test_the_learner_finds_a_logistic_regression():
    x = torch.randn(3, 4000, generator=torch.Generator().manual_seed(0)).double()
    y = (x[0] - 2 * x[1] > 0).float()
    w = Learner([x[:, :2000], x[:, 2000:]], [y[:2000], y[2000:]]).w
    assert w[0] > 0
    assert w[1] / w[0] == pytest.approx(-2, abs=0.2)
    assert w[2].abs() < 0.1 * w[0]


def test_products_with_the_guide_are_read_where_coupled():
    channels, logits = torch.rand(5, 7), torch.randn(7)
    assert designed(channels, logits, False).shape == (5, 7)
    assert designed(channels, logits, True).shape == (11, 7)


def test_figures_have_ranges_round_their_means():
    values = torch.rand(30, 3, generator=torch.Generator().manual_seed(0))
    low, high = interval(values, torch.Generator().manual_seed(0))
    assert (low < values.mean(0)).all()
    assert (values.mean(0) < high).all()
    assert set(figures(values)["64"]) == {"recall", "recall range"}


def test_a_shifted_picture_moves_down_and_right():
    image = Image.new("RGB", (20, 10))
    image.putpixel((5, 4), (255, 0, 0))
    assert shifted(image, (3, -2)).getpixel((3, 7)) == (255, 0, 0)


def test_rows_are_presets_and_mvp13_with_each_other_group():
    assert {row.partition(" + ")[2] for row in rows()} == {"", *CHANNEL_GROUPS} - set(PRESETS["mvp13"])


def test_the_committed_table_has_every_group():
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert {f"group: {name}" for name in CHANNEL_GROUPS} <= set(result["ms"])
    measured = {row for name in ("drawn", "clips") for row in result[name]["recall"]}
    assert {row for row in rows() if "+" in row} <= measured
    for shares in result["share of the time saved in the 2B shape"].values():
        assert shares["full20"] < 0.02
