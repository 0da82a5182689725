"""The null "crop-black": the cells that ours keeps are shown as they are, and all others are painted black.

The model reads every token of that picture, no fewer than without a choice. Beside "arr-coc" with the same
cells it tells whether answers are lost by what is chosen or by how the others are left out.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.modes.call import EncodedImages
from arr_coc.relevance.native import to_image
from arr_coc.session import Session
from arr_coc_lab.evaluate.early import Ready, Spend, whole_image
from arr_coc_lab.evaluate.view import View
from arr_coc_lab.rivals.method import Method, register

CROP_BLACK = "crop-black"


def painted_black(picture: Tensor, mask: Tensor) -> Tensor:
    """Return a picture [3, h, w] that is 0 wherever `mask`, bool [H, W] of its cells, isn't set.

    Sides that are no multiple of the cells go by the nearest cell.
    """
    visible = F.interpolate(mask[None, None].to(picture), picture.shape[-2:], mode="nearest-exact")
    return picture * visible[0, 0]


def crop_black(view: View, i: int, budget: Spend, encoded: EncodedImages, watch: Stopwatch) -> Ready:
    """Return the prompt of a question with the painted image, of which all cells are encoded and read."""
    assert budget is not None, "its cost is that of all tokens, its cells are those of a budget"
    with watch("scoring"):
        allocation = view.chosen(None, i, budget)
        image = to_image(painted_black(view.picture, allocation.mask()[0].to(view.picture.device)))
        inputs = Session(view.model, image).inputs(view.source.queries[i].text)
    with watch("encode"):
        ready = whole_image(view, inputs)
    return Ready(ready.compacted, allocation.keep)


register(
    Method(
        CROP_BLACK,
        "null",
        prepare=crop_black,
        by_question=True,
        needs=frozenset({"sizes"}),
        timed=False,
        label="our cells, all others painted black",
    )
)
