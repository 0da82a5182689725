"""Time, arithmetic and memory up to the first token, of modes and rivals measured in one run.

    bench(model, image, question, ("stock", "prune@273", "visionzip@273", "sparse@64")) -> [SpeedRow, ...]

A way is "stock"; a mode of ours, NAME or NAME@BUDGET (`evaluate.ways` has all forms); or a rival or null of
`rivals.METHODS` with a count, on the stock model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from arr_coc.choose.budget import budget_count
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.model import ARRCOCModel
from arr_coc.modes import FULL, MODES
from arr_coc.seam.prompt import chat_prompt
from arr_coc_lab.evaluate.answering import prefill, visual_tokens
from arr_coc_lab.evaluate.layer_pruning import cut_layer, pruned_prefill
from arr_coc_lab.evaluate.questions import ImageQueries, Query
from arr_coc_lab.evaluate.timing import peak_megabytes
from arr_coc_lab.evaluate.view import View, encode
from arr_coc_lab.evaluate.ways import STOCK, WayName, read_way, rivals_on_stock
from arr_coc_lab.evaluate.work import FUSED, ByteCounter, processor_name
from arr_coc_lab.rivals import QueryBlindScorer
from arr_coc_lab.rivals.method import Method, find_method

logger = logging.getLogger(__name__)

COMMON = (STOCK, "full", "prune@273", "prune@64", "sparse@273", "sparse@64", "saccade", "compress")
# processor; coarse view; texture, scores, choice; vision encoder; prompt and language model
STAGES = ("process", "gestalt", "select", "encode", "prefill")


@dataclass(frozen=True)
class Arrival:
    """The first token of a batch: `logits` [B, vocabulary], and the mode that ran.

    `tokens` are the visual tokens per image in the language model, the mean over its layers; `note` says why
    another mode ran than the one named.
    """

    logits: Tensor = field(repr=False)
    tokens: float
    ran: str = STOCK
    note: str | None = None


@dataclass(frozen=True)
class Counted:
    """The work of one way, counted in a run that is not timed: 1e12 operations, 1e9 bytes, peak MiB."""

    tflop: float
    gbyte: float
    peak_mb: float
    arrival: Arrival


Inputs = Mapping[str, Any]
Way = Callable[[Inputs, Stopwatch], Arrival]
"""Processor inputs -> the first token, with stage times added to the watch."""


@dataclass(frozen=True)
class SpeedRow:
    """The costs of one way; figures are medians over rounds."""

    mode: str  # the way, as it was named
    batch: int  # rows of one image and question each
    tokens: float  # visual tokens per image in the language model, the mean over its layers
    ms: float  # milliseconds from picture and question to the logits
    rounds: list[float]  # `ms` of each round
    stages: dict[str, float]  # milliseconds of each of `STAGES`
    select: float  # milliseconds of choosing, with a coarse view that serves the choice alone
    # 1e12 floating-point operations of matrix products, convolutions and attention (not causal), two to a
    # multiplication
    tflop: float
    gbyte: float  # 1e9 bytes that these read and write: weights, activations, keys and values
    peak_mb: float  # the most MiB held at once beyond the weights
    # how many times faster than stock; None where stock did not run, like the next four
    speed: float | None = None
    # how many times fewer operations than stock: the limit of `speed` with many tokens
    flop_ratio: float | None = None
    # how many times fewer bytes: the limit with few tokens, where reading weights dominates
    byte_ratio: float | None = None
    of_limit: float | None = None  # `speed` over the larger of the two
    select_share: float | None = None  # `select` over stock's time from tensors to the first token
    note: str | None = None  # why another mode ran than the one named


def bench(
    model: ARRCOCModel,
    image: Image.Image,
    question: str,
    modes: Sequence[str] = COMMON,
    rounds: int = 3,
    *,
    batch: int = 1,
    scorer: QueryBlindScorer | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[SpeedRow]:
    """Measure ways (`modes`) to the first token side by side, on `batch` rows of one image and question.

    Each round runs all ways, in alternating order, so that a slow minute of the machine slows all of them. An
    untimed run before them counts operations, bytes and peak memory. A way that can't run here is left out
    with a warning. Rivals run only at batch 1; some need a query-blind `scorer`.

    Raises:
        ValueError: an unknown way, no rounds, an empty batch, or nothing that can run.
    """
    if rounds < 1 or batch < 1:
        raise ValueError(f"{rounds} rounds of batch {batch}: use at least one of each")
    ways = {mode: find_way(model, mode, scorer) for mode in dict.fromkeys(modes)}

    def start() -> Inputs:
        return prompt(model, image, question, batch)

    counts: dict[str, Counted] = {}
    for mode, way in ways.items():
        progress(f"{mode}: counting")
        try:
            counts[mode] = count(way, start, model.device)
        except ValueError as error:
            logger.warning("%s is left out: %s", mode, error)
    if not counts:
        raise ValueError(f"none of {', '.join(modes)} can run here; see the warnings")
    times: dict[str, list[dict[str, float]]] = {mode: [] for mode in counts}
    for number in range(rounds):
        for mode in list(counts)[:: -1 if number % 2 else 1]:  # alternating: drift of the machine hits all
            progress(f"round {number + 1} of {rounds}: {mode}")
            times[mode].append(measure(ways[mode], start, model.device))
    return compare([summarise(mode, batch, counts[mode], times[mode]) for mode in counts])


# ---- one way --------------------------------------------------------------------------------------------


def prompt(model: ARRCOCModel, image: Image.Image, question: str, batch: int = 1) -> dict[str, Any]:
    """Processor inputs on the model's device; ValueError without a processor or chat template."""
    processor = model.processor
    if getattr(processor, "chat_template", None) is None:
        raise ValueError("timing needs a processor with a chat template; load the model with one")
    text = chat_prompt(processor, question)
    made = processor(images=[image] * batch, text=[text] * batch, padding=True, return_tensors="pt")
    return {
        name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in made.items()
    }


def find_way(model: ARRCOCModel, way: str, scorer: QueryBlindScorer | None = None) -> Way:
    """Return the function that runs a named way; ValueError as `ways.read_way`."""
    read = read_way(way)
    if read.name == STOCK:
        return lambda inputs, watch: _stock(model, inputs, watch)
    if read.mode is not None:
        chosen = (
            ARRCOCModel(model.base, model.processor, strict=model.strict, relevance="gaze")
            if read.gaze
            else model
        )
        return lambda inputs, watch: _ours(chosen, read, inputs, watch)
    method, budget = find_method(read.name, rivals_on_stock()), read.budget
    assert isinstance(budget, int), "`read_way` takes a rival with a count alone"
    return lambda inputs, watch: _rival(model, method, budget, scorer, inputs, watch)


def _stock(model: ARRCOCModel, inputs: Inputs, watch: Stopwatch) -> Arrival:
    with _encoder_timed(model, watch):
        logits = model.base(**inputs, logits_to_keep=1).logits[:, -1]
    ids = inputs["input_ids"]
    return Arrival(logits, int((ids == model.adapter.image_token_id).sum()) / len(ids))


@contextmanager
def _encoder_timed(model: ARRCOCModel, watch: Stopwatch) -> Generator[None, None, None]:
    """Adds the vision tower's time to "encode" inside the block."""
    tower: Any = model.base.get_encoder(modality="image")
    running: list[Any] = []

    def before(*_: Any) -> None:
        running.append(watch("encode"))
        running[-1].__enter__()

    def after(*_: Any) -> None:
        running.pop().__exit__(None, None, None)

    hooks = (tower.register_forward_pre_hook(before), tower.register_forward_hook(after))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _ours(model: ARRCOCModel, way: WayName, inputs: Inputs, watch: Stopwatch) -> Arrival:
    budget = way.budget
    more: dict[str, Any] = {} if way.gestalt is None else {"gestalt": way.gestalt}
    prepared = model.prepare(inputs, mode=way.mode, budget=budget, watch=watch, **more)
    if prepared.fallback:
        raise ValueError(
            f"choosing failed in mode {way.mode!r}, which is no time of it; the log has the reason"
        )
    logits = prepared.model(**prepared.compacted.kwargs, logits_to_keep=1).logits[:, -1]
    if isinstance(budget, int) and MODES[prepared.mode].chooses:
        budget_count(budget, min(prepared.cells))  # all of a small image are no time of so many
    tokens = visual_tokens(model, prepared.compacted) / len(logits)
    return Arrival(logits, tokens, prepared.mode, prepared.note)


def _rival(
    model: ARRCOCModel,
    method: Method,
    budget: int,
    scorer: QueryBlindScorer | None,
    inputs: Inputs,
    watch: Stopwatch,
) -> Arrival:
    if len(inputs["input_ids"]) > 1:
        raise ValueError("rivals choose for one image; measure them at batch 1")
    with watch("encode"):
        features, tower = encode(model, inputs, "tower" in method.needs)
    if method.between_layers is not None:
        layers, cut = model.config.get_text_config().num_hidden_layers, cut_layer(model, method.layers)
        logits = pruned_prefill(model, inputs, features, method.between_layers, budget, layer=cut).logits
        return Arrival(logits, (features.counts[0] * cut + budget * (layers - cut)) / layers)
    assert method.select is not None, "`rivals_on_stock` has no others"
    with watch("scoring"):
        source = ImageQueries(Path(), "", (Query("", "", ()),))  # rules read the prompt alone
        view = View(model, source, (inputs,), features, tower, scorer=scorer)
        kept = method.select(view, 0, budget)
    return Arrival(prefill(model, inputs, features, kept, FULL.name), len(kept.keep))


# ---- counting and timing --------------------------------------------------------------------------------


@torch.no_grad()
def count(way: Way, start: Callable[[], Inputs], device: torch.device) -> Counted:
    """Run a way once under counters of operations, bytes and memory."""
    arrived: list[Arrival] = []
    with FlopCounterMode(display=False, custom_mapping=FUSED) as counter, ByteCounter() as moved:
        peak = peak_megabytes(lambda: arrived.append(way(start(), Stopwatch(device))), device)
    return Counted(counter.get_total_flops() / 1e12, moved.total / 1e9, peak, arrived[0])


@torch.no_grad()
def measure(way: Way, start: Callable[[], Inputs], device: torch.device) -> dict[str, float]:
    """Run a way once: milliseconds of each of `STAGES`."""
    watch = Stopwatch(device)
    begun = watch.now()
    inputs = start()
    ready = watch.now()
    way(inputs, watch)
    done = watch.now()
    times = {
        "process": 1000 * (ready - begun),
        "gestalt": watch.ms["gestalt"],
        "select": watch.choosing(),
        "encode": watch.ms["encode"],
    }
    return times | {"prefill": 1000 * (done - begun) - sum(times.values())}


def summarise(mode: str, batch: int, counted: Counted, times: Sequence[Mapping[str, float]]) -> SpeedRow:
    """Return the row of a way, from its counts and timed rounds."""
    arrival = counted.arrival
    stages = {stage: median(one[stage] for one in times) for stage in STAGES}
    reads_gestalt = arrival.ran in MODES and MODES[arrival.ran].gestalt  # else it serves the choice alone
    rounds = [sum(one.values()) for one in times]
    return SpeedRow(
        mode=mode,
        batch=batch,
        tokens=arrival.tokens,
        ms=median(rounds),
        rounds=rounds,
        stages=stages,
        select=stages["select"] + (0.0 if reads_gestalt else stages["gestalt"]),
        tflop=counted.tflop,
        gbyte=counted.gbyte,
        peak_mb=counted.peak_mb,
        note=arrival.note,
    )


def compare(rows: Sequence[SpeedRow]) -> list[SpeedRow]:
    """Return the same rows with their ratios to stock, if stock is among them."""
    stock = next((row for row in rows if row.mode == STOCK), None)
    if stock is None:
        return list(rows)
    waited = stock.ms - stock.stages["process"]  # from tensors to the first token

    def against(row: SpeedRow) -> SpeedRow:
        speed = stock.ms / row.ms
        ratios = {"flop_ratio": stock.tflop / row.tflop, "byte_ratio": stock.gbyte / row.gbyte}
        limit = max(ratios.values())
        return replace(row, speed=speed, **ratios, of_limit=speed / limit, select_share=row.select / waited)

    return [against(row) for row in rows]


def circumstances(model: ARRCOCModel, image: Image.Image, question: str, batch: int) -> dict[str, Any]:
    """Return what the figures depend on: machine, versions, model, image and prompt."""
    ids = prompt(model, image, question)["input_ids"]
    visual = int((ids == model.adapter.image_token_id).sum())
    return {
        "device": processor_name(model.device),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "dtype": str(model.base.dtype).removeprefix("torch."),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "arr-coc")},
        "model": model.config.model_type,
        "parameters": sum(p.numel() for p in model.base.parameters()),
        "image": list(image.size),
        "visual tokens": visual,
        "text tokens": ids.shape[1] - visual,
        "batch": batch,
    }
