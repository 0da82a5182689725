"""Whether two tensors are the same but for the kernels that computed them.

A processor's kernels add in orders of their own, and the error of a sum grows with what is added. So two ways
of running a model are compared relative to the largest value, never by what one machine happened to meet.
What has to agree to the last bit is compared with `torch.equal`.
"""

from __future__ import annotations

from torch import Tensor

KERNELS = 3e-5
"""By what share of the largest value the kernels of two processors may differ; measured: at most 1e-5."""


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest finite value that is expected."""
    assert found.shape == expected.shape
    one, other = found.detach().double(), expected.detach().double()
    differ = one != other  # equal infinities don't
    if not differ.any():
        return 0.0
    return float((one - other)[differ].abs().max() / other[other.isfinite()].abs().max())


def near(found: Tensor, expected: Tensor, share: float = KERNELS) -> bool:
    """Whether they differ by no more than kernels do."""
    return apart(found, expected) <= share
