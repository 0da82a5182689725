"""Trains the head of relevance "ocr" (`arr_coc.relevance.lines.LineHead`) on the labelled real pictures.

    arr-coc world pages --pages 1200
    python -m arr_coc_lab.teaching.lines src/arr_coc/bundled/ocr --pages pages    half an hour of one core
    python -m arr_coc_lab.teaching.lines src/arr_coc/bundled/ocr --map            ten minutes

The print of the pictures is known (`pictures/lines.jsonl.gz`), so that no picture is needed. A line is
evidence if half of it, or of a box of evidence, lies in the other; what stands just left of a line is, if a
box of evidence lies there. Six hundred pictures are soon known by heart: lines that are no evidence are left
out at random, numbers are disturbed and matches forgotten, and with --pages every fourth page is a rendered
one, whose words are known. The running mean of the weights is kept, and the scale and bias that make its
logits log odds are fitted on cells of the validation split.

Then a map from the guide's table of meanings is learned, on the real pictures, with which the same head does
without sentence vectors; --map learns that alone.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from arr_coc.choose.boxes import Box
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import Calibration
from arr_coc.relevance.lines import LineHead, PrintedLine, line_matches, word_rows
from arr_coc.relevance.ocr import (
    HEAD_FILE,
    MAP,
    MARGIN,
    OcrSource,
    OcrView,
    judge,
    load_sentences,
    scored_boxes,
    table_meanings,
)
from arr_coc.relevance.source import cells_from_boxes, fit_calibration
from arr_coc.selector import Sizing
from arr_coc_lab.pictures.labels import Split, pictures
from arr_coc_lab.world.browser.cache import CachedPages
from arr_coc_lab.world.browser.chromium import Word

STEPS, PAGES, QUESTIONS = 1600, 4, 7  # steps, pictures of a step, questions of a picture
RENDERED = 0.25  # share of rendered pages, where there are any
SPACE, SAME_ROW = (
    0.6,
    0.5,
)  # of their words that share a line: gap at most, overlap at least, in heights of print
MAP_STEPS, MAP_RATE, MAP_TEXTS = 600, 1e-3, 6000  # of the map from meanings; texts that it starts from
RATE, DECAY, DROPOUT = 1e-3, 0.2, 0.25
LEFT_OUT, NOISE, FORGOTTEN = 0.12, 0.03, 0.1  # share of lines, spread of facts, share of matches
# So many of another picture's questions are asked as unanswerable, of these kinds. With fewer a head tells a
# picture's own unanswerable questions by their wording alone, as a regression on sentence vectors does, too.
STRANGERS = 3
OTHERS = ("value", "label", "table", "paraphrase", "button")


class LineQuestion(NamedTuple):
    """A question about the lines of a picture: its vector, how the lines fit it, and which are needed."""

    text: str
    ask: str
    vector: Tensor  # [SENTENCE_WIDTH]
    matches: Tensor  # [L, MATCHES]
    needed: Tensor  # [L, 2] in {0, 1}: the line, and what stands left of it
    present: bool


class LinePage(NamedTuple):
    """A picture's print with its questions."""

    view: OcrView
    questions: list[LineQuestion]


def overlap(lines: Tensor, box: Box) -> tuple[Tensor, Tensor]:
    """Return the area [L] that boxes [L, 4] share with a box, and that as a share of the smaller of both."""
    x0, y0, x1, y1 = box
    wide = (lines[:, 2].clamp(max=x1) - lines[:, 0].clamp(min=x0)).clamp_min(0)
    high = (lines[:, 3].clamp(max=y1) - lines[:, 1].clamp(min=y0)).clamp_min(0)
    own = (lines[:, 2] - lines[:, 0]) * (lines[:, 3] - lines[:, 1])
    area = (x1 - x0) * (y1 - y0)
    return wide * high, wide * high / own.clamp(max=area).clamp_min(1)


def needed_lines(boxes: Tensor, evidence: Sequence[Box]) -> Tensor:
    """Return which lines [L, 4], and which of what stands left of them, are evidence: float [L, 2]."""
    made = torch.zeros(len(boxes), 2)
    height = boxes[:, 3] - boxes[:, 1]
    left = torch.stack((boxes[:, 0] - MARGIN * height, boxes[:, 1] - 2, boxes[:, 0], boxes[:, 3] + 2), 1)
    for box in evidence:
        hit = overlap(boxes, box)[1] >= 0.5
        made[:, 0] = torch.maximum(made[:, 0], hit.float())
        if not hit.any():  # a tick box, an icon
            area = max(1.0, (box[2] - box[0]) * (box[3] - box[1]))
            made[:, 1] = torch.maximum(made[:, 1], (overlap(left, box)[0] / area >= 0.5).float())
    return made


def real_pages(split: Split, source: OcrSource) -> list[LinePage]:
    """Return the pictures of a split that have print, with their questions in order."""
    made = []
    for one in tqdm([one for one in pictures(split) if one.lines and one.questions], desc=split):
        size = one.size[1], one.size[0]
        questions = [(question.text, question.ask, question.boxes) for question in one.questions]
        made += _line_page(source, one.lines, size, questions)
    return made


def rendered_pages(folder: Path, most: int, source: OcrSource) -> list[LinePage]:
    """Return the first pages of a folder of `arr-coc world`, their words joined to lines as an OCR would
    read them.

    Questions about all of a page are left out. ValueError if there are no pages.
    """
    made = []
    cached = CachedPages(folder, "train")
    for number in tqdm(range(min(most, len(cached))), desc=folder.name):
        page = cached[number]
        width, height = page.image.size
        questions = [
            (question.text, question.kind, question.evidence)
            for question in page.questions
            if question.evidence or question.kind == "unanswerable"
        ]
        made += _line_page(source, joined_lines(page.words), (height, width), questions)
    return made


def joined_lines(words: Sequence[Word]) -> list[PrintedLine]:
    """Words in reading order joined to lines where they stand side by side."""
    lines: list[PrintedLine] = []
    for text, (x0, y0, x1, y1), *_ in words:
        high = y1 - y0
        if lines:
            before, (left, top, right, bottom) = lines[-1]
            shared = min(bottom, y1) - max(top, y0)
            if shared >= SAME_ROW * max(high, bottom - top) and -high < x0 - right <= SPACE * high:
                box = (left, min(top, y0), max(right, x1), max(bottom, y1))
                lines[-1] = PrintedLine(f"{before} {text}", box)
                continue
        lines.append(PrintedLine(text, (x0, y0, x1, y1)))
    return lines


def _line_page(
    source: OcrSource,
    lines: Sequence[PrintedLine],
    size: tuple[int, int],
    questions: Sequence[tuple[str, str, Sequence[Box]]],
) -> list[LinePage]:
    """Return a page of lines with questions (text, kind, evidence); none if it has neither."""
    view = source.of_lines(lines, size)
    if not view.lines or not questions:
        return []
    vectors = source.sentences([text for text, *_ in questions])
    made = [
        LineQuestion(
            text,
            ask,
            vector,
            line_matches(text, view.lines, view.vectors @ vector),
            needed_lines(view.boxes, evidence),
            bool(evidence),
        )
        for (text, ask, evidence), vector in zip(questions, vectors, strict=True)
    ]
    return [LinePage(view, made)]


def mapped(page: LinePage, towards: Tensor) -> LinePage:
    """Return a page with vectors by the guide's table of meanings, through a map [.., SENTENCE_WIDTH].

    Gradients reach the map through the vectors and through their cosines, the first two matches.
    """
    texts = [line.text for line in page.view.lines]
    vectors = F.normalize(_meanings(tuple(texts)) @ towards, dim=1)
    wanted = F.normalize(_meanings(tuple(one.text for one in page.questions)) @ towards, dim=1)
    questions = []
    for one, vector in zip(page.questions, wanted, strict=True):
        cosines = vectors @ vector
        spread = cosines.detach().std(unbiased=False).clamp_min(0.02)
        score = (cosines - cosines.mean()) / spread / 3
        matches = torch.cat((torch.stack((cosines, score), 1), one.matches[:, 2:]), 1)
        questions.append(one._replace(vector=vector, matches=matches))
    return LinePage(page.view._replace(vectors=vectors), questions)


@lru_cache(maxsize=4096)
def _meanings(texts: tuple[str, ...]) -> Tensor:
    return table_meanings(texts)


def closest_map(texts: Sequence[str], vectors: Tensor) -> Tensor:
    """Return the map [MEANING_WIDTH + 1, SENTENCE_WIDTH] from texts' meanings that comes nearest to vectors
    [N, SENTENCE_WIDTH] of them.
    """
    meanings = table_meanings(texts)
    return torch.linalg.solve(meanings.T @ meanings + torch.eye(meanings.shape[1]), meanings.T @ vectors)


def learn_map(head: LineHead, training: Sequence[LinePage], start: Tensor, steps: int = MAP_STEPS) -> Tensor:
    """Learn a map from meanings with which a head, itself unchanged, finds lines as with sentence vectors."""
    torch.manual_seed(0)
    rng = random.Random(0)
    towards = start.clone().requires_grad_(True)
    mean = start.clone()
    optimizer = torch.optim.Adam([towards], lr=MAP_RATE)
    for step in tqdm(range(steps), desc="map"):
        optimizer.param_groups[0]["lr"] = MAP_RATE * min(1.0, (step + 1) / 20, 2 * (steps - step) / steps)
        losses = []
        for _ in range(PAGES):
            page, other = rng.choice(training), rng.choice(training)
            losses.append(lines_loss(head, mapped(page, towards), mapped(other, towards), rng))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
        mean.lerp_(towards.detach(), 0.02)
    return mean


def lines_loss(head: LineHead, page: LinePage, other: LinePage, rng: random.Random) -> Tensor:
    """Return the loss of some questions of a picture and of some of another's, which it cannot answer."""
    view = page.view
    some = rng.sample(page.questions, min(QUESTIONS, len(page.questions)))
    strangers = [question for question in other.questions if question.ask in OTHERS and other is not page]
    for strange in rng.sample(strangers, min(STRANGERS, len(strangers))):
        matches = line_matches(strange.text, view.lines, view.vectors @ strange.vector)
        nothing = torch.zeros(len(view.lines), 2)
        some.append(strange._replace(matches=matches, needed=nothing, present=False))
    needed = torch.stack([question.needed for question in some])
    kept = (torch.rand(len(view.lines)) > LEFT_OUT) | (needed[..., 0].sum(0) > 0)
    rows = kept.nonzero().flatten() if kept.any() else torch.arange(len(view.lines))
    matches = torch.stack([question.matches for question in some])[:, rows]
    matches = matches * (torch.rand(len(some), 1, matches.shape[-1]) > FORGOTTEN)
    facts = view.facts[rows]
    logits, present = head(
        view.vectors[rows],
        facts + NOISE * torch.randn_like(facts),
        view.boxes[rows],
        torch.stack([question.vector for question in some]),
        matches,
        [word_rows(question.text) for question in some],
    )
    needed = needed[:, rows]
    count = needed[..., 0].sum(1)
    # The lines compete for each question, each is classified alone, and so is the whole picture.
    compete = -(logits[..., 0].log_softmax(1) * needed[..., 0]).sum(1) / count.clamp_min(1)
    compete = (compete - count.clamp_min(1).log()) * (count > 0)
    alone = F.binary_cross_entropy_with_logits(logits, needed, reduction="none").sum((1, 2))
    target = torch.tensor([float(question.present) for question in some])
    whole = F.binary_cross_entropy_with_logits(present, target)
    return compete.mean() + 0.5 * (alone / count.clamp_min(1)).mean() + 0.5 * whole


def train_lines(
    training: Sequence[LinePage], rendered: Sequence[LinePage] = (), steps: int = STEPS
) -> LineHead:
    """Train a head on real pictures and rendered pages; the running mean of its weights."""
    torch.manual_seed(0)
    rng = random.Random(0)
    head = LineHead(DROPOUT)
    mean = AveragedModel(head, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    for step in tqdm(range(steps), desc="learning"):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 50, 2 * (steps - step) / steps)
        drawn = [rendered if rendered and rng.random() < RENDERED else training for _ in range(PAGES)]
        losses = [lines_loss(head, rng.choice(some), rng.choice(some), rng) for some in drawn]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        mean.update_parameters(head)
    trained = LineHead()
    trained.load_state_dict(mean.module.state_dict())
    return trained.eval()


@torch.no_grad()
def lines_calibration(head: LineHead, source: OcrSource) -> Calibration:
    """Return the scale and bias of a head's logits on cells of the validation split; ValueError if none is
    clear.
    """
    logits, evidence = [], []
    for one in pictures("validation"):
        answerable = [question for question in one.questions if question.boxes]
        view = source.of_lines(one.lines, (one.size[1], one.size[0]))
        if not view.lines or not answerable:
            continue
        grid = Sizing().grid(one.size[1], one.size[0])
        texts = [question.text for question in answerable]
        judged, _ = judge(head, view, texts, source.sentences(texts))
        for question, scores in zip(answerable, judged, strict=True):
            logits.append(cells_from_boxes(*scored_boxes(view, scores), grid, view.size))
            evidence.append(evidence_cells(question.boxes, grid, one.size))
    fitted = fit_calibration(logits, evidence)
    if fitted is None:
        raise ValueError("the head's logits say nothing about evidence: train it for more steps")
    return fitted


def main() -> None:
    """Train, calibrate and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--pages", type=Path, help="a folder of arr-coc world, in whose words it learns, too")
    parser.add_argument("--most", type=int, default=1200, help="pages of it")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--map", action="store_true", help="the map alone, for the head that OUT holds")
    arguments = parser.parse_args()
    path = arguments.out / HEAD_FILE.name
    encode = load_sentences()
    sentences = table_meanings if arguments.map else encode  # for the map alone nobody asks for vectors
    source = OcrSource(read=lambda pixels: [], sentences=sentences, head=LineHead())
    training = real_pages("train", source)
    if arguments.map:
        tensors = {name: tensor for name, tensor in load_file(path).items() if name != MAP}
        with safe_open(path, "pt") as file:
            facts = file.metadata()
        head = LineHead()
        head.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        head.eval()
    else:
        rendered = rendered_pages(arguments.pages, arguments.most, source) if arguments.pages else []
        head = train_lines(training, rendered, arguments.steps)
        scale, bias = lines_calibration(head, source)
        arguments.out.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in head.state_dict().items()}
        facts = {"format": "arr-coc lines 1", "scale": f"{scale:.4f}", "bias": f"{bias:.4f}"}
    head.requires_grad_(False)
    texts = sorted({line.text for page in training for line in page.view.lines})
    texts = random.Random(0).sample(texts, min(MAP_TEXTS, len(texts)))
    towards = learn_map(head, training, closest_map(texts, encode(texts)))
    tensors[MAP] = towards.to(torch.bfloat16).contiguous()
    save_file(tensors, path, facts)
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))


if __name__ == "__main__":
    main()
