"""The MCP server, asked through the SDK's own client over stdio, and the folders that it keeps to."""

from __future__ import annotations

import base64
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from PIL import Image

from arr_coc import mcp as server
from arr_coc.guide.lines import PrintedLine
from arr_coc.mcp import Folders, PictureTools, build_server
from command_line import run
from launching import PACKAGES

ROOT = Path(__file__).parents[1]
QUESTION = "When will the parcel arrive?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page, below another one with a secret."""
    outer = tmp_path_factory.mktemp("outer")
    (outer / "shots" / "deep").mkdir(parents=True)
    (outer / "beside").mkdir()
    Image.new("RGB", (64, 64), "red").save(outer / "secret.png")
    shutil.copy(outer / "secret.png", outer / "beside" / "secret.png")
    shots = outer / "shots"
    shutil.copy(ROOT / "docs" / "order.png", shots / "order.png")
    shutil.copy(shots / "order.png", shots / "deep" / "order.png")
    (shots / "notes.txt").write_text("these are notes")
    (shots / "link.png").symlink_to(outer / "secret.png")
    (shots / "beside").symlink_to(outer / "beside")
    (shots / "own.png").symlink_to(shots / "order.png")
    (shots / "loop.png").symlink_to(shots / "loop.png")
    os.mkfifo(shots / "pipe.png")
    return shots


class TestFolders:
    def test_files_below_are_opened(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = (folder / "order.png").read_bytes()
        folders = Folders([folder])
        names = ("order.png", "deep/order.png", "deep/../order.png", "own.png", str(folder / "order.png"))
        for name in names:
            assert folders.read(name) == content
        monkeypatch.chdir(folder.parent)
        assert folders.read("shots/order.png") == content
        assert Folders(["beside", "shots"]).read("order.png") == content

    @pytest.mark.parametrize(
        "name",
        ["../secret.png", "link.png", "beside/secret.png", "/etc/passwd", "~/.bashrc", "../../x.png",
         "../none.png", "/", "..", "", "\x00", "loop.png", "pipe.png", "deep", "none.png", "~nosuchuser/x",
         "x" * 5000, "\udc80", "file:///etc/passwd", "https://example.org/a.png"],
    )  # fmt: skip
    def test_others_are_refused(self, folder: Path, name: str) -> None:
        with pytest.raises(ValueError, match=r"path .*: "):
            Folders([folder]).read(name)

    def test_what_lies_elsewhere_isnt_told(self, folder: Path) -> None:
        """Of a path outside the answer is the same whether anything is there or not."""
        messages = []
        for name in ("../secret.png", "../absent.png"):
            with pytest.raises(ValueError, match="not below") as error:
                Folders([folder]).read(name)
            messages.append(str(error.value).replace(name, ""))
        assert messages[0] == messages[1]

    def test_a_file_that_becomes_a_link_while_it_is_opened(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.png").write_bytes(b"own")
        real = os.open

        def swapped(path: Any, *rest: Any) -> int:
            (tmp_path / "a.png").unlink()
            (tmp_path / "a.png").symlink_to(folder.parent / "secret.png")
            monkeypatch.setattr(os, "open", real)
            return real(path, *rest)

        monkeypatch.setattr(os, "open", swapped)
        with pytest.raises(ValueError, match=r"cannot be read|changed"):
            Folders([tmp_path]).read("a.png")

    def test_a_folder_has_to_be_there(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        for words in (["none"], [str(folder / "order.png")], ["\x00"]):
            code, out, err = run(capsys, "mcp", *words)
            assert (code, out, err.count("\n")) == (2, "", 1)
        with pytest.raises(ValueError, match="no folder"):
            Folders([])
        with pytest.raises(ValueError, match="rule"):
            build_server([folder], "gpt-0")


def test_pictures_are_opened_one_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, locked = PictureTools(Folders([folder])), []

    def picture(path: str, page: int | None = None) -> Image.Image:
        locked.append(tools._lock.locked())
        raise ValueError("seen")

    monkeypatch.setattr(tools, "picture", picture)
    monkeypatch.setattr(server, "rapid_ocr", lambda: lambda pixels: [])
    for tool in (tools.look_at, tools.where, tools.read):
        with pytest.raises(ValueError, match="seen"):
            tool("order.png", QUESTION)
    assert locked == [True] * 3


def served(folder: Path, ask: Callable[[Client], Any]) -> Any:
    """What a client says of a server in a process of its own."""

    async def asking() -> Any:
        environment = os.environ | {"PYTHONPATH": PACKAGES}
        words = ["-m", "arr_coc", "mcp", str(folder)]
        parameters = StdioServerParameters(command=sys.executable, args=words, env=environment)
        async with Client(stdio_client(parameters)) as client:
            return await ask(client)

    return anyio.run(asking)


@pytest.mark.slow
def test_an_agent_asks_through_the_sdks_client(folder: Path) -> None:
    async def ask(client: Client) -> dict[str, Any]:
        listed = await client.list_tools()
        calls = {
            "look_at": ("look_at", {"path": "order.png", "question": QUESTION, "tokens": 100}),
            "where": ("where", {"path": "order.png", "question": QUESTION}),
            "elsewhere": ("look_at", {"path": "/etc/passwd", "question": QUESTION}),
            "notes": ("look_at", {"path": "notes.txt", "question": QUESTION}),
            "tokens": ("look_at", {"path": "order.png", "question": QUESTION, "tokens": 0}),
            "question": ("where", {"path": "order.png", "question": " "}),
            "page": ("where", {"path": "order.png", "question": QUESTION, "page": 2}),
        }
        answers: dict[str, Any] = {"tools": sorted(tool.name for tool in listed.tools)}
        for name, (tool, arguments) in calls.items():
            answers[name] = await client.call_tool(tool, arguments)
        return answers

    answers = served(folder, ask)
    assert answers["tools"] == ["look_at", "read", "where"]
    look = answers["look_at"]
    assert not look.is_error
    head, *parts = look.content
    assert head.text.startswith("1280 x 800 px, ")
    assert len(parts) >= 2
    for caption, image in zip(parts[::2], parts[1::2], strict=True):
        assert caption.text.endswith(".")
        assert image.mime_type == "image/png"
        assert Image.open(io.BytesIO(base64.b64decode(image.data))).width > 8
    where = answers["where"].structured_content
    assert where["size"] == [1280, 800]
    scores = [box["score"] for box in where["boxes"]]
    assert scores == sorted(scores, reverse=True)
    assert all(
        0 <= x0 < x1 <= 1280 and 0 <= y0 < y1 <= 800 for x0, y0, x1, y1 in (b["box"] for b in where["boxes"])
    )
    for name, word in (("elsewhere", "not below"), ("notes", "not an image"), ("tokens", "give 1 to"),
                       ("question", "the question is empty"), ("page", "no page 2")):  # fmt: skip
        assert answers[name].is_error, name
        assert word in answers[name].content[0].text


class TestReading:
    def test_what_is_kept_alone_is_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The OCR gets the picture with all but whole lines of kept cells flat, in the picture's own px."""
        pages: list[np.ndarray] = []

        def read(pixels: np.ndarray) -> list[PrintedLine]:
            pages.append(pixels)
            return [PrintedLine("second", (10, 50, 60, 70)), PrintedLine("first", (9.6, 20, 60, 40))]

        monkeypatch.setattr(server, "rapid_ocr", lambda: read)
        tools = PictureTools(Folders([folder]))
        lines = tools.read("order.png", QUESTION)
        assert [line.text for line in lines] == ["first", "second"]
        assert lines[0].box == (10, 20, 60, 40)
        flat = (pages[0] == 128).all(-1)
        assert pages[0].shape == (800, 1280, 3)
        assert 0.2 < flat.mean() < 0.95
        original = np.asarray(Image.open(folder / "order.png").convert("RGB"))
        assert (pages[0][~flat] == original[~flat]).all()
        tools.read("order.png", "Read the page aloud.")
        assert (pages[1] == original).all()

    def test_without_an_ocr_it_says_how_to_get_one(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing() -> None:
            raise ValueError("relevance 'ocr' needs an OCR: pip install it")

        monkeypatch.setattr(server, "rapid_ocr", missing)
        with pytest.raises(ValueError, match="pip install"):
            PictureTools(Folders([folder])).read("order.png", QUESTION)
