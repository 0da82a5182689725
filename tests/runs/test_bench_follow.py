"""Follow-up questions: ways that keep a cache answer as from the whole prompt; the break-even by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from arr_coc.model import ARRCOCModel
from arr_coc_lab.evaluate.questions import ImageQueries, Query
from each import each
from scripts import imported, need
from tiny import picture, tiny

need("bench/follow.py")

IMAGE = picture(1, (64, 56))
TEXTS = ("What is the number?", "What is the colour?", "Where?", "Is it?", "And the ball?")
SOURCE = ImageQueries(IMAGE, "a", tuple(Query(str(i), text, ("left",)) for i, text in enumerate(TEXTS)))


@pytest.fixture(scope="module")
def follow() -> Iterator[Any]:
    with imported("bench/follow.py") as module:
        yield module


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    built = tiny("qwen3_vl")
    return ARRCOCModel.wrap(built.model, built.processor, budget=9, relevance="guide").eval()


def way(follow: Any, model: ARRCOCModel, name: str) -> Any:
    made = follow.find_way(model, name, None, 5)
    made.open(model.session(IMAGE), SOURCE)
    return made


def cells(model: ARRCOCModel) -> int:
    return model.look(IMAGE, "?", mode="prune").total


@pytest.mark.parametrize("chat", [False, True], ids=["session", "chat"])
class TestAnswers:
    def test_stock_with_its_cache_is_stock(self, follow: Any, model: ARRCOCModel, chat: bool) -> None:
        stock, history = way(follow, model, "stock"), []
        for text in TEXTS:
            turns = list(history) if chat else []
            whole = model.session(IMAGE).ask(text, mode="full", history=turns, max_new_tokens=5).text
            assert stock.answer(text, turns) == whole
            history.append((text, whole))

    @each("name", ["visionzip@9", "fastv@9", "divprune@9"])
    def test_a_choice_once_made_is_kept(self, follow: Any, model: ARRCOCModel, chat: bool, name: str) -> None:
        kept, history = way(follow, model, name), []
        total = cells(model)
        layers = model.config.get_text_config().num_hidden_layers
        for text in TEXTS:
            history.append((text, kept.answer(text, list(history) if chat else [])))
            early = total if name.startswith("fastv") else 9
            assert kept.tokens == (early + 9 * (layers - 1)) / layers
            widths = [keys.shape[2] for keys, _ in kept.holds()]
            assert widths[0] - widths[-1] == early - 9  # the image's columns; all else is in every layer

    def test_everything_kept_is_stock(self, follow: Any, model: ARRCOCModel, chat: bool) -> None:
        total = cells(model)
        ways = [way(follow, model, name) for name in ("stock", f"fastv@{total}", f"divprune@{total}")]
        history: list[tuple[str, str]] = []
        for text in TEXTS:
            answers = {one.answer(text, list(history) if chat else []) for one in ways}
            assert len(answers) == 1
            history.append((text, answers.pop()))

    def test_ours_are_those_of_a_session(self, follow: Any, model: ARRCOCModel, chat: bool) -> None:
        ours, history = way(follow, model, "prune@9+keep2"), []
        session = model.session(IMAGE)
        for turn, text in enumerate(TEXTS):
            turns = list(history) if chat else []
            options: dict[str, Any] = {"mode": "prune", "budget": 9} if turn < 2 else {"mode": "full"}
            whole = session.ask(text, **options, history=turns, max_new_tokens=5)
            assert ours.answer(text, turns) == whole.text
            assert ours.tokens == whole.read
            history.append((text, whole.text))

    @each("name", ["prune@9", "prune@9+keep1", "stock", "visionzip@9", "fastv@9"])
    def test_what_is_timed_is_what_answers(
        self, follow: Any, model: ARRCOCModel, chat: bool, name: str
    ) -> None:
        answering, timed = way(follow, model, name), way(follow, model, name)
        words, history = model.processor.tokenizer, []
        with torch.no_grad():
            for text in TEXTS:
                turns = list(history) if chat else []
                answer = answering.answer(text, turns)
                logits = timed.first_token(answering.session.inputs(text, turns))
                first = words.decode([int(logits.argmax())], skip_special_tokens=True).strip()
                assert answer.startswith(first.replace("\ufffd", ""))
                if answer:
                    timed.absorb(torch.tensor(words(answer, add_special_tokens=False)["input_ids"]))
                history.append((text, answer))
        assert timed.tokens == answering.tokens
        assert timed.megabytes > 0


def test_unknown_ways_are_refused(follow: Any, model: ARRCOCModel) -> None:
    for name in ("nothing@9", "full@9", "prune", "downsample@9", "visionzip@9+keep1"):
        with pytest.raises(ValueError, match="is unknown: use stock, prune@64"):
            follow.find_way(model, name, None, 5)


def rows(**costs: list[float]) -> list[dict[str, Any]]:
    return [
        {"setting": "session", "way": name, "turn": turn + 1, "cost": cost}
        for name, values in costs.items()
        for turn, cost in enumerate(values)
    ]


class TestBreakEven:
    def test_by_hand(self, follow: Any) -> None:
        cheap, dear = [0.2] + [0.01] * 4, [1.2] + [0.01] * 4
        table = rows(stock=[1.0] + [0.05] * 4, ours=[0.2] * 5, cheap=cheap, dear=dear, slow=[2.0] * 5)
        table += rows(**{"ours+keep1": [0.2, 1.0, 0.05, 0.05, 0.05]})
        # 6 questions: 1.2 and 1.25; 7: 1.4 and 1.3
        assert follow.break_even(table, "session", "ours", "cost") == {"stock from": 7, "keep after": 5}
        assert follow.break_even(table, "session", "cheap", "cost") == {"stock from": None}
        assert follow.break_even(table, "session", "slow", "cost") == {"stock from": 1}
        assert follow.break_even(table, "session", "dear", "cost") == {"stock from": 1, "stock until": 5}

    @each("seed", range(20))
    def test_it_is_the_first_at_which_the_sum_is_less(self, follow: Any, seed: int) -> None:
        first, later, stock = np.random.default_rng(seed).uniform(0.05, 1, 3)
        stock *= later
        table = rows(stock=[1.0] + [stock] * 4, ours=[first] + [later] * 4)
        sums = (first + np.arange(5000) * later, 1.0 + np.arange(5000) * stock)
        cheaper = int(np.argmax(sums[0] > sums[1])) + 1
        assert follow.break_even(table, "session", "ours", "cost") == {"stock from": cheaper}


def test_retained_is_over_stock(follow: Any) -> None:
    stock, ours = np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    assert follow.retained(ours, stock)["retained"] == pytest.approx(1 / 3, abs=1e-4)
    assert follow.retained(ours, np.zeros((2, 2))) == {}


def test_times_of_another_result_are_taken_by_setting_way_and_turn(follow: Any) -> None:
    new = [
        {"setting": "session", "way": way, "turn": turn, "score": 0.5}
        for way in ("stock", "sparse@64")
        for turn in (1, 2)
    ]
    old = [{"setting": "session", "way": "sparse@64", "turn": 2, "score": 0.9, "ms": 3.0, "cost": 0.1}]
    merged = follow.with_times(new, old)
    assert merged[:3] == new[:3]
    assert merged[3] == new[3] | {"ms": 3.0, "cost": 0.1}


def test_rows_of_another_command_join_the_table(follow: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ours = [{"setting": "session", "way": "stock", "turn": 1, "score": 0.5, "ms": 3.0}]
    follow.show([*ours, {"setting": "server", "way": "plugin@64", "turn": 2, "score": 0.25}])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "plugin" in line] == [
        ["server", "plugin@64", "-", "25.0%", "-", "-", "-"]
    ]
