"""What each part of the guide, and of what is made of its word, is worth on pages of the wide world.

    python runs/guide_ablation.py --pages FOLDER [--scenes FOLDER] [--strangers FOLDER] [--documents FOLDER]
                                  [--out runs/results/guide-ablation.json]

The folders are those of `runs/guide.py`. A part is left out where the product runs (`Selector`, the bundled guide); nothing
is taught again without it, so a row says how far the product leans on a part, and for parts that were learned that is
more than a guide taught without it would lose. Texture's scorers, the balancer and coverage were never taught here. Folders may be
measured by several lines: those in the result file that are of the same weights stay.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import torch
from rich.progress import track
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, Relevance
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.guide import Guide, GuidePage, Search, load_guide
from arr_coc.guide.head import Judgement
from arr_coc.guide.print_encoder import MeaningEncoder, PrintFeatures
from arr_coc.guide.question import Reading, Terms
from arr_coc.selector import Selector
from arr_coc_lab.evaluate.guide import Sample, kept_of
from arr_coc_lab.evaluate.guide_pages import page_samples
from arr_coc_lab.world.browser.page import Inquired

sys.path.insert(0, str(Path(__file__).parent))  # also where this is not the script that runs

from guide import joined, load

T = TypeVar("T", bound=torch.nn.Module)
BUDGETS = (64, "auto")
REGION = 4
"""Cells along each side of a region that counts as reached if one of its cells is kept."""


def _with_own_parts(module: T) -> T:
    """The same module, of which a part can be replaced without a change of the first."""
    own = copy(module)
    own._modules = dict(module._modules)
    return own


class Whole(Guide):
    """A guide with the parts of another one, which looks at a picture once for all that share `scales`."""

    def __init__(self, guide: Guide, scales: dict[bytes, list[PrintFeatures]]) -> None:
        super().__init__()
        self.__dict__.update(vars(_with_own_parts(guide)))
        self.scales = scales

    def encode_print(self, pictures: Tensor) -> list[PrintFeatures]:
        key = bytes(str(tuple(pictures.shape)), "ascii") + pictures.contiguous().numpy().tobytes()
        if key not in self.scales:
            self.scales.clear()
            self.scales[key] = super().encode_print(pictures)
        return self.scales[key]


class OneSize(Whole):
    """Reads a picture at its own size alone."""

    def encode_print(self, pictures: Tensor) -> list[PrintFeatures]:
        near, *others = super().encode_print(pictures)
        return [
            near,
            *(
                PrintFeatures(torch.zeros_like(each.print), torch.zeros_like(each.features), None)
                for each in others
            ),
        ]


class WithoutMeanings(Whole):
    """Knows no meanings of what is printed, so that no word agrees with any place."""

    def __init__(self, guide: Guide, scales: dict[bytes, list[PrintFeatures]]) -> None:
        super().__init__(guide, scales)
        self.glossary = _Nothing(self.glossary)


class _Nothing(torch.nn.Module):
    """A glossary by which nothing means anything, though words are read.

    Args:
        glossary: that reads them.
    """

    def __init__(self, glossary: MeaningEncoder) -> None:
        super().__init__()
        self.glossary = glossary

    def forward(self, prints: Sequence[Tensor], light: Tensor, likeness: Any) -> tuple[Tensor, Tensor]:
        meanings, vocabulary = self.glossary(prints, light, likeness)
        return torch.zeros_like(meanings), vocabulary


class WithoutLexicon(Whole):
    """Looks for the words of the question alone, not for what stands for them."""

    def terms_of(self, question: str) -> Terms:
        return Terms(super().terms_of(question).words, (), (), ())


class WithoutRuns(Whole):
    """Decides place by place; no run of print is kept whole."""

    def compose(self, pictures: Tensor, scales: Sequence[PrintFeatures]) -> GuidePage:
        page = super().compose(pictures, scales)
        return page._replace(runs=torch.zeros_like(page.runs))


class WithoutPageBlocks(Whole):
    """Has no blocks for the page before the question comes."""

    def __init__(self, guide: Guide, scales: dict[bytes, list[PrintFeatures]]) -> None:
        super().__init__(guide, scales)
        self.pages = _with_own_parts(self.pages)
        self.pages.blocks = torch.nn.ModuleList()


class WordsAlone(Whole):
    """Has no head: a place counts by the likeness of its print to the words, as the head weighs them."""

    def weigh(self, page: GuidePage, search: Search, reading: Reading | None = None) -> Judgement:
        reading = self.reader(search.questions, search.own) if reading is None else reading
        weights = torch.nn.functional.softplus(self.head.trust(reading.tokens)) * reading.there[..., None]
        maps = self.maps(search).float()  # all but looks, which are the head's
        direct = torch.einsum("qtmhw,qtm->qhw", maps, weights[..., : maps.shape[2]].float())
        return super().weigh(page, search, reading)._replace(logits=direct - 5)


class Without(ARRCOCLayer):
    """A layer of which one map is flat: a flat one ranks no cell before another.

    Args:
        flat: the map, by its place among information, saliency and coupling.
        config: as of the layer.
    """

    def __init__(self, flat: int, config: ARRCOCConfig) -> None:
        super().__init__(config)
        self.flat = flat

    def scores(self, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        maps = super().scores(*inputs, **options)
        info, persp, partic = (torch.zeros_like(m) if i == self.flat else m for i, m in enumerate(maps))
        return info, persp, partic


class Changed(ARRCOCLayer):
    """A layer that chooses by a relevance that `change` makes of the balanced one."""

    def change(self, relevance: Relevance) -> Relevance:
        """Return the relevance by which cells are chosen."""
        raise NotImplementedError

    def allocate(self, relevance: Relevance, *inputs: Any, **options: Any) -> list[Allocation]:
        return super().allocate(self.change(relevance), *inputs, **options)


class FixedMixture(Changed):
    """The mixture that an untrained balancer has for every question, whatever is found; how many cells are enough
    the balance still says.
    """

    def change(self, relevance: Relevance) -> Relevance:
        maps = torch.stack(relevance[:3], 1)
        query = maps.new_zeros(len(maps), self.config.dim)
        logits, weights, tensions = self.balancer.mix(torch.logit(maps, eps=1e-6), query)
        return relevance._replace(
            logits=logits, balanced=logits.sigmoid(), weights=weights, tensions=tensions
        )


class WithoutCoverage(Changed):
    """Spends nothing on coverage."""

    def change(self, relevance: Relevance) -> Relevance:
        return relevance._replace(explore=torch.zeros(len(relevance.balanced)))


class GuideAlone(Changed):
    """The map of what is found as it is: no other map, no balance, no coverage."""

    def change(self, relevance: Relevance) -> Relevance:
        logits = torch.logit(relevance.participatory, eps=1e-6)
        return relevance._replace(
            logits=logits, balanced=logits.sigmoid(), explore=torch.zeros(1), tensions=torch.full((1, 3), 0.5)
        )


PARTS: dict[str, tuple[type[Whole], Callable[[ARRCOCConfig], ARRCOCLayer]]] = {
    "all parts": (Whole, ARRCOCLayer),
    "the guide's map alone": (Whole, GuideAlone),
    "without the information map": (Whole, partial(Without, 0)),
    "without the saliency map": (Whole, partial(Without, 1)),
    "without the coupling with the question": (Whole, partial(Without, 2)),
    "one mixture for every question": (Whole, FixedMixture),
    "without coverage": (Whole, WithoutCoverage),
    "without runs of print": (WithoutRuns, ARRCOCLayer),
    "without the lexicon": (WithoutLexicon, ARRCOCLayer),
    "without meanings": (WithoutMeanings, ARRCOCLayer),
    "without half and quarter sizes": (OneSize, ARRCOCLayer),
    "without the blocks of the page": (WithoutPageBlocks, ARRCOCLayer),
    "without the head: likeness of words": (WordsAlone, ARRCOCLayer),
}
"""The guide and the layer of each row, by name."""
KINDS = ("anomaly", "paraphrase", "section", "unanswerable", "global")
"""Kinds of questions that are also reported by themselves."""


def selectors() -> dict[str, Selector]:
    """A selector for each of PARTS, all of them with the weights of the bundled guide."""
    guide, scales = load_guide(), {}
    made = {}
    for name, (kind, layer) in PARTS.items():
        made[name] = Selector(kind(guide, scales))
        made[name].layer = layer(ARRCOCConfig(dim=1)).eval()
    return made


def reach(allocation: Allocation) -> float:
    """The share of the picture's regions, REGION x REGION cells each, of which a cell is kept."""
    mask = allocation.mask().float().reshape(1, *allocation.grid[-2:])
    return float(torch.nn.functional.max_pool2d(mask, REGION, ceil_mode=True).mean())


def measured(selector: Selector, sample: Sample, question: Inquired) -> dict[str, float]:
    """What one selector keeps for one question about a page."""
    grid = selector.sizing.grid(sample.image.height, sample.image.width)
    evidence = evidence_cells(question.evidence, grid, sample.image.size).flatten()
    figures = {}
    for budget in BUDGETS:
        if budget != "auto" and budget >= evidence.numel():
            continue
        chosen = selector(sample.image, question.text, budget, grid)
        figures[f"cells@{budget}"] = float(chosen.kept)
        figures[f"reach@{budget}"] = reach(chosen)
        if bool(evidence.any()):
            kept = kept_of(chosen.mask().flatten(), evidence)
            figures |= {f"recall@{budget}": kept.recall, f"whole@{budget}": kept.whole}
    return figures


def rows_of(made: dict[str, Selector], samples: Iterator[Sample], title: str) -> dict[str, Any]:
    """Means by group of questions, part and figure."""
    measures: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for sample in track(list(samples), description=title):
        for question in sample.questions:
            groups = [question.kind] if question.kind in KINDS else []
            groups += ["all"] if question.evidence else []
            for name, selector in made.items():
                figures = measured(selector, sample, question)
                for group in groups:
                    measures[group][name].append(figures)
    return {
        group: {"questions": len(by_part["all parts"])} | {n: means(each) for n, each in by_part.items()}
        for group, by_part in sorted(measures.items())
    }


def means(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of every figure over the questions that have it."""
    names = sorted({name for each in figures for name in each})
    return {name: round(fmean(each[name] for each in figures if name in each), 4) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folders = ("pages", "scenes", "strangers", "documents")
    for name in folders:
        parser.add_argument(f"--{name}", type=Path, help="cache of rendered pages, as of runs/guide.py")
    parser.add_argument("--limit", type=int, help="pages of each folder")
    parser.add_argument("--questions", type=int, default=5, help="of each page, of even kinds")
    parser.add_argument("--out", type=Path, help="result file")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    made = selectors()
    result: dict[str, Any] = {
        "command": "python runs/guide_ablation.py " + " ".join(sys.argv[1:]),
        "package": version("arr-coc"),
        "machine": {"processor": platform.machine(), "threads": 1, "torch": torch.__version__},
        "guide": load(None)[1],
    }
    for name in folders:
        if folder := getattr(chosen, name):
            samples = page_samples(folder, "test", chosen.limit, chosen.questions)
            result[name] = rows_of(made, samples, name)
            print(json.dumps({part: result[name]["all"][part] for part in PARTS}, indent=1))
    if chosen.out:
        text = json.dumps(joined(chosen.out, result), indent=1) + "\n"
        chosen.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
