"""The benchmarks of bench/: ways that keep a cache answer as from the whole prompt, a server's answers are
counted, several runs become one range, and memory is that of one question. No server is started."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch

from arr_coc.model import ARRCOCModel
from arr_coc_lab.evaluate.questions import ImageQueries, Query
from arr_coc_lab.evaluate.speed import Arrival
from each import each
from scripts import ROOT, imported, need
from tiny import picture, tiny

need("bench/follow.py")

IMAGE = picture(1, (64, 56))
TEXTS = ("What is the number?", "What is the colour?", "Where?", "Is it?", "And the ball?")
SOURCE = ImageQueries(IMAGE, "a", tuple(Query(str(i), text, (f"true {i}",)) for i, text in enumerate(TEXTS)))


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


@pytest.mark.parametrize("chat", [False, True], ids=["session", "chat"])
class TestFollow:
    def test_all_kept_is_stock_and_ours_are_those_of_a_session(
        self, follow: Any, model: ARRCOCModel, chat: bool
    ) -> None:
        total = model.look(IMAGE, "?", mode="prune").total
        ways = [way(follow, model, name) for name in ("stock", f"fastv@{total}", f"divprune@{total}")]
        ours, session = way(follow, model, "prune@9+keep2"), model.session(IMAGE)
        history: list[tuple[str, str]] = []
        for turn, text in enumerate(TEXTS):
            turns = list(history) if chat else []
            whole = session.ask(text, mode="full", history=turns, max_new_tokens=5)
            assert {one.answer(text, turns) for one in ways} == {whole.text}
            options: dict[str, Any] = {"mode": "prune", "budget": 9} if turn < 2 else {"mode": "full"}
            own = session.ask(text, **options, history=turns, max_new_tokens=5)
            assert (ours.answer(text, turns), ours.tokens) == (own.text, own.read)
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


def rows(**costs: list[float]) -> list[dict[str, Any]]:
    return [
        {"setting": "session", "way": name, "turn": turn + 1, "cost": cost}
        for name, values in costs.items()
        for turn, cost in enumerate(values)
    ]


def test_from_which_question_on_stock_is_cheaper(follow: Any) -> None:
    cheap, dear = [0.2] + [0.01] * 4, [1.2] + [0.01] * 4
    table = rows(stock=[1.0] + [0.05] * 4, ours=[0.2] * 5, cheap=cheap, dear=dear, slow=[2.0] * 5)
    table += rows(**{"ours+keep1": [0.2, 1.0, 0.05, 0.05, 0.05]})
    # 6 questions: 1.2 and 1.25; 7: 1.4 and 1.3
    assert follow.break_even(table, "session", "ours", "cost") == {"stock from": 7, "keep after": 5}
    assert follow.break_even(table, "session", "cheap", "cost") == {"stock from": None}
    assert follow.break_even(table, "session", "slow", "cost") == {"stock from": 1}
    assert follow.break_even(table, "session", "dear", "cost") == {"stock from": 1, "stock until": 5}


# ---- a server


ANSWERS = ("true 0", "", "true 2", "wrong", "true 4")
ANEW = (True, False, True, False, False)
"""At which questions the server of these tests reads the image anew."""


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    with imported("bench/follow_served.py") as module:
        yield module


class Answering:
    """A server that says what it was told to, and counts images as the plugin does."""

    def __init__(self, fallbacks: int = 0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.images, self.fallbacks = 7, fallbacks

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            page = (
                f"arr_coc_images_total {self.images}.0\narr_coc_selection_seconds_total {self.images / 4}\n"
                f"arr_coc_images_created 1.7e9\narr_coc_fallbacks_total {self.fallbacks}.0\n"
            )
            return httpx.Response(200, text=page)
        turn = len(self.bodies)
        self.bodies.append(json.loads(request.content))
        self.images += ANEW[turn]
        details = {"cached_tokens": 0 if ANEW[turn] else 64, "multimodal_tokens": {"image": 48}}
        usage = {"prompt_tokens": 80, "prompt_tokens_details": details}
        pieces = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        pieces += [{"choices": [{"delta": {"content": letter}}]} for letter in ANSWERS[turn]]
        pieces += [{"choices": [], "usage": usage}]
        lines = [f"data: {json.dumps(piece)}\n\n" for piece in pieces] + ["data: [DONE]\n\n"]
        return httpx.Response(200, text="".join(lines))


def talk(served: Any, true: bool, answering: Answering) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answering)) as client:
            return await served.converse(client, "http://m", psutil.Process(), served.addressed(SOURCE), true)

    return asyncio.run(run())


def test_a_conversation_with_a_server(served: Any) -> None:
    answering = Answering()
    rows = talk(served, False, answering)
    assert [row["text"] for row in rows] == list(ANSWERS)
    assert [row["score"] for row in rows] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert [row["chosen"] for row in rows] == [float(anew) for anew in ANEW]
    assert [row["choosing_ms"] for row in rows] == [250.0 * anew for anew in ANEW]
    assert [row["cached"] for row in rows] == [0 if anew else 64 for anew in ANEW]
    said = [one["content"] for one in answering.bodies[4]["messages"] if one["role"] == "assistant"]
    assert said == list(ANSWERS[:4])  # the server's own answers are the history
    with pytest.raises(SystemExit, match="choosing failed"):
        talk(served, False, Answering(fallbacks=1))


def page(ms: list[float], scores: list[float], chosen: list[int], tokens: int) -> list[dict[str, Any]]:
    return [
        {"text": "", "score": score, "ms": one, "tokens": tokens, "prompt": 2 * tokens, "cached": tokens / 2}
        | {"chosen": new, "choosing_ms": 10.0, "cpu_s": 0.5}
        for one, score, new in zip(ms, scores, chosen, strict=True)
    ]


RESULTS = {
    "stock": [
        page([1000, 50, 50, 50, 50], [1, 1, 1, 1, 0], [0] * 5, 1024),
        page([2000, 100, 50, 50, 50], [1, 1, 0, 0, 0], [0] * 5, 1024),
        page([1000, 100, 50, 50, 50], [1, 0, 0, 0, 0], [0] * 5, 1024),
    ],
    "sparse@64": [
        page([250, 200, 60, 60, 60], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0], 64),
        page([200, 100, 60, 60, 60], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], 64),
        page([200, 60, 60, 60, 60], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], 64),
    ],
}


def test_rows_of_a_server_by_hand(served: Any) -> None:
    rows = {(row["way"], row["turn"]): row for row in served.rows_of(RESULTS, True)}
    assert len(rows) == 10
    first, second = rows["sparse@64", 1], rows["sparse@64", 2]
    assert first["setting"] == "server"
    assert (first["pages"], first["score"], first["retained"]) == (3, 0.666667, 0.6667)
    assert (first["ms"], first["ratio"], first["cost"]) == (200, 0.2, 0.2)  # of 0.25, 0.1, 0.2
    # each beside stock's of the same page: 4, 1, 0.6 at this turn; 0.2, 0.05, 0.06 of question 1
    assert (second["ms"], second["ratio"], second["cost"]) == (100, 1.0, 0.06)
    assert (second["tokens"], second["cached"], second["changed"]) == (64, 0.25, 0.666667)
    assert "changed" not in first
    assert "changed" not in rows["stock", 2]
    assert (second["cpu_s"], second["cpu cost"]) == (0.5, 1.0)
    assert rows["stock", 1]["cost"] == rows["stock", 2]["ratio"] == 1.0


# ---- runs become one range


SCRIPT = runpy.run_path(str(ROOT / "bench" / "prefill.py"))
merged, memory_row, one_memory = (SCRIPT[name] for name in ("merged", "memory_row", "one_memory"))
CPU = torch.device("cpu")
linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="this system doesn't tell the peak of resident memory"
)


def result(speed: float, mode: str = "sparse@64", **facts: Any) -> dict[str, Any]:
    same = {"shape": "2B", "image": [1024, 1024], "batch": 1, "dtype": "bfloat16"}
    machine = {"device": "a CPU", "cores": 2, "threads": 2, "versions": {"torch": "2"}, "seconds": 5}
    row = {
        "mode": mode,
        "ms": 100 / speed,
        "speed": speed,
        "of_limit": None,
        "select_share": 0.1,
        "tflop": 2.0,
    }
    return {
        "circumstances": same | machine | facts,
        "rows": [row | {"stages": {"encode": speed}, "select": speed, "rounds": [speed, 2 * speed]}],
    }


def test_a_figure_is_the_range_over_runs() -> None:
    made = merged([result(4.0), result(2.0), result(10.0, cores=4)])
    (row,) = made["rows"]
    assert (row["speed"], row["range"]["speed"], row["runs"]) == (4.0, [2.0, 10.0], 3)
    assert (row["ms"], row["range"]["ms"]) == (25.0, [10.0, 50.0])
    assert "of_limit" not in row["range"]  # not measured in every run
    assert (row["stages"], row["select"], row["tflop"]) == ({"encode": 4.0}, 4.0, 2.0)
    assert row["rounds"] == [4.0, 8.0, 2.0, 4.0, 10.0, 20.0]
    facts = made["circumstances"]
    assert (facts["runs"], facts["seconds"], facts["shape"]) == (3, 15, "2B")
    assert [one["cores"] for one in facts["machines"]] == [2, 4]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"batch": 4}, "runs differ in batch: 1 and 4"),
        ({"dtype": "float32"}, "dtype"),
        ({"runs": 3}, "a range"),
    ],
)
def test_what_is_no_one_result_is_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merged([result(1.0), result(1.0, **facts)])
    with pytest.raises(ValueError, match="no run to merge"):
        merged([])


# ---- memory


def held(mebibytes: int) -> torch.Tensor:
    """Memory that is touched, in a block so large that the system has it back as soon as it is freed."""
    return torch.ones(mebibytes, 2**18)


@linux
def test_memory_is_that_of_the_question_beyond_what_was_held() -> None:
    kept = [held(64)]
    held(400)  # freed: a peak of before doesn't count

    def start() -> dict[str, Any]:
        return {"pixels": held(80)}

    def way(inputs: dict[str, Any], _: Any) -> Arrival:
        inputs["states"] = held(120)
        assert len(inputs["pixels"]) == 80  # both are held at once
        kept.append(held(48))
        return Arrival(torch.zeros(1, 2), 64.0)

    row = memory_row("sparse@64", way, start, CPU)
    assert (row["way"], row["tokens"]) == ("sparse@64", 64.0)
    assert row["peak"] == pytest.approx(80 + 120 + 48, abs=10)
    assert row["stays"] == pytest.approx(48, abs=10)
    again = memory_row("sparse@64", way, start, CPU)
    assert again["loaded"] - row["loaded"] == pytest.approx(48, abs=10)
    assert again["peak"] == pytest.approx(80 + 120 + 48, abs=10)


def memory_of(way: str, peak: float, **facts: Any) -> dict[str, Any]:
    row = {"way": way, "tokens": 9.0, "loaded": 100.0, "peak": peak, "stays": 1.0}
    return {"circumstances": {"device": "a CPU", "batch": 1} | facts, "rows": [row]}


def test_ways_are_compared_with_stock() -> None:
    made = one_memory([memory_of("sparse@64", 50.0), memory_of("stock", 200.0), memory_of("prune@64", 160.0)])
    assert [(row["way"], row["fewer"]) for row in made["rows"]] == [
        ("sparse@64", 4.0),
        ("stock", 1.0),
        ("prune@64", 1.25),
    ]
    assert made["circumstances"] == {"device": "a CPU", "batch": 1}
    assert one_memory([memory_of("sparse@64", 50.0)])["rows"][0]["fewer"] is None


@pytest.mark.parametrize("facts", [{"batch": 4}, {"device": "another CPU"}])
def test_ways_of_other_machines_or_inputs_are_not_compared(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"ways differ in {next(iter(facts))}: .* remove the files"):
        one_memory([memory_of("stock", 50.0), memory_of("sparse@64", 20.0, **facts)])


def test_what_a_chat_changes_of_itself_is_counted() -> None:
    with imported("bench/chat.py") as chat:
        bodies = [
            json.dumps({"model": "m", "messages": chat.messages_of(turns)}).encode()
            for turns in (
                [chat.Turn("a", "AA", chat.Asked("?", []), None)],
                [
                    chat.Turn("a", "AA", chat.Asked("?", []), None),
                    chat.Turn("b", "BB", chat.Asked("!", []), None),
                ],
            )
        ]
        assert chat.changed(*bodies) == 0
        end = b'AA"}}]}'
        assert bodies[0].endswith(end + b"]}")
        assert chat.changed(bodies[0], bodies[1].replace(b"AA", b"BA")) == len(end)
        assert chat.changed(bodies[1], bodies[0]) == len(bodies[1]) - len(bodies[0])
