"""An MCP server around another one: what passes, and what becomes of screenshots."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from PIL import Image

from arr_coc.mcp_around import MAX_RESULT, AroundScreens, read_command
from arr_coc.pixels.frames import UNCHANGED
from command_line import run
from each import each
from hostile import spoilt
from launching import PACKAGES
from screen_server import screen

SERVER = Path(__file__).with_name("screen_server.py")
OWN = [sys.executable, str(SERVER)]
AROUND = [sys.executable, "-m", "arr_coc", "mcp", "--around", " ".join(OWN)]
NODE = Path(os.environ.get("ARR_COC_NODE_MODULES", ""))
CHROMIUM = shutil.which("chromium")


def served(words: list[str], ask: Callable[[Client], Any], **options: Any) -> Any:
    """What is asked of a server that is started as an agent starts it."""

    async def asking() -> Any:
        environment = os.environ | {"PYTHONPATH": PACKAGES, "OMP_NUM_THREADS": "1"}
        server = StdioServerParameters(command=words[0], args=words[1:], env=environment)
        async with Client(stdio_client(server), **options) as client:
            return await ask(client)

    return anyio.run(asking)


def values(result: Any) -> Any:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def everything(client: Client) -> dict[str, Any]:
    """The answers to one question of each kind."""
    told: list[Any] = []

    async def progress(*facts: Any) -> None:
        told.append(facts)

    answers = {
        "tools": await client.list_tools(),
        "say": await client.call_tool("say", {"text": 'An "image" \u2028 \U0001f600'}),
        "count": await client.call_tool("count", {}),
        "fail": await client.call_tool("fail", {}),
        "unknown": await client.call_tool("shot", {"x": "left"}),
        "work": await client.call_tool("work", {}, progress_callback=progress),
        "resources": await client.list_resources(),
        "notes": await client.read_resource("notes://today"),
        "prompts": await client.list_prompts(),
        "greet": await client.get_prompt("greet", {"name": "Ada"}),
    }
    made = {name: values(answer) for name, answer in answers.items()}
    with pytest.raises(Exception, match="absent") as error:
        await client.read_resource("notes://absent")
    return made | {"error": str(error.value), "progress": told, "server": values(client.server_info)}


class TestThrough:
    def test_all_else_passes(self) -> None:
        assert served(AROUND, everything) == served(OWN, everything)

    def test_screenshots(self) -> None:
        async def ask(client: Client) -> list[Any]:
            asked = [{}, {}, {"x": 300}, {"x": 300}, {"noise": True}]
            return [values(await client.call_tool("shot", one))["content"] for one in asked]

        first, second, third, fourth, fifth = served([*AROUND, "--screens", "parts"], ask)
        assert [part["type"] for part in first] == ["text", "image"]
        assert base64.b64decode(first[1]["data"]) == screen()
        assert second == [{"type": "text", "text": "Taken."}, {"type": "text", "text": UNCHANGED}]
        taken, caption, part = third
        assert "This is x 236 to 396, y 76 to 156 of the screen of 640 x 416 px" in caption["text"]
        image = Image.open(io.BytesIO(base64.b64decode(part["data"])))
        whole = Image.open(io.BytesIO(screen((300, 100, 330, 130))))
        assert (np.asarray(image) == np.asarray(whole.crop((236, 76, 396, 156)))).all()
        assert fourth[1]["text"].startswith("The screen is unchanged")
        assert taken["text"] == fifth[0]["text"] == "Taken."
        assert fifth[1]["mimeType"] == "image/jpeg"
        assert len(json.dumps(fifth)) <= MAX_RESULT
        assert Image.open(io.BytesIO(base64.b64decode(fifth[1]["data"]))).size == (1280, 720)

    def test_it_ends_with_either_side(self) -> None:
        started: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started["env"] = os.environ | {"PYTHONPATH": PACKAGES, "OMP_NUM_THREADS": "1"}
        for command, code in (("raise SystemExit(3)", 3), ("input()", 1), ("print(input())", 0)):
            process = subprocess.Popen([*AROUND[:-1], f"{sys.executable} -Sc '{command}'"], **started)
            said = b"a line\n" if code == 0 else b""
            output, _ = process.communicate(said, timeout=120)
            assert (process.returncode, output) == (code, said)
        waits = [*AROUND[:-1], f"{sys.executable} -Sc 'import time; print(1, flush=True); time.sleep(600)'"]
        process = subprocess.Popen(waits, **started)
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        assert process.wait(60) == 143
        assert time.monotonic() - start < 20
        process.communicate()

    def test_refusals(self, capfd: pytest.CaptureFixture[str]) -> None:
        for words, said in (
            (["mcp"], "no folder is named"),
            (["mcp", ".", "--around", "true"], "both given"),
            (["mcp", "--around", ""], "around is empty"),
            (["mcp", "--around", "no-such-program-here x"], "can't be started"),
            (["mcp", "--around", "a 'b"], "close its quotes"),
            (["mcp", "--around", "true", "--for", "nothing"], "is not known"),
        ):
            code, _, error = run(capfd, *words)
            assert code == 2
            assert said in error

    def test_commands(self) -> None:
        assert read_command("npx -y '@a/b c' --x=1") == ["npx", "-y", "@a/b c", "--x=1"]


def line(*images: bytes, **more: Any) -> bytes:
    parts = [
        {"type": "image", "data": base64.b64encode(one).decode(), "mimeType": "image/png"} | more
        for one in images
    ]
    content = [{"type": "text", "text": "Taken."}, *parts]
    return json.dumps({"jsonrpc": "2.0", "id": 4, "result": {"content": content}}).encode() + b"\n"


class TestLines:
    def test_what_is_no_result_stays_to_the_byte(self) -> None:
        around = AroundScreens("parts")
        for one in (
            b"", b"\n", b'no JSON "image"\n', b'{"a": "image",  "b": 1.50}\n', b'["image"]\n', b'"image"\n',
            b'{"result": "image"}\n', b'{"result": {"content": "image"}}\n', b'\xff"image"\n',
            b'{"result": {"content": [{"type": "image"}]}}\n', b'{"x": ' + b"[" * 9000 + b'"image"\n',
            b'{"result":  {"content": [{"type": "image", "data": "AAAA"}]}}\n',
            b'{"result": {"content": ["image", 1e999]}}\n', line(screen()),
        ):  # fmt: skip
            assert around.passed(one) == one

    def test_marks_of_a_picture_stay(self) -> None:
        around = AroundScreens()
        marks = {"annotations": {"audience": ["user"]}, "_meta": {"a": 1}}
        around.passed(line(screen(), **marks))
        made = json.loads(around.passed(line(screen(), **marks)))
        assert made["id"] == 4
        assert made["result"]["content"][1] == {"type": "text", "text": UNCHANGED} | marks

    @each("way,kinds", [("off", 2), ("unchanged", 2), ("parts", 3)])
    def test_ways(self, way: str, kinds: int) -> None:
        around, other = AroundScreens(way), screen((300, 100, 330, 130))
        around.passed(line(screen()))
        made = around.passed(line(other))
        assert (made == line(other)) == (way != "parts")
        assert len(json.loads(made)["result"]["content"]) == kinds
        assert (around.passed(line(other)) == line(other)) == (way == "off")

    def test_hostile_lines(self) -> None:
        """Each line becomes one line of JSON, or stays."""
        around, rng = AroundScreens("parts"), random.Random(2)
        message = json.loads(line(screen(), screen(), screen((300, 100, 330, 130))))
        for _ in range(300):
            one = json.dumps(spoilt(message, rng)).encode() + b"\n"
            made = around.passed(one)
            assert made == one or (made.count(b"\n") == 1 and json.loads(made))

    def test_a_failure_passes_whole(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        around = AroundScreens("parts")
        around.passed(line(screen()))
        with monkeypatch.context() as patch:
            patch.setattr("arr_coc.pixels.frames.next_file", lambda *_: 1 / 0)
            assert around.passed(line(screen())) == line(screen())
        assert "passes as it came" in caplog.text
        assert around.passed(line(screen())) == line(screen())  # what came before is forgotten
        assert UNCHANGED.encode() in around.passed(line(screen()))

    def test_ways_and_rules_are_checked(self) -> None:
        for given in (("some", "32"), ("parts", "nothing")):
            with pytest.raises(ValueError, match="is not known"):
                AroundScreens(*given)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node isn't installed")
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium isn't installed")
@pytest.mark.skipif(
    not (NODE / "@playwright" / "mcp" / "cli.js").is_file(),
    reason="ARR_COC_NODE_MODULES names no folder with @playwright/mcp: npm i @playwright/mcp",
)
def test_around_playwright(tmp_path: Path) -> None:
    """The real server with the real browser: the box that is clicked next is where the caption says."""
    page = "<body style='margin:0;font:20px sans-serif'><h1>Shop</h1>" + "<p>A line of the page.</p>" * 30
    page += "<input type=checkbox style='position:absolute;left:900px;top:300px;width:30px;height:30px'>"
    command = [
        "node",
        str(NODE / "@playwright" / "mcp" / "cli.js"),
        "--headless",
        "--no-sandbox",
        "--isolated",
    ]
    command += ["--executable-path", str(CHROMIUM), "--caps", "vision", "--output-dir", str(tmp_path)]
    command += ["--viewport-size", "1280,860"]
    words = [*AROUND[:-1], " ".join(command), "--screens", "parts", "--for", "claude"]

    async def ask(client: Client) -> dict[str, Any]:
        made: dict[str, Any] = {"tools": [tool.name for tool in (await client.list_tools()).tools]}
        await client.call_tool("browser_navigate", {"url": "data:text/html," + page})
        for name in ("first", "again"):
            made[name] = values(await client.call_tool("browser_take_screenshot", {}))["content"]
        await client.call_tool("browser_mouse_click_xy", {"element": "the box", "x": 915, "y": 315})
        made["checked"] = values(await client.call_tool("browser_take_screenshot", {}))["content"]
        made["snapshot"] = values(await client.call_tool("browser_snapshot", {}))["content"]
        return made

    made = served(words, ask, read_timeout_seconds=120)
    assert {"browser_navigate", "browser_take_screenshot"} <= set(made["tools"])
    assert [part["type"] for part in made["first"]][-1] == "image"
    assert made["again"][-1] == {"type": "text", "text": UNCHANGED}
    caption, part = made["checked"][-2:]
    assert "add " in caption["text"]
    (x, y), image = (
        [int(word) for word in caption["text"].split("add ")[1].split() if word.isdecimal()],
        Image.open(io.BytesIO(base64.b64decode(part["data"]))),
    )
    assert x <= 900 < 930 <= x + image.width
    assert y <= 300 < 330 <= y + image.height
    assert image.width * image.height < 1280 * 860 / 20
    assert "checked" in json.dumps(made["snapshot"])
