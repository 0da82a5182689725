"""Names of devices and dtypes: what auto picks, what is refused."""

from __future__ import annotations

import pytest
import torch

from arr_coc.files.device import DTYPES, resolve_device, resolve_dtype


@pytest.fixture(params=[(0, False), (0, True), (1, False), (2, True)], ids=str)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bool]:
    """A machine with so many CUDA devices, and with or without MPS."""
    count, mps = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    return request.param


class TestDevice:
    @pytest.mark.parametrize("name", ["auto", None])
    def test_auto_is_cuda_then_mps_then_the_cpu(self, machine: tuple[int, bool], name: str | None) -> None:
        count, mps = machine
        assert resolve_device(name) == torch.device("cuda" if count else "mps" if mps else "cpu")

    def test_a_name_is_that_device_where_it_is_there(self, machine: tuple[int, bool]) -> None:
        count, mps = machine
        there = {"cpu": True, "cuda": count > 0, "cuda:0": count > 0, "cuda:1": count > 1, "mps": mps}
        usable = ["cuda:0, cuda:1" if count > 1 else "cuda"] * (count > 0) + ["mps"] * mps + ["cpu"]
        for name, usable_here in there.items():
            for device in (name, torch.device(name)):
                if usable_here:
                    assert resolve_device(device) == torch.device(name)
                    continue
                with pytest.raises(ValueError, match=f"device '{name}' can't be used") as refusal:
                    resolve_device(device)
                assert str(refusal.value).endswith(f"use auto, or one of {', '.join(usable)}")

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
