"""Laws of compression inside the tower: two halves make the whole, windows are local, images are apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from arr_coc.families import adapter_for
from arr_coc.model import ARRCOCModel
from arr_coc.seam.gestalt import load_compressors, save_compressors
from arr_coc.seam.tower_compressor import SIDES, TOWERS, TowerCompressor, tower_halves, usual_first
from near import near
from tiny import QWEN_FAMILIES, picture, prompts, tiny

HALVED = (*QWEN_FAMILIES, "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")
SIZES = [(64, 96), (80, 48)]


class Unmerged(nn.Module):
    """In place of a compressor: nothing is merged, and what passes is written down."""

    def __init__(self, first: int = 1, window: int = 100) -> None:
        super().__init__()
        self.first, self.window = first, window
        self.maps: list[Tensor] = []

    def merge(self, patches: Tensor, merge: int) -> Tensor:
        self.maps.append(patches)
        return patches


def case(family: str, sizes: list[tuple[int, int]]) -> tuple[Any, dict[str, Any]]:
    """A tiny model's adapter, and a prompt with pictures of these sizes (px)."""
    built = tiny(family)
    inputs = prompts(built, [("what?", [picture(i, size) for i, size in enumerate(sizes)])])
    return adapter_for(built.model, built.processor), inputs


def moved(compressor: TowerCompressor) -> TowerCompressor:
    """A compressor away from its start, as if it were trained."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in compressor.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return compressor.requires_grad_(False)


def width(adapter: Any) -> int:
    return adapter.tower.blocks[0].norm1.weight.shape[0]


@pytest.mark.parametrize("family", HALVED)
@torch.no_grad()
def test_two_halves_without_merging_are_the_whole_tower(family: str) -> None:
    adapter, inputs = case(family, SIZES)
    first = usual_first(adapter.tower)
    whole, halves = adapter.features(inputs), adapter.encode_merged(inputs, Unmerged(first))
    assert halves.grids == whole.grids
    windowed = getattr(adapter.tower, "window_size", None) is not None
    for ours, theirs in zip([halves.tokens, *halves.levels], [whole.tokens, *whole.levels], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            # Towers with windows of their own have smaller ones than these below.
            assert windowed or torch.equal(a, b)
            assert a.shape == b.shape
    if windowed:
        size = adapter.tower.window_size // adapter.tower.patch_size // adapter.merge
        same = adapter.encode_merged(inputs, Unmerged(first, size))
        if not any(mark < first for mark in adapter.tower.fullatt_block_indexes):
            assert all(near(a, b) for a, b in zip(same.tokens, whole.tokens, strict=True))


@pytest.mark.parametrize("family", HALVED)
@torch.no_grad()
def test_a_patch_reaches_no_further_than_its_window_before_the_merging(family: str) -> None:
    adapter, inputs = case(family, [(128, 128)])
    probes = []
    for change in (0.0, 1.0):
        probe = Unmerged(window=2)
        changed = dict(inputs)
        changed["pixel_values"] = inputs["pixel_values"].clone()
        changed["pixel_values"][0] += change  # the first patch of the first cell
        adapter.encode_merged(changed, probe)
        probes.append(probe.maps[0])
    differ = (probes[0] - probes[1]).abs().amax((0, 1)) > 0
    side = 2 * adapter.merge
    assert differ[:side, :side].all()
    assert not differ[side:].any()
    assert not differ[:, side:].any()


@pytest.mark.parametrize("family", HALVED)
@pytest.mark.parametrize("factor", SIDES)
@torch.no_grad()
def test_tokens_of_a_coarse_grid_whatever_the_sides(family: str, factor: int) -> None:
    adapter, inputs = case(family, SIZES)
    compressor = moved(TowerCompressor(width(adapter), factor, usual_first(adapter.tower)))
    coarse, whole = compressor(adapter, inputs), adapter.features(inputs)
    side = SIDES[factor]
    assert coarse.grids == [(t, -(-h // side), -(-w // side)) for t, h, w in whole.grids]
    assert coarse.counts == [t * h * w for t, h, w in coarse.grids]
    assert len(coarse.levels) == len(whole.levels)
    assert all([len(image) for image in level] == coarse.counts for level in coarse.levels)
    assert all(torch.isfinite(image).all() for image in coarse.tokens)


@torch.no_grad()
def test_no_image_influences_another() -> None:
    adapter, inputs = case("qwen3_vl", SIZES)
    compressor = moved(TowerCompressor(width(adapter), 4, 1, window=2))
    together = compressor(adapter, inputs)
    _, alone = case("qwen3_vl", SIZES[:1])
    assert near(compressor(adapter, alone).tokens[0], together.tokens[0])


@torch.no_grad()
def test_the_base_model_stays_as_it_is() -> None:
    adapter, inputs = case("qwen3_vl", SIZES)
    tower = adapter.tower
    before = adapter.features(inputs).tokens[0]
    moved(TowerCompressor(width(adapter), 4, 1))(adapter, inputs)
    assert type(tower.patch_embed) is not nn.Identity
    assert torch.equal(adapter.features(inputs).tokens[0], before)
    lower, upper = tower_halves(tower, 1)
    assert (lower, upper) == tower_halves(tower, 1)  # made once
    assert len(lower.blocks) + len(upper.blocks) == len(tower.blocks)
    assert all(
        a is b for a, b in zip(lower.blocks[0].parameters(), tower.blocks[0].parameters(), strict=True)
    )


@pytest.mark.parametrize("factor", SIDES)
def test_untrained_it_averages_patches(factor: int) -> None:
    side, x = SIDES[factor], torch.randn(1, 8, 16, 32)
    merged = TowerCompressor(8, factor, 1).merge(x, 2)
    torch.testing.assert_close(merged, nn.functional.avg_pool2d(x, side))


def test_edges_are_copied_where_sides_dont_divide() -> None:
    merged = TowerCompressor(8, 16, 1).merge(torch.ones(1, 8, 6, 2), 2)
    assert merged.shape == (1, 8, 2, 2)
    torch.testing.assert_close(merged, torch.ones_like(merged))


class TestRefusals:
    def test_a_tower_of_another_width(self) -> None:
        adapter, inputs = case("qwen3_vl", SIZES)
        with pytest.raises(ValueError, match=f"of width 8, but this one has {width(adapter)}"):
            TowerCompressor(8, 4, 1)(adapter, inputs)

    @pytest.mark.parametrize("first", [0, 99])
    def test_a_half_without_a_block(self, first: int) -> None:
        adapter, _ = case("qwen3_vl", SIZES)
        with pytest.raises(ValueError, match=f"can't have {first} of its"):
            tower_halves(adapter.tower, first)

    @pytest.mark.parametrize(("factor", "first", "window"), [(9, 1, 8), (4, 0, 8), (4, 1, 0)])
    def test_numbers_out_of_range(self, factor: int, first: int, window: int) -> None:
        with pytest.raises(ValueError, match="use"):
            TowerCompressor(8, factor, first, window)

    @pytest.mark.parametrize("family", ["llava", "glm4v"])
    def test_a_family_whose_tower_is_one_piece(self, family: str) -> None:
        adapter, inputs = case(family, SIZES)
        with pytest.raises(NotImplementedError, match="can't be run in two halves; use gestalt"):
            TowerCompressor(8, 4, 1)(adapter, inputs)


class TestFiles:
    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        made = {name: moved(TowerCompressor(24, factor, 2, 5)) for name, factor in TOWERS.items()}
        save_compressors(made, tmp_path)
        loaded: dict[str, Any] = load_compressors(tmp_path)
        assert loaded.keys() == made.keys()
        for name, again in loaded.items():
            assert (again.dim, again.factor, again.first, again.window) == (24, TOWERS[name], 2, 5)
            for key, value in made[name].state_dict().items():
                assert torch.equal(again.state_dict()[key], value.bfloat16().float())

    @pytest.mark.parametrize(
        "numbers", [None, {"first": "x", "window": "8"}, {"first": "0", "window": "8"}, {"first": "1"}]
    )
    def test_numbers_that_are_none(self, tmp_path: Path, numbers: dict[str, str] | None) -> None:
        save_compressors({"tower4": TowerCompressor(24, 4, 1)}, tmp_path)
        path = tmp_path / "tower4.safetensors"
        save_file(load_file(path), path, metadata=numbers)
        with pytest.raises(ValueError, match=r"tower4.safetensors' is no compressor of factor 4"):
            load_compressors(tmp_path)

    def test_weights_of_another_factor(self, tmp_path: Path) -> None:
        save_compressors({"tower4": TowerCompressor(24, 4, 1)}, tmp_path)
        (tmp_path / "tower4.safetensors").rename(tmp_path / "tower16.safetensors")
        with pytest.raises(ValueError, match="is no compressor of factor 16"):
            load_compressors(tmp_path)


@pytest.mark.parametrize("mode", ["compress", "saccade"])
def test_a_model_reads_what_its_tower_compressed(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tiny("qwen3_vl")
    model = ARRCOCModel(built.model, built.processor, strict=True)
    model.compressors["tower4"] = moved(TowerCompressor(width(model.adapter), 4, 1))
    model.loras.add("tower4", 2)
    for matrix in model.loras.parameters_of("tower4"):
        matrix.data += 0.1
    monkeypatch.setattr("arr_coc.modes.route.SACCADE_TOKENS", 40)
    image = picture(1, (96, 96))  # 144 cells
    answers = {
        name: model.ask(image, "What?", mode=mode, gestalt=name, max_new_tokens=2)
        for name in ("tower4", "pool4")
    }
    assert answers["tower4"].read == answers["pool4"].read == (36 if mode == "compress" else 40)
    assert model.chooser.adapter_with("tower4").model is not model.base  # its LoRA is at work
