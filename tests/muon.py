"""What the stages of the bundled model need of torch, for their tests."""

from __future__ import annotations

import pytest
import torch

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="Muon came with torch 2.9")
