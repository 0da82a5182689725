"""The wheel that a running package makes of itself: a built one's files, and always the same bytes."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

from arr_coc import __version__
from arr_coc.app.wheel import own_wheel, requirements

builders = pytest.importorskip("hatchling.builders.wheel")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(own_wheel()[1])) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_its_name_is_one_of_a_wheel() -> None:
    name, version, _, tags = parse_wheel_filename(own_wheel()[0])
    assert (name, str(version), {str(tag) for tag in tags}) == ("arr-coc", __version__, {"py3-none-any"})


def test_it_has_the_files_that_a_built_one_has(files: dict[str, bytes]) -> None:
    builder = builders.WheelBuilder(str(ROOT))
    built = {file.distribution_path: Path(file.path) for file in builder.recurse_included_files()}
    assert {name for name in files if name.startswith("arr_coc/")} == set(built)
    for name, path in built.items():
        assert files[name] == path.read_bytes(), name


def test_its_record_fits(files: dict[str, bytes]) -> None:
    record = f"arr_coc-{__version__}.dist-info/RECORD"
    rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(files[record].decode()))}
    assert set(rows) == set(files)
    for name, content in files.items():
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert rows[name] == (f"sha256={digest}", str(len(content))), name


def test_it_says_what_is_installed(files: dict[str, bytes]) -> None:
    info = f"arr_coc-{__version__}.dist-info"
    facts = message_from_bytes(files[f"{info}/METADATA"])
    assert (facts["Name"], facts["Version"]) == ("arr-coc", __version__)
    assert b"arr-coc = arr_coc.cli:main" in files[f"{info}/entry_points.txt"]
    assert b"Apache License" in files[f"{info}/licenses/LICENSE"]


@pytest.mark.slow
def test_it_is_always_the_same() -> None:
    assert own_wheel() == own_wheel()


def test_requirements_are_those_of_the_extras() -> None:
    assert "gradio" not in " ".join(requirements())
    assert set(requirements("app")) - set(requirements()) == {
        line for line in requirements("app") if line.startswith("gradio")
    }
    assert not [line for line in requirements("app", "train") if "extra" in line]


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("arr_coc.app.wheel.distribution", missing)
    for make in (own_wheel, requirements):
        with pytest.raises(ValueError, match="is not installed, so no wheel can be made of it"):
            make()
