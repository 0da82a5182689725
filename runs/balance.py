"""What the learned balance keeps on real pictures, what it learned, and what is lost without each part of it.

    python runs/balance.py EXAMPLES --open FOLDER --out runs/results/balance.json              a minute of one core
    python runs/balance.py EXAMPLES --open FOLDER --ablations --out runs/results/balance.json  an hour: each is learned anew
    python runs/balance.py EXAMPLES --open FOLDER --curve --out runs/results/balance.json      half an hour, the same

EXAMPLES is the folder of `arr_coc_lab.teaching.balance` (what guide and OCR say of the validation and test splits and
of drawn pictures); FOLDER pictures with `questions.jsonl`, which nothing was fitted to. Evidence is every cell that a
box touches. Each figure stands for a picture's own grid and for one of 1,024 cells; a budget is a share of 1,024.

The bundled balance learned on validation and test splits, so it is measured on FOLDER alone. Ablations
learn on the test split and are measured on the validation split and on FOLDER: without the image (gist, information
and rarity), the question, the context of cells, rarity, or with gates fixed; "sum" is the plain sum of log odds. The curve learns on an eighth, a quarter, a half and all of
the pictures of the test and balance splits, in as many steps each, and is measured on the calibration split and on FOLDER.
What the result file has of either is not learned again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha1
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.budget import count_cells, needed_cells
from arr_coc.guide import GUIDE
from arr_coc.guide.trust import SURE
from arr_coc.relevance.balance import KINDS, BalanceInputs, BalanceNet, Weighed, auto_map, load_balance
from arr_coc.relevance.deciding import SPARE
from arr_coc.relevance.ocr import OcrSource
from arr_coc.relevance.source import PRIOR
from arr_coc_lab.evaluate.sources import in_folder, join_table, kept_evidence, labelled, remembered
from arr_coc_lab.teaching.balance import (
    EPOCHS,
    GRIDS,
    MODES,
    OVERVIEW,
    Maker,
    Taught,
    drawn_samples,
    fit,
    kept_examples,
)

BUDGETS = (64, 128, 273)
FRESH = 100_000  # the first seed of drawn pictures on which nothing learned
TENSIONS = ("compress", "exploit", "focus")
MAPS = ("information", "saliency", "coupling")
Judge = Callable[[BalanceInputs], Weighed]


def plain_sum(inputs: BalanceInputs) -> Weighed:
    """The sum of log odds, in the place of a balance."""
    there = (inputs.confidences > 0).float()[..., None, None]
    logits = ((inputs.logits - PRIOR) * there).sum(0) + PRIOR
    gates = torch.tensor([0.0, 0.0, 1.0]).expand(len(logits), 3)
    return Weighed(logits, logits, gates, torch.full_like(gates, 0.5))


def kept(logits: Tensor, target: Tensor) -> dict[str, float]:
    """Evidence kept of one question by budget, and whether all of it is."""
    made, shares = {}, kept_evidence(logits, target.flatten())
    for budget in BUDGETS:
        made |= {f"{budget}": shares[budget], f"{budget} whole": float(shares[budget] == 1)}
    return made


@torch.no_grad()
def recalls(judge: Judge, taught: Sequence[Taught], mode: str, grid: str) -> dict[str, dict[str, float]]:
    """Means over the questions with evidence of pictures on a grid, by kind of picture."""
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for one in taught:
        if one.grid != grid:
            continue
        inputs = one.inputs.get(mode, one.inputs["guide"])
        weighed = judge(inputs)
        counts = count_cells(
            "auto", weighed.logits.sigmoid().flatten(1), weighed.tensions[:, 0], _needed(weighed, inputs)
        )
        for i, ask in enumerate(one.asks):
            if ask in OVERVIEW or not one.evidence[i].any():
                continue
            row = kept(weighed.logits[i], one.evidence[i])
            order = weighed.logits[i].flatten().argsort(descending=True, stable=True)
            held = one.evidence[i].flatten()[order[: counts[i]]].sum() / one.evidence[i].sum()
            row |= {"auto": float(held), "auto cells": counts[i] / len(order), "questions": 1.0}
            for group in ("all", one.kind):
                rows[group].append(row)
    return {
        group: {
            name: (len(own) if name == "questions" else fmean(row[name] for row in own)) for name in own[0]
        }
        for group, own in rows.items()
    }


def _needed(weighed: Weighed, inputs: BalanceInputs) -> Tensor:
    """Cells to keep before the compress tension, as `relevance.deciding` counts them: gaps say something of a sure guide."""
    alone = inputs.kinds == (KINDS[GUIDE],)
    return SPARE * needed_cells(auto_map(weighed), weighed.gates, (inputs.facts[:, 0] >= SURE) & alone)


@torch.no_grad()
def learned(net: BalanceNet, taught: Sequence[Taught]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean gates and tensions by kind of question, and by kind of picture, guide and OCR where there is one."""
    rows: dict[str, dict[str, list[Tensor]]] = {"question": defaultdict(list), "picture": defaultdict(list)}
    for one in taught:
        if one.grid == "own":
            weighed = net(one.inputs.get("guide+ocr", one.inputs["guide"]))
            for i, ask in enumerate(one.asks):
                both = torch.cat((weighed.gates[i], weighed.tensions[i]))
                rows["question"][ask].append(both)
                rows["picture"][one.kind].append(both)
    return {
        by: {
            name: dict(zip((*MAPS, *TENSIONS), torch.stack(own).mean(0).tolist(), strict=True))
            | {"questions": len(own)}
            for name, own in sorted(kinds.items())
        }
        for by, kinds in rows.items()
    }


@torch.no_grad()
def cost(net: BalanceNet, taught: Sequence[Taught]) -> float:
    """CPU milliseconds of one question with two sources on a grid of 1,024 cells, the median of fifty."""
    pictures = [one.inputs["guide+ocr"] for one in taught if one.grid == "1024" and "guide+ocr" in one.inputs]
    single = [
        BalanceInputs(one.kinds, one.logits[:, :1], one.confidences[:, :1], *(part[:1] for part in one[3:]))
        for one in pictures
    ]
    times = []
    for inputs in (single * 50)[:50]:
        start = time.process_time()
        net(inputs)
        times.append(1000 * (time.process_time() - start))
    return median(times)


def without_image(inputs: BalanceInputs) -> BalanceInputs:
    """Inputs that say nothing of the picture beside the sources' maps."""
    facts = inputs.facts.clone()
    facts[:, 3:8] = 0
    facts[:, 0] = 0.5
    blank = torch.zeros_like(inputs.information)
    return inputs._replace(information=blank, saliency=blank, facts=facts)


def without_question(inputs: BalanceInputs) -> BalanceInputs:
    """Inputs that say nothing of the question."""
    facts = inputs.facts.clone()
    facts[:, 1:4] = 0
    return inputs._replace(question=torch.zeros_like(inputs.question), facts=facts)


def without_rarity(inputs: BalanceInputs) -> BalanceInputs:
    """Inputs whose saliency says nothing."""
    facts = inputs.facts.clone()
    facts[:, 6] = 0
    return inputs._replace(saliency=torch.zeros_like(inputs.saliency), facts=facts)


def no_context(net: BalanceNet) -> None:
    """Take the correction by surroundings from a net that is about to learn."""
    net.last.requires_grad_(False)


def fixed_gates(net: BalanceNet) -> None:
    """Make a net's gates and tensions the same for every question and picture."""
    net.policy[2].weight.requires_grad_(False)


def table(judge: Judge, sets: dict[str, list[Taught]]) -> dict[str, Any]:
    """What a balance keeps of each set, by sources and grid."""
    return {
        name: {mode: {grid: recalls(judge, own, mode, grid) for grid in ("own", "1024")} for mode in MODES}
        for name, own in sets.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("examples", type=Path)
    parser.add_argument("--open", type=Path, required=True)
    parser.add_argument("--pictures", type=Path, default=Path("pictures"))
    parser.add_argument("--wordings", type=Path, default=Path("runs/wordings_development.tsv"))
    parser.add_argument("--cache", type=Path, default=Path(".ocr"), help="where the print of FOLDER is kept")
    parser.add_argument("--drawn", type=int, default=8)
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS // 2, help="of each ablation, or of all pictures"
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    maker = Maker(OcrSource(remembered(arguments.cache)))
    hidden = kept_examples(arguments.examples, in_folder(arguments.open), maker, read=True)
    drawn = kept_examples(arguments.examples, drawn_samples(arguments.drawn, arguments.wordings), maker)
    fresh = kept_examples(arguments.examples, drawn_samples(3, arguments.wordings, FRESH), maker)
    net = load_balance()
    if arguments.curve:
        splits = {"test": GRIDS, "balance": GRIDS[:1], "calibration": GRIDS[:1]}
        real = {
            split: kept_examples(
                arguments.examples, labelled(split, arguments.pictures), maker, grids=splits[split]
            )
            for split in ("test", "balance", "calibration")
        }
        sets = {"open half": hidden, "calibration": real["calibration"]}
        every = [one for one in real["test"] + real["balance"] if one.grid == "own"]
        pictures = sorted({one.picture for one in every}, key=lambda name: sha1(name.encode()).digest())
        for share in (8, 4, 2, 1):
            some = set(pictures[::share])
            part = [one for one in every if one.picture in some] + drawn
            _measured(part, sets, fresh, f"curve, {len(some)} pictures", arguments, None, None, share)
        return
    if not arguments.ablations:
        sets = {"open half": hidden}
        table_maker = Maker(OcrSource(remembered(arguments.cache), sentences="table"))
        by_table = kept_examples(
            arguments.examples / "table", in_folder(arguments.open), table_maker, True, GRIDS[:1]
        )
        facts = {"sum": table(plain_sum, sets), "balance": table(net, sets)}
        facts["learned"] = {"open half": learned(net, hidden), "drawn": learned(net, fresh)}
        facts["drawn"] = {
            k: recalls(net, [one for one in fresh if one.kind == k], "guide", "own") for k in ("odd", "dense")
        }
        facts["drawn, sum"] = {
            k: recalls(plain_sum, [one for one in fresh if one.kind == k], "guide", "own")
            for k in ("odd", "dense")
        }
        facts["by the table of meanings"] = {
            mode: recalls(net, by_table, mode, "own")["all"] for mode in MODES[1:]
        }
        facts["CPU ms a question"] = cost(net, hidden)
        join_table(arguments.out, "bundled", facts)
        print(
            json.dumps(
                {k: v["open half"]["guide+ocr"]["own"]["all"] for k, v in list(facts.items())[:2]}, indent=1
            )
        )
        return
    real = {
        split: kept_examples(arguments.examples, labelled(split, arguments.pictures), maker)
        for split in ("validation", "test")
    }
    sets = {"open half": hidden, "validation": real["validation"]}
    ways: dict[str, tuple[Any, Any]] = {
        "all of it": (None, None),
        "gates fixed": (None, fixed_gates),
        "without the image": (without_image, None),
        "without the question": (without_question, None),
        "without context": (None, no_context),
        "without rarity": (without_rarity, None),
    }
    own = real["test"] + drawn
    for name, (changed, started) in ways.items():
        _measured(own, sets, fresh, name, arguments, changed, started)
    both = real["test"] + real["validation"] + drawn
    _measured(both, {"open half": hidden}, fresh, "on both splits", arguments, None, None)


def _measured(
    taught: list[Taught],
    sets: dict[str, list[Taught]],
    fresh: list[Taught],
    name: str,
    arguments: argparse.Namespace,
    changed: Callable[[BalanceInputs], BalanceInputs] | None,
    started: Callable[[BalanceNet], None] | None,
    more: int = 1,
) -> None:
    """Learn in one way and add what is kept to the result file; `more` epochs, so that all take as many steps.

    A way that the file has already is passed over: a run that was stopped goes on where it was.
    """
    if arguments.out.is_file() and name in json.loads(arguments.out.read_text(encoding="utf-8")):
        return
    same: Callable[[BalanceInputs], BalanceInputs] = (lambda inputs: inputs) if changed is None else changed
    nothing: Callable[[BalanceNet], None] = (lambda net: None) if started is None else started
    net = fit(taught, arguments.epochs * more, changed=same, started=nothing)
    judge: Judge = partial(_changed, net, same)
    facts: dict[str, Any] = {
        "epochs": arguments.epochs * more,
        "real": {
            group: {mode: recalls(judge, own, mode, "own")["all"] for mode in MODES}
            for group, own in sets.items()
        },
        "drawn": {
            kind: recalls(judge, [one for one in fresh if one.kind == kind], "guide", "own")["all"]
            for kind in ("odd", "dense")
        },
    }
    print(name, {k: round(v, 3) for k, v in facts["real"]["open half"]["guide+ocr"].items()}, flush=True)
    join_table(arguments.out, name, facts)


def _changed(
    net: BalanceNet, changed: Callable[[BalanceInputs], BalanceInputs], inputs: BalanceInputs
) -> Weighed:
    return net(changed(inputs))


if __name__ == "__main__":
    main()
