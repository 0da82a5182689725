"""docs/any-model.md: its blocks run against a stand-in that speaks the protocols, its lines are taken."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp.client.stdio  # noqa: F401  (before output is captured: it keeps the standard error of that moment)
import pytest
import typer

from arr_coc.cli.entry import commands
from arr_coc.pixels import frames
from arr_coc.proxy.bodies import BODY_SECONDS, MAX_BODIES, MAX_BODY
from arr_coc.proxy.journal import MAX_BYTES
from arr_coc.proxy.packing import MAX_PIXELS, MAX_VERDICTS, PATIENCE, Packer
from arr_coc.proxy.screens import MAX_SCREENS
from arr_coc.proxy.server import (
    HEAD_SECONDS,
    MAX_CONNECTIONS,
    MAX_PICTURES,
    Proxy,
    ProxySettings,
    server_config,
)
from chat_servers import StandIn, listening
from launching import PACKAGES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "any-model.md").read_text(encoding="utf-8")
COMMANDS: Any = typer.main.get_command(commands)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M)


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, StandIn]]:
    """The proxy with the guide in front of a stand-in."""
    stand_in = StandIn()
    stand_in.go_on.set()
    monkeypatch.chdir(ROOT)
    with listening(stand_in.config) as upstream:
        proxy = Proxy(ProxySettings(upstream), Packer(1, seconds=300))
        with listening(server_config(proxy)) as address:
            yield address, stand_in


@pytest.mark.slow
def test_the_blocks_of_python(
    proxied: tuple[str, StandIn], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, stand_in = proxied
    monkeypatch.setenv("PYTHONPATH", PACKAGES)
    names: dict[str, Any] = {"__name__": "__page__"}
    *clients, agent = blocks("python")
    assert len(clients) == 3
    for number, block in enumerate(clients):
        text = block.replace("http://127.0.0.1:8080", address)
        assert text != block
        exec(compile(text, f"docs/any-model.md, block {number + 1}", "exec"), names)
        out = capsys.readouterr().out
        assert "On the 30th" in out, out
        sent = json.dumps(stand_in.last())
        assert names["picture"] not in sent, "a whole picture went on"
        assert " 1280 x 800 px" in sent
    assert "packed 1 of 1 pictures, " in out
    here = f'command={sys.executable!r}, args=["-m", "arr_coc", "mcp", "docs"], '
    here += f'env={{"PYTHONPATH": {PACKAGES!r}}}'
    text = agent.replace('command="arr-coc", args=["mcp", "docs"]', here)
    assert text != agent
    exec(compile(text, "docs/any-model.md, the agent", "exec"), names)
    assert "image/png" in capsys.readouterr().out


def test_lines_are_taken() -> None:
    """Every line of the two commands, in blocks, tables and settings of agents, is one that they take."""
    lines = re.findall(r"arr-coc (?:proxy|mcp) [^`#\n\[{]+", PAGE)
    servers = [one for block in blocks("json") for one in json.loads(block)["mcpServers"].values()]
    servers += [
        one for block in blocks("toml") for one in tomllib.loads(block).get("mcp_servers", {}).values()
    ]
    assert {one["command"] for one in servers} == {"arr-coc"}
    assert len(servers) == 3
    lines = [shlex.split(line.strip())[1:] for line in lines if "FOLDER" not in line]
    lines += [one["args"] for one in servers]
    assert len(lines) >= 8
    for name, *words in lines:
        COMMANDS.commands[name].make_context(name, words)


NUMBERS = {3: "three", 4: "four", 12: "twelve"}


def test_bounds_are_those_of_the_code() -> None:
    for words in (
        f"bodies up to {MAX_BODY >> 20} MB",
        f"All bodies that wait to be sent on take {MAX_BODIES >> 20} MB",
        f"The head of a request has {HEAD_SECONDS:.0f} seconds to arrive",
        f"a body that is looked into {BODY_SECONDS:.0f}",
        f"{MAX_CONNECTIONS} connections",
        f"for some {MAX_VERDICTS:,} of them",
        f"and small pictures, in memory alone, {MAX_BYTES >> 20} MB",
        f"the first {MAX_PICTURES} pictures of a request, {MAX_PIXELS // 1_000_000} megapixels",
        f"Of a request the first {MAX_PICTURES} pictures are looked at",
        f"has {({10: 'ten'})[PATIENCE]} times as long",
        f"After {NUMBERS[frames.MAX_UNCHANGED]} in a\n  row the pixels come again",
        f"at most {NUMBERS[frames.MAX_PARTS]} rectangles",
        f"one after {NUMBERS[frames.MAX_AGE]} others",
        f"more than {frames.WHOLE_FROM:.0%} of it".replace("%", " %"),
        f"levels that differ by {frames.TOLERANCE} of 255",
        f"a bar at most {frames.CARET_WIDTH} px wide",
        f"({frames.SMALL[0]} x {frames.SMALL[1]} px)",
        f"above {frames.MAX_FRAME_PIXELS // 1_000_000} megapixels",
        f"the first {MAX_SCREENS} of a request",
    ):
        assert words in PAGE
