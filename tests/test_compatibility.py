"""Files that earlier versions wrote are read, and give what they gave: see tests/saved/write_v0_1.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from arr_coc import Allocation, ARRCOCModel
from arr_coc_lab.results.files import decode_kept, read_results
from arr_coc_lab.world.summary import read_summary, summarise
from near import near

FOLDER = Path(__file__).parent / "saved" / "v0.1"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
CALLS: dict[str, dict[str, Any]] = EXPECTED["calls"]

every_call = pytest.mark.parametrize("name", CALLS)


def load(budget: int | None) -> ARRCOCModel:
    """The saved base model with the saved allocator: layer, stem and three LoRAs."""
    return ARRCOCModel.from_pretrained(
        FOLDER / "base", allocator=FOLDER / "allocator", dtype=torch.float32, budget=budget, strict=True
    )


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return load(EXPECTED["budget"])


@pytest.fixture(scope="module")
def unbudgeted() -> ARRCOCModel:
    return load(None)


@pytest.fixture
def budgeted(model: ARRCOCModel, unbudgeted: ARRCOCModel, name: str) -> ARRCOCModel:
    """The model with the budget of a call: in "saccade" the allocator's own, 529 tokens in all."""
    return unbudgeted if CALLS[name]["call"]["mode"] == "saccade" else model


def options(name: str) -> dict[str, Any]:
    return {key: value for key, value in CALLS[name]["call"].items() if key != "mode"}


class TestAllocatorFolder:
    """Written by `save_pretrained` of 0.1.0."""

    def test_every_part_is_there(self, model: ARRCOCModel) -> None:
        assert model.layer.trained
        assert model.stem is not None
        assert list(model.compressors) == []

    def test_a_compressor_that_is_gone_is_left_alone(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("WARNING"):
            load(None)
        (line,) = [record.getMessage() for record in caplog.records if "conv4" in record.getMessage()]
        assert "conv4.safetensors isn't read: compressor 'conv4' was removed, use 'pool4'" in line

    @every_call
    def test_answers(self, budgeted: ARRCOCModel, name: str) -> None:
        expected = CALLS[name]
        session = budgeted.session(FOLDER / "page.png")
        answer = session.ask(
            EXPECTED["question"], mode=expected["mode"], max_new_tokens=EXPECTED["new"], **options(name)
        )
        assert not answer.fallback
        assert (answer.mode, answer.kept, answer.read) == tuple(expected[k] for k in ("mode", "kept", "read"))
        assert answer.allocation.keep.tolist() == expected["keep"]
        assert answer.allocation.order[:5].tolist() == expected["first"]
        assert answer.allocation.void == expected["void"]
        assert answer.text == expected["text"]

    @torch.no_grad()
    @pytest.mark.parametrize("name", [name for name in CALLS if CALLS[name]["logits"] is not None])
    def test_logits(self, budgeted: ARRCOCModel, name: str) -> None:
        expected = CALLS[name]
        inputs = budgeted.session(FOLDER / "page.png").inputs(EXPECTED["question"])
        call = {"mode": expected["mode"], **options(name)}
        logits = budgeted(**inputs, **call).logits[0, -1, : len(expected["logits"])]
        assert near(logits, torch.tensor(expected["logits"]))
        ids = budgeted.generate(**inputs, **call, max_new_tokens=EXPECTED["new"], do_sample=False)
        assert ids[0, inputs["input_ids"].shape[1] :].tolist() == expected["ids"]

    def test_calls_differ(self) -> None:
        """Each part of the allocator moves something: a part that was not loaded would be noticed."""
        logits = {tuple(call["logits"]) for call in CALLS.values() if call["logits"] is not None}
        assert len(logits) == sum(call["logits"] is not None for call in CALLS.values())

    def test_saved_again_it_is_the_same(self, model: ARRCOCModel, tmp_path: Path) -> None:
        """Every weight of today's folder is written back under its name."""
        model.save_pretrained(tmp_path / "again")
        old = sorted(
            path.relative_to(FOLDER / "allocator")
            for path in FOLDER.glob("allocator/**/*.safetensors")
            if path.name != "conv4.safetensors"  # a compressor that is gone
        )
        assert len(old) == 5
        for path in old:
            before, after = (
                load_file(folder / path) for folder in (FOLDER / "allocator", tmp_path / "again")
            )
            assert before.keys() == after.keys(), path
            assert all(torch.equal(before[key], after[key]) for key in before), path


def test_allocation_record() -> None:
    expected, record = EXPECTED["allocation"], Allocation.load(FOLDER / "allocation.safetensors")
    assert list(record.grid) == expected["grid"]
    assert record.keep.tolist() == expected["keep"] == CALLS["sparse"]["keep"]
    assert record.order.tolist() == expected["order"]
    assert record.weights.tolist() == pytest.approx(expected["weights"], abs=1e-6)
    assert record.tensions == expected["tensions"]
    assert (record.budget, record.void) == (expected["budget"], expected["void"])
    for name, total in expected["sums"].items():
        assert float(getattr(record, name).double().sum()) == pytest.approx(total, abs=1e-9)


def test_allocation_is_still_what_the_model_decides(model: ARRCOCModel) -> None:
    saved = Allocation.load(FOLDER / "allocation.safetensors")
    now = model.look(FOLDER / "page.png", EXPECTED["question"], mode="sparse")
    assert torch.equal(now.keep, saved.keep)
    for name in ("information", "perspectival", "participatory", "balanced", "weights"):
        assert near(getattr(now, name), getattr(saved, name)), name


@pytest.mark.slow
def test_result_lines_and_summary() -> None:
    header, records = read_results(FOLDER / "results.jsonl")
    assert len(records) == header["questions"] == 4
    summary = read_summary(FOLDER / "results.json")
    again = json.loads(json.dumps(summarise(header, records)))
    assert again.keys() >= summary.keys()
    assert again["methods"].keys() == summary["methods"].keys()
    for name, row in summary["methods"].items():  # later versions may say more of a method, not otherwise
        assert {key: again["methods"][name][key] for key in row} == row, name
        assert [row["n"], row["score"]] == EXPECTED["scores"][name]
    assert any(0 < score < 1 for _, score in EXPECTED["scores"].values())
    for record in records:
        for method, text in record["kept"].items():
            assert decode_kept(text, record["total"]).sum() == record["tokens"][method]
