"""The keep list: what is written is read back equal, and a file of others is checked field by field."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw
from PIL import ExifTags, Image

from arr_coc.choose import keep_list
from arr_coc.choose.keep_list import MAX_FILE_BYTES, KeepList
from hostile import refusal, spoilt, spoilt_bytes
from records import record
from tiny import picture

IMAGE = picture(3, (64, 48))
PAGE = Path(__file__).parents[2] / "docs" / "keep-list.md"
TEXTS = draw.text(draw.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip)


def listed(**changes: Any) -> KeepList:
    return KeepList(**{"grid": (1, 3, 4), "keep": (0, 5, 11), "question": "What?", **changes})


def plain(**changes: Any) -> dict[str, Any]:
    return json.loads(json.dumps(listed(model_type="qwen3_vl", size=(64, 48)).to_dict())) | changes


@draw.composite
def keep_lists(draw_one: draw.DrawFn) -> KeepList:
    """Lists of any grid, with any fields missing that may be missing."""
    sides = draw.integers(1, 40)
    grid = draw_one(draw.tuples(draw.integers(1, 3), sides, sides))
    total = grid[0] * grid[1] * grid[2]
    cells = draw_one(draw.sets(draw.integers(0, total - 1), min_size=1, max_size=min(total, 300)))
    pixels = draw.integers(1, 2**20)
    return KeepList(
        grid,
        tuple(sorted(cells)),
        draw_one(TEXTS),
        draw_one(draw.none() | draw.sampled_from(["qwen3_vl", "gemma3", "a-b.c"])),
        draw_one(draw.none() | draw.tuples(pixels, pixels)),
        draw_one(draw.none() | draw.binary(min_size=16, max_size=16).map(lambda b: f"blake2b-128:{b.hex()}")),
        draw_one(draw.sampled_from(["0.1.0", "1.2.3.dev4+g0"])),
    )


@settings(deadline=None, max_examples=40)
@given(keep_lists())
def test_a_file_is_read_back_equal(tmp_path_factory: pytest.TempPathFactory, one: KeepList) -> None:
    path = tmp_path_factory.mktemp("keep") / "keep.json"
    one.save(path)
    assert KeepList.load(path) == one
    assert KeepList.from_dict(json.loads(path.read_text(encoding="utf-8"))) == one


@settings(deadline=None, max_examples=20)
@given(
    height=draw.integers(1, 12),
    width=draw.integers(1, 12),
    share=draw.floats(0, 1),
    seed=draw.integers(0, 99),
)
def test_of_an_allocation_nothing_is_lost(height: int, width: int, share: float, seed: int) -> None:
    allocation = record(height, width, max(1, round(share * height * width)), seed=seed)
    one = KeepList.of(allocation, "Where is it?", IMAGE, "qwen3_vl")
    assert (list(one.keep), one.grid) == (allocation.keep.tolist(), allocation.grid)
    assert (one.size, one.model_type) == (IMAGE.size, "qwen3_vl")
    assert one.is_of(IMAGE) is True
    assert one.is_of(picture(4, (64, 48))) is False
    assert KeepList.of(allocation, "Where is it?").is_of(IMAGE) is None


def test_the_digest_is_the_one_of_the_page() -> None:
    upright = IMAGE.convert("RGB")
    content = str(upright.size).encode() + upright.tobytes()
    one = KeepList.of(record(3, 4, 3), "What?", upright)
    assert one.digest == f"blake2b-128:{hashlib.blake2b(content, digest_size=16).hexdigest()}"


def test_any_form_of_a_picture_is_the_same_picture(tmp_path: Path) -> None:
    """A file on its side and one with transparency, as they are opened elsewhere, have the upright pixels."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    IMAGE.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    upright = KeepList.of(record(3, 4, 3), "What?", IMAGE)
    with Image.open(tmp_path / "turned.png") as turned:
        assert turned.size == IMAGE.size[::-1]
        for form in (tmp_path / "turned.png", turned, IMAGE.convert("RGBA")):
            assert KeepList.of(record(3, 4, 3), "What?", form) == upright
            assert upright.is_of(form) is True
    with pytest.raises(ValueError, match=r"none\.png' does not exist"):
        upright.is_of(tmp_path / "none.png")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "is no keep list"),
        ({"version": 2}, "is of version 2, this release reads 1: update arr-coc"),
        ({"version": 0}, "is of version 0, this release reads 1: write it again"),
        ({"version": True}, "is of version True"),
        ({"grid": [3, 4]}, "'grid'"),
        ({"grid": [1, 3, True]}, "'grid'"),
        ({"grid": [1, 3, "4"]}, "'grid'"),
        ({"grid": [1, 3, 4.0]}, "'grid'"),
        ({"grid": [1, 0, 4]}, "'grid'"),
        ({"grid": [1, 2**20, 2**20]}, "has 1,099,511,627,776 cells: at most 1,048,576"),
        ({"keep": []}, "'keep'"),
        ({"keep": [0, 5, 5]}, "keep has 5 after 5: name each cell once, rising"),
        ({"keep": [5, 0]}, "keep has 0 after 5"),
        ({"keep": [0, 12]}, r"keep has 12, and a grid of \[1, 3, 4\] has 0 to 11"),
        ({"keep": [-1, 3]}, "'keep'"),
        ({"keep": [0, 1.5]}, "'keep'"),
        ({"keep": [False, True]}, "'keep'"),
        ({"keep": "0"}, "'keep'"),
        ({"question": " "}, "the question is empty"),
        ({"question": 3}, "'question'"),
        ({"question": "x" * 100_001}, "'question'"),
        ({"size": [64]}, "'size'"),
        ({"size": [64, 0]}, "'size'"),
        ({"digest": "md5:0"}, "'digest'"),
        ({"model_type": "../x"}, "'model_type'"),
        ({"arr_coc": ""}, "'arr_coc'"),
        ({"order": [1]}, "'order' is .1.: it is unknown"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "keep.json"
    path.write_text(json.dumps(plain(**changes)), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        KeepList.load(path)
    assert "keep.json" in str(error.value)


@pytest.mark.parametrize("name", sorted(plain()))
def test_every_field_is_needed(name: str) -> None:
    with pytest.raises(ValueError, match=f"is no keep list|is of version None|'{name}' is missing"):
        KeepList.from_dict({field: value for field, value in plain().items() if field != name})


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keep.json"
    for content, message in (
        (b'{"format": 1, "format": 2}', "'format' comes twice"),
        (b"[" * 100_000, "nested too deep|is not JSON"),
        (b"[1]", "is no keep list"),
        (b"\xff", "is not UTF-8"),
        (b"", "is not JSON"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            KeepList.load(path)
    with pytest.raises(ValueError, match=r"can't be read .No such file"):
        KeepList.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match=r"can't be read .Is a directory"):
        KeepList.load(tmp_path)
    listed().save(path)
    monkeypatch.setattr(keep_list, "MAX_FILE_BYTES", 100)
    with pytest.raises(ValueError, match="is longer than"):
        KeepList.load(path)
    assert MAX_FILE_BYTES > 100


def test_spoilt_files_are_refused_in_a_line_or_hold(tmp_path: Path) -> None:
    rng, path = random.Random(7), tmp_path / "keep.json"
    refused = 0
    for number in range(300):
        content = json.dumps(spoilt(plain(), rng)).encode()
        path.write_bytes(content if number % 2 else spoilt_bytes(content, rng))
        refused += refusal(lambda: KeepList.load(path)) is not None
    assert refused > 200


def test_the_page_shows_a_file() -> None:
    """Its example is one, with the fields in the order in which they are written."""
    text = PAGE.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    fields = json.loads(text)
    one = KeepList.from_dict(fields)
    assert list(fields) == list(one.to_dict())
    assert all(f"| `{name}` |" in PAGE.read_text(encoding="utf-8") for name in fields)
