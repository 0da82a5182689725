"""What the tests of training share: a small data set on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiny import picture


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight small pictures with a question and a box each."""
    folder = tmp_path_factory.mktemp("rows")
    lines = []
    for i in range(8):
        picture(i, (48, 40)).save(folder / f"{i}.png")
        row = {"image": f"{i}.png", "question": f"What is it, {i}?", "answer": chr(97 + i)}
        lines.append(row | {"boxes": [[8 * (i % 4), 0, 8 * (i % 4) + 16, 16]]})
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
