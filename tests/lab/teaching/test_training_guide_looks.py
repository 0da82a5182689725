"""What things look like: which places a lesson names, by which names, and that it is learned."""

import random
from itertools import count

import pytest
import torch

from arr_coc.guide.guide import Guide
from arr_coc_lab.teaching.page import drawn_page, open_pages
from arr_coc_lab.teaching.relevance import (
    EVERY,
    NONE,
    OTHER_NAMES,
    PART,
    SHOWN_NAMES,
    make_example,
    make_looks,
)
from arr_coc_lab.teaching.stages import STAGES, Examples
from arr_coc_lab.teaching.trainer import GuideLearner
from arr_coc_lab.world.browser.icon_sets import CALLED


def said(name):
    """What a lesson calls a thing."""
    return " ".join(name.words[name.first : name.last])


def test_places_of_a_thing_have_its_number():
    lesson = make_looks([("trash", (64.0, 32.0, 128.0, 80.0))], (256, 128), random.Random(0))
    expected = torch.full((8, 8), NONE)
    expected[2:6, 2:5] = PART  # those that it touches
    expected[2:5, 2:4] = 0
    assert torch.equal(lesson.places, expected)
    assert said(lesson.names[0]) in CALLED["trash"]


def test_a_small_thing_has_the_place_of_its_middle():
    lesson = make_looks([("star", (40.0, 20.0, 56.0, 36.0))], (256, 128), random.Random(0))
    assert (lesson.places == 0).nonzero().tolist() == [[1, 1]]


def test_what_is_outside_teaches_nothing():
    assert make_looks([], (256, 128), random.Random(0)) is None
    assert make_looks([("star", (300.0, 0.0, 340.0, 40.0))], (256, 128), random.Random(0)) is None
    half = make_looks([("star", (240.0, 0.0, 270.0, 40.0))], (256, 128), random.Random(0))
    assert (half.places == 0).any()


@pytest.mark.parametrize("seed", range(8))
def test_other_names_are_of_what_is_not_there(seed):
    rng = random.Random(seed)
    names = rng.sample(EVERY, 30)
    things = [(name, (32.0 * i, 0.0, 32.0 * i + 32, 32.0)) for i, name in enumerate(names)]
    lesson = make_looks(things, (960, 32), rng)
    assert len(lesson.names) == SHOWN_NAMES + OTHER_NAMES
    places = lesson.places[0].tolist()
    for number, name in enumerate(lesson.names):
        calls = {call.lower() for each in names for call in CALLED.get(each, (each,))}
        if number < SHOWN_NAMES:
            assert said(name) in {call.lower() for call in CALLED.get(names[places.index(number)], names)}
        else:
            assert said(name) not in calls
            assert number not in places
    assert places.count(PART) == 30 - SHOWN_NAMES  # what the lesson has no name for


@pytest.mark.slow
def test_what_things_look_like_is_learned(tiny):
    """On one drawn page, again and again: places of a thing come to look like its name more than others."""
    stage, guide = STAGES["relevance"](tiny()), Guide()
    example, number = next(large_things())
    learner = GuideLearner(guide, stage, torch.device("cpu"), 0.998).train()
    parameters = {name: p for name, p in guide.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(learner.groups())
    figures = []
    for _ in range(16):
        loss, parts = stage.loss(guide, example, 0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), stage.longest)
        optimizer.step()
        figures.append(parts["looks"])
    assert figures[-1] < 0.5 * figures[0]
    words, first, last = example.looks.names[number]
    with torch.no_grad():
        page = guide.page(example.pixels)
        looks = guide.head.appearance(page.features, guide.read([words]).tokens)[0, first:last].amax(0)
    assert looks[example.looks.places == number].mean() > looks.mean() + 0.5


def large_things():
    """Windows of drawn pages with a thing of at least ten places, and the number of its name."""
    for seed in count():
        rng = random.Random(seed)
        example = make_example(drawn_page(rng), (), rng)
        if example and example.looks:
            sizes = [int((example.looks.places == number).sum()) for number in range(SHOWN_NAMES)]
            if max(sizes) >= 10:
                yield example, sizes.index(max(sizes))


def test_nothing_is_asked_of_the_looks_of_pages_without_named_things(pages, tiny):
    ((example, *_), *_) = Examples(open_pages([str(pages)]), 1, 0)[0]
    assert example.looks is None
    assert "looks" not in STAGES["relevance"](tiny()).loss(Guide(), example, 0)[1]
