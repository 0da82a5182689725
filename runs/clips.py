"""How much of the evidence of drawn clips is kept, beside published rules and nulls.

    python runs/clips.py --clips 60 [--out runs/results/clips.json]

Clips are of `arr_coc_lab.world.clips`, split "test": 448 x 448 px, 8 s at 4 frames per second, two frames a step, 16 steps
of 14 x 14 cells. Ours is the guide on pixels, before any encoder, with nothing trained on clips. The rivals that read
encoded cells get those of the bundled model's vision tower; AKS gets, as the score of a step, the guide's.
What favours us: the clips are drawn here (the guide has not met them, but pages of the same shapes), a third of the
questions name a moment in words that `video.temporal` reads, and the features are those of a small tower. Cost: some 20 s a clip on one core.
"""

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console

from arr_coc import ARRCOCModel
from arr_coc.selector import ClipSelector, Selector
from arr_coc_lab.data.clip_evidence import evidence_grid, step_count
from arr_coc_lab.evaluate.clips import (
    ClipInquiry,
    ClipSample,
    EvidenceItem,
    measure,
    oracle,
    registered,
    with_foreign_question,
)
from arr_coc_lab.evaluate.clips_report import summarise, table, write_summary
from arr_coc_lab.evaluate.questions import ImageQueries, Query
from arr_coc_lab.evaluate.view import View, watch_tower
from arr_coc_lab.rivals.clips import CLIP_METHODS
from arr_coc_lab.world.clips import draw_clip

SIDE, CELL, FPS, OURS = 448, 32, 4.0, "arr-coc (the guide)"


def encoded(model, frames):
    """The encoded cells of steps and the attention that they receive: [T, N, D], [T, N]."""
    cells, received = [], []
    for frame in frames:
        inputs = model.session(frame).inputs("?")
        features, tower = watch_tower(model, inputs)
        source = ImageQueries(frame, "clip", (Query("0", "?", ("",)),))
        view = View(model, source, (inputs,), features, tower)
        cells.append(features.cell_tokens(0).float())
        received.append(view.received(-2).float())
    return torch.stack(cells), torch.stack(received)


def sample(model, seed, split):
    """A drawn clip, ready to be measured."""
    clip = draw_clip(seed, (SIDE, SIDE), fps=FPS, split=split)
    steps = step_count(len(clip.frames))
    grid = (steps, SIDE // CELL, SIDE // CELL)
    frames = list(clip.frames)
    features, attention = encoded(model, frames[::2])
    questions = []
    for question in clip.questions:
        items = [
            EvidenceItem(evidence_grid([item], grid, clip.size), item.every) for item in question.evidence
        ]
        questions.append(ClipInquiry(question.text, question.family, items))
    return ClipSample(f"clip {seed}", grid, questions, features, frames, attention, CELL)


def chooser(selector):
    """Ours, as the measurement calls a method; and the guide's score of every step, for AKS."""
    held = {}

    def of(clip):
        if clip.name not in held:
            held.clear()
            times = [number / FPS for number in range(len(clip.frames))]
            held[clip.name] = ClipSelector(selector, clip.frames, clip.grid[1:], times=times)
        return held[clip.name]

    def choose(clip, text, budget):
        return of(clip).decide(text, budget).allocations[0].mask()

    def scores(clip, text):
        return of(clip).decide(text, 1).allocations[0].participatory.flatten(1).amax(1)

    return choose, scores


def main():
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--split", default="test", help="validation: to tune on")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = ARRCOCModel.from_pretrained()
    with torch.inference_mode():
        samples = [sample(model, seed, args.split) for seed in range(args.clips)]
        choose, scores = chooser(Selector.from_pretrained())
        rivals, notes = registered(samples, tuple(CLIP_METHODS), scores)
        methods = {
            OURS: choose,
            "the same, another clip's question": with_foreign_question(choose, samples),
            **rivals,
            "oracle": oracle,
        }
        summary = summarise(list(measure(samples, methods)), reference=OURS)
    summary |= {
        "command": f"python runs/clips.py --clips {args.clips}"
        + (f" --split {args.split}" if args.split != "test" else ""),
        "machine": {"processor": platform.processor() or platform.machine(), "torch": version("torch")},
        "clips": len(samples),
        "questions": sum(len(one.questions) for one in samples),
        "notes": notes,
    }
    if args.out:
        write_summary(summary, args.out)
    console = Console(width=160)
    console.print(table(summary), markup=False)
    console.print(json.dumps(notes))


if __name__ == "__main__":
    main()
