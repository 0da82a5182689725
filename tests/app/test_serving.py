"""The app as a server: who is answered, what its one public endpoint says, what is left when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from chat_servers import CLIENT
from each import each

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from arr_coc import app
from arr_coc.app.models import Models
from arr_coc.app.server import (
    FOLDER,
    OWN_ORIGIN,
    BodyLimit,
    OwnOriginOnly,
    own_names,
    own_origin,
)
from arr_coc.cli import main
from arr_coc.files.atomic import LOCK_FILE, temporary_folder
from arr_coc.model import ARRCOCModel
from tiny import picture, tiny

QUESTION = "What is it?"


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    made = tiny("qwen3_vl")
    return ARRCOCModel.wrap(made.model, made.processor)


@pytest.fixture(scope="module")
def address(model: ARRCOCModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server of a tiny model on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
        blocks = app.build_app(model)
        _, local, _ = blocks.launch(
            server_name="127.0.0.1",
            server_port=free_port(),
            prevent_thread_lock=True,
            quiet=True,
            **own_origin(),
        )
        yield local.rstrip("/")
        blocks.close(verbose=False)


@pytest.fixture
def image(tmp_path: Path) -> str:
    picture(1, (64, 48)).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def call(address: str, data: list[Any]) -> tuple[str, Any]:
    """Call the endpoint as curl does: the kind of the last event, and its data."""
    event = CLIENT.post(f"{address}/gradio_api/call/ask", json={"data": data}).json()["event_id"]
    lines = CLIENT.get(f"{address}/gradio_api/call/ask/{event}", timeout=60).text.strip().splitlines()
    return lines[-2].removeprefix("event: "), json.loads(lines[-1].removeprefix("data: "))


def upload(address: str, image: str) -> dict[str, Any]:
    with open(image, "rb") as file:
        (path,) = CLIENT.post(f"{address}/gradio_api/upload", files={"files": file}).json()
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


class TestEndpoint:
    @pytest.mark.slow
    def test_it_says_what_the_model_says(self, client: Client, model: ARRCOCModel, image: str) -> None:
        found = client.predict(handle_file(image), QUESTION, "0.25", api_name="/ask")
        answer = model.ask(image, QUESTION, budget=0.25)
        assert (found["answer"], found["kept"], found["total"], found["read"], found["mode"]) == (
            *(answer.text, answer.kept, answer.total, answer.read, answer.mode),
        )
        assert found["note"] == answer.note
        assert found["ms"]["total"] > 0
        assert found["machine"].startswith("cpu, float32")

    @pytest.mark.slow
    def test_any_mode_and_the_note(self, client: Client, image: str) -> None:
        assert client.predict(handle_file(image), QUESTION, None, "full", api_name="/ask")["kept"] == 48
        found = client.predict(handle_file(image), QUESTION, "7", "saccade", api_name="/ask")
        assert found["kept"] == 48
        assert "no coarse view" in found["note"]
        found = client.predict(handle_file(image), QUESTION, "7", "prune", "2", api_name="/ask")
        assert (found["magnified"], found["note"]) == (None, "magnify had no effect in mode prune")

    @pytest.mark.slow
    def test_by_http_alone(self, address: str, model: ARRCOCModel, image: str) -> None:
        kind, (found,) = call(address, [upload(address, image), QUESTION, "7", None, None])
        assert kind == "complete"
        assert (found["answer"], found["kept"]) == (model.ask(image, QUESTION, budget=7).text, 7)

    def test_it_is_the_only_one(self, client: Client) -> None:
        assert list(client.view_api(return_format="dict")["named_endpoints"]) == ["/ask"]
        assert not client.view_api(return_format="dict")["unnamed_endpoints"]

    @each("image", ["page.png", "https://example.org/a.png", 3, ["a.png"], {"url": "a"}])
    def test_an_image_that_is_no_upload_is_refused_in_a_line(self, address: str, image: Any) -> None:
        kind, reply = call(address, [image, QUESTION, None, None, None])
        assert kind == "error"
        assert reply["error"].startswith("the image is no uploaded file: upload it")

    @pytest.mark.parametrize("number", [999, -1])
    @pytest.mark.parametrize("path", ["queue/join", "run/predict"])
    def test_a_number_of_no_event_is_answered_in_a_line(
        self, address: str, capfd: pytest.CaptureFixture[str], path: str, number: int
    ) -> None:
        body = {"data": [], "fn_index": number, "session_hash": "a"}
        reply = CLIENT.post(f"{address}/gradio_api/{path}", json=body)
        assert (reply.status_code, reply.text.count("\n")) == (404, 1)
        assert "Traceback" not in "".join(capfd.readouterr())

    @each("path", ["call/nothing", "call/ask%0Aask", "run/nothing"])
    def test_another_name_is_answered_in_a_line(
        self, address: str, capfd: pytest.CaptureFixture[str], path: str
    ) -> None:
        reply = CLIENT.post(f"{address}/gradio_api/{path}", json={"data": []})
        assert (reply.status_code, reply.text.count("\n")) == (404, 1)
        assert "the only one is /ask" in reply.text
        assert "Traceback" not in "".join(capfd.readouterr())

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"question": " "}, "question is empty"),
            ({"question": "x " * 5000}, "question is too long"),
            ({"budget": "0"}, "budget '0' is below 1"),
            ({"budget": "many"}, "budget 'many' is not a number"),
            ({"budget": "-1"}, "budget '-1' is below 1"),
            ({"mode": "nope"}, "mode 'nope' is unknown"),
            ({"magnify": "9"}, "magnify '9' is not from 1 to 3"),
            ({"image": None}, "there is no image"),
        ],
    )
    def test_refusals_are_one_line(self, client: Client, image: str, more: Any, why: str) -> None:
        form = {"image": handle_file(image), "question": QUESTION} | more
        with pytest.raises(AppError, match=why) as caught:
            client.predict(**form, api_name="/ask")
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_no_image_is_named_without_its_place(self, client: Client, tmp_path: Path) -> None:
        (tmp_path / "notes.png").write_text("no")
        with pytest.raises(AppError, match=r"image 'notes\.png' is not an image"):
            client.predict(handle_file(tmp_path / "notes.png"), QUESTION, api_name="/ask")

    @pytest.mark.slow
    @pytest.mark.parametrize("path", ["{image}", "http://127.0.0.1:{port}/photo.png", "../photo.png"])
    def test_only_what_was_uploaded_is_read(self, address: str, image: str, path: str) -> None:
        """Neither a file of the server, nor an address that it would have to fetch."""
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            listening.settimeout(0.2)
            path = path.format(image=image, port=listening.getsockname()[1])
            for file in ({"path": path, "meta": {"_type": "gradio.FileData"}}, {"path": path}, path):
                kind, _ = call(address, [file, QUESTION, None, None, None])
                assert kind == "error"
            with pytest.raises(TimeoutError):
                listening.accept()

    @pytest.mark.slow
    def test_several_at_once_do_not_mix(self, address: str, model: ARRCOCModel, tmp_path: Path) -> None:
        images = []
        for seed in range(4):
            picture(seed, (64, 48 + 16 * seed)).save(tmp_path / f"{seed}.png")
            images.append(str(tmp_path / f"{seed}.png"))
        form = (QUESTION, "7", None, None)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i: call(address, [upload(address, i), *form]), images))
        for path, (kind, (answer,)) in zip(images, found, strict=True):
            alone = model.ask(path, QUESTION, budget=7)
            assert kind == "complete"
            assert (answer["answer"], answer["total"]) == (alone.text, alone.total)


class TestBodies:
    """A request that is too large is refused before it is read whole, by its length or once it is."""

    @staticmethod
    def post(length: bytes | None, sent: int, path: str = "/upload") -> tuple[int, int]:
        """The status, and how much of a body of 10 bytes a message was read, of at most 25 or 35."""
        messages: list[dict[str, Any]] = []
        read = 0

        async def app(scope: Any, receive: Any, send: Any) -> None:
            more = True
            while more:
                more = (await receive())["more_body"]
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async def receive() -> dict[str, Any]:
            nonlocal read
            read += 10
            return {"type": "http.request", "body": bytes(10), "more_body": read < sent}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        headers = [] if length is None else [(b"content-length", length)]
        scope = {"type": "http", "path": path, "headers": headers}
        asyncio.run(BodyLimit(app, upload=35, other=25)(scope, receive, send))
        assert [message["type"] for message in messages] == ["http.response.start", "http.response.body"]
        return messages[0]["status"], read

    def test_by_its_length(self) -> None:
        assert self.post(b"36", 100) == (413, 0)
        assert self.post(b"26", 100, "/queue/join") == (413, 0)
        assert self.post(b"30", 30) == (200, 30)

    @each("length", [None, b"10", b"many", b"-1"])
    def test_by_what_comes(self, length: bytes | None) -> None:
        assert self.post(length, 100) == (413, 40)
        assert self.post(length, 100, "/queue/join") == (413, 30)
        assert self.post(length, 30) == (200, 30)

    def test_the_server_has_it(self, address: str) -> None:
        reply = CLIENT.post(f"{address}/gradio_api/queue/join", content=bytes(5 * 2**20))
        assert (reply.status_code, reply.text.count("\n")) == (413, 1)


class TestWhoIsAnswered:
    @each(
        "host",
        [
            *("evil.com", "evil.com:7860", "localhost.evil.com", "10.0.0.1", "", "["),
            *("evil.com@127.0.0.1", "@localhost", "localhost/", "localhost#evil.com", "localhost:80:81"),
        ],
    )
    def test_another_name_is_refused(self, address: str, host: str) -> None:
        for path in ("/", "/config", "/gradio_api/info"):
            reply = CLIENT.get(address + path, headers={"Host": host})
            assert reply.status_code == 421
            assert reply.text.count("\n") == 1
            assert "--allow-host" in reply.text

    @each("host", ["localhost", "127.0.0.1", "LOCALHOST:9000", "[::1]:7860"])
    def test_own_names_are_answered(self, address: str, host: str) -> None:
        assert CLIENT.get(address + "/config", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize("origin", ["http://evil.com", "null", "http://127.0.0.1:1", "http://localhost"])
    def test_pages_of_others_are_refused(self, address: str, image: str, origin: str) -> None:
        with open(image, "rb") as file:
            reply = CLIENT.post(
                f"{address}/gradio_api/upload", files={"files": file}, headers={"Origin": origin}
            )
        assert reply.status_code == 403
        assert CLIENT.get(address + "/config", headers={"Origin": address}).status_code == 200

    def test_on_the_network_addresses_and_allowed_names_are_own(self) -> None:
        names = own_names("0.0.0.0", ["lab.example.org"])

        def status(host: str) -> int:
            return asyncio.run(respond(OwnOriginOnly(answered, **names), host))

        for host in ("192.168.1.7:7860", "[fe80::1]", "localhost", socket.gethostname(), "LAB.example.org"):
            assert status(host) == 200
        assert status("evil.com") == 421
        assert asyncio.run(respond(OwnOriginOnly(answered), "192.168.1.7")) == 421

    def test_an_allowed_name_may_have_a_port(self, address: str) -> None:
        """Any port is answered, so the refusal doesn't say that it matters."""
        served = OwnOriginOnly(
            answered, **own_names("127.0.0.1", ["Lab.example.org:7860", "fe80::1", "[fe80::2]:1"])
        )
        for host in (
            "lab.example.org",
            "lab.example.org:7860",
            "lab.example.org:1",
            "[fe80::1]",
            "[fe80::2]",
        ):
            assert asyncio.run(respond(served, host)) == 200
        assert asyncio.run(respond(served, "evil.com")) == 421
        assert "isn't called 'evil.com': " in CLIENT.get(address, headers={"Host": "evil.com:7860"}).text

    @each("name", ["", "[", ":7860", "http://lab.example.org"])
    def test_what_is_no_name_is_not_allowed(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"is no name of a host: give one such as lab\.example\.org"):
            own_names("127.0.0.1", [name])

    def test_websockets_of_others_are_closed(self) -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "websocket", "headers": [(b"host", b"evil.com")]}
        asyncio.run(OwnOriginOnly(answered)(scope, None, send))
        assert sent == [{"type": "websocket.close", "code": 1008}]

    def test_refusals_have_the_policy_too(self, address: str) -> None:
        reply = CLIENT.get(address, headers={"Host": "evil.com"})
        assert reply.headers["content-security-policy"] == OWN_ORIGIN


async def answered(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def respond(served: OwnOriginOnly, host: str) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await served({"type": "http", "headers": [(b"host", host.encode())]}, None, send)
    return sent[0]["status"]


class TestEnd:
    @pytest.mark.slow
    def test_a_server_that_is_told_to_end_leaves_nothing(self, tmp_path: Path) -> None:
        """While its model is being loaded."""
        port = free_port()
        running = subprocess.Popen(
            [sys.executable, "-m", "arr_coc", "app", "--port", str(port)],
            env=os.environ | {"TMPDIR": str(tmp_path), "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not list(tmp_path.glob("arr-coc-app-*")):
            assert running.poll() is None
            time.sleep(0.02)
        while not answers(port):
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate()
        assert running.returncode == 0
        assert "Traceback" not in err
        assert not list(tmp_path.glob("*arr-coc*"))
        assert not list(tmp_path.glob("*gradio*"))
        assert not answers(port)

    def test_folders_of_killed_servers_are_deleted_at_the_next_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("fcntl")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        code = "import os\nfrom arr_coc.files.atomic import temporary_folder\n"
        code += f"with temporary_folder({FOLDER!r}):\n    os._exit(9)"
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False)
        (killed,) = tmp_path.iterdir()
        (killed / "upload.png").write_bytes(b"")
        for name in ("arr-coc-app-being-made", "another"):
            (tmp_path / name).mkdir()
        (tmp_path / "another" / LOCK_FILE).touch()
        (tmp_path / f"{FOLDER}link").symlink_to(tmp_path / "another")
        others = set(tmp_path.iterdir()) - {killed}
        with temporary_folder(FOLDER) as first, temporary_folder(FOLDER) as second:
            assert set(tmp_path.iterdir()) == {*others, first, second}
        assert set(tmp_path.iterdir()) == others

    def test_a_model_that_is_still_at_work_is_told(self, model: ARRCOCModel) -> None:
        models, go = Models(model), Event()
        work = models.submit(lambda _: go.wait())
        while not work.running():
            time.sleep(0.001)
        waiting = models.submit(lambda _: None)
        models.close()
        assert models.busy()
        go.set()
        work.result()
        assert not models.busy()
        assert waiting.cancelled()

    @each("host", ["nope.invalid", "203.0.113.5", "", "x" * 80])
    def test_a_host_that_is_not_here_is_refused_before_anything_is_built(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: str
    ) -> None:
        monkeypatch.setattr(app, "build_app", lambda **_: pytest.fail("it is built"))
        assert main(["app", "--host", host, "--port", str(free_port())]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert f"host {host!r} is no address of this machine: choose another with --host" in err

    @each("host", ["127.0.0.1", "localhost", "0.0.0.0", "127.0.0.2"])
    def test_a_host_that_is_here_is_built_for(self, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
        class Built(Exception):
            pass

        def build(**_: Any) -> None:
            raise Built

        monkeypatch.setattr(app, "build_app", build)
        for name in ("GRADIO_TEMP_DIR", "GRADIO_ANALYTICS_ENABLED"):
            monkeypatch.setenv(name, "")
        with pytest.raises(Built):
            app.launch(host=host)

    def test_the_command_passes_names_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options: dict[str, Any] = {}
        monkeypatch.setattr(app, "launch", lambda **more: options.update(more))
        words = ["--allow-host", "a.example", "--allow-host", "b.example", "--relevance", "guide"]
        assert main(["app", *words]) == 0
        assert options["allow_hosts"] == ["a.example", "b.example"]
        assert options["relevance"] == "guide"


def answers(port: int) -> bool:
    try:
        return CLIENT.get(f"http://127.0.0.1:{port}/config").status_code == 200
    except httpx.HTTPError:
        return False
