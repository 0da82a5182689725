"""`arr-coc tokens`: what a picture costs at each provider, who refuses it, and bad files in one line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from arr_coc.cli import main
from arr_coc.pixels import RULES
from arr_coc.pixels.limits import LIMITS
from command_line import run, run_json


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def save(name: str, size: tuple[int, int], **settings: object) -> str:
    Image.new("RGB", size, "white").save(name, **settings)
    return name


def test_every_rule_and_every_limit(capsys: pytest.CaptureFixture[str]) -> None:
    facts = run_json(capsys, "tokens", save("page.png", (2560, 1440)))
    assert [one["rule"] for one in facts["rules"]] == [*RULES]
    assert {one["rule"]: one["tokens"] for one in facts["rules"]} == {
        name: rule.tokens(2560, 1440) for name, rule in RULES.items()
    }
    assert [one["limits"] for one in facts["limits"]] == [*LIMITS]
    assert all(one["taken"] for one in facts["limits"])
    many = {one["limits"]: one["refused_among_more_than"] for one in facts["limits"]}
    assert many["claude"] == many["claude-4.6"] == 20
    assert many["openai"] is None


def test_who_refuses_it_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    facts = run_json(capsys, "tokens", save("long.webp", (30, 9000)))
    refused = {one["limits"]: one["refused"] for one in facts["limits"] if not one["taken"]}
    assert refused.keys() == {"claude", "claude-4.6", "grok", "messages", "ollama", "ollama-mllama", "local"}
    assert refused["claude"] == ["a side has more than 8,000 px"]
    assert refused["grok"] == ["WEBP isn't taken: JPEG, PNG are"]
    assert refused["ollama"] == ["it is longer than 200 times its width"]
    code, out, _ = run(capsys, "tokens", "long.webp")
    assert code == 0
    assert "refused: a side has more than 8,000 px" in out


def test_a_table_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "tokens", save("page.png", (1280, 800)), save("other.jpg", (99, 60)))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("page.png")
    assert any(line.startswith("gpt-5.4 ") and "1,200" in line and "detail" in line for line in lines)
    assert any(line.startswith("gemini ") and line.endswith(" media_resolution") for line in lines)
    assert any(line.startswith("gemma-3 ") and line.endswith(" nothing") for line in lines)
    assert sum(line.startswith("accepted by ") for line in lines) == 2
    assert any(line.startswith("other.jpg") for line in lines)


def test_of_one_model(capsys: pytest.CaptureFixture[str]) -> None:
    page = save("page.png", (1280, 800))
    for name, rule in (("claude-opus-5", "claude"), ("gemma3:4b", "gemma-3"), ("28", "square 28")):
        facts = run_json(capsys, "tokens", page, "--for", name)
        assert [one["rule"] for one in facts["rules"]] == [rule]
        assert facts["model_known"]
    facts = run_json(capsys, "tokens", page, "--for", "llava")
    assert not facts["model_known"]
    assert [one["tokens"] for one in facts["rules"]] == [1000]
    assert "llava" in run(capsys, "tokens", page, "--for", "llava")[1]


def test_a_turned_photograph(capsys: pytest.CaptureFixture[str]) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert run_json(capsys, "tokens", save("a.jpg", (300, 100), exif=exif))["size"] == [100, 300]


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path(save("page.png", (640, 480))).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert run_json(capsys, "tokens", "-")["size"] == [640, 480]


@pytest.mark.parametrize(
    "content", [None, b"", b"x", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n", b"\0\0\0\x18ftypheicmeta"]
)
def test_a_bad_file_is_refused_in_one_line(content: bytes | None, capsys: pytest.CaptureFixture[str]) -> None:
    good = save("good.png", (40, 30))
    if content is not None:
        Path("bad\n.png").write_bytes(content)
    code, out, err = run(capsys, "tokens", good, "bad\n.png")
    assert (code, out) == (2, "")  # nothing of the good one either
    assert err.count("\n") == 1
    assert err.startswith("arr-coc: ")


def test_a_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("scans").mkdir()
    code, _, err = run(capsys, "tokens", "scans")
    assert code == 2
    assert "is no file" in err


def test_it_needs_no_torch() -> None:
    page = save("page.png", (640, 480))
    code = (
        "import sys; from arr_coc.cli import main; code = main(['tokens', sys.argv[1], '--json']);"
        "heavy = {'torch', 'transformers', 'starlette'} & set(sys.modules); assert not heavy, heavy;"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, page], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["size"] == [640, 480]
    assert main(["tokens"]) == 2
