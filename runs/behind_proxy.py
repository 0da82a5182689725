"""Answers of a server behind `arr-coc proxy`, beside those of the same model wrapped in mode "saccade".

    VLLM_PLUGINS= python -m vllm.entrypoints.openai.api_server --model src/arr_coc/bundled/model --served-model-name m \\
        --host 127.0.0.1 --port 8000 --dtype float32 --max-model-len 8192 --block-size 32 --enforce-eager
    python runs/behind_proxy.py --upstream http://127.0.0.1:8000/v1 --pages 12 --out runs/results/behind-proxy.json

Drawn pages, split "test", which the bundled model reads; each question is asked of the server as it is, of it
behind the proxy at --tokens in each of --layouts, and of the wrapped model at as many tokens in all. Exact match.
Cost: some four seconds of one core a question of 1,024 px.
"""

import argparse
import base64
import io
import json
import os
import platform
import threading
import time
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import httpx
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc import ARRCOCModel
from arr_coc.data.metrics import exact_match
from arr_coc.files.saved import BUNDLED
from arr_coc.proxy.packing import Packer
from arr_coc.proxy.server import Proxy, ProxySettings, serve
from arr_coc_lab.world import draw_page


def proxied(upstream: str, tokens: int, layout: str) -> str:
    """The address of a proxy in a thread of this process."""
    started, address = threading.Event(), []

    def show(url: str) -> None:
        address.append(url)
        started.set()

    proxy = Proxy(ProxySettings(upstream, tokens, "32", layout, 0), Packer(1, sure=0.0))
    threading.Thread(target=serve, args=(proxy, "127.0.0.1", 0, show), daemon=True).start()
    if not started.wait(120):
        raise RuntimeError("the proxy didn't start in two minutes")
    return address[0] + "/v1"


def ask(url: str, picture: Image.Image, question: str) -> tuple[str, int]:
    """The answer of a server, and the tokens of the prompt."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    image = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": question}]
    request = {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 8}
    reply = httpx.post(url + "/chat/completions", json=request | {"temperature": 0}, timeout=300)
    reply.raise_for_status()
    made = reply.json()
    return made["choices"][0]["message"]["content"].strip(), made["usage"]["prompt_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--tokens", type=int, default=529)
    parser.add_argument("--layouts", default="auto,strip,overview+crops")
    parser.add_argument("--size", type=int, default=1024, help="side of the pages in px")
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--each", type=int, default=3, help="questions of a page")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    layouts = {
        name: proxied(arguments.upstream, arguments.tokens, name) for name in arguments.layouts.split(",")
    }
    base = AutoModelForImageTextToText.from_pretrained(BUNDLED / "model")
    processor = AutoProcessor.from_pretrained(BUNDLED / "model")
    wrapped = ARRCOCModel.wrap(base.eval(), processor, mode="saccade", budget=arguments.tokens)
    rows = []
    for seed in range(arguments.pages):
        page = draw_page(seed, (arguments.size, arguments.size), "test")
        session = wrapped.session(page.image)
        for question in page.questions[: arguments.each]:
            begun = time.perf_counter()
            answers = {"all tokens": ask(arguments.upstream, page.image, question.text)}
            for name, url in layouts.items():
                answers[f"proxy, {name}"] = ask(url, page.image, question.text)
            answer = session.ask(question.text, max_new_tokens=8)
            answers["saccade"] = (answer.text, answer.kept)
            rows.append(
                {
                    name: (exact_match(text, (question.answer,)), spent)
                    for name, (text, spent) in answers.items()
                }
            )
            print(
                len(rows),
                f"{time.perf_counter() - begun:.1f} s",
                question.text,
                question.answer,
                answers,
                flush=True,
            )
    table = {
        name: {
            "exact match": fmean(row[name][0] for row in rows),
            "tokens of the prompt": fmean(row[name][1] for row in rows),
        }
        for name in rows[0]
    }
    print(json.dumps(table, indent=1))
    if arguments.out:
        facts = {
            "command": f"python runs/behind_proxy.py --tokens {arguments.tokens} --size {arguments.size} "
            f"--pages {arguments.pages} --each {arguments.each} --layouts {','.join(layouts)}",
            "questions": len(rows),
            "machine": {"processor": platform.processor() or platform.machine(), "threads": os.cpu_count()},
            "tables": table,
        }
        arguments.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
