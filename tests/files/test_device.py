"""Names of devices and dtypes: what auto picks, what is refused."""

from __future__ import annotations

import pytest
import torch

from arr_coc.files.device import DTYPES, resolve_device, resolve_dtype


@pytest.fixture(params=[(None, 0), ("mps", 1), ("cuda", 1), ("cuda", 2)], ids=str)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, int]:
    """A machine with so many devices of a kind beside its CPU."""
    kind, count = request.param
    accelerator = None if kind is None else torch.device(kind)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: accelerator)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    return request.param


class TestDevice:
    @pytest.mark.parametrize("name", ["auto", None])
    def test_auto_is_the_accelerator_or_the_cpu(
        self, machine: tuple[str | None, int], name: str | None
    ) -> None:
        assert resolve_device(name) == torch.device(machine[0] or "cpu")

    def test_a_name_is_that_device_where_it_is_there(self, machine: tuple[str | None, int]) -> None:
        kind, count = machine
        gpus = count if kind == "cuda" else 0
        there = {"cpu": True, "cuda": gpus > 0, "cuda:0": gpus > 0, "cuda:1": gpus > 1, "mps": kind == "mps"}
        usable = ["cuda:0, cuda:1" if gpus > 1 else kind] * (count > 0) + ["cpu"]
        for name, usable_here in there.items():
            for device in (name, torch.device(name)):
                if usable_here:
                    assert resolve_device(device) == torch.device(name)
                    continue
                with pytest.raises(ValueError, match=f"device '{name}' can't be used") as refusal:
                    resolve_device(device)
                assert str(refusal.value).endswith(f"use auto, or one of {', '.join(map(str, usable))}")

    @pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "cuda:-1", "CUDA"])
    def test_unknown_names(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"device '{name}' is unknown: use auto, cpu, cuda, cuda:1 or"):
            resolve_device(name)

    def test_a_device_that_holds_no_values(self) -> None:
        with pytest.raises(ValueError, match="device 'meta' can't be used"):
            resolve_device("meta")


class TestDtype:
    def test_names(self) -> None:
        assert [resolve_dtype(name) for name in DTYPES] == [torch.float32, torch.bfloat16, torch.float16]
        assert [resolve_dtype(name) for name in ("auto", None)] == [None, None]
        assert resolve_dtype(torch.float64) is torch.float64

    @pytest.mark.parametrize("name", ["int8", "half", "", "torch.float32"])
    def test_unknown_names(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"dtype '{name}' is unknown: use auto, float32, bfloat16"):
            resolve_dtype(name)

    def test_whole_numbers_hold_no_weights(self) -> None:
        with pytest.raises(ValueError, match=r"dtype torch\.int8 is unknown: use auto, float32, bfloat16"):
            resolve_dtype(torch.int8)
