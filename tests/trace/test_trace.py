"""The trace: its laws, its file, its view."""

from __future__ import annotations

import base64
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
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from arr_coc.choose.allocation import TENSIONS, Allocation, Reason, grid_positions
from arr_coc.choose.stem import FOREIGN, GUIDED
from arr_coc.trace.evidence import Guidance, Spot
from arr_coc.trace.picture import PALETTE
from arr_coc.trace.trace import MAX_HEADER, FullAnswer, QuestionWord, Trace
from arr_coc.trace.view import MAX_WEBP
from disks import contents, small_files
from each import each
from trace_parts import image_trace, image_view

GRID = (1, 3, 4)
QUESTION = "Is it, say, red?"


def record(seed: int = 0, grid: tuple[int, int, int] = GRID, kept: int = 5, **changes: Any) -> Allocation:
    maps = torch.rand(4, *grid, generator=torch.Generator().manual_seed(seed))
    order = maps[3].flatten().argsort(descending=True)[:kept]
    keep = order.sort().values
    given: dict[str, Any] = {
        "information": maps[0],
        "perspectival": maps[1],
        "participatory": maps[2],
        "balanced": maps[3],
        "weights": torch.tensor([0.53, 0.31, 0.88]),
        "tensions": dict.fromkeys(TENSIONS, 0.5),
        "budget": kept,
        "reasons": torch.zeros_like(keep),
        "void": False,
    }
    return Allocation(grid, keep, order, grid_positions(keep, grid), **(given | changes))


def trace(**changes: Any) -> Trace:
    random_ = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (24, 32, 3), generator=random_, dtype=torch.uint8)
    heats = torch.rand(2, 3, 4, generator=random_)
    given: dict[str, Any] = {
        "picture": Image.fromarray(pixels.numpy()),
        "question": QUESTION,
        "answer": "yes",
        "allocation": record(),
        "mode": "prune",
        "budget": "auto",
        "kept": 5,
        "total": 12,
        "read": 5,
        "fallback": False,
        "note": None,
        "ms": {"score": 1.25, "total": 3.5},
        "model": "someone/some-model",
        "full": FullAnswer("yes ", {"total": 7.0}, {"total": 5.0}),
        "machine": "cpu, float32",
        "again": {"total": 2.0},
        "true_answers": ("YES",),
        "texture": torch.rand(2, 3, 4, generator=random_),
        "channels": ("red", "sobel_x"),
        "words": tuple(
            QuestionWord(text, *scored)
            for text, *scored in [
                *(("Is", 0.25, heats[0]), (" ",), ("it",), (", ",), ("say",), (", ",)),
                *(("red", 1.0, heats[1]), ("?",)),
            ]
        ),
        "evidence": ((1.0, 2.0, 9.5, 8.0), (20.0, 0.0, 24.0, 4.0)),
        "guidance": Guidance(0.7, 0.1, 0.0, (Spot("red", "crimson", 0.9, (0.25, 0.5), heats[1]),)),
        "probes": {"sweep": {"points": [{"kept": 1, "logprob": -0.1}], "smallest": None}},
    }
    return image_trace(**(given | changes))


def decode(text: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<f4").copy())


def test_the_view_knows_a_picture_that_is_foreign_to_the_model() -> None:
    foreign = trace(note=FOREIGN).view()
    assert (foreign["foreign"], foreign["note"]) == (True, FOREIGN)
    guided = trace(note=GUIDED).view()
    assert (guided["foreign"], guided["note"]) == (False, GUIDED)
    assert (trace(note=None).view()["foreign"]) is False


def assert_same(a: Trace, b: Trace) -> None:
    assert a._plain() == b._plain()
    assert a.allocation.to_dict() == b.allocation.to_dict()
    assert np.array_equal(np.asarray(a.picture), np.asarray(b.picture))
    mine, theirs = (
        [trace.texture, *(word.heat for word in trace.words)]
        + ([spot.heat for spot in trace.guidance.spots] if trace.guidance else [])
        for trace in (a, b)
    )
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


class TestLaw:
    def test_agreement_is_the_same_text(self) -> None:
        assert trace().agree is True
        assert trace(full=FullAnswer("Yes", {})).agree is False

    def test_true_answers(self) -> None:
        assert trace(true_answers=()).is_true is None
        assert trace(answer=" Light\nblue ", true_answers=("red", "light  blue")).is_true is True
        assert trace(answer="blue", true_answers=("light blue",)).is_true is False
        assert trace(full=None).agree is None

    @each(
        ("changes", "message"),
        [
            ({"picture": Image.new("RGB", (33, 24))}, "multiple of 4x3"),
            ({"allocation": record(grid=(2, 3, 4))}, "1 pictures and 0 times, not 2 steps"),
            ({"kept": 4}, "do not fit allocations of 5"),
            ({"total": 4}, "do not fit"),
            ({"read": 4}, "do not fit"),
            ({"allocation": record(reasons=torch.full((5,), 9))}, "reasons must lie in 0..4"),
            ({"allocation": record(balanced=torch.full(GRID, torch.nan))}, "balanced is not within 0 and 1"),
            ({"allocation": record(weights=torch.tensor([0.1, 2.0, 0.1]))}, "weights is not within"),
            ({"allocation": record(tensions=dict.fromkeys(TENSIONS, -1.0))}, "must lie in"),
            ({"texture": torch.rand(3, 3, 4)}, r"texture is .* not float32 \(2, 3, 4\)"),
            ({"texture": torch.rand(2, 3, 4).double()}, "texture is torch.float64"),
            ({"texture": None}, "there is no texture"),
            ({"evidence": ((3.0, 1.0, 3.0, 2.0),)}, "evidence box .* must be x0, y0, x1, y1"),
            ({"evidence": ((0.0, 0.0, float("inf"), 2.0),)}, "evidence box"),
            ({"guidance": Guidance(1.5, 0.0, 0.0)}, "what the guide says"),
            ({"guidance": Guidance(0.5, 0, 0, (Spot("a", "a", 0.5, (0, 0), torch.rand(2, 2)),))}, "heat of"),
            ({"words": (QuestionWord(QUESTION, 0.0, torch.rand(4, 4)),)}, "heat of 'Is it, say, red"),
            ({"words": (QuestionWord(QUESTION, 1.5),)}, "must lie in"),
            ({"words": (QuestionWord("Is it red?"),)}, "are not the question"),
            ({"ms": {"total": -1.0}}, "must not be below 0"),
            ({"full": FullAnswer("yes", {"total": float("nan")})}, "must not be below 0"),
            ({"full": FullAnswer("yes", {}, {"total": -1.0})}, "must not be below 0"),
            ({"again": {"total": -1.0}}, "must not be below 0"),
            ({"probes": {"sweep": (1, 2)}}, "use lists, not tuples"),
            ({"probes": {"sweep": {1: 2}}}, "text for keys"),
            ({"probes": {"sweep": float("nan")}}, "JSON"),
            ({"probes": {"sweep": torch.rand(1)}}, "JSON can't hold"),
        ],
    )
    def test_exception(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            trace(**changes)

    def test_with_probe_adds_and_leaves_the_old_one_alone(self) -> None:
        old = trace()
        new = old.with_probe("contenders", {"rows": []})
        assert set(new.probes) == {"sweep", "contenders"}
        assert set(old.probes) == {"sweep"}
        with pytest.raises(ValueError, match="JSON"):
            old.with_probe("bad", {"score": float("inf")})


class TestFile:
    @each(
        "changes",
        [
            {},
            {"full": None, "texture": None, "channels": (), "words": (), "probes": {}},
            {"note": "sparse ran as prune", "fallback": True, "budget": 0.25, "read": 99, "total": 4096},
            {"answer": "\0 </script> “quoted” 好", "allocation": record(void=True, budget="auto")},
            {"words": tuple(QuestionWord(c) for c in QUESTION)},
        ],
    )
    def test_what_is_saved_is_what_is_loaded(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        given = trace(**changes)
        given.save(tmp_path / "a.safetensors")
        loaded = Trace.load(tmp_path / "a.safetensors")
        assert_same(given, loaded)
        assert loaded.view() == given.view()

    def test_a_full_disk_leaves_the_older_one(self, tmp_path: Path) -> None:
        trace().save(tmp_path / "a.safetensors")
        before = contents(tmp_path)
        with small_files(), pytest.raises(OSError, match=r"File too large: '.*a.safetensors'"):
            trace(answer="another").save(tmp_path / "a.safetensors")
        assert contents(tmp_path) == before

    def test_maps_that_share_memory(self, tmp_path: Path) -> None:
        one = torch.rand(8, 3, 4)
        given = trace(
            texture=one[2:6:2],
            words=(QuestionWord(QUESTION, 0.0, one[7]),),
            allocation=record(information=one[:1]),
        )
        given.save(tmp_path / "a")
        assert_same(given, Trace.load(tmp_path / "a"))

    def test_saving_elsewhere_than_can_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="nowhere"):
            trace().save(tmp_path / "nowhere" / "a")

    @each(
        "data",
        [
            b"",
            b"junk",
            b"\xff" * 64,
            (MAX_HEADER + 9).to_bytes(8, "little") + b"{}",
            b"\2\0\0\0\0\0\0\0{}",
            b"\2\0\0\0\0\0\0\0[]",
        ],
    )
    def test_files_that_are_no_trace(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "a").write_bytes(data)
        self.refused(tmp_path / "a")
        self.refused(tmp_path)
        self.refused(tmp_path / "none")

    def test_another_format(self, tmp_path: Path) -> None:
        record().save(tmp_path / "a")
        self.refused(tmp_path / "a", "format 'arr-coc allocation 1'")

    @each(
        ("name", "value"),
        [
            ("kept", -5),
            ("kept", True),
            ("kept", "5"),
            ("total", 10**30 * 1.0),
            ("read", 1.5),
            ("question", None),
            ("question", "Another?"),
            ("ms", {"total": "fast"}),
            ("ms", {"total": float("nan")}),
            ("ms", [1.0]),
            ("full", {"text": "yes"}),
            ("full", {"text": "yes", "ms": None}),
            ("channels", ["red"]),
            ("channels", [1, 2]),
            ("channels", []),
            ("words", [{"text": QUESTION, "pull": 0.0, "scored": False}]),
            ("words", [{"text": QUESTION, "pull": 0.0, "scored": 1}]),
            ("words", [QUESTION]),
            ("probes", [1]),
            ("probes", {"sweep": float("inf")}),
            ("answer", "x" * 200_000),
            ("true_answers", ["x"] * 200_000),
            ("true_answers", ["x", 1]),
            ("total", 2**70),
            ("ms", {str(number): 1.0 for number in range(200_000)}),
            ("more", 1),
        ],
    )
    def test_hostile_fields(self, tmp_path: Path, name: str, value: Any) -> None:
        self.rewrite(tmp_path / "a", plain={name: value})
        self.refused(tmp_path / "a")

    def test_probes_are_for_the_viewer_to_check(self, tmp_path: Path) -> None:
        """As it does for each part of each: see tests/browser/test_viewer_browser.py."""
        probes = {"sweep": {"points": [1]}, "contenders": None, "mine": [1]}
        self.rewrite(tmp_path / "a", plain={"probes": probes})
        assert Trace.load(tmp_path / "a").view()["probes"] == probes

    def test_missing_fields(self, tmp_path: Path) -> None:
        trace().save(tmp_path / "a")
        for name in trace()._plain().keys() - {"magnified"}:
            self.rewrite(tmp_path / "b", drop=name)
            self.refused(tmp_path / "b", "does not have the fields")
        self.rewrite(tmp_path / "b", drop="magnified")  # as files were until November 2026
        assert Trace.load(tmp_path / "b").view() == trace().view()

    def test_magnified(self, tmp_path: Path) -> None:
        finer = trace(magnified=(2.5,), read=31)
        finer.save(tmp_path / "a")
        assert Trace.load(tmp_path / "a").magnified == (2.5,)
        assert finer.view()["magnified"] == [2.5]
        for wrong in ((), (1.0, 2.0), (0.5,), (3.1,), (float("nan"),)):
            with pytest.raises(ValueError, match="must be from 1 to 3"):
                trace(magnified=wrong)

    @each(
        "tensors",
        [
            {"0.pictures": torch.zeros(24, 32, 3, dtype=torch.uint8)},
            {"0.pictures": torch.zeros(9, dtype=torch.uint8)},
            {"0.keep": torch.tensor([0, 1, 2, 3, 99])},
            {"0.keep": torch.zeros(5)},
            {"0.order": torch.zeros(5, 5, dtype=torch.int64)},
            {"0.positions": torch.zeros(5, dtype=torch.int64)},
            {"0.reasons": torch.full((5,), -1)},
            {"0.information": torch.zeros(12)},
            {"0.information": torch.zeros(0, 3, 4)},
            {"0.balanced": torch.full(GRID, 2.0)},
            {"0.weights": torch.zeros(4)},
            {"0.spots": torch.rand(1, 4, 4)},
            {"0.spots": torch.rand(2, 3, 4)},
            {"0.spots": torch.tensor(0.5)},
            {"heats": torch.rand(3, 3, 4)},
            {"heats": torch.rand(2, 4, 4)},
            {"heats": torch.tensor(0.5)},
            {"texture": torch.rand(2)},
            {"more": torch.zeros(1)},
        ],
    )
    def test_hostile_tensors(self, tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
        self.rewrite(tmp_path / "a", tensors=tensors)
        self.refused(tmp_path / "a")

    def test_deep_json(self, tmp_path: Path) -> None:
        trace().save(tmp_path / "a")
        save_file(load_file(tmp_path / "a"), tmp_path / "b", self.about(tmp_path / "a", "[" * 100_000))
        self.refused(tmp_path / "b")

    def test_damaged_files_are_refused_or_whole(self, tmp_path: Path) -> None:
        """Nothing but a ValueError comes of a file with a byte changed, or cut off."""
        trace().save(tmp_path / "a")
        whole, draw, refused = (tmp_path / "a").read_bytes(), random.Random(0), 0
        for _ in range(150):
            data = bytearray(whole)
            data[draw.randrange(len(data) // 2)] = draw.randrange(256)
            data = data[: draw.choice((len(data), len(data), draw.randrange(len(data))))]
            (tmp_path / "b").write_bytes(data)
            try:
                Trace.load(tmp_path / "b").view()
            except ValueError:
                refused += 1
        assert refused > 50

    @staticmethod
    def refused(path: Path, message: str = "") -> None:
        with pytest.raises(ValueError, match="is not a saved trace") as caught:
            Trace.load(path)
        assert "\n" not in str(caught.value)
        assert "Trace.save" in str(caught.value)
        assert "arr-coc ask --trace" in str(caught.value)
        assert message in str(caught.value)

    @staticmethod
    def about(path: Path, plain: str) -> dict[str, str]:
        with safe_open(path, "pt") as file:
            return file.metadata() | {"plain": plain}

    def rewrite(self, path: Path, *, plain: Any = None, tensors: Any = None, drop: str = "") -> None:
        trace().save(path)
        told = trace()._plain() | (plain or {})
        told.pop(drop, None)
        about = self.about(path, json.dumps(told))
        save_file(load_file(path) | (tensors or {}), path, about)


class TestView:
    def test_maps_decode_to_themselves(self) -> None:
        given = trace()
        view = image_view(json.loads(json.dumps(given.view(), allow_nan=False)))
        names = ["balanced", "information", "perspectival", "participatory"]
        assert [layer["id"] for layer in view["layers"]] == [*names, "texture:red", "texture:sobel_x"]
        maps = [getattr(given.allocation, name) for name in names] + list(given.texture)
        for layer, values in zip(view["layers"], maps, strict=True):
            assert torch.equal(decode(layer["data"]), values.flatten())
        for piece, word in zip(view["words"], given.words, strict=True):
            assert (piece["text"], piece["pull"]) == (word.text, word.pull)
            assert (piece["data"] is None) == (word.heat is None)
            assert word.heat is None or torch.equal(decode(piece["data"]), word.heat.flatten())

    def test_plain_parts(self) -> None:
        given = trace()
        view, kept = image_view(given.view()), given.allocation
        assert (view["width"], view["height"], view["grid"]) == (32, 24, [3, 4])
        assert (view["kept"], view["total"], view["agree"], view["budget"]) == (5, 12, True, "auto")
        assert view["full"] == {"text": "yes ", "ms": {"total": 7.0}, "again": {"total": 5.0}}
        assert (view["machine"], view["again"]) == ("cpu, float32", {"total": 2.0})
        assert (view["true_answers"], view["is_true"], view["full_is_true"]) == (["YES"], True, True)
        assert (view["keep"], view["order"]) == (kept.keep.tolist(), kept.order.tolist())
        assert view["weights"]["participatory"] == kept.weights[2]
        assert {view["reason_names"][str(reason)] for reason in view["reasons"]} == {"relevant"}
        assert len(view["reason_names"]) == len(Reason)
        assert view["probes"] == given.probes
        assert {"allocation", "channels"}.isdisjoint(view)

    def test_palette_is_that_of_every_picture(self) -> None:
        colours = np.frombuffer(base64.b64decode(trace().view()["palette"]), np.uint8).reshape(256, 3)
        assert np.array_equal(colours, PALETTE)

    @pytest.mark.parametrize(("width", "kind"), [(32, "webp"), (MAX_WEBP + 1, "png")])
    def test_picture(self, width: int, kind: str) -> None:
        picture = Image.new("RGB", (width, 24), (200, 30, 40))
        head, data = image_view(trace(picture=picture).view())["image"].split(",")
        assert head == f"data:image/{kind};base64"
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)
        assert np.abs(shown - np.asarray(picture).astype(int)).mean() < 3

    def test_a_trace_is_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            trace().kept = 3  # ty: ignore[invalid-assignment]
