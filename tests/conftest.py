"""Shared set-up of the test suite."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import peft
import pytest
import torch
from packaging.version import Version
from transformers.integrations import peft as peft_of_transformers

sys.path.insert(0, str(Path(__file__).parent))  # tests import the builders of `tiny.py`
torch.set_num_threads(1)  # tiny models; more threads only cost

from room_seconds import RoomSeconds  # noqa: E402
from tiny import save_tiny  # noqa: E402

if Version(peft.__version__) < Version(peft_of_transformers.MIN_PEFT_VERSION):
    # transformers 5.24 asks for a peft that is not out yet before any `add_adapter`. LoRAs, all that tests
    # add by it, work with the one there is; nothing in src/ calls these methods.
    peft_of_transformers.MIN_PEFT_VERSION = peft.__version__


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3-VL with its processor as a folder."""
    folder = tmp_path_factory.mktemp("base")
    save_tiny("qwen3_vl", folder)
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--room-seconds`."""
    parser.addoption("--room-seconds", action="store_true", help="print CPU seconds per folder of tests")


def pytest_configure(config: pytest.Config) -> None:
    """Count CPU seconds where they are wanted."""
    if config.getoption("--room-seconds"):
        config.pluginmanager.register(RoomSeconds())


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collection: walking them took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
