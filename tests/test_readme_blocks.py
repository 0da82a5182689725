"""README.md, typed from top to bottom: every block runs as it is written.

The Hub is a stand-in on 127.0.0.1 with the bundled model under the name of the checkpoint. Lines get options
behind them that only make them small; installing and make are read, not run.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

import arr_coc
from arr_coc.app import build_app
from arr_coc.files.saved import BUNDLED
from command_line import run
from stand_in import TOKEN, Hub, serve

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ADDRESS = "http://127.0.0.1:7860"
SMALLER: dict[str, tuple[str, ...]] = {
    "draw": ("--size", "320x320"),
    "bench": ("--size", "128", "--rounds", "1", "--modes", "stock,sparse@4"),
    "eval": ("--size", "320", "--questions", "2", "--timed", "0", "--methods", "full,arr-coc,random"),
    "train distill": ("steps=1", "questions=1", "sizes=128"),
}
"""What makes a command quick: options behind those of the page, which they replace."""


class Block(NamedTuple):
    """A fenced block of the page."""

    line: int
    language: str
    text: str


def blocks() -> list[Block]:
    """The blocks in their order."""
    page = README.read_text(encoding="utf-8")
    return [
        Block(page[: match.start()].count("\n") + 1, match[1], match[2])
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M)
    ]


def commands(block: Block) -> list[str]:
    """The lines of a block that is typed into a terminal, without remarks."""
    if block.language or not re.match(r"(arr-coc|make|pip|python3|curl) ", block.text):
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if not line.startswith("#")]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serve(monkeypatch, tmp_path / "cache") as hub:
        hub.add_folder("Qwen/Qwen3-VL-2B-Instruct", BUNDLED / "model")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


def test_the_page_as_it_is_written(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    served: list[Any] = []
    monkeypatch.setattr("arr_coc.app.server.serve", lambda build, *_, **__: served.append(build()))
    names: dict[str, Any] = {}
    ran: list[str] = []
    for block in blocks():
        if ADDRESS in block.text and not commands(block):
            ask_the_app(block)
            ran.append("client")
        elif block.language == "python":
            exec(compile(block.text, f"README.md:{block.line}", "exec"), names)  # as a reader would
            ran.append("python")
        for line in commands(block):
            runner = RUNNERS[shlex.split(line)[0]]
            runner(line, capsys, monkeypatch)
            ran.append(line)
    assert ran.count("python") >= 5
    assert ran.count("client") == 2
    assert sum(line.startswith("arr-coc ") for line in ran) >= 12
    assert len(served) == sum(line.startswith("arr-coc app") for line in ran) >= 3
    assert Path("relevance.png").is_file()
    assert Path("titles.jsonl").read_text().count("\n") == 4


def run_arr_coc(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of ours, with its redirections."""
    line, _, target = line.partition(" > ")
    line, _, source = line.partition(" < ")
    words = shlex.split(line)[1:]
    small = next((more for start, more in SMALLER.items() if " ".join(words).startswith(start)), ())
    if source:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(source.strip()).read_bytes())))
    code, out, err = run(capsys, *words, *small)
    assert code == 0, f"{line}: {err}"
    if target:
        Path(target.strip()).write_text(out)
    if "--out" in words and words[0] == "ask":
        Image.open(words[words.index("--out") + 1]).verify()


def ask_the_app(block: Block) -> None:
    """A block that talks to the app, which runs meanwhile, at a port that is free."""
    app = build_app()
    _, address, _ = app.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
    try:
        text = block.text.replace(ADDRESS, address.rstrip("/"))
        command = [sys.executable, "-c", f"{text}\nprint('done')"] if block.language else ["bash", "-c", text]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert "done" in ended.stdout if block.language else '"answer"' in ended.stdout, ended.stderr
    finally:
        app.close(verbose=False)


def check_make(line: str, *_: object) -> None:
    """A target that the Makefile has."""
    for target in shlex.split(line)[1:]:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), line


def check_install(line: str, *_: object) -> None:
    """Extras that the package has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"'\.\[(.+?)\]'", line):
        assert set(names.split(",")) <= set(extras), line


RUNNERS: dict[str, Callable[..., None]] = {
    "arr-coc": run_arr_coc,
    "make": check_make,
    "pip": check_install,
    "python3": check_install,
}


def test_every_link_leads_somewhere() -> None:
    for name in (
        "README.md",
        "docs/RESULTS.md",
        "docs/ARCHITECTURE.md",
        "docs/EXTENDING.md",
        "docs/HARNESSES.md",
    ):
        page = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)", page):
            assert not target or (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"
        for file, anchor in re.findall(r"\]\(([^):]*)#([^)]+)\)", page):
            text = (ROOT / name).parent.joinpath(file).read_text(encoding="utf-8") if file else page
            anchors = {
                re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
                for head in re.findall(r"^#+ (.+)$", text, re.M)
            }
            assert anchor in anchors, f"{name}: #{anchor}"


def test_every_term_is_explained_where_it_first_occurs() -> None:
    page = README.read_text(encoding="utf-8")
    for term in ("information", "saliency", "coupling", "stem", "gestalt", "saccades"):
        first = re.search(rf"\b{term}\b", page)
        assert first is not None
        assert page[first.start() - 1] == "*", f"{term} is not set off at its first use"


def test_its_names_are_those_of_the_package() -> None:
    page = README.read_text(encoding="utf-8")
    for name in set(re.findall(r"^from arr_coc import (\w+)$", page, re.M)):
        assert name in arr_coc.__all__
