"""Shared set-up of the test suite."""

from __future__ import annotations

import gc
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parent))  # tests import the builders of `tiny.py`
torch.set_num_threads(1)  # tiny models; more threads only cost

from room_seconds import RoomSeconds  # noqa: E402


def pytest_collection_finish() -> None:
    """Let `add_adapter` take the peft there is, and leave what is collected out of garbage collection.

    transformers 5.24 asks for a peft that is not out yet before any `add_adapter`. LoRAs, all that tests add
    by it, work with the one there is; nothing in src/ calls these methods. Where no test has imported a
    model, nothing is imported for it: rooms without models begin four seconds sooner. And a walk over all
    modules and tests took a tenth of the time.
    """
    from arr_coc.relevance import sums

    sums.ocr_installed = lambda: False  # a second for each picture; tests of "auto" put it back
    adapters = sys.modules.get("transformers.integrations.peft")
    if adapters is not None and Version(version("peft")) < Version(adapters.MIN_PEFT_VERSION):
        adapters.MIN_PEFT_VERSION = version("peft")
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3-VL with its processor as a folder."""
    from tiny import save_tiny

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
