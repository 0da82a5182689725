"""Three ways of knowing on what ships: each leads where the plan says, and each tension does its work."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from PIL import Image, ImageDraw

import arr_coc
from arr_coc.choose.allocation import Allocation, Reason
from arr_coc.files.saved import BUNDLED
from arr_coc.selector import Selector

INFORMATION, PERSPECTIVAL, PARTICIPATORY = range(3)
LEADS = {
    "Describe the image.": INFORMATION,
    "What is unusual here?": PERSPECTIVAL,
    "Where is the total?": PARTICIPATORY,
}
DESCRIBE, UNUSUAL, TOTAL = LEADS
FORMULA = "What is the formula?"  # by what is rare on a page and what the guide finds, as much as each other
MAPS = ("information", "perspectival", "participatory")


@cache
def page() -> Image.Image:
    """An order: lines of small print, a total, and one red disc where nothing else has a colour."""
    image = Image.new("RGB", (1024, 768), "white")
    draw = ImageDraw.Draw(image)
    names = ("Copper wire", "Oak shelf", "Paper bag", "Steel bolt", "Glass lamp", "Wool blanket", "Clay pot")
    for line, name in enumerate(names):
        draw.text((64, 96 + 52 * line), name, fill="black", font_size=26)
        draw.text((620, 96 + 52 * line), f"{12 + 7 * line}.50", fill="black", font_size=26)
    draw.text((64, 520), "Total", fill="black", font_size=28)
    draw.text((620, 520), "231.50", fill="black", font_size=28)
    draw.ellipse((856, 616, 956, 716), fill=(220, 20, 20))
    return image


@cache
def look(question: str, budget: int | str = 64, picture: str = "page") -> Allocation:
    return selector()(page(), question, budget=budget)


@cache
def selector() -> Selector:
    return Selector.from_pretrained()


@pytest.mark.parametrize("question", [*LEADS, FORMULA])
def test_every_map_has_spread(question: str) -> None:
    for name in MAPS:
        assert torch.logit(getattr(look(question), name), eps=1e-6).std() > 0.1, name


@pytest.mark.parametrize("question", LEADS)
def test_each_question_leans_on_its_way_of_knowing(question: str) -> None:
    leader = LEADS[question]
    weights = look(question).weights
    assert int(weights.argmax()) == leader
    others = [look(other).weights[leader] for other in (*LEADS, FORMULA) if other != question]
    assert weights[leader] > max(others)


def test_the_total_is_kept_and_the_red_disc_is_what_is_unusual() -> None:
    total, disc = torch.zeros(24, 32, dtype=torch.bool), torch.zeros(24, 32, dtype=torch.bool)
    total[16, 2:4] = total[16, 19:22] = True
    disc[20:22, 27:29] = True
    assert look(TOTAL).mask()[0][total].float().mean() > 0.8
    assert look(UNUSUAL).mask()[0][disc].all()
    assert look(TOTAL, 16).mask()[0][total].float().mean() > 0.8
    assert look(UNUSUAL, 16).mask()[0][disc].all()
    assert not look(TOTAL, 8).mask()[0][disc].any()


def test_a_description_covers_the_picture_and_may_spend_more() -> None:
    parts = look(DESCRIBE).mask()[0].unflatten(1, (4, 8)).unflatten(0, (4, 6)).sum((1, 3))
    assert parts.min() >= 1
    assert (look(DESCRIBE).reasons == Reason.EXPLORED).sum() > 16
    counts = {question: look(question, "auto").kept for question in (TOTAL, DESCRIBE)}
    assert counts[DESCRIBE] > 1.5 * counts[TOTAL]


def test_tensions_follow_the_question() -> None:
    tensions = {question: look(question).tensions for question in (TOTAL, DESCRIBE)}
    assert tensions[TOTAL]["exploit"] > 0.9 > 0.4 > tensions[DESCRIBE]["exploit"]
    assert tensions[TOTAL]["focus"] > 0.5 > tensions[DESCRIBE]["focus"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
@pytest.mark.parametrize("question", [UNUSUAL, DESCRIBE])
def test_a_trained_allocator_leaves_such_questions_to_the_guide(question: str, mode: str) -> None:
    """It has met places alone, and ranks by them whatever the question."""
    ours, trained = (model(relevance).look(page(), question, budget=64, mode=mode) for relevance in KINDS)
    expected = look(question)
    assert torch.allclose(ours.weights, expected.weights, atol=1e-3)
    assert not torch.allclose(trained.weights, expected.weights, atol=1e-2)
    assert ours.iou(expected) > 0.9
    assert trained.iou(expected) < 0.6


@pytest.mark.slow
def test_a_trained_allocator_answers_a_question_about_a_place_itself() -> None:
    """Where the picture is of its own world; elsewhere the guide chooses."""
    own = BUNDLED / "sample.png"
    ours, trained = (
        model(relevance).look(own, "What is the title?", budget=64, mode="sparse") for relevance in KINDS
    )
    assert torch.equal(ours.keep, trained.keep)
    ours, trained = (model(relevance).look(page(), TOTAL, budget=64, mode="sparse") for relevance in KINDS)
    assert ours.iou(look(TOTAL)) > 0.9 > trained.iou(look(TOTAL))


KINDS = ("auto", "trained")


@cache
def model(relevance: str) -> arr_coc.ARRCOCModel:
    return arr_coc.ARRCOCModel.from_pretrained(relevance=relevance, strict=True)


@pytest.fixture(scope="module", autouse=True)
def forget() -> object:
    yield
    for cached in (look, selector, model):
        cached.cache_clear()
