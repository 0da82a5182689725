"""Fits what a match of the guide is worth, and its confidence: `PRINTED`, `LIKELY` and `CALIBRATION` of `coupling`.

    arr-coc world validation-pages --split validation --pages 150
    python runs/guide_matches.py validation-pages --out runs/results/guide-matches.json
    python runs/guide_matches.py pictures --real                    on real pictures, by what an OCR read
    python runs/strangers.py strangers
    python runs/guide_matches.py strangers --split test        measured, on pages of another author

Pages say which words are printed where, so a match is right if its term, or a form of it that differs by at most two
letters at its end, is printed at its place. Fitted: per kind of term the factor and offset under which the right and
wrong matches are most likely; then, of questions with an answer on the page and of those without (other pages' questions
among them), the weights of the logit of presence and of a recognised word. Printed: the precision and recall of what is
shown at `LIKELY`, and how often each kind of question is called "sure". Some two minutes of one core for 60 pages.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, optim

from arr_coc.data.record import Box
from arr_coc.guide.coupling import COLOUR_TERM, LIKELY, PRINTED, Match, matches, probability, view
from arr_coc.guide.guide import Guide, GuidePage, load_guide
from arr_coc.guide.question import normal
from arr_coc.guide.trust import SURE
from arr_coc_lab.evaluate.guide import auc
from arr_coc_lab.evaluate.guide_pages import page_samples, real_samples

PLAUSIBLE = 0.01
"""Likeness below which a match is of no account for a fit."""
NEAR = (16, 32)
"""Px (down, across) that a place may lie outside of the box of the word that it shows."""
OTHERS = 2
"""Questions of another page that are asked of each."""


class Tried(NamedTuple):
    """A match with what the page says of it: its kind, its best cosine, and whether its term is printed there."""

    kind: str
    cosine: float
    right: bool
    match: Match


class Question(NamedTuple):
    """A question: the logit of its presence, whether its answer is on the page, and its matches."""

    present: float
    answered: bool
    tried: tuple[Tried, ...]
    colours: tuple[Match, ...]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", type=Path)
    parser.add_argument("--real", action="store_true", help="real pictures (`arr_coc_lab.pictures.fetch`)")
    parser.add_argument("--guide", help="folder of a guide; not given: the bundled one")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--questions", type=int, default=4, help="of a page")
    parser.add_argument("--limit", type=int, help="pages")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    guide = load_guide(arguments.guide)
    of = real_samples if arguments.real else page_samples
    samples = list(of(arguments.pages, arguments.split, arguments.limit, arguments.questions))
    questions = []
    for number, sample in enumerate(samples):
        page = view(guide, sample.pixels())
        words = [(parts(word.text), word.box) for word in sample.words]
        other = samples[(number + 7) % len(samples)].questions[:OTHERS]
        for question in (*sample.questions, *other):
            if question.kind in ("global", "anomaly"):
                continue
            answered = question in sample.questions and question.kind != "unanswerable"
            questions.append(tried(guide, page, question.text, words, answered))
    result = {"shown": shown(questions), "sure": called_sure(questions)}
    if arguments.split == "validation":
        result["fit"] = {
            "PRINTED": {kind: fit_kind(kind, questions) for kind in PRINTED},
            "CALIBRATION": fit_confidence(questions),
        }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


def parts(text: str) -> list[str]:
    """The pieces of a printed word or term."""
    return [part for part in re.split(r"[^\w€$£%]+", normal(text)) if part]


def tried(
    guide: Guide, page: GuidePage, text: str, words: list[tuple[list[str], Box]], answered: bool
) -> Question:
    """A question with its matches on a page of these words."""
    judged = guide.judge(page, [text])
    every, colours = [], []
    for match in matches(guide, page, text):
        if match.term == COLOUR_TERM.format(match.word):
            colours.append(match)
            continue
        kind = "itself" if match.term == match.word else "listed" if match.strength == 1 else "related"
        factor, offset = PRINTED[kind]
        cosine = (torch.logit(torch.tensor(match.likeness), eps=1e-6).item() - offset) / factor
        y, x = (share * side for share, side in zip(match.place, page.size, strict=True))
        there = [
            part
            for pieces, (x0, y0, x1, y1) in words
            for part in pieces
            if x0 - NEAR[1] <= x <= x1 + NEAR[1] and y0 - NEAR[0] <= y <= y1 + NEAR[0]
        ]
        every.append(Tried(kind, cosine, is_printed(match.term, there), match))
    return Question(float(judged.present), answered, tuple(every), tuple(colours))


def is_printed(term: str, there: list[str]) -> bool:
    """Whether a term, or a form of it, is among the pieces of words that are printed at a place."""
    own, joined = parts(term), "".join(there)
    whole = "".join(own)
    return (len(whole) > 2 and whole in joined) or any(
        all(any(akin(piece, other) for other in there) for piece in pieces)
        for pieces in (own, [whole])
        if pieces
    )


def akin(one: str, other: str) -> bool:
    """Whether two words are the same, or forms of one by their ends."""
    short, long = sorted((one, other), key=len)
    if len(short) >= 3 and long.startswith(short):
        return len(long) - len(short) <= 2
    return one == other or (len(short) >= 6 and len(long) - len(short) <= 2 and one[:4] == other[:4])


def shown(questions: list[Question]) -> dict[str, Any]:
    """The precision of matches that are shown, and the share of right ones that are, by least likeness."""
    table = {}
    right = sum(one.right for question in questions for one in question.tried)
    for least in (0.5, 0.7, LIKELY, 0.9, 0.95):
        best: dict[tuple[int, str], Tried] = {}
        for number, question in enumerate(questions):
            for one in question.tried:
                key = (number, one.match.word)
                if one.match.likeness >= least and (
                    key not in best or one.match.likeness > best[key].match.likeness
                ):
                    best[key] = one
        table[str(least)] = {
            "shown": len(best),
            "precision": round(sum(one.right for one in best.values()) / max(1, len(best)), 4),
            "of all right": round(sum(one.right for one in best.values()) / max(1, right), 4),
        }
    return table


def recognised(question: Question) -> bool:
    """Whether a word of a question was recognised."""
    every = [*(one.match for one in question.tried), *question.colours]
    return any(match.likeness >= LIKELY for match in every)


def called_sure(questions: list[Question]) -> dict[str, Any]:
    """How often the guide is sure of questions with an answer and of those without."""
    sides: dict[bool, list[float]] = defaultdict(list)
    for question in questions:
        sides[question.answered].append(probability(question.present, recognised(question)))
    shares = {
        name: round(sum(value >= SURE for value in sides[side]) / len(sides[side]), 4)
        for name, side in (("answered", True), ("unanswered", False))
    }
    return {"questions": len(questions), **shares, "auc": round(auc(sides[True], sides[False]), 4)}


def fit_kind(kind: str, questions: list[Question]) -> list[float]:
    """Factor and offset on cosines of one kind of term."""
    every = [one for question in questions for one in question.tried if one.kind == kind]
    some = [one for one in every if one.match.likeness > PLAUSIBLE]
    return logistic(
        torch.tensor([[one.cosine] for one in some]), torch.tensor([float(one.right) for one in some])
    )


def fit_confidence(questions: list[Question]) -> list[float]:
    """Factor on the logit of presence, offset, and what a recognised word adds; both sides count alike."""
    rows = torch.tensor([[question.present, float(recognised(question))] for question in questions])
    target = torch.tensor([float(question.answered) for question in questions])
    factor, more, offset = logistic(
        rows, target, torch.where(target > 0, 1 / target.mean(), 1 / (1 - target.mean()))
    )
    return [factor, offset, more]


def logistic(rows: Tensor, target: Tensor, weight: Tensor | None = None) -> list[float]:
    """Factors and, last, the offset of logistic regression."""
    scale = torch.zeros(rows.shape[1] + 1, requires_grad=True)
    optimizer = optim.LBFGS([scale], max_iter=300)
    mean = rows.mean(0)

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits = (rows - mean) @ scale[:-1] + scale[-1]
        loss = F.binary_cross_entropy_with_logits(logits, target, weight)
        loss.backward()
        return loss

    optimizer.step(closure)
    factors = scale.detach()[:-1]
    return [*(round(float(x), 2) for x in factors), round(float(scale.detach()[-1] - factors @ mean), 2)]


if __name__ == "__main__":
    main()
