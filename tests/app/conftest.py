"""What the tests of the app share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from arr_coc.app.models import Models
    from arr_coc.model import ARRCOCModel


@pytest.fixture
def models(model: ARRCOCModel) -> Iterator[Models]:
    """A test file's `model` in both places of the app."""
    from arr_coc.app.models import Models

    made = Models(model, model)
    yield made
    made.close()


@pytest.fixture
def files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app's uploads lie where the test's own files do."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
