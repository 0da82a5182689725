"""Follow-up questions to a server: what is asked and made of the answers; no server is started."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest
from PIL import Image

from arr_coc_lab.evaluate.questions import ImageQueries, Query
from scripts import imported, need
from tiny import picture

need("bench/follow_served.py")

TEXTS = ("What is the number?", "What is the colour?", "Where?", "Is it?", "And the ball?")
SOURCE = ImageQueries(
    picture(1, (64, 56)), "a", tuple(Query(str(i), text, (f"true {i}",)) for i, text in enumerate(TEXTS))
)
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


class TestAsking:
    def test_the_servers_own_answers_are_the_history(self, served: Any) -> None:
        answering = Answering()
        rows = talk(served, False, answering)
        assert [row["text"] for row in rows] == list(ANSWERS)
        assert [row["score"] for row in rows] == [1.0, 0.0, 1.0, 0.0, 1.0]
        *_, last = answering.bodies
        first, *others = last["messages"]
        assert [part["type"] for part in first["content"]] == ["image_url", "text"]
        assert first["content"][1]["text"] == TEXTS[0]
        data = base64.b64decode(first["content"][0]["image_url"]["url"].partition("base64,")[2])
        assert Image.open(io.BytesIO(data)).tobytes() == SOURCE.image.tobytes()
        expected = [
            one
            for answer, text in zip(ANSWERS, TEXTS[1:], strict=False)
            for one in ({"role": "assistant", "content": answer}, {"role": "user", "content": text})
        ]
        assert others == expected
        assert all("mm_processor_kwargs" not in body for body in answering.bodies)

    def test_what_the_server_counts(self, served: Any) -> None:
        rows = talk(served, False, Answering())
        assert [row["chosen"] for row in rows] == [float(anew) for anew in ANEW]
        assert [row["choosing_ms"] for row in rows] == [250.0 * anew for anew in ANEW]
        assert {row["tokens"] for row in rows} == {48}
        assert [row["cached"] for row in rows] == [0 if anew else 64 for anew in ANEW]

    def test_true_answers_where_weights_are_random(self, served: Any) -> None:
        answering = Answering()
        talk(served, True, answering)
        assert {body["max_tokens"] for body in answering.bodies} == {1}
        said = [one["content"] for one in answering.bodies[4]["messages"] if one["role"] == "assistant"]
        assert said == ["true 0", "true 1", "true 2", "true 3"]

    def test_a_choice_that_failed_is_no_time(self, served: Any) -> None:
        with pytest.raises(SystemExit, match="choosing failed"):
            talk(served, False, Answering(fallbacks=1))


def test_ways(served: Any) -> None:
    assert served.find_way("stock").settings is None
    assert served.find_way("sparse@64") == ("sparse@64", {"budget": 64, "follow": "auto"})
    assert served.find_way("sparse@273 last") == ("sparse@273 last", {"budget": 273, "follow": "last"})
    kept = {"budget": 64, "follow": "auto", "keep_image_after": 2}
    assert served.find_way("sparse@64+keep2") == ("sparse@64+keep2", kept)
    for name in ("prune@64", "sparse@64 auto", "sparse", "sparse@64 first+keep1", "sparse@64 never"):
        with pytest.raises(ValueError, match="is unknown: use stock, sparse@64"):
            served.find_way(name)


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


class TestRows:
    def test_by_hand(self, served: Any) -> None:
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

    def test_questions_2_to_5(self, served: Any) -> None:
        lines = served.later(RESULTS)
        assert lines["server stock"] == {"score": 0.3333, "retained": 1.0, "retained_range": [1.0, 1.0]}
        assert (lines["server sparse@64"]["score"], lines["server sparse@64"]["retained"]) == (0.1667, 0.5)

    def test_the_file(self, served: Any, capsys: pytest.CaptureFixture[str]) -> None:
        whole = served.result(RESULTS, "bundled", 1024, 0, 12.3, 0.25)
        assert whole["circumstances"]["pages"] == whole["circumstances"]["rounds"] == 3
        # question 1 costs 0.2, the later ones (0.06 + 0.06 * 3) / 4; stock's 0.05 each: ahead for 80 of 0.01
        (line,) = [line["time"] for line in whole["break-even"] if line["way"] == "sparse@64"]
        assert line == {"stock from": served_from(whole["rows"])}
        served.show(json.loads(json.dumps(whole))["rows"])
        shown = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["server", "sparse@64", "-", "67%", "0%", "0%", "0%"] in shown

    def test_random_weights_have_no_scores(self, served: Any) -> None:
        whole = served.result(RESULTS, "mid", 1024, 0, 12.3, 0.0)
        assert (whole["circumstances"]["pages"], whole["questions 2 to 5"]) == (0, {})
        assert not any("score" in row or "retained" in row for row in whole["rows"])


def test_what_other_programs_took(served: Any) -> None:
    cores = os.cpu_count() or 1
    assert served.others(60.0, 20.0, 40.0) == pytest.approx(1 / cores)
    assert served.others(20.0, 20.5, 40.0) == 0  # clocks of two kinds
    before, used = served.machine_seconds(), time.process_time()
    while time.process_time() - used < 0.1:
        sum(range(1000))
    assert served.machine_seconds() - before > 0.05


def served_from(rows: list[dict[str, Any]]) -> int:
    """The first number of questions at which stock's sum is less, counted up."""
    costs = {(row["way"], row["turn"]): row["cost"] for row in rows}
    mean = {way: sum(costs[way, turn] for turn in range(2, 6)) / 4 for way in ("stock", "sparse@64")}
    count = 1
    while (
        costs["stock", 1] + (count - 1) * mean["stock"]
        >= costs["sparse@64", 1] + (count - 1) * mean["sparse@64"]
    ):
        count += 1
    return count
