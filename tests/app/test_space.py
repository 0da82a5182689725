"""The folder of a Space: its app starts, its front matter is what the Hub reads, nothing is lost.

Run: pytest tests/test_space.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import typer
from huggingface_hub import SpaceCard
from typer.testing import CliRunner

from arr_coc import __version__
from arr_coc.app.space import space_files, write_space
from arr_coc.cli.space import command

pytest.importorskip("gradio", reason="the extra app is not installed")

app = typer.Typer()
app.command()(command)


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


class TestFiles:
    def test_the_app_starts(self, tmp_path: Path) -> None:
        """As the Space imports it; no model is loaded before it is launched."""
        run(str(tmp_path), "--model", "me/mine")
        check = "import gradio, app; assert isinstance(app.demo, gradio.Blocks); print('built')"
        done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.strip() == "built", done.stderr

    def test_front_matter(self) -> None:
        front = SpaceCard(space_files("me/mine", title="Mine: an app")["README.md"]).data.to_dict()
        assert front["title"] == "Mine: an app"
        assert (front["sdk"], front["sdk_version"]) == ("gradio", metadata.version("gradio"))
        assert front["app_file"] in space_files()
        assert front["models"] == ["me/mine"]
        assert len(front["short_description"]) <= 60
        assert "suggested_hardware" not in front
        bundled = SpaceCard(space_files()["README.md"]).data.to_dict()
        assert "models" not in bundled
        assert bundled["suggested_hardware"] == "cpu-basic"

    @pytest.mark.parametrize(
        ("options", "arguments"),
        [((), '"bundled", device="auto", dtype="auto"'),
         (("--device", "cuda", "--dtype", "bfloat16"), '"bundled", device="cuda", dtype="bfloat16"')],
    )  # fmt: skip
    def test_device_and_dtype(self, tmp_path: Path, options: tuple[str, ...], arguments: str) -> None:
        run(str(tmp_path), *options)
        assert f"build_app(model_name={arguments})" in (tmp_path / "app.py").read_text()
        with pytest.raises(ValueError, match="dtype 'int8' is unknown: use auto, float32"):
            space_files(dtype="int8")

    def test_pinned(self) -> None:
        assert space_files()["requirements.txt"] == f"arr-coc[app]=={__version__}\n"

    @pytest.mark.parametrize("name", ["not a name!", 'x"); import os; ("', "a/b/c", "", "."])
    def test_names(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"is no name on the Hub|upload it with push_to_hub"):
            space_files(name)

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is a folder on this disk: upload it with push_to_hub first"):
            space_files(str(tmp_path))

    def test_without_gradio(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("arr_coc.app.find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"pip install 'arr-coc\[app\]'"):
            space_files()


class TestWriting:
    def test_again(self, tmp_path: Path) -> None:
        """The same once more is fine, another is refused as a whole, and other files stay."""
        files = space_files()
        write_space(tmp_path / "space", files)
        write_space(tmp_path / "space", files)
        (tmp_path / "space" / "notes.txt").write_text("mine")
        (tmp_path / "space" / "app.py").write_text("my own app")
        other = files | {"README.md": "new"}
        with pytest.raises(
            ValueError, match=r"has another app\.py, README\.md: choose another folder, or --force"
        ):
            write_space(tmp_path / "space", other)
        assert (tmp_path / "space" / "README.md").read_text() == files["README.md"]
        write_space(tmp_path / "space", other, force=True)
        assert (tmp_path / "space" / "app.py").read_text() == files["app.py"]
        assert (tmp_path / "space" / "notes.txt").read_text() == "mine"

    def test_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match=r"can't be written .*: choose another"):
            write_space(tmp_path / "file" / "space", space_files())

    def test_command(self, tmp_path: Path) -> None:
        facts = json.loads(run(str(tmp_path / "a"), "--json"))
        assert facts == {
            "folder": str(tmp_path / "a"),
            "files": ["app.py", "requirements.txt", "README.md"],
            "model": "bundled",
        }
        assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(facts["files"])
        assert "hf upload USER/NAME" in run(str(tmp_path / "a"), "--force")
