"""Where an allocator's base model is, after either was moved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from arr_coc.files.paths import CONFIG_NAME, base_settings, locate_base


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a base model and an allocator's folder beside each other, which is where we are."""
    (tmp_path / "first" / "my-vl").mkdir(parents=True)
    (tmp_path / "first" / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    return tmp_path / "first"


@pytest.mark.parametrize("name", [None, "", "bundled", "someone/some-model", "some-model"])
def test_names_stay_names(place: Path, name: str | None) -> None:
    settings = base_settings(name, place / "mine")
    assert settings == {"base_model": name}
    if name:
        assert locate_base(settings, place / "mine") == name


@pytest.mark.parametrize("name", ["./my-vl", "my-vl", "../first/my-vl/", "ABSOLUTE"])
def test_a_folder(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = base_settings(name.replace("ABSOLUTE", str(place / "my-vl")), Path("mine"))
    assert settings == {"base_model": str(place / "my-vl"), "base_beside": "../my-vl"}
    assert json.loads(json.dumps(settings)) == settings
    monkeypatch.chdir(place.parent)
    assert locate_base(settings, place / "mine") == str(place / "my-vl")
    shutil.move(place / "mine", place.parent / "elsewhere")  # the allocator alone
    assert locate_base(settings, place.parent / "elsewhere") == str(place / "my-vl")
    shutil.move(place.parent / "elsewhere", place / "mine")
    place.rename(place.parent / "second")  # both together
    assert locate_base(settings, place.parent / "second" / "mine") == str(place.parent / "second" / "my-vl")


@pytest.mark.parametrize("name", ["./no", "/no/such", "~nobody-at-all/x", "\\\\server\\share", "//server/x"])
def test_what_is_not_there(place: Path, name: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not there; name its folder as the model, and this one"
    ) as error:
        locate_base({"base_model": name}, place / "mine")
    assert str(place / "mine" / CONFIG_NAME) in str(error.value)
    assert repr(name) in str(error.value)
