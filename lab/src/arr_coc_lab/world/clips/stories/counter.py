"""A counter that counts up."""

from __future__ import annotations

from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.readings import reading_act
from arr_coc_lab.world.clips.stage import Act, Stage, Story, register

LABELS = ("Count", "Score", "Visitors", "Total")
HELD_OUT_LABELS = ("Points", "Laps")


def plan(stage: Stage, rect: Rect) -> Act:
    """Return a label and a number that grows by the same step every one to three ticks."""
    rng = stage.rng
    pace = min(rng.randint(1, 3), stage.ticks)
    step, start = rng.choice((1, 1, 2, 5, 10)), rng.randint(1, 60)
    label = rng.choice(HELD_OUT_LABELS if stage.new else LABELS)
    values = [str(start + step * i) for i in range(-(-stage.ticks // pace))]
    return reading_act(stage, rect, "counter", f"{label}:", values, pace)


register(Story("counter", "top", 1, plan))
