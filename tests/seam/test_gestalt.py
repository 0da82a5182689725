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
    CONVS,
    ConvCompressor,
    coarse_features,
    compress,
    gestalt_features,
    load_convs,
    pool,
    pooled,
    save_convs,
)
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


def moved(conv: ConvCompressor, seed: int = 0) -> ConvCompressor:
    """A compressor away from its start, as if it were trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return conv


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


# ---- the learned compressors ------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", SIDES)
def test_a_conv_starts_as_the_pool_exactly(factor: int) -> None:
    given = features(GRIDS)
    learned, plain = ConvCompressor(DIM, factor, 2)(given), pooled(given, factor)
    assert learned.grids == plain.grids
    for found, expected in zip(stacks(learned), stacks(plain), strict=True):
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("factor", SIDES)
def test_every_stack_has_its_grid_cells_and_dtype(factor: int) -> None:
    given, side = features(GRIDS, dtype=torch.bfloat16), SIDES[factor]
    coarse = moved(ConvCompressor(DIM, factor, 2))(given)
    assert coarse.grids == [(t, -(-h // side), -(-w // side)) for t, h, w in GRIDS]
    assert coarse.kind is given.kind
    assert len(coarse.levels) == 2
    for (t, h, w), cells in zip(coarse.grids, coarse.cells, strict=True):
        assert cells.tolist() == list(range(t * h * w))
    for stack in stacks(coarse):
        assert [image.shape for image in stack] == [(t * h * w, DIM) for t, h, w in coarse.grids]
        assert all(image.dtype == torch.bfloat16 for image in stack)


@pytest.mark.parametrize("factor", SIDES)
def test_no_image_influences_another(factor: int) -> None:
    conv = moved(ConvCompressor(DIM, factor, 2))
    together = conv(features(GRIDS))
    for i, grid in enumerate(GRIDS):
        given = features(GRIDS)
        alone = conv(
            VisualFeatures(
                [given.tokens[i]], [[lv[i]] for lv in given.levels], [grid], [given.cells[i]], dict
            )
        )
        for whole, one in zip(stacks(together), stacks(alone), strict=True):
            torch.testing.assert_close(whole[i], one[0])


def test_levels_and_tokens_do_not_mix() -> None:
    conv, given = moved(ConvCompressor(DIM, 4, 2)), features([(1, 6, 6)])
    before = conv(given)
    given.levels[1][0].add_(1.0)
    after = conv(given)
    assert torch.equal(before.tokens[0], after.tokens[0])
    assert torch.equal(before.levels[0][0], after.levels[0][0])
    assert not torch.allclose(before.levels[1][0], after.levels[1][0])


@pytest.mark.parametrize("factor", SIDES)
def test_a_conv_sees_its_neighbourhood_only(factor: int) -> None:
    conv, side, given = moved(ConvCompressor(DIM, factor)), SIDES[factor], features([(1, 24, 24)], levels=0)
    before = conv(given).tokens[0]
    given.tokens[0][0].add_(10.0)  # the cell in the corner
    changed = (conv(given).tokens[0] - before).abs().amax(1).view(24 // side, 24 // side) > 1e-6
    assert changed[0, 0]
    assert not changed[2:].any()
    assert not changed[:, 2:].any()


@pytest.mark.parametrize("factor", SIDES)
def test_gradient_reaches_every_parameter(factor: int) -> None:
    conv, given = ConvCompressor(DIM, factor, 2), features([(1, 8, 9), (1, 5, 6)])
    optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
    for step in range(2):  # the first moves the heads from zero, the second reaches what is behind them
        loss = sum((image - 1).square().sum() for stack in stacks(conv(given)) for image in stack)
        optimizer.zero_grad()
        torch.as_tensor(loss).backward()
        for name, parameter in conv.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.any() or (step == 0 and ".convs." in name), name
        optimizer.step()


def test_making_a_conv_leaves_the_random_state_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, second = ConvCompressor(DIM, 4), ConvCompressor(DIM, 4)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


# ---- on real families -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@each("name", ["pool4", "pool16", "conv4", "conv16"])
def test_every_family_can_pool_its_cells(family: str, name: str) -> None:
    adapter, inputs, given = encoded(family, [(48, 64)])
    convs = {n: ConvCompressor(WIDTH, factor, len(given.levels)) for n, factor in CONVS.items()}
    coarse = compress(name, adapter, inputs, given, convs)
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
    convs = {name: moved(ConvCompressor(DIM, factor, 2)) for name, factor in CONVS.items()}
    save_convs(convs, tmp_path / "allocator")
    loaded = load_convs(tmp_path / "allocator", DIM)
    assert list(loaded) == list(CONVS)
    for conv in convs.values():  # files are in bfloat16
        conv.load_state_dict({key: value.bfloat16() for key, value in conv.state_dict().items()})
    given = features(GRIDS)
    for name, conv in convs.items():
        for found, expected in zip(stacks(loaded[name](given)), stacks(conv(given)), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert not any(parameter.requires_grad for parameter in loaded[name].parameters())


def test_a_folder_without_files_has_no_convs(tmp_path: Path) -> None:
    assert load_convs(tmp_path, DIM) == {}
    save_convs({"conv16": ConvCompressor(DIM, 16)}, tmp_path)
    assert list(load_convs(tmp_path, DIM)) == ["conv16"]


@each("harm", ["missing", "left over", "width", "factor", "no safetensors"])
def test_loading_is_strict(tmp_path: Path, harm: str) -> None:
    save_convs({"conv4": ConvCompressor(DIM, 4, 2)}, tmp_path)
    path = tmp_path / "conv4.safetensors"
    weights = load_file(path)
    if harm == "missing":
        weights.pop("tokens.head.bias")
    elif harm == "left over":
        weights["tokens.extra"] = torch.zeros(1)
    elif harm == "factor":
        weights = ConvCompressor(DIM, 16, 2).state_dict()
    save_file(weights, path)
    if harm == "no safetensors":
        path.write_bytes(b"not this")
    with pytest.raises(ValueError, match=r"conv4\.safetensors.*copy it there again") as error:
        load_convs(tmp_path, DIM + 1 if harm == "width" else DIM)
    assert "\n" not in str(error.value)


# ---- refusals ---------------------------------------------------------------------------------------------


def test_refusals_name_the_remedy() -> None:
    adapter, inputs, given = encoded("qwen3_vl", [(48, 48)])
    with pytest.raises(ValueError, match="'pool9' is unknown; use one of resize, pool4"):
        compress("pool9", adapter, inputs, given)
    for convs in (None, {}, {"conv16": ConvCompressor(WIDTH, 16, 2)}):
        with pytest.raises(ValueError, match=r"'conv4' has no trained weights.*use 'pool4'"):
            compress("conv4", adapter, inputs, given, convs)
    with pytest.raises(ValueError, match=r"0 deepstack levels but these have width 32 and 2.*'pool4'"):
        compress("conv4", adapter, inputs, given, {"conv4": ConvCompressor(WIDTH, 4, 0)})
    with pytest.raises(ValueError, match=r"dropped.*compress before choosing"):
        pooled(given.select([torch.arange(3)]), 4)
    with pytest.raises(ValueError, match=r"factor 9 .*use one of \[4, 16\]"):
        ConvCompressor(DIM, 9)


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
