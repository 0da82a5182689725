"""Blocks of the guide's head and page: untrained they change nothing; they carry along rows and columns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from arr_coc.guide.guide import Guide
from arr_coc.guide.head import (
    MAPS,
    OF_QUESTION,
    PAGE_BLOCKS,
    WIDTH,
    AxialAttention,
    AxialBlock,
    _turns,
    rotate,
)
from arr_coc.guide.lexicon import text_meaning
from arr_coc.guide.question import WIDTH as QUESTION_WIDTH


@pytest.fixture
def places() -> Tensor:
    return torch.randn(2, 5, 7, WIDTH, generator=torch.Generator().manual_seed(0))


def learned(module: nn.Module) -> nn.Module:
    """A module whose every weight is other than at its start."""
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.1)
    return module


@pytest.mark.parametrize("led", [True, False])
def test_an_untrained_block_changes_nothing(places: Tensor, led: bool) -> None:
    pooled = torch.randn(2, QUESTION_WIDTH) if led else None
    assert torch.equal(AxialBlock(led)(places, pooled), places)


def test_a_block_is_led_by_a_question_or_by_none(places: Tensor) -> None:
    led = learned(AxialBlock())
    assert not torch.allclose(
        led(places, torch.zeros(2, QUESTION_WIDTH)), led(places, torch.ones(2, QUESTION_WIDTH))
    )
    assert not any(name.startswith("lead") for name, _ in AxialBlock(led=False).named_parameters())


def test_a_line_carries_along_its_own_row_alone(places: Tensor) -> None:
    line = learned(AxialAttention())
    changed = places.clone()
    changed[0, 2, 6] = changed[1, 0, 0]
    differs = (line(changed) - line(places)).abs().amax(-1) > 1e-6
    assert differs[0, 2].all()
    assert not differs[0, [0, 1, 3, 4]].any()
    assert not differs[1].any()


def test_every_block_of_a_page_tells_of_places_far_away() -> None:
    guide = Guide().eval()
    picture = torch.rand(3, 128, 256, generator=torch.Generator().manual_seed(0))
    plain = guide.page(picture).features
    assert len(guide.pages.blocks) == PAGE_BLOCKS
    for block in guide.pages.blocks:
        nn.init.normal_(block.rows.outer.weight, std=0.1)
        now = guide.page(picture).features
        assert not torch.allclose(now, plain)
        plain = now


def test_a_question_expects_print_of_its_own_meaning_until_it_has_learned_better() -> None:
    guide = Guide().eval()
    words = ["which", "salary", "does", "she", "get"]
    reading = guide.read([words])
    assert torch.allclose(reading.expected[0], text_meaning(words), atol=1e-5)
    nn.init.normal_(guide.reader.expected.weight, std=0.1)
    other = guide.read([words])
    assert not torch.allclose(other.expected, reading.expected, atol=0.01)
    assert float(other.expected.detach().norm()) == pytest.approx(1, abs=1e-5)


def test_what_a_question_expects_reaches_the_head() -> None:
    guide = learned(Guide()).eval()
    page = guide.page(torch.rand(3, 128, 256, generator=torch.Generator().manual_seed(0)))
    search = guide.search(page, ["Which salary does she get?"])
    assert guide.maps(search).shape == (1, 5, MAPS - OF_QUESTION - 1, 8, 8)
    reading = guide.reader(search.questions, search.own)
    place = torch.zeros(8, 8)
    place[3, 5] = 1
    logits = [
        guide.weigh(page._replace(passages=reading.expected[..., None, None] * share * place), search).logits[
            0
        ]
        for share in (0.0, 1.0)
    ]
    assert (logits[1] - logits[0])[3, 5].abs() > 1e-3


def test_turns_are_the_same_whatever_the_default_type_of_numbers() -> None:
    """They are kept between calls, so that one call under another default would spoil all later ones."""
    x = torch.rand(1, 5, 2, 8, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    expected = rotate(x)
    _turns.cache_clear()
    torch.set_default_dtype(torch.bfloat16)
    try:
        turned = rotate(x)
    finally:
        torch.set_default_dtype(torch.float32)
        _turns.cache_clear()
    assert torch.equal(turned, expected)
