"""What an agent's screenshots cost if only what is new in each is sent, and whether that shows what is needed.

    python runs/screens.py FOLDER --out runs/results/screens.json            half an hour of one core
    python runs/screens.py FOLDER --rules gpt-5.4 gpt-4o qwen gemini --out runs/results/screens-rules.json

Chromium is driven over the pages of runs/screens_pages (forms, a table, mail, settings, a shop) by a seeded
user who clicks, types, hovers, scrolls, presses keys and waits; FOLDER gets a screenshot before each step, and
the box, from the DOM, of what that step acts on. What is in FOLDER already isn't recorded again.

Each session is a conversation of Anthropic's Messages whose tool results are the screenshots; at each step its
body goes through the proxy's own functions. Measured of the bodies that come out:

- tokens of the pictures of all requests, as a share of the stock client's, and with a quarter of a token for
  each letter of a caption;
- bytes of a request that the next one has otherwise, before its own turn;
- of steps with a target: whether its box, in a screen put together from the pictures and captions in the
  context, holds what the real screen has there (99 % of its px), at native size or with print of 11 px; and by
  how many px that place is off (the best match within 3 px), which is what a click would miss by.

Beside ours: a sentence for files that are equal; the newest three screenshots alone; all of them shrunk to our
tokens; changed rectangles without any rule about scrolling, dialogs, cursors and clocks; random cells, as many
as we send. What a model makes of any of it isn't measured. With --rules the share of tokens alone, by the rules of
other models, the time of deciding, and of `parts` where the next step's targets are: in what is sent of that
screenshot, at the same place in an earlier one, or (in part) in an area that a sentence says has scrolled since.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from operator import mul
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from arr_coc.pixels.frames import (
    SCREENS,
    UNCHANGED,
    blocks_of,
    differing,
    next_file,
    next_frame,
    open_frame,
    touching_blocks,
)
from arr_coc.pixels.regions import merged
from arr_coc.pixels.rules import find_rule
from arr_coc.proxy.bodies import parse, rewritten
from arr_coc.proxy.messages import APIS
from arr_coc.proxy.screens import Screens
from arr_coc_lab.world.browser.chromium import CLOSED, FLAGS, executable

PAGES = Path(__file__).with_name("screens_pages")
KINDS = ("forms", "table", "mail", "settings", "shop")
SIZE = (1280, 860)
RULE = find_rule("claude")
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


# ---- measuring ------------------------------------------------------------------------------------------

METHODS = ("stock", "unchanged", "parts", "hash", "newest 3", "shrink", "rectangles", "random cells")
SAME = 8  # levels of 255 by which a px may differ and show the same
SHARE = 0.99  # of a target's px that show what the screen has
NEAR = 3  # px in which the place of a target is looked for
PRINT, READ = 16, 11  # px of the pages' print, and of print that can be read
SCALE = 0.5  # of the sides of a shrunk screenshot: about the tokens of `parts`
CELL = 28  # px of a token by the rule
MARGIN, FRAME, MOST = 16, 24, 4  # of rectangles, as in arr_coc.pixels.frames
OMITTED = {"type": "text", "text": "[an old screenshot]"}
PLACE = re.compile(r"This is x (\d+) to (\d+), y (\d+) to (\d+) of the screen of (\d+) x (\d+) px")
ADD = re.compile(r"add (\d+) to x and (\d+) to y")
SCROLLED = re.compile(
    r"The area x (\d+) to (\d+), y (\d+) to (\d+) has scrolled: what is in it now was (\d+) px further (down|up)"
)
API = APIS[2]  # Anthropic's Messages


def picture_part(png: bytes) -> dict[str, Any]:
    """A picture in a message."""
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    return {"type": "image", "source": source}


def body_of(results: Sequence[Sequence[dict[str, Any]]]) -> bytes:
    """A request with a result of a tool for each screenshot."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Order a blue lamp."}]
    for number, result in enumerate(results):
        call = {"type": "tool_use", "id": f"t{number}", "name": "screenshot", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": list(result)}
        turns += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    return json.dumps({"model": "claude-opus-5", "messages": turns}).encode()


def results_of(body: bytes) -> list[list[dict[str, Any]]]:
    """What a request has of each screenshot."""
    turns = json.loads(body)["messages"]
    return [turn["content"][0]["content"] for turn in turns[2::2]]


def file_of(image: Image.Image) -> bytes:
    """A picture as PNG."""
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def caption_of(box: Sequence[int]) -> str:
    """The sentence that is said of a part, by the nulls too."""
    x0, y0, x1, y1 = box
    return (
        f"This is x {x0} to {x1}, y {y0} to {y1} of the screen of {SIZE[0]} x {SIZE[1]} px, at full size: "
        f"add {x0} to x and {y0} to y of a place in it to click there."
    )


def rectangles(before: Image.Image, image: Image.Image, png: bytes) -> list[dict[str, Any]]:
    """All that has changed since the last screenshot, in rectangles; the whole where that costs little more."""
    changed = differing(open_frame(before).pixels, open_frame(image).pixels)
    boxes = [
        (max(0, x0 - MARGIN), max(0, y0 - MARGIN), min(SIZE[0], x1 + MARGIN), min(SIZE[1], y1 + MARGIN))
        for x0, y0, x1, y1 in touching_blocks(blocks_of(changed))
    ]
    if len(boxes) > 200:
        return [picture_part(png)]
    boxes = merged(boxes, FRAME, MOST)
    if sum(RULE.tokens(x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes) > 0.6 * RULE.tokens(*SIZE):
        return [picture_part(png)]
    parts: list[dict[str, Any]] = [] if boxes else [{"type": "text", "text": UNCHANGED}]
    for box in boxes:
        parts += [{"type": "text", "text": caption_of(box)}, picture_part(file_of(image.crop(box)))]
    return parts


def random_cells(image: Image.Image, tokens: int, rng: random.Random) -> list[dict[str, Any]]:
    """Cells anywhere, each a part."""
    parts: list[dict[str, Any]] = []
    for _ in range(tokens):
        x0, y0 = (CELL * rng.randrange(side // CELL) for side in SIZE)
        box = (x0, y0, x0 + CELL, y0 + CELL)
        parts += [{"type": "text", "text": caption_of(box)}, picture_part(file_of(image.crop(box)))]
    return parts or [{"type": "text", "text": UNCHANGED}]


class Canvas:
    """The screen, as far as pictures and captions in a context tell of it."""

    def __init__(self) -> None:
        self.pixels = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
        self.under = self.pixels
        self.scale = 1.0

    def take(self, result: Sequence[dict[str, Any]]) -> None:
        """Read what stands in a request of one screenshot."""
        box: tuple[int, ...] | None = None
        for part in result:
            if part["type"] == "text":
                box = self._read(part["text"])
                continue
            with Image.open(io.BytesIO(base64.b64decode(part["source"]["data"]))) as opened:
                image = opened.convert("RGB")
            if box is None:
                self.scale = min(1.0, image.width / SIZE[0])
                self.pixels = np.asarray(image.resize(SIZE)).copy()
            else:
                x, y = box
                self.pixels[y : y + image.height, x : x + image.width] = np.asarray(image)

    def _read(self, text: str) -> tuple[int, int] | None:
        if (moved := SCROLLED.search(text)) is not None:
            x0, x1, y0, y1, shift = map(int, moved.groups()[:5])
            shift = shift if moved[6] == "down" else -shift
            self.pixels[y0:y1, x0:x1] = self.pixels[y0 + shift : y1 + shift, x0:x1].copy()
        if "in another light" in text:
            self.under, self.pixels = self.pixels, np.full_like(self.pixels, 255) - self.pixels
        if "as it was before" in text:
            self.pixels = self.under.copy()
        place, added = PLACE.search(text), ADD.search(text)
        return None if place is None or added is None else (int(added[1]), int(added[2]))

    def shows(self, real: np.ndarray, box: Sequence[float]) -> tuple[bool, int]:
        """Whether a target is shown, and by how many px its place is off."""
        x0, y0, x1, y1 = math.floor(box[0]), math.floor(box[1]), math.ceil(box[2]), math.ceil(box[3])
        wanted = real[y0:y1, x0:x1].astype(np.int16)

        def off(dx: int, dy: int) -> float:
            there = self.pixels[max(0, y0 + dy) : y1 + dy, max(0, x0 + dx) : x1 + dx]
            if there.shape != wanted.shape:
                return 1.0
            return float((np.abs(there - wanted).max(2) > SAME).mean())

        here = off(0, 0)
        shown = here <= 1 - SHARE and (self.scale == 1 or PRINT * self.scale >= READ)
        if here == 0:
            return shown, 0
        spots = [(dx, dy) for dx in range(-NEAR, NEAR + 1) for dy in range(-NEAR, NEAR + 1)]
        best = min(spots, key=lambda spot: (off(*spot), max(map(abs, spot))))
        return shown, max(map(abs, best))


def image_tokens(results: Sequence[Sequence[dict[str, Any]]]) -> tuple[list[int], list[int]]:
    """Tokens of the pictures of each result, and letters of its sentences."""
    tokens, letters = [], []
    for result in results:
        sizes = [
            Image.open(io.BytesIO(base64.b64decode(part["source"]["data"]))).size
            for part in result
            if part["type"] == "image"
        ]
        tokens.append(sum(RULE.tokens(*size) for size in sizes))
        letters.append(sum(len(part["text"]) for part in result if part["type"] == "text"))
    return tokens, letters


def changed_bytes(before: bytes, after: bytes) -> int:
    """Bytes of a body, without its end, from the first on that a later body has otherwise."""
    begun = before[: -len(b"]}")]
    if after.startswith(begun):
        return 0
    least, most = 0, len(begun)
    while least < most:  # the first `least` are equal
        middle = (least + most + 1) // 2
        least, most = (middle, most) if after.startswith(begun[:middle]) else (least, middle - 1)
    return len(begun) - least


def through_proxy(way: str, files: Sequence[bytes]) -> tuple[list[list[dict[str, Any]]], int, list[float]]:
    """What the proxy sends of each screenshot, bytes that a later request changed, and seconds for each."""
    screens, another = Screens(way), Screens(way)
    before, changed, seconds = b"", 0, []
    for count in range(1, len(files) + 1):
        body = body_of([[picture_part(file)] for file in files[:count]])
        parsed = parse(API, body, 100)
        assert parsed is not None
        start = time.process_time()
        outcomes = screens.decide(parsed.screens, RULE, way)
        seconds.append(time.process_time() - start)
        parts = {slot: one.parts for slot, one in zip(parsed.screens, outcomes, strict=True) if one.parts}
        sent = rewritten(API, body, parsed, {}, screens=parts) if parts else body
        assert sent is not None
        changed += changed_bytes(before, sent) if before else 0
        before = sent
    assert [one.parts for one in another.decide(parsed.screens, RULE, way)] == [one.parts for one in outcomes]
    screens.close()
    another.close()
    return results_of(before), changed, seconds


def measured(folder: Path) -> dict[str, dict[str, Any]]:
    """The sums of one session, by method."""
    steps = [Step(**one) for one in json.loads((folder / "steps.json").read_text())]
    files = [(folder / f"{number:03}.png").read_bytes() for number in range(len(steps))]
    images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    stock = [[picture_part(file)] for file in files]
    rng = random.Random(folder.name)
    made: dict[str, tuple[list[list[dict[str, Any]]], int, list[float]]] = {"stock": (stock, 0, [])}
    for way in ("unchanged", "parts"):
        made[way] = through_proxy(way, files)
    spent = image_tokens(made["parts"][0])[0]
    full = RULE.tokens(*SIZE)
    equal = [[{"type": "text", "text": UNCHANGED}] if number and files[number - 1] == file else stock[number]
             for number, file in enumerate(files)]  # fmt: skip
    small = (round(SIZE[0] * SCALE), round(SIZE[1] * SCALE))
    shrunk = [[picture_part(file_of(image.resize(small, Image.Resampling.LANCZOS)))] for image in images]
    pairs = zip(images, images[1:], files[1:], strict=False)
    made["hash"], made["shrink"] = (equal, 0, []), (shrunk, 0, [])
    made["rectangles"] = ([stock[0], *(rectangles(*pair) for pair in pairs)], 0, [])
    cells = [
        stock[n] if spent[n] == full else random_cells(images[n], spent[n], rng) for n in range(len(files))
    ]
    made["random cells"] = (cells, 0, [])
    sums: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        results, changed, seconds = made.get(method, (stock, 0, []))
        tokens, letters = image_tokens(results)
        in_all = [len(files) - number for number in range(len(files))]  # requests that a screenshot is in
        if method == "newest 3":
            in_all = [min(3, count) for count in in_all]
            bodies = [
                body_of([stock[n] if n > last - 3 else [OMITTED] for n in range(last + 1)])
                for last in range(len(files))
            ]
            changed = sum(changed_bytes(*pair) for pair in pairwise(bodies))
        canvas, shown, misses = Canvas(), [], []
        for step, image, result in zip(steps, images, results, strict=True):
            canvas.take(result)
            if step.box is not None:
                seen, off = canvas.shows(np.asarray(image), step.box)
                shown.append(seen)
                misses += [off] if seen else []
        sums[method] = {
            "tokens": sum(map(mul, tokens, in_all)),
            "letters": sum(map(mul, letters, in_all)),
            "changed": changed,
            "targets": len(shown),
            "shown": sum(shown),
            "clicks": sum(off <= 1 for off in misses),
            "seconds": seconds,
            "became": dict(Counter(_became(result) for result in results)),
        }
    return sums


def _became(result: Sequence[dict[str, Any]]) -> str:
    kinds = [part["type"] for part in result]
    return "whole" if kinds == ["image"] else "sentence" if kinds == ["text"] else "parts"


def table_of(sessions: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The figures of all sessions, by method."""
    table: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        rows = [session[method] for session in sessions]
        stock = [session["stock"]["tokens"] for session in sessions]
        tokens, shown, targets = (sum(row[name] for row in rows) for name in ("tokens", "shown", "targets"))
        shares = [row["tokens"] / whole for row, whole in zip(rows, stock, strict=True)]
        letters = sum(row["letters"] for row in rows)
        table[method] = {
            "share": round(tokens / sum(stock), 4),
            "share_by_session": [round(min(shares), 4), round(max(shares), 4)],
            "prefix_bytes_changed": sum(row["changed"] for row in rows),
            "targets": targets,
            "targets_shown": round(shown / targets, 4),
            "clicks_within_1_px": round(sum(row["clicks"] for row in rows) / max(1, shown), 4),
        }
        if method in SCREENS:
            table[method]["share_with_captions"] = round((tokens + letters / 4) / sum(stock), 4)
            table[method]["became"] = dict(sum((Counter(row["became"]) for row in rows), Counter()))
        if seconds := sorted(1000 * one for row in rows for one in row["seconds"]):
            table[method]["ms"] = {
                "median": round(median(seconds), 1),
                "p95": round(seconds[int(0.95 * len(seconds))], 1),
            }
    return table


def write(result: dict[str, Any], out: Path | None) -> None:
    """Print a result, and write it to a file."""
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if out is not None:
        out.write_text(text)


def share_by(name: str, folders: Sequence[Path]) -> float:
    """The share of the stock client's tokens, of all requests, that `parts` costs by a rule."""
    rule, tokens, whole = find_rule(name), 0, 0
    for folder in folders:
        history, files = None, sorted(folder.glob("*.png"))
        for number, file in enumerate(files):
            sent, history = next_file(history, file.read_bytes(), "parts", rule)
            boxes = [box for _, box in sent.frame.parts if box is not None]
            cost = sum(rule.tokens(x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes)
            full = rule.tokens(*SIZE)
            tokens += (full if sent.frame.kind == "whole" else cost) * (len(files) - number)
            whole += full * (len(files) - number)
    return round(tokens / whole, 4)


def where_targets_are(folders: Sequence[Path]) -> dict[str, int]:
    """Targets that are in the newest pictures, at the same place in earlier ones, or where a shift leads."""
    counts = Counter(now=0, earlier=0, scrolled=0)
    for folder in folders:
        history, sources = None, np.zeros((SIZE[1], SIZE[0]), np.uint8)  # 0: earlier, 1: now, 2: by a shift
        under = sources
        for number, step in enumerate(json.loads((folder / "steps.json").read_text())):
            sent, history = next_file(history, (folder / f"{number:03}.png").read_bytes(), "parts", RULE)
            sources[sources == 1] = 0
            if sent.frame.kind == "whole":
                sources[:] = 1
            for caption, box in sent.frame.parts:
                if (moved := SCROLLED.search(caption)) is not None:
                    x0, x1, y0, y1 = map(int, moved.groups()[:4])
                    sources[y0:y1, x0:x1] = 2
                if "in another light" in caption:
                    under = sources.copy()
                if "as it was before" in caption:
                    sources = np.where(under == 2, 2, 0).astype(np.uint8)
                if box is not None:
                    sources[box[1] : box[3], box[0] : box[2]] = 1
            if step["box"] is not None:
                x0, y0, x1, y1 = map(int, step["box"])
                there = sources[y0:y1, x0:x1]
                counts["scrolled" if (there == 2).any() else "now" if there.all() else "earlier"] += 1
    return dict(counts)


def milliseconds(folders: Sequence[Path]) -> dict[str, float]:
    """The time of one core in which it is decided what is sent of a screenshot that is open."""
    spent = []
    for folder in folders:
        history = None
        for file in sorted(folder.glob("*.png")):
            screen = open_frame(Image.open(file).convert("RGB"))
            start = time.process_time()
            _, history = next_frame(history, screen, "parts", RULE.tokens)
            spent.append(1000 * (time.process_time() - start))
    spent.sort()
    return {
        "median": round(median(spent), 1),
        "p95": round(spent[int(0.95 * len(spent))], 1),
        "p99": round(spent[int(0.99 * len(spent))], 1),
        "most": round(spent[-1], 1),
    }


def main() -> None:
    """Record, measure, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rules", nargs="+", default=[])
    parser.add_argument("--out", type=Path)
    arguments: Any = parser.parse_args()
    record_all(arguments.folder, arguments.seeds, arguments.steps)
    names = [f"{kind}-{seed}" for seed in arguments.seeds for kind in KINDS]
    if arguments.rules:
        folders = [arguments.folder / name for name in names]
        shares = {rule: share_by(rule, folders) for rule in arguments.rules}
        targets = where_targets_are(folders)
        write({"shares": shares, "ms": milliseconds(folders), "targets": targets}, arguments.out)
        return
    sessions = {}
    for name in names:
        sessions[name] = measured(arguments.folder / name)
        print(name, {method: row["shown"] for method, row in sessions[name].items()}, flush=True)
    result = {
        "sessions": len(names),
        "steps": arguments.steps,
        "size": SIZE,
        "rule": RULE.name,
        "all": table_of([*sessions.values()]),
        "parts_by_kind": {
            kind: table_of([sessions[name] for name in names if name.startswith(kind)])["parts"]["share"]
            for kind in KINDS
        },
    }
    write(result, arguments.out)


if __name__ == "__main__":
    main()
