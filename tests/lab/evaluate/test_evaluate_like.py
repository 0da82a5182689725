"""`eval --like`: limits of pictures in the model's own tokens, a second turn, a dry run of each table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from arr_coc_lab.data.metrics import contains_answer
from arr_coc_lab.evaluate.pixel_limits import cell_side, limit_pictures, without_least
from arr_coc_lab.evaluate.questions import ImageQueries, Query
from arr_coc_lab.evaluate.scene import Harness, Scene
from arr_coc_lab.evaluate.turns import TURNS, turn_before
from arr_coc_lab.results.files import read_results
from arr_coc_lab.results.like import ALWAYS, TURN, TURN_FULL, TURN_KEPT, find_table, table_names
from command_line import run
from eyes import build
from ten_questions import WRITERS
from tiny import picture

DRY = {"idpruner": "docvqa", "f3a": "pope", "hilo": "chartqa", "visionrl2": "infovqa", "uniprune": "ocrbench"}


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


def queries(*answers: str) -> tuple[Query, ...]:
    return tuple(
        Query(str(i), f"What is {i}?", (answer,) if answer else ()) for i, answer in enumerate(answers)
    )


def test_limits_are_counted_on_the_models_own_grid() -> None:
    model = ARRCOCModel.from_pretrained(strict=True)  # its own, whose processor changes
    side = cell_side(model)
    assert side == 32
    small, large = picture(1, (64, 96)), picture(1, (960, 960))
    limit_pictures(model, 20, 30)
    for image in (small, large):
        cells = Session(model, image).plan("What?", mode="prune", budget=4).allocations[0].total
        assert 20 <= cells <= 30
    with without_least(model):
        assert Session(model, small).plan("What?", mode="prune", budget=4).allocations[0].total == 6
    assert model.processor.image_processor.size["shortest_edge"] == 20 * 32**2
    with pytest.raises(
        ValueError, match="the processor of 'llava' has no limits of pixels: use a Qwen model"
    ):
        limit_pictures(build("llava"), 20, 30)


def test_a_shrunk_picture_stays_below_the_least() -> None:
    model = ARRCOCModel.from_pretrained(strict=True)
    limit_pictures(model, 36, 100)
    scene = Scene(model, ImageQueries(picture(1, (64, 64)), "a", queries("x")))
    from arr_coc_lab.evaluate import METHODS

    assert scene.view.total >= 36
    assert scene.resized(METHODS["downsample"], 9).view.total <= 9


def test_the_turn_before(model: ARRCOCModel) -> None:
    def view(*answers: str):
        return Scene(model, ImageQueries(picture(1, (64, 64)), "a", queries(*answers))).view

    three = view("x", "y", "z")
    assert [turn_before(three, i) for i in range(3)] == [2, 0, 1]
    assert [turn_before(view("x", ""), i) for i in range(2)] == [None, 0]
    assert turn_before(view("x"), 0) is None


def test_a_second_turn_is_what_a_conversation_answers(model: ARRCOCModel) -> None:
    """Rows are those of `ask` with a history; what was kept for the turn before is that question's choice."""
    image, asked = picture(5, (160, 128)), queries("red", "blue")
    harness = Harness(model, list(TURNS.values()), contains_answer, (5,), 2, max_new_tokens=6)
    records = harness.records(ImageQueries(image, "a", asked), ())
    session = Session(model, image)
    labels = {TURN: f"{TURN}@5", TURN_KEPT: f"{TURN_KEPT}@5", TURN_FULL: TURN_FULL}
    for i, record in enumerate(records):
        before = asked[1 - i]
        history = [(before.text, before.answers[0])]
        own = session.plan(asked[i].text, mode="prune", budget=5).allocations[0].keep
        earlier = session.plan(before.text, mode="prune", budget=5).allocations[0].keep
        cells = {TURN: own, TURN_KEPT: earlier, TURN_FULL: torch.arange(20)}
        for name, label in labels.items():
            mode = "full" if name == TURN_FULL else "prune"
            how = {} if name == TURN_FULL else {"cells": cells[name]}
            answer = session.ask(asked[i].text, history=history, mode=mode, max_new_tokens=6, **how)
            assert record["said"][label] == answer.text.strip()
            assert record["tokens"][label] == len(cells[name])
    alone = harness.records(ImageQueries(image, "b", asked[:1]), ())
    assert alone[0]["said"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", table_names())
def test_a_dry_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    WRITERS[DRY[name]](tmp_path / "data")
    line = ["eval", "--like", name, "--data", f"{DRY[name]}:data", "--timed", "0", "--out", "dry"]
    code, out, err = run(capsys, *line)
    assert code == 0, err
    table = find_table(name)
    header, records = read_results(tmp_path / "dry.jsonl")
    assert (header["like"], header["questions"], len(records)) == (name, 10, 10)
    assert header["token_px"] == 32
    least, most = table.limits or (1, 4096)
    assert all(least <= record["total"] <= most for record in records)
    methods = {label.partition("@")[0] for record in records for label in record["score"]}
    assert set(ALWAYS) <= methods
    assert {f"downsample@{budget}" for budget in table.budgets} <= set(records[0]["score"])
    for part in table.parts:
        assert part.source in out
        assert all(f"{row.method}, {part.model} †" in out for row in part.rows)
    assert json.loads((tmp_path / "dry.json").read_text())["header"]["like"] == name
    code, again, _ = run(capsys, "report", "dry.jsonl")
    assert code == 0
    assert (
        out[out.index("Beside ") : out.index("picture")]
        == again[again.index("Beside ") : again.index("picture")]
    )


def test_the_command_refuses_what_is_not_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for more, message in (
        (("--like", "idpruner"), "data 'world' is not of the table"),
        (("--like", "nothing", "--data", "pope:x"), "there is no table 'nothing'"),
        (("--like", "f3a", "--data", "pope:data", "--budgets", "64"), "are not those of the table"),
    ):
        WRITERS["pope"](tmp_path / "data")
        code, _, err = run(capsys, "eval", *more)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1
