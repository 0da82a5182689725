"""Frames of drawn clips as data of a recipe: what is evident in a frame, and what isn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from arr_coc.train.recipe import load_recipe, make_recipe
from arr_coc.train.rows import open_rows
from arr_coc.train.trainer import train
from arr_coc_lab.world.clips import draw_clip
from arr_coc_lab.world.training_clips import LARGEST, ClipRows
from tiny import save_tiny

RELEVANCE = {"stage": "relevance", "steps": 4, "data": ("clips",)}


def test_boxes_are_those_of_the_frame() -> None:
    rows = ClipRows(6, (256,))
    evident = 0
    for item in (rows[i] for i in range(6)):
        number, seed = (int(word) for word in item.where.split() if word.isdigit())
        clip = draw_clip(seed, (256, 256), split="train")
        by_text = {question.text: question for question in clip.questions}
        assert item.image.tobytes() == clip.frames[number].tobytes()
        for row in item.rows:
            evidence = by_text[row.question].evidence
            assert row.boxes == tuple(one.box(number) for one in evidence if number in one.frames)
            evident += bool(row.boxes)
        assert any(row.boxes for row in item.rows) == bool(clip.questions)
    assert evident > 6


def test_an_item_is_fixed_by_seed_and_number() -> None:
    assert ClipRows(3, (256,))[2].where == ClipRows(9, (256,))[2].where
    assert ClipRows(3, (256,))[2].where != ClipRows(3, (256,), seed=1)[2].where
    assert ClipRows(1, (1024,))[0].image.size == (LARGEST, LARGEST)
    with pytest.raises(IndexError):
        ClipRows(3)[3]


def test_no_more_questions_than_asked_for() -> None:
    assert all(0 < len(ClipRows(4, (256,), questions=3)[i].rows) <= 3 for i in range(4))


def test_a_recipe_takes_them_in_turns_with_pages() -> None:
    rows = open_rows(make_recipe(**RELEVANCE | {"data": ("world", "clips"), "sizes": (256,)}))
    assert rows.images() == {"world": 2, "clips": 2}
    assert sum("clip" in rows[i].where for i in range(4)) == 2


@pytest.mark.parametrize("changes", [{"stage": "answers"}, {"target": "gradient"}])
def test_what_a_frame_cannot_teach_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="use stage=relevance target=boxes"):
        open_rows(make_recipe(**RELEVANCE | changes))


@pytest.mark.slow
def test_a_layer_learns_from_them(tmp_path: Path) -> None:
    save_tiny("qwen3_vl", tmp_path / "base")
    changes = {"model": str(tmp_path / "base"), "data": ("clips",), "sizes": (128,), "steps": 2, "workers": 0}
    train(load_recipe("relevance", changes), tmp_path / "out", progress=False)
    assert (tmp_path / "out" / "arr_coc.safetensors").is_file()
