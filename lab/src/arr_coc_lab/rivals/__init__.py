"""Rivals: published rules that select visual tokens of an image, one file per method, and null methods.

    rule(tensors of one image, k) -> Reduction(keep [k], tokens [k, D] or None)

Importing a file registers its method in `METHODS`. `clips` has those for video.
"""

from __future__ import annotations

from arr_coc.choose.attending import soft_top_k
from arr_coc_lab.rivals.cdpruner import cdpruner
from arr_coc_lab.rivals.divprune import divprune
from arr_coc_lab.rivals.downsample import smaller_grid
from arr_coc_lab.rivals.fastv import fastv
from arr_coc_lab.rivals.idpruner import idpruner
from arr_coc_lab.rivals.method import METHODS, ImageView, Method, Style, find_method, register
from arr_coc_lab.rivals.mmtok import mmtok
from arr_coc_lab.rivals.nulls import blind_oracle, even, ink_density, oracle, random
from arr_coc_lab.rivals.prumerge import prumerge_plus
from arr_coc_lab.rivals.reduction import Reduction
from arr_coc_lab.rivals.scope import scope
from arr_coc_lab.rivals.visionselector import QueryBlindScorer, visionselector
from arr_coc_lab.rivals.visionzip import visionzip

__all__ = [
    "Reduction", "METHODS", "Method", "ImageView", "Style", "register", "find_method",
    "fastv", "visionzip", "divprune", "cdpruner", "prumerge_plus", "scope", "mmtok", "idpruner",
    "visionselector", "QueryBlindScorer", "soft_top_k",
    "random", "even", "ink_density", "oracle", "blind_oracle", "smaller_grid",
]  # fmt: skip
