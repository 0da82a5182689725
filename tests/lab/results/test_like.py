"""Published tables: each row has a source, nothing is made up beside them, and ours stand beside theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from arr_coc.choose.budget import parse_budget
from arr_coc.data import data_sets
from arr_coc_lab.cli.report import show_summary
from arr_coc_lab.evaluate import METHODS, Settings
from arr_coc_lab.evaluate.run import open_questions
from arr_coc_lab.evaluate.turns import TURNS
from arr_coc_lab.results.files import read_results, write_results
from arr_coc_lab.results.like import ALWAYS, MARK, beside, find_table, published_rows, table_names
from arr_coc_lab.results.table import table
from arr_coc_lab.world.summary import summarise
from ten_questions import WRITERS

SETS = [(name, one.data, one.split) for name in table_names() for one in find_table(name).sets]


def summary_of(name: str, data: str, split: str, **methods: float) -> dict[str, Any]:
    header = {"like": name, "data": f"{data}:x", "split": split, "model": "bundled", "kinds": {}}
    figures = {"full": 0.9, **methods}
    rows = {method.replace("_", " "): {"score": score, "tokens": 7.0} for method, score in figures.items()}
    return {"header": header, "metric": "vqa accuracy", "methods": rows}


def score(name: str, model: str, method: str, keep: float, column: str) -> float:
    (row,) = [
        row
        for part in find_table(name).parts
        if part.model == model
        for row in part.rows
        if (row.method, row.keep) == (method, keep)
    ]
    part = next(part for part in find_table(name).parts if part.model == model)
    return row.scores[part.columns.index(column)]


@pytest.mark.parametrize("name", table_names())
def test_a_table_can_be_run_and_names_its_sources(name: str) -> None:
    table = find_table(name)
    assert set(table.rivals) <= set(METHODS)
    assert set(ALWAYS) <= set(METHODS) | set(TURNS)
    assert all(str(parse_budget(budget)) == str(budget) for budget in table.budgets)
    assert table.absent
    assert table.parts
    for part in table.parts:
        assert len(part.source) > 20
        assert len({(row.method, row.keep) for row in part.rows}) == len(part.rows)
        assert {row.keep for row in part.rows} <= {1.0, *table.budgets}
        shares = [name for name in part.columns if name != "MME"]
        for row in part.rows:
            assert all(
                0 < value <= 100
                for title, value in zip(part.columns, row.scores, strict=True)
                if title in shares
            )
    for one in table.sets:
        assert not data_sets()[one.data].clips
        assert data_sets()[one.data].metric is not None
        assert one.prompt is None or one.prompt.count("{question}") == 1


def test_rows_are_those_that_were_published() -> None:
    """Some figures by hand; and an average that a table states is the mean of its columns."""
    assert score("idpruner", "Qwen2.5-VL-7B", "IDPruner", 0.25, "TextVQA") == 80.83
    assert score("idpruner", "Qwen2.5-VL-7B", "VisionSelector", 0.1, "DocVQA") == 87.0
    assert score("idpruner", "Qwen2.5-VL-3B", "IDPruner", 0.1, "average") == 85.71
    assert score("hilo", "Qwen3-VL-8B", "Hi-Lo Prune", 0.1, "average") == 87.17
    assert score("visionrl2", "Qwen3.5-4B", "Vision-RL2", 736, "V*") == 85.3
    for name in ("uniprune", "visionrl2"):
        for part in find_table(name).parts:
            for row in part.rows:
                *values, mean = row.scores
                assert sum(values) / len(values) == pytest.approx(mean, abs=0.11), row


@pytest.mark.parametrize(("name", "data", "split"), SETS)
def test_ten_questions_are_read_with_the_tables_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: str, split: str
) -> None:
    for module in ("constants", "utils._cache_assets"):
        monkeypatch.setattr(f"huggingface_hub.{module}.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    if data == "zoombench":
        pytest.importorskip("pyarrow")
    WRITERS[data](tmp_path / "data")
    one = find_table(name).set_of(data, split)
    settings = Settings(out=tmp_path / "run", data=f"{data}:{tmp_path / 'data'}", split=split, like=name)
    assert settings.budgets == tuple(map(parse_budget, find_table(name).budgets))
    assert settings.longest == (one.answer_tokens or 32)
    total, _, _, images = open_questions(settings)
    assert total == 10
    texts = [query.text for image in images for query in image.queries]
    if one.prompt is not None:
        start, end = one.prompt.split("{question}")
        assert all(text.startswith(start) and text.endswith(end) for text in texts)
    command = settings.command
    assert f"--like {name}" in command
    assert "--budgets" not in command
    assert "--methods" not in command


def test_what_a_run_may_not_change(tmp_path: Path) -> None:
    def settings(**changes: Any) -> Settings:
        return Settings(**{"out": tmp_path / "run", "data": "textvqa:x", "like": "idpruner", **changes})

    kept = settings(methods=("mmtok",))
    assert kept.methods is not None
    assert set(ALWAYS) <= set(kept.methods)
    assert {"mmtok", "fastv"} <= set(kept.methods)
    assert settings(budgets=(0.25, 0.1)).budgets == (0.25, 0.1)
    for changes, message in (
        ({"like": "idprunr"}, "there is no table 'idprunr': use one of f3a, .*did you mean 'idpruner'"),
        ({"data": "world"}, "data 'world' is not of the table .*: give --data with textvqa:DIR, docvqa:DIR"),
        ({"data": "gqa:x"}, "data 'gqa' is not of the table"),
        ({"split": "train"}, "the table has no split 'train' of textvqa: leave it out, or use val"),
        ({"budgets": (64,)}, r"budgets \(64,\) are not those of the table \(0.25, 0.1\): leave them out"),
    ):
        with pytest.raises(ValueError, match=message):
            settings(**changes)


def test_published_rows_stand_beside_ours() -> None:
    text = beside(summary_of("idpruner", "textvqa", "val", **{"arr-coc@0.25": 0.8, "random@0.1": 0.5}))
    assert text is not None
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[0].startswith("| method | visual tokens | TextVQA, vqa accuracy, %")
    at = {line.split(" | ")[0].removeprefix("| "): number for number, line in enumerate(rows)}
    assert at["full"] < at["all tokens, Qwen2.5-VL-7B †1"] < at["**arr-coc@0.25**"]
    assert at["**arr-coc@0.25**"] < at["IDPruner, Qwen2.5-VL-7B †1"]
    assert "| **arr-coc@0.25** | 7 | 80.0 | - |" in rows
    assert "| IDPruner, Qwen2.5-VL-7B †1 | 25 % as published | 80.83 | 95.18 |" in rows
    assert any(line.startswith("†1 github.com/Tencent/AngelSlim") and "2026-04-02" in line for line in lines)
    assert "Not here: " in text
    marked = sum(MARK in line for line in rows)
    assert marked == len(published_rows(summary_of("idpruner", "textvqa", "val"))) == 38


def test_a_table_says_how_many_questions_have_a_turn_before_them() -> None:
    score = {"full": 1.0, "arr-coc@0.25": 0.0}
    records = [{"id": f"{i}", "image": f"{i // 2}", "score": {**score}} for i in range(3)]
    header = {"metric": "vqa_accuracy", "methods": list(score)}
    assert "questions" not in table(summarise(header, records))
    for record in records[:2]:
        record["score"]["arr-coc turn 2@0.25"] = 1.0
    lines = table(summarise(header, records)).splitlines()
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    counts = {row[0].strip("*"): row[head.index("questions")] for row in rows}
    assert counts == {"full": "3", "arr-coc@0.25": "3", "arr-coc turn 2@0.25": "2"}


def test_files_of_others_may_name_any_table(tmp_path: Path) -> None:
    for name in (None, "nothing", "../tables/f3a"):
        summary = summary_of("idpruner", "textvqa", "val")
        summary["header"]["like"] = name
        assert beside(summary) is None
        assert published_rows(summary) == []
    write_results(tmp_path / "a.jsonl", {"like": ["idpruner"]})
    with pytest.raises(ValueError, match="'like'"):
        read_results(tmp_path / "a.jsonl")
    hostile = summary_of("idpruner", "textvqa", "val")
    hostile["header"]["model"] = "a\x1b[2J|b"
    text = beside(hostile)
    assert text is not None
    assert "\x1b" not in text
    wrong = summary_of("idpruner", "gqa", "val")
    with pytest.raises(ValueError, match="is not of the table"):
        beside(wrong)


def test_published_rows_are_grey_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    header = {"like": "hilo", "data": "chartqa:x", "split": "test", "metric": "relaxed_accuracy"}
    record = {"id": "1", "image": "a", "score": {"full": 1.0}, "tokens": {"full": 7}}
    summary = summarise(header, [record])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "300")
    for plain in (True, False):
        monkeypatch.setenv("NO_COLOR", "1") if plain else monkeypatch.delenv("NO_COLOR")
        show_summary(summary, tmp_path / "a.png", "short", False)
        if plain:
            assert "\x1b[90m" not in capsys.readouterr().out
    lines = capsys.readouterr().out.splitlines()
    grey = [line for line in lines if line.startswith("\x1b[90m")]
    assert all(MARK in line and line.endswith("\x1b[0m") for line in grey)
    assert sum("Hi-Lo Prune, Qwen3-VL-8B" in line for line in grey) == 1
    assert not any(MARK in line for line in lines if line not in grey)
    monkeypatch.setenv("COLUMNS", "60")  # a row is a paragraph, and a source takes several lines
    show_summary(summary, tmp_path / "a.png", "short", False)
    blocks = [block for block in capsys.readouterr().out.split("\n\n") if MARK in block]
    assert any(len(block.splitlines()) > 2 for block in blocks)
    assert all(line.startswith("\x1b[90m") for block in blocks for line in block.splitlines())
