"""Any setting is taken or refused in one line, before anything is loaded: a seeded walk and its corners."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from arr_coc.train.recipe import Recipe, load_recipe, make_recipe, parse_override
from arr_coc.train.rows import open_rows
from each import each

WORDS = [
    *("", " ", "0", "1", "-1", "3.5", "1e12", "1e400", "9" * 5000, "nan", "inf", "true", "none", "None"),
    *(
        "[",
        "[]",
        "[1, 2]",
        "{a = 1}",
        "{a = [",
        '"x"',
        "'x",
        "a,b",
        ",,,",
        "x=y",
        "\x00",
        "\n",
        "é",
        "\U0001f600",
    ),
    *("world", "jsonl:", "jsonl:/nowhere", "hard", "stem", "layer", "boxes", "bundled", "../..", "1_000"),
    *("1970-01-01", "0x10", "[[1]]", '{small = "x"}', "{dim = 3}", "{rank = 4, heads = 0}", "\ud800"),
]
KEYS = [
    *Recipe.model_fields,
    "hard.small",
    "hard.",
    "layer.rank",
    "layer.explore",
    "layer.x",
    ".",
    "",
    "stepz",
]


VALID = [
    "lr = 1\n",
    "sizes = [512]\n",
    'model = "x"\n',
    "hard.small = 3\n",
    "[layer]\nrank = 4\n",
    "# none\n",
]


def law(make: Callable[..., object], *words: object) -> bool:
    """Whether it is valid; what is not is refused in one line."""
    message = None
    try:
        make(*words)
    except ValueError as error:
        message = str(error)
    if message is not None:
        assert 10 < len(message) < 1000, message
        assert len(message.splitlines()) == 1, message
    return message is None


def load(name: str | Path, changes: list[str]) -> Recipe:
    return load_recipe(name, dict(map(parse_override, changes)))


@pytest.mark.slow
def test_overrides() -> None:
    draw = random.Random(5)
    taken = 0
    for _ in range(400):
        changes = [f"{draw.choice(KEYS)}={draw.choice(WORDS)}" for _ in range(draw.choice((1, 1, 2)))]
        changes = [change for change in changes if not change.startswith("imports=")]
        taken += law(load, draw.choice(("relevance", "hard", "stem")), changes)
    assert 10 < taken < 390


@pytest.mark.slow
def test_files(tmp_path: Path) -> None:
    draw = random.Random(6)
    path = tmp_path / "mine.toml"
    start = 'stage = "hard"\nsteps = 3\n'
    taken = 0
    for _ in range(300):
        key = draw.choice([key for key in KEYS if key != "imports"])
        lines = start + draw.choice((f"{key} = {draw.choice(WORDS)}\n", draw.choice(VALID)))
        cut = draw.randrange(len(lines)) if draw.random() < 0.3 else len(lines)
        path.write_bytes(
            lines[:cut].encode("utf-8", "surrogatepass") + draw.choice((b"", b"", b"\xff", b"[hard]"))
        )
        taken += law(load, path, [])
    assert 10 < taken < 290


@each(
    "change",
    [
        *(
            "steps=1000000000000",
            "sizes=1",
            "questions=0",
            "questions=100000",
            "lora=100000",
            "workers=100000",
        ),
        *(
            "batch=1000000",
            "lr=1e300",
            "warmup=1000000000000",
            "layer.rank=1000000000",
            "layer.heads=1000000",
        ),
        *("temperature=1e9", "relevance=1e300", "max_pixels=1", "top_layers=1000000", "save_every=0"),
        f"steps={'9' * 5000}",
    ],
)
def test_absurd_settings(change: str) -> None:
    assert not law(load, "answers", [change])


def test_no_run_reaches_the_pages_of_another() -> None:
    with pytest.raises(ValueError, match="more than 1,000,000,000 images: use fewer"):
        make_recipe(stage="relevance", steps=9_000_000, batch=1000)


def test_near_names_are_named() -> None:
    for text, near in (("savee_every=3", "save_every"), ("seeds=3", "seed"), ("budget=3", "budgets")):
        with pytest.raises(ValueError, match=f"is unknown: use .*{near}"):
            parse_override(text)
    with pytest.raises(ValueError, match="layer has 'explor', which is unknown: use explore"):
        load("relevance", ["layer.explor=0.1"])


@each("error", ["raise SystemExit(3)", "1 / 0", "import no_such_module"])
def test_a_module_that_fails_is_named(tmp_path: Path, error: str) -> None:
    (tmp_path / "failing_module.py").write_text(error)
    path = tmp_path / "mine.toml"
    path.write_text('stage = "relevance"\nsteps = 1\nimports = ["failing_module"]\n')
    with pytest.raises(ValueError, match="'failing_module'"):
        load_recipe(path)


class TestAnswers:
    """Stages that learn from answers say so where the model's own stand in."""

    @pytest.fixture
    def bare(self, tmp_path: Path) -> str:
        (tmp_path / "a.png").write_bytes(b"read when it comes")
        (tmp_path / "questions.jsonl").write_text('{"image": "a.png", "question": "What?"}\n' * 2)
        return f"folder:{tmp_path}"

    def test_the_models_own_answers_are_announced(self, bare: str, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            open_rows(load("answers", [f"data={bare}"]))
        (record,) = caplog.records
        assert "2 of 2 questions of data 'folder:" in record.getMessage()
        assert "have no answer: the model's own" in record.getMessage()

    def test_where_they_are_meant_nothing_is_said(self, bare: str, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            open_rows(load("distill", [f"data={bare}"]))
        assert caplog.records == []

    def test_of_several_processes_one_says_it(
        self, bare: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RANK", "1")
        open_rows(load("answers", [f"data={bare}"]))
        assert caplog.records == []
