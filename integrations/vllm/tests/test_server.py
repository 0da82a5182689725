"""The plugin in a live server, as its documentation says: answers, counts, counters, traces, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from arr_coc.cli import main
from arr_coc.trace.trace import Trace
from conftest import FOLDER, OVERRIDES
from live import body, counter, data_url, server

DOCUMENT = Path(__file__).parents[3] / "docs" / "serving.md"
OPTIONS = ("--trust-request-mm-kwargs",)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the plugin and its routes."""
    log = tmp_path_factory.mktemp("server") / "log"
    with server(FOLDER, OVERRIDES, log, *OPTIONS, VLLM_PLUGINS="arr_coc") as address:
        yield address


def ask(url: str, question: str, *urls: str, **more: object) -> httpx.Response:
    return httpx.post(url + "/v1/chat/completions", json=body(question, *urls, **more), timeout=120)


def test_the_example_of_the_documentation_runs(url, pages) -> None:
    """Its first Python block, with the address, the model and the picture of this test."""
    blocks = re.findall(r"```python\n(.+?)```", DOCUMENT.read_text("utf-8"), re.S)
    (block,) = [block for block in blocks if "OpenAI(" in block]
    page = pages[0]
    for there, here in (
        ("http://localhost:8000", url),
        ("Qwen/Qwen3-VL-8B-Instruct", "m"),
        ("https://example.com/invoice.png", data_url(page.image)),
        ("What is the total?", page.questions[0].text),
    ):
        assert there in block
        block = block.replace(there, here)
    names: dict = {}
    exec(compile(block, "serving.md", "exec"), names)
    reply = names["reply"]
    assert reply.choices[0].message.content
    assert reply.usage.prompt_tokens_details.multimodal_tokens == {"image": 64}


def test_answers_are_those_of_transformers(url, wrapped, pages) -> None:
    for page in pages[1:4]:
        question = page.questions[0].text
        reply = ask(url, question, data_url(page.image)).json()
        answer = wrapped.session(page.image).ask(question, budget=64, max_new_tokens=8).text
        assert reply["choices"][0]["message"]["content"].strip() == answer.strip()


def test_a_request_has_a_budget_of_its_own(url, pages) -> None:
    for own, kept in (({"budget": 20}, 20), ({"budget": 0.25}, 64), ({"mode": "full"}, 256)):
        reply = ask(url, "What is it?", data_url(pages[0].image), mm_processor_kwargs={"arr_coc": own}).json()
        assert reply["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": kept}


def test_the_counters_count(url, pages) -> None:
    names = ("images", "cells_seen", "cells_encoded", "fallbacks", "images_without_question")
    before = [counter(url, f"arr_coc_{name}_total") for name in names]
    seconds = counter(url, "arr_coc_selection_seconds_total")
    picture = data_url(pages[5].image)  # of 16 x 16 cells
    for _ in range(2):  # the second is cached
        assert ask(url, "Where does it say so?", picture).status_code == 200
    after = [counter(url, f"arr_coc_{name}_total") for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 256, 64, 0, 0]
    assert counter(url, "arr_coc_selection_seconds_total") > seconds


def test_a_trace_says_what_would_be_encoded(url, wrapped, pages) -> None:
    page = pages[6]
    question = page.questions[0].text
    reply = httpx.post(url + "/arr_coc/trace", json=body(question, data_url(page.image)), timeout=60)
    assert reply.status_code == 200, reply.text
    (image,) = reply.json()["images"]
    assert (image["kept"], image["question"]) == (64, question)
    expected = wrapped.session(page.image).plan(question, budget=64).allocations[0]
    assert image["cells"] == expected.keep.tolist()
    assert image["grid"] == list(expected.grid[1:])
    assert image["allocation"]["keep"] == image["cells"]


def test_a_trace_opens_in_the_viewer(url, pages, tmp_path, monkeypatch) -> None:
    question, pictures = pages[8].questions[0].text, [data_url(pages[i].image) for i in (7, 8)]
    reply = httpx.post(url + "/arr_coc/trace/2", json=body(question, *pictures), timeout=60)
    assert reply.status_code == 200, reply.text
    monkeypatch.chdir(tmp_path)
    Path("trace.safetensors").write_bytes(reply.content)
    trace = Trace.load("trace.safetensors")
    assert (trace.question, trace.kept) == (question, 64)
    assert trace.answer == ask(url, question, *pictures).json()["choices"][0]["message"]["content"]
    assert trace.guidance is not None
    assert main(["view", "trace.safetensors", "--out", "page.html"]) in (0, None)
    assert json.dumps(question)[1:-1] in Path("page.html").read_text("utf-8")


def test_a_trace_without_a_choice_is_refused(url, pages) -> None:
    picture = data_url(pages[0].image)
    full = {"mm_processor_kwargs": {"arr_coc": {"mode": "full"}}}
    for number, request, reason in (
        (2, body("What?", picture), "image 2 of a request with 1"),
        (1, body("What?"), "image 1 of a request with 0"),
        (1, body("What?", picture, **full), "nothing was chosen"),
        (1, body("What?", "data:image/png;base64,AAAA"), "Failed to load image"),
    ):
        reply = httpx.post(f"{url}/arr_coc/trace/{number}", json=request, timeout=60)
        assert reply.status_code == 400, reply.text
        assert reason in reply.text


WRONG = [
    ({"budget": -3}, "-3", "use a count"),
    ({"budget": 0}, "0", "use a count"),
    ({"budget": 1.5}, "1.5", "use a count"),
    ({"budget": "many"}, "'many'", "use a count"),
    ({"budget": None}, "None", "use a count"),
    ({"budget": [3]}, "[3]", "use a count"),
    ({"mode": "saccade"}, "'saccade'", "use 'sparse' or 'full'"),
    ({"follow": 3}, "3", "use 'auto', 'first' or 'last'"),
    ({"colour": 1}, "'colour'", "use budget, follow, keep_image_after, mode"),
    ({"allocator": "/etc"}, "'allocator'", "use budget, follow, keep_image_after, mode"),
    (["budget"], "['budget']", "give an object"),
    ("64", "'64'", "give an object"),
]


@pytest.mark.parametrize(("own", "value", "remedy"), WRONG, ids=lambda one: str(one))
def test_a_wrong_argument_is_refused_in_one_line(url, pages, own, value, remedy) -> None:
    reply = ask(url, "What is it?", data_url(pages[0].image), mm_processor_kwargs={"arr_coc": own})
    assert reply.status_code == 400, reply.text
    message = reply.json()["error"]["message"]
    assert "arr_coc" in message
    assert value in message
    assert remedy in message
    assert "\n" not in message


def test_a_video_is_refused_by_name(url) -> None:
    content = [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}]
    asked = body("What?") | {"messages": [{"role": "user", "content": content}]}
    reply = httpx.post(url + "/v1/chat/completions", json=asked, timeout=60)
    assert reply.status_code == 400
    assert "video" in reply.json()["error"]["message"]


def test_an_image_that_is_named_alone_is_refused(url) -> None:
    content = [{"type": "image_url", "image_url": None, "uuid": "a"}, {"type": "text", "text": "What?"}]
    asked = body("What?") | {"messages": [{"role": "user", "content": content}]}
    reply = httpx.post(url + "/v1/chat/completions", json=asked, timeout=60)
    assert reply.status_code == 400, reply.text
