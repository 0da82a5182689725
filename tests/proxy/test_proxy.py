"""The proxy between clients and a stand-in for their servers: what is changed, and that nothing else is."""

from __future__ import annotations

import base64
import gzip
import io
import json
import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from arr_coc.proxy import packing
from arr_coc.proxy.packing import Packer
from arr_coc.proxy.server import MAX_PICTURES, Proxy, ProxySettings, read_trust, read_upstream
from chat_servers import CLIENT, KEY, URL, StandIn, Started, encoded, listening

Start = Callable[..., Started]


def chat_body(data: str, *questions: str, **more: Any) -> dict[str, Any]:
    """A conversation about one picture."""
    first, *later = questions
    content = [{"type": "text", "text": first}, {"type": "image_url", "image_url": {"url": URL + data}}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": content}]
    for question in later:
        turns += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": question}]
    return {"model": "qwen3-vl", "messages": turns} | more


def ask(address: str, body: Any, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return CLIENT.post(address + path, json=body, headers=names, timeout=30)


def pictures_of(body: Any) -> list[str]:
    parts = [
        part for turn in body["messages"] if isinstance(turn["content"], list) for part in turn["content"]
    ]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def reasons(address: str) -> list[str]:
    """What became of the pictures of the last request."""
    requests = CLIENT.get(address + "/arr_coc/requests.json").json()["requests"]
    return [picture["reason"] for picture in requests[0]["pictures"]]


class TestPacking:
    def test_openai(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        answer = ask(address, chat_body(screenshot, "What is red?", temperature=0.5))
        assert answer.json()["choices"][0]["message"]["content"] == "On the 30th."
        assert answer.headers["x-arr-coc"] == "packed 1 of 1 pictures, 400 of 1000 tokens"
        body = stand_in.last()
        texts = [part.get("text") for part in body["messages"][0]["content"]]
        assert texts == ["What is red?", "An overview.", None, "The red part.", None]
        assert all(url.startswith("data:image/png;base64,") for url in pictures_of(body))
        assert base64.b64decode(pictures_of(body)[0][len(URL) :]).startswith(b"\x89PNG")
        assert (body["model"], body["temperature"]) == ("qwen3-vl", 0.5)

    def test_anthropic(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        source = {"type": "base64", "media_type": "image/png", "data": screenshot}
        content = [{"type": "image", "source": source}, {"type": "text", "text": "What is green?"}]
        body = {"model": "claude-opus-5", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            assert ask(address, body, path).status_code == 200
            kinds = [part["type"] for part in stand_in.last()["messages"][0]["content"]]
            assert kinds == ["text", "image", "text", "image", "text"]

    def test_ollama(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        turn = {"role": "user", "content": "What is red?", "images": [screenshot]}
        answer = ask(address, {"model": "qwen3-vl", "messages": [turn], "stream": False}, "/api/chat")
        assert answer.json()["done"]
        sent = stand_in.last()["messages"][0]
        assert sent["content"] == "An overview.\nThe red part.\nWhat is red?"
        assert len(sent["images"]) == 2
        ask(address, {"model": "m", "prompt": "What is red?", "images": [screenshot]}, "/api/generate")
        assert stand_in.last()["prompt"].startswith("An overview.\nThe red part.\n")

    def test_responses(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        content = [
            {"type": "input_image", "image_url": URL + screenshot},
            {"type": "input_text", "text": "What is red?"},
        ]
        body = {"model": "gpt-5", "input": [{"role": "user", "content": content}]}
        assert ask(address, body, "/v1/responses", x_arr_coc_tokens="900").status_code == 200
        kinds = [part["type"] for part in stand_in.last()["input"][0]["content"]]
        assert kinds == ["input_text", "input_image", "input_text", "input_image", "input_text"]

    def test_several_pictures_each_by_itself(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        body = chat_body(screenshot, "What is red?")
        small, other = encoded(64, 48), encoded(1024, 768)
        for data in (small, other):
            body["messages"][0]["content"].append({"type": "image_url", "image_url": {"url": URL + data}})
        ask(address, body)
        sent = pictures_of(stand_in.last())
        assert len(sent) == 5
        assert sent[2] == URL + small  # costs no more than what is allowed: as it came
        assert reasons(address) == ["packed", "small", "packed"]
        captions = [part["text"] for part in stand_in.last()["messages"][0]["content"] if "text" in part]
        assert captions[-4:] == [
            "Picture 1: an overview.",
            "Picture 1: the red part.",
            "Picture 3: an overview.",
            "Picture 3: the red part.",
        ]


class TestDial:
    def test_off(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        content = json.dumps(chat_body(screenshot, "What is red?"), indent=3).encode()
        headers = {"x-arr-coc": "off"}
        answer = CLIENT.post(address + "/v1/chat/completions", content=content, headers=headers)
        assert stand_in.bodies[-1] == content
        assert "x-arr-coc" not in answer.headers
        assert not any(name.startswith(b"x-arr-coc") for name, _ in stand_in.headers[-1])

    def test_tokens_and_layout(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start(tokens=900)
        body = chat_body(screenshot, "What is red?")
        assert "900 of 1000" in ask(address, body).headers["x-arr-coc"]
        assert "128 of 1000" in ask(address, body, x_arr_coc_tokens="128").headers["x-arr-coc"]
        ask(address, body, x_arr_coc_tokens="5000")
        assert pictures_of(stand_in.last()) == [URL + screenshot]
        ask(address, body, x_arr_coc_tokens="5000", x_arr_coc_layout="mask")
        assert pictures_of(stand_in.last()) != [URL + screenshot]

    @pytest.mark.parametrize(
        ("headers", "word"),
        [
            ({"x_arr_coc": "maybe"}, "on or off"),
            ({"x_arr_coc_tokens": "many"}, "give 1 to"),
            ({"x_arr_coc_tokens": "0"}, "give 1 to"),
            ({"x_arr_coc_tokens": "9" * 500}, "give 1 to"),
            ({"x_arr_coc_layout": "best"}, "use one of"),
        ],
    )
    def test_a_bad_value_is_refused_in_the_words_of_the_api(
        self, start: Start, screenshot: str, headers: dict[str, str], word: str
    ) -> None:
        address, stand_in, _ = start()
        body = chat_body(screenshot, "What is red?")
        errors = {
            "/v1/chat/completions": lambda answer: answer["error"]["message"],
            "/v1/messages": lambda answer: answer["error"]["message"] if answer["type"] == "error" else "",
            "/api/chat": lambda answer: answer["error"],
        }
        for path, message in errors.items():
            answer = ask(address, body, path, **headers)
            assert answer.status_code == 400
            assert word in message(answer.json())
        assert not stand_in.bodies

    def test_a_rule_that_is_named(self, start: Start, screenshot: str) -> None:
        address, _, _ = start(rule="claude")
        ask(address, chat_body(screenshot, "What is red?"))
        assert CLIENT.get(address + "/arr_coc/requests.json").json()["requests"][0]["rule"] == "claude"


class TestWhole:
    """Where nothing can be chosen the request goes on as it came, to the last byte, and is counted."""

    @pytest.mark.parametrize(
        ("questions", "reason"),
        [
            (("What is purple?",), "unsure"),
            (("What is purple?", "What is red?"), "unsure"),  # whole at first sight, and for ever
            (("Does it fail?",), "failed"),
            (("Read the page aloud.",), "transcription"),
            ((" ",), "no_question"),
            ((" ", "What is red?"), "no_question"),
        ],
    )
    def test_by_question(
        self, start: Start, screenshot: str, questions: tuple[str, ...], reason: str
    ) -> None:
        address, stand_in, _ = start()
        content = json.dumps(chat_body(screenshot, *questions), indent=1).encode()
        CLIENT.post(address + "/v1/chat/completions", content=content, timeout=30)
        assert stand_in.bodies[-1] == content
        assert reasons(address) == [reason]
        counted = f'arr_coc_whole_pictures_total{{reason="{reason}"}} 1.0'
        assert counted in CLIENT.get(address + "/arr_coc/metrics").text

    def test_an_overview_is_no_place_to_be_sure_of(self, start: Start, screenshot: str) -> None:
        address, _, _ = start()
        ask(address, chat_body(screenshot, "Describe the image, purple or not."))
        assert reasons(address) == ["packed"]

    def test_a_rule_by_which_nothing_is_cheaper(self, start: Start, screenshot: str) -> None:
        address, _, _ = start(rule="gemini")
        ask(address, chat_body(screenshot, "What is red?"))
        assert reasons(address) == ["dear"]

    def test_what_is_no_picture(self, start: Start, screenshot: str, monkeypatch: pytest.MonkeyPatch) -> None:
        address, stand_in, _ = start()
        for data in (
            "AAAA",
            "%%%%",
            screenshot[: len(screenshot) // 2],
            "AAA",
            base64.b64encode(b"%PDF-").decode(),
        ):
            body = chat_body(data, "What is red?")
            assert ask(address, body).status_code == 200
            left_out = stand_in.last()["messages"][0]["content"]
            assert {"type": "text", "text": "[picture 1 was left out: it can't be opened]"} in left_out
            assert pictures_of(stand_in.last()) == []
            assert reasons(address) == ["unreadable"]
        monkeypatch.setattr(packing, "MAX_PIXELS", 1000)
        ask(address, chat_body(screenshot, "What is red?"))
        assert reasons(address) == ["too_large"]
        thin = io.BytesIO()
        Image.new("1", (900, 1)).save(thin, "PNG")  # grows to 4,500 px
        ask(address, chat_body(base64.b64encode(thin.getvalue()).decode(), "What is red?"))
        assert reasons(address) == ["too_large"]

    def test_lines_count_the_pictures_that_came(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        body = chat_body(screenshot, "What is red?")
        broken = chat_body("AAAA", "")["messages"][0]["content"][1]
        body["messages"][0]["content"].append(broken)
        ask(address, body)
        assert len(pictures_of(stand_in.last())) > 1  # in place of the first
        left_out = stand_in.last()["messages"][0]["content"][-1]["text"]
        assert left_out == "[picture 2 was left out: it can't be opened]"

    def test_many_pictures(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        stand_in.most_pictures = 9 * MAX_PICTURES
        body = chat_body(screenshot, "What is red?")
        body["messages"][0]["content"] += body["messages"][0]["content"][1:] * MAX_PICTURES
        ask(address, body)
        counts = CLIENT.get(address + "/arr_coc/metrics").text
        assert 'arr_coc_whole_pictures_total{reason="many_pictures"} 1.0' in counts
        assert f'arr_coc_pictures_total{{outcome="packed"}} {float(MAX_PICTURES)}' in counts
        assert pictures_of(stand_in.last())[-1] == URL + screenshot

    def test_slow(self, start: Start, screenshot: str, monkeypatch: pytest.MonkeyPatch) -> None:
        address, stand_in, _ = start(seconds=0.2)
        waiting = threading.Event()
        monkeypatch.setattr(packing, "pack_for", lambda *_, **__: waiting.wait(10))
        begun = time.monotonic()
        ask(address, chat_body(screenshot, "What is red?"))
        waiting.set()
        assert time.monotonic() - begun < 5
        assert reasons(address) == ["slow"]
        assert pictures_of(stand_in.last()) == [URL + screenshot]

    def test_by_address_it_is_never_fetched(self, start: Start) -> None:
        address, stand_in, _ = start()
        body = chat_body("", "What is red?")
        body["messages"][0]["content"][1]["image_url"]["url"] = f"{address}/v1/secret.png"
        ask(address, body)
        assert stand_in.last() == body
        assert stand_in.targets == [b"/v1/chat/completions"]


class TestPassing:
    """Everything else passes byte for byte."""

    def test_other_paths(self, start: Start) -> None:
        address, stand_in, _ = start()
        content = bytes(range(256)) * 5000
        target = "/v1/files/a%2Fb//c/../d?x=%20y&x=1&key="
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as client:
            head = f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nX-Own: a\r\nx-own: b\r\n"
            head += (
                f"Content-Length: {len(content)}\r\nTE: trailers\r\nConnection: close, x-hop\r\nX-Hop: 1\r\n"
            )
            client.sendall(head.encode() + f"Authorization: Bearer {KEY}\r\n\r\n".encode() + content)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert stand_in.targets == [target.encode()]
        assert stand_in.bodies == [content]
        sent = stand_in.headers[0]
        assert [value for name, value in sent if name == b"x-own"] == [b"a", b"b"]
        assert (b"authorization", f"Bearer {KEY}".encode()) in sent
        assert not {b"te", b"x-hop"} & {name for name, _ in sent}
        assert sum(name == b"host" for name, _ in sent) == 1
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 418 ")
        assert body == b"\x1f\x8b not really gzip \x00\xff"
        for line in (b"x-own: 1", b"content-encoding: gzip", b"content-type: application/x-strange"):
            assert line in head
        assert b"x-private" not in head
        assert head.count(b"date:") == 1

    def test_headers_are_no_more_than_were_sent(self, start: Start) -> None:
        address, stand_in, _ = start()
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as client:
            client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            while client.recv(65536):
                pass
        assert {name for name, _ in stand_in.headers[0]} == {b"host"}

    @pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS"])
    def test_methods(self, start: Start, method: str) -> None:
        address, _, _ = start()
        answer = CLIENT.request(method, address + "/v1/models")
        assert answer.status_code == (405 if method == "OPTIONS" else 418)

    def test_bodies_without_pictures(self, start: Start) -> None:
        address, stand_in, _ = start()
        for content in (
            b'{"messages": [ {"role":"user","content":"Hello"} ], "x": 1.0e5, "x": NaN}',
            b'{"model": "m", "messages": [{"role": "user", "content": "\\u0069mage?"}]}',
            b"not json \xff image",
            b"",
            b"[" * 100_000 + b'"image"',
            b'"image"',
            b'{"image": ' + b"9" * 5000 + b"}",
            b'{"image": [' + b"[]," * 600_000 + b"1]}",
            gzip.compress(b'{"messages": []}'),
        ):
            CLIENT.post(address + "/v1/chat/completions", content=content, timeout=30)
            assert stand_in.bodies[-1] == content

    def test_a_packed_body(self, start: Start, screenshot: str) -> None:
        """One that came compressed is passed over, since it would have to be packed anew."""
        address, stand_in, _ = start()
        content = gzip.compress(json.dumps(chat_body(screenshot, "What is red?")).encode())
        headers = {"content-encoding": "gzip"}
        CLIENT.post(address + "/v1/chat/completions", content=content, headers=headers)
        assert stand_in.bodies[-1] == content

    def test_a_large_body(self, start: Start, monkeypatch: pytest.MonkeyPatch, screenshot: str) -> None:
        address, stand_in, _ = start()
        monkeypatch.setattr("arr_coc.proxy.bodies.MAX_BODY", 100_000)
        content = json.dumps(chat_body(screenshot, "What is red?", pad="x" * 3_000_000)).encode()
        CLIENT.post(address + "/v1/chat/completions", content=content, timeout=30)
        assert stand_in.bodies[-1] == content
        chunks = (content[at : at + 65536] for at in range(0, len(content), 65536))  # of unknown length
        CLIENT.post(address + "/v1/chat/completions", content=chunks, timeout=30)
        assert stand_in.bodies[-1] == content

    def test_errors(self, start: Start, screenshot: str) -> None:
        address, _, _ = start()
        for path, body in (
            ("/v1/chat/completions", {}),
            ("/v1/messages", []),
            ("/api/chat", {"messages": 3}),
        ):
            answer = ask(address, body, path)
            assert answer.status_code == 400
            assert "arr-coc" not in answer.text

    def test_redirects_are_for_the_client(self, start: Start) -> None:
        address, _, _ = start()
        answer = CLIENT.get(address + "/away", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, "http://127.0.0.1:9/elsewhere")

    def test_an_upstream_that_is_down(self, start: Start, screenshot: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            target = f"http://127.0.0.1:{free.getsockname()[1]}"
        address, _, _ = start(target=target)
        answer = ask(address, chat_body(screenshot, "What is red?"))
        assert answer.status_code == 502
        assert "did not answer" in answer.json()["error"]["message"]
        assert "arr_coc_upstream_errors_total 1.0" in CLIENT.get(address + "/arr_coc/metrics").text

    @pytest.mark.parametrize(
        ("target", "path", "sent"),
        [
            ("/v1", "/v1/models", b"/v1/models"),
            ("/v1/", "/v1/models", b"/v1/models"),
            ("", "/v1/models", b"/v1/models"),
            ("/openai/v1", "/v1/models", b"/openai/v1/models"),
            ("/v1beta/openai", "/models", b"/v1beta/openai/models"),
        ],
    )
    def test_paths_below_the_upstream(
        self, start: Start, upstream: Any, target: str, path: str, sent: bytes
    ) -> None:
        address, stand_in, _ = start(target=upstream[1] + target)
        CLIENT.get(address + path)
        assert stand_in.targets == [sent]


class TestStreams:
    """Streams pass as they come: the first part is here before the second one is made."""

    @pytest.mark.parametrize(
        ("path", "kind"),
        [
            ("/v1/chat/completions", "text/event-stream"),
            ("/v1/messages", "text/event-stream"),
            ("/api/chat", "application/x-ndjson"),
        ],
    )
    def test_as_they_come(self, start: Start, upstream: Any, screenshot: str, path: str, kind: str) -> None:
        address, stand_in, _ = start()
        body = chat_body(screenshot, "What is red?", stream=True)
        direct = CLIENT.post(upstream[1] + path, json=body).content
        stand_in.go_on.clear()
        with CLIENT.stream("POST", address + path, json=body, timeout=30) as answer:
            assert answer.headers["content-type"].startswith(kind)
            parts = answer.iter_raw()
            first = next(parts)
            assert direct.startswith(first)
            stand_in.go_on.set()
            assert first + b"".join(parts) == direct

    def test_a_client_that_goes_ends_the_work(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        stand_in.go_on.clear()
        body = chat_body(screenshot, "What is red?", stream=True)
        with CLIENT.stream("POST", address + "/v1/chat/completions", json=body, timeout=30) as answer:
            next(answer.iter_raw())
        assert stand_in.aborted.wait(5)

    def test_so_does_one_that_goes_before_the_answer(self, start: Start, screenshot: str) -> None:
        address, stand_in, _ = start()
        stand_in.go_on.clear()
        body = chat_body(screenshot, "What is red?", wait=True)
        with pytest.raises(httpx.ReadTimeout):
            CLIENT.post(address + "/v1/chat/completions", json=body, timeout=1)
        assert stand_in.aborted.wait(5)


class TestPages:
    def test_the_page_of_requests(self, start: Start, screenshot: str) -> None:
        address, _, _ = start()
        assert "None so far" in CLIENT.get(address + "/arr_coc/requests").text
        ask(address, chat_body(screenshot, "What is red? <script>alert(1)</script>", model="<b>m</b>"))
        page = CLIENT.get(address + "/arr_coc/requests")
        assert page.headers["content-type"].startswith("text/html")
        assert "1,000 &rarr; 400 tokens" in page.text
        assert "&lt;script&gt;" in page.text
        assert "<script" not in page.text
        assert "<b>m</b>" not in page.text
        assert "data:image/jpeg;base64," in page.text
        record = CLIENT.get(address + "/arr_coc/requests.json").json()["requests"][0]
        assert record["path"] == "/v1/chat/completions"
        assert (record["tokens_before"], record["tokens_after"], record["status"]) == (1000, 400, 200)
        assert record["pictures"][0]["places"][1]["magnification"] == 1.0

    def test_only_the_last_are_kept(self, start: Start, screenshot: str) -> None:
        address, _, proxy = start(traces=2)
        for i in range(4):
            ask(address, chat_body(screenshot, f"What is red, {i}?"))
        numbers = [one["number"] for one in CLIENT.get(address + "/arr_coc/requests.json").json()["requests"]]
        assert numbers == [4, 3]
        assert not any(
            data for one in proxy.journal.records for p in one.pictures for _, data in p.outcome.parts
        )

    def test_health_and_counters(self, start: Start, screenshot: str) -> None:
        address, _, _ = start()
        assert CLIENT.get(address + "/arr_coc/health").json()["status"] == "ok"
        ask(address, chat_body(screenshot, "What is red?"))
        counts = CLIENT.get(address + "/arr_coc/metrics").text
        for line in (
            'arr_coc_requests_total{api="chat",sent="changed"} 1.0',
            'arr_coc_pictures_total{outcome="packed"} 1.0',
            'arr_coc_tokens_before_total{rule="qwen"} 1000.0',
            'arr_coc_tokens_after_total{rule="qwen"} 400.0',
            "arr_coc_choosing_seconds_count 1.0",
        ):
            assert line in counts
        assert CLIENT.get(address + "/arr_coc/other").status_code == 404

    def test_keys_are_written_nowhere(
        self, start: Start, screenshot: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        address, stand_in, _ = start()
        for question in ("What is red?", "Does it fail?"):
            ask(
                address, chat_body(screenshot, question), f"/v1/chat/completions?key={KEY}", authorization=KEY
            )
        assert stand_in.targets[0].endswith(KEY.encode())
        pages = [
            CLIENT.get(f"{address}/arr_coc/{name}").text for name in ("requests", "requests.json", "metrics")
        ]
        own = [line for line in caplog.text.splitlines() if "httpx" not in line and "httpcore" not in line]
        assert KEY not in "".join([*pages, *own])

    def test_pages_of_other_sites_are_refused(self, start: Start) -> None:
        """A site that points its own name at this machine can reach neither the pages nor the upstream."""
        address, stand_in, _ = start()
        for path in ("/arr_coc/requests", "/v1/models", "/api/tags"):
            answer = CLIENT.get(address + path, headers={"host": "evil.example"})
            assert answer.status_code == 421
        answer = CLIENT.get(address + "/arr_coc/requests", headers={"origin": "https://evil.example"})
        assert answer.status_code == 403
        assert not stand_in.bodies
        # Which origins may ask an API is for the API to say.
        CLIENT.get(address + "/v1/models", headers={"origin": "https://web-ui.example"})
        assert (b"origin", b"https://web-ui.example") in stand_in.headers[-1]


class TestOnePicture:
    """A server that takes one picture is asked again with one for each, and from then on at once."""

    def test_a_refusal_for_too_many(self, start: Start, screenshot: str) -> None:
        address, stand_in, proxy = start()
        stand_in.most_pictures = 1
        for number in (2, 3):  # all requests to the server after each
            answer = ask(address, chat_body(screenshot, "What is red?"))
            assert answer.status_code == 200
            assert len(stand_in.bodies) == number
            assert len(pictures_of(stand_in.last())) == 1
            assert answer.headers["x-arr-coc"].startswith("packed 1 of 1")
            assert reasons(address) == ["packed"]
        turn = {"role": "user", "content": "What is red?", "images": [screenshot]}
        answer = ask(address, {"model": "other", "messages": [turn], "stream": False}, "/api/chat")
        assert answer.json()["done"]
        assert [len(body["messages"][0]["images"]) for body in map(json.loads, stand_in.bodies[-2:])] == [
            2,
            1,
        ]
        assert len(CLIENT.get(address + "/arr_coc/requests.json").json()["requests"]) == 3
        assert proxy._held.nbytes == 0

    @pytest.mark.parametrize(
        ("failure", "next_time"),
        [
            ("image worker 3 was restarted", 2),
            ("this model only supports one image while more than one image requested", 1),
        ],
    )
    def test_a_failure_of_the_moment(
        self, start: Start, screenshot: str, failure: str, next_time: int
    ) -> None:
        """It is asked again as well; only one that names a number is remembered."""
        address, stand_in, _ = start()
        stand_in.failures = [failure]
        for parts in (1, next_time):
            assert ask(address, chat_body(screenshot, "What is red?")).status_code == 200
            assert len(pictures_of(stand_in.last())) == parts
        stand_in.failures.clear()

    def test_other_refusals_pass_as_they_are(self, start: Start, screenshot: str) -> None:
        address, stand_in, proxy = start()
        stand_in.most_pictures = 0  # not even one
        answer = ask(address, chat_body(screenshot, "What is red?"))
        assert (answer.status_code, len(stand_in.bodies)) == (400, 2)
        assert "At most 0 image(s)" in answer.json()["error"]
        stand_in.most_pictures = 1
        stand_in.bodies.clear()
        ask(address, chat_body(screenshot, "What is red?"))
        assert len(stand_in.bodies) == 2  # it was not taken for a server of one picture
        body = {"model": "m", "messages": "none"}  # refused, but not for pictures
        assert ask(address, body).json()["error"]["message"] == "none"
        assert len(stand_in.bodies) == 3
        assert proxy._held.nbytes == 0


class TestAddresses:
    def test_the_path_at_the_upstream(self) -> None:
        chat = "/chat/completions"
        for upstream, asked, target in (
            ("http://a", "/v1" + chat, "/v1" + chat),
            ("http://a/v1/", "/v1" + chat, "/v1" + chat),
            ("http://a/api/v1", "/v1" + chat, "/api/v1" + chat),
            ("http://a/openai", "/v1" + chat, "/openai/v1" + chat),
            ("http://a/anthropic", "/v1/messages", "/anthropic/v1/messages"),
            ("http://a/v1beta/openai/", "/v1" + chat, "/v1beta/openai" + chat),
            ("http://a/v1beta/openai", chat, "/v1beta/openai" + chat),
            ("http://a/api/paas/v4", "/v1/models", "/api/paas/v4/models"),
            ("http://a/api/v3", "/v1", "/api/v3"),
            (
                "http://a/v1/projects/p/endpoints/openapi",
                "/v1" + chat,
                "/v1/projects/p/endpoints/openapi" + chat,
            ),
            ("http://a/paas/v4", "/v1x", "/paas/v4/v1x"),
            ("http://a/v2ray", "/v1" + chat, "/v2ray" + chat),
        ):
            assert read_upstream(upstream).target(asked.encode()) == target.encode(), (upstream, asked)

    def test_it_is_asked_there(self, start: Start, upstream: tuple[Any, str], screenshot: str) -> None:
        address, stand_in, _ = start(target=upstream[1] + "/v1beta/openai/")
        for base in ("/v1", ""):
            ask(address, chat_body(screenshot, "What is red?"), base + "/chat/completions?a=1")
            assert stand_in.targets[-1] == b"/v1beta/openai/chat/completions?a=1"
            assert len(pictures_of(stand_in.last())) == 2

    def test_a_model_that_the_path_names(
        self, start: Start, upstream: tuple[Any, str], screenshot: str
    ) -> None:
        """As Azure does: in the request's path or in the upstream's address, before what the body says."""
        body = chat_body(screenshot, "What is red?")
        unnamed = {"messages": body["messages"]}
        azure = "/openai/deployments/{}/chat/completions?api-version=1"
        address, *_ = start(target=upstream[1])
        inside, *_ = start(target=upstream[1] + "/openai/deployments/gpt-4o")
        for proxy, path, asked, rule in (
            (address, azure.format("gpt-4o"), unnamed, "gpt-4o"),
            (address, azure.format("claude-opus-5"), body, "claude"),
            (address, azure.format("my%2Dgpt-5.4"), unnamed, "gpt-5.4"),
            (address, azure.format("ours"), body, "qwen"),
            (address, azure.format("ours"), unnamed, "32"),
            (inside, "/chat/completions", unnamed, "gpt-4o"),
        ):
            ask(proxy, asked, path)
            assert CLIENT.get(proxy + "/arr_coc/requests.json").json()["requests"][0]["rule"] == rule


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The https address of a server with a certificate that it signed itself, and the file of that."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to sign a certificate with")
    folder = tmp_path_factory.mktemp("authority")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9"
    name = "-keyout key.pem -out own.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*command.split(), *name.split()], cwd=folder, check=True, capture_output=True)
    server = StandIn()
    server.config.ssl_certfile, server.config.ssl_keyfile = str(folder / "own.pem"), str(folder / "key.pem")
    with listening(server.config) as address:
        yield address.replace("http://127.0.0.1", "https://localhost"), str(folder / "own.pem")


class TestTrust:
    def test_a_private_authority(
        self, private: tuple[str, str], start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        target, file = private
        address, *_ = start(target=target)
        answer = CLIENT.get(address + "/anything")
        assert answer.status_code == 502
        assert "name its file with --ca" in answer.json()["error"]["message"]
        address, *_ = start(target=target, ca=file)
        assert CLIENT.get(address + "/anything").status_code == 418
        monkeypatch.setenv("SSL_CERT_FILE", file)
        address, *_ = start(target=target)
        assert CLIENT.get(address + "/anything").status_code == 418

    def test_files_without_certificates(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "empty.pem").write_text("nothing")
        for name in ("empty.pem", "missing.pem", "."):
            with pytest.raises(ValueError, match=r"ca .* give a file"):
                read_trust(str(tmp_path / name))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
        with pytest.raises(ValueError, match=r"SSL_CERT_FILE .*missing.pem"):
            read_trust(None)


class TestSettings:
    @pytest.mark.parametrize(
        "address",
        ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:99999", "http://u:p@a", "http://a/?x=1",
         "http://a b", "http://[::1", "file:///etc/passwd", "\x00"],
    )  # fmt: skip
    def test_a_bad_upstream(self, address: str) -> None:
        with pytest.raises(ValueError, match="upstream"):
            read_upstream(address)

    def test_bad_values(self) -> None:
        packer = Packer(1)
        for settings in (
            ProxySettings("http://a", tokens=0),
            ProxySettings("http://a", rule="gpt-0"),
            ProxySettings("http://a", layout="best"),
        ):
            with pytest.raises(ValueError, match=r"use one of|give 1 to"):
                Proxy(settings, packer)


class TestMemory:
    def test_what_is_kept_is_bounded(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packing, "MAX_KEPT", 40_000)
        address, _, proxy = start()
        for i in range(16):
            ask(address, chat_body(encoded(320, 240, i), "What is red?"), x_arr_coc_tokens="64")
            assert proxy.packer.nbytes <= 40_000
        assert proxy.packer.nbytes > 20_000
