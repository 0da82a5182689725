"""Training the balance: what it learns from is what ships reads, and its loss pays for all evidence."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from arr_coc.files.pixels import image_pixels
from arr_coc.relevance.balance import OTHER, BalanceInputs, BalanceNet, Weighed, load_balance
from arr_coc.selector import Selector
from arr_coc_lab.evaluate.sources import RealSample
from arr_coc_lab.teaching.balance import (
    Maker,
    Taught,
    balance_loss,
    disturbed,
    drawn_samples,
    fit,
    grids_of,
    kept_examples,
    tension_loss,
    touched,
)
from near import near

WORDINGS = Path(__file__).parents[3] / "runs" / "wordings_development.tsv"
SIZE = (320, 256)
BOX = (32.0, 64.0, 96.0, 96.0)
QUESTION = "What is the total?"


@pytest.fixture(scope="module")
def maker() -> Maker:
    return Maker()


@pytest.fixture(scope="module")
def sample() -> RealSample:
    image = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(image)
    draw.text((40, 70), "Total 42", fill="black")
    draw.ellipse((200, 150, 260, 210), fill="red")
    return RealSample(
        "page", "page", lambda: image, ((QUESTION, "value", (BOX,)), ("Describe it.", "overview", ()))
    )


@pytest.fixture(scope="module")
def taught(maker: Maker, sample: RealSample) -> list[Taught]:
    return list(maker.taught(sample))


def weighed(logits: Tensor) -> Weighed:
    gates = torch.full((len(logits), 3), 0.5, requires_grad=True)
    return Weighed(logits, logits, gates, torch.full((len(logits), 3), 0.5, requires_grad=True))


def test_evidence_is_each_cell_that_a_box_touches() -> None:
    cells = touched([(31, 0, 34, 10), (64, 40, 66, 42)], (4, 4), (128, 128))
    assert cells.nonzero().tolist() == [[0, 0], [0, 1], [1, 2]]
    assert touched([], (2, 2), (64, 64)).sum() == 0
    assert touched([(0, 0, 999, 999)], (3, 5), (64, 64)).all()


def test_both_grids(taught: list[Taught]) -> None:
    assert {one.grid: tuple(one.evidence.shape[1:]) for one in taught} == grids_of(SIZE)
    own = taught[0]
    assert own.asks == ("value", "overview")
    assert own.target[0].equal(own.evidence[0])
    assert 0 < own.target[1].float().mean() <= 0.5  # of an overview what holds most: here most is blank


def test_it_reads_what_the_selector_reads(sample: RealSample, taught: list[Taught]) -> None:
    decision = Selector().decide(sample.image(), QUESTION, budget=4)
    with torch.no_grad():
        expected = load_balance()(taught[0].inputs["guide"])
    assert near(decision.allocations[0].balanced, expected.logits[:1].sigmoid())
    assert near(decision.allocations[0].weights, expected.gates[0])


def test_examples_are_made_once(
    maker: Maker, sample: RealSample, taught: list[Taught], tmp_path: Path
) -> None:
    first = kept_examples(tmp_path, [sample], maker)
    again = kept_examples(tmp_path, [sample], maker)
    assert len(list(tmp_path.iterdir())) == len(first) == len(again) == len(taught)
    for one, other in zip(
        sorted(first, key=lambda o: o.grid), sorted(taught, key=lambda o: o.grid), strict=True
    ):
        assert (one.picture, one.kind, one.grid, one.asks) == (
            other.picture,
            other.kind,
            other.grid,
            other.asks,
        )
        assert one.inputs.keys() == other.inputs.keys()
        for name in BalanceInputs._fields[1:]:
            assert torch.equal(getattr(one.inputs["guide"], name), getattr(other.inputs["guide"], name))


def test_disturbed_inputs_keep_their_shape(taught: list[Taught]) -> None:
    inputs = taught[0].inputs["guide"]
    rng = random.Random(0)
    made = [disturbed(inputs, rng) for _ in range(60)]
    assert all(one.logits.shape == inputs.logits.shape for one in made)
    nameless = [one for one in made if one.kinds == (OTHER,)]
    assert 0 < len(nameless) < 30
    assert not any(one.facts[:, -2].any() for one in nameless)
    assert any(not one.question[0].any() for one in made)


def test_the_loss_pays_for_the_worst_evidence_cell() -> None:
    target = torch.zeros(1, 32, 32, dtype=torch.bool)
    target[0, 4, 4:8] = True
    base = 0.1 * torch.randn(1, 32, 32, generator=torch.Generator().manual_seed(0)) - 4
    half, whole = base.clone(), base.clone()
    half[0, 4, 4:7] = 3
    whole[0, 4, 4:8] = 3
    losses = [float(balance_loss(weighed(one), target)) for one in (base, half, whole)]
    assert losses[0] > losses[1] > losses[2]


def test_tensions_learn_apart_from_maps() -> None:
    logits = torch.randn(2, 8, 8, requires_grad=True)
    one = weighed(logits)
    wanted = torch.zeros(2, 64)
    wanted[:, :3] = 1
    tension_loss(one, wanted).sum().backward()
    assert logits.grad is None
    assert one.tensions.grad is not None
    assert one.tensions.grad[:, :2].abs().min() > 0


@pytest.mark.slow
def test_what_it_learns_is_kept(taught: list[Taught]) -> None:
    real = [one._replace(kind="screenshot") for one in taught] * 8

    def loss(net: BalanceNet) -> float:
        with torch.no_grad():
            return float(balance_loss(net(taught[0].inputs["guide"]), taught[0].target))

    net = fit(real, epochs=3)
    assert loss(net) < loss(BalanceNet())
    again = fit(real, epochs=3)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


@pytest.mark.slow
def test_drawn_pictures_ask_for_places_and_for_none() -> None:
    samples = list(drawn_samples(1, WORDINGS))
    asks = {ask for sample in samples for _, ask, _ in sample.questions}
    assert {"overview", "busy", "dense", "anomaly"} <= asks
    assert {sample.kind for sample in samples} == {"odd", "dense", "page", "street"}
    assert image_pixels(samples[0].image()).shape[1] == 3
