"""The stories of drawn clips, one in each file; importing one registers it."""

from arr_coc_lab.world.clips.stories import (
    appear,
    blink,
    caption,
    clock,
    counter,
    flicker,
    move,
    noise,
    recolour,
    scroll,
    slides,
    static,
)

__all__ = [
    "appear", "blink", "caption", "clock", "counter", "flicker",
    "move", "noise", "recolour", "scroll", "slides", "static",
]  # fmt: skip
