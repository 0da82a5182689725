"""Pages of the drawn world inside clips: what `static` and `scroll` share."""

from __future__ import annotations

from arr_coc_lab.world.clips.stage import Stage
from arr_coc_lab.world.page import MAX_SEED, Page, draw_page
from arr_coc_lab.world.questions import Question

SMALL = ("small", "presence")
"""Families left out: print that is too small for a clip, and absent things."""
TRIES = 20


def drawn_page(stage: Stage, size: tuple[int, int]) -> tuple[Page, list[Question]]:
    """Return a page of a size in px, of the clip's split, with at least one question, and its questions."""
    for _ in range(TRIES):
        page = draw_page(stage.rng.randint(0, MAX_SEED), size, stage.split, void=False)
        questions = [q for q in page.questions if q.evidence and q.family not in SMALL]
        if questions:
            break
    return page, questions
