"""The proxy as a server that anybody may reach: bounds, connections, framing, and its own pages."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from arr_coc.proxy import bodies, packing, server
from arr_coc.proxy.packing import Packer, Picture
from arr_coc.proxy.server import MAX_PICTURES
from chat_servers import CLIENT, Started, encoded, pack_double
from each import each

Start = Callable[..., Started]
FRAMES = (b"content-length", b"transfer-encoding")


def turn(data: str, question: str = "What is red?", count: int = 1) -> dict[str, Any]:
    return {"role": "user", "content": question, "images": [data] * count}


def ask(address: str, *turns: Any, **more: Any) -> httpx.Response:
    body = {"model": "m", "messages": turns, "stream": False} | more
    return CLIENT.post(address + "/api/chat", json=body, timeout=30)


def sent_raw(address: str, content: bytes) -> bytes:
    """All that a server answers to some bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 20) as client:
        client.sendall(content)
        return b"".join(iter(lambda: client.recv(65536), b""))


class TestBounds:
    def test_tiny_pictures_in_thousands(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only the first ones are given to the packer; the others are counted at once."""
        address, _, proxy = start()
        packed: list[bytes] = []
        pack = Packer.pack

        async def counted(packer: Packer, picture: Picture, dial: Any) -> Any:
            packed.append(picture.digest)
            return await pack(packer, picture, dial)

        monkeypatch.setattr(Packer, "pack", counted)
        answer = ask(address, turn("AAAA", count=20_000))
        assert answer.headers["x-arr-coc"].startswith("packed 0 of 20000 pictures")
        assert len(packed) == MAX_PICTURES
        counts = proxy.journal.metrics().decode()
        assert f'{{reason="many_pictures"}} {20_000.0 - MAX_PICTURES}' in counts

    def test_bodies_that_are_too_many_together_pass(
        self, start: Start, monkeypatch: pytest.MonkeyPatch, screenshot: str
    ) -> None:
        """Complete or not, and with what it takes to look into them."""
        address, stand_in, proxy = start()
        for most in (100, len(screenshot) // 2, 2 * len(screenshot)):
            monkeypatch.setattr(bodies, "MAX_BODIES", most)
            assert ask(address, turn(screenshot)).status_code == 200
            assert stand_in.last()["messages"] == [turn(screenshot)]
        assert 'requests_total{api="ollama",sent="unread"} 3.0' in proxy.journal.metrics().decode()
        assert proxy._held.nbytes == 0

    def test_what_was_sent_on_is_not_held_while_the_upstream_thinks(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address, stand_in, proxy = start()
        stand_in.go_on.clear()
        turns = [{"role": "user", "content": "x" * 3_000_000}]
        counts = []
        resize = bodies.Body.resize

        def counted(body: bodies.Body, nbytes: int) -> None:
            resize(body, nbytes)
            counts.append(proxy._held.nbytes)
            if nbytes == 0:
                stand_in.go_on.set()  # the upstream answers now, and not before

        monkeypatch.setattr(bodies.Body, "resize", counted)
        body = {"model": "m", "messages": turns, "wait": True}
        CLIENT.post(address + "/v1/chat/completions", json=body, timeout=30).raise_for_status()
        assert max(counts) > 3_000_000
        assert proxy._held.nbytes == 0


class TestVerdicts:
    """What became of a picture for its question stays, so that the same turns give the same bytes."""

    @pytest.fixture
    def stuck(self, monkeypatch: pytest.MonkeyPatch, start: Start) -> Iterator[threading.Event]:
        """An event for which the choice from any picture waits."""
        event = threading.Event()

        def waiting(*args: Any, **names: Any) -> Any:
            event.wait(30)
            return pack_double(*args, **names)

        monkeypatch.setattr(packing, "pack_for", waiting)
        yield event
        event.set()

    def test_a_choice_past_its_time_holds_up_nobody(
        self, start: Start, stuck: threading.Event, screenshot: str
    ) -> None:
        address, stand_in, proxy = start(seconds=0.3)
        proxy.packer._threads[0].submit(int).result(30)  # the worker has begun
        other, third = encoded(1280, 801), encoded(1280, 802)

        def reason(data: str) -> str:
            ask(address, turn(data))
            return proxy.journal.records[-1].pictures[0].outcome.reason

        assert reason(screenshot) == "slow"
        proxy.packer.seconds = 30
        assert reason(other) == "blocked"  # at once: its own time has not begun
        (work,) = proxy.packer._running
        stuck.set()
        work.result(30)
        assert reason(third) == "packed"
        bytes_before = stand_in.bodies[:2]
        assert [reason(screenshot), reason(other)] == ["slow", "blocked"]
        assert stand_in.bodies[-2:] == bytes_before
        # And so does the conversation: its beginning is as it was.
        ask(address, turn(screenshot), {"role": "user", "content": "And what is green?"})
        assert stand_in.last()["messages"][0] == json.loads(bytes_before[0])["messages"][0]

    def test_too_many_that_wait(
        self, start: Start, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A place is given back when the choice ends, not when nobody waits for it any longer."""
        monkeypatch.setattr(packing, "MAX_WAITING", 1)
        packer = Packer(2, seconds=0.3)
        packer._threads[0].submit(int).result(30)  # the worker has begun
        dial = packing.Dial()

        def became(data: str, first: int) -> str:
            digest = bytes([first]) + packing.digest_of(data)[1:]  # the first byte names the worker
            return asyncio.run(packer.pack(Picture(data, digest, "What is red?"), dial)).reason

        one, two = encoded(1280, 803), encoded(1280, 804)
        assert became(one, 0) == "slow"
        packer.seconds = 30
        assert became(two, 1) == "busy"
        (work,) = packer._running
        stuck.set()
        work.result(30)
        packer._threads[0].submit(int).result(30)  # behind it: its place is free
        assert [became(one, 0), became(two, 1)] == ["slow", "busy"]
        assert became(one, 1) == "packed"
        packer.close()

    def test_it_outlives_the_packings_that_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packing, "MAX_KEPT", 10_000)
        monkeypatch.setattr(packing, "MAX_VERDICTS", 50)
        packer = Packer(1)
        keys = [bytes([number]) for number in range(200)]
        for key in keys:
            packer._keep(key, packing.Outcome("slow", thumbnail="t" * 1000))
        for key in keys[-50:]:
            kept = packer._keep(key, packing.Outcome("packed"))
            assert kept.reason == "slow"
        assert packer.nbytes <= 10_000
        assert packer._keep(keys[0], packing.Outcome("busy")).reason == "busy"
        packer.close()


class TestConnections:
    def test_the_head_of_a_request_has_a_time(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)
        address, _, _ = start()
        whole = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for content in (b"", b"GET / HTTP/1.1\r\nHost: 127"):
            assert sent_raw(address, content) == b""
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 20) as client:
            client.sendall(whole)  # a second request on a connection that is open
            while b"not really gzip" not in client.recv(65536):
                pass
            client.sendall(whole[:20])
            assert client.recv(65536) == b""

    def test_an_answer_has_not(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)
        address, stand_in, _ = start()
        stand_in.go_on.clear()
        threading.Timer(0.4, stand_in.go_on.set).start()
        body = {"model": "m", "messages": [], "wait": True}
        assert CLIENT.post(address + "/v1/chat/completions", json=body, timeout=30).status_code == 200


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """The address of an upstream that gives one answer, byte for byte, to whatever is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as client:
                client.recv(65536)
                client.sendall(content)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(20)


class TestFraming:
    @each("said", ["Connection: close, content-length, host", "Content-Length: 3\r\nConnection: close"])
    def test_a_body_is_whole_however_long_it_is_said_to_be(self, start: Start, said: str) -> None:
        address, stand_in, _ = start()
        for path in ("/api/chat", "/v1/files"):
            length = "Transfer-Encoding: chunked" if "3" in said else "Content-Length: 9"
            body = b'9\r\n{"model"}\r\n0\r\n\r\n' if "3" in said else b'{"model"}'
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{said}\r\n{length}\r\n\r\n"
            assert not sent_raw(address, head.encode() + body).startswith(b"HTTP/1.1 5")
            assert stand_in.bodies[-1] == b'{"model"}'
            lengths = {name: value for name, value in stand_in.headers[-1] if name in FRAMES}
            assert len(lengths) == 1

    @each("status", ["600 Odd", "999 ", "101 Switching Protocols"])
    def test_a_status_that_is_none(self, start: Start, status: str) -> None:
        with answering(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode()) as target:
            address, _, _ = start(target=target)
            answer = CLIENT.get(address + "/v1/models")
            assert answer.status_code == 502
            assert "did not answer" in answer.json()["error"]["message"]

    def test_an_answer_that_says_its_length_twice(self, start: Start) -> None:
        content = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        with answering(content + b"5\r\nhello\r\n0\r\n\r\n") as target:
            address, _, _ = start(target=target)
            assert CLIENT.get(address + "/v1/models").text == "hello"


class TestOwnPages:
    def test_scripts_of_the_upstreams_pages_cannot_read_them(self, start: Start) -> None:
        """They have the same origin, so that the browser would let them."""
        address, stand_in, _ = start()
        own = ["requests", "requests.json", "metrics", "health", "none"]
        for mode, dest, allowed in (
            ("navigate", "document", True),
            ("cors", "empty", False),
            ("same-origin", "empty", False),
            ("navigate", "iframe", False),
            ("no-cors", "script", False),
        ):
            headers = {"sec-fetch-mode": mode, "sec-fetch-dest": dest, "sec-fetch-site": "same-origin"}
            with httpx.Client(base_url=f"{address}/arr_coc/", headers=headers) as client:
                for name in own:
                    assert (client.get(name).status_code != 403) == allowed, (name, mode)
        worker = {"service-worker": "script", "sec-fetch-dest": "serviceworker"}
        assert CLIENT.get(address + "/sw.js", headers=worker).status_code == 403
        assert not stand_in.targets
        assert CLIENT.get(address + "/script.js", headers={"sec-fetch-mode": "cors"}).status_code == 418

    def test_what_a_browser_may_do_with_them(self, start: Start) -> None:
        address, _, _ = start()
        for name in ("requests", "requests.json", "metrics", "health"):
            headers = CLIENT.get(f"{address}/arr_coc/{name}").headers
            for word in ("sandbox;", "default-src 'none'", "frame-ancestors 'none'"):
                assert word in headers["content-security-policy"]
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
        assert "other users of this machine too" in CLIENT.get(f"{address}/arr_coc/requests").text
