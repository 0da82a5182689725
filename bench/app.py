"""How soon the app is there and answers, in a real browser; and the README's pictures of it.

    python bench/app.py --out runs/results/app.json --pictures docs

Starts `arr-coc app` on a free port, opens it in the system's Chromium and asks the built-in sample,
comparison and words of the question included. *First paint* is from the moment the server answers to the
sample's cells on the screen; *answer* from the click to the answer on the screen. Medians over rounds, each a
new page; the first answer of the server's life, which loads what is loaded once, is told apart.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

SIZE = {"width": 1400, "height": 1000}


@contextmanager
def server() -> Iterator[tuple[str, float]]:
    """The app's address and the seconds from its start until it answered; ended afterwards."""
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
        yield address, time.monotonic() - started
    finally:
        running.terminate()
        running.wait(timeout=30)


def ask(page: Page) -> float:
    """Seconds from the click to the answer."""
    begun = time.monotonic()
    page.click("#ask")
    page.wait_for_function("document.querySelector('#status').innerText.startsWith('Answered in')")
    took = time.monotonic() - begun
    page.wait_for_selector("#ask:enabled")
    return took


def photograph(page: Page, folder: Path) -> None:
    """The first screen, and the microscope after everything was measured."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(1000)  # buttons fade in
    page.screenshot(path=folder / "app.png")
    page.click("#closer .label-wrap")
    page.wait_for_selector("#microscope canvas")
    for probe in ("sweep", "contenders", "faithfulness"):
        page.click(f"#probe-{probe}")
        page.wait_for_function("document.querySelector('#measured').innerText === 'Measured.'")
        page.wait_for_selector("#probe-sweep:enabled")
    page.wait_for_timeout(500)
    page.locator("#microscope").screenshot(path=folder / "microscope.png")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--out", type=Path)
parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="write app.png and microscope.png here")
args = parser.parse_args()

browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if browser_path is None:
    parser.error("no Chromium on PATH: install one")
paints, answers = [], []
with server() as (address, up), sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
    for _ in range(args.rounds):
        page = browser.new_context(viewport=SIZE).new_page()
        begun = time.monotonic()
        page.goto(address)
        page.wait_for_selector("#canvas canvas")
        paints.append(time.monotonic() - begun)
        page.wait_for_timeout(500)
        answers.append(ask(page))
        if args.pictures and len(answers) == args.rounds:
            photograph(page, args.pictures)
        page.context.close()
    browser.close()
result = {
    "command": " ".join(["python", *sys.argv]),
    "cores": os.cpu_count(),
    "seconds from start to the server's first answer": round(up, 2),
    "seconds to first paint": {"median": round(median(paints), 2), "rounds": [round(x, 2) for x in paints]},
    "seconds to the sample's answer": {
        "first": round(answers[0], 2),
        "median": round(median(answers), 2),
        "rounds": [round(x, 2) for x in answers],
    },
}
print(json.dumps(result, indent=1))
if args.out:
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
