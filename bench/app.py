"""How soon the app is there and answers; its memory over many tabs.

    python bench/app.py --out runs/results/app.json
    python bench/app.py --tabs 500 --out bench/results/app-memory.json

Starts `arr-coc app` on a free port, opens it in the system's Chromium and asks the built-in sample,
comparison and words of the question included. *First paint* is from the moment the server answers to the
sample's cells on the screen; *answer* from the click to the answer on the screen. Medians over rounds, each a
new page; the first answer of the server's life, which loads what is loaded once, is told apart.

With `--tabs` no browser is needed: that many tabs are opened by HTTP as the page opens them, one after the
other, each uploads the built-in sample of 1024 px, asks about it and is never closed. The answer from all
tokens is left out: nothing is kept of it. What the server's process holds (resident set) is read on the way.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import httpx

from arr_coc.app.samples import SAMPLE

if TYPE_CHECKING:
    from playwright.sync_api import Page

READ_AFTER = (1, 20, 50, 100, 250, 500, 1000)
"""Numbers of tabs after which the memory is read."""
QUESTION = json.loads(SAMPLE.read_text(encoding="utf-8"))["question"]
SIZE = {"width": 1400, "height": 1000}


@contextmanager
def server() -> Iterator[tuple[str, float, int]]:
    """The app's address, the seconds from its start until it answered, its process; ended afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    started = time.monotonic()
    command = [sys.executable, "-m", "arr_coc", "app", "--port", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen(address, timeout=1).close()
                break
            except OSError:
                if running.poll() is not None:
                    raise
                time.sleep(0.05)
        yield address, time.monotonic() - started, running.pid
    finally:
        running.terminate()
        running.wait(timeout=30)


def ask(page: Page) -> float:
    """Seconds from the click to the answer."""
    begun = time.monotonic()
    page.click("#ask")
    page.wait_for_function("document.querySelector('#status')?.innerText.startsWith('Answered in')")
    took = time.monotonic() - begun
    page.wait_for_selector("#ask:enabled")
    return took


def chromium() -> str:
    """The path of the system's Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    sys.exit("no Chromium on PATH: install one")


def time_pages(rounds: int) -> dict[str, Any]:
    """Open and ask in so many pages, one after the other."""
    from playwright.sync_api import sync_playwright

    paints, answers = [], []
    with server() as (address, up, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for _ in range(rounds):
            page = browser.new_context(viewport=SIZE).new_page()
            begun = time.monotonic()
            page.goto(address)
            page.wait_for_selector("#sight canvas")
            paints.append(time.monotonic() - begun)
            page.locator("#samples button", has_text=QUESTION).first.click()
            page.wait_for_selector("#canvas canvas")
            answers.append(ask(page))
            page.context.close()
        browser.close()
    return {
        "seconds from start to the server's first answer": round(up, 2),
        "seconds to first paint": {
            "median": round(median(paints), 2),
            "rounds": [round(x, 2) for x in paints],
        },
        "seconds to the sample's answer": {
            "first": round(answers[0], 2),
            "median": round(median(answers), 2),
            "rounds": [round(x, 2) for x in answers],
        },
    }


class Visitor:
    """A tab as the server sees it, without a browser.

    Args:
        client: to the server's address.
        config: what the page is made of, as the server tells every page.
    """

    def __init__(self, client: httpx.Client, config: dict[str, Any]) -> None:
        self.client = client
        self.parts = {part["id"]: part.get("props", {}) for part in config["components"]}
        self.events = config["dependencies"]
        self.tab = uuid.uuid4().hex[:12]

    def ask(self) -> None:
        """Open the page, upload the sample's picture, ask the sample's question.

        Raises:
            RuntimeError: the question failed.
        """
        self.join("load")
        with SAMPLE.with_suffix(".png").open("rb") as picture:
            (path,) = self.client.post("/gradio_api/upload", files={"files": picture}).json()
        image = {"path": path, "meta": {"_type": "gradio.FileData"}}
        self.join("click", "ask", {"image": image, "compare": False})

    def join(self, event: str, part: str = "", form: Mapping[str, Any] | None = None) -> None:
        """Trigger an event and those that follow it; wait for each.

        Args:
            event: its name.
            part: the elem_id of the component; "": of any, as the page's own.
            form: values of components, by elem_id; the others have those they came with.
        """
        values_of = form or {}
        ids = {props.get("elem_id"): number for number, props in self.parts.items()}
        found = next(
            one
            for one in self.events
            if any(name == event and (not part or ident == ids[part]) for ident, name in one["targets"])
        )
        while found is not None:
            values = [
                values_of.get(self.parts[i].get("elem_id"), self.parts[i].get("value"))
                for i in found["inputs"]
            ]
            self.call(found["id"], values)
            found = next((one for one in self.events if one["trigger_after"] == found["id"]), None)

    def call(self, event: int, values: list[Any]) -> None:
        """Queue one event and read what it streams, to the end."""
        body = {"data": values, "fn_index": event, "session_hash": self.tab}
        self.client.post("/gradio_api/queue/join", json=body).raise_for_status()
        address = f"/gradio_api/queue/data?session_hash={self.tab}"
        with self.client.stream("GET", address) as stream:
            for line in stream.iter_lines():
                if '"msg":"process_completed"' in line.replace(" ", ""):
                    if not json.loads(line.removeprefix("data:"))["success"]:
                        raise RuntimeError(f"event {event} failed: {line[:300]}")
                    return


def resident(process: int) -> int:
    """What a process holds in memory, MB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    raise ValueError(f"process {process} has no resident set")


def fill_tabs(count: int) -> dict[str, Any]:
    """Open so many tabs, ask in each, and read the server's memory on the way."""
    held = {}
    with server() as (address, _, process), httpx.Client(base_url=address, timeout=300) as client:
        config = client.get("/config").json()
        begun = time.monotonic()
        for opened in range(1, count + 1):
            Visitor(client, config).ask()
            if opened in READ_AFTER or opened == count:
                held[str(opened)] = resident(process)
                print(opened, "tabs:", held[str(opened)], "MB", flush=True)
        took = time.monotonic() - begun
    return {"resident MB after so many tabs": held, "seconds a tab": round(took / count, 2)}


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--tabs", type=int, help="open so many tabs and read the memory, nothing else")
parser.add_argument("--out", type=Path)
args = parser.parse_args()
result = {
    "command": " ".join(["python", *sys.argv]),
    "cores": os.cpu_count(),
}
result |= fill_tabs(args.tabs) if args.tabs else time_pages(args.rounds)
print(json.dumps(result, indent=1))
if args.out:
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
