"""The folder of a Space: its app starts, its front matter is what the Hub reads, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
from huggingface_hub import SpaceCard
from packaging.requirements import Requirement
from typer.testing import CliRunner

from arr_coc import __version__
from arr_coc.app import space as writer
from arr_coc.app.space import requirements, source_files, space_files, write_space
from arr_coc.cli.app import space
from disks import contents, small_files

pytest.importorskip("gradio", reason="the extra app is not installed")

ROOT = Path(__file__).parents[2]
app = typer.Typer()
app.command()(space)


def text(name: str, *arguments: str, **settings: Any) -> str:
    """One file of a Space that is text."""
    return str(space_files(*arguments, **settings)[name])


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


class TestFiles:
    @pytest.mark.slow
    def test_the_app_starts(self, tmp_path: Path) -> None:
        """As the Space imports it; no model is loaded before it is launched."""
        run(str(tmp_path), "--model", "me/mine")
        check = "import gradio, app; assert isinstance(app.demo, gradio.Blocks); print('built')"
        done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1:] == ["built"], done.stderr

    @pytest.mark.slow
    def test_it_runs_from_the_package_it_carries(self, tmp_path: Path) -> None:
        """As in a Space, where no other arr-coc is: code and weights come from the folder."""
        run(str(tmp_path))
        check = (
            "import sys; from pathlib import Path\n"
            "sys.path = ['', *(p for p in sys.path if not (Path(p) / 'arr_coc').is_dir())]\n"
            "import app, arr_coc\n"
            "from arr_coc.app.space import space_files\n"
            "from arr_coc.files.saved import BUNDLED\n"
            "assert Path(arr_coc.__file__).parents[1] == Path.cwd(), arr_coc.__file__\n"
            "answer = app.demo.models.submit(lambda m: m.ask(BUNDLED / 'sample.png', 'What is the title?'))\n"
            "print('answered', bool(answer.result().text))"
        )
        done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1:] == ["answered True"], done.stderr
        assert done.stdout.startswith("a GPU: ")

    def test_front_matter(self) -> None:
        front = SpaceCard(text("README.md", "me/mine", title="Mine: an app")).data.to_dict()
        assert front["title"] == "Mine: an app"
        assert (front["sdk"], front["sdk_version"]) == ("gradio", metadata.version("gradio"))
        assert front["app_file"] in space_files()
        assert front["models"] == ["me/mine"]
        assert len(front["short_description"]) <= 60
        assert front["suggested_hardware"] == "a10g-small"
        bundled = SpaceCard(text("README.md")).data.to_dict()
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

    def test_what_is_installed(self) -> None:
        """No line names the package itself, which no index may have, until it is said that one has."""
        lines = text("requirements.txt").splitlines()
        names = {Requirement(line).name for line in lines}
        assert {"torch", "transformers", "gradio"} <= names
        assert not names & {"arr-coc", "pytest", "accelerate"}
        released = space_files(released=True)
        assert released["requirements.txt"] == f"arr-coc[app]=={__version__}\n"
        assert set(released) == {"app.py", "requirements.txt", "README.md"}

    def test_requirements_are_those_of_the_extras(self) -> None:
        assert "gradio" not in " ".join(requirements())
        assert set(requirements("app")) - set(requirements()) == {
            line for line in requirements("app") if line.startswith("gradio")
        }
        assert not [line for line in requirements("app", "train") if "extra" in line]

    def test_the_package_has_the_files_of_a_wheel(self) -> None:
        builders = pytest.importorskip("hatchling.builders.wheel")
        builder = builders.WheelBuilder(str(ROOT))
        built = {file.distribution_path: Path(file.path) for file in builder.recurse_included_files()}
        carried = source_files()
        assert "Apache License" in str(carried.pop("LICENSE"))
        assert set(carried) == set(built)
        for name, path in built.items():
            assert carried[name] == path.read_bytes(), name

    def test_a_package_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> None:
            raise metadata.PackageNotFoundError(name)

        monkeypatch.setattr("arr_coc.app.space.distribution", missing)
        with pytest.raises(ValueError, match="is not installed, so that what it needs is not known"):
            space_files()

    @pytest.mark.parametrize("name", ["not a name!", 'x"); import os; ("', "a/b/c", "", "."])
    def test_names(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"is no name on the Hub|upload it with push_to_hub"):
            space_files(name)

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is a folder on this disk: upload it with push_to_hub first"):
            space_files(str(tmp_path))

    def test_without_gradio(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("arr_coc.app.find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"pip install 'gradio>=6.27,<7'"):
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

    def test_files_that_are_not_its_own_are_not_mixed_in(self, tmp_path: Path) -> None:
        files = {"app.py": "new", "arr_coc/one.py": "new"}
        write_space(tmp_path, files)
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "config").write_text("of a clone")
        write_space(tmp_path, files)
        for name in (".env", "notes.txt", "deep/notes.txt", "arr_coc/mine.py"):
            stray = tmp_path / name
            stray.parent.mkdir(exist_ok=True)
            stray.write_text("mine")
            with pytest.raises(
                ValueError, match=f"has {name}, which would be mixed .*: choose another folder"
            ):
                write_space(tmp_path, files)
            assert stray.read_text() == "mine"
            stray.unlink()

    def test_of_the_packages_folder_only_its_own_kinds_go(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in (
            "one.py",
            ".env",
            ".secret.json",
            "one.py~",
            "one.py.orig",
            "core",
            "a/two.json",
            "a/.b/c.py",
        ):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        monkeypatch.setattr(writer, "PACKAGE", tmp_path)
        assert set(source_files()) - {"LICENSE"} == {f"{tmp_path.name}/one.py", f"{tmp_path.name}/a/two.json"}

    def test_modules_of_another_version_go(self, tmp_path: Path) -> None:
        files = {"app.py": "new", "arr_coc/one.py": "new"}
        write_space(tmp_path, {"app.py": "old", "arr_coc/one/__init__.py": "old"})
        write_space(tmp_path, files, force=True)
        assert set(contents(tmp_path)) == set(files)

    def test_a_full_disk_leaves_the_older_one(self, tmp_path: Path) -> None:
        """Not even the small files change, whichever is the one for which there is no room."""
        files = space_files()
        write_space(tmp_path, {name: "old" for name in files})
        before = contents(tmp_path)
        with small_files(10_000), pytest.raises(ValueError, match=r"can't be written .File too large"):
            write_space(tmp_path, files, force=True)
        assert contents(tmp_path) == before

    def test_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match=r"can't be written .*: choose another"):
            write_space(tmp_path / "file" / "space", space_files())

    def test_command(self, tmp_path: Path) -> None:
        facts = json.loads(run(str(tmp_path / "a"), "--json"))
        assert facts == {
            "folder": str(tmp_path / "a"),
            "files": ["app.py", "requirements.txt", "README.md", "arr_coc", "LICENSE"],
            "model": "bundled",
        }
        assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(facts["files"])
        line = next(line for line in run(str(tmp_path / "a"), "--force").splitlines() if "hf upload" in line)
        assert line.endswith("--include app.py requirements.txt README.md 'arr_coc/*' LICENSE")
