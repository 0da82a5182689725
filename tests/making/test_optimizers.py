"""Optimizers and resumable checkpoints of the stages."""

from __future__ import annotations

import pytest
import torch

from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from muon import needs_muon


@needs_muon
def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    def build():
        torch.manual_seed(0)
        net = torch.nn.Sequential()
        net.add_module("blocks", torch.nn.Linear(6, 6))
        net.add_module("head", torch.nn.Linear(6, 2))
        return net, Optimizers(net.named_parameters(), 1e-2)

    def steps(net, optimizer, first, last):
        for step in range(first, last):
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
            optimizer.step(net(x).square().mean(), 1e-2)

    net, optimizer = build()
    steps(net, optimizer, 0, 6)
    other, other_optimizer = build()
    steps(other, other_optimizer, 0, 3)
    save_checkpoint(tmp_path / "run.safetensors", other, other_optimizer, 3)
    resumed, resumed_optimizer = build()
    assert load_checkpoint(tmp_path / "run.safetensors", resumed, resumed_optimizer) == 3
    steps(resumed, resumed_optimizer, 3, 6)
    for a, b in zip(net.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="no weight"):
        load_checkpoint(tmp_path / "run.safetensors", torch.nn.Linear(3, 3))
