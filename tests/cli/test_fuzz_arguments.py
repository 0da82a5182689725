"""Hostile command lines, drawn from a seed: whatever is typed, the answer is a result or one line.

The law of each line: exit code 0 or 2; on stderr at most one line, which begins with "arr-coc: ", is shorter
than 1000 characters and holds no control character; nothing on stdout at 2; no file but where one was asked
for.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from arr_coc.cli import commands, inputs, main
from command_line import run
from tiny import picture

LINES = 200
"""Lines drawn for the whole test; one model is loaded for all of them."""

NUMBERS = [
    "0", "-1", "-0", "1", "2", "1.0", "0.25", "nan", "-nan", "inf", "-inf", "1e999",
    "1e-999", "0x10", "1_0", "٣", "½", "9" * 30, "9" * 5000, "-" + "9" * 400, "1/2",
    "0/0", "1" + "\u202e" + "2", " 7 ", "auto",
]  # fmt: skip
TEXTS = [
    "", " ", "\n", "\t\r\n", "-", "--", "---", "--x", "=", ",", ",,", "@", "stock@",
    "prune@", "prune@nan", "@64", "x" * 300, "y" * 20_000, "a/" * 3000, "\x00",
    "a\x00b", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "\x7f",
    "\u202eexe.png", "\u2066x\u2069", "\ufeff", "\u2028line", "é", "e\u0301", "日本語",
    "👩‍👩‍👧", "\U0010ffff", "\udc80", "bad\udcffname.png", "\ud800", "[red]x[/red]",
    "[/b]", "[link=https://a.example]x[/link]", "{0}", "%s%n", "$(id)", "`id`", "; ls",
    "../../..", "https://a.example/x.png", "file:///x.png", "data:;base64,AA==", "x=y",
    "mode=prune", "NUL", "aux.png", "None", "null", "true", "*", "?", "a\\b", "'", '"',
    "'\"",
]  # fmt: skip
PATHS = [
    "~nosuchuser", "~nosuchuser/a.png", "~\x00", "files", "files/", "files/photo.png",
    "files/photo.png/x.png", "files/notes.png", "files/empty.png", "files/folder.png",
    "files/loop.png", "files/pipe.png", "files/cut.png", "files/deep.json",
    "files/deep.jsonl", "files/deep.toml", "files/deep.safetensors", "files/list.json",
    "files/deepmodel", "files/\x1b[2Jred.png", "files/photo.txt", "none.png",
    "none.safetensors", "none.html", "none/a.png", "none/a.safetensors", "none/a.html",
    "/proc/a.png", "/proc/self/mem", "/dev/full", "/dev/zero", "/dev/null",
    "x" * 300 + ".png", "d/" * 2000 + "a.png", "\udc80.png", "\ud800.png", ".png", "..",
    "a\nb.png",
]  # fmt: skip
VALUES = NUMBERS + TEXTS + PATHS
WRITES = {"--out", "-o", "--save", "--trace"}
NEVER = {"--install-completion", "--show-completion", "--help", "--version"}
"""Options that write to the user's home, or end the line before anything is read."""
USUAL = {"arr-coc-ask.png", "arr-coc-crop", "arr-coc-look.png", "arr-coc-pages", "arr-coc-view.html"}
"""What commands write when nothing else is said."""
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(autouse=True)
def with_hostile_files(in_a_folder_of_its_own: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of every wrong kind, in a folder of the current one; and no other home, network or server."""
    files = Path("files")
    (files / "folder.png").mkdir(parents=True)
    (files / "deepmodel").mkdir()
    picture(1, (64, 48)).save(files / "photo.png")
    data = (files / "photo.png").read_bytes()
    deep = "[" * 200_000
    header = b'{"__metadata__":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
    for name, content in {
        "\x1b[2Jred.png": data,
        "photo.txt": data,
        "cut.png": data[: len(data) // 2],
        "notes.png": b"these are notes",
        "empty.png": b"",
        "deep.json": deep.encode(),
        "deep.jsonl": deep.encode() + b"\n",
        "deep.toml": f"x = {deep}".encode(),
        "deep.safetensors": len(header).to_bytes(8, "little") + header,
        "deepmodel/config.json": deep.encode(),
        "deepmodel/arr_coc_config.json": deep.encode(),
        "deepmodel/model.safetensors": b"",
        "list.json": b"[1, 2]",
    }.items():
        (files / name).write_bytes(content)
    (files / "loop.png").symlink_to("loop.png")
    os.mkfifo(files / "pipe.png")
    import matplotlib.font_manager  # it writes its list of fonts into the home that it finds

    assert matplotlib.font_manager.fontManager
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("arr_coc.app.launch", lambda **_: None)
    monkeypatch.setattr("arr_coc.proxy.server.serve", lambda *_: None)
    monkeypatch.setattr("arr_coc_lab.teaching.filling.fill_all", lambda *_: iter(()))  # renders for minutes


@pytest.fixture
def one_model(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model is loaded for the first line that is to be answered, and serves all."""
    load = inputs.load_model
    whole = cache(lambda: load(folder, "cpu", "auto", True))

    def lend(name: str, device: str, dtype: str, quiet: bool, **settings: Any) -> Any:
        plain = name == folder and device in ("auto", "cpu") and settings.get("allocator") is None
        return whole() if plain else load(name, device, dtype, quiet, **settings)

    monkeypatch.setattr(inputs, "load_model", lend)


def parameters() -> dict[str, tuple[list[str], list[str], int]]:
    """By command: options that take a value, flags, and how many arguments it takes at most."""
    import typer

    root: Any = typer.main.get_command(commands)
    kinds = {}
    for name, command in root.commands.items():
        options = [p for p in command.params if p.param_type_name == "option"]
        taking = [word for p in options if not p.is_flag for word in p.opts if word not in NEVER]
        flags = [word for p in options if p.is_flag for word in p.opts if word not in NEVER]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        kinds[name] = (taking, flags, sum(1 if p.nargs == 1 else 3 for p in arguments))
    return kinds


def drawn(seed: int, folder: str) -> Iterator[list[str]]:
    """Command lines, with a good model where a bad one isn't the point."""
    draw, kinds = random.Random(seed), parameters()
    for number in range(LINES):
        name = list(kinds)[number % len(kinds)]
        taking, flags, most = kinds[name]
        words = [name]
        model = {"eval": "./nowhere", "bench": "./nowhere"}.get(
            name, folder
        )  # those would measure for minutes
        if "--model" in taking and name != "app":
            words += ["--model", model if draw.random() < 0.9 or model != folder else draw.choice(VALUES)]
        words += ["--size", "64x64", "-n", "1"] if name == "draw" else []
        if name in ("ask", "look") and draw.random() < 0.7:
            words += [draw.choice(PATHS) if draw.random() < 0.6 else "files/photo.png"]
            words += [draw.choice(["What?", *TEXTS])]
            words += ["--json"] if draw.random() < 0.9 else []
        else:
            words += [draw.choice(VALUES) for _ in range(draw.randint(0, most))]
        for _ in range(draw.randint(0, 2)):
            option = draw.choice([option for option in taking if option not in ("--model", "-m")] or [""])
            value = draw.choice(PATHS if option in WRITES and draw.random() < 0.7 else VALUES)
            words += [f"{option}={value}"] if draw.random() < 0.2 and option[:2] == "--" else [option, value]
        words += [flag for flag in flags if draw.random() < 0.1]
        if draw.random() < 0.05:
            words = ["--import", draw.choice(VALUES), *words]
        if draw.random() < 0.05:
            words.insert(draw.randrange(len(words)), draw.choice(VALUES))
        yield words


def files() -> dict[str, bytes]:
    """Everything below the current folder and the home."""
    regular = [path for place in (Path(), Path.home()) for path in place.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in regular}


def broken_laws(words: list[str], code: int, out: str, err: str, new: set[str]) -> list[str]:
    """What a line did that none may do."""
    faults = []
    if code not in (0, 2):
        faults.append(f"exit code {code}")
    if err and not err.startswith("arr-coc: "):
        faults.append("stderr is not from here")
    if err.count("\n") > 1 or len(err) >= 1000 or "Traceback" in err:
        faults.append("stderr is not one short line")
    if CONTROL.search(err) or CONTROL.search(out):
        faults.append("a control character")
    if code == 2 and (out or not err or new):
        faults.append(f"refused, and yet there is stdout, {sorted(new)}, or no reason")
    values = {str(Path(word.partition("=")[2] or word)) for word in words if "\x00" not in word}
    places = values | set(words) | USUAL
    if strays := {path for path in new if not any(path == p or path.startswith(f"{p}/") for p in places)}:
        faults.append(f"wrote {sorted(strays)}")
    return faults


@pytest.mark.slow
@pytest.mark.usefixtures("one_model")
def test_every_line_ends_in_a_result_or_one_line(capsys: pytest.CaptureFixture[str], folder: str) -> None:
    codes, faults = [], []
    before = files()
    for words in drawn(20_26, folder):
        code, out, err = run(capsys, *words)
        after = files()
        new = {path for path in after if after[path] != before.get(path)}
        before = after
        codes.append(code)
        faults += [(fault, words, err[-300:]) for fault in broken_laws(words, code, out, err, new)]
        if code == 0 and "--json" in words:
            for line in out.splitlines():
                json.loads(line)
    assert not faults, "\n".join(map(repr, faults[:20])) + f"\n{len(faults)} faults"
    assert 8 < codes.count(0) < LINES - 60  # both sides of the law were tried


@pytest.mark.slow
def test_a_line_without_a_command_is_held_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for value in VALUES:
        if value in ("--", "*", "?"):
            continue
        code = main([value])
        out, err = capsys.readouterr()
        assert not broken_laws([value], code, "" if code == 0 else out, err, set()), value
