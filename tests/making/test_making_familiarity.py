"""Familiarity as it is fitted, and the foreign pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from arr_coc.choose.stem import Familiarity, Stem, load_stem
from arr_coc.files.saved import BUNDLED
from arr_coc_lab.teaching.filling import DOCUMENTS
from making import familiarity
from making.foreign import KINDS, draw_foreign


def test_a_fit_separates_what_can_be_separated() -> None:
    generator = torch.Generator().manual_seed(0)
    own, validation = torch.randn(2, 300, 12, generator=generator)
    foreign = torch.randn(300, 12, generator=generator) + torch.tensor([3.0] * 4 + [0.0] * 8)
    unit = familiarity.fit(own, validation, foreign)
    assert familiarity.share_foreign(unit, validation) <= 0.02
    assert familiarity.share_foreign(unit, foreign) > 0.95


def test_one_page_in_fifty_is_flagged_where_nothing_separates_the_two() -> None:
    own, validation, foreign = torch.randn(3, 400, 12, generator=torch.Generator().manual_seed(1))
    unit = familiarity.fit(own, validation, foreign)
    assert familiarity.share_foreign(unit, validation) <= 0.021


def test_foreign_pictures_come_from_their_seed() -> None:
    pictures = [draw_foreign(seed) for seed in range(12)]
    assert all(picture.mode == "RGB" and min(picture.size) >= 64 for picture in pictures)
    assert draw_foreign(3).tobytes() == pictures[3].tobytes()
    assert len({picture.tobytes() for picture in pictures}) == 12
    assert len(KINDS) == 6


@pytest.mark.slow
def test_the_command_writes_the_fit_and_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (BUNDLED / "allocator").glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(familiarity, "SIDES", (128,))
    monkeypatch.setattr("making.foreign.SIDES", (128,))
    familiarity.main(tmp_path, 10, 10, tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert {name: row["pictures"] for name, row in report.items()} == {
        "train": 10,
        "validation": 3,
        "test": 2,
        "foreign": 10,
        "other foreign": 2,
    }
    stem, before = load_stem(tmp_path, 192), load_stem(BUNDLED / "allocator", 192)
    assert isinstance(stem, Stem)
    assert isinstance(before, Stem)
    assert isinstance(stem.familiarity, Familiarity)
    old = before.state_dict()
    assert all(
        torch.equal(v, old[k]) for k, v in stem.state_dict().items() if not k.startswith("familiarity")
    )


def test_kinds_that_the_fit_never_saw_join_its_results(tmp_path: Path) -> None:
    pages, results = tmp_path / "pages", tmp_path / "report.json"
    (pages / "validation").mkdir(parents=True)
    results.write_text('{"train": {"pictures": 1, "called foreign": 0.0}}')
    record = {"version": 1, "type": "t", "seed": 0, "split": "validation", "words": [], "questions": []}
    for number in (3, 5):
        draw_foreign(number).resize((160, 96)).save(pages / "validation" / f"{number}.png")
        (pages / "validation" / f"{number}.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="has no documentation"):
        familiarity.measure_unseen(BUNDLED / "allocator", pages, results)
    draw_foreign(7).resize((160, 96)).save(pages / "validation" / f"{DOCUMENTS}.png")
    (pages / "validation" / f"{DOCUMENTS}.json").write_text(json.dumps(record))
    familiarity.measure_unseen(BUNDLED / "allocator", pages, results)
    report = json.loads(results.read_text())
    assert {name: row["pictures"] for name, row in report.items()} == {
        "train": 1,
        "browser pages": 2,
        "browser pages, photographed": 2,
        "documentation": 1,
        "documentation, photographed": 1,
    }


def test_without_a_fit_nothing_unseen_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fit without --unseen"):
        familiarity.measure_unseen(BUNDLED / "allocator", tmp_path, tmp_path / "none.json")
