"""Trains the balance (`arr_coc.relevance.balance`) on real pictures, drawn pages and odd scenes.

    python -m arr_coc_lab.pictures.fetch pictures
    python -m arr_coc_lab.teaching.balance examples --pictures pictures --out src/arr_coc/bundled/balance

The first folder keeps what guide and OCR say of each picture, made once (4 s of one core a picture, on its
own grid and on one of 1,024 cells); learning then takes some ten minutes. Real pictures are those of the
validation and test splits, on which neither guide nor OCR head learned: on the training split their
maps are better than they are elsewhere.

The loss pays for *all* evidence of a question: how far each evidence cell, and the worst of them, lies below
the last cell that 64, 128 and 273 of 1,024 would keep; and for cross-entropy, so that logits stay log odds.
Each tension has a loss of its own, on maps without gradient: compress meets the count that holds all evidence
(pinball loss), exploit whether an eighth of the cells could hold it and does, focus the cross-entropy. An
overview has no evidence: of it, and of what is unusual on a busy street, the half of the cells with most
information is.

Sources are left out at random (guide alone, OCR alone, both), called by no name (a source that it never met),
scaled and shifted, and questions lose their vector.
"""

from __future__ import annotations

import argparse
import copy
import csv
import hashlib
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from arr_coc.choose.boxes import Box
from arr_coc.choose.budget import needed_cells
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.rarity import rarity
from arr_coc.choose.texture import generate_texture_array
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.guide.guide import load_guide, picture_inputs
from arr_coc.guide.trust import wants_rarity
from arr_coc.relevance.balance import (
    KINDS,
    OTHER,
    BalanceInputs,
    BalanceNet,
    Weighed,
    auto_map,
    inputs_of,
    join_inputs,
    save_balance,
)
from arr_coc.relevance.ocr import OcrSource
from arr_coc.relevance.source import PRIOR, PictureView, RelevanceSource, SumSource, SumView
from arr_coc.selector import Sizing
from arr_coc_lab.evaluate.sources import RealSample, labelled
from arr_coc_lab.pictures.labels import Split
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.dense import THINGS, draw_dense_page
from arr_coc_lab.world.odd import WAYS, draw_odd_page
from arr_coc_lab.world.street import draw_street

MODES = ("guide", "ocr", "guide+ocr")
# 313 pictures of the split "balance" more brought nothing (docs/strategies.md).
SPLITS: tuple[Split, ...] = ("validation", "test")
GRIDS = ("own", "1024")
OVERVIEW = ("overview", "busy")  # kinds of questions whose evidence is what holds most
BUDGETS = (64, 128, 273)  # of 1,024 cells, in the loss
DRAWN = ("odd", "dense", "page", "street")  # kinds of pictures that the lab draws
EPOCHS, RATE, DECAY, WARM, AVERAGE = 5, 2e-3, 0.05, 100, 0.997
POLICY_RATE = 6  # times as fast learn the gates and tensions, of which most questions want the same
ALONE, BOTH = 0.42, 0.43  # shares of real pictures with the guide alone, and with the OCR beside it
NAMELESS, VECTORLESS = 0.12, 0.1  # shares of sources without a name, and of questions without a vector
# By how much the learned correction counts in the end: at 1 a net that learned on the test split kept less of
# the validation split at 128 and 273 cells, at 0.5 fewer whole facts.
TRUST = 0.75
SCALED, SHIFTED = 0.12, 0.25  # spread of the log of the factor, and of what is added to log odds
SHARP = 0.5  # logits over which the worst evidence cell is blurred
CROSS, EACH, WORST, COUNT, SHARE = 0.2, 3.0, 2.0, 0.15, 0.1  # weights of the parts of the loss
QUANTILE = 0.85  # of questions whose evidence "auto" should hold
FOUND = 0.1  # how much of exploit follows whether the evidence is ranked well, the rest whether it fits
HELD = 0.98  # share of the evidence that counts as all of it


class Taught(NamedTuple):
    """The questions about one picture on one grid, by what judges them, and their evidence."""

    picture: str
    kind: str
    grid: str  # "own" or "1024"
    asks: tuple[str, ...]  # the kind of each question
    inputs: dict[str, BalanceInputs]  # by MODES: a batch of the questions
    evidence: Tensor  # bool [B, H, W]

    @property
    def target(self) -> Tensor:
        """The cells that should be kept, bool [B, H, W]."""
        information = next(iter(self.inputs.values())).information
        most = information > information.flatten(1).median(1).values[:, None, None]
        whole = torch.tensor([ask in OVERVIEW for ask in self.asks])[:, None, None]
        return torch.where(whole, most, self.evidence)


def touched(boxes: Sequence[Box], grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return all cells of a grid (H, W) that boxes touch, bool [H, W]; `size` is (width, height) in px.

    Stricter than `evidence_cells`, which leaves out a cell of which a box covers a sliver.
    """
    (rows, columns), (width, height) = grid, size
    mask = torch.zeros(grid, dtype=torch.bool)
    for x0, y0, x1, y1 in boxes:
        top, left = max(0, int(y0 / height * rows)), max(0, int(x0 / width * columns))
        bottom = min(rows - 1, int((y1 - 1) / height * rows))
        right = min(columns - 1, int((x1 - 1) / width * columns))
        mask[top : bottom + 1, left : right + 1] = True
    return mask


def grids_of(size: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return the grids (H, W) of a picture of (width, height) px: its own, and one of about 1,024 cells."""
    width, height = size
    scale = math.sqrt(1024 / (width * height))
    thousand = max(1, round(height * scale)), max(1, round(width * scale))
    return {"own": Sizing().grid(height, width), "1024": thousand}


class Maker:
    """Makes what the balance reads of pictures, by guide and OCR."""

    def __init__(self, ocr: OcrSource | None = None) -> None:
        self.guide = load_guide()
        self.ocr = OcrSource(read=lambda pixels: []) if ocr is None else ocr
        self.layer = ARRCOCLayer(ARRCOCConfig(dim=8)).eval()

    @torch.no_grad()
    def taught(
        self, sample: RealSample, read: bool = False, grids: Sequence[str] = GRIDS
    ) -> Iterator[Taught]:
        """Yield a picture's questions that have evidence, on each of its grids that is named.

        `read`: the OCR reads a picture of which no print is known; else it is left out.
        """
        some = [one for one in sample.questions if one[2] or one[1] in OVERVIEW]
        if not some:
            return
        image = sample.image()
        pixels = image_pixels(image)[0]
        guide = GuideSource(self.guide)
        page = guide.view(pixels)
        views: dict[str, PictureView] = {"guide": page}
        size = (pixels.shape[-2], pixels.shape[-1])
        sources: dict[str, RelevanceSource] = {"guide": guide}
        if sample.lines is not None or read:
            own = self.ocr.view(pixels) if sample.lines is None else self.ocr.of_lines(sample.lines, size)
            sources |= {
                "ocr": SumSource([self.ocr], self.guide),
                "guide+ocr": SumSource([guide, self.ocr], self.guide),
            }
            views |= {"ocr": SumView((own,)), "guide+ocr": SumView((page, own))}
        made = picture_inputs("mvp13", pixels)
        for name in grids:
            grid = grids_of(image.size)[name]
            texture = generate_texture_array(pixels[None], grid, "mvp13", **made)
            rare = rarity(pixels[None], grid)
            inputs = {}
            for mode, source in sources.items():
                couplings = [source.couple(views[mode], text, grid) for text, *_ in some]
                own = [self._inputs(one, texture, rare) for one in couplings]
                inputs[mode] = join_inputs(of_same_sources(own))
            boxes = [touched(boxes, grid, image.size) for *_, boxes in some]
            asks = tuple(ask for _, ask, _ in some)
            yield Taught(sample.name, sample.kind, name, asks, inputs, torch.stack(boxes))

    def _inputs(self, coupling: Coupling, texture: Tensor, rare: Tensor) -> BalanceInputs:
        wanted = wants_rarity(coupling)
        saliency = self.layer.perspectival.logits(texture, rare if wanted else None)
        return inputs_of(coupling, self.layer.information.logits(texture), saliency, wanted)


def of_same_sources(inputs: Sequence[BalanceInputs]) -> list[BalanceInputs]:
    """Return inputs that all have the sources of the richest; those that say nothing have confidence 0."""
    most = max(inputs, key=lambda one: len(one.kinds))
    made = []
    for one in inputs:
        logits, sure = torch.full_like(most.logits, PRIOR), torch.zeros_like(most.confidences)
        for kind, own, confidence in zip(one.kinds, one.logits, one.confidences, strict=True):
            logits[most.kinds.index(kind)], sure[most.kinds.index(kind)] = own, confidence
        made.append(one._replace(kinds=most.kinds, logits=logits, confidences=sure))
    return made


def drawn_samples(count: int, wordings: Path, first: int = 0) -> Iterator[RealSample]:
    """Yield drawn pictures with their questions, and with wordings that name no place.

    `count` of each make, from seed `first`; `wordings`: a table of kind and question, such as
    `runs/wordings_development.tsv`.
    """
    words: dict[str, list[str]] = {}
    with wordings.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            words.setdefault(row["kind"], []).append(row["question"])
    rng = random.Random(0)
    for seed in range(first, first + count):
        pages = [("odd", draw_odd_page(seed, (1024, 1024), "train", way)) for way in WAYS]
        pages += [("dense", draw_dense_page(seed, (1024, 1024), "train", thing)) for thing in THINGS]
        pages += [("page", draw_page(seed, (1024, 1024), "train", void=False))]
        pages += [("street", draw_street(seed, (1024, 768), "train"))]
        for number, (kind, page) in enumerate(pages):
            own = [(q.text, q.family, tuple(q.evidence)) for q in page.questions if q.evidence]
            if kind in ("page", "street"):
                own += [(text, "overview", ()) for text in rng.sample(words["overview"], 4)]
            if kind == "street":
                own += [(text, "busy", ()) for text in rng.sample(words["odd"], 6)]
            if kind == "dense" and page.questions and THINGS[number - len(WAYS)] == "formula":
                evidence = tuple(page.questions[0].evidence)
                own += [(text, "dense", evidence) for text in rng.sample(words["formula"], 5)]
            image = page.image
            yield RealSample(f"{kind}-{seed}-{number}", kind, lambda image=image: image, tuple(own))


def kept_examples(
    folder: Path,
    samples: Iterable[RealSample],
    maker: Maker,
    read: bool = False,
    grids: Sequence[str] = GRIDS,
) -> list[Taught]:
    """Return what the balance learns from of samples; a folder keeps it, a file for each picture and grid."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for sample in samples:
        stem = hashlib.sha1(f"{sample.name} {[q[0] for q in sample.questions]}".encode()).hexdigest()[:20]
        paths = sorted(folder.glob(f"{stem}-*.safetensors"))
        if not paths:
            for one in maker.taught(sample, read, grids):
                _write(one, folder / f"{stem}-{one.grid}.safetensors")
            paths = sorted(folder.glob(f"{stem}-*.safetensors"))
        made += map(_read, paths)
    return made


def _write(one: Taught, path: Path) -> None:
    tensors = {"evidence": one.evidence}
    for mode, inputs in one.inputs.items():
        for name, value in inputs._asdict().items():
            if name != "kinds":
                tensors[f"{mode}.{name}"] = value.contiguous().clone()
    facts = {"picture": one.picture, "kind": one.kind, "grid": one.grid, "asks": "\n".join(one.asks)}
    kinds = {f"{mode}.kinds": ",".join(map(str, inputs.kinds)) for mode, inputs in one.inputs.items()}
    save_file(tensors, path, facts | kinds)


def _read(path: Path) -> Taught:
    with safe_open(path, framework="pt") as file:
        facts = file.metadata()
        inputs = {}
        for mode in MODES:
            if f"{mode}.kinds" in facts:
                parts = {name: file.get_tensor(f"{mode}.{name}") for name in BalanceInputs._fields[1:]}
                inputs[mode] = BalanceInputs(tuple(map(int, facts[f"{mode}.kinds"].split(","))), **parts)
        evidence = file.get_tensor("evidence")
    return Taught(
        facts["picture"], facts["kind"], facts["grid"], tuple(facts["asks"].split("\n")), inputs, evidence
    )


def disturbed(inputs: BalanceInputs, rng: random.Random) -> BalanceInputs:
    """Return inputs as another source, another wording or a worse calibration would make them."""
    factors = torch.tensor([math.exp(rng.gauss(0, SCALED)) for _ in inputs.kinds])[:, None, None, None]
    shifts = torch.tensor([rng.gauss(0, SHIFTED) for _ in inputs.kinds])[:, None, None, None]
    kinds = tuple(OTHER if rng.random() < NAMELESS else kind for kind in inputs.kinds)
    facts = inputs.facts.clone()
    for column, name in ((-2, "guide"), (-1, "ocr")):
        facts[:, column] = float(KINDS[name] in kinds)
    kept = torch.tensor([rng.random() > VECTORLESS for _ in inputs.question]).float()[:, None]
    logits = inputs.logits * factors + shifts
    return inputs._replace(kinds=kinds, logits=logits, facts=facts, question=inputs.question * kept)


def balance_loss(weighed: Weighed, target: Tensor) -> Tensor:
    """Return the loss of a batch of questions whose cells `target`, bool [B, H, W], should be kept."""
    logits, wanted = weighed.logits.flatten(1), target.flatten(1).float()
    cells, counts = logits.shape[1], wanted.sum(1).clamp_min(1)
    cross = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(1) / counts
    rest = logits.masked_fill(wanted > 0, -1e4).sort(1, descending=True).values
    worst = -SHARP * torch.logsumexp(-logits.masked_fill(wanted == 0, 1e4) / SHARP, 1)
    missed = torch.zeros_like(counts)
    for budget in BUDGETS:
        kept = round(budget / 1024 * cells)
        last = rest.gather(1, (kept - counts.long()).clamp(0, cells - 1)[:, None])  # the last that is kept
        missed = missed + EACH * ((last - logits).sigmoid() * wanted).sum(1) / counts
        missed = missed + WORST * (last[:, 0] - worst).sigmoid() * (counts <= kept)
    few = counts < 0.3 * cells  # of more cells no budget holds all
    main = torch.where(few, CROSS * cross.clamp(max=15) + missed, cross)
    return (main + tension_loss(weighed, wanted)).mean()


def tension_loss(weighed: Weighed, wanted: Tensor) -> Tensor:
    """Return the losses [B] of compress and exploit, from maps without gradient; `wanted` is 0 or 1, [B, N].

    Focus learns by the cross-entropy of the balanced map, whose steepness it is.
    """
    logits, cells = weighed.logits.detach(), wanted.shape[1]
    order = logits.flatten(1).argsort(1, descending=True)
    held = wanted.gather(1, order).cumsum(1) / wanted.sum(1, keepdim=True).clamp_min(1)
    needed = ((held < HELD).sum(1) + 1).float()
    with torch.no_grad():
        base = needed_cells(auto_map(weighed), weighed.gates).clamp(1, cells).log2()
    spent = base + 4 * (1 - 2 * weighed.tensions[:, 0])  # log2 of `budget.spent_tokens`
    short = needed.clamp(4, cells).log2() - spent
    count = torch.maximum(QUANTILE * short, (QUANTILE - 1) * short)
    eighth = max(1, round(cells / 8))
    share = held[:, eighth - 1]
    fits = (eighth / wanted.sum(1).clamp_min(1)).clamp(max=1)
    exploit = weighed.tensions[:, 1].clamp(1e-4, 1 - 1e-4)
    return COUNT * count + SHARE * F.binary_cross_entropy(
        exploit, fits * (FOUND * share + 1 - FOUND), reduction="none"
    )


def fit(
    taught: Sequence[Taught],
    epochs: int = EPOCHS,
    seed: int = 0,
    changed: Callable[[BalanceInputs], BalanceInputs] = lambda inputs: inputs,
    started: Callable[[BalanceNet], None] = lambda net: None,
) -> BalanceNet:
    """Train a balance; return the running mean of its weights.

    `changed` and `started` take something away from what it reads and from the net itself
    (`runs/balance.py`).
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
    net = BalanceNet()
    started(net)
    mean = copy.deepcopy(net).eval()
    real = [one for one in taught if one.kind not in DRAWN]
    drawn: dict[str, list[Taught]] = defaultdict(list)
    for one in taught:
        if one.kind in DRAWN:
            drawn[one.kind].append(one)
    leading = [*net.policy.parameters(), *net.question.parameters()]
    groups = [
        {"params": [p for p in net.parameters() if not any(p is one for one in leading)], "factor": 1.0},
        {"params": leading, "factor": POLICY_RATE},
    ]
    optimizer = torch.optim.AdamW(groups, RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    steps = epochs * len(real)
    for step in tqdm(range(steps), desc="learning"):
        rate = RATE * min(1, (step + 1) / WARM) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        if step % len(real) == 0:
            order = rng.sample(range(len(real)), len(real))
        some = [real[order[step % len(real)]]]
        some += [rng.choice(drawn[rng.choice(sorted(drawn))])] if drawn else []
        optimizer.zero_grad()
        for one in some:
            at = rng.random()
            mode = "guide" if at < ALONE else "guide+ocr" if at < ALONE + BOTH else "ocr"
            inputs = one.inputs.get(mode, one.inputs["guide"])
            balance_loss(net(changed(disturbed(inputs, rng))), one.target).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(mean.parameters(), net.parameters(), strict=True):
                kept.lerp_(new, 1 - min(AVERAGE, (step + 1) / (step + 20)))
    with torch.no_grad():
        for part in mean.last.parameters():
            part *= TRUST
    return mean.requires_grad_(False)


def main() -> None:
    """Make the examples, train and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("examples", type=Path, help="folder that keeps what guide and OCR say")
    parser.add_argument("--pictures", type=Path, required=True, help="folder that pictures.fetch filled")
    parser.add_argument("--wordings", type=Path, default=Path("runs/wordings_development.tsv"))
    parser.add_argument("--drawn", type=int, default=8, help="drawn pictures of each make")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    taught = []
    maker = Maker()
    for split in SPLITS:
        samples = list(labelled(split, arguments.pictures))
        taught += kept_examples(arguments.examples, tqdm(samples, desc=split), maker)
    drawn = drawn_samples(arguments.drawn, arguments.wordings)
    taught += kept_examples(arguments.examples, tqdm(drawn, desc="drawn"), maker)
    net = fit(taught, arguments.epochs)
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_balance(net, arguments.out, [{"images": {"real pictures": len({one.picture for one in taught})}}])


if __name__ == "__main__":
    main()
