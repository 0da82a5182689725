"""Laws of the compressors: what a coarse token is, where it stands, and what it never depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from arr_coc.families import adapter_for
from arr_coc.seam import Grid, VisualFeatures
from arr_coc.seam.gestalt import (
    CELLS,
    COMPRESSORS,
    coarse_features,
    compress,
    gestalt_features,
    load_compressors,
    pool,
    pooled,
    save_compressors,
)
from arr_coc.seam.tower_compressor import TOWERS, TowerCompressor
from each import each
from tiny import FAMILIES, LLAVA_FAMILIES, QWEN_FAMILIES, WIDTH, picture, prompts, tiny

# ---- gestalt ---------------------------------------------------------------------------------------------

DIM = 12
GRIDS: list[Grid] = [(1, 8, 8), (1, 5, 7), (2, 3, 9), (1, 1, 1), (1, 1, 6)]
SIDES = {4: 2, 16: 4}


def middles(fine: tuple[int, int, int], coarse: tuple[int, int, int]) -> torch.Tensor:
    """The middles of a gestalt's tokens (t, h, w) in cells (T, H, W), cell 0 at 0.0: [h * w, 2] of (y, x)."""
    y, x = ((torch.arange(b) + 0.5) * (a / b) - 0.5 for a, b in zip(fine[1:], coarse[1:], strict=True))
    return torch.cartesian_prod(y, x)


def features(grids: list[Grid], levels: int = 2, seed: int = 0, dtype: Any = torch.float32) -> VisualFeatures:
    """Random encoded images, every token a cell."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [t * h * w for t, h, w in grids]
    stacks = [[torch.randn(n, DIM, generator=generator).to(dtype) for n in sizes] for _ in range(levels + 1)]
    return VisualFeatures(stacks[0], stacks[1:], grids, [torch.arange(n) for n in sizes], dict)


def moved(compressor: TowerCompressor, seed: int = 0) -> TowerCompressor:
    """A compressor away from its start, as if it were trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in compressor.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return compressor


def stacks(given: VisualFeatures) -> list[list[Tensor]]:
    """The tokens and every level."""
    return [given.tokens, *given.levels]


def encoded(family: str, sizes: list[tuple[int, int]]) -> tuple[Any, dict[str, Any], VisualFeatures]:
    """A tiny model's adapter, inputs and features of one prompt with pictures of these sizes (px)."""
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("what?", [picture(i, size) for i, size in enumerate(sizes)])])
    return adapter, inputs, adapter.features(inputs)


# ---- pool -----------------------------------------------------------------------------------------------


@each("factor", SIDES)
@each("grid", GRIDS)
def test_pool_of_a_constant_grid_is_constant(grid: Grid, factor: int) -> None:
    t, h, w = grid
    row = torch.randn(DIM)
    coarse = pool(row.view(1, DIM, 1, 1).expand(t, DIM, h, w), factor)
    torch.testing.assert_close(coarse, row.view(1, DIM, 1, 1).expand_as(coarse))


@each("factor", SIDES)
@each("grid", GRIDS)
def test_pool_equals_a_loop_over_blocks(grid: Grid, factor: int) -> None:
    given, side = features([grid]), SIDES[factor]
    coarse = pooled(given, factor)
    t, h, w = grid
    few_h, few_w = -(-h // side), -(-w // side)
    assert coarse.grids == [(t, few_h, few_w)]
    for fine, found in zip(stacks(given), stacks(coarse), strict=True):
        image = fine[0].view(t, h, w, DIM)
        expected = [
            image[f, i * h // few_h : -(-(i + 1) * h // few_h), j * w // few_w : -(-(j + 1) * w // few_w)]
            for f in range(t)
            for i in range(few_h)
            for j in range(few_w)
        ]
        torch.testing.assert_close(found[0], torch.stack([block.mean((0, 1)) for block in expected]))


def test_blocks_of_sides_that_divide_are_disjoint() -> None:
    image = torch.randn(1, DIM, 8, 12)
    torch.testing.assert_close(pool(image, 4)[0, :, 1, 2], image[0, :, 2:4, 4:6].mean((1, 2)))
    torch.testing.assert_close(pool(image, 16)[0, :, 1, 2], image[0, :, 4:8, 8:12].mean((1, 2)))


# ---- where coarse tokens stand ----------------------------------------------------------------------------


@each("factor", SIDES)
@each("sides", [(32, 32), (33, 31), (5, 6), (7, 1), (41, 25)])
def test_a_block_is_centred_where_its_token_stands(sides: tuple[int, int], factor: int) -> None:
    h, w = sides
    y, x = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
    coarse = pool(torch.stack([y, x])[None], factor)
    at = middles((1, h, w), (1, *coarse.shape[-2:]))
    off = (coarse[0].flatten(1).T - at).abs().max()
    assert off <= 0.5
    if h % SIDES[factor] == w % SIDES[factor] == 0:
        assert off < 1e-5


def test_middles_are_the_stated_places() -> None:
    assert middles((1, 4, 6), (1, 2, 3)).tolist() == [
        [0.5, 0.5],
        [0.5, 2.5],
        [0.5, 4.5],
        [2.5, 0.5],
        [2.5, 2.5],
        [2.5, 4.5],
    ]
    assert middles((1, 3, 2), (1, 3, 2)).tolist() == [[y, x] for y in range(3) for x in range(2)]


@pytest.mark.parametrize("factor", SIDES)
def test_every_stack_has_its_grid_cells_and_dtype(factor: int) -> None:
    given, side = features(GRIDS, dtype=torch.bfloat16), SIDES[factor]
    coarse = pooled(given, factor)
    assert coarse.grids == [(t, -(-h // side), -(-w // side)) for t, h, w in GRIDS]
    assert coarse.kind is given.kind
    assert len(coarse.levels) == 2
    for (t, h, w), cells in zip(coarse.grids, coarse.cells, strict=True):
        assert cells.tolist() == list(range(t * h * w))
    for stack in stacks(coarse):
        assert [image.shape for image in stack] == [(t * h * w, DIM) for t, h, w in coarse.grids]
        assert all(image.dtype == torch.bfloat16 for image in stack)


# ---- on real families -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@each("name", ["pool4", "pool16"])
def test_every_family_can_pool_its_cells(family: str, name: str) -> None:
    adapter, inputs, given = encoded(family, [(48, 64)])
    coarse = compress(name, adapter, inputs, given)
    side = SIDES[COMPRESSORS[name].factor or 0]
    t, h, w = given.grids[0]
    assert coarse.grids == [(t, -(-h // side), -(-w // side))]
    assert coarse.counts == [len(coarse.cells[0])]
    assert len(coarse.levels) == len(given.levels)
    image = given.cell_tokens(0).view(h, w, WIDTH)  # cells alone: no base view, no newline token
    few_h, few_w = coarse.grids[0][1:]
    block = image[: -(-h // few_h), : -(-w // few_w)].mean((0, 1))
    torch.testing.assert_close(coarse.tokens[0][0], block)


@pytest.mark.parametrize("family", QWEN_FAMILIES)
def test_resize_encodes_a_coarse_view_of_every_image(family: str) -> None:
    adapter, inputs, given = encoded(family, [(96, 64), (48, 48)])
    coarse = compress("resize", adapter, inputs)
    assert len(coarse.levels) == len(given.levels)
    for (t, h, w), fine, cells in zip(coarse.grids, given.grids, coarse.cells, strict=True):
        assert t * h * w <= CELLS
        assert h <= fine[1]
        assert w <= fine[2]
        assert cells.tolist() == list(range(t * h * w))
    for stack in stacks(coarse):
        assert [len(image) for image in stack] == [t * h * w for t, h, w in coarse.grids]


def test_features_are_encoded_where_none_are_given() -> None:
    adapter, inputs, given = encoded("qwen3_vl", [(48, 48)])
    found, expected = compress("pool4", adapter, inputs), pooled(given, 4)
    assert torch.equal(found.tokens[0], expected.tokens[0])


# ---- files ------------------------------------------------------------------------------------------------


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    compressors = {name: moved(TowerCompressor(DIM, factor, 1, 3)) for name, factor in TOWERS.items()}
    save_compressors(compressors, tmp_path / "allocator")
    loaded = load_compressors(tmp_path / "allocator")
    assert list(loaded) == list(TOWERS)
    for name, compressor in compressors.items():  # files are in bfloat16
        assert (loaded[name].first, loaded[name].window) == (1, 3)
        weights = {key: value.bfloat16().float() for key, value in compressor.state_dict().items()}
        assert weights.keys() == loaded[name].state_dict().keys()
        assert all(torch.equal(value, weights[key]) for key, value in loaded[name].state_dict().items())
        assert not any(parameter.requires_grad for parameter in loaded[name].parameters())


def test_a_folder_without_files_has_no_compressors(tmp_path: Path) -> None:
    assert load_compressors(tmp_path) == {}
    save_compressors({"tower16": TowerCompressor(DIM, 16, 1)}, tmp_path)
    assert list(load_compressors(tmp_path)) == ["tower16"]


@each("harm", ["missing", "left over", "factor", "no safetensors"])
def test_loading_is_strict(tmp_path: Path, harm: str) -> None:
    save_compressors({"tower4": TowerCompressor(DIM, 4, 1)}, tmp_path)
    path = tmp_path / "tower4.safetensors"
    weights, numbers = load_file(path), {"first": "1", "window": "8"}
    if harm == "missing":
        weights.pop("net.head.bias")
    elif harm == "left over":
        weights["net.extra"] = torch.zeros(1)
    elif harm == "factor":
        weights = TowerCompressor(DIM, 16, 1).state_dict()
    save_file(weights, path, numbers)
    if harm == "no safetensors":
        path.write_bytes(b"not this")
    with pytest.raises(ValueError, match=r"tower4\.safetensors.*copy it there again") as error:
        load_compressors(tmp_path)
    assert "\n" not in str(error.value)


# ---- refusals ---------------------------------------------------------------------------------------------


def test_refusals_name_the_remedy() -> None:
    adapter, inputs, given = encoded("qwen3_vl", [(48, 48)])
    with pytest.raises(ValueError, match="'pool9' is unknown; use one of resize, pool4"):
        compress("pool9", adapter, inputs, given)
    for compressors in (None, {}, {"tower16": TowerCompressor(WIDTH, 16, 1)}):
        with pytest.raises(ValueError, match=r"'tower4' has no trained weights.*use 'pool4'"):
            compress("tower4", adapter, inputs, given, compressors)
    with pytest.raises(ValueError, match=r"dropped.*compress before choosing"):
        pooled(given.select([torch.arange(3)]), 4)


@pytest.mark.parametrize("family", LLAVA_FAMILIES)
def test_families_without_a_coarse_view_are_told_to_pool(family: str) -> None:
    adapter, inputs, given = encoded(family, [(48, 48)])
    with pytest.raises(ValueError, match=f"'{family}' has not; use 'pool4' or 'pool16'"):
        compress("resize", adapter, inputs, given)


# ---- encoder features ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_of_every_family_are_the_tokens_of_its_gestalt(family):
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("one", [picture(0, (96, 64))]), ("other", [picture(1)])])
    maps = coarse_features(adapter, inputs)
    gestalt = compress("resize" if adapter.encodes == "cells" else "pool4", adapter, inputs)
    assert len(maps) == 2
    for features, tokens, (_, h, w) in zip(maps, gestalt.tokens, gestalt.grids, strict=True):
        assert features.shape == (1, tokens.shape[1], h, w)
        assert torch.equal(features[0, :, 0, min(1, w - 1)], tokens[min(1, w - 1)])


def test_a_clip_is_refused():
    from test_gestalt import features

    with pytest.raises(ValueError, match="image 1 is a clip of 2 merged frames"):
        gestalt_features(features([(1, 2, 2), (2, 3, 9)]))
