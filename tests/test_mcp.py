"""The MCP server, asked through the SDK's own client over stdio, and the folders that it keeps to."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from cachetools import LRUCache
from mcp import Client, StdioServerParameters, stdio_client
from PIL import Image, ImageDraw, ImageFont

from arr_coc import mcp as server
from arr_coc.guide.coupling import GuideSource
from arr_coc.guide.trust import SURE
from arr_coc.mcp import Folders, PictureTools, build_server
from arr_coc.pixels import find_page
from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.ocr import OcrSource
from arr_coc.relevance.source import SumSource
from arr_coc.selector import Selector
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

    def test_blanks_accents_and_addresses(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name as an agent writes it finds the file, and never one outside."""
        place = tmp_path / "Bildschirm\u202ffotos"
        (place / "Cafe\u0301").mkdir(parents=True)
        names = ("shot at 9.05.11\u202fAM.png", "Cafe\u0301/Men\u00fc\u00a01.png", "a%20b#c.png")
        for name in names:
            (place / name).write_bytes(name.encode())
        folders = Folders([place])
        for asked, name in (
            ("shot at 9.05.11 AM.png", names[0]),
            ("shot at 9.05.11\u00a0AM.png", names[0]),
            ("Caf\u00e9/Menu\u0308 1.png", names[1]),
            (f"{tmp_path}/Bildschirm fotos/Caf\u00e9/Men\u00fc 1.png", names[1]),
            ((place / names[0]).as_uri(), names[0]),
            (f"FILE://localhost{(place / names[2]).as_uri()[7:]}", names[2]),
            (f"file:{(place / names[1]).as_uri()[7:]}", names[1]),
        ):
            assert folders.read(asked) == name.encode(), asked
        secret = tmp_path / "secret\u202f1.png"
        secret.write_bytes(b"secret")
        (place / "out\u202f1.png").symlink_to(secret)
        (place / "up\u202f1").symlink_to(tmp_path)
        outside = ("../secret 1.png", "out 1.png", "up 1/secret 1.png", secret.as_uri(), "file://host/a.png")
        monkeypatch.chdir(tmp_path)
        for asked in (*outside, "secret 1.png"):
            with pytest.raises(ValueError, match=r"not below|no file below|another machine"):
                folders.read(asked)
        (place / "shot at 9.05.11\u2009AM.png").write_bytes(b"another")
        assert folders.read(names[0]) == names[0].encode()
        with pytest.raises(
            ValueError, match=r"may be .*\\u2009AM.png' and .*\\u202fAM.png': give the very name"
        ):
            folders.read("shot at 9.05.11 AM.png")

    def test_what_there_is_the_newest_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "deep").mkdir()
        for age, name in enumerate(("b.png", "deep/a.PDF", "c.jpg", ".hidden.png", "notes.txt")):
            (tmp_path / name).write_bytes(b"x" * (age + 1))
            os.utime(tmp_path / name, (1000 - age, 1000 - age))
        (tmp_path / "link.png").symlink_to("/etc/passwd")
        (tmp_path / "up").symlink_to("/")
        folders = Folders([tmp_path, tmp_path / "deep"])
        newest, more = folders.newest(9)
        shown = [(path.relative_to(tmp_path).as_posix(), facts.st_size) for path, facts in newest]
        assert (shown, more) == ([("b.png", 1), ("deep/a.PDF", 2), ("c.jpg", 3)], False)
        assert [path.name for path, _ in folders.newest(1)[0]] == ["b.png"]
        assert folders.newest(1)[1]
        monkeypatch.setattr(server, "MAX_SEEN", 2)
        assert folders.newest(9)[1]

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

    def test_a_folder_has_to_be_there(
        self, capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir("/")
        with pytest.raises(ValueError, match=r"'screenshots' is not there in '/', .*: give the whole path"):
            Folders(["screenshots"])
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


def test_a_photograph_on_which_nothing_is_found_goes_whole(tmp_path: Path) -> None:
    """Parts of it, enlarged, would leave less for all of it."""
    blobs = np.random.default_rng(1).integers(0, 256, (9, 16, 3)).astype(np.uint8)
    Image.fromarray(blobs).resize((1600, 900), Image.Resampling.BICUBIC).save(tmp_path / "photo.jpg")
    made = PictureTools(Folders([tmp_path]), "claude").look_at("photo.jpg", "What bird is this?")
    assert (made.layout, len(made.pictures)) == ("shrunk", 1)
    assert 350 < made.tokens <= 400
    assert made.confidence is not None
    assert made.confidence < SURE


def typed(folder: Path) -> list[str]:
    """What server.json, the entry of the MCP registry, has a client type behind `arr-coc`."""
    (package,) = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))["packages"]
    words: list[str] = []
    for one in package["packageArguments"]:
        value = one.get("value") or one.get("default") or str(folder)
        words += [one["name"], value] if one["type"] == "named" else [value]
    return words


def served(folder: Path, ask: Callable[[Client], Any]) -> Any:
    """What a client says of a server in a process of its own."""

    async def asking() -> Any:
        environment = os.environ | {"PYTHONPATH": PACKAGES}
        words = ["-m", "arr_coc", *typed(folder)]
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
            "missing": ("where", {"path": "order.png"}),
            "unknown": ("look_at", {"path": "order.png", "question": QUESTION, "token": 4}),
            "kind": ("read", {"path": 7, "question": QUESTION}),
            "nothing": ("look_at", {}),
            "list": ("list", {"most": 2}),
            "most": ("list", {"most": 0}),
        }
        answers: dict[str, Any] = {"tools": sorted(tool.name for tool in listed.tools)}
        for name, (tool, arguments) in calls.items():
            answers[name] = await client.call_tool(tool, arguments)
        return answers

    answers = served(folder, ask)
    assert answers["tools"] == ["list", "look_at", "read", "where"]
    listed = answers["list"].structured_content
    assert {Path(file["path"]).name for file in listed["files"]} <= {"order.png"}
    assert all(file["bytes"] == (folder / "order.png").stat().st_size for file in listed["files"])
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
                       ("question", "the question is empty"), ("page", "no page 2"),
                       ("missing", "'question' is missing"), ("unknown", "did you mean 'tokens'"),
                       ("kind", "'path' is 7"), ("nothing", "'path' is missing"),
                       ("most", "give 1 to")):  # fmt: skip
        assert answers[name].is_error, name
        assert word in answers[name].content[0].text
        assert "\n" not in answers[name].content[0].text


def test_a_trained_selector_serves_agents_too(folder: Path) -> None:
    """An allocator's layer decides most questions, and then there is no coupling and no note."""
    found = PictureTools(Folders([folder]), selector=Selector.from_pretrained("bundled", relevance="trained"))
    where = found.where("order.png", QUESTION)
    assert where["boxes"]
    assert "note" not in where


TABLE = (
    ("Service", "Region", "p95 latency", "Status"),
    ("auth-gateway", "eu-west-1", "31 ms", "Healthy"),
    ("billing-core", "us-east-1", "212 ms", "Healthy"),
    ("catalog-search", "us-east-2", "871 ms", "Degraded"),
    ("checkout-api", "eu-west-1", "94 ms", "Healthy"),
)


def drawn(cells: Sequence[Sequence[str]], path: Path) -> list[PrintedLine]:
    """A ruled table that is saved as a picture, with its head on a ground of its own, and its lines."""
    image = Image.new("RGB", (960, 480), "white")
    canvas, lines = ImageDraw.Draw(image), []
    font = ImageFont.load_default(16)
    for number, row in enumerate(cells):
        top = 40 + 48 * number
        fill = "#dfe3ea" if len(cells) > 1 and not number else "white"
        canvas.rectangle((40, top, 920, top + 48), fill=fill, outline="#bbbbbb")
        for column, text in enumerate(row):
            at = (60 + 220 * column, top + 14)
            canvas.text(at, text, font=font, fill="black")
            x0, y0, x1, y1 = canvas.textbbox(at, text, font=font)
            lines.append(PrintedLine(text, (float(x0), float(y0), float(x1), float(y1))))
    image.save(path)
    return lines


class TestReading:
    def test_a_tables_rows_come_whole_the_best_first(self, tmp_path: Path) -> None:
        """Each cell but the first has the head of its column; the OCR of `where` is that of `read`."""
        lines = drawn(TABLE, tmp_path / "table.png")
        pages: list[np.ndarray] = []

        def ocr(pixels: np.ndarray) -> list[PrintedLine]:
            pages.append(pixels)
            return [
                PrintedLine(text, (x0 - 5, y0 - 12, x1 + 5, y1 + 12))
                for text, (x0, y0, x1, y1) in lines[::-1]
            ]

        source = SumSource([GuideSource(), OcrSource(read=ocr, sentences="table")])
        tools = PictureTools(Folders([tmp_path]), selector=Selector(relevance=source))
        tools.where("table.png", "p95 latency of catalog-search?")
        rows = tools.read("table.png", "p95 latency of catalog-search?")
        whole = "catalog-search | Region: us-east-2 | p95 latency: 871 ms | Status: Degraded"
        assert rows[0].text == whole
        boxes = [line.box for line in lines[12:16]]
        top, bottom = min(box[1] for box in boxes) - 12, max(box[3] for box in boxes) + 12
        assert rows[0].box == (boxes[0][0] - 5, top, boxes[3][2] + 5, bottom)
        texts = [row.text for row in rows]
        assert len(set(texts)) == len(texts)
        heads = TABLE[0][1:]
        known = {" | ".join((row[0], *map(": ".join, zip(heads, row[1:], strict=True)))) for row in TABLE[1:]}
        assert set(texts) <= known
        assert len(pages) == 1

    def test_a_label_with_its_value_and_wrapped_text(self, tmp_path: Path) -> None:
        """A row alone has no heads; stacked lines of a cell are read from the top."""
        lines = drawn([("Total", "42.10")], tmp_path / "total.png")
        page = find_page(Image.open(tmp_path / "total.png"))
        printed = server._Printed(tuple(lines), replace(page, lines=tuple(line.box for line in lines)))
        allocation = Selector(relevance="guide")(tmp_path / "total.png", "What is the total?")
        assert [row.text for row in printed.needed(allocation)] == ["Total | 42.10"]
        two = drawn([("Item", "Price"), ("Shipping", "4.95"), ("Total", "42.10")], tmp_path / "two.png")
        layout = replace(find_page(Image.open(tmp_path / "two.png")), lines=tuple(line.box for line in two))
        assert layout.headers[5] == 1
        assert server._Printed(tuple(two), layout)._row((4, 5)).text == "Total | 42.10"
        (x0, y0, x1, y1), value = lines[0].box, lines[1]
        wrapped = (
            PrintedLine("Total", (x0 + 4, y0 - 10, x1, y0 + 2)),
            PrintedLine("(net)", (x0, y0 + 3, x1, y1)),
            value,
        )
        printed = server._Printed(wrapped, replace(page, lines=tuple(line.box for line in wrapped)))
        assert printed._row((1, 0, 2)).text == "Total (net) | 42.10"

    def test_an_ocrs_margin_is_not_part_of_the_layout(self) -> None:
        """Ink bounds a box where it is near its sides; an OCR may see more than the ink that was found."""
        for ink, box in (
            ((14.0, 18.0, 104.0, 33.0), (14.0, 18.0, 104.0, 33.0)),
            ((60.0, 18.0, 300.0, 33.0), (20.0, 18.0, 110.0, 33.0)),
            ((14.0, 118.0, 104.0, 133.0), (10.0, 10.0, 110.0, 40.0)),
        ):
            assert server._trimmed((10.0, 10.0, 110.0, 40.0), np.array([ink])) == box

    def test_the_best_row_comes_first_from_one_reading(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without an OCR in the source, RapidOCR reads a picture once; lines of no unit are left out."""
        pages: list[np.ndarray] = []
        lines = [PrintedLine(f"line {y}", (100.4, float(y), 1100.0, y + 20.0)) for y in range(0, 800, 40)]

        def read(pixels: np.ndarray) -> list[PrintedLine]:
            pages.append(pixels)
            return lines

        monkeypatch.setattr(server, "rapid_ocr", lambda: read)
        tools = PictureTools(Folders([folder]), selector=Selector(relevance="guide"))
        first = tools.read("order.png", QUESTION)
        assert 0 < len(first) < len(lines)
        allocation = tools.selector(folder / "order.png", QUESTION)
        kept = (allocation.balanced * allocation.mask())[0, :, 3:35]
        best = max(lines, key=lambda line: float(kept[int((line.box[1] + 10) / 32)].max()))
        assert best.text in first[0].text
        aloud = tools.read("order.png", "Read the page aloud.")
        assert [line.text for line in aloud] == [line.text for line in lines]
        assert aloud[1].box == (100, 40, 1100, 60)
        assert (pages[0] == np.asarray(Image.open(folder / "order.png").convert("RGB"))).all()
        assert len(pages) == 1
        tools.read("order.png", "What is the total?")
        assert len(pages) == 1
        (known_bytes,) = (one.nbytes for one in tools._printed.values())
        tools._printed = LRUCache(1.5 * known_bytes, attrgetter("nbytes"))  # bounded: the first is forgotten
        for name in ("order.png", "other.png", "order.png"):
            Image.new("RGB", (1280, 800), "red").save(folder / "other.png")
            tools.read(name, QUESTION)
        (folder / "other.png").unlink()
        assert len(pages) == 4

    def test_without_an_ocr_it_says_how_to_get_one(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing() -> None:
            raise ValueError("relevance 'ocr' needs an OCR: pip install it")

        monkeypatch.setattr(server, "rapid_ocr", missing)
        with pytest.raises(ValueError, match="pip install"):
            PictureTools(Folders([folder]), selector=Selector(relevance="guide")).read("order.png", QUESTION)
