"""How much of the evidence the guide keeps on held-out pages, beside nulls.

    python runs/guide.py --pages FOLDER [--documents FOLDER] [--scenes FOLDER] [--strangers FOLDER]
                         [--icons FOLDER] [--interfaces FOLDER] [--out runs/results/guide.json]
    python runs/guide.py --pages FOLDER --guide FILE.safetensors --limit 60 --brief      one table, while training
    python runs/guide.py --pages FOLDER --worst 6 --pictures FOLDER                      what it misses, as pictures

The folders are caches of rendered pages (`arr_coc_lab.world.browser.cache`), their split "test". Every figure is of
questions with evidence; see `arr_coc_lab.evaluate.guide`. "guide" is its own order of cells, "selector" what `Selector`
makes of it, which is what ships: with the other maps, coverage and void. With --drawn N pages of the drawn world are
asked too, and the bundled allocator beside them. Parts may be measured by several lines: those in the result file
that are of the same weights stay.
"""

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor

from arr_coc.choose.budget import Budget
from arr_coc.data.evidence import evidence_cells
from arr_coc.files.saved import BUNDLED
from arr_coc.guide.guide import Guide
from arr_coc.selector import Selector
from arr_coc.store.allocator import fingerprint
from arr_coc_lab.evaluate.guide import (
    BUDGETS,
    FOREIGN,
    GUIDE,
    METHODS,
    ORACLE,
    Choose,
    Sample,
    Scored,
    by_axis,
    by_kind,
    calibration,
    judge,
    measure,
    summarise,
)  # fmt: skip
from arr_coc_lab.evaluate.guide_pages import EFFECTS, drawn_samples, page_samples
from arr_coc_lab.evaluate.sources import rounded

ALLOCATOR = "bundled allocator (sparse)"
SELECTOR = "selector"
"""The guide's cells as `Selector` gives them."""
EVERY = 4
"""Every so manieth page is measured with every effect."""


def load(path: Path | None) -> tuple[Guide, dict[str, str]]:
    """A guide from a state_dict, or the bundled one, and what names its weights."""
    if path is None:
        from arr_coc.guide.guide import load_guide

        guide = load_guide()
        return guide.eval(), {"weights": fingerprint(guide)}
    guide = Guide()
    guide.load_state_dict(load_file(path))
    guide.eyes.to(memory_format=torch.channels_last)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return guide.eval(), {"weights": fingerprint(guide), "sha256": digest}


def joined(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """A result with the parts that its file holds already, where they are of the same weights."""
    before = json.loads(path.read_text()) if path.is_file() else {}
    if before.get("guide", {}).get("weights") != result["guide"]["weights"]:
        return result
    return before | result | {"command": f"{before['command']}; {result['command']}"}


def chooser(selector: Selector) -> Choose:
    """The cells of a selector as a method that is measured."""

    def choose(sample: Sample, question: str, budget: Budget) -> Tensor:
        return selector(sample.padded_image(), question, budget, sample.grid).mask().flatten()

    return choose


def pages_result(
    guide: Guide,
    folder: Path,
    limit: int | None,
    questions: int | None,
    methods: Sequence[str],
    others: dict[str, Choose],
) -> tuple[dict, list[Scored]]:
    """Every figure of a folder of pages."""
    start = time.perf_counter()
    scored = list(measure(guide, page_samples(folder, "test", limit, questions), methods, others=others))
    pages = {one.sample: one.cells for one in scored}
    result = {
        "pages": len(pages),
        "questions": len(scored),
        "with evidence": sum(one.needed > 0 for one in scored),
        "cells of a page": sum(pages.values()) / len(pages),
        "cells of evidence": sum(one.needed for one in scored)
        / max(1, sum(one.needed > 0 for one in scored)),
        "seconds": time.perf_counter() - start,
        "by kind": {name: summarise(part) for name, part in by_kind(scored).items()},
        "by axis": {
            axis: {
                value: {name: summarise(part).get(name, {}) for name in (GUIDE, *others, ORACLE)}
                for value, part in values.items()
            }
            for axis, values in by_axis(scored).items()
        },
        "calibration": calibration(scored),
    }
    return result, scored


def effects_result(guide: Guide, folder: Path, limit: int | None, questions: int | None) -> dict[str, dict]:
    """The guide's own order on every EVERYth page with every effect."""
    return {
        name: summarise(
            measure(
                guide,
                map(effect, islice(page_samples(folder, "test", limit, questions), 0, None, EVERY)),
                [GUIDE],
            )
        )[GUIDE]
        for name, effect in EFFECTS.items()
    }


def drawn_result(guide: Guide, pages: int) -> dict[str, dict]:
    """Pages of the drawn world: the guide and the bundled allocator."""
    others = {
        SELECTOR: chooser(Selector(guide)),
        ALLOCATOR: chooser(Selector.from_pretrained(BUNDLED / "allocator")),
    }
    methods = [name for name in METHODS if name != FOREIGN]
    scored = list(measure(guide, drawn_samples(pages), methods, others=others))
    kinds = sorted({one.question.kind for one in scored if one.needed})
    parts = {"all": scored} | {kind: [one for one in scored if one.question.kind == kind] for kind in kinds}
    return {
        "pages": len({one.sample for one in scored}),
        "questions": len(scored),
        "by family": {name: summarise(part) for name, part in parts.items()},
        "calibration": calibration(scored),
    }


def table(
    title: str,
    rows: dict[str, dict[str, dict[str, float]]],
    labels: Sequence[str],
    bound: dict[str, dict[str, dict[str, float]]] | None = None,
) -> Table:
    """A row per name: questions, and recall and whole evidence by budget, in brackets those of a bound."""
    view = Table("", "n", *(f"@{label}" for label in labels), title=title, title_justify="left")
    for name, figures in rows.items():
        cells = []
        for label in labels:
            own, most = figures.get(label), (bound or {}).get(name, {}).get(label)
            cells.append(f"{own['recall']:.2f} {own['whole']:.0%}" if own else "-")
            if own and most and most["whole"] < 1:
                cells[-1] += f" ({most['recall']:.2f} {most['whole']:.0%})"
        count = max((int(cell["questions"]) for cell in figures.values()), default=0)
        view.add_row(name, str(count), *cells)
    return view


def print_pages(console: Console, name: str, result: dict, brief: bool) -> None:
    """The tables of a folder of pages."""
    title = (
        f"{name}: {result['pages']} pages of {result['cells of a page']:.0f} cells; recall, all evidence kept"
    )
    labels = [str(k) for k in BUDGETS]
    more = [] if brief else [*(f"{k}/1024" for k in BUDGETS), "auto"]
    print_guide(console, title, result["by kind"], [*labels, *more])
    verdicts = result["calibration"].items()
    console.print(
        ", ".join(f"{verdict}: AUC {each['auc']:.2f} ({each['no']} no)" for verdict, each in verdicts)
    )
    for name in (GUIDE, SELECTOR):
        auto = result["by kind"].get("all", {}).get(name, {}).get("auto")
        if auto:
            console.print(f"{name}, auto: {auto['cells']:.0f} cells, all evidence kept {auto['whole']:.0%}")
    if brief:
        return
    for group in ("all", "fields"):
        if group in result["by kind"]:
            console.print(table(f"{name}, {group}, by method", result["by kind"][group], labels))
    rows = {
        f"{axis}: {value}": each
        for axis, values in result["by axis"].items()
        for value, each in values.items()
    }
    print_guide(console, f"{name}, by axis", rows, labels)


def print_guide(console: Console, title: str, rows: dict[str, dict], labels: Sequence[str]) -> None:
    """The guide's table; in brackets what the oracle keeps, where it can't keep all."""
    of_guide = {name: methods.get(GUIDE, {}) for name, methods in rows.items()}
    of_oracle = {name: methods.get(ORACLE, {}) for name, methods in rows.items()}
    console.print(table(title, of_guide, labels, of_oracle))


def picture(guide: Guide, sample: Sample, one: Scored, budget: int) -> Image.Image:
    """A question on its page: its evidence in red, cells not kept darker, missed evidence in yellow."""
    grid = sample.grid
    logits = judge(guide, sample.pixels(), [one.question.text], grid).logits[0].flatten()
    kept = torch.zeros(logits.numel(), dtype=torch.bool)
    kept[logits.argsort(descending=True, stable=True)[:budget]] = True
    evidence = evidence_cells(one.question.evidence, grid, sample.padded).flatten()
    image = sample.image.convert("RGB")
    shade = Image.new("L", image.size, 0)
    draw = ImageDraw.Draw(shade)
    cells = [(i, (i % grid[1] * 32, i // grid[1] * 32)) for i in range(logits.numel())]
    for i, (x, y) in cells:
        if not kept[i]:
            draw.rectangle((x, y, x + 31, y + 31), fill=130)
    image.paste((40, 40, 90), mask=shade)
    draw = ImageDraw.Draw(image)
    for i, (x, y) in cells:
        if evidence[i] and not kept[i]:
            draw.rectangle((x + 1, y + 1, x + 30, y + 30), outline="yellow", width=2)
    for box in one.question.evidence:
        draw.rectangle(box, outline="red", width=2)
    image.thumbnail((900, 900))
    view = Image.new("RGB", (max(image.width, 640), image.height + 40), "white")
    view.paste(image, (0, 40))
    text = f"[{one.question.kind}] {one.question.text}  -> {one.question.answer[:60]}"
    facts = (
        f"{sample.name} {sample.axes.get('type', '')}  recall {one.kept[GUIDE].get(str(budget), [0])[0]:.2f}"
    )
    ImageDraw.Draw(view).text((4, 3), f"{text}\n{facts}", fill="black", font=ImageFont.load_default(13))
    return view


def write_worst(guide: Guide, samples: list[Sample], scored: list[Scored], count: int, folder: Path) -> None:
    """Pictures of the questions of every kind with the least recall at the smallest budget."""
    folder.mkdir(parents=True, exist_ok=True)
    label = str(BUDGETS[0])
    hard = [one for one in scored if label in one.kept.get(GUIDE, {})]
    for kind in sorted({one.question.kind for one in hard}):
        worst = sorted(
            (one for one in hard if one.question.kind == kind), key=lambda one: one.kept[GUIDE][label].recall
        )
        for i, one in enumerate(worst[:count]):
            picture(guide, samples[one.sample], one, BUDGETS[0]).save(folder / f"{kind}-{i}.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=Path, help="cache of rendered pages")
    parser.add_argument("--documents", type=Path, help="cache of documents that nobody wrote for this")
    parser.add_argument("--scenes", type=Path, help="cache of written scenes (`arr-coc world --type scene`)")
    parser.add_argument("--strangers", type=Path, help="cache of another author's pages (runs/strangers.py)")
    parser.add_argument("--icons", type=Path, help="cache of pages of icons (`arr-coc world --type icons`)")
    parser.add_argument("--interfaces", type=Path, help="cache of views of HTML (`arr-coc world --html DIR`)")
    parser.add_argument("--guide", type=Path, help="state_dict; without it the bundled guide")
    parser.add_argument("--out", type=Path, help="result file")
    parser.add_argument("--limit", type=int, help="pages of each folder")
    parser.add_argument("--questions", type=int, help="questions of each page, of even kinds")
    parser.add_argument("--drawn", type=int, default=0, help="pages of the drawn world")
    parser.add_argument("--brief", action="store_true", help="the guide alone, by kind")
    parser.add_argument("--worst", type=int, default=0, help="pictures of each kind")
    parser.add_argument("--pictures", type=Path, default=Path("worst"), help="folder of the pictures")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console(width=None if sys.stdout.isatty() else 200)
    guide, weights = load(args.guide)
    brief = args.brief or args.worst
    methods = [GUIDE, ORACLE] if brief else METHODS
    others = {} if brief else {SELECTOR: chooser(Selector(guide))}
    result: dict[str, Any] = {
        "command": "python runs/guide.py " + " ".join(sys.argv[1:]),
        "package": version("arr-coc"),
        "machine": {
            "processor": platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        },
        "guide": weights,
    }
    for name in ("pages", "documents", "scenes", "strangers", "icons", "interfaces"):
        folder = getattr(args, name)
        if folder is None:
            continue
        result[name], scored = pages_result(guide, folder, args.limit, args.questions, methods, others)
        print_pages(console, name, result[name], args.brief)
        if args.worst:
            samples = list(page_samples(folder, "test", args.limit, args.questions))
            write_worst(guide, samples, scored, args.worst, args.pictures / name)
    if args.pages and not brief:
        result["effects"] = effects_result(guide, args.pages, args.limit, args.questions)
        rows = result["effects"]
        console.print(table(f"every {EVERY}th page made worse", rows, [f"{k}/1024" for k in BUDGETS]))
    if args.drawn:
        result["drawn"] = drawn_result(guide, args.drawn)
        families = result["drawn"]["by family"].items()
        rows = {
            f"{family}, {m}": methods[m]
            for family, methods in families
            for m in (GUIDE, SELECTOR, ALLOCATOR)
            if m in methods
        }
        console.print(table("drawn pages", rows, [str(k) for k in BUDGETS]))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(joined(args.out, rounded(result)), indent=1) + "\n")


if __name__ == "__main__":
    main()
