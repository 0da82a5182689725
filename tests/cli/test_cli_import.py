"""--import: a module of the user's, imported before the command runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arr_coc.choose.channels import CHANNEL_GROUPS
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, read_layer, save_layer
from arr_coc.files.plugins import plugins
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES
from command_line import run
from tiny import save_tiny, tiny

CHANNELS = """
from arr_coc import ChannelGroup, register_channel_group

register_channel_group(ChannelGroup("glow", 1, "mine", "cheap", lambda context: context.cell_luma))
"""


@pytest.fixture(autouse=True)
def nothing_stays_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What modules of a test register, and the modules, are gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = [(registry, dict(registry)) for registry in (CHANNEL_GROUPS, MODES)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)
    for name in ("my_channels", "my_modes", "my_package", "my_package.rivals"):
        sys.modules.pop(name, None)


def test_an_allocator_names_the_import_that_it_lacks(tmp_path: Path) -> None:
    """Saving it again, the remedy of damaged ones, would help nobody."""
    exec(CHANNELS)
    layer = ARRCOCLayer(ARRCOCConfig(dim=8, channels=("rgb", "position", "glow")))
    save_layer(layer, tmp_path, {"base_model": "m", "base_model_type": "qwen3_vl", "base_dim": 8})
    del CHANNEL_GROUPS["glow"]
    with pytest.raises(ValueError, match=r"'glow'; import it first \(arr-coc --import MODULE \.\.\.\)$"):
        read_layer(tmp_path)
    exec(CHANNELS)
    assert read_layer(tmp_path).config.channels == ("rgb", "position", "glow")


@pytest.mark.slow
def test_a_channel_group_of_the_users(capsys: pytest.CaptureFixture[str], image: str, tmp_path: Path) -> None:
    """An allocator that reads a channel group which only the user's module registers."""
    Path("my_channels.py").write_text(CHANNELS)
    made = tiny("qwen3_vl")
    save_tiny("qwen3_vl", tmp_path / "base")
    exec(CHANNELS)
    dim = made.model.config.get_text_config().hidden_size
    layer = ARRCOCLayer(ARRCOCConfig(dim=dim, channels=("rgb", "position", "glow")))
    wrapped = ARRCOCModel(made.model, made.processor, layer, base_name=str(tmp_path / "base"))
    wrapped.save_pretrained(tmp_path / "mine")
    del CHANNEL_GROUPS["glow"]
    line = ("ask", image, "What is it?", "-m", str(tmp_path / "mine"), "-b", "5", "--strict", "--json")
    code, out, err = run(capsys, *line)
    assert (code, out) == (2, "")
    assert "glow" in err
    code, out, err = run(capsys, "--import", "my_channels", *line)
    assert (code, err) == (0, "")
    assert json.loads(out)["kept"] == 5


MODE = """
from dataclasses import replace
from arr_coc.modes import MODES, PRUNE

MODES["mine"] = replace(PRUNE, name="mine", help="as in prune")
"""


@pytest.mark.slow
def test_a_mode_of_the_users(capsys: pytest.CaptureFixture[str], image: str, base: Path) -> None:
    Path("my_modes.py").write_text(MODE)
    line = (image, "What is it?", "-m", str(base), "-b", "5", "--mode", "mine")
    code, out, err = run(capsys, "ask", *line)
    assert (code, out) == (2, "")
    assert "'--mode': 'mine' is unknown; use one of full, prune" in err
    for command in ("ask", "look"):
        code, out, err = run(capsys, "--import", "my_modes", command, *line, "--json")
        assert (code, err) == (0, "")
    code, out, _ = run(capsys, "--import", "my_modes", "ask", *line, "--json")
    assert (json.loads(out)["mode"], json.loads(out)["kept"]) == ("mine", 5)


def test_several_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_channels.py").write_text("print('first')")
    Path("my_package").mkdir()
    Path("my_package/rivals.py").write_text("print('second')")
    line = ("--import", "my_channels", "--import", "my_package.rivals", "train", "list")
    code, out, _ = run(capsys, *line)
    assert code == 0
    assert out.startswith("first\nsecond\n")


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("my_chanels", "", "module 'my_chanels' does not exist: put it into the current folder"),
        ("my_package.rivals", "", "module 'my_package.rivals' does not exist"),
        ("my_channels", "import no_such_module", "module 'my_channels' needs 'no_such_module'"),
        ("my_channels", "1 / 0", "module 'my_channels' can't be imported (ZeroDivisionError: "),
        ("my_channels", "def", "module 'my_channels' can't be imported (SyntaxError: "),
        (".my_channels", "", "'.my_channels' is no module name"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], name: str, source: str, message: str) -> None:
    Path("my_channels.py").write_text(source)
    code, out, err = run(capsys, "--import", name, "ask", "nope.png", "What?")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_file_there_takes_no_installed_modules_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("colorsys.py").write_text("raise RuntimeError('not the real one')")
    sys.modules.pop("colorsys", None)
    assert run(capsys, "--import", "colorsys", "train", "list")[0] == 0


def test_a_plugin_is_imported_before_the_command_line() -> None:
    """The commands of other distributions import modules of this one, whose package loads commands lazily."""
    names = sorted({point.module for point in plugins("commands").values()})
    code = f"import importlib, sys\n[importlib.import_module(name) for name in {names!r}]\n"
    code += "assert 'arr_coc.cli.entry' not in sys.modules\nfrom arr_coc.cli import main\nmain(['--version'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:8]) == (0, "arr-coc "), done.stderr
