"""A digital clock that goes on, a minute or more at a time."""

from __future__ import annotations

from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.readings import reading_act
from arr_coc_lab.world.clips.stage import Act, Stage, Story, register

DAY = 24 * 60


def plan(stage: Stage, rect: Rect) -> Act:
    """Return the time as 09:41, which moves on by the same number of minutes every one to three ticks."""
    rng = stage.rng
    pace, step, start = min(rng.randint(1, 3), stage.ticks), rng.choice((1, 1, 5, 7, 10)), rng.randrange(DAY)
    minutes = [(start + step * i) % DAY for i in range(-(-stage.ticks // pace))]
    values = [f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes]
    return reading_act(stage, rect, "clock", "", values, pace)


register(Story("clock", "top", 1, plan))
