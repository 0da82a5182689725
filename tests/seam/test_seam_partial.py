"""Encoding some cells alone, and coarse views, on tiny random towers of every Qwen family."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.vision_utils import get_vision_window_index

from arr_coc.families import FAMILIES, adapter_for
from arr_coc.families.qwen import cells_in_raster
from arr_coc.seam import FamilyAdapter, VisualFeatures
from arr_coc.seam.pixels import (
    coarse_grid,
    kept_seqlens,
    kept_windows,
    numbered_cells,
    patch_rows,
    shrink,
    to_patches,
    to_picture,
)
from near import KERNELS, apart, near
from tiny import (
    EVERY,
    KINDS,
    LLAVA_FAMILIES,
    QWEN_FAMILIES,
    Tiny,
    in_bfloat16,
    picture,
    prompts,
    some_cells,
    tiny,
)

ROWS = [
    ("Which?", [picture(1, (48, 40)), picture(3, (72, 40))]),
    ("Where?", [picture(2, (40, 72))]),
]  # grids 5x6, 5x9 and 9x5

SPARSE = [family for family in KINDS if FAMILIES[family].encodes == "cells"]
families = pytest.mark.parametrize("family", SPARSE)
PIXTRAL = tuple(family for family in ("mistral3", "mistral_large4", "lighton_ocr") if family in EVERY)
GEMMAS = tuple(family for family in SPARSE if family.startswith("gemma4"))
HUNYUANS = tuple(family for family in ("hunyuan_vl", "hy_v4_vl") if family in EVERY)
MUSES = tuple(family for family in SPARSE if family.startswith("muse"))
RASTER = ("paddleocr_vl", *HUNYUANS, *MUSES)
"""Families whose patches lie row by row, not cell by cell."""
OWN = (*GEMMAS, *PIXTRAL)
"""Families whose towers are called in a way of their own: their tests of hidden cells stand apart."""
grid_families = pytest.mark.parametrize("family", [family for family in SPARSE if family not in OWN])
qwen_families = pytest.mark.parametrize("family", QWEN_FAMILIES)


def setup(family: str, rows: list = ROWS) -> tuple[Tiny, FamilyAdapter, dict]:
    built = tiny(family)
    return built, adapter_for(built.model, built.processor), prompts(built, rows)


def pairs(one: VisualFeatures, other: VisualFeatures) -> list[tuple[Tensor, Tensor]]:
    """Tokens and levels of two encodings, image by image."""
    assert len(one.levels) == len(other.levels)
    both = zip((one.tokens, *one.levels), (other.tokens, *other.levels), strict=True)
    return [pair for images in both for pair in zip(*images, strict=True)]


def every_cell(features: VisualFeatures) -> list[Tensor]:
    return [torch.arange(size) for size in features.layout.sizes]


def masked_tower(
    family: str, adapter: FamilyAdapter, inputs: dict, keep: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> VisualFeatures:
    """The stock tower on all patches, with all but the kept cells' hidden from the kept ones."""
    layout, tower = adapter.layout(inputs), adapter.tower
    cells = numbered_cells(layout, keep)
    seen = torch.zeros(sum(layout.sizes), dtype=torch.bool).index_fill(0, cells, True)
    grid = inputs["image_grid_thw"]
    if hasattr(tower, "window_size") and family not in MUSES:
        seen = seen[get_vision_window_index(grid, 2, tower.window_size, 4)[0]]
    seen, stock, cursor = seen.repeat_interleave(4), F.scaled_dot_product_attention, 0
    if family in RASTER:
        seen = torch.empty_like(seen).index_copy(0, cells_in_raster(grid, 2), seen)
    if family in MUSES:  # whose windows are of patches
        seen = seen[get_vision_window_index(grid, 1, tower.window_size, 4)[0]]

    def attend(query: Tensor, key: Tensor, value: Tensor, **more: object) -> Tensor:
        nonlocal cursor
        here = seen[cursor : cursor + key.shape[-2]]
        cursor = (cursor + len(here)) % len(seen)  # segments come in order, layer after layer
        return stock(query, key, value, attn_mask=here | ~here[:, None])  # the hidden ones see all

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    features = adapter.features(inputs)
    monkeypatch.undo()
    assert cursor == 0
    return features.select(features.tokens_to_keep(keep))


class TestEncodeCells:
    @families
    def test_the_layout_is_known_before_anything_is_encoded(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        assert adapter.encodes == "cells"
        before, after = adapter.layout(inputs), adapter.features(inputs).layout
        assert before.counts == after.counts
        if family not in GEMMAS:  # which scales every picture to its own size
            assert before.sizes == [30, 45, 45]
        assert before.grids == after.grids
        assert all(torch.equal(a, b) for a, b in zip(before.cells, after.cells, strict=True))
        for blind, seeing in zip(
            adapter.images(inputs), adapter.images(inputs, adapter.features(inputs)), strict=True
        ):
            assert torch.equal(blind, seeing)

    @families
    def test_all_cells_are_the_stock_features_to_the_last_bit(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        stock = adapter.features(inputs)
        found = adapter.encode_cells(inputs, every_cell(stock))
        assert all(torch.equal(a, b) for a, b in pairs(found, stock))
        assert (found.kind, found.grids, found.cells) == (stock.kind, stock.grids, [])

    @grid_families
    def test_some_cells_are_the_whole_tower_with_the_rest_masked(
        self, family: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, adapter, inputs = setup(family)
        keep = [some_cells(30, 7, seed=1), some_cells(45, 20, seed=2), some_cells(45, 1, seed=3)]
        found = adapter.encode_cells(inputs, keep)
        expected = masked_tower(family, adapter, inputs, keep, monkeypatch)
        assert all(near(a, b) for a, b in pairs(found, expected))
        whole = adapter.features(inputs)
        unmasked = whole.select(whole.tokens_to_keep(keep))  # the test could fail
        assert min((a - b).abs().max() for a, b in pairs(found, unmasked)) > 0.01

    @families
    def test_each_image_is_encoded_as_if_alone(self, family: str) -> None:
        """Whatever its neighbours are, and whether anything of them is kept."""
        built, adapter, inputs = setup(family)
        keep = [some_cells(30, 9), torch.tensor([], dtype=torch.long), some_cells(40, 12)]
        found = adapter.encode_cells(inputs, keep)
        layout = adapter.layout(inputs)
        others = [count - size for count, size in zip(layout.counts, layout.sizes, strict=True)]
        counts = [9 + others[0], others[1], 12 + others[2]]
        assert found.counts == counts
        assert all([len(image) for image in level] == counts for level in found.levels)
        images = [image for _, row in ROWS for image in row]
        for i in (0, 2):
            alone = adapter.encode_cells(prompts(built, [("?", [images[i]])]), [keep[i]])
            assert near(found.tokens[i], alone.tokens[0])
            for level, single in zip(found.levels, alone.levels, strict=True):
                assert near(level[i], single[0])

    def test_some_cells_of_gemma4_are_the_tower_with_the_rest_as_padding(self) -> None:
        """The stock tower hides patches at position -1; a cell of the last column tells the width."""
        _, adapter, inputs = setup("gemma4", ROWS[1:])
        ((_, height, width),) = adapter.layout(inputs).grids
        keep = [torch.unique(torch.cat([some_cells(height * width, 9), torch.tensor([2 * width - 1])]))]
        found = adapter.encode_cells(inputs, keep)
        places = inputs["image_position_ids"].clone()
        cells = places[..., 1] // 3 * width + places[..., 0] // 3
        places[~torch.isin(cells, keep[0])] = -1
        tower, inner = adapter.model.model.vision_tower, adapter.model.model
        hidden = tower(pixel_values=inputs["pixel_values"], pixel_position_ids=places).last_hidden_state
        expected = inner.embed_vision(inputs_embeds=hidden)
        if 0 not in keep[0]:  # padding is pooled into the first cell
            expected = expected[1:]
        assert near(found.tokens[0], expected)
        assert (found.tokens[0] - adapter.features(inputs).select(keep).tokens[0]).abs().max() > 0.01

    def test_cells_of_gemma4_unified_depend_on_no_other(self) -> None:
        _, adapter, inputs = setup("gemma4_unified")
        stock = adapter.features(inputs)
        keep = [some_cells(count, 7 + i) for i, count in enumerate(stock.counts)]
        found = adapter.encode_cells(inputs, keep)
        assert all(near(a, b) for a, b in pairs(found, stock.select(keep)))

    @pytest.mark.parametrize("family", PIXTRAL)
    def test_some_cells_of_pixtral_are_the_tower_with_the_rest_masked(
        self, family: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, adapter, inputs = setup(family, ROWS[1:])
        ((_, height, width),) = adapter.layout(inputs).grids
        keep = [some_cells(height * width, 9)]
        found = adapter.encode_cells(inputs, keep)
        cells = (
            torch.arange(height * width).view(height, width).repeat_interleave(2, 0).repeat_interleave(2, 1)
        )
        seen = torch.isin(cells.flatten(), keep[0])
        stock = F.scaled_dot_product_attention

        def attend(query: Tensor, key: Tensor, value: Tensor, **more: object) -> Tensor:
            return stock(query, key, value, attn_mask=seen | ~seen[:, None])  # the hidden ones see all

        monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
        expected = adapter.features(inputs).select(keep)
        monkeypatch.undo()
        assert near(found.tokens[0], expected.tokens[0])  # of tokens of standard deviation 8
        assert (found.tokens[0] - adapter.features(inputs).select(keep).tokens[0]).abs().max() > 0.01

    @pytest.mark.parametrize("family", OWN)
    def test_pixels_that_are_not_kept_have_no_influence(self, family: str) -> None:
        _, adapter, inputs = setup(family, ROWS[1:])
        ((_, _, width),) = adapter.layout(inputs).grids
        keep = [torch.tensor([0, 1, width])]
        other = dict(inputs)
        if family in GEMMAS:  # patches: of the three cells at the top left alone
            x, y = inputs["image_position_ids"][0].unbind(-1)
            side = adapter.pool
            kept = torch.isin(y // side * width + x // side, keep[0]) & (x >= 0)
            other["pixel_values"] = torch.where(kept[None, :, None], inputs["pixel_values"], 0.5)
        else:
            other["pixel_values"] = inputs["pixel_values"].clone()
            other["pixel_values"][..., 16:, :] = 0.5
            other["pixel_values"][..., 8:, 8:] = 0.5
            other["pixel_values"][..., 16:] = 0.5
        found, again = adapter.encode_cells(inputs, keep), adapter.encode_cells(other, keep)
        assert torch.equal(found.tokens[0], again.tokens[0])

    @pytest.mark.parametrize("family", [*QWEN_FAMILIES, *HUNYUANS])
    def test_what_is_not_kept_has_no_influence(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        keep = [some_cells(30, 5), some_cells(45, 5), some_cells(45, 5)]
        rows = patch_rows(numbered_cells(adapter.layout(inputs), keep), 4)
        if family in RASTER:
            rows = cells_in_raster(inputs["image_grid_thw"], 2)[rows]
        pixels = torch.full_like(inputs["pixel_values"], torch.nan)
        pixels[rows] = inputs["pixel_values"][rows]
        found = adapter.encode_cells(inputs | {"pixel_values": pixels}, keep)
        assert all(torch.equal(a, b) for a, b in pairs(found, adapter.encode_cells(inputs, keep)))

    @families
    def test_bfloat16_all_cells_are_the_stock_features_to_the_last_bit(self, family: str) -> None:
        built, inputs = in_bfloat16(family), prompts(tiny(family), ROWS)
        adapter = adapter_for(built.model, built.processor)
        stock = adapter.features(inputs)
        found = adapter.encode_cells(inputs, every_cell(stock))
        assert found.tokens[0].dtype == torch.bfloat16
        assert all(torch.equal(a, b) for a, b in pairs(found, stock))

    def test_cells_of_other_windows_never_influence_windowed_layers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        built, adapter, inputs = setup("qwen2_5_vl", ROWS[1:])  # 9x5 cells, windows of 2x2
        window = torch.tensor([2, 3, 8])  # of cells 2, 3, 7 and 8
        others = torch.tensor([0, 2, 3, 4, 8, 13, 40])
        mine = torch.isin(others, window)

        def moved() -> float:
            alone = adapter.encode_cells(inputs, [window]).tokens[0]
            return apart(adapter.encode_cells(inputs, [others]).tokens[0][mine], alone)

        assert moved() > 0.001  # through the one layer that sees all
        monkeypatch.setattr(built.model.model.visual, "fullatt_block_indexes", [])
        assert moved() <= KERNELS

    @pytest.mark.parametrize("family", HUNYUANS)
    def test_newlines_and_ends_depend_on_nothing(self, family: str) -> None:
        """They are the stock tower's, whatever is kept of their rows, and where nothing at all is."""
        _, adapter, inputs = setup(family)
        stock, none = adapter.features(inputs), torch.zeros(0, dtype=torch.long)
        layout = adapter.layout(inputs)
        rest = stock.select(stock.tokens_to_keep([none] * 3))
        alone = adapter.other_tokens(inputs, layout)
        ends = 2 if family == "hunyuan_vl" else 0
        assert alone.counts == rest.counts == [rows + ends for rows in (5, 5, 9)]
        assert alone.packed == rest.packed
        assert all(near(a, b) for a, b in pairs(alone, rest))
        keep = [torch.tensor([7, 29]), none, torch.tensor([0])]
        found = adapter.encode_cells(inputs, keep)
        for image, tokens in enumerate(layout.tokens_to_keep(keep)):
            others = ~torch.isin(tokens, layout.cells[image])
            assert near(found.tokens[image][others], rest.tokens[image])
            cells = found.tokens[image][~others]
            if len(cells):  # and the cells are none of those
                assert torch.cdist(cells, rest.tokens[image]).min() > 0.01

    @pytest.mark.parametrize("family", HUNYUANS)
    def test_patches_of_a_coarse_view_are_those_of_the_image_processor(self, family: str) -> None:
        """In its order: a view as large as the picture is the picture, and a smaller one shows it."""
        _, adapter, inputs = setup(family)
        same = adapter.coarse(inputs, cells=45)
        assert torch.equal(same["pixel_values"], inputs["pixel_values"])
        assert torch.equal(same["image_grid_thw"], inputs["image_grid_thw"])
        view = adapter.coarse(inputs, cells=12)
        assert adapter.layout(view).sizes == [12, 8, 8]
        assert adapter.features(view).layout.counts == adapter.layout(view).counts
        for small, large in zip(adapter.images(view), adapter.images(inputs), strict=True):
            again = F.interpolate(large[None], small.shape[1:], mode="bicubic", antialias=True)[0]
            assert (small - again.clamp(0, 1)).abs().mean() < 0.01

    @pytest.mark.parametrize(
        "keep",
        [[[3, 1], [0], [0]], [[1, 1], [0], [0]], [[30], [0], [0]], [[29, 31], [], [0]], [[-1, 2], [0], [0]]],
    )
    def test_indices_that_are_not_rising_cells_are_refused(self, keep: list) -> None:
        _, adapter, inputs = setup("qwen3_vl")
        with pytest.raises(ValueError, match="rising indices into grids"):
            adapter.encode_cells(inputs, [torch.tensor(indices, dtype=torch.long) for indices in keep])

    def test_keep_lists_that_do_not_fit_are_refused(self) -> None:
        _, adapter, inputs = setup("qwen3_vl")
        with pytest.raises(ValueError, match="2 keep lists for 3 images"):
            adapter.encode_cells(inputs, [torch.tensor([1])] * 2)
        with pytest.raises(ValueError, match="keep at least one"):
            adapter.encode_cells(inputs, [torch.tensor([], dtype=torch.long)] * 3)

    def test_another_layer_of_the_tower_is_not_read_of_some_cells(self) -> None:
        built, _, inputs = setup("mistral3")
        model = copy.copy(built.model)
        model.config = copy.deepcopy(built.model.config)
        model.config.vision_feature_layer = -2
        adapter = adapter_for(model, built.processor)
        assert adapter.encodes != "cells"
        with pytest.raises(NotImplementedError, match="use mode='prune'"):
            adapter.layout(inputs)

    @pytest.mark.parametrize("family", LLAVA_FAMILIES)
    def test_towers_that_need_the_whole_picture_say_so(self, family: str) -> None:
        _, adapter, inputs = setup(family, [("What?", [picture(1)])])
        assert adapter.encodes != "cells"
        ways = [lambda given: adapter.encode_cells(given, [])]
        if adapter.encodes != "crops":  # else the view of the whole is its own coarse view
            ways += [adapter.layout, adapter.coarse]
        for ask in ways:
            with pytest.raises(NotImplementedError, match=f"tower of {family} can't .* use mode='prune'"):
                ask(inputs)
        for blind, seeing in zip(
            adapter.images(inputs), adapter.images(inputs, adapter.features(inputs)), strict=True
        ):
            assert torch.equal(blind, seeing)


class TestSegments:
    def test_segments_of_which_nothing_stays_vanish(self) -> None:
        boundaries = torch.tensor([0, 4, 8, 12, 20], dtype=torch.int32)
        left = kept_seqlens(torch.tensor([1, 2, 8, 9, 11, 19]), boundaries)
        assert left.tolist() == [0, 2, 5, 6]
        assert left.dtype == torch.int32
        assert torch.equal(kept_seqlens(torch.arange(20), boundaries), boundaries)

    def test_windows_keep_their_cells(self) -> None:
        """A grid of 3x4 in windows of 2x2, by hand: 0 1 4 5 | 2 3 6 7 | 8 9 | 10 11."""
        order = torch.tensor([0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11])
        boundaries = torch.tensor([0, 16, 32, 40, 48])
        index, left = kept_windows(torch.tensor([0, 2, 5, 7, 11]), order, boundaries, 4)
        assert index.tolist() == [0, 2, 1, 3, 4]  # 0 5 | 2 7 | 11
        assert left.tolist() == [0, 8, 16, 20]

    def test_all_windows_are_the_stock_ones(self) -> None:
        grid = torch.tensor([[1, 10, 12], [1, 6, 22]])
        order, boundaries = get_vision_window_index(grid, 2, 16, 4)
        index, left = kept_windows(torch.arange(30 + 33), order, boundaries, 4)
        assert torch.equal(index, order)
        assert torch.equal(left, boundaries)


class TestCoarse:
    @grid_families
    def test_coarse_views_are_encoded_like_any_image(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        view = adapter.coarse(inputs, 20)
        gestalt = adapter.features(view)
        assert gestalt.grids == adapter.layout(view).grids == [(1, 4, 5), (1, 3, 6), (1, 6, 3)]
        for small, large in zip(adapter.images(view), adapter.images(inputs), strict=True):
            assert small.shape[1] * small.shape[2] <= 20 * 64
            back = F.interpolate(small[None], large.shape[1:], mode="bicubic")[0]
            assert (back - large).abs().mean() < 0.05  # the same picture; unrelated ones differ by 0.2
            assert small.amin() >= large.amin()
            assert small.amax() <= large.amax()

    @grid_families
    def test_images_that_are_small_enough_stay_as_they_are(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        view = adapter.coarse(inputs, 45)
        assert all(torch.equal(view[name], inputs[name]) for name in ("pixel_values", "image_grid_thw"))
        mixed = adapter.coarse(inputs, 30)
        assert torch.equal(mixed["pixel_values"][:120], inputs["pixel_values"][:120])
        assert adapter.layout(mixed).grids[1] == (1, 4, 7)

    @pytest.mark.parametrize("family", PIXTRAL)
    def test_coarse_views_of_pixtral(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        view = adapter.coarse(inputs, 20)
        assert adapter.features(view).grids == adapter.layout(view).grids == [(1, 4, 5), (1, 3, 6), (1, 6, 3)]
        for small, large in zip(adapter.images(view), adapter.images(inputs), strict=True):
            back = F.interpolate(small[None], large.shape[1:], mode="bicubic")[0]
            assert (back - large).abs().mean() < 0.05

    @pytest.mark.parametrize("family", GEMMAS)
    def test_coarse_views_of_gemma4(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        view = adapter.coarse(inputs, 20)
        assert adapter.features(view).grids == adapter.layout(view).grids
        assert all(h * w <= 20 for _, h, w in adapter.layout(view).grids)
        for small, large in zip(adapter.images(view), adapter.images(inputs), strict=True):
            back = F.interpolate(small[None], large.shape[1:], mode="bicubic")[0]
            assert (back - large).abs().mean() < 0.05
        same = adapter.coarse(inputs, 70)
        patches = int((inputs["image_position_ids"][0, :, 0] >= 0).sum())
        assert torch.equal(same["pixel_values"][0, :patches], inputs["pixel_values"][0, :patches])
        assert torch.equal(same["image_position_ids"][0, :patches], inputs["image_position_ids"][0, :patches])

    def test_the_dtype_is_the_given_one(self) -> None:
        _, adapter, inputs = setup("qwen3_vl")
        pixels = inputs["pixel_values"].bfloat16()
        assert adapter.coarse(inputs | {"pixel_values": pixels}, 9)["pixel_values"].dtype == torch.bfloat16

    def test_patches_are_laid_out_and_taken_back(self) -> None:
        _, _, inputs = setup("qwen3_vl", ROWS[1:])
        shown = to_picture(inputs["pixel_values"], (1, 18, 10), 2, 4, 2)
        assert shown.shape == (3, 72, 40)
        assert torch.equal(to_patches(shown, 2, 4, 2), inputs["pixel_values"])

    def test_a_flat_picture_stays_flat_and_an_edge_does_not_ring(self) -> None:
        flat = torch.full((3, 32, 48), 0.7)
        assert torch.allclose(shrink(flat, (8, 16)), torch.tensor(0.7))
        edge = (torch.arange(48) > 20).float().expand(3, 32, 48) - 1.5
        small = shrink(edge, (8, 16))
        assert (small.amin(), small.amax()) == (-1.5, -0.5)

    @pytest.mark.parametrize("size", [(32, 32), (45, 35), (20, 30), (128, 9), (17, 16), (1, 600), (257, 1)])
    def test_coarse_grids_keep_the_shape_and_use_their_cells(self, size: tuple[int, int]) -> None:
        (height, width), (h, w) = size, coarse_grid(*size, 256)
        assert 1 <= h <= height
        assert 1 <= w <= width
        assert 200 < h * w <= 256
        if min(size) > 1:
            off = (h * width / height - w, w * height / width - h)
            assert min(abs(o) for o in off) <= 0.5  # one side is the other's to half a cell

    def test_coarse_grids_by_hand(self) -> None:
        assert coarse_grid(32, 32, 256) == (16, 16)
        assert coarse_grid(64, 32, 256) == (22, 11)
        assert coarse_grid(16, 16, 256) == (16, 16)
        assert coarse_grid(3, 5, 256) == (3, 5)
        assert coarse_grid(5, 3, 1) == (1, 1)

    def test_bad_input_is_refused(self) -> None:
        _, adapter, inputs = setup("qwen3_vl")
        with pytest.raises(ValueError, match="cells 0 is below 1"):
            adapter.coarse(inputs, 0)
        grid = torch.tensor([[2, 10, 12], [1, 10, 18], [1, 18, 10]])
        with pytest.raises(ValueError, match="still images only"):
            adapter.coarse(inputs | {"image_grid_thw": grid})
