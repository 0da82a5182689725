"""Rows: what a step sees depends on the recipe and its number alone; boxes find their cells at any scale."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch import Tensor

from arr_coc.data import Example
from arr_coc.train.recipe import Recipe, make_recipe
from arr_coc.train.rows import FileRows, ImageRows, open_rows
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.training_pages import WorldRows


def cells(mask: Tensor) -> list[list[int]]:
    return mask.nonzero().tolist()


def same(a: ImageRows, b: ImageRows) -> bool:
    return a.rows == b.rows and a.where == b.where and a.image.tobytes() == b.image.tobytes()


def draw(path: Path, size: tuple[int, int] = (96, 64)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "red").save(path)
    return path


def own(folder: Path, *lines: dict[str, Any]) -> str:
    """A data set of one's own; images are drawn as they are named."""
    for row in lines:
        draw(folder / row["image"])
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return f"jsonl:{folder}"


def line(image: str, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"image": image, "question": f"What is {image} {number}?", "answer": "a"} | more


def recipe(**changes: Any) -> Recipe:
    return make_recipe(**{"stage": "relevance", "steps": 12, "sizes": (128,)} | changes)


class TestWorldRows:
    def test_an_item_depends_on_the_seed_and_its_number_alone(self):
        rows = WorldRows(20, (128, 192), seed=3)
        again = pickle.loads(pickle.dumps(WorldRows(900, (128, 192), seed=3)))
        assert [same(rows[i], again[i]) for i in (7, 0, 19)] == [True] * 3
        assert not same(rows[7], WorldRows(20, (128, 192), seed=4)[7])
        assert not same(rows[7], rows[8])

    def test_the_page_is_of_the_training_split_under_its_own_seed(self):
        item = WorldRows(5, (256,), seed=2)[4]
        assert item.where == "world page 2090000004"
        page = draw_page(2_090_000_004, item.image.size, "train", void=False)
        assert item.image.tobytes() == page.image.tobytes()
        expected = {(q.text, (q.answer,), q.evidence, q.family) for q in page.questions}
        assert {(r.question, r.answers, r.boxes, r.family) for r in item.rows} <= expected
        assert item.rows

    def test_sizes_are_whole_cells_about_the_typical_side(self):
        shapes = {WorldRows(30, (256,))[i].image.size for i in range(30)}
        assert len(shapes) > 5
        for w, h in shapes:
            assert w % 32 == h % 32 == 0
            assert 0.6 < w * h / 256**2 < 1.5

    def test_families_are_even_and_questions_limited(self):
        item = WorldRows(3, (768,), questions=6)[0]
        assert len(item.rows) == 6
        assert max(Counter(row.family for row in item.rows).values()) == 1

    def test_no_evidence_is_known_to_be_none(self):
        rows = [row for i in range(12) for row in WorldRows(12, (512,))[i].rows]
        absent = [row for row in rows if row.answers == ("no",)]
        assert absent
        assert all(row.boxes == () for row in absent)
        assert all(row.boxes is not None for row in rows)

    def test_weights_by_family(self):
        rows = WorldRows(1, (768,), weights={"count": 3.0})[0].rows
        assert {row.family == "count": row.weight for row in rows} == {True: 3.0, False: 1.0}

    def test_the_end(self):
        assert len(list(WorldRows(2, (128,)))) == 2


class TestFileRows:
    def examples(self, folder: Path, *names: str, **more: Any) -> list[Example]:
        return [
            Example(str(i), draw(folder / name), f"Q{i}?", ("a",), where=f"file, line {i}", **more)
            for i, name in enumerate(names, 1)
        ]

    def test_questions_of_an_image_stand_together_in_the_order_of_first_appearance(self, tmp_path):
        rows = FileRows(self.examples(tmp_path, "b.png", "a.png", "b.png", "c.png"))
        assert [[row.question for row in rows[i].rows] for i in range(len(rows))] == [
            ["Q1?", "Q3?"],
            ["Q2?"],
            ["Q4?"],
        ]
        assert rows[0].where == rows[0].rows[0].where == "file, line 1"
        assert rows[0].image.size == (96, 64)

    def test_many_questions_are_divided(self, tmp_path):
        rows = FileRows(self.examples(tmp_path, *["a.png"] * 5), questions=2)
        assert [[row.question for row in rows[i].rows] for i in range(len(rows))] == [
            ["Q1?", "Q2?"],
            ["Q3?", "Q4?"],
            ["Q5?"],
        ]

    def test_what_a_row_says(self, tmp_path):
        box = (1.0, 2.0, 30.0, 40.0)
        (boxed,) = self.examples(tmp_path, "a.png", boxes=(box,), meta={"family": "small", "type": "x"})
        (plain,) = self.examples(tmp_path, "a.png", meta={"type": "gray"})
        first, second = FileRows([boxed, plain], prompt="\nBriefly.", weights={"gray": 2.0})[0].rows
        assert (first.question, first.answers, first.boxes) == ("Q1?\nBriefly.", ("a",), (box,))
        assert (first.family, first.weight) == ("small", 1.0)
        assert (second.family, second.weight, second.boxes) == ("gray", 2.0, None)

    def test_large_images_shrink_with_their_boxes(self, tmp_path):
        path = draw(tmp_path / "a.png", (400, 150))
        example = Example("1", path, "Q?", (), boxes=((100.0, 50.0, 300.0, 150.0),))
        item = FileRows([example], max_pixels=15_040)[0]
        assert item.image.size == (200, 75)
        assert item.rows[0].boxes == ((50.0, 25.0, 150.0, 75.0),)
        assert FileRows([example], max_pixels=60_000)[0].image.size == (400, 150)

    def test_sides_are_whole_pixels_so_each_has_its_scale(self, tmp_path):
        path = draw(tmp_path / "a.png", (419, 40))
        item = FileRows([Example("1", path, "Q?", (), boxes=((0.0, 0.0, 419.0, 40.0),))], max_pixels=4096)[0]
        w, h = item.image.size
        assert w / 419 != h / 40
        assert item.rows[0].boxes == ((0, 0, pytest.approx(w), pytest.approx(h)),)

    @pytest.mark.parametrize("size", [(333, 217), (2000, 10), (7, 1400)])
    def test_never_more_pixels_than_allowed(self, tmp_path, size):
        example = Example("1", draw(tmp_path / "a.png", size), "Q?", ())
        w, h = FileRows([example], max_pixels=4096)[0].image.size
        assert 0.8 * 4096 < w * h <= 4096
        assert min(w, h) >= 4

    def test_an_unreadable_image_is_named_with_its_question(self, tmp_path):
        (example,) = self.examples(tmp_path, "a.png")
        example.image.write_bytes(b"no image")
        with pytest.raises(
            ValueError, match=r"^file, line 1: image '.*a.png' is not an image .*: give a PNG"
        ):
            FileRows([example])[0]

    @pytest.mark.parametrize(
        ("boxes", "message"),
        [
            ([(96.0, 0.0, 120.0, 9.0)], r"box \[96.0, .*outside of .*a.png', which is 96x64 px"),
            ([(0.0, 0.0, 9.0, 9.0), (-60.0, 0.0, 20.0, 9.0)], r"box \[-60.0, .*outside of "),
            ([(0.0, 0.0, 1000.0, 1000.0)], r"box .* lies outside of "),
            ([(0.1, 0.2, 0.9, 1.0)], r"box \[0.1, 0.2, 0.9, 1.0\] is in fractions of 1: give px of .*a.png'"),
        ],
    )
    def test_a_box_that_is_not_of_its_image_is_named(self, tmp_path, boxes, message):
        (example,) = self.examples(tmp_path, "a.png", boxes=tuple(boxes))
        with pytest.raises(ValueError, match=f"file, line 1: {message}"):
            FileRows([example])[0]

    def test_boxes_of_a_picture_that_lay_on_its_side(self, tmp_path):
        """COCO's files have the size in which the boxes are: of a turned photograph it may be another."""
        (example,) = self.examples(tmp_path, "a.png", boxes=((1.0, 1.0, 9.0, 9.0),), size=(64, 96))
        reason = r"file, line 1: its boxes are of a picture of 64x96 px, but .*a.png' is 96x64 px: give"
        with pytest.raises(ValueError, match=reason):
            FileRows([example])[0]
        (example,) = self.examples(tmp_path, "b.png", boxes=((-2.0, 1.0, 97.5, 9.0),), size=(96, 64))
        assert FileRows([example])[0].rows[0].boxes == ((-2.0, 1.0, 97.5, 9.0),)  # over the edge by a little


class TestOpenRows:
    def test_its_length_is_that_of_the_run(self):
        rows = open_rows(recipe(steps=7, batch=3))
        assert len(rows) == 21
        with pytest.raises(IndexError):
            rows[21]

    def test_drawn_pages_come_in_order(self):
        rows, pages = open_rows(recipe(seed=1)), WorldRows(12, (128,), seed=1)
        assert all(same(rows[i], pages[i]) for i in (0, 5, 11))

    def test_every_image_once_an_epoch_and_each_epoch_in_an_order_of_its_own(self, tmp_path):
        names = [f"{i}.png" for i in range(6)]
        data = own(tmp_path, *(line(name, boxes=[[0, 0, 9, 9]]) for name in names))
        settings = recipe(data=(data,), steps=18)
        rows = open_rows(settings)
        questions = [rows[i].rows[0].question for i in range(18)]
        epochs = [questions[i : i + 6] for i in (0, 6, 12)]
        assert [len(set(epoch)) for epoch in epochs] == [6, 6, 6]
        assert len({tuple(epoch) for epoch in epochs}) > 1
        again = pickle.loads(pickle.dumps(open_rows(settings)))
        assert [again[i].rows[0].question for i in reversed(range(18))] == questions[::-1]
        other = open_rows(recipe(data=(data,), steps=18, seed=1))
        assert [other[i].rows[0].question for i in range(18)] != questions

    def test_sources_take_turns_and_two_turns_are_a_double_share(self, tmp_path):
        first = own(tmp_path / "a", *(line(f"{i}.png", boxes=[[0, 0, 9, 9]]) for i in range(8)))
        second = own(tmp_path / "b", line("b.png", boxes=[[0, 0, 9, 9]]))
        rows = open_rows(recipe(data=("world", first, second, first)))
        where = [str(rows[i].where) for i in range(12)]
        for round_ in (where[i : i + 4] for i in (0, 4, 8)):
            assert sum(str(tmp_path / "a") in each for each in round_) == 2
            assert sum(str(tmp_path / "b") in each for each in round_) == 1
        assert sorted(each for each in where if "world" in each) == [
            f"world page 9000000{i}" for i in range(3)
        ]
        from_first = [each for each in where if str(tmp_path / "a") in each]
        assert len(set(from_first)) == 6  # of 8: none twice within an epoch

    def test_boxes_must_be_there_to_teach(self, tmp_path):
        data = own(tmp_path, line("a.png"))
        for stage in ("relevance", "hard", "answers"):
            with pytest.raises(ValueError, match=r"data 'jsonl:.*' has no boxes, .*use target=gradient"):
                open_rows(recipe(stage=stage, data=(data,)))
        with pytest.raises(ValueError, match="has no boxes"):
            open_rows(recipe(data=("world", data)))
        for changes in (
            {"target": "gradient"},
            {"stage": "answers", "relevance": 0, "compress": 0},
            {"stage": "answers", "data": ("world", data)},  # the drawn pages have some
        ):
            rows = open_rows(recipe(**{"data": (data,)} | changes))
            assert len(rows) == 12

    def test_where_only_boxes_teach_questions_without_are_left_out(self, tmp_path):
        data = own(tmp_path, line("a.png", 1), line("a.png", 2, boxes=[[0, 0, 9, 9]]), line("b.png", 3))
        questions = {open_rows(recipe(data=(data,)))[i].rows for i in range(4)}
        assert {row.question for rows in questions for row in rows} == {"What is a.png 2?"}
        kept = open_rows(recipe(stage="answers", data=(data,)))
        assert {len(kept[i].rows) for i in range(4)} == {1, 2}

    def test_hard_families_weigh_more_in_stage_hard_alone(self, tmp_path):
        data = own(
            tmp_path, line("a.png", 1, family="small", boxes=[[0, 0, 9, 9]]), line("a.png", 2, family="x")
        )
        hard = open_rows(recipe(stage="hard", data=(data,), hard={"small": 4.0}))[0]
        assert [row.weight for row in hard.rows] == [4.0, 1.0]
        assert {row.weight for row in open_rows(recipe(stage="answers", data=(data,)))[0].rows} == {1.0}
        with pytest.raises(
            ValueError, match=r"hard has smal, but the families of the data are: small, x; write"
        ):
            open_rows(recipe(stage="hard", data=(data,), hard={"smal": 4.0}))

    def test_data_without_questions(self, tmp_path):
        (tmp_path / "questions.jsonl").write_text("\n")
        with pytest.raises(ValueError, match=r"data 'jsonl:.*' has no questions"):
            open_rows(recipe(data=(f"jsonl:{tmp_path}",)))

    def test_limit_and_split_reach_the_reader(self, tmp_path):
        data = own(tmp_path, *(line(f"{i}.png", boxes=[[0, 0, 9, 9]]) for i in range(4)))
        rows = open_rows(recipe(data=(data,), limit=2))
        assert len({rows[i].rows for i in range(12)}) == 2
        (tmp_path / "train.jsonl").write_text(json.dumps(line("0.png", 99, boxes=[[0, 0, 9, 9]])))
        assert open_rows(recipe(data=(data,), split="train"))[0].rows[0].question == "What is 0.png 99?"
