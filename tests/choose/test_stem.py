"""The stem: shapes, what may influence what, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from arr_coc.choose.stem import CELL, FILE, Stem, load_stem, save_stem
from each import each
from near import near

DIM = 24


def small(dim: int = DIM) -> Stem:
    return Stem(dim, width=16, blocks=2)


def moved(stem: Stem, seed: int = 0) -> Stem:
    """A stem away from its start, as if it were trained; the gestalt counts then."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in stem.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return stem


def pictures(count: int, size: tuple[int, int], seed: int = 0) -> Tensor:
    return torch.rand(count, 3, *size, generator=torch.Generator().manual_seed(seed))


def coarse(count: int, grid: tuple[int, int], seed: int = 1) -> Tensor:
    return torch.randn(count, DIM, *grid, generator=torch.Generator().manual_seed(seed))


class TestShapes:
    @torch.no_grad()
    @each("grid", [(1, 1), (1, 9), (7, 1), (3, 5), (16, 4)])
    @each("cell", [CELL, 28, 8])
    def test_one_vector_a_cell_for_any_grid_and_any_size_of_cell(
        self, grid: tuple[int, int], cell: int
    ) -> None:
        vectors = small()(pictures(2, (cell * grid[0], cell * grid[1])), grid)
        assert vectors.shape == (2, grid[0] * grid[1], DIM)
        assert vectors.isfinite().all()

    @torch.no_grad()
    def test_cells_are_in_raster_order(self) -> None:
        """What changes in the picture changes most in its own cell."""
        stem, picture = small(), torch.full((1, 3, 6 * CELL, 6 * CELL), 0.5)
        plain = stem(picture, (6, 6))[0]
        for y, x in ((1, 4), (4, 1), (5, 5)):
            marked = picture.clone()
            marked[:, :, CELL * y + 8 : CELL * y + 24, CELL * x + 8 : CELL * x + 24] = 0.0
            change = (stem(marked, (6, 6))[0] - plain).norm(dim=1)
            assert int(change.argmax()) == 6 * y + x

    @torch.no_grad()
    def test_cells_of_other_sizes_look_as_if_resized(self) -> None:
        stem, large = small(), pictures(1, (3 * CELL, 4 * CELL))
        doubled = large.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        near = (stem(doubled, (3, 4)) - stem(large, (3, 4))).abs().mean()
        far = (stem(large.flip(3), (3, 4)) - stem(large, (3, 4))).abs().mean()
        assert near < far / 2  # antialiasing blurs a little

    @torch.no_grad()
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_dtype_is_that_of_the_parameters(self, dtype: torch.dtype) -> None:
        stem = small().to(dtype)
        for size in ((2 * CELL, 3 * CELL), (56, 84)):
            for other in (torch.float32, torch.bfloat16, torch.float64):
                vectors = stem(pictures(1, size).to(other), (2, 3), coarse(1, (1, 2)).to(other))
                assert vectors.dtype == dtype
                assert vectors.isfinite().all()


class TestLaws:
    @torch.no_grad()
    def test_making_and_looking_are_deterministic(self) -> None:
        before = torch.random.get_rng_state()
        one, other = small(), small()
        assert torch.equal(torch.random.get_rng_state(), before)
        picture = pictures(1, (64, 96))
        assert torch.equal(one(picture, (2, 3)), other(picture, (2, 3)))
        assert torch.equal(one(picture, (2, 3)), one(picture, (2, 3)))

    @torch.no_grad()
    @pytest.mark.parametrize("with_gestalt", [False, True])
    def test_no_image_is_influenced_by_another_of_its_batch(self, with_gestalt: bool) -> None:
        stem, picture = moved(small()), pictures(3, (3 * 28, 5 * 28))
        under = coarse(3, (2, 3)) if with_gestalt else None
        together = stem(picture, (3, 5), under)
        for i in range(3):
            alone = stem(picture[i : i + 1], (3, 5), None if under is None else under[i : i + 1])
            assert near(alone[0], together[i])

    @torch.no_grad()
    def test_a_gestalt_counts_for_nothing_at_the_start_and_for_something_later(self) -> None:
        stem, picture, under = small(), pictures(1, (64, 96)), coarse(1, (1, 2))
        assert torch.equal(stem(picture, (2, 3), under), stem(picture, (2, 3)))
        stem = moved(stem)
        assert (stem(picture, (2, 3), under) - stem(picture, (2, 3))).abs().max() > 0.05

    @torch.no_grad()
    def test_a_gestalt_lies_where_its_cells_are(self) -> None:
        stem, picture = moved(small()), torch.full((1, 3, 16 * CELL, 4 * CELL), 0.5)
        under = coarse(1, (4, 1))
        plain = stem(picture, (16, 4), under)[0]
        under[:, :, 0] += 3.0
        change = (stem(picture, (16, 4), under)[0] - plain).norm(dim=1).view(16, 4).mean(1)
        assert change[:3].min() > 10 * change[12:].max()

    def test_every_parameter_learns(self) -> None:
        stem = moved(small())
        stem(pictures(2, (64, 96)), (2, 3), coarse(2, (1, 2))).square().sum().backward()
        for name, parameter in stem.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert (parameter.grad != 0).any(), name

    def test_the_one_in_use_is_small(self) -> None:
        assert sum(parameter.numel() for parameter in Stem(2048).parameters()) < 2_000_000


class TestFile:
    @torch.no_grad()
    def test_saved_in_bfloat16_and_loaded_in_float32(self, tmp_path: Path) -> None:
        stem = moved(small())
        save_stem(stem, tmp_path)
        assert all(tensor.dtype == torch.bfloat16 for tensor in load_file(tmp_path / FILE).values())
        again = load_stem(tmp_path, DIM)
        assert (again.dim, again.width, len(again.blocks)) == (DIM, 16, 2)
        for name, parameter in again.named_parameters():
            assert parameter.dtype == torch.float32
            assert torch.equal(parameter, stem.get_parameter(name).bfloat16().float())
        save_stem(again, tmp_path)  # a second time nothing is rounded any more
        picture = pictures(1, (64, 96))
        assert torch.equal(load_stem(tmp_path, DIM)(picture, (2, 3)), again(picture, (2, 3)))

    def test_a_folder_without_one_has_none(self, tmp_path: Path) -> None:
        assert load_stem(tmp_path, DIM) is None
        assert load_stem(tmp_path / "nowhere", DIM) is None

    @staticmethod
    def refused(folder: Path, match: str, dim: int = DIM) -> None:
        with pytest.raises(ValueError, match=match) as error:
            load_stem(folder, dim)
        assert "\n" not in str(error.value)
        assert FILE in str(error.value)

    def test_another_width(self, tmp_path: Path) -> None:
        save_stem(small(), tmp_path)
        self.refused(tmp_path, f"is {DIM} wide but the base model 32; use its own", dim=32)

    @each("spoil", ["cut", "text", "missing", "left over", "shape", "no shape", "nonsense"])
    def test_broken(self, tmp_path: Path, spoil: str) -> None:
        save_stem(small(), tmp_path)
        path = tmp_path / FILE
        whole, weights = path.read_bytes(), load_file(path)
        with safe_open(path, framework="pt") as file:
            shape = dict(file.metadata())
        name = "head.1.weight"
        if spoil == "missing":
            del weights[name]
        elif spoil == "left over":
            weights["something.else"] = torch.zeros(2)
        elif spoil == "shape":
            weights[name] = weights[name][:-1].contiguous()
        shape |= {"blocks": "many"} if spoil == "nonsense" else {}
        save_file(weights, path, metadata=None if spoil == "no shape" else shape)
        if spoil in ("cut", "text"):
            path.write_bytes(whole[: len(whole) // 2] if spoil == "cut" else b"no safetensors at all")
        self.refused(tmp_path, r"is not a saved stem \(.+\); save it again with save_pretrained")

    def test_a_pickle_is_never_loaded(self, tmp_path: Path) -> None:
        torch.save(small().state_dict(), tmp_path / FILE)
        self.refused(tmp_path, "is not a saved stem")
        (tmp_path / FILE).rename(tmp_path / "stem.bin")
        assert load_stem(tmp_path, DIM) is None
