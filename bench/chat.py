"""What conversations about screenshots cost through the proxy: a new one, and a question about it, each turn.

    python bench/chat.py --out bench/results/chat.json

The screenshots are the pages of another author (runs/strangers), rendered by Chromium at 1280 x 860; each is
asked the first of that author's questions whose evidence is wholly on it. A conversation is --turns of them
in order, each with an answer, then "Thanks!", then without a picture a second question about each of the
pages, the oldest first: the last of its author's on it. What a stand-in receives is counted: tokens
of the pictures of all requests by Qwen's rule, beside those of the pictures as they came (the stock client);
bytes of a request that the next one has otherwise, before its own turn; bytes that a new proxy sends
otherwise for the whole conversation; packings at each turn; and the seconds that a request takes longer than
without the proxy. Evidence counts as legible if each of its boxes lies wholly in a part that was sent, at
least 11 px high or as high as it is. Some ten minutes of two cores, 2 GiB.
"""

import argparse
import asyncio
import base64
import io
import json
import os
import platform
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import httpx
import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from arr_coc.guide.guide import Guide, load_guide
from arr_coc.pixels import Packed, find_rule, pack_for
from arr_coc.proxy import packing
from arr_coc.proxy.journal import RequestRecord
from arr_coc.proxy.packing import Outcome, Packer
from arr_coc.proxy.server import Proxy, ProxySettings
from arr_coc_lab.world.browser.chromium import Chromium

PAGES = Path(__file__).parents[1] / "runs" / "strangers"
SIZE = (1280, 860)
RULE = "qwen"
PREFIX = "data:image/png;base64,"
MIN_HEIGHT = 11  # px
END = len(b"]}")  # of a body behind its last turn
ANSWER = {"role": "assistant", "content": "It is as the picture says."}
THANKS = {"role": "user", "content": "Thanks!"}


Boxes = list[list[float]]


class Asked(NamedTuple):
    """A question about a screenshot, and the boxes of its evidence in px."""

    text: str
    boxes: Boxes


class Turn(NamedTuple):
    """A turn of the user: a screenshot, a PNG in base64, what is asked about it, and what is so later."""

    page: str
    picture: str
    first: Asked
    later: Asked | None


def screenshots(most: int) -> list[Turn]:
    """The first pages that show the evidence of a question, with the first and the last such question."""
    turns: list[Turn] = []
    evidence = (PAGES / "evidence.js").read_text(encoding="utf-8")
    with Chromium() as chromium:
        for record in json.loads((PAGES / "questions.json").read_bytes()):
            html = (PAGES / record["page"]).read_text(encoding="utf-8")
            shot = chromium.render(html, *SIZE)
            asked: list[Asked] = []
            for question in record["questions"]:
                measured = chromium.page().evaluate(evidence, question["evidence"])
                boxes = [box for one in measured for box in one.get("boxes", [[-9, -9, -9, -9]])]
                if boxes and all(min(b) >= -1 and b[2] <= SIZE[0] and b[3] <= SIZE[1] for b in boxes):
                    asked.append(Asked(question["text"], boxes))
            if asked:
                picture = base64.b64encode(shot.png).decode()
                turns.append(Turn(record["page"], picture, asked[0], asked[-1] if len(asked) > 1 else None))
            if len(turns) == most:
                break
    return turns


def messages_of(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """A conversation up to the question about its last screenshot."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        picture = {"type": "image_url", "image_url": {"url": PREFIX + turn.picture}}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": turn.first.text}, picture]},
            ANSWER,
        ]
    return messages[:-1]


def tokens_of(body: bytes) -> int:
    """The tokens of all pictures in a body."""
    rule, tokens = find_rule(RULE), 0
    for message in json.loads(body)["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url":
                file = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                tokens += rule.tokens(*Image.open(io.BytesIO(file)).size)
    return tokens


def is_legible(boxes: Boxes, outcome: Outcome) -> bool:
    """Whether evidence is whole and at least MIN_HEIGHT px high on what was sent of a picture."""
    places = outcome.places or (((0.0, 0.0, *SIZE), 1.0),)
    return all(
        any(
            p[0] <= x0 + 1 and p[1] <= y0 + 1 and p[2] >= x1 - 1 and p[3] >= y1 - 1
            and (y1 - y0) * scale >= min(MIN_HEIGHT, y1 - y0)
            for p, scale in places
        )
        for x0, y0, x1, y1 in boxes
    )  # fmt: skip


def changed(before: bytes, after: bytes) -> int:
    """Bytes of a body, without its end, from the first on that a later body has otherwise."""
    begun = before[:-END]
    if after.startswith(begun):
        return 0
    return len(begun) - next(at for at in range(len(begun)) if begun[at : at + 1] != after[at : at + 1])


class Counted:
    """`pack_for`, counted."""

    calls = 0

    def __call__(self, *arguments: Any, **options: Any) -> Packed:
        """Pack."""
        self.calls += 1
        return pack_for(*arguments, **options)


class Upstream:
    """A stand-in that keeps the last body that it was sent."""

    last = b""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Its address, while it answers."""

        async def answer(request: Request) -> JSONResponse:
            self.last = await request.body()
            return JSONResponse({"choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}]})

        app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(server.serve([listening]))
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True
            await serving


@asynccontextmanager
async def proxied(upstream: str, guide: Guide, sure: float, tokens: int) -> AsyncIterator[Any]:
    """A new proxy and a client of it."""
    packer = Packer(2, guide, sure=sure, seconds=600)  # no verdict by a clock on a machine that is busy
    proxy = Proxy(ProxySettings(upstream, tokens, RULE), packer)
    transport = httpx.ASGITransport(proxy)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as client:
        yield proxy, client
    packer.close()


async def seconds_of(client: httpx.AsyncClient, messages: Any) -> float:
    """Ask; the seconds until it is answered."""
    content = json.dumps({"model": "qwen3-vl", "messages": messages}).encode()
    start = time.perf_counter()
    answer = await client.post("/v1/chat/completions", content=content)
    answer.raise_for_status()
    return time.perf_counter() - start


async def measure(turns: Sequence[Turn], guide: Guide, sure: float, tokens: int) -> dict[str, Any]:
    """The figures of one conversation."""
    counted = packing.pack_for = Counted()
    upstream = Upstream()
    sent: list[bytes] = []
    stock, seconds, alone, packings = [], [], [], []
    async with (
        upstream.open() as address,
        proxied(address, guide, sure, tokens) as (proxy, client),
        httpx.AsyncClient(base_url=address, timeout=None) as direct,
    ):
        asked = [messages_of(turns[:count]) for count in range(1, len(turns) + 1)]
        asked.append([*asked[-1], ANSWER, THANKS])
        later = [(number, turn.later) for number, turn in enumerate(turns, 1) if turn.later is not None]
        for _, question in later:
            asked.append([*asked[-1], ANSWER, {"role": "user", "content": question.text}])
        for messages in asked:
            alone.append(await seconds_of(direct, messages))
            stock.append(tokens_of(upstream.last))
            before = counted.calls
            seconds.append(await seconds_of(client, messages))
            packings.append(counted.calls - before)
            sent.append(upstream.last)
        records = list(proxy.journal.records)
        async with proxied(address, guide, sure, tokens) as (_, other):
            await seconds_of(other, asked[-1])
            restarted = changed(sent[-1], upstream.last)
    ours = [tokens_of(body) for body in sent]
    added = [mine - theirs for mine, theirs in zip(seconds, alone, strict=True)]
    count = len(turns)
    newest = [record.pictures[-1].outcome for record in records[:count]]
    reasons = Counter({"packed": 0})
    reasons.update(one.reason for one in newest)
    legible = [is_legible(turn.first.boxes, one) for turn, one in zip(turns, newest, strict=True)]
    unsure = [one for one, outcome in zip(legible, newest, strict=True) if outcome.reason == "unsure"]
    new = [later - sooner for sooner, later in pairwise(ours)]
    return {
        "pages": [turn.page for turn in turns],
        "image tokens": sum(ours[:count]),
        "of the stock client": sum(stock[:count]),
        "share": sum(ours[:count]) / sum(stock[:count]),
        "what became of each picture at first": dict(reasons),
        "unsure pictures that went as they came": sum(
            one.reason == "unsure" and one.layout == "whole" for one in newest
        ),
        "pages with legible evidence": {"all": [sum(legible), count], "unsure": [sum(unsure), len(unsure)]},
        "tokens of each picture": [one.after for one in newest],
        "confidence of each": [
            None if one.confidence is None else round(one.confidence, 2) for one in newest
        ],
        "earlier bytes changed": sum(map(changed, sent, sent[1:])),
        "bytes changed by a restart": restarted,
        "packings at each turn": packings,
        "seconds added a turn": {
            "first": added[0], "last": added[count - 1], "median": median(added[:count])
        },
        "seconds added at Thanks!": added[count],
        "tokens appended at Thanks!": new[count - 1],
        "share with the later turns": sum(ours) / sum(stock),
        "later": later_figures(later, newest, records[count + 1 :], new[count:], added[count + 1 :]),
    }  # fmt: skip


def later_figures(
    later: Sequence[tuple[int, Asked]],
    newest: Sequence[Outcome],
    records: Sequence[RequestRecord],
    tokens: Sequence[int],
    seconds: Sequence[float],
) -> dict[str, Any]:
    """What became of questions about earlier pictures, each with the number of its picture."""
    turns, shown = [], dict(enumerate(newest, 1))
    for (number, question), record, cost, took in zip(later, records, tokens, seconds, strict=True):
        outcome, of = record.pictures[-1].outcome, 0
        if record.pictures[-1].question == question.text and outcome.reason == "recalled":
            named = re.match(r"From picture (\d+)", outcome.parts[0][0])
            of = 0 if named is None else int(named[1])
        before = is_legible(question.boxes, shown[number])
        if of:
            shown[of] = shown[of]._replace(places=(*shown[of].places, *outcome.places))
        turns.append({
            "picture": number, "question": question.text, "appended of": of, "tokens": cost,
            "legible before": before, "legible": is_legible(question.boxes, shown[number]),
            "seconds added": round(took, 2),
        })  # fmt: skip
    return {
        "questions": len(turns),
        "legible before": sum(one["legible before"] for one in turns),
        "legible": sum(one["legible"] for one in turns),
        "appended": sum(one["appended of"] > 0 for one in turns),
        "of the picture meant": sum(one["appended of"] == one["picture"] for one in turns),
        "tokens": sum(tokens),
        "seconds added, median": median(seconds),
        "turns": turns,
    }


async def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--conversations", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=400, help="of each picture")
    parser.add_argument("--sure", type=float, default=0.5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    pages = await asyncio.to_thread(screenshots, options.turns * options.conversations)
    guide, figures = load_guide(), []
    for first in range(0, len(pages) - options.turns + 1, options.turns):
        figures.append(
            await measure(pages[first : first + options.turns], guide, options.sure, options.tokens)
        )
        print(json.dumps(figures[-1]), flush=True)
    means: dict[str, Any] = {
        name: fmean(one[name] for one in figures)
        for name in (
            "share",
            "earlier bytes changed",
            "bytes changed by a restart",
            "share with the later turns",
            "tokens appended at Thanks!",
            "seconds added at Thanks!",
        )
    }
    for name in ("questions", "legible before", "legible", "appended", "of the picture meant", "tokens"):
        means[f"later, {name}"] = sum(one["later"][name] for one in figures)
    for name in ("all", "unsure"):
        counts = [one["pages with legible evidence"][name] for one in figures]
        means[f"pages with legible evidence, {name}"] = [sum(one[k] for one in counts) for k in (0, 1)]
    means["seconds added a turn, median"] = median(one["seconds added a turn"]["median"] for one in figures)
    print(json.dumps(means, indent=1))
    if options.out:
        facts = {
            "command": f"python bench/chat.py --turns {options.turns} --tokens {options.tokens} "
            f"--conversations {options.conversations} --sure {options.sure}",
            "machine": {"processor": platform.processor() or platform.machine(), "threads": os.cpu_count()},
            "load before": os.getloadavg()[0],
            "means": means,
            "conversations": figures,
        }
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
