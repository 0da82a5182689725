"""Shared set-up of the test suite."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # tests import the builders of `tiny.py`
torch.set_num_threads(1)  # tiny models; more threads only cost
