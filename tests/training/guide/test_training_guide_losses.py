"""Both losses are finite and fall on what they are shown again."""

import pytest
import torch

from arr_coc.core.guide.guide import Guide
from arr_coc.training.guide.lessons import Crops, Examples
from arr_coc.training.guide.page import open_pages
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
