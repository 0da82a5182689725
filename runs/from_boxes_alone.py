"""The first hypothesis of the plan: taught by boxes, selection IoU more than doubles within 1000 steps.

    python runs/from_boxes_alone.py ALLOCATOR OUT.json

Selection IoU: of the evidence cells and as many of the best cells, on held-out pages of 1024 x 1024 px, every
question that has evidence; the untrained layer against the trained one. About a minute on two cores.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from arr_coc.data.evidence import evidence_cells
from arr_coc.session import Session
from arr_coc.train.losses import selection_iou
from arr_coc.train.recipe import load_recipe
from arr_coc.train.trainer import build_learner
from arr_coc_lab.results.intervals import bootstrap_interval
from arr_coc_lab.world import draw_page

PAGES = 20


@torch.no_grad()
def measure(init: str | None) -> list[float]:
    """Selection IoU of every question with evidence."""
    learner = build_learner(load_recipe("relevance", {"init": init}))
    ious = []
    for seed in range(PAGES):
        page = draw_page(seed, (1024, 1024), "validation")
        questions = [q for q in page.questions if q.evidence]
        if not questions:
            continue
        session = Session(learner.model, page.image)
        one = learner.model.adapter.features(session.inputs("?"))
        logits = learner.relevance(session, one, [q.text for q in questions]).logits
        cells = [evidence_cells(q.evidence, one.grids[0][1:], page.image.size) for q in questions]
        ious += selection_iou(logits, torch.stack(cells))
    return ious


allocator, out = sys.argv[1:]
recipe = json.loads((Path(allocator) / "recipe.json").read_text())
untrained, trained = measure(None), measure(allocator)
result = {
    "command": "python runs/from_boxes_alone.py ALLOCATOR runs/results/hypothesis.json",
    "steps": recipe["steps"],
    "pages": PAGES,
    "questions": len(trained),
    "untrained IoU": round(float(np.mean(untrained)), 4),
    "trained IoU": round(float(np.mean(trained)), 4),
    "trained interval": [round(end, 4) for end in bootstrap_interval(np.array(trained))],
    "ratio": round(float(np.mean(trained) / np.mean(untrained)), 2),
}
result["holds"] = result["ratio"] > 2 and result["steps"] <= 1000
Path(out).write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result, indent=1))
sys.exit(not result["holds"])
