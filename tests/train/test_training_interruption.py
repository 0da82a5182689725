"""Ctrl-C and SIGTERM keep what was learned, and no process outlives the one that it works for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from arr_coc.model import ARRCOCModel
from arr_coc.train import callbacks, loop, trainer
from arr_coc.train.learner import Learner
from arr_coc.train.processes import start_worker
from arr_coc.train.recipe import Recipe, make_recipe
from command_line import run
from tiny import picture

WEIGHTS = "arr_coc.safetensors"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small pictures with a question and a box each."""
    folder = tmp_path_factory.mktemp("rows")
    lines = []
    for i in range(3):
        picture(i, (48, 40)).save(folder / f"{i}.png")
        lines.append(
            {
                "image": f"{i}.png",
                "question": f"What is it, {i}?",
                "answer": "a",
                "boxes": [[8 * i, 0, 24, 16]],
            }
        )
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def recipe(base: Path, rows: Path, **changes: Any) -> Recipe:
    settings = {"stage": "relevance", "model": str(base), "data": (f"jsonl:{rows}",), "steps": 4}
    return make_recipe(**settings | {"warmup": 0, "workers": 0, "log_every": 1} | changes)


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Send signals to this process in the middle of a step."""

    def send(step: int, *signals: signal.Signals) -> None:
        forward, count = Learner.forward, iter(range(1, 999))

        def signalled(self: Learner, items: Any) -> Any:
            result = forward(self, items)
            if next(count) == step:
                for number in signals:
                    signal.raise_signal(number)
            return result

        monkeypatch.setattr(Learner, "forward", signalled)

    return send


@pytest.mark.slow
def test_what_was_learned_is_usable_and_the_run_goes_on_to_the_same_end(
    base: Path, rows: Path, tmp_path: Path, at_step: Callable[..., None]
) -> None:
    settings, whole, stopped = recipe(base, rows), tmp_path / "whole", tmp_path / "stopped"
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    trainer.train(settings, whole, progress=False)
    at_step(2, signal.SIGINT)
    done = trainer.train(settings, stopped, progress=False)
    assert (done["steps"], done["of"], done["signal"]) == (2, 4, signal.SIGINT)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers

    model = ARRCOCModel.from_pretrained(stopped, strict=True)
    assert model.layer.trained
    assert [run["steps"] for run in model.layer.trained_on] == [2]
    assert model.ask(rows / "0.png", "What?", budget=5, max_new_tokens=2).kept == 5

    done = trainer.train(settings, stopped, progress=False)
    assert (done["steps"], done["signal"]) == (4, None)
    first, second = (load_file(folder / WEIGHTS) for folder in (whole, stopped))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not list(stopped.glob("checkpoint-*"))


@pytest.mark.slow
def test_a_second_one_stops_at_once(
    base: Path, rows: Path, tmp_path: Path, at_step: Callable[..., None]
) -> None:
    at_step(2, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(recipe(base, rows, save_every=1), tmp_path / "out", progress=False)
    assert (tmp_path / "out" / "checkpoint-1").is_dir()
    assert not (tmp_path / "out" / WEIGHTS).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_first_step_nothing_is_left(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(trainer, "build_learner", lambda *_: signal.raise_signal(number))
    with pytest.raises(KeyboardInterrupt):
        trainer.train(recipe(base, rows), tmp_path / "out", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_says_how_to_use_it_and_how_to_go_on(
    capsys: pytest.CaptureFixture[str], base: Path, rows: Path, tmp_path: Path, at_step: Callable[..., None]
) -> None:
    line = ["train", "relevance", f"model={base}", f"data=jsonl:{rows}", "steps=2", "workers=0"]
    line += ["--out", str(tmp_path / "out")]
    at_step(1, signal.SIGTERM)
    code, out, err = run(capsys, *line)
    assert (code, out) == (143, "")
    last = err.splitlines()[-1]
    assert "stopped after step 1 of 2; what was learned so far is usable: arr-coc ask" in last
    assert last.endswith("the same line goes on from there")
    code, out, _ = run(capsys, *line)
    assert code == 0
    assert "2 steps" in out


class TestWorkers:
    @pytest.mark.slow
    def test_those_of_a_run_end_with_it(
        self, base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whether it begins or goes on, the run's own data loader starts its workers so."""
        pids = tmp_path / "pids"

        def start(worker: int) -> None:
            with pids.open("a") as file:
                file.write(f"{os.getpid()}\n")
            start_worker(worker)

        monkeypatch.setattr(loop, "start_worker", start)
        settings = recipe(base, rows, workers=1, steps=2)
        trainer.train(settings, tmp_path / "out", progress=False, stop_at=1)
        trainer.train(settings, tmp_path / "out", progress=False)
        workers = set(pids.read_text().split())
        assert len(workers) == 2
        assert str(os.getpid()) not in workers

    @pytest.mark.slow
    def test_a_killed_parent_leaves_none(self, tmp_path: Path) -> None:
        """With images waiting to be handed over: torch's own workers would wait for ever."""
        (tmp_path / "script.py").write_text(SCRIPT)
        parent = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE)
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        try:
            assert len(pids) == 2
            assert all(map(alive, pids))
            parent.kill()
            parent.wait()
            deadline = time.monotonic() + 60  # of a law: without it they live for ever
            while any(map(alive, pids)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not any(map(alive, pids))
        finally:
            parent.kill()
            for pid in filter(alive, pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


SCRIPT = """
import multiprocessing, time
from torch.utils.data import DataLoader
from arr_coc.train.processes import start_worker

if __name__ == "__main__":
    images = [bytes(1_000_000)] * 100
    batches = iter(DataLoader(images, num_workers=2, collate_fn=list, worker_init_fn=start_worker))
    next(batches)
    print(*[worker.pid for worker in multiprocessing.active_children()], flush=True)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(OSError):
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    return not Path("/proc").is_dir()


@pytest.mark.slow
def test_time_lowers_the_learning_rate_to_its_end(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock by which each step takes twelve seconds: a minute is five of a thousand steps."""
    ticks = iter(range(0, 10_000, 12))
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    out = tmp_path / "out"
    settings = recipe(base, rows, steps=1000, lr=1e-2)
    result = trainer.train(settings, out, progress=False, device="cpu", minutes=1)
    assert (result["steps"], result["signal"]) == (5, None)
    lines = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "loss" in line]
    assert rates == pytest.approx([1e-2 * (1 - step / 5) for step in range(5)], rel=1e-2)


@pytest.mark.slow
def test_time_goes_on_where_a_run_goes_on(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five steps to the minute in two starts, an hour apart: the rate falls on, the fifth is the last."""
    ticks = iter(range(0, 10_000, 12))
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    out, settings = tmp_path / "out", recipe(base, rows, steps=1000, lr=1e-2)
    more: dict[str, Any] = {"progress": False, "device": "cpu", "minutes": 1}
    assert trainer.train(settings, out, stop_at=2, **more)["steps"] == 2
    ticks = iter(range(3600, 10_000, 12))
    assert trainer.train(settings, out, **more)["steps"] == 5
    lines = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "loss" in line]
    assert rates == pytest.approx([1e-2 * (1 - step / 5) for step in range(5)], rel=1e-2)


@pytest.mark.slow
def test_a_checkpoint_without_a_clock_begins_it(base: Path, rows: Path, tmp_path: Path) -> None:
    """Those of older versions have none."""
    out, settings = tmp_path / "out", recipe(base, rows, steps=3, save_every=1)
    trainer.train(settings, out, progress=False, device="cpu", stop_at=1)
    state = out / "checkpoint-1" / "trainer_state.json"
    content = json.loads(state.read_text())
    assert content["stateful_callbacks"].pop("Deadline")["attributes"]["seconds"] > 0
    state.write_text(json.dumps(content))
    assert trainer.train(settings, out, progress=False, device="cpu", minutes=60)["steps"] == 3


@pytest.mark.slow
def test_without_a_limit_of_time_the_rate_is_linear_in_the_steps(
    base: Path, rows: Path, tmp_path: Path
) -> None:
    settings = recipe(base, rows, steps=4, warmup=2, lr=1e-2)
    trainer.train(settings, tmp_path / "out", progress=False, device="cpu")
    lines = [json.loads(line) for line in (tmp_path / "out" / "curve.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "loss" in line]
    assert rates == pytest.approx([0, 5e-3, 1e-2, 5e-3])
