"""`fit_basis` and `Basis`: the components of known data, its file, and refused features."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from arr_coc.choose.basis import Basis, fit_basis


def features(rows=400, width=20, seed=0) -> torch.Tensor:
    """Rows of falling spread along the axes."""
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    return x * 0.7 ** torch.arange(width)


def unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def test_components_are_the_principal_ones_of_unit_features():
    basis, rows = fit_basis(features(), source="here"), unit(features()).double()
    centred = rows - rows.mean(0)
    _, values, vectors = torch.linalg.svd(centred, full_matrices=False)
    assert torch.allclose(
        (basis.components.double() @ vectors[:16].T).abs(), torch.eye(16).double(), atol=1e-4
    )
    assert torch.allclose(basis.deviations.double(), values[:16] / len(rows) ** 0.5, atol=1e-5)
    assert (basis.width, basis.count, basis.source) == (20, 16, "here")


def test_the_same_features_in_parts_or_as_maps_give_the_same_basis():
    x = features()
    whole = fit_basis(x)
    maps = [part.T.reshape(1, 20, 10, 20) for part in x.split(200)]
    for other in (fit_basis(x), fit_basis(iter(x.split(133))), fit_basis(maps)):
        assert torch.allclose(other.components, whole.components, atol=1e-5)


def test_a_projection_is_half_at_the_mean_and_spans_the_range():
    basis = fit_basis(features())
    x = features(seed=1).T.reshape(1, 20, 20, 20)
    projected = basis.project(x)
    assert projected.shape == (1, 16, 20, 20)
    assert torch.allclose(projected.mean((0, 2, 3)), torch.tensor(0.5), atol=0.05)
    assert torch.allclose(projected.std((0, 2, 3)), torch.tensor(0.2), atol=0.04)  # 2.5 deviations each way
    assert torch.allclose(basis.project(x * 1e20), projected, atol=1e-5)


def test_fewer_dimensions_or_features_than_components_leave_halves():
    for x in (torch.randn(50, 5), torch.randn(3, 30), torch.zeros(4, 30)):
        basis = fit_basis(x)
        projected = basis.project(torch.randn(1, x.shape[1], 2, 2))
        assert projected.shape == (1, 16, 2, 2)
        assert projected.isfinite().all()
        assert (projected[:, min(x.shape[1], len(x)) :] == 0.5).all()


def test_a_file_holds_the_basis(tmp_path):
    basis = fit_basis(features(), source="some/tower")
    basis.save(tmp_path / "basis.safetensors")
    again = Basis.load(tmp_path / "basis.safetensors")
    for name in ("mean", "components", "deviations"):
        assert torch.equal(getattr(again, name), getattr(basis, name))
    assert again.source == "some/tower"


@pytest.mark.parametrize("case", ["missing", "garbage", "other", "nan", "shapes"])
def test_a_file_that_is_no_basis(tmp_path, case):
    path = tmp_path / "basis.safetensors"
    good = {"mean": torch.zeros(4), "components": torch.zeros(2, 4), "deviations": torch.ones(2)}
    about = {"format": "arr-coc basis 1"}
    if case == "garbage":
        path.write_bytes(b"x" * 100)
    elif case == "other":
        save_file(good, path)
    elif case == "nan":
        save_file(good | {"mean": torch.full((4,), torch.nan)}, path, about)
    elif case == "shapes":
        save_file(good | {"mean": torch.zeros(5)}, path, about)
    with pytest.raises(ValueError, match=r"is no basis of features .*write it again") as error:
        Basis.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "can't be fitted on 0 features"),
        (torch.zeros(0, 4), "can't be fitted on 0 features"),
        (torch.zeros(4), r"features must be float \[N, F\]"),
        (torch.zeros(4, 4, dtype=torch.long), "features must be float"),
        ([torch.zeros(2, 4), torch.zeros(2, 5)], r"must be float \[N, 4\] .* got \(2, 5\)"),
        (torch.full((2, 4), torch.inf), "features must be finite"),
    ],
)
def test_features_that_no_basis_can_be_fitted_on(bad, message):
    with pytest.raises(ValueError, match=message):
        fit_basis(bad)
