"""What the tests of the modes share."""

from __future__ import annotations

import pytest

from eyes import set_constants


@pytest.fixture
def small_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode "saccade" with numbers of cells that fit tiny images."""
    set_constants(monkeypatch)
