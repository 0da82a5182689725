"""The guide's file: what is saved comes back, folded and fast, and nothing else is read."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from arr_coc.guide.guide import GUIDE_FILE, GUIDE_FORMAT, Guide, load_guide, save_guide

QUESTIONS = ["What is the total?", "Who?"]


@cache
def taught() -> Guide:
    """A guide away from its start, as if it were trained."""
    guide, draws = Guide().eval(), torch.Generator().manual_seed(1)
    for module in guide.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1, generator=draws)
            module.running_var.uniform_(0.5, 2.0, generator=draws)
    for parameter in guide.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=draws)
    return guide


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_guide(taught(), tmp_path / "guide", [{"recipe": "relevance", "steps": 3}])
    return tmp_path / "guide"


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-3), ("bfloat16", 0.3)])
def test_it_says_what_was_saved(folder: Path, dtype: str, most: float) -> None:
    rounded = copy.deepcopy(taught())  # to the bfloat16 of the file, without folding
    rounded.load_state_dict({k: v.float() for k, v in load_file(folder / GUIDE_FILE).items()})
    picture = torch.rand(3, 96, 160, generator=torch.Generator().manual_seed(0))
    expected = rounded.judge(rounded.page(picture), QUESTIONS)
    guide = load_guide(folder, dtype)
    judged = guide.judge(guide.page(picture), QUESTIONS)
    for one, other in zip(judged, expected, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).abs().max() < most


@pytest.mark.slow
def test_it_is_frozen_folded_and_loaded_once(folder: Path) -> None:
    guide = load_guide(folder)
    assert guide is load_guide(str(folder))
    assert not guide.training
    assert not any(parameter.requires_grad for parameter in guide.parameters())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in guide.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in taught().modules())
    with pytest.raises(ValueError, match="no batch norms left"):
        save_guide(guide, folder)
    save_guide(Guide(), folder)
    assert load_guide(folder) is not guide  # another was written there


@pytest.mark.slow
def test_a_relative_folder_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guides = []
    for name, guide in (("a", taught()), ("b", Guide())):
        save_guide(guide, tmp_path / name / "guide")
    for name in ("a", "b"):
        monkeypatch.chdir(tmp_path / name)
        guides.append(load_guide("guide"))
        assert guides[-1] is load_guide("guide") is load_guide(tmp_path / name / "guide")
    assert guides[0] is not guides[1]
    assert not torch.equal(guides[0].head.last.weight, guides[1].head.last.weight)


class TestRefused:
    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"has no guide .*arr-coc train guide --out"):
            load_guide(tmp_path)

    @pytest.mark.parametrize("change", ["format", "missing", "more", "shape", "nan", "bytes", "cut"])
    def test_another_file(self, folder: Path, change: str) -> None:
        path = folder / GUIDE_FILE
        tensors, meta = load_file(path), {"format": GUIDE_FORMAT}
        name = "head.last.weight"
        if change == "format":
            meta = {"format": "arr-coc guide 0"}
        elif change == "missing":
            del tensors[name]
        elif change == "more":
            tensors["extra"] = torch.zeros(1)
        elif change == "shape":
            tensors[name] = torch.zeros(2, 2)
        elif change == "nan":
            tensors[name] = torch.full_like(tensors[name], torch.nan)
        save_file(tensors, path, meta)
        if change in ("bytes", "cut"):
            path.write_bytes(b"PK\x03\x04" * 9 if change == "bytes" else path.read_bytes()[:-9])
        with pytest.raises(ValueError, match="is not a saved guide") as error:
            load_guide(folder)
        assert "\n" not in str(error.value)

    def test_records_that_are_none(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="trained_on"):
            save_guide(taught(), tmp_path, [{"steps": -1}])
