"""Learning for some steps, in tests."""

from __future__ import annotations

from typing import Any

import torch


def losses(taught: Any, item: Any, rate: float, steps: int) -> list[float]:
    """The loss of one image before each of some steps on it."""
    optimizer = torch.optim.Adam([p for p in taught.parameters() if p.requires_grad], rate)
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = taught.image_loss(item).loss
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))
    return values
