"""What tells whether a real picture answers a question: the picture, or the question's own wording.

    python runs/presence.py PICTURES --out runs/results/presence.json

PICTURES is a folder that `arr_coc_lab.pictures.fetch` filled. "wording": a logistic regression on the sentence vector of the
question alone, fitted on the training split's labels. "sources": how well the confidence of guide, ocr and guide+ocr tells
questions apart. "sums": recall of the evidence by sums of the two whose parts count by their confidence, beside the plain sum.
All read on the validation split; the print is that of the labels. Some five minutes of one core.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.data.evidence import evidence_cells
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.guide.guide import load_guide
from arr_coc.relevance.ocr import OcrSource
from arr_coc.relevance.source import PRIOR, Calibration, RelevanceSource, mixed
from arr_coc.selector import Sizing
from arr_coc_lab.evaluate.guide import auc
from arr_coc_lab.evaluate.sources import OF, RealSample, labelled, questions_elsewhere, rounded
from arr_coc_lab.pictures.labels import pictures

BUDGETS = (64, 128, 273)
PENALTIES = (0.001, 0.01, 0.1)
"""Weights of the squared coefficients in the loss of the regression."""


class Read(NamedTuple):
    """A question, and what guide and ocr find about it on a picture."""

    guide: Coupling
    ocr: Coupling
    evidence: Tensor | None = None  # bool [N], cells that the answer needs; None: this picture has no answer
    elsewhere: bool = False  # whether the question was written about another picture


def fitted(vectors: Tensor, labels: Tensor, penalty: float) -> Callable[[Tensor], Tensor]:
    """A logistic regression on vectors [n, d] with bool labels [n], both classes weighed alike, as scores."""
    weights = torch.zeros(vectors.shape[1] + 1, requires_grad=True)
    target = labels.float()
    share = torch.where(labels, 0.5 / target.sum(), 0.5 / (1 - target).sum())
    optimizer = torch.optim.LBFGS([weights], max_iter=300, line_search_fn="strong_wolfe")

    def score(rows: Tensor) -> Tensor:
        return rows @ weights[:-1] + weights[-1]

    def closure() -> float:
        optimizer.zero_grad()
        losses = F.binary_cross_entropy_with_logits(score(vectors), target, reduction="none")
        loss = (losses * share).sum() + penalty * weights[:-1].square().sum()
        loss.backward()
        return loss.item()

    with torch.enable_grad():
        optimizer.step(closure)
    return lambda rows: score(rows).detach()


def wording(sentences: Callable[[list[str]], Tensor]) -> dict[str, Any]:
    """How well the sentence vector of a question alone tells whether its picture answers it."""
    texts, labels = {}, {}
    for split in ("train", "validation"):
        every = [question for one in pictures(split) for question in one.questions]
        texts[split] = [question.text for question in every]
        labels[split] = torch.tensor([bool(question.boxes) for question in every])
    vectors = {split: sentences(own) for split, own in texts.items()}
    made: dict[str, Any] = {
        split: {"answerable": int(own.sum()), "not": int((~own).sum())} for split, own in labels.items()
    }
    for penalty in PENALTIES:
        score = fitted(vectors["train"], labels["train"], penalty)
        scores, yes = score(vectors["validation"]), labels["validation"]
        made[f"auc, penalty {penalty}"] = auc(scores[yes].tolist(), scores[~yes].tolist())
    return made


def read(sources: tuple[RelevanceSource, OcrSource], samples: Sequence[RealSample]) -> list[Read]:
    """Ask guide and ocr all questions of all pictures, and those of another picture of the same kind."""
    guide, ocr = sources
    elsewhere, made = questions_elsewhere(samples), []
    for sample in samples:
        image = sample.image()
        pixels, grid = image_pixels(image)[0], Sizing().grid(image.height, image.width)
        page, lines = guide.view(pixels), ocr.of_lines(sample.lines or (), (image.height, image.width))

        def both(
            question: str, page: Any = page, lines: Any = lines, grid: Any = grid
        ) -> tuple[Coupling, ...]:
            return guide.couple(page, question, grid), ocr.couple(lines, question, grid)

        for question, _, boxes in sample.questions:
            evidence = evidence_cells(boxes, grid, image.size).flatten() if boxes else None
            made.append(Read(*both(question), evidence))
        made += [Read(*both(question), elsewhere=True) for question in elsewhere[sample.name]]
    return made


def told(rows: Sequence[Read], confidence: Callable[[Read], float]) -> dict[str, float]:
    """AUC of a confidence: of answerable questions against those labelled as not, and those of another
    picture.
    """
    answered, vain, foreign = (
        [confidence(row) for row in rows if keep(row)]
        for keep in (
            lambda row: row.evidence is not None,
            lambda row: row.evidence is None and not row.elsewhere,
            lambda row: row.elsewhere,
        )
    )
    others = {"auc": vain, "auc elsewhere": foreign}
    return {name: auc(answered, rest) for name, rest in others.items() if rest}


def kept(rows: Sequence[Read], logits: Callable[[Read], Tensor]) -> dict[str, float]:
    """Recall of the evidence in the best cells of a map, mean over the questions that have any, by budget."""
    shares: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    for row in rows:
        if row.evidence is None:
            continue
        order = logits(row).flatten().argsort(descending=True, stable=True)
        held = row.evidence[order].cumsum(0)
        for budget, own in shares.items():
            own.append(float(held[max(1, round(budget / OF * len(order))) - 1] / held[-1]))
    return {str(budget): fmean(own) for budget, own in shares.items()}


def faded(odds: Tensor, confidence: float, power: float) -> Tensor:
    """Log odds over the prior that fade towards it, as probabilities, by a power of a confidence."""
    weight = confidence**power
    prior = torch.sigmoid(torch.tensor(PRIOR))
    return torch.logit(weight * odds.sigmoid() + (1 - weight) * prior, eps=1e-7) - PRIOR


def sums(rows: Sequence[Read], guide: Calibration, ocr: Calibration) -> dict[str, Any]:
    """Recall by sums of guide and ocr that weigh each by its confidence, beside the plain sum."""

    def parts(row: Read) -> tuple[tuple[Tensor, float], tuple[Tensor, float]]:
        """Calibrated log odds and confidence of each; an OCR with nothing to go by has the prior alone."""
        other = ocr.scale * row.ocr.logits + ocr.bias
        other = other if row.ocr.confidence > 0 else torch.full_like(other, PRIOR)
        return (guide.scale * row.guide.logits + guide.bias, row.guide.confidence), (
            other,
            row.ocr.confidence,
        )

    def over(row: Read, by_guide: Callable[..., Tensor], by_ocr: Callable[..., Tensor]) -> Tensor:
        first, second = parts(row)
        return by_guide(*first) + by_ocr(*second)

    def plain(odds: Tensor, confidence: float) -> Tensor:
        return odds - PRIOR

    def times(odds: Tensor, confidence: float) -> Tensor:
        return confidence * (odds - PRIOR)

    ways: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {"plain": (plain, plain)}
    for power in (0.5, 1.0, 2.0):

        def fade(odds: Tensor, confidence: float, power: float = power) -> Tensor:
            return faded(odds, confidence, power)

        ways |= {f"ocr fades, power {power}": (plain, fade), f"both fade, power {power}": (fade, fade)}
    ways |= {"ocr times its confidence": (plain, times), "each times its confidence": (times, times)}
    return {name: kept(rows, lambda row, pair=pair: over(row, *pair)) for name, pair in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--limit", type=int, help="pictures of the validation split")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    guide, ocr = GuideSource(load_guide()), OcrSource(read=lambda pixels: [])
    assert guide.calibration is not None
    assert ocr.calibration is not None
    samples = list(labelled("validation", arguments.pictures))[: arguments.limit]
    rows = read((guide, ocr), samples)

    def together(row: Read) -> float:
        return mixed([(guide, row.guide), (ocr, row.ocr)]).confidence

    result = {
        "guide": guide.version,
        "ocr": ocr.version,
        "pictures": len(samples),
        "questions": {
            "answerable": sum(row.evidence is not None for row in rows),
            "not": sum(row.evidence is None and not row.elsewhere for row in rows),
            "of another picture": sum(row.elsewhere for row in rows),
        },
        "wording": wording(ocr.sentences),
        "sources": {
            "guide": told(rows, lambda row: row.guide.confidence),
            "ocr": told(rows, lambda row: row.ocr.confidence),
            "guide+ocr": told(rows, together),
        },
        "sums": {
            "guide alone": kept(rows, lambda row: row.guide.logits),
            "ocr alone": kept(rows, lambda row: row.ocr.logits),
            **sums(rows, guide.calibration, ocr.calibration),
        },
    }
    text = json.dumps(rounded(result), indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
