"""The null of resolution: each question picks how small its image may be, and no cell is chosen.

The image is encoded at 64, 128, 273 and 529 tokens, then at full size, until the first new token is at least
as probable as `SURE`. CARES (arXiv 2510.19496) trains a small model to predict that size and pays for one
encoding; here the model's own confidence decides, and every encoding counts as time of choosing.
"""

from __future__ import annotations

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.files.images import open_image
from arr_coc.modes.call import EncodedImages
from arr_coc.session import Session
from arr_coc_lab.evaluate.early import Ready, Spend, whole_image
from arr_coc_lab.evaluate.scene import resize_to_grid
from arr_coc_lab.evaluate.view import View
from arr_coc_lab.rivals.downsample import smaller_grid
from arr_coc_lab.rivals.method import Method, register

NAME = "resolution by question"
LOOKS = (64, 128, 273, 529)  # tokens of the smaller images, before the full one
SURE = 0.9
"""Least probability of the first new token at which its answer is taken."""


def resolution_by_question(sure: float = SURE, name: str = NAME) -> Method:
    """Return the method with a threshold: 0 always takes the smallest image, above 1 always the full one."""

    def prepare(view: View, i: int, budget: Spend, encoded: EncodedImages, watch: Stopwatch) -> Ready:
        sizes = [grid for count in LOOKS if (grid := smaller_grid(view.grid[1:], count)) != view.grid[1:]]
        for grid in dict.fromkeys(sizes):
            session = small_session(view, grid)
            with watch("scoring"):
                ready = whole_image(view, session.inputs(view.source.queries[i].text))
                logits = view.model.base(**ready.compacted.kwargs, logits_to_keep=1).logits[0, -1]
                if logits.float().softmax(-1).max() >= sure:
                    return ready
        with watch("encode"):
            return whole_image(view, view.prompts[i])

    return Method(
        name,
        "null",
        prepare=prepare,
        by_question=True,
        needs=frozenset({"sizes"}),
        fixed=True,
        variation=_at,
        label="each question's own resolution",
        paper="after CARES, arXiv 2510.19496",
    )


def small_session(view: View, grid: tuple[int, int]) -> Session:
    """Return the image of a view shrunk to about `grid` (H, W) cells, prepared once."""

    def make() -> Session:
        return Session(view.model, resize_to_grid(open_image(view.source.image), grid, view.model))

    return view.once(("small", grid), make)


def _at(argument: str) -> Method:
    """Return the method with another threshold, given after the colon: "resolution by question:0.5"."""
    try:
        sure = float(argument)
    except ValueError:
        sure = float("nan")
    if not 0 <= sure <= 1:
        raise ValueError(f"method {NAME}:{argument} has no probability: use 0 to 1, such as {NAME}:0.5")
    return resolution_by_question(sure, f"{NAME}:{argument}")


register(resolution_by_question())
