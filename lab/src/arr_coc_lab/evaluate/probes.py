"""Probes of one answer: the question asked again from other cells of the same image.

    budget_sweep(session, question)           from the k most relevant cells, k from 1 to N
    contenders(session, question, 64)         from as many cells chosen by nulls and rivals
    faithfulness(session, question)           with the most relevant cells removed, or kept alone

Each returns a JSON-safe dict; log-probabilities are means over the tokens of the right answer, in nats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from arr_coc.choose.budget import Budget
from arr_coc.data.metrics import exact_match
from arr_coc.session import Session
from arr_coc.trace.trace import Trace
from arr_coc.video.opening import first_picture
from arr_coc_lab.evaluate.answering import CellPrompt, answer_rows, with_merged
from arr_coc_lab.evaluate.layer_pruning import cut_layer, pruned_answers
from arr_coc_lab.evaluate.methods import METHODS, load_scorer, pick_methods
from arr_coc_lab.evaluate.questions import ImageQueries, Query
from arr_coc_lab.evaluate.reader import LONGEST, CellReader, open_reader
from arr_coc_lab.evaluate.scene import Scene
from arr_coc_lab.results.kinds import OURS, SPARSE
from arr_coc_lab.rivals.method import Method
from arr_coc_lab.rivals.reduction import Reduction

Probe = dict[str, Any]
Progress = Callable[[float], None]
"""Called with the share done, 0 to 1; an exception from it ends the probe."""

ROWS = 16  # in one forward, at most


@torch.no_grad()
def budget_sweep(
    session: Session,
    question: str,
    *,
    mode: str = "prune",
    right: str | None = None,
    true_answers: Sequence[str] = (),
    progress: Progress | None = None,
) -> Probe:
    """Answer from the k most relevant cells for k = 1, 2, 4, ... N, and find the smallest k that is enough.

    Between the last wrong and the first right count it bisects. The cells are the first k of the relevance
    order of `mode` "prune" or "sparse": no share is spent on coverage. `right` is the answer that counts as
    right, letter by letter; None: the stock model's own with all tokens. At most 2 log2(N) + 2 answers.

    Returns:
        `right`, `right_from` ("all tokens" or "given"), `true_answers`, `order` ("balanced"), `points` by
        rising `kept`, with `answer`, `right`, `true` (None where no true answer is known) and `logprob` each;
        and `smallest`: the least count tried from which on every larger one tried is right, or None where
        even all cells are wrong.

    Raises:
        ValueError: an empty or too long question, another mode, or choosing failed.
    """
    reader = open_reader(session, question, mode, right)
    order = reader.decide(1.0).order.to(session.model.device)
    ladder = [2**i for i in range((len(order) - 1).bit_length())] + [len(order)]
    points: dict[int, Probe] = {}

    def is_enough(count: int) -> bool:
        keep = order[:count].sort().values
        row = reader.read(reader.encode(keep), keep)
        facts = {name: row[name] for name in ("answer", "right", "logprob")}
        points[count] = {"kept": count, "true": _is_true(row["answer"], true_answers)} | facts
        _tell(progress, min(1.0, len(points) / (2 * len(ladder))))
        return points[count]["right"]

    none = len(order) + 1  # one above any count: no count is enough
    smallest, wrong = none, 0
    for count in ladder:
        smallest, wrong = (min(smallest, count), wrong) if is_enough(count) else (none, count)
    while smallest - wrong > 1:
        middle = (smallest + wrong) // 2
        smallest, wrong = (middle, wrong) if is_enough(middle) else (smallest, middle)
    _tell(progress, 1.0)
    return _reference(reader, right, true_answers) | {
        "points": [points[count] for count in sorted(points)],
        "smallest": None if smallest == none else smallest,
        "order": "balanced",
    }


@torch.no_grad()
def contenders(
    session: Session,
    question: str,
    budget: Budget,
    *,
    mode: str = "prune",
    methods: Sequence[str] | None = None,
    right: str | None = None,
    true_answers: Sequence[str] = (),
    progress: Progress | None = None,
) -> Probe:
    """Answer from as many tokens as ARR-COC keeps, chosen by nulls and rivals.

    `budget` is a count, a fraction or "auto" of ours in `mode` "prune" or "sparse"; all others get the
    resulting count. They run on the stock model and read the encoded image; one that drops between layers
    ("fastv") reads all tokens in its first layers, one that resizes ("downsample") encodes a smaller image.
    `methods` are names in `METHODS`; None: those registered as `contender`.

    Returns:
        `budget` (the count), `right`, `right_from` and `true_answers` as of `budget_sweep`, `left_out` (by
        method, why it can't run here), and `rows`, ours first: `method`, `kind` ("ours", "null" or "rival"),
        `tokens` (visual tokens read, the mean over layers), `note` (why that is not the budget, or None),
        `answer`, `right`, `true`, `logprob` (None where tokens are dropped between layers), and `keep`, the
        kept cells in raster order (None where they are no cells of this image).

    Raises:
        ValueError: an empty or too long question, a bad budget or mode, an unknown or unfit method, or
            choosing failed.
    """
    names = [name for name, method in METHODS.items() if method.contender] if methods is None else methods
    unfit = [name for name in names if name in METHODS and not _fit(METHODS[name])]
    if unfit:
        fit = ", ".join(name for name, method in METHODS.items() if _fit(method))
        raise ValueError(f"method {unfit[0]!r} can't be probed with one question: use some of {fit}")
    model = session.model
    scorer = load_scorer(None, model)
    runnable, left_out = pick_methods(model, [OURS, *names], [], scorer)
    others = sorted((m for m in runnable if m.name != OURS), key=lambda method: names.index(method.name))

    reader = open_reader(session, question, mode, right)
    keep = reader.decide(budget).keep.to(model.device)
    count = len(keep)
    rows = {OURS: reader.read(reader.encode(keep), keep)}
    _tell(progress, 1 / (len(others) + 3))

    source = ImageQueries(first_picture(session.image), "probe", (Query("0", question, (reader.right,)),))
    scene = Scene(model, source, watched=any("tower" in method.needs for method in others), scorer=scorer)
    stock = replace(reader, session=scene.session, mode="full")
    kept: dict[str, Reduction] = {}
    for done, method in enumerate(others, 2):
        _tell(progress, done / (len(others) + 3))
        if method.between_layers is not None:
            rows[method.name] = _between_layers(stock, scene, method, count)
        elif method.resize is not None:
            small = scene.resized(method, count)
            if small.view.total > count:
                left_out[method.name] = f"the processor makes at least {small.view.total} cells of this image"
                continue
            rows[method.name] = _whole(replace(stock, session=small.session), small)
        else:
            assert method.select is not None, "`_fit` requires it"
            kept[method.name] = method.select(scene.view, 0, count)
    _tell(progress, (len(others) + 2) / (len(others) + 3))
    rows |= _selected(stock, scene, kept)
    _tell(progress, 1.0)
    own = METHODS[SPARSE if reader.mode == "sparse" else OURS]
    named = [
        {"method": method.name, "kind": method.kind, "note": None}
        | rows[name]
        | {"true": _is_true(rows[name]["answer"], true_answers)}
        for name, method in [(OURS, own), *((method.name, method) for method in others)]
        if name in rows
    ]
    reference = _reference(reader, right, true_answers)
    return reference | {"budget": count, "rows": named, "left_out": left_out}


@torch.no_grad()
def faithfulness(
    session: Session,
    question: str,
    *,
    mode: str = "prune",
    steps: int = 8,
    draws: int = 3,
    right: str | None = None,
    progress: Progress | None = None,
) -> Probe:
    """Log-probability of the right answer as the most relevant cells are removed, or are the only ones kept.

    A map is faithful where deletion falls soon and insertion rises soon, compared with `draws` random orders,
    in `steps` steps from no cells (at least one is left) to all. A removed cell is dropped from the prompt,
    so no painted-over pixels give the removal away (ROAD, Rong et al. 2022); its neighbours in the encoded
    image may still hold something of it. Runs `steps` forwards of 2 + `draws` rows.

    Returns:
        `right` and `right_from` as of `budget_sweep`; `share` [steps + 1] of cells removed or kept, 0 to 1;
        the log-probabilities `deletion` and `insertion` [steps + 1], `random` [steps + 1][draws] of insertion
        in random orders and `random_deletion` of removal in the same orders reversed; and `auc`, the areas
        under `deletion`, `insertion` and `random` (the mean of its draws).

    Raises:
        ValueError: an empty or too long question, another mode, steps or draws below 1, or choosing failed.
    """
    for name, value in (("steps", steps), ("draws", draws)):
        if value < 1:
            raise ValueError(f"{name} {value} is too small: use 1 or more")
    reader = open_reader(session, question, mode, right)
    order = reader.decide(1.0).order.to(session.model.device)
    reader, total = replace(reader, mode="prune"), len(order)
    features = reader.encode(order)
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(total, generator=generator).to(order.device) for _ in range(draws)]
    orders = [order, order.flip(0), *orders]  # insertion, deletion read from its end, random
    points: list[list[float]] = []  # [steps + 1][2 + draws]
    for step in range(steps + 1):
        count = max(1, round(step * total / steps))
        keeps = [one[:count].sort().values for one in (orders if count < total else orders[:1])]
        logprobs = reader.logprobs(features.repeat(len(keeps)), keeps)
        points.append(logprobs if count < total else logprobs * len(orders))
        _tell(progress, (step + 1) / (steps + 1))
    curves = torch.tensor(points, dtype=torch.float64).T  # insertion, deletion from its end, random orders
    areas = torch.trapezoid(curves, dx=1 / steps)
    randoms = [values[2:] for values in points]
    return {
        "right": reader.right,
        "right_from": _right_from(right),
        "share": [step / steps for step in range(steps + 1)],
        "deletion": [values[1] for values in reversed(points)],
        "insertion": [values[0] for values in points],
        "random": randoms,
        "random_deletion": randoms[::-1],
        "auc": {
            "deletion": float(areas[1]),
            "insertion": float(areas[0]),
            "random": float(areas[2:].mean()),
        },
    }


def _right_from(right: str | None) -> str:
    return "all tokens" if right is None else "given"


def _reference(reader: CellReader, right: str | None, true_answers: Sequence[str]) -> Probe:
    return {
        "right": reader.right,
        "right_from": _right_from(right),
        "true_answers": list(true_answers),
    }


def _is_true(answer: str, true_answers: Sequence[str]) -> bool | None:
    return exact_match(answer, true_answers) == 1.0 if true_answers else None


def _fit(method: Method) -> bool:
    """Return whether a null or rival needs only one question about one image, not the right answer."""
    free = method.kind in ("null", "rival") and "other" not in method.needs
    return free and method.prepare is None


def _selected(stock: CellReader, scene: Scene, kept: dict[str, Reduction]) -> dict[str, Probe]:
    """Rows of methods that choose cells, in one batch."""
    if not kept:
        return {}
    features, reductions = scene.view.features, list(kept.values())
    prompts = [CellPrompt(0, reduction) for reduction in reductions]
    answers = answer_rows(scene.prompts, features, prompts, most=ROWS, max_new_tokens=LONGEST)
    keeps = [reduction.keep for reduction in reductions]
    logprobs = stock.logprobs(with_merged(features, reductions), keeps)
    return {
        name: {
            "answer": answer,
            "right": stock.is_right(answer),
            "logprob": logprob,
            "tokens": len(features.tokens_to_keep([keep])[0]),
            "keep": keep.tolist(),
        }
        for name, answer, logprob, keep in zip(kept, answers, logprobs, keeps, strict=True)
    }


def _between_layers(stock: CellReader, scene: Scene, method: Method, count: int) -> Probe:
    model = scene.model
    assert method.between_layers is not None, "called for methods that drop between layers"
    layer = cut_layer(model, method.layers)
    run = pruned_answers(
        model,
        scene.prompts.rows([0], whole=True),
        scene.view.features,
        method.between_layers,
        count,
        layer=layer,
        max_new_tokens=LONGEST,
    )
    answer = model.processor.tokenizer.decode(run.ids[0], skip_special_tokens=True).strip()
    total = scene.view.total
    return {
        "answer": answer,
        "note": f"reads all {total} tokens in its first {layer} layers, {count} after them",
        "right": stock.is_right(answer),
        "logprob": None,
        "tokens": round(run.mean_tokens, 2),
        "keep": run.keep[0].tolist(),
    }


def _whole(stock: CellReader, small: Scene) -> Probe:
    view = small.view
    everything = torch.arange(view.total, device=view.tokens.device)
    note = "reads a smaller image, which has no more cells"
    return stock.read(view.features, everything) | {"keep": None, "note": note}


def _tell(progress: Progress | None, share: float) -> None:
    if progress is not None:
        progress(share)


def sweep_trace(session: Session, trace: Trace, mode: str, progress: Progress) -> dict[str, Any]:
    """Return the app's probe "sweep": `budget_sweep` of a trace's question."""
    truths = trace.true_answers
    return budget_sweep(session, trace.question, mode=mode, true_answers=truths, progress=progress)


def contend_trace(session: Session, trace: Trace, mode: str, progress: Progress) -> dict[str, Any]:
    """Return the app's probe "contenders": `contenders` at a trace's question and number of tokens."""
    truths = trace.true_answers
    return contenders(session, trace.question, trace.kept, mode=mode, true_answers=truths, progress=progress)


def question_trace(session: Session, trace: Trace, mode: str, progress: Progress) -> dict[str, Any]:
    """Return the app's probe "faithfulness": `faithfulness` of a trace's map."""
    return faithfulness(session, trace.question, mode=mode, progress=progress)
