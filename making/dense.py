"""The lesson `dense` of recipes: each kept token is to say what its cell holds, as in `making.vision`.

It needs the words of drawn pages, so it teaches nothing on other images. A recipe has it by
imports = ["making.dense"] and lessons = { dense = 0.02 }, from the repository root.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from arr_coc.training.lessons import register_lesson
from arr_coc.training.rows import ImageRows
from arr_coc.world import draw_page
from making.bundled import DIM
from making.targets import cell_targets
from making.vision import dense_loss
from making.words import RoleSpace, build_embeddings, build_roles, build_tokenizer

PLACE = "world page "
"""How the place of a drawn page begins; its seed follows."""


@lru_cache(maxsize=1)
def bundled_roles() -> RoleSpace:
    """The read-out directions of the bundled model."""
    tokenizer = build_tokenizer()
    return build_roles(tokenizer, build_embeddings(tokenizer, DIM))


def dense(item: ImageRows, keep: Tensor, tokens: Tensor) -> Tensor:
    """The dense loss of kept cells.

    Args:
        item: a drawn page, which is drawn once more for its words; else there is no loss.
        keep: long [K], the kept cells.
        tokens: [K, D] of the bundled model.
    """
    if not item.where.startswith(PLACE):
        return tokens.sum() * 0.0
    page = draw_page(int(item.where.removeprefix(PLACE)), item.image.size, "train", void=False)
    words = torch.from_numpy(cell_targets(page)).flatten(1).long()[:, keep.cpu()]
    return dense_loss(tokens.float().cpu(), words, bundled_roles())[0].to(tokens.device)


register_lesson("dense", dense)
