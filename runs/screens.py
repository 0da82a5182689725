"""What an agent's screenshots cost if only what is new in each is sent, and whether that shows what is needed.

    python runs/screens.py FOLDER --out runs/results/screens.json

Chromium is driven over the pages of runs/screens_pages (forms, a table, mail, settings, a shop) by a seeded
user who clicks, types, hovers, scrolls, presses keys and waits; FOLDER gets a screenshot before each step, and
the box, from the DOM, of what that step acts on. What is in FOLDER already isn't recorded again.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from arr_coc_lab.world.browser.chromium import CLOSED, FLAGS, executable

PAGES = Path(__file__).with_name("screens_pages")
KINDS = ("forms", "table", "mail", "settings", "shop")
SIZE = (1280, 860)
BEGIN = "2026-03-02T09:12:40"
DOINGS = {"click": 44, "type": 16, "scroll": 16, "hover": 8, "wait": 7, "miss": 4, "key": 5}
"""What the user does, with weights: the author's guess of what agents do, waiting and missing included."""
WAY = 0.25  # the weight of a thing that leads to another view, beside any other thing
TARGETS = """() => {
  const found = [];
  for (const one of document.querySelectorAll("button, a, input, textarea, th, [data-way]")) {
    const box = one.getBoundingClientRect();
    if (box.width < 4 || box.height < 4 || box.left < 0 || box.top < 0) continue;
    if (box.right > innerWidth || box.bottom > innerHeight) continue;
    const reached = [[.5, .5], [.1, .2], [.9, .8]].every(([x, y]) => {
      const top = document.elementFromPoint(box.left + x * box.width, box.top + y * box.height);
      return top && (one.contains(top) || top.contains(one) && x !== .5);
    });
    if (!reached) continue;
    const typed = one.matches("textarea, input:not([type=checkbox]):not([type=radio])");
    found.push({box: [box.left, box.top, box.right, box.bottom], typed, way: one.hasAttribute("data-way")});
  }
  return found;
}"""
"""A JavaScript function that gives what can be acted on: it is whole in the view, and nothing lies over it."""


class Step(NamedTuple):
    """A step of a session: what is done after its screenshot, and to which box of it, in px."""

    doing: str
    box: tuple[float, float, float, float] | None


def act(page: Page, rng: random.Random) -> Step:
    """Do something, and return what it was."""
    found = page.evaluate(TARGETS)
    doing = rng.choices([*DOINGS], [*DOINGS.values()])[0]
    things = [one for one in found if one["typed"] or doing != "type"]
    if doing in ("click", "type", "hover") and things:
        weights = [WAY if one["way"] else 1.0 for one in things]
        x0, y0, x1, y1 = rng.choices(things, weights)[0]["box"]
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        if doing == "hover":
            page.mouse.move(x, y)
        else:
            page.mouse.click(x, y)
        if doing == "type":
            page.keyboard.type(
                rng.choice(("blue lamp", "Hana Sato", "12", "kettle", "see below", "77 High Road"))
            )
        return Step(doing, (x0, y0, x1, y1))
    if doing == "scroll":
        page.mouse.move(rng.randrange(300, 1200), rng.randrange(200, 800))
        page.mouse.wheel(0, rng.choice((-400, -200, 120, 200, 300, 400, 400, 600)))
    elif doing == "key":
        page.keyboard.press(rng.choice(("Escape", "Escape", "Tab", "PageDown")))
    elif doing == "miss":
        page.mouse.click(rng.randrange(700, 1250), 57)  # just under the header
    return Step(doing, None)


def record(browser: Browser, kind: str, seed: int, steps: int, folder: Path) -> None:
    """Write a session's screenshots, NNN.png, and then its steps, steps.json."""
    folder.mkdir(parents=True, exist_ok=True)
    page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
    page.clock.install(time=BEGIN)
    page.goto(f"{(PAGES / kind).as_uri()}.html?seed={seed}")
    page.clock.pause_at("2026-03-02T09:12:50")
    rng, done = random.Random(f"{kind} {seed}"), []
    for number in range(steps):
        page.screenshot(path=folder / f"{number:03}.png", caret="initial", animations="allow")
        done.append(act(page, rng))
        page.clock.run_for(rng.choice((600, 1500, 3000, 6000)))
        page.wait_for_timeout(40)  # a wheel is answered by another process
    page.close()
    (folder / "steps.json").write_text(json.dumps([step._asdict() for step in done]))


def record_all(folder: Path, seeds: Sequence[int], steps: int) -> None:
    """Record the sessions that aren't there yet."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=[*FLAGS, *CLOSED])
        for seed in seeds:
            for kind in KINDS:
                place = folder / f"{kind}-{seed}"
                if not (place / "steps.json").is_file():
                    record(browser, kind, seed, steps, place)
        browser.close()


def main() -> None:
    """Record, measure, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--out", type=Path)
    arguments: Any = parser.parse_args()
    record_all(arguments.folder, arguments.seeds, arguments.steps)


if __name__ == "__main__":
    main()
