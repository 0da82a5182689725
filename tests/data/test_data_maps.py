"""Relevance maps as evidence: what a file may hold, how it lies on cells, what is refused."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc.data import open_data
from arr_coc.data.evidence import all_evidence, map_cells
from arr_coc.data.maps import FINEST, read_map
from each import each

PEAK = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 4.0]])


def saved(path: Path, **arrays: Any) -> Path:
    np.savez_compressed(path, **arrays)
    return path


class TestReading:
    def test_values_are_divided_by_the_greatest(self, tmp_path: Path) -> None:
        relevance = read_map(saved(tmp_path / "a.npz", anything=PEAK), "here")
        assert relevance.dtype == np.float32
        assert relevance.tolist() == [[0.0, 0.25, 0.5], [0.0, 0.0, 1.0]]

    def test_of_several_arrays_the_one_called_map(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "a.npz", other=np.ones((9, 9)), map=PEAK)
        assert read_map(path, "here").shape == (2, 3)

    def test_columns_first_are_read_as_they_are_meant(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "a.npz", map=np.asfortranarray(PEAK))
        assert (read_map(path, "here") == PEAK / 4).all()

    @pytest.mark.parametrize("kind", [np.uint8, np.uint16, bool])
    def test_greys_of_a_png(self, tmp_path: Path, kind: type) -> None:
        most = 1 if kind is bool else np.iinfo(kind).max
        values = np.array([[0, most], [most // 2, 0]]).astype(kind)
        Image.fromarray(values).save(tmp_path / "a.png")
        assert read_map(tmp_path / "a.png", "here") == pytest.approx(values / most, abs=1e-6)

    def test_zeros_stay_zeros(self, tmp_path: Path) -> None:
        assert not read_map(saved(tmp_path / "a.npz", map=np.zeros((4, 4))), "here").any()

    def test_a_fine_map_keeps_its_smallest_mark(self, tmp_path: Path) -> None:
        values = np.zeros((1000, 70))
        values[777, 5] = 1
        relevance = read_map(saved(tmp_path / "a.npz", map=values), "here")
        assert relevance.shape == (FINEST, 70)
        assert relevance.sum() == relevance[:, 5].max() == 1
        assert abs(int(relevance[:, 5].argmax()) - 777 * FINEST / 1000) <= 1


def header_alone(shape: tuple[int, ...]) -> bytes:
    """An .npz whose array claims a shape and holds nothing."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": shape})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("map.npy", array.getvalue())
    return content.getvalue()


def packed(method: int, damage: int | None = None, flag: int = 0) -> bytes:
    """A map in an archive of a method, with other bits from a place on, or with a flag of zip files."""
    array, content = io.BytesIO(), io.BytesIO()
    np.save(array, np.random.default_rng(0).random((20, 30)))
    with zipfile.ZipFile(content, "w", method) as archive:
        archive.writestr("map.npy", array.getvalue())
    whole = bytearray(content.getvalue())
    if damage is not None:
        whole[damage : damage + 40] = bytes(byte ^ 0xFF for byte in whole[damage : damage + 40])
    for start, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        whole[whole.index(start) + place] |= flag
    return bytes(whole)


def unfinished() -> bytes:
    """An .npy whose header lacks its last bracket."""
    array, content = io.BytesIO(), io.BytesIO()
    np.save(array, PEAK)
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("map.npy", array.getvalue().replace(b"}", b" "))
    return content.getvalue()


def pickled() -> bytes:
    content = io.BytesIO()
    np.savez(content, map=np.array([[object()]], dtype=object))
    return content.getvalue()


def arrays(**named: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **named)
    return content.getvalue()


def colours() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (4, 4)).save(content, "PNG")
    return content.getvalue()


@each(
    ("name", "content", "reason"),
    [
        ("a.npz", header_alone((10**9, 10**9)), r"has shape \[1000000000, 1000000000\]: give \[H, W\]"),
        ("a.npz", header_alone((64, 64)), "is cut off: write it again"),
        ("a.npz", pickled(), "holds object: save numbers"),
        ("a.npz", arrays(map=np.zeros(5)), r"has shape \[5\]: give \[H, W\]"),
        ("a.npz", arrays(map=np.full((2, 2), -1.0)), "negative or not finite"),
        ("a.npz", arrays(map=np.full((2, 2), np.nan)), "negative or not finite"),
        ("a.npz", arrays(a=PEAK, b=PEAK), "has 2 arrays: save one, or one of them as 'map'"),
        ("a.npz", b"PK\x03\x04 no archive", "can't be read .* may be damaged; write it again"),
        ("a.npz", packed(zipfile.ZIP_DEFLATED, damage=60), r"can't be read \(.*\): it may be damaged"),
        ("a.npz", packed(zipfile.ZIP_LZMA, damage=600), r"can't be read \(.*\): it may be damaged"),
        ("a.npz", packed(zipfile.ZIP_STORED, flag=1), r"can't be read \(.*encrypted.*\): it may be damaged"),
        ("a.npz", packed(zipfile.ZIP_STORED, flag=32), r"can't be read \(compressed patched data"),
        ("a.npz", unfinished(), r"can't be read \(.*\): it may be damaged"),
        ("a.png", b"\x89PNG\r\n\x1a\n cut off", "can't be read"),
        ("a.png", colours(), r"has colours \(mode RGB\): write one grey value a place"),
        ("a.npy", b"", "is no PNG and no .npz: write one of them"),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else None,  # archives hold the time
)
def test_what_is_no_map_is_named_in_a_line(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=reason) as refusal:
        read_map(tmp_path / name, "q.jsonl, line 1")
    assert str(refusal.value).startswith(f"q.jsonl, line 1: map '{name}'")
    assert "\n" not in str(refusal.value)


class TestCells:
    def test_a_coarse_map_lies_over_the_whole_image(self) -> None:
        relevance = torch.tensor([[0.0, 1.0]])
        assert map_cells(relevance, (2, 4)).tolist() == [[0, 0, 1, 1]] * 2

    def test_a_cell_has_the_greatest_of_what_lies_over_it(self) -> None:
        relevance = torch.zeros(8, 8)
        relevance[5, 6] = 0.75
        assert map_cells(relevance, (2, 2)).tolist() == [[0, 0], [0, 0.75]]

    def test_evidence_is_above_half_and_adds_to_boxes(self) -> None:
        relevance = torch.tensor([[0.5, 0.6], [0.0, 0.0]])
        cells = all_evidence(((0, 32, 32, 64),), relevance, (2, 2), (64, 64))
        assert cells.tolist() == [[False, True], [True, False]]


class TestLines:
    def test_a_line_names_its_map(self, tmp_path: Path) -> None:
        Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
        path = saved(tmp_path / "a-0.npz", map=PEAK)
        line = {"image": "a.png", "question": "Where?", "answer": "here", "map": "a-0.npz"}
        (tmp_path / "questions.jsonl").write_text(json.dumps(line) + "\n")
        (example,) = open_data(f"jsonl:{tmp_path}")[1]
        assert example.map == path
        assert example.meta == {}

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("none.npz", "map 'none.npz' is not in"), ("../a.npz", "map '../a.npz' is no name of a file in")],
    )
    def test_a_map_that_is_not_there(self, tmp_path: Path, name: str, reason: str) -> None:
        Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
        (tmp_path / "questions.jsonl").write_text(
            json.dumps({"image": "a.png", "question": "Where?", "map": name}) + "\n"
        )
        with pytest.raises(ValueError, match=reason):
            list(open_data(f"folder:{tmp_path}")[1])
