"""Shared set-up of the test suite."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # tests import the builders of `tiny.py`
torch.set_num_threads(1)  # tiny models; more threads only cost

from tiny import save_tiny  # noqa: E402


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3-VL with its processor as a folder."""
    folder = tmp_path_factory.mktemp("base")
    save_tiny("qwen3_vl", folder)
    return folder
