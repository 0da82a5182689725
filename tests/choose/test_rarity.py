"""Rarity: what is unlike anything else in its picture is rare, whatever it looks like; what recurs is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from arr_coc.choose.knowing import declared_channels, saliency
from arr_coc.choose.rarity import MAX_WINDOWS, rarity, standing_out
from arr_coc.choose.texture import generate_texture_array
from arr_coc.data.evidence import evidence_cells
from arr_coc.files.pixels import image_pixels
from arr_coc_lab.world.odd import WAYS, draw_odd_page
from arr_coc_lab.world.street import draw_street

GRID = (32, 32)


def dots(odd: bool = True, grid: tuple[int, int] = (24, 24)) -> Tensor:
    """Blue discs in rows, and a red one among them, [1, 3, h, w]; a disc is 2 x 2 cells of 32 px."""
    rows, columns = grid
    y, x = torch.meshgrid(torch.arange(rows * 32), torch.arange(columns * 32), indexing="ij")
    inside = ((y % 128 - 64) ** 2 + (x % 128 - 64) ** 2) < 28**2
    red = odd * ((y // 128 == 2) & (x // 128 == 3)) * inside
    colours = torch.tensor([[1.0, 1, 1], [0.1, 0.2, 0.9], [0.9, 0.1, 0.1]])
    return colours[(inside.long() + red.long())].movedim(-1, 0)[None]


@pytest.mark.parametrize("grid", [(1, 1), (1, 40), (3, 5), (8, 8), (13, 32), (32, 32), (50, 48)])
@pytest.mark.parametrize("size", [(7, 5), (320, 200)])
def test_any_picture_and_grid(grid: tuple[int, int], size: tuple[int, int]) -> None:
    picture = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(1))
    rare = rarity(picture, grid)
    assert rare.shape == (2, *grid)
    assert rare.dtype == torch.float32
    assert ((rare >= 0) & (rare < 1)).all()
    assert torch.equal(rare, rarity(picture, grid)), "nothing is drawn by chance"
    assert torch.allclose(rare[1:], rarity(picture[1:], grid), atol=1e-5), "no picture influences another"


@pytest.mark.parametrize("colour", [(1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.3, 0.7, 0.1), (0.999, 0.001, 0.5)])
def test_a_blank_picture_has_nothing_rare(colour: tuple[float, float, float]) -> None:
    blank = torch.tensor(colour).view(1, 3, 1, 1).expand(1, 3, 301, 412)
    assert (rarity(blank, (9, 13)) == 0).all()
    assert standing_out(rarity(blank, (9, 13))).tolist() == [0.0]


def test_what_recurs_is_not_rare_and_the_one_that_does_not_is() -> None:
    same, odd = rarity(dots(odd=False), (24, 24))[0], rarity(dots(), (24, 24))[0]
    assert same.max() < 0.2, "but for the corners, hardly anything"
    assert same.median() < 0.01
    assert odd.max() > 0.9
    y, x = divmod(int(odd.argmax()), 24)
    assert (y // 4, x // 4) == (2, 3)
    assert odd.median() < 0.05


def test_a_kind_of_four_is_more_common_than_one_of_its_own() -> None:
    """A thing is rare as far as its third most similar window is from it."""
    alone, four = dots(), dots(odd=False)
    red = alone[..., 256:384, 384:512]
    for y, x in ((2, 3), (1, 1), (4, 1), (3, 4)):
        four[..., 128 * y : 128 * y + 128, 128 * x : 128 * x + 128] = red
    middle = (0, slice(9, 11), slice(13, 15))
    one, many = (torch.logit(rarity(picture, (24, 24))[middle]).mean() for picture in (alone, four))
    assert one > many + 1


@pytest.mark.parametrize("way", WAYS)
def test_what_is_odd_is_kept_in_whatever_way_it_is(way: str) -> None:
    found, by_contrast = [], []
    for seed in range(3):
        page = draw_odd_page(seed, (1024, 1024), "test", way)
        pixels = image_pixels(page.image)
        evidence = evidence_cells(page.questions[0].evidence, GRID, page.image.size).flatten()
        texture = generate_texture_array(pixels, GRID, "mvp13")
        contrast = saliency(texture, declared_channels("mvp13", "salient"))
        for recalls, one in ((found, rarity(pixels, GRID)), (by_contrast, contrast)):
            recalls.append(float(evidence[one.flatten().topk(64).indices].sum() / evidence.sum()))
    assert sum(found) / 3 > 0.75
    assert sum(found) > sum(by_contrast)


def test_a_large_grid_compares_with_some_windows_and_finds_the_same() -> None:
    grid = (48, 48)
    assert grid[0] * grid[1] > MAX_WINDOWS
    rare = rarity(dots(grid=grid), grid)[0]
    y, x = divmod(int(rare.argmax()), 48)
    assert (y // 4, x // 4) == (2, 3)


def test_a_red_dot_stands_out_of_blue_ones_and_nothing_out_of_a_street() -> None:
    street = image_pixels(draw_street(1).image)
    assert standing_out(rarity(dots(), (24, 24))) > 0.9
    assert standing_out(rarity(street, (24, 32))) < 0.15


def test_how_far_something_stands_out() -> None:
    flat, peaked = torch.full((1, 20, 20), 0.7), torch.full((1, 20, 20), 0.01)
    peaked[0, 3, 4] = 0.9
    crowded = peaked.clone()
    crowded[0, :4] = 0.9
    values = [float(standing_out(one)) for one in (flat, peaked, crowded, torch.zeros(1, 20, 20))]
    assert values[1] > 0.95
    assert max(values[0], *values[2:]) < 1e-3
