"""--device and --dtype on every command that loads a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc.model import ARRCOCModel
from command_line import run, run_json


class TestDevice:
    """Commands that load a model say where and in what it computes, and refuse what is not there."""

    LINES = (
        ("ask", "photo.png", "What?"),
        ("look", "photo.png", "What?"),
        ("info",),
        ("eval", "--questions", "1", "--size", "64", "--out", "new/run"),
        ("bench",),
    )

    @pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
    def test_a_device_that_is_not_there_costs_no_loading(
        self,
        capsys: pytest.CaptureFixture[str],
        image: str,
        monkeypatch: pytest.MonkeyPatch,
        line: tuple[str, ...],
    ) -> None:
        monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
        line = tuple(image if word == "photo.png" else word for word in line)
        for device in ("cuda", "cuda:1", "mps"):
            code, out, err = run(capsys, *line, "-m", "./no-such-model", "--device", device)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert f"device '{device}' can't be used on this machine" in err
            assert "use auto, or one of cpu" in err
        code, _, err = run(capsys, *line, "-m", "./no-such-model", "--device", "gpu")
        assert (code, "device 'gpu' is unknown: use auto, cpu, cuda" in err) == (2, True)
        code, _, err = run(capsys, *line, "-m", "./no-such-model", "--dtype", "int8")
        assert (code, "--dtype" in err, "bfloat16" in err) == (2, True, True)
        assert list(Path().iterdir()) == []

    @pytest.mark.slow
    def test_info_prints_both(self, capsys: pytest.CaptureFixture[str], folder: str) -> None:
        line = ("info", "-m", folder, "--device", "cpu", "--dtype")
        for dtype in ("float32", "bfloat16", "float16"):
            facts = run_json(capsys, *line, dtype)
            assert (facts["device"], facts["dtype"]) == ("cpu", dtype)
        code, out, _ = run(capsys, *line, "bfloat16")
        assert code == 0
        assert "device cpu, bfloat16" in [" ".join(line.split()) for line in out.splitlines()]

    @pytest.mark.slow
    def test_ask_and_look_compute_in_it(
        self, capsys: pytest.CaptureFixture[str], image: str, folder: str
    ) -> None:
        model = ARRCOCModel.from_pretrained(folder, device="cpu", dtype="bfloat16")
        line = (image, "What is it?", "-m", folder, "-b", "5", "--device", "cpu", "--dtype", "bfloat16")
        assert run_json(capsys, "ask", *line)["answer"] == model.ask(image, "What is it?", budget=5).text
        record = run_json(capsys, "look", *line)
        assert record["keep"] == model.look(image, "What is it?", budget=5).to_dict()["keep"]

    def test_an_accelerator_is_used_where_there_is_one(
        self, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The device of the machine is replaced by one without memory, which any machine has."""
        names: list[Any] = []

        def resolve(name: Any) -> torch.device:
            names.append(name)
            return torch.device("meta")

        monkeypatch.setattr("arr_coc.model.resolve_device", resolve)
        model = ARRCOCModel.from_pretrained(folder)
        assert names == ["auto"]
        assert {p.device.type for p in model.parameters()} == {"meta"}
