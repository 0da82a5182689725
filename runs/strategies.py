"""The strategy benchmark: which map leads for which kind of question, and how much evidence is kept beside it.

    python runs/strategies.py [--out runs/results/strategies.json]      some four minutes of one core

Five kinds of question in at least twenty wordings each, every wording on several drawn pictures that can answer it: of
a fact that is printed, of a place or an object, of what is unusual, of all of a picture, of something that holds much
in little room (a formula, code, a diagram). Beside them what is unusual on busy streets, where nothing is.

Measured with the guide alone (`Selector`), at 64 of 1,024 cells: the gates, the tensions, whether the largest gate is
that of the map that should lead (`RIGHT`), and the share of the evidence cells that is kept; of overviews, whose
evidence is everything, the share of the sixteen parts of the picture that keep a cell. Then how far kept cells follow
the gates: their overlap (IoU) with those under gates that are the mean over all questions; and how much of what is odd
the map of rarity and that of local contrast keep, alone.

`strategies_table.py` makes the tables of docs/strategies.md from the result; no browser is needed.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Reason
from arr_coc.choose.attending import TokenAllocator
from arr_coc.choose.balancing import steepness
from arr_coc.choose.knowing import declared_channels, saliency
from arr_coc.choose.rarity import rarity
from arr_coc.choose.texture import generate_texture_array
from arr_coc.data.evidence import evidence_cells
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.trust import EXPLORE, verdict_of
from arr_coc.selector import Selector
from arr_coc_lab.world import Page, draw_page, draw_text_page
from arr_coc_lab.world.dense import THINGS, draw_dense_page
from arr_coc_lab.world.odd import WAYS, draw_odd_page
from arr_coc_lab.world.street import draw_street

OUT = Path(__file__).with_name("results") / "strategies.json"
BUDGET = 64  # of 1,024 cells; of another number of cells as large a share
CELLS = 1024
PARTS = 4  # by PARTS parts of a picture, each of which an overview should see
MAPS = ("information", "perspectival", "participatory")
RIGHT = {
    "fact": "participatory",
    "place": "participatory",
    "unusual": "perspectival",
    "busy": "perspectival",
    "overview": "information",
    "dense": "information",
}
"""The map that should lead, by kind of question."""
ODD_SCENES = 12  # scenes of each way of being odd, for the maps alone

WORDINGS: dict[str, tuple[str, ...]] = {
    "fact": (
        "What is the {label}?", "What is the {label} number?", "Which {label} is given?", "{label}?",
        "Tell me the {label}.", "Read the {label} to me.", "Can you find the {label}?", "What does it say for {label}?",
        "I need the {label}.", "What is written after {label}?", "Which value belongs to {label}?",
        "Please give me the {label}.", "the {label}, please", "What is the value of {label}?",
        "Look up the {label}.", "What {label} is it?", "What stands next to {label}?", "How do I find the {label}?",
        "Which one is the {label}?", "What is entered for {label}?", "What's the {label}",
        "Copy the {label} for me.",
    ),
    "place": (
        "Where is the {thing}?", "Show me the {thing}.", "Find the {thing}.", "Where can I see the {thing}?",
        "Locate the {thing}.", "Point at the {thing}.", "Is there a {thing}?", "Do you see a {thing}?",
        "Where on the page is the {thing}?", "What is beside the {thing}?", "In which corner is the {thing}?",
        "How large is the {thing}?", "the {thing}", "Which one is the {thing}?", "Is the {thing} at the top?",
        "What is the position of the {thing}?", "Can you see a {thing} anywhere?", "Look for the {thing}.",
        "Tell me where the {thing} is.", "What stands below the {thing}?", "Is a {thing} in the picture?",
        "Where did they put the {thing}?",
    ),
    "unusual": (
        "What is unusual in this image?", "Are there any anomalies?", "Is there anything odd?", "Anything odd here?",
        "Anything unusual?", "Is something off in this picture?", "What looks out of place?",
        "Which one is the odd one out?", "Which of these is different?", "Which one does not belong?",
        "Spot the outlier.", "Do you see any outliers?", "Find the anomaly.", "Point to whatever stands out.",
        "What sticks out?", "Is one of them not like the others?", "Does anything strike you as strange?",
        "Anything suspicious?", "Is anything wrong with this picture?", "Show me what doesn't fit in.",
        "Which element is the exception?", "Are all of them the same?", "Is any of them abnormal?",
        "Detect irregularities.", "What catches your eye first?", "Is there a weird one among these?",
        "Highlight anything unexpected.", "Which item breaks the pattern?", "Is there something peculiar?",
        "odd one?", "Was ist hier ungewöhnlich?", "Gibt es Anomalien auf dem Bild?", "Qu'y a-t-il d'inhabituel ici ?",
        "¿Hay algo raro en esta imagen?", "C'è qualcosa di strano?", "Há alguma anomalia?",
        "Is er iets ongewoons in deze afbeelding?",
    ),
    "overview": (
        "Describe the image.", "What is this picture about?", "Give me a summary of the page.", "What am I looking at?",
        "Summarise everything you can see.", "What does this show?", "Can you describe what is in the picture?",
        "Tell me what this is.", "Explain the image.", "What is going on in this picture?", "What's this?",
        "Give me the gist.", "Write a caption.", "Can you walk me through this page?", "What is depicted?",
        "Provide an overview of the document.", "What kind of document is this?", "Describe the scene in detail.",
        "What do we have here?", "Please describe this screenshot.", "What is the main content?",
        "A short description, please.",
    ),
    "dense": (
        "What is the {thing}?", "Read the {thing}.", "Read the small text in the {thing}.", "What does the {thing} say?",
        "Show me the {thing}.", "Where is the {thing}?", "Copy the {thing}.", "Transcribe the {thing} exactly.",
        "What is written in the {thing}?", "What is in the {thing}?", "Can you read the {thing}?",
        "Please read the {thing} to me.", "Translate the {thing}.", "What text is in the {thing}?", "Find the {thing}.",
        "the {thing}", "Extract the {thing}.", "Tell me what the {thing} says.", "Which {thing} is shown?",
        "Is there a {thing}?", "Read the tiny print in the {thing}.", "What do you see in the {thing}?",
    ),
}  # fmt: skip
"""Wordings by kind of question. The first thirty of "unusual" were written before the rule `is_unusual` was."""


NAMES = {
    "formula": ("formula", "equation"),
    "code": ("code", "script", "code snippet"),
    "diagram": ("diagram", "drawing", "figure"),
}
"""What the things of dense pages are called, in turn."""


class Case(NamedTuple):
    """A question on a picture, with the boxes of its evidence in px."""

    kind: str
    wording: str
    question: str
    page: Page
    evidence: tuple[tuple[int, int, int, int], ...]


def cases(seeds: int = 2) -> Iterator[Case]:
    """Every wording on the pictures that can answer it, `seeds` of each make; those of a picture follow each other."""
    for seed in range(seeds):
        drawn = draw_page(seed, (1024, 1024), "test", void=False)
        for page in (drawn, draw_text_page(seed, (1024, 1024))):
            yield from _about_facts(page)
        yield from _about_places(drawn)
        for thing in THINGS:
            page = draw_dense_page(seed, (1024, 1024), "test", thing)
            for number, wording in enumerate(WORDINGS["dense"]):
                name = NAMES[thing][number % len(NAMES[thing])]
                yield Case("dense", wording, wording.format(thing=name), page, page.questions[0].evidence)
        for way in WAYS:
            page = draw_odd_page(seed, (1024, 1024), "test", way)
            for wording in WORDINGS["unusual"]:
                yield Case("unusual", wording, wording, page, page.questions[0].evidence)
        street = draw_street(seed, (1024, 768), "test")
        for wording in WORDINGS["unusual"]:
            yield Case("busy", wording, wording, street, ())
        for page in (drawn, street):
            for wording in WORDINGS["overview"]:
                yield Case("overview", wording, wording, page, ())


def _about_facts(page: Page) -> Iterator[Case]:
    """Each wording for one of the page's labelled values."""
    facts = [fact for fact in page.facts if fact.family in ("value", "table")]
    for number, wording in enumerate(WORDINGS["fact"]):
        fact = facts[number % len(facts)]
        yield Case("fact", wording, wording.format(label=fact.label), page, fact.boxes)


def _about_places(page: Page) -> Iterator[Case]:
    """Each wording for one of the things of which the page has one."""
    pairs = [(thing.colour, thing.shape) for thing in page.things]
    single = [thing for thing in page.things if pairs.count((thing.colour, thing.shape)) == 1]
    for number, wording in enumerate(WORDINGS["place"]):
        thing = single[number % len(single)]
        text = wording.format(thing=f"{thing.colour} {thing.shape}")
        yield Case("place", wording, text, page, (thing.box,))


def measure(some: Iterable[Case]) -> tuple[list[dict[str, Any]], list[Allocation]]:
    """A row for each case, and what was kept for it."""
    selector = Selector()
    rows, kept = [], []
    for case in some:
        image = case.page.image
        grid = selector.sizing.grid(image.height, image.width)
        spent = round(BUDGET / CELLS * grid[0] * grid[1])
        decision = selector.decide(image, case.question, spent, grid)
        allocation, coupling = decision.allocations[0], decision.couplings[0]
        gates = dict(zip(MAPS, allocation.weights.tolist(), strict=True))
        rows.append(
            {
                "kind": case.kind,
                "wording": case.wording,
                "picture": case.page.template,
                "verdict": verdict_of(coupling),
                "gates": gates,
                "tensions": allocation.tensions,
                "coverage": float((allocation.reasons == Reason.EXPLORED).float().mean()),
                "leads": max(gates, key=gates.__getitem__),
                "kept": _evidence_kept(case, allocation),
            }
        )
        kept.append(allocation)
    return rows, kept


def _evidence_kept(case: Case, allocation: Allocation) -> float | None:
    """The share of the evidence cells that is kept, of as many as the budget has; of an overview that of the parts."""
    mask = allocation.mask()[0]
    if case.kind == "overview":
        parts = [part for row in mask.chunk(PARTS, 0) for part in row.chunk(PARTS, 1)]
        return fmean(float(part.any()) for part in parts)
    evidence = evidence_cells(case.evidence, allocation.grid[1:], case.page.image.size)
    total = min(allocation.kept, int(evidence.sum()))
    return float(mask[evidence].sum()) / total if total else None


def with_gates(allocation: Allocation, gates: Tensor) -> Tensor:
    """The cells that other gates [3] would keep with the same maps and tensions, bool [H, W]."""
    maps = torch.stack([torch.logit(getattr(allocation, name)[0], eps=1e-6) for name in MAPS])
    mixed = torch.einsum("khw,k->hw", maps, gates) * steepness(torch.tensor(allocation.tensions["focus"]))
    exploit = torch.tensor([allocation.tensions["exploit"]])
    (chosen,) = TokenAllocator(EXPLORE)(mixed[None], allocation.kept, exploit=exploit)
    flat = torch.zeros(allocation.total, dtype=torch.bool)
    flat[chosen.keep] = True
    return flat.view(allocation.grid)[0]


def overlap(kept: list[Allocation]) -> list[float]:
    """Of each choice the IoU with that under the mean gates of all."""
    mean = torch.stack([one.weights for one in kept]).mean(0)
    return [iou(one.mask()[0], with_gates(one, mean)) for one in kept]


def iou(one: Tensor, other: Tensor) -> float:
    """The intersection of two masks over their union."""
    return float((one & other).sum() / (one | other).sum())


def odd_maps(scenes: int = ODD_SCENES) -> dict[str, dict[str, float]]:
    """How much of what is odd each map keeps by itself, by the way in which it is."""
    kept: dict[str, dict[str, float]] = {}
    for way in WAYS:
        found = defaultdict(list)
        for seed in range(scenes):
            page = draw_odd_page(seed, (1024, 1024), "test", way)
            pixels, grid = image_pixels(page.image), (32, 32)
            evidence = evidence_cells(page.questions[0].evidence, grid, page.image.size).flatten()
            maps = {
                "rarity": rarity(pixels, grid),
                "local contrast": saliency(
                    generate_texture_array(pixels, grid, "mvp13"), declared_channels("mvp13", "salient")
                ),
            }
            for name, one in maps.items():
                best = one.flatten().argsort(descending=True, stable=True)[:BUDGET]
                found[name].append(float(evidence[best].sum() / evidence.sum()))
        kept[way] = {name: fmean(shares) for name, shares in found.items()}
    return kept


def summary(rows: list[dict[str, Any]], overlaps: list[float]) -> dict[str, Any]:
    """The figures of each kind of question."""
    kinds: dict[str, Any] = {}
    for kind, right in RIGHT.items():
        own = [row for row in rows if row["kind"] == kind]
        shares = [row["kept"] for row in own if row["kept"] is not None]
        lost = sorted({row["wording"] for row in own if row["leads"] != right})
        kinds[kind] = {
            "questions": len(own),
            "wordings": len({row["wording"] for row in own}),
            "right map": right,
            "right map leads": fmean(row["leads"] == right for row in own),
            "wordings where it does not": lost,
            "gates": {name: fmean(row["gates"][name] for row in own) for name in MAPS},
            "tensions": {
                name: fmean(row["tensions"][name] for row in own) for name in ("compress", "exploit", "focus")
            },
            "coverage": fmean(row["coverage"] for row in own),
            "kept": fmean(shares) if shares else None,
            "overlap with fixed gates": fmean(
                one for one, row in zip(overlaps, rows, strict=True) if row["kind"] == kind
            ),
        }
    return kinds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, kept = measure(cases())
    overlaps = overlap(kept)
    kinds = summary(rows, overlaps)
    result = {
        "command": "python runs/strategies.py",
        "guide": Selector().guide.version,
        "budget": BUDGET,
        "machine": {"processor": platform.machine(), "threads": 1, "torch": torch.__version__},
        "right map leads": fmean(row["leads"] == RIGHT[row["kind"]] for row in rows),
        "overlap with fixed gates": fmean(kind["overlap with fixed gates"] for kind in kinds.values()),
        "kinds": kinds,
        "odd": {"scenes of each": ODD_SCENES, "kept": odd_maps()},
    }
    arguments.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, kind in kinds.items():
        print(name, json.dumps({k: v for k, v in kind.items() if k != "tensions"}, ensure_ascii=False))
    print(json.dumps(result["odd"]), result["right map leads"], result["overlap with fixed gates"])


if __name__ == "__main__":
    main()
