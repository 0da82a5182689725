"""Milliseconds of each stage up to the first new token, and peak memory, of one method on one question.

    measure(trial, time_encoding(trial)) -> {"encode": 101.0, "select": 9.1, "prefill": 12.0}

gestalt: the coarse view; encode: the vision encoder, recording what the method reads of it; select: all that
a method computes beyond; prefill: the shortened prompt up to the first new token's logits. Their sum is the
time to the first token; preparing pixels and prompt, equal for all, is outside it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.seam import VisualFeatures
from arr_coc_lab.evaluate.answering import prefill
from arr_coc_lab.evaluate.layer_pruning import cut_layer, pruned_prefill
from arr_coc_lab.evaluate.view import Tower, View, encode
from arr_coc_lab.rivals.method import Count, Method
from arr_coc_lab.rivals.reduction import Reduction

UNKNOWN_BLOCK = b"Memory block of unknown size was allocated before the profiling started"
"""torch's allocator writes this when the measured call frees what it did not allocate, as it should here."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A method with a budget on one question.

    `budget` is a count or "auto"; None for methods that use all tokens of what they encode, or have a fixed
    cost. Of `view` only the arguments are used, nothing cached. `inputs` is the prompt with pixels, possibly
    of a smaller image.
    """

    method: Method
    budget: Count | None
    view: View
    question: int
    inputs: Mapping[str, Any]

    @property
    def watched(self) -> bool:
        """Whether the method reads the vision tower."""
        return "tower" in self.method.needs


@dataclass(frozen=True, eq=False)
class Encoded:
    """One encoding and its milliseconds; methods that encode alike may share it."""

    features: VisualFeatures
    tower: Tower | None
    ms: float


@torch.no_grad()
def time_encoding(trial: Trial) -> Encoded:
    """Encode and time the inputs of a trial."""
    model = trial.view.model
    now = Stopwatch(model.device).now
    start = now()
    features, tower = encode(model, trial.inputs, trial.watched)
    return Encoded(features, tower, 1000 * (now() - start))


@torch.no_grad()
def measure(trial: Trial, encoded: Encoded | None = None) -> dict[str, float]:
    """Milliseconds of each stage, batch of one; `encoded` is None for methods that encode for themselves."""
    method, model = trial.method, trial.view.model
    if method.prepare is not None:
        return _measure_prepared(trial)
    assert encoded is not None, "methods without prepare need an encoding"
    features = encoded.features
    now = Stopwatch(model.device).now
    start = now()
    kept = Reduction(torch.arange(len(features.cells[0]), device=model.device))
    if method.select is not None and trial.budget is not None:
        fresh = replace(trial.view, features=features, tower=encoded.tower)
        kept = method.select(fresh, trial.question, trial.budget)
    selected = now()
    if method.between_layers is not None:
        assert isinstance(trial.budget, int), "only ours chooses how many"
        rule, layer = method.between_layers, cut_layer(model, method.layers)
        pruned_prefill(model, trial.inputs, features, rule, trial.budget, layer=layer)
    else:
        prefill(model, trial.inputs, features, kept, method.mode)
    done = now()
    times = {"encode": encoded.ms, "select": 1000 * (selected - start), "prefill": 1000 * (done - selected)}
    return {stage: round(ms, 3) for stage, ms in times.items()}


def _measure_prepared(trial: Trial) -> dict[str, float]:
    method, model = trial.method, trial.view.model
    assert method.prepare is not None, "called for methods that prepare"
    watch = Stopwatch(model.device)
    start = watch.now()
    encoded = replace(trial.view).encoded(method.name)  # of a fresh view, which has computed nothing yet
    ready = method.prepare(trial.view, trial.question, trial.budget, encoded, watch)
    model.adapter_for(method.mode).model(**ready.compacted.kwargs, use_cache=True, logits_to_keep=1)
    total = 1000 * (watch.now() - start)
    times = {"encode": watch.ms["encode"], "select": watch.choosing()}
    if watch.ms["gestalt"]:
        times = {"gestalt": watch.ms["gestalt"]} | times
    times["prefill"] = total - sum(times.values())
    return {stage: round(ms, 3) for stage, ms in times.items()}


def peak_megabytes(run: Callable[[], object], device: torch.device) -> float:
    """Return the most memory that a call holds at once beyond what was held before it, in MiB.

    On CUDA the allocator's own count. On the CPU the running sum of torch's allocations from its profiler;
    other libraries' are not in it.
    """
    if device.type == "cuda":
        held = memory_of_process(run, device)
        return held.peak - held.before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else every call writes lines of no use to stderr
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _stderr_without(UNKNOWN_BLOCK), profiler as profiled:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    steps = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    sums = torch.tensor([0, *(size for _, size in steps)], dtype=torch.float64).cumsum(0)
    return float(sums.max()) / 2**20


@dataclass(frozen=True)
class Memory:
    """What a process holds in MiB: before a call, at most during it, and after it."""

    before: float
    peak: float
    after: float


def memory_of_process(run: Callable[[], object], device: torch.device) -> Memory:
    """Return the memory of this process around a call, all libraries' included: what the machine must have.

    On CUDA what torch's allocator holds for tensors, else resident memory, which Linux alone tells. A process
    keeps some of what it was given, so only its first call tells what such a call needs: run one in each.

    Raises:
        ValueError: this system doesn't tell the peak of resident memory.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        held = (before, torch.cuda.max_memory_allocated(device), torch.cuda.memory_allocated(device))
        return Memory(*(size / 2**20 for size in held))
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from now on
    except OSError as error:
        raise ValueError(
            f"this system doesn't tell the peak of resident memory ({error}): measure on Linux, or on CUDA"
        ) from error
    before = _resident("VmRSS")
    run()
    return Memory(before, _resident("VmHWM"), _resident("VmRSS"))


def _resident(name: str) -> float:
    """Return a figure of /proc/self/status in MiB: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024


@contextmanager
def _stderr_without(text: bytes) -> Generator[None]:
    """Drop lines with a text that native code writes to stderr; other lines come at the end."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as written:
        stderr = os.dup(2)
        try:
            os.dup2(written.fileno(), 2)  # native code writes past sys.stderr
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            others = [line for line in written if text not in line]
            if others:
                os.write(2, b"".join(others))
