"""Trains the head of relevance "ocr" (`arr_coc.guide.lines.LineHead`) on the labelled real pictures.

    python -m arr_coc_lab.teaching.lines src/arr_coc/bundled/ocr          five minutes of one core

The print of the pictures is known (`pictures/lines.jsonl.gz`), so that no picture is needed. A line is
evidence if half of it, or of a box of evidence, lies in the other; what stands just left of a line is, if a
box of evidence lies there. Lines that are no evidence are left out at random, numbers are disturbed and
matches forgotten, for six hundred pictures are soon known by heart. The running mean of the weights is kept,
and the scale and bias that make its logits log odds are fitted on cells of the validation split.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from arr_coc.choose.boxes import Box
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import Calibration
from arr_coc.guide.lines import LineHead, line_matches, word_rows
from arr_coc.guide.ocr import MARGIN, OcrSource, OcrView, judge, load_sentences, scored_boxes
from arr_coc.guide.selector import Sizing
from arr_coc.guide.source import cells_from_boxes, fit_calibration
from arr_coc_lab.pictures.labels import RealPicture, Split, pictures

STEPS, PAGES, QUESTIONS = 1600, 4, 7  # steps, pictures of a step, questions of a picture
RATE, DECAY, DROPOUT = 1e-3, 0.2, 0.25
LEFT_OUT, NOISE, FORGOTTEN = 0.12, 0.03, 0.1  # share of lines, spread of facts, share of matches
# Kinds of another picture's questions that are asked as unanswerable.
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
    picture: RealPicture


def overlap(lines: Tensor, box: Box) -> tuple[Tensor, Tensor]:
    """The area [L] that boxes [L, 4] share with a box, and that as a share of the smaller of both."""
    x0, y0, x1, y1 = box
    wide = (lines[:, 2].clamp(max=x1) - lines[:, 0].clamp(min=x0)).clamp_min(0)
    high = (lines[:, 3].clamp(max=y1) - lines[:, 1].clamp(min=y0)).clamp_min(0)
    own = (lines[:, 2] - lines[:, 0]) * (lines[:, 3] - lines[:, 1])
    area = (x1 - x0) * (y1 - y0)
    return wide * high, wide * high / own.clamp(max=area).clamp_min(1)


def needed_lines(boxes: Tensor, evidence: Sequence[Box]) -> Tensor:
    """Which lines [L, 4], and which of what stands left of them, are evidence: float [L, 2]."""
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


def pages(split: Split, source: OcrSource) -> list[LinePage]:
    """The pictures of a split that have print."""
    made = []
    for one in tqdm(pictures(split), desc=split):
        view = source.of_lines(one.lines, (one.size[1], one.size[0]))
        if not view.lines or not one.questions:
            continue
        vectors = source.sentences([question.text for question in one.questions])
        questions = [
            LineQuestion(
                question.text,
                question.ask,
                vector,
                line_matches(question.text, view.lines, view.vectors @ vector),
                needed_lines(view.boxes, question.boxes),
                bool(question.boxes),
            )
            for question, vector in zip(one.questions, vectors, strict=True)
        ]
        made.append(LinePage(view, questions, one))
    return made


def lines_loss(head: LineHead, page: LinePage, other: LinePage, rng: random.Random) -> Tensor:
    """The loss of some questions of a picture, and at times one of another's."""
    view = page.view
    some = rng.sample(page.questions, min(QUESTIONS, len(page.questions)))
    strange = rng.choice(other.questions)
    if rng.random() < 0.5 and strange.ask in OTHERS:
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


def train_lines(training: Sequence[LinePage], steps: int = STEPS) -> LineHead:
    """Train a head; the running mean of its weights."""
    torch.manual_seed(0)
    rng = random.Random(0)
    head = LineHead(DROPOUT)
    mean = AveragedModel(head, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    for step in tqdm(range(steps), desc="learning"):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 50, 2 * (steps - step) / steps)
        losses = [lines_loss(head, rng.choice(training), rng.choice(training), rng) for _ in range(PAGES)]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        mean.update_parameters(head)
    trained = LineHead()
    trained.load_state_dict(mean.module.state_dict())
    return trained.eval()


@torch.no_grad()
def lines_calibration(head: LineHead, validation: Sequence[LinePage]) -> Calibration:
    """The scale and bias of a head's logits on cells of labelled pictures; ValueError if none is clear."""
    logits, evidence = [], []
    for view, questions, picture in validation:
        grid = Sizing().grid(picture.size[1], picture.size[0])
        vectors = torch.stack([question.vector for question in questions])
        judged, _ = judge(head, view, [question.text for question in questions], vectors)
        for question, scores in zip(picture.questions, judged, strict=True):
            if question.boxes:
                logits.append(cells_from_boxes(*scored_boxes(view, scores), grid, view.size))
                evidence.append(evidence_cells(question.boxes, grid, picture.size))
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
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    source = OcrSource(read=lambda pixels: [], sentences=load_sentences(), head=LineHead())
    head = train_lines(pages("train", source), arguments.steps)
    scale, bias = lines_calibration(head, pages("validation", source))
    arguments.out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in head.state_dict().items()}
    facts = {"format": "arr-coc lines 1", "scale": f"{scale:.4f}", "bias": f"{bias:.4f}"}
    save_file(tensors, arguments.out / "lines.safetensors", facts)
    print(f"scale {scale:.3f}, bias {bias:.3f}")


if __name__ == "__main__":
    main()
