"""LoRAs for reading what is encoded in part: kept sets, patches, the lesson of the whole tower, resuming.

Run: pytest tests/making/test_partial.py
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from arr_coc.store import checkpoint
from arr_coc.world import draw_page
from making import partial
from making.bundled import CELL, image_tensor, patchify
from making.words import build_tokenizer

PAGE = (8 * CELL, 6 * CELL)
SETTINGS = {"lr": 1e-3, "rank": 2, "hint": 0.2, "dense": 0.02, "echo": 1.0, "saccades": 0.5, "threads": 1}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of an adapter."""
    return load_file(folder / "adapter_model.safetensors")


def learned(folder: Path) -> bool:
    """Whether an adapter does anything: its second factors begin at zero."""
    return any(bool(value.any()) for name, value in weights(folder).items() if "lora_B" in name)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of some forty cells, so that a step takes a moment."""
    monkeypatch.setattr(partial, "SIDES", (192,))
    monkeypatch.setattr(partial, "LARGE", (256,))
    monkeypatch.setattr(partial, "PACKS", ((12, 4),))
    monkeypatch.setattr(partial, "GESTALT", 9)
    monkeypatch.setattr(partial, "SACCADES", 12)


@pytest.fixture(scope="module")
def base():
    return checkpoint.load_base(checkpoint.BUNDLED)[0]


class TestKeptCells:
    def test_evidence_is_kept_and_the_count_is_met(self) -> None:
        evidence = np.zeros((6, 8), bool)
        evidence[2, 3:6] = True
        for seed in range(20):
            kept = partial.kept_cells(random.Random(seed), evidence, evidence, 10)
            assert len(kept) == 10
            assert set(np.flatnonzero(evidence)) <= set(kept)
            assert (np.diff(kept) > 0).all()

    def test_no_more_cells_than_there_are(self) -> None:
        nothing = np.zeros((2, 3), bool)
        assert partial.kept_cells(random.Random(0), nothing, nothing, 10).tolist() == list(range(6))


def test_patches_of_some_cells_are_those_of_the_whole_page() -> None:
    image = image_tensor(draw_page(3, PAGE, "train").image)
    whole = patchify(image)
    image = 2 * image - 1  # as the processor has it
    cells = np.array([0, 7, 8, 30, 47])
    rows = torch.from_numpy(cells)[:, None] * 4 + torch.arange(4)
    assert torch.equal(partial.cell_patches(image, cells), whole[rows.flatten()])


class TestEcho:
    def test_nothing_is_missed_of_the_same(self) -> None:
        levels = [torch.randn(20, 8), torch.randn(20, 8)]
        assert partial.echo_loss(levels, levels) == 0

    def test_who_knows_the_mean_alone_misses_everything(self) -> None:
        whole = [3 + 2 * torch.randn(400, 8)]
        mean = [whole[0].mean(0).expand(400, 8)]
        assert partial.echo_loss(mean, whole).item() == pytest.approx(1, abs=0.01)

    @pytest.mark.usefixtures("small")
    def test_all_cells_of_a_page_are_what_the_whole_tower_sees(self, base, monkeypatch) -> None:
        monkeypatch.setattr(partial, "PACKS", ((999, 20),))
        batch = partial.Parts(build_tokenizer(), 0, 1, saccades=0.0)[0]
        with torch.no_grad():
            levels, whole = partial.look(base, batch), partial.look(base, batch["page"])
        for part, all_of_it in zip(levels, whole, strict=True):
            torch.testing.assert_close(part, all_of_it[batch["cells"]], atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.filterwarnings("ignore:Already found a `peft_config`")
class TestTraining:
    def test_a_step_teaches_the_adapters_of_its_mode_alone(self, tmp_path: Path) -> None:
        for saccades, kind in ((0.0, "sparse"), (1.0, "saccade")):
            batch = partial.Parts(build_tokenizer(), 0, 1, saccades)[0]
            assert batch["kind"] == kind
            assert ("page" in batch) == (kind == "sparse")
            out = tmp_path / f"{kind}.safetensors"
            partial.train(out, **SETTINGS | {"saccades": saccades}, steps=1, folder=tmp_path / kind)
        taught = {
            kind: {part for part in ("partial", "coarse") if learned(tmp_path / kind / part)}
            for kind in ("sparse", "saccade")
        }
        assert taught == {"sparse": {"partial"}, "saccade": {"partial", "coarse"}}

    def test_killed_it_goes_on_to_the_same_adapters(self, tmp_path: Path) -> None:
        for name, stops in (("once", (3,)), ("twice", (1, 3))):
            out = tmp_path / f"{name}.safetensors"
            for until in stops:
                partial.train(out, **SETTINGS, steps=3, until=until, folder=tmp_path / name)
        for part in ("partial", "coarse"):
            once, twice = (weights(tmp_path / name / part) for name in ("once", "twice"))
            assert once.keys() == twice.keys()
            assert all(torch.equal(once[key], twice[key]) for key in once)
        assert learned(tmp_path / "once" / "partial")

    def test_it_can_begin_with_what_is_bundled(self, tmp_path: Path) -> None:
        out, folder = tmp_path / "run.safetensors", tmp_path / "adapters"
        still = SETTINGS | {"lr": 0.0}
        partial.train(out, **still, steps=1, folder=folder, init=checkpoint.BUNDLED_ALLOCATOR)
        before, after = (weights(place / "partial") for place in (checkpoint.BUNDLED_ALLOCATOR, folder))
        assert before.keys() == after.keys()
        assert all(torch.allclose(before[key].float(), after[key].float(), atol=1e-6) for key in before)
