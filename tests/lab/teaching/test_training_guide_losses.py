"""Both losses are finite and fall on what they are shown again."""

import random

import pytest
import torch

from arr_coc.guide.guide import Guide
from arr_coc.guide.question import ALPHABET
from arr_coc_lab.teaching.page import open_pages
from arr_coc_lab.teaching.spotting import (
    MIDDLE,
    SLIPS,
    Crop,
    CropThing,
    make_targets,
    near_misses,
    spotting_loss,
)
from arr_coc_lab.teaching.stages import STAGES, Crops, Examples
from arr_coc_lab.teaching.trainer import GuideLearner

STEPS = 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spotting", "relevance"])
def test_it_falls(name, tiny, pages):
    recipe = tiny()
    stage, guide = STAGES[name](recipe), Guide()
    draw = open_pages([str(pages)])
    data = Crops(draw, 2, 128, 0, 0) if name == "spotting" else Examples(draw, 1, 0)
    ((lesson, *_), *_) = data[0]
    learner = GuideLearner(guide, stage, torch.device("cpu"), 0.998).train()
    parameters = {name: p for name, p in guide.named_parameters() if p.requires_grad}
    assert {part.split(".")[0] for part in parameters} == set(stage.parts)
    optimizer = torch.optim.AdamW(learner.groups())
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


def test_the_other_names_of_a_thing_do_not_compete_with_the_one_that_is_taught():
    """A cart is a trolley too; a printed "basket" and the name of another thing are rivals of it."""
    slots = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [3, 1]])
    cart, gear = CropThing(("cart", "trolley"), slots), CropThing(("gear", "cog"), slots)
    letters = torch.zeros(len(ALPHABET), 16, 16, dtype=torch.bool)
    blank = torch.zeros(0, 2, dtype=torch.long)
    crop = Crop(
        torch.rand(3, 128, 128), ["trolley", "basket"], torch.tensor([[9, 1, 0], [9, 3, 1]]), blank, letters
    )
    targets = make_targets([crop._replace(things=(cart, gear))], ["garage"], random.Random(1))
    assert len(targets.things) == 2 * MIDDLE
    assert {"trolley", "basket", "garage"} <= set(targets.words)
    for (_, _, _, name), also in zip(targets.things.tolist(), targets.other_names, strict=True):
        thing = cart if targets.words[name] in cart.words else gear
        assert targets.words[name] in thing.words
        others = {word for word, other in zip(targets.words, also.tolist(), strict=True) if other}
        assert others == (set(thing.words) & set(targets.words)) - {targets.words[name]}
    assert sorted(row[3] for row in targets.printed.tolist()) == [0, 1]


def test_some_words_are_misspelt_but_never_beside_themselves():
    """The slots of a misspelt word are taught its slip alone; numbers are typed as printed."""
    words = ["invoice", "delivery", "customer", "payment", "reference", "10:33", "total", "sum", "inv-2041"]
    slots = torch.tensor([[row, 1, row] for row in range(len(words))])
    letters = torch.zeros(len(ALPHABET), 16, 16, dtype=torch.bool)
    crop = Crop(torch.rand(3, 128, 128), words, slots, torch.zeros(0, 2, dtype=torch.long), letters)
    slips = 0
    for seed in range(40):
        targets = make_targets([crop], ["delivery", "other"], random.Random(seed))
        for _, row, _, number in targets.printed.tolist():
            word, typed = words[row], targets.words[number]
            if word != typed:
                slips += 1
                assert word in ("invoice", "customer", "payment", "reference", "total")
                assert word not in targets.words
                assert abs(len(word) - len(typed)) <= 1
                assert (word[0], word[-1]) == (typed[0], typed[-1])
    assert 0.5 * SLIPS < slips / (40 * 5) < 1.5 * SLIPS


def test_what_is_shown_moves_the_eyes():
    """A crop's loss with its thing's slots differs from that without, and the eyes have a gradient by it."""
    guide, rng = Guide(), random.Random(0)
    letters = torch.zeros(len(ALPHABET), 16, 8, dtype=torch.bool)
    empty = torch.tensor([[0, 0]])
    crop = Crop(
        torch.rand(3, 128, 128),
        ["total"],
        torch.tensor([[9, 1, 0]]),
        empty,
        letters[:, :, :1].expand(-1, -1, 16),
    )
    thing = CropThing(("cart", "trolley"), torch.tensor([[4, 4]]))
    plain, parts = spotting_loss(guide, [crop, crop], ["other"], rng)
    assert "named" not in parts
    loss, parts = spotting_loss(guide, [crop, crop._replace(things=(thing,))], ["other"], rng)
    assert parts["named"] > 0
    assert loss > plain
    loss.backward()
    assert guide.eyes.print[0].weight.grad.abs().sum() > 0


def test_the_mean_follows_what_learns(tiny):
    guide = Guide()
    learner = GuideLearner(guide, STAGES["relevance"](tiny()), torch.device("cpu"), 0.998)
    with torch.no_grad():
        for parameter in guide.parameters():
            if parameter.requires_grad:
                parameter += 1
    learner.average()
    weights, mean = learner.both()
    moved = (mean.head.state_dict().popitem()[1] - weights.head.state_dict().popitem()[1]).abs().max()
    assert 0.05 < moved < 0.15  # a tenth of the old is left
    assert torch.equal(mean.sharpness, Guide().sharpness)
