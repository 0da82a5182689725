"""Pages and questions from parquet, kept cells and boxes to parquet: rows, errors, what counts as done."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from arr_coc.selector import Selector
from arr_coc_lab.integrations.corpus import (
    TRIES,
    CorpusJob,
    choose_rows,
    choose_unit,
    is_done,
    list_units,
    read_rows_of,
    remove_parts,
)
from corpus_pages import BUDGET, DAMAGED, SIDE, chosen, pages, png, write_pages

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def selector() -> Selector:
    return Selector.from_pretrained(dtype="float32")


@pytest.fixture
def job(tmp_path: Path) -> CorpusJob:
    write_pages(tmp_path / "pages", pages())
    return CorpusJob(str(tmp_path / "pages"), str(tmp_path / "chosen"), BUDGET)


@pytest.mark.slow
def test_rows_are_those_of_single_calls(job: CorpusJob, selector: Selector) -> None:
    units = list_units(job)
    assert [(unit.group, unit.first, unit.rows) for unit in units] == [(0, 0, 2), (1, 2, 2), (2, 4, 1)]
    assert [choose_unit(job, selector, unit) for unit in units] == [0, 1, 0]
    rows, own = chosen(job), pages()
    assert sum(bool(row["boxes"]) for row in rows) >= 2
    assert [row["row"] for row in rows] == list(range(5))
    assert [row["id"] for row in rows] == [str(row["question_id"]) for row in own]
    assert [row["error"] is not None for row in rows] == [number == DAMAGED for number in range(5)]
    for row, page in zip(rows, own, strict=True):
        assert (row["file"], row["question"]) == ("pages.parquet", page["question"])
        if row["error"] is not None:
            assert "image bytes" in row["error"]
            assert row["kept"] is row["boxes"] is None
            continue
        single = Selector(selector.guide)(page["image"]["bytes"], page["question"], BUDGET)
        assert row["kept"] == single.keep.tolist()
        assert row["grid"] == list(single.grid[1:]) == [SIDE // 32, SIDE // 32]
        assert row["size"] == [SIDE, SIDE]
        for box in row["boxes"]:
            assert 0 <= box["x0"] < box["x1"] <= SIDE
            assert 0 <= box["y0"] < box["y1"] <= SIDE
        assert [box["score"] for box in row["boxes"]] == sorted(
            (b["score"] for b in row["boxes"]), reverse=True
        )


@pytest.mark.slow
def test_cells_depend_on_no_other_row(job: CorpusJob, selector: Selector, tmp_path: Path) -> None:
    """Whatever stands before them, in whatever row groups, and whatever is kept of earlier pictures."""
    every = [row for unit in list_units(job) for row in read_rows_of(job, unit)]
    forward = list(choose_rows(selector, every, BUDGET))
    backward = list(choose_rows(Selector(selector.guide), every[::-1], BUDGET))[::-1]
    assert forward == backward
    good = [row for row in every if row["row"] != DAMAGED]
    alone = list(choose_rows(Selector(selector.guide), good, BUDGET))
    assert alone == [row for row in forward if row["row"] != DAMAGED]


@pytest.mark.slow
def test_rows_chosen_together_keep_their_errors_and_their_order(job: CorpusJob, selector: Selector) -> None:
    every = [row for unit in list_units(job) for row in read_rows_of(job, unit)]
    apart, together = (list(choose_rows(selector, every, BUDGET, count)) for count in (1, 5))
    for rows in (apart, together):
        assert [(row["row"], "error" in row) for row in rows] == [(i, i == DAMAGED) for i in range(5)]
    for one, other in zip(apart, together, strict=True):
        assert len(set(one.get("kept", ())) ^ set(other.get("kept", ()))) <= 2


def test_a_bad_page_or_question_is_a_row_with_an_error(selector: Selector) -> None:
    good = {"file": "f", "row": 0, "id": 7, "image": png(Image.new("RGB", (64, 64))), "question": "Total?"}
    bad = [
        good | {"image": None}, good | {"image": "page.png"}, good | {"image": [good["image"]] * 2},
        good | {"image": b"\x89PNG"}, good | {"question": None}, good | {"question": " "},
        good | {"question": 3},
    ]  # fmt: skip
    for together in (1, len(bad) + 1):
        results = list(choose_rows(selector, [*bad, good], 1, together))
        assert ["error" in row for row in results] == [True] * len(bad) + [False]
        assert all("\n" not in row["error"] for row in results[:-1])
        assert len(results[-1]["kept"]) == 1


def test_what_is_done_is_known_from_whole_files(job: CorpusJob, selector: Selector) -> None:
    settings, units = job.settings(selector), list_units(job)
    assert not any(is_done(job, settings, unit) for unit in units)
    for unit in units[:2]:
        choose_unit(job, selector, unit)
    assert [is_done(job, settings, unit) for unit in units] == [True, True, False]
    half = Path(job.out) / units[0].target
    half.write_bytes(half.read_bytes()[:-20])
    assert [is_done(job, settings, unit) for unit in units] == [False, True, False]
    half.write_bytes(b"")
    assert not is_done(job, settings, units[0])
    choose_unit(job, selector, units[0])
    assert is_done(job, settings, units[0])
    rows = pages()
    rows[-1]["question"] = "Something else?"  # the pages were replaced
    choose_unit(job, selector, units[2])
    write_pages(Path(job.source), rows)
    assert [is_done(job, settings, unit) for unit in list_units(job)] == [True, True, False]


def test_a_process_that_ends_leaves_a_part_that_does_not_count(
    job: CorpusJob, selector: Selector, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, folder = list_units(job)[0], Path(job.out)
    with monkeypatch.context() as patch:
        patch.setattr(selector, "many", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        for number in range(TRIES):
            with pytest.raises(KeyboardInterrupt):
                choose_unit(job, selector, unit)
            assert len(list(folder.glob("*.part"))) == number + 1
            assert not is_done(job, job.settings(selector), unit)
    with pytest.raises(ValueError, match=f"ended {TRIES} times"):
        choose_unit(job, selector, unit)
    remove_parts(job)
    assert not list(folder.iterdir())
    choose_unit(job, selector, unit)
    assert [one.name for one in folder.iterdir()] == [unit.target]


def test_an_error_of_a_row_group_leaves_nothing(job: CorpusJob, selector: Selector) -> None:
    unit = list_units(job)[1]
    file = Path(job.source) / unit.file
    start = parquet.read_metadata(file).row_group(1).column(1).data_page_offset
    content = bytearray(file.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"row group 1 can't be read .*damaged"):
        choose_unit(job, selector, unit)
    assert not list(Path(job.out).iterdir())


def test_refusals(job: CorpusJob, selector: Selector, tmp_path: Path) -> None:
    unit = list_units(job)[2]
    choose_unit(job, selector, unit)
    other = CorpusJob(job.source, job.out, BUDGET + 1)
    with pytest.raises(ValueError, match=r'chosen with other settings .*"budget": 10.*another folder'):
        is_done(other, other.settings(selector), unit)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "a.parquet").write_bytes(b"PAR1")
    write_pages(tmp_path / "columns", [{"picture": b"", "question": "Total?"}])
    for source, message in (
        ("gone", "can't be read"),
        ("empty", "no .*parquet"),
        ("cut", "can't be read"),
        ("columns", "no column 'image'"),
        ("chosen", "another folder for the results"),
    ):
        with pytest.raises(ValueError, match=message):
            list_units(CorpusJob(str(tmp_path / source), job.out))
    for bad in ({"budget": "many"}, {"together": 0}, {"relevance": "nothing"}):
        with pytest.raises(ValueError, match=r"many|together 0|nothing"):
            CorpusJob(job.source, job.out, **bad).open_selector()
