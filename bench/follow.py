"""Five questions about one image, one after another: what each costs, and whether it still finds its tokens.

    python bench/follow.py --pages 100 --rounds 15 --out bench/results/follow.json
    python bench/follow.py --shape 2B --rounds 2 --settings session --out bench/results/follow-2b.json
    python bench/follow.py --pages 50 --times OLD.json --out ...      after weights were taught again
    python bench/follow.py --table bench/results/follow.json OTHER.json

Whoever chooses tokens by a question is truths that the second question finds its own gone. Here are five
questions per drawn page, the first always the first of that page in an order drawn from a seed, in two
settings: "session", each question by itself, and "chat", with the questions before it and the answers that
the same way gave in the prompt. The ways are those of `follow_ways.py`: stock with its prefix cache, which
pays nothing for the image from question 2 on; rules that choose once and keep; ours, which choose anew for
each question; and ours that go over to all tokens, kept.

score       exact match; "retained": over stock's in the same setting and turn, with an interval over pages
ms          to the logits of the first token, from the processor's tensors: encoder, choice and language model
ratio       ms over stock's at the same turn of the same round, the median over rounds (below 1: faster)
cost        ms over stock's at question 1 of the same round: what sums over turns are made of
tflop       operations of the same, counted once; "flop ratio" and "flop cost" as above
tokens      visual tokens in the cache while the question was answered, the mean over layers
held_mb     MiB of tensors that wait for the next question, beside the weights: caches, encodings, pixels

In "chat" answers that are read into a cache before the next question are the true ones while time is taken,
so that all ways read prompts of one length. The bundled model has been taught single questions alone: what it
loses in a conversation, it loses with all tokens too; that is why "retained" is per setting.

"rows" of the result file has one row per setting, way and turn. Rows of the same names from another command
(a server's, say, setting "server"; what it doesn't know may be missing) join the same table: --table.

The break-even: "stock from" is the number of questions about one image from which stock with its cache has
cost less in all, by operations and by time; "keep after" how many questions to choose for before all tokens
are kept (`Session(keep_image_after=...)`): so many cost as much as going over does.

With --shape, random weights in a published shape (`prefill.py`): times and operations alone.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from follow_ways import STOCK, Way, find_way
from torch.utils.flop_counter import FlopCounterMode

from arr_coc import ARRCOCModel
from arr_coc.data.metrics import exact_match
from arr_coc_lab.evaluate.methods import load_scorer
from arr_coc_lab.evaluate.questions import ImageQueries, world_questions
from arr_coc_lab.evaluate.speed import circumstances
from arr_coc_lab.evaluate.work import FUSED
from arr_coc_lab.world import PAGES

TURNS = 5
SETTINGS = ("session", "chat")
TIMES = ("ms", "ratio", "cost")
OURS = "sparse@64,sparse@273,prune@64,prune@273,sparse@64+keep1,prune@64+keep1"
WAYS = f"{STOCK},{OURS},fastv@64,fastv@273,visionzip@64,visionzip@273"
MOST = 8
"""Tokens of an answer."""


def pages(count: int, size: int, seed: int) -> Iterator[ImageQueries]:
    """Drawn test pages with five questions each, in an order drawn for each page."""
    whole = (page for page in world_questions(PAGES, size, TURNS, seed=seed) if len(page.queries) == TURNS)
    for page in islice(whole, count):
        queries = list(page.queries)
        random.Random(f"{seed}/{page.key}").shuffle(queries)
        yield ImageQueries(page.image, page.key, tuple(queries), page.possible)


# ---- right or wrong ---------------------------------------------------------------------------------------


@torch.no_grad()
def score(ways: Sequence[Way], sources: Sequence[ImageQueries], settings: Sequence[str]) -> dict[Any, Any]:
    """By setting and way, float [pages, turns]: exact matches."""
    scores: dict[Any, list[list[float]]] = {(s, way.name): [] for s in settings for way in ways}
    for number, source in enumerate(sources):
        session = ways[0].model.session(source.image)
        for setting in settings:
            for way in ways:
                way.open(session, source)
                history: list[tuple[str, str]] = []
                row = []
                for query in source.queries:
                    text = way.answer(query.text, history if setting == "chat" else ())
                    history.append((query.text, text))
                    row.append(exact_match(text, query.answers))
                scores[setting, way.name].append(row)
        print(f"page {number + 1} of {len(sources)}", file=sys.stderr)
    return {key: np.array(rows) for key, rows in scores.items()}


def retained(ours: np.ndarray, stock: np.ndarray, draws: int = 2000) -> dict[str, Any]:
    """Score over stock's, of the same pages [P] or [P, T], with a bootstrap interval over pages."""
    if not len(ours) or not stock.sum():
        return {}
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(ours), (draws, len(ours)))
    ratios = [ours[pick].sum() / stock[pick].sum() for pick in picks if stock[pick].sum()]
    low, high = np.quantile(ratios, (0.025, 0.975))
    whole = float(ours.sum() / stock.sum())
    return {"retained": round(whole, 4), "retained_range": [round(float(low), 4), round(float(high), 4)]}


# ---- cost -------------------------------------------------------------------------------------------------


def turns(
    way: Way, source: ImageQueries, prompts: Sequence[dict[str, Any]], setting: str, counted: bool
) -> list[dict[str, float]]:
    """One conversation of one way: per turn its milliseconds, operations if counted, tokens and memory."""
    device, tokenizer = way.model.device, way.model.processor.tokenizer
    rows = []
    for turn, inputs in enumerate(prompts):
        row: dict[str, float] = {}
        if counted:
            with FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
                way.first_token(inputs)
            row["tflop"] = counter.get_total_flops() / 1e12
        else:
            begun = now(device)
            way.first_token(inputs)
            row["ms"] = 1000 * (now(device) - begun)
        if setting == "chat":  # the answer stands in the next prompt; its end does not come out of the cache
            answer = tokenizer(source.queries[turn].answers[0], add_special_tokens=False)["input_ids"]
            way.absorb(torch.tensor(answer, device=device))
        rows.append(row | {"tokens": way.tokens, "held_mb": way.megabytes})
    return rows


def now(device: torch.device) -> float:
    """Seconds, after all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@torch.no_grad()
def cost(
    ways: Sequence[Way], sources: Sequence[ImageQueries], settings: Sequence[str], rounds: int
) -> dict[Any, list[list[dict[str, float]]]]:
    """By setting and way, rounds of turns: the first counts operations, the others take time.

    Each round goes through all ways, odd ones backwards, and takes the next page.
    """
    table: dict[Any, list[list[dict[str, float]]]] = {(s, way.name): [] for s in settings for way in ways}
    for number in range(rounds + 1):
        source = sources[number % len(sources)]
        session = ways[0].model.session(source.image)
        for setting in settings:
            truths = [(query.text, query.answers[0]) for query in source.queries]
            prompts = [
                session.inputs(query.text, truths[:turn] if setting == "chat" else ())
                for turn, query in enumerate(source.queries)
            ]
            for way in ways[:: -1 if number % 2 else 1]:
                way.open(session, source)
                table[setting, way.name].append(turns(way, source, prompts, setting, number == 0))
                way.open(session, source)  # what it held is let go before the next one's turn
        print(f"round {number} of {rounds}", file=sys.stderr)
    return table


# ---- the result -------------------------------------------------------------------------------------------


def rows_of(
    settings: Sequence[str], names: Sequence[str], scores: dict[Any, Any], costs: dict[Any, Any]
) -> list[dict[str, Any]]:
    """A row per setting, way and turn."""
    rows = []
    for setting in settings:
        for name in names:
            for turn in range(TURNS):
                row: dict[str, Any] = {"setting": setting, "way": name, "turn": turn + 1}
                right = scores.get((setting, name))
                if right is not None and len(right):
                    stock = scores[setting, STOCK]
                    row |= {"pages": len(right), "score": round(float(right[:, turn].mean()), 4)}
                    row |= retained(right[:, turn], stock[:, turn])
                counted, *timed = costs[setting, name]
                stock_counted, *stock_timed = costs[setting, STOCK]
                own, first = stock_counted[turn]["tflop"], stock_counted[0]["tflop"]
                row |= counted[turn]
                row |= {"flop ratio": row["tflop"] / own, "flop cost": row["tflop"] / first}
                if timed:
                    times = [one[turn]["ms"] for one in timed]
                    at, start = ([one[i]["ms"] for one in stock_timed] for i in (turn, 0))
                    row["ms"] = median(times)
                    row["ratio"] = median(a / b for a, b in zip(times, at, strict=True))
                    row["cost"] = median(a / b for a, b in zip(times, start, strict=True))
                rows.append({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()})
    return rows


def with_times(rows: Sequence[dict[str, Any]], timed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the times of others of the same setting, way and turn, which weights don't change."""
    times = {
        (row["setting"], row["way"], row["turn"]): {name: row[name] for name in TIMES if name in row}
        for row in timed
    }
    return [row | times.get((row["setting"], row["way"], row["turn"]), {}) for row in rows]


def break_even(rows: Sequence[dict[str, Any]], setting: str, name: str, unit: str) -> dict[str, Any]:
    """From how many questions on stock costs less than a way; how many to choose for before keeping all.

    Turns behind the last are taken to cost the mean of turns 2 to 5. "stock from" None: never. "stock until"
    is there where the way costs more at first and less in the end. "keep after" is there where the way was
    also measured with "+keep1": going over is what that pays at question 2, and what was spent on choices by
    then should be as much, so that nobody who stops at any number pays more than about twice the best for it.

    Args:
        rows: of the result.
        setting: of the turns.
        name: of a way that costs the same at each question but the first.
        unit: "cost" or "flop cost".
    """

    def of(way: str) -> list[float]:
        own = [row for row in rows if row["setting"] == setting and row["way"] == way]
        return [row[unit] for row in sorted(own, key=lambda row: row["turn"])]

    first, later = of(name)[0], fmean(of(name)[1:])
    stock_first, stock_later = of(STOCK)[0], fmean(of(STOCK)[1:])
    # n questions cost first + (n - 1) later, and stock_first + (n - 1) stock_later.
    ahead, slower = stock_first - first, later - stock_later
    if ahead < 0:
        line: dict[str, Any] = {"stock from": 1}
        if slower < 0:
            line["stock until"] = math.ceil(ahead / slower)
    else:
        line = {"stock from": None if slower <= 0 else math.floor(ahead / slower) + 2}
    if going := of(f"{name}+keep1")[1:2]:
        line["keep after"] = max(1, round(going[0] / later))
    return line


def summary(rows: Sequence[dict[str, Any]], settings: Sequence[str], names: Sequence[str]) -> list[dict]:
    """A row per setting and way: the later turns together, and the break-even."""
    units = {"time": "cost", "operations": "flop cost"}
    lines = []
    for setting in settings:
        for name in names:
            own = [row for row in rows if row["setting"] == setting and row["way"] == name]
            line: dict[str, Any] = {"setting": setting, "way": name}
            if name not in (STOCK,) and "+keep" not in name:
                for label, unit in units.items():
                    if all(unit in row for row in own):
                        line[label] = break_even(rows, setting, name, unit)
            lines.append(line)
    return lines


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The table, rows of several files together."""
    columns = {"score": ".1%", "retained": ".1%", "tokens": ",.0f", "held_mb": ",.1f", "flop ratio": ",.2f"}
    columns |= {"ms": ",.1f", "ratio": ",.2f", "cost": ",.3f"}
    columns |= {"cached": ".0%", "changed": ".0%", "choosing_ms": ",.1f", "cpu_s": ",.3f"}  # a server's
    keys = list(dict.fromkeys((row["setting"], row["way"]) for row in rows))
    for column, form in columns.items():
        if not any(row.get(column) is not None for row in rows):
            continue
        print(f"\n{column:28}" + "".join(f"{f'turn {turn + 1}':>10}" for turn in range(TURNS)))
        for setting, way in keys:
            own = {
                row["turn"]: row.get(column) for row in rows if (row["setting"], row["way"]) == (setting, way)
            }
            if any(value is not None for value in own.values()):
                cells = ["-" if own.get(t + 1) is None else format(own[t + 1], form) for t in range(TURNS)]
                print(f"{setting:8}{way:20}" + "".join(f"{cell:>10}" for cell in cells))


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """All figures of a run."""
    begun = time.monotonic()
    if args.shape:
        from prefill import random_model

        model = random_model(args.shape, args.depth, args.device, getattr(torch, args.dtype))
        scorer = None
    else:
        model = ARRCOCModel.from_pretrained(device=args.device, strict=True)
        scorer = load_scorer(None, model)
    names = list(dict.fromkeys([STOCK, *args.ways.split(",")]))
    ways = [find_way(model, name, scorer, MOST) for name in names]
    settings = args.settings.split(",")
    sources = list(pages(max(args.pages, args.rounds, 1), args.size, args.seed))
    answered = sources[: 0 if args.shape else args.pages]
    scores = score(ways, answered, settings) if answered else {}
    costs = cost(ways, sources, settings, 0 if args.times else args.rounds)
    rows = rows_of(settings, names, scores, costs)
    was = json.loads(args.times.read_text(encoding="utf-8")) if args.times else None
    rows = rows if was is None else with_times(rows, was["rows"])
    overall = {
        f"{setting} {name}": {"score": round(float(scores[setting, name][:, 1:].mean()), 4)}
        | retained(scores[setting, name][:, 1:], scores[setting, STOCK][:, 1:])
        for setting, name in scores
    }
    facts = circumstances(model, sources[0].image, sources[0].queries[0].text, 1)
    shape = f"Qwen3-VL-{args.shape}" + (f" cut to {args.depth} layers" if args.depth else "")
    return {
        "circumstances": {
            "shape": shape if args.shape else "bundled",
            **facts,
            "pages": len(answered),
            "rounds": args.rounds if was is None else was["circumstances"]["rounds"],
            "seed": args.seed,
            "seconds": round(time.monotonic() - begun),
            **({} if was is None else {"times": {"command": was["command"], **was["circumstances"]}}),
        },
        "rows": rows,
        "questions 2 to 5": overall,
        "break-even": summary(rows, settings, names),
    }


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=100, help="of five questions each, to be answered")
    parser.add_argument("--rounds", type=int, default=15, help="of time, each on a page of its own")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--ways", default=WAYS)
    parser.add_argument("--size", type=int, default=1024, help="side of the pages in px")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shape", choices=("2B", "4B"), help="random weights; times alone")
    parser.add_argument("--depth", type=int, help="layers of both halves of the shape, for a smoke test")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", help="of the shape")
    parser.add_argument(
        "--times", type=Path, help="take the times of this result: what answers was taught again"
    )
    parser.add_argument("--table", type=Path, nargs="+", help="result files to show; nothing is measured")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if unknown := set(args.settings.split(",")) - set(SETTINGS):
        parser.error(f"setting {sorted(unknown)[0]!r} is unknown: use {' or '.join(SETTINGS)}")
    if args.table:
        show([row for path in args.table for row in json.loads(path.read_text(encoding="utf-8"))["rows"]])
        return
    result = measured(args)
    show(result["rows"])
    for line in result["break-even"]:
        print(line)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"command": " ".join(["python", *sys.argv])} | result, indent=1)
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
