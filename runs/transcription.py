"""Transcription: a page of labelled values read by a fixed set of cells, by all of them, and by a walk over its lines.

    python runs/transcription.py runs/results/transcription.json [--pages 3]

    pages       `draw_text_page`, filler "none": 26 lines, 1024 x 1024 px, split "test"
    truth       `transcript`: "label VALUE" a line
    characters  1 - edits / length of the longer, of the whole page; values: the share of the 26 values that are in the text
    question    the one of QUESTIONS whose walk has most values on two pages of split "validation": the bundled model was
                never taught to transcribe, so what it makes of one line depends on how it is asked

    fixed set   mode "sparse", 273 cells        all       every token
    walk        `Session.transcribe`, parts of at most 16 cells, about a line each
    by label    what the same cells hold, read in a way that the model was taught: every third label is asked for by itself ("What is
                written next to ...?") within the cells of the fixed set, of its part of the walk, and within all

The question names no place, so fixed and all are asked it as it is. The bundled model, greedily, 160 new tokens at most.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

import torch
from tqdm import tqdm

from arr_coc.data.evidence import evidence_cells
from arr_coc.data.metrics import anls, exact_match
from arr_coc.model import ARRCOCModel
from arr_coc_lab.world import draw_text_page, transcript

QUESTIONS = (
    "Transcribe the text.",
    "What does the small text say?",
    "Read the small print.",
    "What does the gray text say?",
    "What is written in gray?",
)
PART, LONGEST, LABELS = 16, 160, 3


def scores(text, page):
    """Characters and values of a text."""
    values = ["".join(fact.value) for fact in page.facts]
    words = text.split()
    return {
        "characters": anls(text, [transcript(page)], threshold=0.0),
        "values": fmean(value in words for value in values),
    }


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("out", type=Path)
parser.add_argument("--pages", type=int, default=3)
args = parser.parse_args()

model = ARRCOCModel.from_pretrained(strict=True)
tries = {}
for question in tqdm(QUESTIONS, "questions"):
    pages = [draw_text_page(seed, split="validation", filler="none") for seed in range(2)]
    walks = [model.session(page.image).transcribe(question, budget=PART).text for page in pages]
    tries[question] = round(fmean(scores(*pair)["values"] for pair in zip(walks, pages, strict=True)), 3)
question = max(tries, key=tries.get)
rows = {"fixed set": [], "all": [], "walk": []}
labels = {name: [] for name in rows}
parts, cells = [], []
for seed in tqdm(range(args.pages), "pages"):
    page = draw_text_page(seed, filler="none")
    session = model.session(page.image)
    fixed = session.ask(question, mode="sparse", budget=273, max_new_tokens=LONGEST)
    every = session.ask(question, mode="full", max_new_tokens=LONGEST)
    walk = session.transcribe(question, budget=PART)
    parts.append(len(walk.answers))
    cells.append(sum(answer.kept for answer in walk.answers))
    for name, text in (("fixed set", fixed.text), ("all", every.text), ("walk", walk.text)):
        rows[name].append(scores(text, page))
    for one in page.questions[::LABELS]:
        needed = evidence_cells(one.evidence, (32, 32), page.image.size).flatten().nonzero().flatten()
        part = max(
            (block.cells for block in walk.blocks), key=lambda cells: int(torch.isin(needed, cells).sum())
        )
        within = {"fixed set": fixed.allocation.keep, "all": torch.arange(1024), "walk": part}
        for name, some in within.items():
            text = session.ask(one.text, mode="sparse", cells=some).text
            labels[name].append((exact_match(text, [one.answer]), float(torch.isin(needed, some).all())))
result = {
    "command": f"python runs/transcription.py {args.out} --pages {args.pages}",
    "pages": args.pages,
    "lines of a page": 26,
    "question": question,
    "values of its walk on validation pages, of each question": tries,
    "labels asked for": len(labels["all"]),
    "parts of a walk": round(fmean(parts), 1),
    "cells of a walk": round(fmean(cells), 1),
    "rows": {
        name: {key: round(fmean(one[key] for one in some), 3) for key in some[0]}
        for name, some in rows.items()
    },
    "by label": {
        name: {
            "read": round(fmean(right for right, _ in some), 3),
            "all evidence among the cells": round(fmean(whole for _, whole in some), 3),
        }
        for name, some in labels.items()
    },
}
args.out.write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result, indent=1))
