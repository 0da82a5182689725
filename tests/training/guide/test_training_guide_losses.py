"""Both losses are finite and fall on what they are shown again."""

import random
from itertools import count

import pytest
import torch

from arr_coc.core.guide.guide import Guide
from arr_coc.training.guide.lessons import Crops, Examples
from arr_coc.training.guide.page import drawn_page, open_pages
from arr_coc.training.guide.relevance import NAMING, make_example
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


def test_what_things_look_like_is_learned(tiny):
    """On one drawn page, again and again: places of a thing come to look like its name more than others."""
    stage, guide = STAGES["relevance"](tiny()), Guide()
    example, name, (x0, y0, x1, y1) = next(large_things())
    parameters = learning(guide, stage)
    optimizer = torch.optim.AdamW(stage.groups(parameters))
    figures = []
    for _ in range(16):
        loss, parts = stage.loss(guide, example, 0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), stage.longest)
        optimizer.step()
        figures.append(parts["looks"])
    assert figures[-1] < 0.5 * figures[0]
    words = (*NAMING, name)
    with torch.no_grad():
        page = guide.compose(example.pixels, guide.look(example.pixels))
        looks = guide.head.looks(page.features, guide.reader(words, guide.words(words)))[-1]
    inside = looks[round(y0 / 16) + 1 : round(y1 / 16), round(x0 / 32) : round(x1 / 32)]
    assert inside.mean() > looks.mean() + 0.5


def large_things():
    """Windows of drawn pages with a thing of 90 px and more, its name and its box."""
    for seed in count():
        rng = random.Random(seed)
        example = make_example(drawn_page(rng), (), rng)
        for name, (x0, y0, x1, y1) in example.things if example else ():
            height, width = example.pixels.shape[1:]
            if x1 - x0 >= 90 and min(x0, y0) > 0 and x1 < width and y1 < height:
                yield example, name, (x0, y0, x1, y1)


def test_nothing_is_asked_of_the_looks_of_pages_without_named_things(pages, tiny):
    ((example, *_), *_) = Examples(open_pages([str(pages)]), 1, 0)[0]
    assert not example.things
    assert "looks" not in STAGES["relevance"](tiny()).loss(Guide(), example, 0)[1]


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
