"""Budgets and selection: laws of the allocator."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from arr_coc.choose.allocation import Reason
from arr_coc.choose.attending import (
    ALIGNMENT_CAP,
    STRUCTURE_ALIGNMENT,
    NonFiniteScores,
    TokenAllocator,
    _alignment,
    compute_retention_mask,
    coverage,
    even_grid,
    gate,
    spread_order,
)
from arr_coc.choose.budget import (
    budget_count,
)
from arr_coc.choose.knowing import cell_information, declared_channels
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.texture import generate_texture_array
from arr_coc_lab.world import draw_page
from each import each
from strokes import splattered

SIZES = [(1, 1), (1, 7), (9, 1), (4, 4), (5, 8), (13, 6), (32, 32), (3, 94)]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def has_structure(texture: torch.Tensor, channels: str) -> torch.Tensor:
    """Whether a layer of these channels sees structure in a texture."""
    return ARRCOCLayer(ARRCOCConfig(dim=8, channels=channels)).structured(texture)


def allocate(scores, budget=None, explore=0.0, **tensions):
    return TokenAllocator(explore)(scores, budget, **tensions)


class TestFixed:
    @each("size", SIZES)
    @each("budget", [1, 0.3, 0.5, 1.0])
    @each("explore", [0.0, 0.3])
    @each("void", [False, True])
    def test_laws(self, size, budget, explore, void):
        """Unique, in bounds, raster order, exact count, relevance order beside; ties included."""
        total = size[0] * size[1]
        scores = (torch.rand(2, *size) * 4).round()
        for image, s in zip(
            scores, allocate(scores, budget, explore, void=torch.tensor([void, False])), strict=True
        ):
            assert len(s.keep) == budget_count(budget, total) == len(s.reasons)
            assert (s.keep[1:] > s.keep[:-1]).all()
            assert s.keep[0] >= 0
            assert s.keep[-1] < total
            assert torch.equal(s.order.sort().values, s.keep)
            assert (image.flatten()[s.order].diff() <= 0).all()

    def test_feature(self):
        (s,) = allocate(torch.tensor([[[0.1, 0.9, 0.5], [0.9, 0.2, 0.7]]]), 4)
        assert s.keep.tolist() == [1, 2, 3, 5]
        assert s.order.tolist() == [1, 3, 5, 2]
        assert s.reasons.tolist() == [Reason.RELEVANT] * 4

    def test_ties_go_to_the_earlier_cell(self):
        (s,) = allocate(torch.ones(1, 4, 4), 5)
        assert s.keep.tolist() == s.order.tolist() == [0, 1, 2, 3, 4]

    def test_a_smaller_budget_is_a_subset(self):
        scores = torch.rand(1, 8, 8)
        kept = [set(allocate(scores, k)[0].keep.tolist()) for k in (5, 20, 50)]
        assert kept[0] < kept[1] < kept[2]

    def test_everything_kept_says_so(self):
        (s,) = allocate(torch.rand(1, 4, 4), 1.0, explore=0.5, void=torch.tensor([True]))
        assert s.keep.tolist() == list(range(16))
        assert set(s.reasons.tolist()) == {Reason.ALL}
        assert not s.void

    def test_no_neighbour_in_the_batch_matters(self):
        scores = torch.rand(3, 8, 8)
        scores[1] *= 1000
        together, alone = allocate(scores, 9), allocate(scores[2:], 9)
        assert torch.equal(together[2].keep, alone[0].keep)

    @each("bad", [float("nan"), float("inf"), -float("inf")])
    def test_non_finite_scores_are_named(self, bad):
        scores = torch.rand(1, 4, 4)
        scores[0, 2, 2] = bad
        with pytest.raises(NonFiniteScores, match="1 of 16 scores"):
            allocate(scores, 4)
        with pytest.raises(NonFiniteScores):
            compute_retention_mask(scores, 4)
        assert issubclass(NonFiniteScores, ValueError)

    @each("explore", [-0.1, 0.6, float("nan")])
    def test_explore_out_of_range(self, explore):
        with pytest.raises(ValueError, match="explore"):
            TokenAllocator(explore)

    def test_no_gradient_is_kept(self):
        (s,) = allocate(torch.rand(1, 4, 4, requires_grad=True), 4)
        assert not s.order.requires_grad


class TestRetentionMask:
    def test_agrees_with_the_allocator(self):
        scores = torch.rand(2, 6, 7)
        mask = compute_retention_mask(scores, 11)
        assert mask.shape == scores.shape
        for m, s in zip(mask, allocate(scores, 11), strict=True):
            assert torch.equal(m.flatten().nonzero().flatten(), s.keep)

    def test_one_flat_map(self):
        assert compute_retention_mask(torch.tensor([0.1, 0.5, 0.5]), 1).tolist() == [False, True, False]

    @pytest.mark.parametrize("count", [0, 17])
    def test_exception(self, count):
        with pytest.raises(ValueError, match=f"cannot keep {count} of 16"):
            compute_retention_mask(torch.rand(1, 4, 4), count)


class TestEvenGrid:
    @each("size", SIZES)
    def test_exactly_k_distinct_cells_for_every_k(self, size):
        total = size[0] * size[1]
        for count in range(1, total + 1):
            cells = even_grid(size, count)
            assert len(cells) == count
            assert (cells.diff() > 0).all()
            assert 0 <= cells[0] <= cells[-1] < total

    @pytest.mark.parametrize("count", [0, 13])
    def test_exception(self, count):
        with pytest.raises(ValueError, match=f"cannot spread {count} cells over a grid of 3x4; use 1 to 12"):
            even_grid((3, 4), count)

    def test_feature(self):
        assert even_grid((4, 4), 4).tolist() == [5, 7, 13, 15]
        assert even_grid((1, 8), 2).tolist() == [2, 6]
        assert even_grid((3, 3), 1).tolist() == [4]

    @each("count", [16, 50, 64, 100, 273])
    def test_well_spread(self, count):
        """Every cell of the grid is near a kept one, and every quarter gets its share."""
        cells = even_grid((32, 32), count)
        yx = torch.stack((cells // 32, cells % 32), -1).float()
        everywhere = torch.cartesian_prod(torch.arange(32.0), torch.arange(32.0))
        assert torch.cdist(everywhere, yx).amin(1).max() <= 1.1 * 32 / count**0.5 + 0.5
        quarters = ((yx[:, 0] >= 16) * 2 + (yx[:, 1] >= 16)).long().bincount(minlength=4)
        assert quarters.max() - quarters.min() <= 0.5 * count / 4 + 2


class TestExplore:
    def test_a_stated_share_goes_to_coverage(self):
        (s,) = allocate(torch.rand(1, 16, 16), 60, explore=0.25)
        counts = s.reasons.bincount(minlength=2)
        assert counts[Reason.EXPLORED] == 15
        best = set(s.order[:45].tolist())
        assert {int(k) for k, r in zip(s.keep, s.reasons, strict=True) if r == Reason.RELEVANT} == best

    def test_coverage_is_far_from_the_kept_and_even(self):
        scores = torch.zeros(1, 32, 32)
        scores[0, :8, :8] = 1 + torch.rand(8, 8)
        (s,) = allocate(scores, 80, explore=0.2)
        explored = s.keep[s.reasons == Reason.EXPLORED]
        y, x = explored // 32, explored % 32
        assert len(explored) == 16
        assert not ((y < 9) & (x < 9)).any()
        blocks = {(int(a) // 8, int(b) // 8) for a, b in zip(y, x, strict=True)}
        assert len(blocks) >= 13  # of 15 blocks of 8x8
        between = torch.pdist(torch.stack((y, x), -1).float())
        assert between.min() >= 4

    def test_when_little_room_is_left(self):
        kept = torch.ones(16, dtype=torch.bool)
        kept[[3, 12, 13]] = False
        assert sorted(coverage(kept, 3, (4, 4)).tolist()) == [3, 12, 13]

    @each("size", SIZES)
    def test_any_beginning_of_the_spread_order_covers(self, size):
        rank = spread_order(size)
        assert sorted(rank.tolist()) == list(range(size[0] * size[1]))

    def test_first_sixteen_of_the_order_are_in_sixteen_blocks(self):
        first = (spread_order((32, 32)) < 16).nonzero().flatten()
        assert len({(int(i) // 32 // 8, int(i) % 32 // 8) for i in first}) == 16


def picture(kind: str, seed: int = 0) -> torch.Tensor:
    """A drawn image [1, 3, 512, 512]."""
    g = torch.Generator().manual_seed(seed)
    if kind == "noise":
        return torch.rand(1, 3, 512, 512, generator=g)
    if kind == "faint noise":
        return (0.9 + 0.02 * torch.randn(1, 3, 512, 512, generator=g)).clamp(0, 1)
    image = Image.new("RGB", (512, 512), "white")
    draw = ImageDraw.Draw(image)
    r = torch.rand(3000, 6, generator=g)
    if kind == "splatter":
        for x, y, size, *colour in r.tolist():
            a, rgb = 2 + 8 * size**3, tuple(int(255 * c) for c in colour)
            draw.ellipse((512 * x - a, 512 * y - a, 512 * x + a, 512 * y + a), fill=rgb)
            if size > 0.9:
                draw.line(
                    (512 * x, 512 * y, 512 * x + 200 * (colour[0] - 0.5), 512 * y + 60),
                    fill=rgb,
                    width=3,
                )
    if kind == "page":
        for i, y in enumerate(range(30, 480, 36)):
            draw.text(
                (30, y),
                "Invoice number 4711 for the sum of"[: 34 - i],
                fill="black",
                font=ImageFont.load_default(20),
            )
    if kind == "icons":
        for number in range(20):
            x, y = 90 * (number % 5) + 50, 90 * (number // 5) + 60
            draw.ellipse((x, y, x + 40, y + 40), fill=tuple(int(255 * c) for c in r[number, 3:].tolist()))
            draw.text((x - 8, y + 48), f"Icon {number}", fill="black", font=ImageFont.load_default(14))
    if kind == "word":
        draw.text((300, 100), "Hi", fill="black", font=ImageFont.load_default(20))
    if kind == "gray on gray":
        draw.rectangle((0, 0, 512, 512), fill=(170, 170, 170))
        draw.text(
            (60, 200),
            "The gray text says nothing",
            fill=(150, 150, 150),
            font=ImageFont.load_default(24),
        )
    if kind == "circle":
        draw.ellipse((300, 300, 340, 340), fill="red")
    return to_tensor(image)


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255


class TestVoid:
    @each("channels", ["mvp13", "fast13"])
    @pytest.mark.parametrize("kind", ["blank", "noise", "faint noise", "splatter"])
    def test_nothing_to_prefer(self, kind, channels):
        for seed in range(3):
            assert not has_structure(
                generate_texture_array(picture(kind, seed), (16, 16), channels), channels
            )

    @each("channels", ["mvp13", "fast13"])
    @pytest.mark.parametrize("kind", ["page", "icons", "word", "gray on gray", "circle"])
    def test_something_to_prefer(self, kind, channels):
        assert has_structure(generate_texture_array(picture(kind), (16, 16), channels), channels)

    @each("strokes", [300, 700, 1500])
    @each("size", [(1024, 1024), (800, 608), (480, 1056), (2048, 192)])
    def test_strokes_of_any_number_are_nothing_to_prefer(self, strokes, size):
        grid = (size[1] // 32, size[0] // 32)
        for seed in range(3):
            pixels = to_tensor(splattered(size, strokes, seed))
            for channels in ("mvp13", "fast13"):
                assert not has_structure(generate_texture_array(pixels, grid, channels), channels), channels

    @pytest.mark.parametrize("channels", ["mvp13", "fast13"])
    def test_a_layout_is_structure_and_chance_is_none(self, channels):
        def alignment(image):
            texture = generate_texture_array(image, (16, 16), channels)
            information = cell_information(texture, declared_channels(channels, "spread"))
            return float(_alignment(information.mean(1).clamp(max=ALIGNMENT_CAP)))

        assert alignment(picture("icons")) > 1.2 * STRUCTURE_ALIGNMENT
        for strokes, seed in product((60, 100, 200), range(4)):
            assert alignment(to_tensor(splattered((512, 512), strokes, seed))) < 0.95 * STRUCTURE_ALIGNMENT

    def test_alignment_of_independent_cells_is_one(self):
        maps = torch.rand(200, 24, 40, generator=torch.Generator().manual_seed(0))
        assert float(_alignment(maps).mean()) == pytest.approx(1, abs=0.05)
        assert _alignment(torch.full((1, 24, 40), 0.3)) == 0

    def test_a_photograph(self):
        from matplotlib.cbook import get_sample_data

        with get_sample_data("grace_hopper.jpg") as file:
            image = to_tensor(Image.open(file).convert("RGB"))
        assert has_structure(generate_texture_array(image, (19, 16)), "mvp13")

    def test_decided_for_each_image(self):
        both = torch.cat([generate_texture_array(picture(k), (16, 16)) for k in ("page", "noise")])
        assert has_structure(both, "mvp13").tolist() == [True, False]

    @pytest.mark.parametrize("size", [(256, 256), (512, 768)])
    def test_drawn_pages(self, size):
        for seed in range(4):
            image = to_tensor(draw_page(seed, size, "test", void=False).image)
            assert has_structure(generate_texture_array(image, (size[1] // 32, size[0] // 32)), "mvp13")

    @each("grid", [(1, 1), (3, 3), (2, 40), (13, 13)])
    def test_few_cells_are_void_only_when_blank(self, grid):
        assert has_structure(generate_texture_array(picture("noise"), grid), "mvp13")
        assert not has_structure(generate_texture_array(picture("blank"), grid), "mvp13")

    def test_falls_back_to_an_even_grid_and_says_so(self):
        (s,) = allocate(torch.rand(1, 16, 16), 64, explore=0.2, void=torch.tensor([True]))
        assert torch.equal(s.keep, even_grid((16, 16), 64))
        assert set(s.reasons.tolist()) == {Reason.VOID}
        assert s.void


class TestGate:
    def test_one_forward_and_a_gradient_back(self):
        scores = torch.rand(1000).requires_grad_()
        g = gate(scores)
        assert (g == 1).all()
        g.sum().backward()
        assert torch.allclose(scores.grad, 1 / scores.detach(), rtol=1e-4)

    def test_zero_is_no_trap(self):
        scores = torch.zeros(3, requires_grad=True)
        gate(scores).sum().backward()
        assert scores.grad.isfinite().all()
