"""The allocation record: its law, its round trips, its words, and files from anywhere."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from arr_coc.choose.allocation import TENSIONS, Allocation, Reason, grid_positions
from arr_coc.files.images import open_image
from disks import contents, small_files
from each import each
from hostile import refusal, spoilt, spoilt_bytes
from records import record as record_of

# ---- allocation ------------------------------------------------------------------------------------------


def record(grid=(1, 2, 4), keep=(1, 4, 7), order=(7, 1, 4), **changes) -> Allocation:
    """A record on a 2x4 grid whose relevance rises with the index, apart from cell 1."""
    keep, order = torch.tensor(keep), torch.tensor(order)
    relevance = torch.linspace(0, 0.7, 8)
    relevance[1] = 0.65
    maps = {k: relevance.view(1, 2, 4) for k in ("information", "perspectival", "participatory", "balanced")}
    plain = {
        "weights": torch.tensor([0.25, 0.125, 0.5]),
        "tensions": dict.fromkeys(TENSIONS, 0.5),
        "budget": 3,
        "reasons": torch.zeros(len(keep), dtype=torch.long),
        "void": False,
    }
    fields = {"grid": grid, "keep": keep, "order": order, "positions": grid_positions(keep, (1, 2, 4))}
    return Allocation(**{**fields, **maps, **plain, **changes})


def same(a: Allocation, b: Allocation) -> bool:
    return a.to_dict() == b.to_dict()


def test_values_of_reasons_are_those_of_saved_records():
    values = {"RELEVANT": 0, "EXPLORED": 1, "VOID": 2, "ALL": 4}
    assert {reason.name: reason.value for reason in Reason} == values


class TestRecord:
    def test_smoke(self):
        a = record()
        assert (a.kept, a.total) == (3, 8)
        assert a.positions.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 3]]

    def test_frozen(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record().void = True

    @each(
        ("changes", "message"),
        [
            ({"keep": (4, 1, 7)}, "rising"),
            ({"keep": (1, 1, 7)}, "rising"),
            ({"keep": (1, 4, 8)}, "within 0..7"),
            ({"keep": (), "order": ()}, "1..8 indices"),
            ({"order": (7, 1, 5)}, "indices of keep"),
            ({"positions": torch.zeros(3, 3, dtype=torch.long)}, "positions"),
            ({"reasons": torch.zeros(2, dtype=torch.long)}, "reason per kept token"),
            ({"tensions": {"focus": 0.5}}, "tensions"),
            ({"balanced": torch.zeros(2, 4)}, "balanced has shape"),
        ],
    )
    def test_exception(self, changes, message):
        with pytest.raises(ValueError, match=message):
            record(**changes)

    def test_positions_count_frames(self):
        assert grid_positions(torch.tensor([0, 7, 23]), (2, 3, 4)).tolist() == [
            [0, 0, 0],
            [0, 1, 3],
            [1, 2, 3],
        ]


class TestReading:
    def test_cells_are_preferred_where_neither_all_nor_an_even_grid_is_kept(self):
        every = tuple(range(8))
        assert record().selective
        assert not record(void=True, reasons=torch.full((3,), int(Reason.VOID))).selective
        assert not record(keep=every, order=every).selective

    def test_mask_marks_kept_and_dropped(self):
        mask = record().mask()
        assert mask.shape == (1, 2, 4)
        assert mask.flatten().nonzero().flatten().tolist() == [1, 4, 7]

    def test_relevance_and_ranks_of_kept(self):
        a = record()
        assert torch.allclose(a.relevance_of_kept(), torch.tensor([0.65, 0.4, 0.7]))
        assert a.ranks().tolist() == [2, 5, 1]

    @each(
        ("reason", "text"),
        [
            (Reason.RELEVANT, "rank 3 <= K 3"),
            (Reason.EXPLORED, "coverage, rank 5 of 8"),
            (Reason.VOID, "even grid of 3: nothing in the image to prefer"),
            (Reason.ALL, "all 8 tokens kept"),
        ],
    )
    def test_reason_text(self, reason, text):
        assert record(reasons=torch.full((3,), int(reason))).reason_text(1) == text

    def test_iou(self):
        a, b = record(), record(keep=(1, 2, 7), order=(7, 1, 2))
        assert a.iou(a) == 1.0
        assert a.iou(b) == 0.5

    def test_iou_of_other_grid(self):
        b = record(grid=(2, 1, 4), **{k: torch.zeros(2, 1, 4) for k in ("information", "perspectival")},
                   **{k: torch.zeros(2, 1, 4) for k in ("participatory", "balanced")},
                   positions=grid_positions(torch.tensor([1, 4, 7]), (2, 1, 4)))  # fmt: skip
        with pytest.raises(ValueError, match="grids"):
            record().iou(b)


class TestRoundTrip:
    def test_json_holds_every_field(self):
        a = record()
        plain = json.loads(json.dumps(a.to_dict()))
        assert plain == a.to_dict()
        assert set(plain) == {field.name for field in dataclasses.fields(Allocation)}
        assert (plain["grid"], plain["keep"], plain["budget"]) == ([1, 2, 4], [1, 4, 7], 3)
        assert plain["weights"] == [0.25, 0.125, 0.5]

    @each("budget", [3, 0.375, "auto"])
    def test_safetensors(self, tmp_path, budget):
        a = record(budget=budget, void=True)
        a.save(tmp_path / "a.safetensors")
        loaded = Allocation.load(tmp_path / "a.safetensors")
        assert same(a, loaded)
        assert type(loaded.budget) is type(budget)

    def test_load_missing_or_foreign(self, tmp_path):
        from safetensors.torch import save_file

        (tmp_path / "junk").write_bytes(b"junk")
        save_file({"x": torch.zeros(1)}, tmp_path / "foreign")
        for name in ("none", "junk", "foreign"):
            with pytest.raises(ValueError, match=rf"{name} is not a saved allocation"):
                Allocation.load(tmp_path / name)

    def test_save_to_unwritable(self, tmp_path):
        with pytest.raises(OSError, match="nowhere"):
            record().save(tmp_path / "nowhere" / "a.safetensors")

    def test_cpu_keeps_everything(self):
        assert same(record(), record().cpu())


def test_a_full_disk_leaves_the_older_record(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"old")
    with small_files(), pytest.raises(OSError, match="File too large"):
        record().save(tmp_path / "a.safetensors")
    assert contents(tmp_path) == {"a.safetensors": b"old"}


class TestBoxes:
    @each("size", [(4, 2), (100, 37), (33, 51), (3, 1)])
    def test_what_is_painted_by_boxes_is_what_pictures_show_as_kept(self, size):
        from arr_coc.trace.picture import spread

        kept = record()
        painted = torch.zeros(size[1], size[0], dtype=torch.long)
        for x0, y0, x1, y1 in kept.boxes(size).tolist():
            painted[y0:y1, x0:x1] += 1
        assert painted.tolist() == spread(kept.mask()[0].long().numpy(), painted.shape).tolist()

    def test_they_stand_in_the_order_of_keep(self):
        assert record().boxes((80, 40)).tolist() == [[20, 0, 40, 20], [0, 20, 20, 40], [60, 20, 80, 40]]

    @each("size", [(0, 4), (4,), (4.0, 2.0), (4, -2), None, 4])
    def test_a_size_that_is_none_is_refused(self, size):
        with pytest.raises(ValueError, match=r"give picture\.size"):
            record().boxes(size)

    @each("orientation", range(1, 9))
    def test_of_a_picture_that_its_exif_data_turns(self, orientation):
        """In px of the picture as it was opened they show what those of the upright one show."""
        pixels = np.random.default_rng(0).integers(0, 256, (40, 90, 3), dtype=np.uint8)
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", exif=exif)
        picture = Image.open(file)
        upright = open_image(picture)
        kept = record()
        of_upright = kept.boxes(upright.size).tolist()
        assert kept.boxes(upright).tolist() == of_upright
        for box, own in zip(of_upright, kept.boxes(picture).tolist(), strict=True):
            part = np.sort(np.asarray(upright.crop(box)).reshape(-1, 3), 0)
            assert np.array_equal(
                part, np.sort(np.asarray(picture.convert("RGB").crop(own)).reshape(-1, 3), 0)
            )

    def test_the_size_of_a_picture_on_its_side_is_refused(self):
        keep = torch.arange(2)
        for rows, columns, size in ((25, 40, (800, 1280)), (34, 31, (1100, 1000)), (40, 10, (1284, 320))):
            maps = dict.fromkeys(
                ("information", "perspectival", "participatory", "balanced"), torch.ones(1, rows, columns)
            )
            positions = grid_positions(keep, (1, rows, columns))
            kept = record((1, rows, columns), (0, 1), (0, 1), positions=positions, **maps)
            with pytest.raises(
                ValueError, match=r"upright .* give open_image\(picture\)\.size, or the picture"
            ):
                kept.boxes(size)
            with pytest.raises(ValueError, match="upright"):
                kept.evidence(size)
            for other in (size[::-1], (size[1] // 3, size[0] // 3), (640, 640), (3, 1)):
                assert len(kept.boxes(other)) == 2


# ---- hostile allocations ---------------------------------------------------------------------------------

FORMAT = "arr-coc allocation 1"


@pytest.fixture
def parts(tmp_path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the other fields of a sound file."""
    made = record_of(4, 5, 6)
    made.save(tmp_path / "sound")
    plain = {"grid": [1, 4, 5], "tensions": made.tensions, "budget": 6, "void": False}
    return load_file(tmp_path / "sound"), plain


def load(path: Path, tensors: dict[str, torch.Tensor], plain: object) -> str | None:
    """What is said of a file of these parts."""
    save_file(tensors, path, {"format": FORMAT, "plain": json.dumps(plain)})
    return refusal(lambda: Allocation.load(path).to_dict())


def test_spoilt_fields(tmp_path: Path, parts: tuple[dict[str, torch.Tensor], dict[str, Any]]) -> None:
    tensors, plain = parts
    assert load(tmp_path / "a", tensors, plain) is None
    rng = random.Random(5)
    messages = [load(tmp_path / "a", tensors, spoilt(plain, rng)) for _ in range(120)]
    refused = [message for message in messages if message is not None]
    assert 60 < len(refused) < 120
    assert all("is not a saved allocation (" in message for message in refused)


def test_damaged_files(tmp_path: Path) -> None:
    record_of(4, 5, 6).save(tmp_path / "a")
    whole, rng, refused = (tmp_path / "a").read_bytes(), random.Random(6), 0
    for number in range(120):
        data = bytearray(whole)
        if number % 2:
            data[rng.randrange(len(data))] = rng.randrange(256)
        else:
            data = bytearray(spoilt_bytes(b"{" + bytes(rng.choices(b"abc[]\\n", k=50)), rng))
        (tmp_path / "b").write_bytes(data)
        refused += refusal(lambda: Allocation.load(tmp_path / "b").to_dict()) is not None
    assert refused > 60


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weights", torch.full((3,), float("nan")), "weights is not within 0 and 1"),
        ("balanced", torch.full((1, 4, 5), 2.0), "balanced is not within 0 and 1"),
        ("balanced", torch.rand(5, 4, 1), "balanced has shape (5, 4, 1), the grid is (1, 4, 5)"),
        ("keep", torch.arange(6).float(), "its tensors are not keep, order"),
        ("keep", torch.arange(6)[None], "keep must hold 1..20 indices"),
        ("keep", torch.full((6,), 2**62), "keep must be rising"),
        ("order", torch.zeros(0, dtype=torch.int64), "order must hold the indices of keep"),
        ("reasons", torch.full((6,), 3), "an unknown reason"),
        ("more", torch.zeros(1), "its tensors are not keep, order"),
        ("keep", None, "its tensors are not keep, order"),
    ],
)
def test_hostile_tensors(
    tmp_path: Path,
    parts: tuple[dict[str, torch.Tensor], dict[str, Any]],
    name: str,
    change: torch.Tensor | None,
    message: str,
) -> None:
    tensors, plain = parts
    made = {key: value for key, value in (tensors | {name: change}).items() if value is not None}
    assert message in str(load(tmp_path / "a", made, plain))


@pytest.mark.parametrize("plain", ["", "{", "[" * 100_000, "null", "[]", "{}", '{"grid": NaN}'])
def test_hostile_text(tmp_path: Path, plain: str) -> None:
    save_file({"keep": torch.zeros(1)}, tmp_path / "a", {"format": FORMAT, "plain": plain})
    assert "is not a saved allocation" in str(refusal(lambda: Allocation.load(tmp_path / "a")))
