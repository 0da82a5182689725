"""Paths as a user writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arr_coc.cli.inputs import read_question
from arr_coc.files.images import open_image
from arr_coc.files.paths import find_alike, input_file, local_path, shorten
from arr_coc.selector import Selector

WRONG = [
    ("~nosuchuser/a.png", "no such home folder"),
    ("a\x00b", "holds a NUL"),
    ("\ud800", "no text that a file can be named by"),
    ("x" * 300, "too long"),
    ("d/" * 3000, "too long"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_can_name_no_file_is_refused_wherever_a_path_is_taken(text: str, message: str) -> None:
    for take in (local_path, input_file, open_image, Selector.from_pretrained):
        with pytest.raises(ValueError, match=message) as refusal:
            take(text)
        assert len(str(refusal.value)) < 300
        assert str(refusal.value).isprintable()


def test_home_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("~/none/a.png") == tmp_path / "none" / "a.png"
    assert local_path(Path("a.png")) == Path("a.png")


def test_bytes_of_another_encoding_are_a_name(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.txt")
    Path(name).write_text("text")
    assert input_file(name).read_text() == "text"


def test_a_file_to_read_is_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert input_file(tmp_path / "none") == tmp_path / "none"
    for place, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "no regular file"),
        ("/dev/zero", "no regular file"),
        (tmp_path / "loop", "a link to itself"),
    ):
        with pytest.raises(ValueError, match=message):
            input_file(place)


def test_long_texts_are_cut_and_control_characters_written_out() -> None:
    assert shorten("a\x1b[2J") == r"'a\x1b[2J'"
    assert len(shorten("x" * 1000)) <= 160


def test_a_name_with_other_blanks_or_accents_finds_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = Path("Cafe\u0301") / "shot at 9.05\u202fAM.png"
    there.parent.mkdir()
    there.touch()
    asked = Path("Caf\u00e9/shot at 9.05 AM.png")
    assert find_alike(asked) == there
    assert read_question([str(asked), "What is it?"]).names == (str(there),)
    assert find_alike(asked, lambda folder: False) == asked  # nothing is listed
    for missing in ("Caf\u00e9/none.png", "none/a.png", "x" * 5000, "d/" * 1500, "a\0"):
        assert find_alike(Path(missing)) == Path(missing)
    there.with_name("shot at 9.05\u00a0AM.png").touch()
    with pytest.raises(ValueError, match="give the very name, or rename"):
        find_alike(asked)
    assert find_alike(there) == there
