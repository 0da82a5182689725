"""ZeroGPU, with a stand-in for its package `spaces` that pickles what goes into a call and comes out."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("gradio", reason="the extra app is not installed")

from arr_coc.app import lending
from arr_coc.app.api import answer
from arr_coc.app.asking import AskForm, ask, swap
from arr_coc.app.models import Models
from arr_coc.app.state import Tab
from arr_coc.model import ARRCOCModel
from tiny import picture, tiny

REQUEST: ContextVar[str] = ContextVar("request", default="")


@pytest.fixture
def model() -> ARRCOCModel:
    built = tiny("qwen3_vl")
    return ARRCOCModel.wrap(built.model, built.processor, budget=9)


@pytest.fixture
def decorated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """The calls of decorated functions, where `spaces` is there."""
    calls: list[tuple[str, int]] = []

    def gpu(task: Callable[..., Any]) -> Callable[..., Any]:
        def in_another_process(*arguments: Any) -> Any:
            work = pickle.loads(pickle.dumps(arguments))
            assert REQUEST.get() == "of this caller"
            calls.append((work[1].__name__, work[0]))
            return pickle.loads(pickle.dumps(task(*work)))

        return in_another_process

    REQUEST.set("of this caller")  # as Gradio does, for ZeroGPU to see whose request it is
    spaces = ModuleType("spaces")
    spaces.__spec__ = ModuleSpec("spaces", None)
    spaces.GPU = gpu  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spaces", spaces)
    monkeypatch.setattr(lending, "_models", {})
    lending.lent_call.cache_clear()
    yield calls
    lending.lent_call.cache_clear()


@pytest.fixture
def path(tmp_path: Path) -> str:
    picture(1, (64, 48)).save(tmp_path / "page.png")
    return str(tmp_path / "page.png")


def test_nothing_is_decorated_elsewhere(
    model: ARRCOCModel, path: str, decorated: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither without the package, nor on other hardware where it is there."""
    for flag, there in (("true", False), ("", True)):
        monkeypatch.setenv(lending.FLAG, flag)
        with monkeypatch.context() as patch:
            if not there:
                patch.setitem(sys.modules, "spaces", None)
                patch.setattr(lending, "find_spec", lambda name: None)
            models = Models(model)
            assert not models.lends
            assert answer(models, path, "What is it?", "9", None)["kept"] == 9
            models.close()
    assert decorated == []


@pytest.mark.parametrize("flag", ["true", "1"])
def test_each_question_has_a_gpu(
    model: ARRCOCModel,
    path: str,
    decorated: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
) -> None:
    here = Models(model)
    expected = answer(here, path, "What is it?", "9", "sparse")
    here.close()
    monkeypatch.setenv(lending.FLAG, flag)
    models, tab = Models(model, model), Tab()
    assert models.lends
    lent = answer(models, path, "What is it?", "9", "sparse")
    assert {name: lent[name] for name in ("answer", "kept", "total", "mode")} == {
        name: expected[name] for name in ("answer", "kept", "total", "mode")
    }
    updates = list(ask(models, tab, AskForm(path, "What is it?", tokens=9, mode="sparse")))
    assert updates[0].status.startswith("Waiting for a GPU")
    assert tab.trace is not None
    assert tab.trace.answer == expected["answer"]
    assert len(list(swap(models, tab, "And where is it?"))) > 0
    assert decorated == [("replied", 0), ("answered", 0), ("answered", 0)]
    assert not tab.sessions  # what is encoded stays in the other process
    models.close()


def test_a_refusal_comes_back_as_one(
    model: ARRCOCModel, path: str, decorated: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(lending.FLAG, "true")
    models = Models(model)
    with pytest.raises(ValueError, match="mode 'none' is unknown"):
        list(ask(models, Tab(), AskForm(path, "What is it?", tokens=9, mode="none")))
    assert decorated == [("answered", 0)]
    models.close()


def test_the_model_waits_on_the_cpu(
    decorated: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved in the call alone: a Space's own process must not touch CUDA."""
    monkeypatch.setenv(lending.FLAG, "true")
    models = Models("bundled", device="auto")
    model = models.submit(lambda loaded: loaded).result()
    assert {parameter.device for parameter in model.parameters()} == {torch.device("cpu")}
    assert decorated == []  # nor is it warmed up
    models.close()
