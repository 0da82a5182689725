"""Fitting of the bundled stem's familiarity: drawn pages on one side, foreign pictures on the other.

    loss = logistic, over mean and spread of the stem's tokens
    threshold: one in fifty validation pages is called foreign

Run as `python -m making.familiarity [FOLDER]`: it writes the fit into the folder's stem.safetensors and what
it measured to runs/results/familiarity.json. About ten minutes on one core, most of it for drawing. Then

    arr-coc world PAGES --split validation --pages 100 --documents 60
    python -m making.familiarity --unseen PAGES

measures the fit on kinds of pictures that it never saw, as they are and photographed, and adds them to the
results: about a minute once the pages are rendered. Nothing is fitted to those, and no threshold.

A one-class fit (to the own world alone: distances in the space of the same statistics) was tried first; at
the same share of false alarms it recognised a fifth of the pictures that this does.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from rich.progress import track
from torch import Tensor

from arr_coc.choose.stem import Familiarity, save_stem, statistics
from arr_coc.files.atomic import write_atomic
from arr_coc.selector import StemScorer
from arr_coc.store.checkpoint import BUNDLED_ALLOCATOR
from arr_coc_lab.teaching.filling import DOCUMENTS
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.cache import CachedPages
from arr_coc_lab.world.photograph import photograph
from making.foreign import draw_foreign

FIRST_PAGE, FIRST_FOREIGN = 95_000_000, 1_000
"""Seeds below are for measuring: of pages those that evaluation draws, of foreign pictures the first ones."""
SIDES = (256, 384, 512, 768, 1024, 1024, 1024)
DECAY = 1e-2
FALSE_ALARMS = 0.02
"""Share of validation pages that are called foreign."""
UNSEEN = "validation"
"""The split of the rendered pages that the fit is measured on."""


def page(seed: int, split: str) -> Image.Image:
    """A drawn page of any size and shape; a quarter went through JPEG, as what users upload did."""
    rng = random.Random(seed)
    side = rng.choice((*SIDES, 2048) if seed % 8 == 0 else SIDES) // 32
    stretch = math.exp(rng.uniform(-0.25, 0.25))
    size = (max(4, round(side * stretch)) * 32, max(4, round(side / stretch)) * 32)
    image = draw_page(seed, size, split, void=False).image  # a page without text or shapes is no loss
    if rng.random() < 0.25:
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=rng.randint(60, 95))
        image = Image.open(stream).convert("RGB")
    return image


@torch.no_grad()
def describe(scorer: StemScorer, pictures: Iterable[Image.Image]) -> Tensor:
    """The statistics of each picture's tokens, [pictures, 2 D]."""
    rows = []
    for picture in pictures:
        pixels, grid = scorer.pixels(picture)
        rows.append(statistics(scorer.stem(pixels, grid)[0]))
    return torch.stack(rows)


def fit(own: Tensor, validation: Tensor, foreign: Tensor) -> Familiarity:
    """A linear unit between two kinds of pictures.

    Args:
        own: [P, 2 D], statistics of the stem's world.
        validation: [V, 2 D], of it, too: for the threshold.
        foreign: [Q, 2 D], of what is not of it.
    """
    unit = Familiarity(own.shape[1] // 2)
    unit.mean, unit.scale = own.mean(0), own.std(0) + 1e-4
    rows = unit.normalised(torch.cat([own, foreign]))
    labels = torch.cat([torch.zeros(len(own)), torch.ones(len(foreign))])
    weight, bias = torch.zeros(rows.shape[1], requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=300)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = (
            F.binary_cross_entropy_with_logits(rows @ weight + bias, labels) + DECAY * weight.square().sum()
        )
        value.backward()
        return value

    optimizer.step(loss)
    unit.weight = weight.detach()
    # close to what is familiar, since there is more in the world than was drawn here
    unit.bias = -unit.score(validation).quantile(1 - FALSE_ALARMS)
    return unit.requires_grad_(False)


def share_foreign(unit: Familiarity, rows: Tensor) -> float:
    """The share of pictures, of which these are the statistics, that is called foreign."""
    return round(float((unit.score(rows) > 0).float().mean()), 4)


def unseen(folder: Path) -> dict[str, Iterable[Image.Image]]:
    """Rendered pages and documents of a cache of `arr-coc world`, as they are and photographed, by name.

    Raises:
        ValueError: the cache has no pages, or none of one of the two kinds.
    """
    cached = CachedPages(folder, UNSEEN)
    numbers = [int(place.stem) for place in cached.places]
    kinds = {
        "browser pages": [i for i, number in enumerate(numbers) if number < DOCUMENTS],
        "documentation": [i for i, number in enumerate(numbers) if number >= DOCUMENTS],
    }
    for name, places in kinds.items():
        if not places:
            raise ValueError(
                f"{str(folder / UNSEEN)!r} has no {name}: use arr-coc world with --pages and --documents"
            )
    pictures: dict[str, Iterable[Image.Image]] = {}
    for name, places in kinds.items():
        pictures[name] = (cached[i].image for i in places)
        pictures[f"{name}, photographed"] = (
            photograph(cached[i].image, [], random.Random(numbers[i]))[0] for i in places
        )
    return pictures


def measure_unseen(folder: Path, pages: Path, results: Path) -> None:
    """Add to the results how much of what the fit of the folder's stem never saw it calls foreign.

    Raises:
        ValueError: nothing was fitted yet, or the pages are missing.
    """
    torch.set_num_threads(1)
    scorer = StemScorer.load(folder)
    unit = scorer.stem.familiarity
    if unit is None or not results.is_file():
        raise ValueError(f"{str(folder)!r} has no fit, or {str(results)!r} is missing: fit without --unseen")
    report = json.loads(results.read_text(encoding="utf-8"))
    for name, pictures in unseen(pages).items():
        rows = describe(scorer, track(pictures, name))
        report[name] = {"pictures": len(rows), "called foreign": share_foreign(unit, rows)}
    write_atomic((json.dumps(report, indent=2) + "\n").encode(), results)
    print(json.dumps(report, indent=2))


def main(folder: Path, pages: int, others: int, results: Path) -> None:
    """Fit, write the fit into the folder's stem, and write what was measured."""
    torch.set_num_threads(1)
    scorer = StemScorer.load(folder)
    held_out, split = max(1, pages // 5), {"train": pages, "validation": pages // 3, "test": pages // 5}
    rows = {
        name: describe(scorer, (page(FIRST_PAGE + i, name) for i in track(range(count), name)))
        for name, count in split.items()
    }
    rows |= {
        name: describe(scorer, (draw_foreign(i) for i in track(numbers, name)))
        for name, numbers in {
            "foreign": range(FIRST_FOREIGN, FIRST_FOREIGN + others),
            "other foreign": range(held_out),
        }.items()
    }
    unit = fit(rows["train"], rows["validation"], rows["foreign"])
    scorer.stem.familiarity = unit
    save_stem(scorer.stem, folder)
    report = {
        name: {"pictures": len(values), "called foreign": share_foreign(unit, values)}
        for name, values in rows.items()
    }
    write_atomic((json.dumps(report, indent=2) + "\n").encode(), results)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=BUNDLED_ALLOCATOR)
    parser.add_argument("--pages", type=int, default=700)
    parser.add_argument("--others", type=int, default=700)
    parser.add_argument("--results", type=Path, default=Path("runs/results/familiarity.json"))
    parser.add_argument("--unseen", type=Path, help="fit nothing; measure on this cache of `arr-coc world`")
    options = parser.parse_args()
    if options.unseen:
        measure_unseen(options.folder, options.unseen, options.results)
    else:
        main(options.folder, options.pages, options.others, options.results)
