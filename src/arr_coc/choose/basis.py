"""The principal components of an encoder's features: fitted once, saved beside a layer, and read again.

basis = fit_basis([features [B, F, h, w], ...], source="my encoder")
basis.project(features [B, F, h, w]) -> [B, 16, h, w] in [0, 1]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from arr_coc.choose.filters import unit
from arr_coc.files.saved import reading, write_tensors

COMPONENTS = 16  # components of a basis by default: the channels of the group "components"
DEVIATIONS = 2.5  # standard deviations of a component, each way from its mean, that become 0 and 1
FORMAT = "arr-coc basis 1"
MAX_BYTES = 64_000_000  # the most bytes of a basis file
_TENSORS = ("mean", "components", "deviations")


@dataclass(frozen=True, eq=False)
class Basis:
    """The leading principal components of unit features, finite float32.

    Features are divided by their length first: a few directions of a language model's visual tokens are
    hundreds of times longer than the others, and would be all that a basis describes.
    """

    mean: Tensor  # (F,), of the unit features that it was fitted on
    components: Tensor  # (n, F), orthonormal rows, the widest first; zeros where the features span fewer
    deviations: Tensor  # (n,), standard deviation along each component
    source: str = ""  # what the features are of, such as the name of a checkpoint

    def __post_init__(self) -> None:
        shapes = [tuple(getattr(self, name).shape) for name in _TENSORS]
        width, count = self.mean.numel(), self.deviations.numel()
        if shapes != [(width,), (count, width), (count,)] or 0 in (width, count):
            raise ValueError(f"a basis is a mean [F], components [n, F] and deviations [n], got {shapes}")
        for name in _TENSORS:
            x = getattr(self, name)
            if x.dtype != torch.float32 or not (x.device.type == "meta" or bool(x.isfinite().all())):
                raise ValueError(f"{name} of a basis must be finite float32, got {x.dtype}; fit it again")

    @property
    def width(self) -> int:
        """F, width of the features."""
        return len(self.mean)

    @property
    def count(self) -> int:
        """n, number of components."""
        return len(self.components)

    def to(self, device: torch.device | str) -> Basis:
        """Return the same basis on a device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in _TENSORS})

    def project(self, features: Tensor) -> Tensor:
        """Components of features, [B, F, h, w] -> float32 [B, n, h, w] in [0, 1]; 0.5 is the mean."""
        if features.ndim != 4 or features.shape[1] != self.width:
            raise ValueError(
                f"this basis is for features [B, {self.width}, h, w], got {tuple(features.shape)}; "
                "fit one on features of that encoder with fit_basis"
            )
        centred = unit(features, dim=1) - self.mean.view(-1, 1, 1)
        along = torch.einsum("bfhw,nf->bnhw", centred, self.components)
        spread = 2 * DEVIATIONS * self.deviations.clamp_min(1e-6)
        return (0.5 + along / spread.view(-1, 1, 1)).clamp(0, 1)

    def save(self, path: str | Path) -> None:
        """Write the basis as one safetensors file; raises OSError if the folder can't be written to."""
        about = {"format": FORMAT, "source": self.source}
        write_tensors({name: getattr(self, name) for name in _TENSORS}, Path(path), about)

    @classmethod
    def load(cls, path: str | Path) -> Basis:
        """Read the basis that `save` wrote, on the CPU; a ValueError if the file is missing or no basis."""
        place = Path(path)
        with reading(f"{str(place)!r} is no basis of features", "write it again with Basis.save"):
            if place.stat().st_size > MAX_BYTES:
                raise ValueError(f"it is larger than {MAX_BYTES / 1e6:g} MB")
            with safe_open(place, framework="pt") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise ValueError(f"its format is {about.get('format')!r} and not {FORMAT!r}")
                parts = {name: file.get_tensor(name) for name in _TENSORS}
            return cls(**parts, source=about.get("source", ""))


def fit_basis(features: Tensor | Iterable[Tensor], count: int = COMPONENTS, source: str = "") -> Basis:
    """Fit principal components of an encoder's float features [N, F] or [B, F, h, w], of a hundred pictures.

    Deterministic. A ValueError if there are none, or they are not finite or not of one width.
    """
    total, square, number = None, None, 0
    for part in [features] if isinstance(features, Tensor) else features:
        rows = part.movedim(1, -1).flatten(0, -2) if part.ndim == 4 else part
        fits = rows.ndim == 2 and rows.is_floating_point() and (total is None or rows.shape[1] == len(total))
        if not fits:
            width = "F" if total is None else len(total)
            raise ValueError(
                f"features must be float [N, {width}] or [B, {width}, h, w], got {tuple(part.shape)}"
            )
        if not bool(rows.isfinite().all()):
            raise ValueError("features must be finite, got NaN or infinity; check the encoder that made them")
        rows = unit(rows, dim=-1).cpu().double()  # in float64, where E[x x^T] - E[x] E[x]^T cancels little
        total = rows.sum(0) + (0 if total is None else total)
        square = rows.T @ rows + (0 if square is None else square)
        number += len(rows)
    if total is None or square is None or not number or count < 1:
        raise ValueError(f"a basis of {count} components can't be fitted on {number} features; pass some")
    mean = total / number
    # Exact and without a random start, unlike torch.pca_lowrank; eigenvalues come smallest first.
    values, vectors = torch.linalg.eigh(square / number - mean[:, None] * mean)
    rows, values = vectors.T.flip(0)[:count], values.flip(0)[:count]
    rows = torch.where(values[:, None] > 1e-10 * values.amax().clamp_min(1e-12), rows, 0.0)
    # An eigenvector has no sign of its own: each points to where its largest entry is positive.
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    rows = torch.where(largest < 0, -rows, rows)
    missing = count - len(rows)
    rows = torch.cat((rows, rows.new_zeros(missing, len(mean))))
    values = torch.cat((values.clamp_min(0), values.new_zeros(missing)))
    return Basis(mean.float(), rows.float(), values.sqrt().float(), source)
