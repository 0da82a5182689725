"""A run: right answers, equal files for equal seeds, and a killed run that ends as if it hadn't been."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from arr_coc.model import ARRCOCModel
from arr_coc.relevance import names, sums
from arr_coc.relevance.boxes import BoxSource, GivenBox
from arr_coc.relevance.source import PictureView
from arr_coc.session import Session
from arr_coc_lab.evaluate import METHODS, Settings, evaluate
from arr_coc_lab.evaluate import run as running
from arr_coc_lab.evaluate.answering import CellPrompt, Prompts, answer_rows
from arr_coc_lab.evaluate.progress import Progress, duration
from arr_coc_lab.evaluate.questions import (
    ImageQueries,
    Query,
    data_questions,
    shuffled,
    with_next,
    world_questions,
)
from arr_coc_lab.evaluate.scene import Scene
from arr_coc_lab.evaluate.timing import UNKNOWN_BLOCK, peak_megabytes
from arr_coc_lab.results.files import decode_kept, read_results, write_results
from arr_coc_lab.rivals import Reduction
from each import each
from tiny import picture, save_tiny

COMMITTED = Path(__file__).parents[3] / "runs" / "results" / "sparse.jsonl.gz"
BLIND = ("even grid", "visionzip", "divprune", "prumerge+", "scope")


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


def settings(folder: Path, **changes: Any) -> Settings:
    small = {"questions": 6, "per_image": 3, "size": 192, "budgets": (9, 18, "auto"), "timed": 0}
    return Settings(out=folder / "run", **(small | changes))


def own_data(folder: Path, images: int) -> dict[str, Any]:
    """Settings for two questions about each of some pictures in a folder."""
    lines = []
    for i in range(1, images + 1):
        picture(i, (192, 192)).save(folder / f"{i}.png")
        lines += [
            {"id": f"{i}{q}", "image": f"{i}.png", "question": f"What is {q}?", "answer": "x"} for q in "ab"
        ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"data": f"jsonl:{folder}", "questions": None, "max_new_tokens": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of everything."""
    folder = tmp_path_factory.mktemp("all")
    evaluate(settings(folder), progress=False)
    return folder


@pytest.fixture(scope="module")
def records(folder: Path) -> list[dict[str, Any]]:
    return read_results(folder / "run.jsonl")[1]


# ---- what a run says ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_full_is_the_stock_model_and_ours_is_generate(
    model: ARRCOCModel, records: list[dict[str, Any]]
) -> None:
    asked = [(page, query) for page in world_questions(6, 192, 3) for query in page.queries]
    assert [query.id for _, query in asked] == [record["id"] for record in records]
    for (page, query), record in zip(asked, records, strict=True):
        inputs = Session(model, page.image).inputs(query.text)
        length = inputs["input_ids"].shape[1]
        stock = model.base.generate(**inputs, max_new_tokens=8, do_sample=False)[0, length:]
        assert (
            model.processor.tokenizer.decode(stock, skip_special_tokens=True).strip()
            == record["said"]["full"]
        )
        for budget in (9, 18, "auto"):
            ids = model.generate(**inputs, budget=budget, max_new_tokens=8, do_sample=False)[0, length:]
            said = model.processor.tokenizer.decode(ids, skip_special_tokens=True).strip()
            assert said == record["said"][f"arr-coc@{budget}"]


def test_every_entry_is_there_and_spends_its_budget(records: list[dict[str, Any]]) -> None:
    fixed = {name for name, method in METHODS.items() if method.fixed} | {"full"}
    for record in records:
        expected = {"arr-coc@auto", "arr-coc sparse@auto"} | fixed
        expected |= {f"{name}@{k}" for name in set(METHODS) - fixed for k in (9, 18)}
        assert set(record["said"]) == set(record["score"]) == set(record["tokens"]) == expected
        chosen = {
            m
            for m in expected
            if m != "full" and not m.startswith(("downsample", "coc ", "resolution", "averaged"))
        }
        assert set(record["kept"]) == chosen
        for method, text in record["kept"].items():
            count = int(decode_kept(text, record["total"]).sum())
            budget = method.partition("@")[2]
            assert count == (int(budget) if budget.isdigit() else record["tokens"][method])
        assert record["total"] == record["tokens"]["full"] == 36
        assert record["tokens"]["downsample@18"] == 16
        assert record["tokens"]["fastv@9"] == pytest.approx((36 * 2 + 9 * 3) / 5)


def test_recall_swap_and_score_mean_what_they_say(records: list[dict[str, Any]]) -> None:
    assert any(record["evidence"] for record in records)
    for record in records:
        if record["evidence"] is None:
            assert "recall" not in record
            continue
        assert record["recall"]["oracle@18"] == pytest.approx(min(1, 18 / record["evidence"]), abs=1e-4)
        for name in BLIND:
            assert record["swap"][f"{name}@9"] == 1
    first, second = records[:2]
    a, b = (decode_kept(r["kept"]["random@9"], 36) for r in (first, second))
    assert first["swap"]["random@9"] == pytest.approx((a & b).sum() / (a | b).sum(), abs=1e-4)
    for record in records:
        for method, text in record["said"].items():
            assert record["score"][method] == float(text in record["answers"])


def test_the_summary_is_of_the_file(folder: Path) -> None:
    summary = json.loads((folder / "run.json").read_text())
    header, records = read_results(folder / "run.jsonl")
    assert summary["questions"] == len(records) == 6
    assert summary["header"] == header
    assert header["notes"] == {}  # the bundled model brings the scorer and compressors that some need
    assert header["metric"] == "exact_match"


# ---- the same again -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_equal_seeds_give_equal_files_and_a_killed_run_ends_the_same(tmp_path: Path) -> None:
    few = settings(
        tmp_path, methods=("full", "arr-coc", "random", "shuffled question", "visionzip"), budgets=(9,)
    )
    evaluate(few, progress=False)
    whole = (tmp_path / "run.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (0, len(lines[0]), len(b"".join(lines[:3])), len(whole) - 1):
        (tmp_path / "run.jsonl").write_bytes(whole[:cut])
        evaluate(few, progress=False)
        assert (tmp_path / "run.jsonl").read_bytes() == whole


@pytest.mark.slow
def test_an_image_that_was_half_written_is_asked_again(folder: Path, tmp_path: Path) -> None:
    """With every method: they answer alike in another process state."""
    whole = (folder / "run.jsonl").read_bytes()
    cut = len(b"".join(whole.splitlines(keepends=True)[:5])) + 100  # inside the second image's second line
    (tmp_path / "run.jsonl").write_bytes(whole[:cut])
    evaluate(settings(tmp_path), progress=False)
    assert (tmp_path / "run.jsonl").read_bytes() == whole  # with the header of the run that began it


@pytest.mark.slow
def test_answers_alone_are_answers_in_a_batch(folder: Path, tmp_path: Path) -> None:
    evaluate(settings(tmp_path, rows=1, questions=3), progress=False)
    alone, batched = (read_results(path / "run.jsonl")[1] for path in (tmp_path, folder))
    for one, other in zip(alone, batched[:3], strict=True):
        shuffled = {method for method in other["said"] if method.startswith("shuffled question")}
        assert (
            set(other["said"]) - set(one["said"]) == shuffled
        )  # one image alone: there is no other's question
        assert one["said"].items() <= other["said"].items()


@pytest.mark.slow
def test_another_seed_draws_other_cells_of_files_and_no_others(tmp_path: Path) -> None:
    own = own_data(tmp_path, 2) | {"methods": ("random", "even grid", "arr-coc"), "budgets": (9, 18)}
    runs = [tmp_path / str(seed) for seed in (0, 1)]
    for seed, run in enumerate(runs):
        evaluate(settings(run, seed=seed, **own), progress=False)
    for one, other in zip(*(read_results(run / "run.jsonl")[1] for run in runs), strict=True):
        moved = {method for method in one["kept"] if one["kept"][method] != other["kept"][method]}
        assert moved == {"random@9", "random@18"}


def test_another_seed_draws_other_held_out_pages() -> None:
    first, again, other = (list(world_questions(12, 128, 3, seed=seed)) for seed in (0, 0, 3))
    assert [page.key for page in first] == [f"test:{i}" for i in range(len(first))]
    assert [page.queries for page in first] == [page.queries for page in again]
    assert [page.key for page in other][:2] == ["test:3000000", "test:3000001"]
    ids = [{query.id for page in pages for query in page.queries} for pages in (first, other)]
    assert not ids[0] & ids[1]
    drawn = {page.image.tobytes() for page in other}
    assert not drawn & {page.image.tobytes() for page in first}


@pytest.mark.slow
def test_the_usual_seed_draws_the_pages_that_committed_figures_are_of() -> None:
    pages = islice(world_questions(400, 1024, 8), 3)
    drawn = [(page.key, q.id, q.text, list(q.answers)) for page in pages for q in page.queries]
    records = read_results(COMMITTED)[1]
    assert drawn == [(r["image"], r["id"], r["question"], r["answers"]) for r in records[: len(drawn)]]
    assert len(drawn) == 24


@pytest.mark.slow
def test_a_file_of_another_run_is_not_touched(folder: Path, tmp_path: Path) -> None:
    before = (folder / "run.jsonl").read_bytes()
    (tmp_path / "run.jsonl").write_bytes(before)
    with pytest.raises(ValueError, match=r"its size is 192, now 224.*--out"):
        evaluate(settings(tmp_path, size=224), progress=False)
    assert (tmp_path / "run.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_weights(model: ARRCOCModel, tmp_path: Path) -> None:
    few = settings(tmp_path, allocators=(str(tmp_path / "own"),), methods=("arr-coc",), budgets=(9,))
    model.save_pretrained(tmp_path / "own")
    evaluate(few, progress=False)
    evaluate(few, progress=False)
    ARRCOCModel.wrap(model.base, model.processor).save_pretrained(tmp_path / "own")
    with pytest.raises(ValueError, match="its weights"):
        evaluate(few, progress=False)


@pytest.mark.slow
def test_a_run_does_not_go_on_with_another_lora(model: ARRCOCModel, tmp_path: Path) -> None:
    few = settings(tmp_path, allocators=(str(tmp_path / "own"),), methods=("arr-coc sparse",), budgets=(9,))
    own = ARRCOCModel.wrap(model.base, model.processor)
    own.loras.add("partial", rank=2)
    own.save_pretrained(tmp_path / "own")
    evaluate(few, progress=False)
    header, _ = read_results(tmp_path / "run.jsonl")
    assert len(header["weights"]["LoRAs"]) == 16
    with torch.no_grad():
        own.loras.parameters_of("partial")[0].add_(1)
    own.save_pretrained(tmp_path / "own")
    with pytest.raises(ValueError, match="its weights"):
        evaluate(few, progress=False)


@pytest.mark.slow
def test_times_are_of_evenly_spread_questions_and_change_no_answer(folder: Path, tmp_path: Path) -> None:
    names = ("full", "arr-coc", "downsample", "fastv", "scope")
    evaluate(settings(tmp_path, timed=2, methods=names, budgets=(9,)), progress=False)
    records = read_results(tmp_path / "run.jsonl")[1]
    assert [i for i, record in enumerate(records) if "ms" in record] == [1, 4]
    for record, other in zip(records, read_results(folder / "run.jsonl")[1], strict=True):
        assert record["said"] == {m: other["said"][m] for m in record["said"]}
        for method, stages in record.get("ms", {}).items():
            assert list(stages) == ["encode", "select", "prefill"]
            assert stages["encode"] > 0 < stages["prefill"]
            assert stages["select"] > (0.5 if method.split("@")[0] in ("arr-coc", "scope") else 0)
            assert record["peak_mb"][method] > 0.1
        assert set(record.get("ms", record["said"])) == set(record["said"])


def test_peak_memory_is_what_is_held_at_once() -> None:
    def in_turn() -> None:
        for _ in range(3):
            torch.ones(2**20)  # 4 MiB, freed before the next

    def together() -> list[torch.Tensor]:
        return [torch.ones(2**20) for _ in range(3)]

    device = torch.device("cpu")
    assert peak_megabytes(in_turn, device) == pytest.approx(4, abs=0.1)
    assert peak_megabytes(together, device) == pytest.approx(12, abs=0.1)


def test_a_warning_of_the_profiler_does_not_break_the_bar(capfd: pytest.CaptureFixture[str]) -> None:
    def noisy() -> torch.Tensor:
        os.write(2, b"[W CPUAllocator.cpp:245] " + UNKNOWN_BLOCK + b", profiler results\nsomething else\n")
        return torch.ones(2**20)

    assert peak_megabytes(noisy, torch.device("cpu")) == pytest.approx(4, abs=0.1)
    assert capfd.readouterr().err == "something else\n"


# ---- images that can't be opened ------------------------------------------------------------------------


@pytest.mark.slow
def test_an_image_that_can_not_be_opened_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = own_data(tmp_path, 3) | {"methods": ("full", "random"), "budgets": (9,)}
    evaluate(settings(tmp_path / "whole", **few), progress=False)
    sound = (tmp_path / "2.png").read_bytes()
    (tmp_path / "2.png").write_bytes(sound[:40])
    run = settings(tmp_path, **few)
    summary = evaluate(run, progress=False)
    assert (summary["questions"], summary["failed"]["questions"]) == (4, 2)
    assert list(summary["failed"]["images"]) == ["jsonl:2.png"]
    (line,) = caplog.messages
    assert "2 of 6 questions were not asked" in line
    assert "jsonl:2.png" in line
    records = read_results(run.lines)[1]
    assert [record["id"] for record in records] == ["1a", "1b", "2a", "2b", "3a", "3b"]
    assert [record["id"] for record in records if "error" in record] == ["2a", "2b"]
    assert records[2]["error"].startswith("image '2.png' ")
    assert str(tmp_path) not in json.dumps(records)  # nothing of this disk
    before = run.lines.read_bytes()
    evaluate(run, progress=False)  # it is tried again, and is as damaged as before
    assert run.lines.read_bytes() == before
    (tmp_path / "2.png").write_bytes(sound)
    assert "failed" not in evaluate(run, progress=False)
    assert "2 questions whose images could not be opened are tried again" in caplog.text
    whole = tmp_path / "whole" / "run.jsonl"
    assert run.lines.read_bytes().splitlines()[1:] == whole.read_bytes().splitlines()[1:]


@pytest.mark.slow
def test_no_image_at_all_is_an_error(tmp_path: Path) -> None:
    few = own_data(tmp_path, 2) | {"methods": ("full",), "budgets": (9,)}
    for i in (1, 2):
        (tmp_path / f"{i}.png").write_bytes(b"no image")
    with pytest.raises(
        ValueError, match=r"none of 4 questions was asked.*jsonl:1\.png: image '1\.png' is not"
    ):
        evaluate(settings(tmp_path, **few), progress=False)


# ---- stopped --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_was_stopped_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = settings(tmp_path, methods=("full",), budgets=(9,))
    evaluate(few, progress=False)
    whole = few.lines.read_bytes()
    few.lines.unlink()
    append = running.append_results

    def interrupted(path: Path, lines: list[dict[str, Any]]) -> None:
        if len(read_results(path)[1]) == 0:
            append(path, lines)
            return
        with path.open("ab") as file:
            file.write(json.dumps(lines[0]).encode()[:50])
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "append_results", interrupted)
    with pytest.raises(KeyboardInterrupt, match="stopped after 3 of 6 questions; the same command goes on"):
        evaluate(few, progress=False)
    monkeypatch.undo()
    assert few.lines.read_bytes() == b"".join(whole.splitlines(keepends=True)[:4])  # not torn
    evaluate(few, progress=False)
    assert few.lines.read_bytes() == whole


def test_a_line_that_a_kill_has_cut_off_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, header = tmp_path / "run.jsonl", {"timed": 0}
    record = {"id": "0", "image": "test:0", "score": {"full": 1.0}}
    write_results(path, header, [record])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-20:-7])
    assert running.open_file(path, header) == (header, [record])
    assert "its last line was cut off and is asked again" in caplog.text
    assert path.read_bytes() == whole


def test_a_run_goes_on_on_another_device_unless_it_is_timed(tmp_path: Path) -> None:
    path, record = tmp_path / "run.jsonl", {"id": "0", "image": "test:0", "score": {"full": 1.0}}
    header = {"timed": 0, "device": None, "machine": {"device": "an accelerator"}}
    other = {"device": "cpu", "machine": {"device": "cpu"}}
    write_results(path, header, [record])
    assert running.open_file(path, header | other) == (header, [record])
    write_results(path, header | {"timed": 2}, [record])
    with pytest.raises(ValueError, match="is of another run: its device is None, now 'cpu'"):
        running.open_file(path, header | {"timed": 2} | other)


def test_the_time_of_the_rest_is_estimated_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2000, 0, 6, timed=10) as progress:
        progress.advance(5, 1000.0)  # the first warms up
        progress.advance(5, None)  # timed, or skipped
        for _ in range(5):
            progress.advance(5, 2.0)
    err = capsys.readouterr().err
    assert err.count("about") == 1
    # 25 of 2,000 are done when three images, of 5 questions in 2 s each, have been measured
    assert "about 14 min for 1,975 questions x 6 methods and budgets, and what 10 of them take" in err
    with Progress(2000, 0, 6, hidden=True) as progress:
        for _ in range(5):
            progress.advance(5, 2.0)
    assert capsys.readouterr().err == ""


@each(("seconds", "text"), [(0.1, "1 s"), (89, "89 s"), (840, "14 min"), (12_000, "3 h 20 min")])
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ---- rows ---------------------------------------------------------------------------------------------


@torch.no_grad()
def test_merged_tokens_are_what_is_read(model: ARRCOCModel) -> None:
    """Merged tokens equal to the image's own change nothing, others do."""
    page = next(world_questions(3, 256, 3))
    scene = Scene(model, page)
    features, total = scene.view.features, scene.view.total
    keep = torch.arange(total)
    own, none = features.tokens[0].clone(), torch.zeros_like(features.tokens[0])
    rows = [
        CellPrompt(0, Reduction(keep)),
        CellPrompt(0, Reduction(keep, own)),
        CellPrompt(0, Reduction(keep, none)),
        CellPrompt(1, Reduction(keep)),
    ]
    prompts = Prompts(scene.session, scene.texts)
    said = answer_rows(prompts, features, rows, most=8, max_new_tokens=8)
    assert said[0] == said[1]
    assert said[2] != said[0]
    assert torch.equal(features.tokens[0], own)


# ---- questions ----------------------------------------------------------------------------------------


def test_drawn_questions_are_as_many_as_wanted_and_of_even_families() -> None:
    pages = list(world_questions(40, 512))
    families = [query.family for page in pages for query in page.queries]
    assert len(families) == 40
    tally = [families.count(f) for f in set(families)]
    assert max(tally) - min(tally) <= 4
    assert len({query.id for page in pages for query in page.queries}) == 40
    assert [page.queries for page in pages] == [page.queries for page in world_questions(40, 512)]


def test_questions_of_files_stand_with_their_image(tmp_path: Path) -> None:
    for i in (1, 2):
        picture(i, (40, 30)).save(tmp_path / f"{i}.png")
    lines = [
        {"id": "a", "image": "1.png", "question": "What?", "answers": ["x"], "boxes": [[0, 0, 10, 10]]},
        {"id": "b", "image": "2.png", "question": "Who?", "answers": ["y"]},
        {"id": "c", "image": "1.png", "question": "Where?", "answers": ["z"]},
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, images = data_questions(f"jsonl:{tmp_path}", "test")
    assert [asked.key for asked in images] == ["jsonl:1.png", "jsonl:2.png"]
    assert [[query.id for query in asked.queries] for asked in images] == [["a", "c"], ["b"]]
    assert images[0].queries[0].boxes == ((0, 0, 10, 10),)
    assert images[0].queries[1].boxes is None
    lines[2]["id"] = "a"
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match=r"line 3 repeats the id 'a'.*line 1"):
        data_questions(f"jsonl:{tmp_path}", "test")


@each("box", [[0.1, 0.1, 0.5, 0.5], [50, 0, 60, 9], [0, 0, 900, 900]])
def test_a_box_that_is_not_of_its_image_ends_the_run(tmp_path: Path, box: list[float]) -> None:
    """As it ends training: recall of evidence would be measured on other cells."""
    picture(1, (40, 30)).save(tmp_path / "1.png")
    line = {"image": "1.png", "question": "What?", "answer": "x", "boxes": [box]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(line) + "\n")
    _, (source,) = data_questions(f"jsonl:{tmp_path}")
    harness: Any = None  # is not reached
    with pytest.raises(ValueError, match=r"questions.jsonl, line 1: box .*: give p"):
        running._lines(harness, source, ())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_vl", "llava", "qwen2_5_vl"])
def test_other_families_run_on_files(family: str, tmp_path: Path) -> None:
    save_tiny(family, tmp_path / "model")
    for i in (1, 2):
        picture(i, (48, 48)).save(tmp_path / f"{i}.png")
    lines = [
        {
            "id": f"{i}{q}",
            "image": f"{i}.png",
            "question": f"{q}?",
            "answers": ["x"],
            "boxes": [[0, 0, 20, 20]],
        }
        for i in (1, 2)
        for q in ("What is it?", "Who?")
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = evaluate(
        settings(
            tmp_path, model=str(tmp_path / "model"), data=f"jsonl:{tmp_path}", split="test", questions=None,
            budgets=(0.5,), max_new_tokens=3,
        ),
        progress=False,
    )  # fmt: skip
    ran = {method.partition("@")[0] for method in summary["methods"]}
    assert ran | set(summary["header"]["notes"]) == set(METHODS)
    assert "visionzip" in ran
    for record in read_results(tmp_path / "run.jsonl")[1]:
        assert record["total"] == 36
        assert int(decode_kept(record["kept"]["divprune@0.5"], 36).sum()) == 18
        assert record["recall"]["oracle@0.5"] == 1


def test_every_image_meets_the_next_ones_questions() -> None:
    asked = [ImageQueries(Path(k), k, (Query(k, f"{k}?", ("x",)),)) for k in "abc"]
    assert [(one.key, others[0].text) for one, others in with_next(asked)] == [
        ("a", "b?"),
        ("b", "c?"),
        ("c", "a?"),
    ]
    assert list(with_next(asked[:1])) == [(asked[0], ())]
    assert list(with_next([])) == []


def test_a_shuffled_question_has_another_text() -> None:
    own = [Query(str(i), text, ("x",)) for i, text in enumerate(("p?", "q?", "p?"))]
    others = [Query("o", text, ("x",)) for text in ("p?", "r?")]
    assert shuffled(own, others) == ["r?", "r?", "r?"]
    assert shuffled(own, others[:1]) == [None, "p?", None]
    assert shuffled(own, ()) == [None, None, None]


# ---- sources of relevance -----------------------------------------------------------------------------


class Corner(BoxSource):
    """A source that finds everything in the lower right corner, and counts the pictures that it read."""

    name, version = "corner", "7"

    def __init__(self) -> None:
        super().__init__([GivenBox((96, 96, 192, 192), score=0.9)])
        self.version, self.read = "7", 0

    def view(self, picture: torch.Tensor) -> PictureView:
        self.read += 1
        return super().view(picture)


@pytest.mark.parametrize("relevance", [None, "gaze", "guide", "corner", "guide+corner"])
def test_ours_keep_what_a_call_keeps_by_any_source_of_relevance(
    relevance: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On pictures unlike the drawn pages, of which the guide decides where none is named."""
    source = Corner()
    monkeypatch.setattr(names, "_registered", {"corner": lambda argument: source})
    sums._opened.cache_clear()  # may hold a corner of another test
    methods = ("arr-coc", "arr-coc sparse", "arr-coc saccade")
    own = own_data(tmp_path, 2) | {"methods": (*methods, "shuffled question sparse"), "budgets": (9,)}
    evaluate(settings(tmp_path, relevance=relevance, **own), progress=False)
    header, records = read_results(tmp_path / "run.jsonl")
    assert source.read == (2 if "corner" in (relevance or "") else 0)  # once a picture, for all methods
    assert header["relevance"] == relevance
    assert ("relevance" in header["weights"]) == (relevance in ("guide", "corner", "guide+corner"))
    if relevance == "corner":
        assert header["weights"]["relevance"] == "7"

    model = ARRCOCModel.from_pretrained(strict=True, relevance=relevance or "auto")
    for record in records:
        image = Image.open(tmp_path / record["image"].partition(":")[2])
        for mode, label in (("prune", "arr-coc@9"), ("sparse", "arr-coc sparse@9")):
            answer = Session(model, image).ask(record["question"], mode=mode, budget=9, max_new_tokens=1)
            kept = decode_kept(record["kept"][label], record["total"]).nonzero()[0]
            assert answer.allocation.keep.tolist() == kept.tolist()
        if relevance == "corner" and record["question"] == "What is b?":  # "What is a?" is for no place
            # 3 x 3 of the 6 x 6 cells
            assert kept.tolist() == [row * 6 + column for row in (3, 4, 5) for column in (3, 4, 5)]


def test_another_allocator_keeps_what_the_source_of_relevance_says(
    model: ARRCOCModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_registered", {"corner": lambda argument: Corner()})
    sums._opened.cache_clear()
    model.save_pretrained(tmp_path / "mine")
    for path in (tmp_path / "mine").glob("lora*"):
        path.unlink()
    wanted = settings(
        tmp_path,
        questions=2,
        budgets=(9,),
        methods=("arr-coc", "arr-coc:mine"),
        allocators=(f"mine={tmp_path / 'mine'}",),
        relevance="corner",
    )
    evaluate(wanted, progress=False)
    for record in read_results(tmp_path / "run.jsonl")[1]:
        assert record["kept"]["arr-coc:mine@9"] == record["kept"]["arr-coc@9"]


def test_a_run_does_not_go_on_with_another_source_of_relevance(tmp_path: Path) -> None:
    few = settings(tmp_path, questions=1, methods=("arr-coc",), budgets=(9,))
    evaluate(few, progress=False)
    with pytest.raises(ValueError, match="its relevance is None, now 'guide'"):
        evaluate(replace(few, relevance="guide"), progress=False)


def test_an_unknown_source_of_relevance_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"relevance 'giude' is unknown; use one of auto, "):
        settings(tmp_path, relevance="guide+giude")
    with pytest.raises(ValueError, match="nowhere"):
        evaluate(settings(tmp_path, relevance="boxes:nowhere.json"), progress=False)
    assert list(tmp_path.iterdir()) == []


# ---- settings -----------------------------------------------------------------------------------------


def test_the_command_repeats_the_run(tmp_path: Path) -> None:
    given = settings(tmp_path, allocators=("x=a b",), methods=("even grid", "full"), timed=3)
    assert given.command == (
        f"arr-coc eval --out {tmp_path}/run --allocator 'x=a b' --methods 'even grid,full' "
        "--budgets 9,18,auto --questions 6 --size 192 --per-image 3 --timed 3"
    )
    assert replace(given, timed=0).command == given.command.replace("--timed 3", "--timed 0")
    assert replace(given, relevance="guide+ocr").command == given.command + " --relevance guide+ocr"
    filtered = replace(given, vtc_filter=True)
    assert filtered.command == given.command + " --vtc-filter"
    assert filtered.to_dict() == given.to_dict()  # a view of the lines, which go on in the same file
    for name in ("run", "run.jsonl", "run.json", "run.png"):
        same = replace(given, out=tmp_path / name)
        assert same.lines == tmp_path / "run.jsonl"
        assert same.file(".png") == tmp_path / "run.png"


@each(
    ("changes", "message"),
    [
        ({"budgets": ()}, "no budget"),
        ({"budgets": (0,)}, "below 1"),
        ({"rows": 0}, "rows 0"),
        ({"questions": 0}, "questions 0"),
        ({"timed": -1}, "timed -1"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**31}, "seed 2147483648 is out of range"),
        ({"questions": 10**7}, "questions 10000000 are too many"),
        ({"out": Path("a.jsonl.gz")}, "out 'a.jsonl.gz' is no name"),
        ({"out": Path()}, "out '.' is no name"),
    ],
)
def test_values_out_of_range_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(settings(tmp_path), **changes)


def test_an_unknown_method_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'radnom' is unknown; did you mean 'random'\?.*--import MODULE"):
        evaluate(settings(tmp_path, methods=("full", "radnom"), model="./nowhere"), progress=False)
    with pytest.raises(ValueError, match=r"did you mean 'arr-coc:mine'\?"):
        evaluate(
            settings(tmp_path, methods=("arr-coc:mein",), allocators=("mine=./nowhere",)), progress=False
        )
