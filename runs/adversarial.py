"""Adversarial saliency: gray text on gray paper beside a bright red square.

    python runs/adversarial.py ALLOCATOR|bundled OUT.json

The law: for "What does the gray text say?" the text gets more than twice the square's tokens, cell for cell: the share of
its cells that is kept is more than twice the share of the square's (which covers three times as many cells). Counted with
few tokens, with some, and with the default budget, where a quarter of the page is kept and much of the square with it:
there the text can have all of its cells and the law fail. So each budget also says on how many pages all of the text is
kept, which is what an answer needs. Held-out pages of 1024 x 1024 px; about two minutes on two cores.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from arr_coc.choose.budget import DEFAULT_BUDGET
from arr_coc.data.evidence import evidence_cells
from arr_coc.model import ARRCOCModel
from arr_coc_lab.world import draw_page

PAGES, BUDGETS = 60, (64, 128, DEFAULT_BUDGET)


def distractor(page, fact):
    """The box of the bright red square beside the gray text: the nearest red square."""
    x0, y0, x1, y1 = fact.boxes[0]
    squares = [t for t in page.things if (t.colour, t.shape) == ("red", "square")]
    square = min(squares, key=lambda t: abs(t.x - (x0 + x1) / 2) + abs(t.y - (y0 + y1) / 2))
    half = square.size // 2
    return (square.x - half, square.y - half, square.x + half, square.y + half)


allocator, out = sys.argv[1:]
model = ARRCOCModel.from_pretrained(allocator=None if allocator == "bundled" else allocator, strict=True)
shares: dict[int, list[tuple[float, float, int]]] = {budget: [] for budget in BUDGETS}
pages = 0
for seed in range(PAGES * 4):
    page = draw_page(seed, (1024, 1024), "test")
    facts = [fact for fact in page.facts if fact.family == "gray"]
    if not facts or pages == PAGES:
        continue
    pages += 1
    session = model.session(page.image)
    for budget in BUDGETS:
        kept = torch.zeros(32, 32, dtype=torch.bool)
        look = session.look("What does the gray text say?", budget=budget, mode="prune")
        kept.view(-1)[look.keep] = True
        text = evidence_cells(facts[0].boxes, (32, 32), page.image.size)
        red = evidence_cells([distractor(page, facts[0])], (32, 32), page.image.size)
        red &= ~text
        shares[budget].append(
            (kept[text].float().mean().item(), kept[red].float().mean().item(), int(kept[red].sum()))
        )
result = {
    "command": f"python runs/adversarial.py {allocator} {out}",
    "pages": pages,
    "default budget": DEFAULT_BUDGET,
}
for budget, rows in shares.items():
    text, red, count = (float(np.mean(column)) for column in zip(*rows, strict=True))
    result[str(budget)] = {
        "share of the text's cells kept": round(text, 3),
        "share of the distractor's cells kept": round(red, 3),
        "ratio": round(text / max(red, 1e-9), 1),
        "tokens on the distractor": round(count, 2),
        "pages with all of the text": round(float(np.mean([t == 1 for t, _, _ in rows])), 3),
        "pages with more of the text than of the distractor": round(
            float(np.mean([t > r for t, r, _ in rows])), 3
        ),
        "pages with more than twice": round(float(np.mean([t > 2 * r for t, r, _ in rows])), 3),
    }
Path(out).write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result, indent=1))
