"""Both losses are finite and fall on what they are shown again."""

import random

import pytest
import torch

from arr_coc.core.guide.guide import Guide
from arr_coc.training.guide.lessons import Crops, Examples
from arr_coc.training.guide.page import open_pages
from arr_coc.training.guide.spotting import near_misses
from arr_coc.training.guide.stages import STAGES, average, learning

STEPS = 8


@pytest.mark.parametrize("name", ["spotting", "relevance"])
def test_it_falls(name, tiny, pages):
    recipe = tiny()
    stage, guide = STAGES[name](recipe), Guide()
    draw = open_pages([str(pages)])
    data = Crops(draw, 2, 128, 0, 0) if name == "spotting" else Examples(draw, 1, 0)
    ((lesson, *_), *_) = data[0]
    parameters = learning(guide, stage)
    assert {part.split(".")[0] for part in parameters} == set(stage.parts)
    optimizer = torch.optim.AdamW(stage.groups(parameters))
    losses = []
    for _ in range(STEPS):
        loss, parts = stage.loss(guide, lesson, 0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), stage.longest)
        optimizer.step()
        losses.append(loss.item())
        assert all(map(torch.isfinite, map(torch.tensor, parts.values())))
    assert min(losses[-2:]) < 0.9 * losses[0]


def test_near_misses_are_other_numbers_of_the_same_form():
    """Two for each word with a digit, each in the same form; none for words, whose slips must cost little."""
    assert near_misses(["total", "amount", "%"], random.Random(0)) == []
    for word in ("10:33", "inv-2041", "7", "2024"):
        form = ["0" if letter.isdigit() else letter for letter in word]
        for seed in range(40):
            misses = near_misses([word], random.Random(seed))
            assert 1 <= len(misses) <= 2
            assert word not in misses
            for miss in misses:
                assert ["0" if letter.isdigit() else letter for letter in miss] == form
                assert sum(a != b for a, b in zip(miss, word, strict=True)) <= 2
    letters = near_misses(["b"], random.Random(0))
    assert len(letters) == 2
    assert all(len(miss) == 1 and miss.isalpha() and miss != "b" for miss in letters)


def test_the_mean_follows_what_learns_alone():
    guide, mean = Guide(), Guide()
    stage = STAGES["relevance"]
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter += 1
    average(mean, guide, stage, step=1, most=0.998)
    moved = (mean.head.state_dict().popitem()[1] - guide.head.state_dict().popitem()[1]).abs().max()
    assert 0.05 < moved < 0.15  # a tenth of the old is left
    assert torch.equal(mean.sharpness, Guide().sharpness)
